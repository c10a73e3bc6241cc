"""Recorded sessions: as turns that wait for answers, with the words that they had, and never with a history twice."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols.openai import GenerationDialect
from plimsoll.harness.sealing.labelling import Known
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios import spec
from plimsoll.scenarios.formats.plimsoll import write
from plimsoll.scenarios.kinds import replay
from plimsoll.scenarios.samples import recording
from plimsoll.scenarios.samples.census import census
from plimsoll.scenarios.samples.conversations import conversations
from plimsoll.scenarios.samples.traces import read
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.sources.trace import Prompts
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.records.labels import IDEAL

GOLDEN = Path(__file__).parents[2] / "traces" / "formats"
S, MS = 1_000_000_000, 1_000_000
_CSV = (
    "time,input_tokens,output_tokens,user,took,left\n0,50,10,a,0.2,\n0.1,40,10,b,0.3,\n0.5,90,10,a,0.2,0.1\n"
    "1.0,95,10,b,0.1,\n1.5,120,10,a,0.2,\n1.6,5,5,,0.1,\n"
)


def scenario(path: Path, text: str = _CSV, **flags: Any) -> Scenario:
    path.write_text(text)
    columns = {"session": "user", "latency": "took", "gave_up": "left"} if text is _CSV else {}
    return spec.with_flags(trace=str(path), **{"columns": columns, **flags})


def test_a_later_turn_waits_for_the_one_before_and_as_long_as_its_user_thought(tmp_path: Path) -> None:
    made = scenario(tmp_path / "a.csv", sessions="turns", cancel="recorded")
    plan = made.build(6)
    assert plan.due_ns.tolist() == [0, 100 * MS, 300 * MS, 700 * MS, 1100 * MS, 1600 * MS]
    assert plan.after.tolist() == [-1, -1, 0, 1, 2, -1]
    assert plan.payload_ix.tolist() == [0, 1, 2, 3, 4, 5]
    assert plan.labels is not None
    assert plan.labels.columns["turn"].tolist() == [1, 1, 2, 2, 3, 1]
    assert [*made.told_apart_by()][:2] == ["session", "turn"]
    originals = made.originals()
    assert originals is not None
    assert next(iter(originals))["latency_ns"].tolist() == [200 * MS, 300 * MS, 200 * MS, 100 * MS, 200 * MS, 100 * MS]
    gave_up = made.cancels
    assert callable(gave_up)
    assert gave_up(np.arange(6)).tolist() == [-1, -1, 100 * MS, -1, -1, -1]


def test_turns_of_one_time_are_told_by_the_plan_and_not_by_the_file(tmp_path: Path) -> None:
    """In the plan's order, what is known of a request stays with it: b's answer took so long that a overtakes it."""
    text = "time,user,took\n0,a,0\n0,b,0\n1,b,0.9\n1.5,a,0\n"
    made = scenario(tmp_path / "a.csv", text, sessions="turns", columns={"session": "user", "latency": "took"})
    assert made.build(4).payload_ix.tolist() == [0, 1, 2, 3]
    text = text.replace("0,b,0\n1,b,0.9", "0,b,1\n3,b,0.9").replace("1.5,a", "2.5,a")
    made = scenario(tmp_path / "b.csv", text, sessions="turns", columns={"session": "user", "latency": "took"})
    plan, originals = made.build(4), made.originals()
    assert originals is not None
    assert plan.payload_ix.tolist() == [0, 1, 3, 2]
    assert plan.due_ns.tolist() == [0, 0, 2 * S, 2500 * MS]
    assert next(iter(originals))["latency_ns"].tolist() == [0, S, 900 * MS, 0]


def test_times_are_the_default_and_their_plan_and_file_are_what_they_were(tmp_path: Path) -> None:
    made = scenario(tmp_path / "a.csv")
    plan = made.build(6)
    assert plan.due_ns.tolist() == [0, 100 * MS, 500 * MS, S, 1500 * MS, 1600 * MS]
    assert (plan.after == -1).all()
    assert plan.labels is None
    assert not {"sessions", "history", "affinity", "on_failure"} & made.to_mapping()["params"].keys()


@pytest.mark.parametrize("speed", [1, 4])
@pytest.mark.parametrize("load", [1, 2])
def test_speed_and_load_are_of_whole_sessions(speed: float, load: float, tmp_path: Path) -> None:
    made = scenario(tmp_path / "a.csv", sessions="turns", speed=speed, load=load)
    n = len(made.source_object())
    plan = made.build(n)
    assert len(plan.due_ns) == 6 * load
    assert int((plan.after < 0).sum()) == 3 * load
    place = {query: row for row, query in enumerate(plan.query_id.tolist())}
    waits = sorted(
        int(plan.due_ns[row] - plan.due_ns[place[at]]) for row, at in enumerate(plan.after.tolist()) if at >= 0
    )
    wanted = sorted([300 * MS, 600 * MS, 800 * MS] * load)
    assert waits == [pytest.approx(one / speed, abs=1) for one in wanted]
    assert sorted(plan.payload_ix.tolist()) == [*range(n)]


def test_a_window_begins_with_the_first_turn_in_it(tmp_path: Path) -> None:
    plan = scenario(tmp_path / "a.csv", sessions="turns", window="0.4s..1.55s").build(6)
    assert plan.after.tolist() == [-1, -1, 0]
    assert plan.payload_ix.tolist() == [2, 3, 4]
    assert plan.due_ns.tolist() == [0, 500 * MS, 800 * MS]
    cut = scenario(tmp_path / "a.csv", sessions="turns", max_queries=4).build(6)
    assert len(cut.due_ns) == 4
    assert cut.after.tolist() == [-1, -1, 0, 1]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"sessions": "turns", "columns": {"ignore": ["user", "took", "left"]}}, "the recording knows of no sessions"),
        ({"sessions": "later"}, "--sessions: is 'later'. Allowed: times, turns"),
    ],
)
def test_what_has_no_turns_is_refused(flags: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=told):
        scenario(tmp_path / "a.csv", **flags).build(6)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"history": "live"}, r"params\.history is of turns that wait"),
        ({"on_failure": "continue"}, r"params\.on_failure is of turns"),
        ({"sessions": "turns", "history": "recorded"}, "has a turn's own part only"),
        ({"sessions": "turns", "history": "live", "columns": {"session": "user", "cumulative": True}}, "sent twice"),
    ],
)
def test_a_history_is_never_sent_twice(params: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,user\n0,a\n1,a\n")
    mapping = {"name": "x", "kind": "replay", "params": {"columns": {"session": "user"}, **params, "trace": str(path)}}
    with pytest.raises(ScenarioError, match=told):
        spec.parse(mapping).build(2)


def test_prompts_of_a_session_grow_where_lengths_contain_the_turns_before(tmp_path: Path) -> None:
    made = scenario(tmp_path / "a.jsonl", (GOLDEN / "tracelab.jsonl").read_text(), sessions="turns")
    before, after = (made.source_object().payload(ix) for ix in (0, 1))
    assert after.prompt is not None
    assert before.prompt is not None
    assert after.prompt.startswith(before.prompt)
    assert after.n_in == 35740
    alone = scenario(tmp_path / "a.jsonl", (GOLDEN / "tracelab.jsonl").read_text()).source_object()
    assert not str(alone.payload(1).prompt).startswith(str(alone.payload(0).prompt))


def test_delays_alone_are_turns_and_words_are_sent_as_they_were_said() -> None:
    made = spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl"))
    plan, source = made.build(4), made.source_object()
    assert plan.after.tolist() == [-1, -1, 0, 2]
    assert plan.due_ns.tolist() == [0, 100 * MS, 200 * MS, 350 * MS]
    first = source.payload(0)
    assert first.messages == ({"role": "user", "content": "What is a load line?"},)
    assert first.max_output_tokens == 8
    assert first.fields == {"tools": [{"type": "function", "function": {"name": "f"}}], "priority": 2}
    assert source.payload(1).fields == {}
    with pytest.raises(ScenarioError, match=r"only first turns have times.*--sessions turns"):
        spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl"), sessions="times").build(4)
    with pytest.raises(ScenarioError, match=r"params\.load: copies of requests with words"):
        spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl"), load=2).build(8)


def test_a_recording_without_any_times_is_a_source_of_sessions(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows: Sequence[dict[str, Any]] = (
        {"session_id": "a", "input_length": 10, "output_length": 4},
        {"session_id": "b", "input_length": 30, "output_length": 4},
        {"session_id": "a", "input_length": 20, "output_length": 4, "delay": 50},
    )
    path.write_text("".join(json.dumps(row | {"message_mode": "delta"}) + "\n" for row in rows))
    params = {"rate": 5, "turns": "data", "think": "recorded", "history": "live", "order": "permutation"}
    mapping = {"kind": "sessions", "params": params, "source": {"kind": "trace", "path": str(path)}}
    mapping["stop"] = {"min_queries": 6, "min_duration": "0s"}
    made = spec.parse(mapping)
    plan, source = made.build(3), made.source_object()
    waits = plan.due_ns[plan.after >= 0] - plan.due_ns[plan.after[plan.after >= 0]]
    assert set(waits.tolist()) == {50 * MS}
    assert [source.payload(ix).n_in for ix in range(3)] == [10, 20, 30]
    with pytest.raises(ScenarioError, match="a turn's own part only"):
        spec.parse({**mapping, "params": params | {"history": "recorded"}}).source_object()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 9)),
                   min_size=1, max_size=20),
    step=st.integers(1, 5),
)  # fmt: skip
def test_turns_without_a_time_come_one_delay_after_another_however_the_file_is_cut(
    turns: list[tuple[str, int | None, int]], step: int, tmp_path: Path
) -> None:
    last: dict[str, int] = {}
    wanted = []
    lines = []
    for whose, at, delay in turns:
        at = 5 if at is None and whose not in last else at
        last[whose] = at if at is not None else last[whose] + delay
        wanted.append(last[whose])
        said = {"delay": delay} if at is None else {"timestamp": at}
        lines.append(
            json.dumps({"session_id": whose, "input_length": 1, "output_length": 1, "message_mode": "delta"} | said)
        )
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recording, "STEP", step)
        patched.setattr(recording, "KEPT", 40)
        read.__globals__["_read"].cache_clear()
        found = read(path, "x", "mooncake-plus")
    assert sorted((np.array(wanted) - min(wanted)).tolist()) == (found.times(0, len(wanted)) // MS).tolist()


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"), ("utf-32", "UTF-32")],
)
@pytest.mark.parametrize("name", ["csv.csv", "jsonl.jsonl", "weka.json"])
def test_text_of_wide_letters_is_named_and_how_to_convert_it(
    encoding: str, named: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes((GOLDEN / name).read_text().encode(encoding))
    with pytest.raises(ScenarioError, match=f"is {named} text.*iconv -f {named} -t UTF-8 "):
        read(path, "x")


@pytest.mark.parametrize(
    "name", ["mooncake.jsonl", "mooncake-plus.jsonl", "envoy.json", "plimsoll.jsonl", "dynamo.jsonl"]
)
def test_a_first_line_of_more_than_a_megabyte_tells_its_format_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("{" + " " * 1_200_000 + (GOLDEN / name).read_text()[1:])
    assert read(path, "x").form == read(GOLDEN / name, "x").form


def test_who_waited_until_a_time_out_gives_up_then_and_what_a_proxy_sent_again_is_told() -> None:
    made = spec.with_flags(trace=str(GOLDEN / "envoy.log"), cancel="recorded")
    gave_up = made.cancels
    assert callable(gave_up)
    assert gave_up(np.arange(4)).tolist() == [-1, 500 * MS, 15 * S, -1], "DC after 500 ms, UT after 15 s"
    assert any("a proxy sent 1 attempt more than there are lines" in text for text in made.notes())
    json_log = spec.with_flags(trace=str(GOLDEN / "envoy.json"))
    assert any("a proxy sent 2 attempts more" in text for text in json_log.notes())


def test_the_note_on_load_has_the_figures_of_what_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time\n" + "".join(f"{second}\n" * (1 + second % 7) for second in range(0, 200, 2)))
    made = spec.with_flags(trace=str(path), load=3, spread=True, window="50s..150s")
    params = made.params
    assert isinstance(params, replay.ReplayParams)
    shape, parts = replay.parts(params, made.seed)
    sent = census(replay.recording_of(params), shape, parts).dispersion["1s"]
    told = [text for text in made.notes() if "resamples whole sessions" in text]
    assert len(told) == 1
    assert f"and {sent:.3g} after at 1s" in told[0]


def test_whole_prompts_of_sessions_have_an_ideal_and_live_answers_have_none(tmp_path: Path) -> None:
    made = scenario(tmp_path / "a.jsonl", (GOLDEN / "bailian.jsonl").read_text(), sessions="turns")
    source = made.source_object()
    known = Known(made.blocks(len(source)), None, 1, source)
    assert IDEAL in known.names
    assert known._cache is not None
    found = known._cache.shares(np.array([0, 2, 3])) * np.array([33, 64, 65])
    assert found.tolist() == [0, 32, 64], "two of three blocks, then all four but the new token"
    picked = conversations(source, True)
    assert picked.shares
    assert [*picked.chain(1)] == [*source.chain(2)]
    own = scenario(tmp_path / "b.csv", sessions="turns")
    assert IDEAL not in Known(own.blocks(6), None, 1, own.source_object()).names


def test_what_waits_still_waits_when_it_was_imported(tmp_path: Path) -> None:
    found = read(GOLDEN / "mooncake-plus.turns.jsonl", "x")
    with (tmp_path / "t.jsonl").open("wb") as file:
        write(found, file)
    assert "load line" not in (tmp_path / "t.jsonl").read_text(), "no words"
    again = spec.with_flags(trace=str(tmp_path / "t.jsonl")).build(4)
    plan = spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl")).build(4)
    assert (again.after == plan.after).all()
    assert (again.due_ns == plan.due_ns).all()
    assert b"waits" not in _written(read(GOLDEN / "bailian.jsonl", "x")), "what has times is written as it was"


def _written(found: recording.Recording) -> bytes:
    file = io.BytesIO()
    write(found, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("protocol", "lacks"),
    [
        ("openai-chat", ""),
        ("openai-completions", "messages and tools"),
        ("tgi-generate", "messages and priority and tools"),
    ],
)
def test_a_protocol_carries_the_words_of_a_recording_or_says_which_it_can_not(protocol: str, lacks: str) -> None:
    source = spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl")).source_object()
    found = protocols()[protocol]
    told = found.lacking(source)
    if lacks:
        assert told is not None
        assert f"have {lacks}, and protocol {protocol}" in told
        assert "ignore=[" in told
        return
    assert told is None
    request = GenerationDialect(Target("http://127.0.0.1:1", protocol), chat=True).encode(source.payload(0))
    body = json.loads(request.body)
    assert (body["priority"], body["tools"][0]["function"]["name"]) == (2, "f")
    assert body["messages"] == [{"role": "user", "content": "What is a load line?"}]


def _run(folder: Path, **more: list[Any]) -> Path:
    """What a run leaves of five queries."""
    columns: dict[str, list[Any]] = {
        "query_id": [*range(5)], "sample_ix": [0] * 5, "payload_ix": [0, 1, 2, 0, 1], "n_in": [9] * 5, "n_out": [4] * 5,
        "due_ns": [0, 100, 500, 700, 900], "done_ns": [50, 300, 650, 800, 950], "phase": ["measure"] * 5,
    }  # fmt: skip
    folder.mkdir()
    pq.write_table(pa.table(columns | more), folder / "requests.parquet")
    return folder


def test_a_run_of_ours_keeps_whose_turn_it_was_and_how_long_each_thought(tmp_path: Path) -> None:
    found = read(_run(tmp_path / "r", session=[0, 1, 0, -1, 1], turn=[1, 1, 2, -1, 2]), "x").rows()
    assert found.session is not None
    assert found.turn is not None
    assert found.think_ns is not None
    assert (found.session.tolist(), found.turn.tolist()) == ([0, 1, 0, -1, 1], [1, 1, 2, -1, 2])
    assert found.think_ns.tolist() == [-1, -1, 450, -1, 600]


def test_a_class_of_a_run_is_at_its_times_in_the_run_and_none_is_taken_for_all(tmp_path: Path) -> None:
    mixed = _run(tmp_path / "m", **{"class": ["chat", "bulk", "bulk", "chat", "bulk"]})
    bulk = spec.parse({"kind": "replay", "params": {"trace": str(mixed), "part": "bulk"}})
    assert bulk.build(3).due_ns.tolist() == [100, 500, 900]
    for path, part, told in (
        (mixed, None, r"is a run of bulk, chat\. Name one: --class"),
        (mixed, "nope", "has no class nope, but bulk, chat"),
        (_run(tmp_path / "r"), "chat", r"is no run of several classes\. Leave --class"),
        (GOLDEN / "azure.csv", "chat", "is a file, and classes are of run directories"),
    ):
        with pytest.raises(ScenarioError, match=told):
            read(path, "x", part=part)


def test_a_priority_takes_no_ideal_away_and_words_do() -> None:
    with_blocks = spec.with_flags(trace=str(GOLDEN / "mooncake-plus.jsonl")).source_object()
    assert isinstance(with_blocks, Prompts)
    assert with_blocks.carries == {"priority"}
    assert with_blocks.shares
    worded = spec.with_flags(trace=str(GOLDEN / "mooncake-plus.turns.jsonl")).source_object()
    assert isinstance(worded, Prompts)
    assert not worded.shares


def test_who_spoke_over_an_answer_does_so_again_by_turns_and_elsewhere_it_is_said_that_nobody_does(
    tmp_path: Path,
) -> None:
    """Two calls of three turns; turn 2 of the first interrupted 300 ms after the answer's first sound."""
    due, done = [0, 2, 4, 1, 6, 9], [2, 3.5, 5, 5, 8, 11]
    columns: dict[str, Any] = {
        "query_id": [*range(6)], "sample_ix": [0] * 6, "payload_ix": [*range(6)], "n_in": [5] * 6, "n_out": [5] * 6,
        "due_ns": [round(at * S) for at in due], "done_ns": [round(at * S) for at in done], "phase": ["measure"] * 6,
        "status": ["OK"] * 6, "session": [0, 0, 0, 3, 3, 3], "turn": [1, 2, 3] * 2,
        "label_barge_in": [-1, 300 * MS, -1, -1, -1, -1],
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "requests.parquet")
    call = {"barge_in": {"share": "30%", "after": "300ms"}, "turns": 3, "history": "live"}
    mapping = {"kind": "sessions", "params": call, "source": {"kind": "audio"}, "stop": {"min_queries": 6}}
    mapping["target"] = {"protocol": "openai-realtime", "options": {"mode": "conversation"}}
    of_run = spec.parse(mapping)
    again = spec.with_flags(of_run, trace=str(tmp_path), kind="replay", sessions="turns")
    plan = again.build(6)
    assert plan.labels is not None
    whose = dict(zip(plan.payload_ix.tolist(), plan.labels.columns["barge_in"].tolist(), strict=True))
    assert whose == dict.fromkeys(range(6), -1) | {1: 300 * MS}
    waits = plan.due_ns - plan.due_ns[plan.after]
    assert waits[plan.payload_ix == 1].tolist() == [0]
    assert {"barge_in", "barge_in_stop", "talked_over"} <= again.told_apart_by().keys()
    assert not [text for text in again.notes() if "speaks over" in text]
    by_times = spec.with_flags(of_run, trace=str(tmp_path), kind="replay")
    assert "barge_in" not in by_times.told_apart_by()
    assert [text for text in by_times.notes() if "nobody speaks over an answer, as users did then" in text]
