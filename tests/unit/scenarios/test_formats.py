"""Recordings of every kind: each format known by what only it has, each value where it belongs, and nothing lost."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.formats.plimsoll import write
from plimsoll.scenarios.kinds.replay import KIND, ReplayParams
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.samples import lines, recording, rows
from plimsoll.scenarios.samples.recording import OPTIONAL, STATUSES, Recording, Trace, key_of
from plimsoll.scenarios.samples.rows import Tree, head_of
from plimsoll.scenarios.samples.traces import NAMED, Columns, formats, read
from plimsoll.scenarios.sources.trace import SOURCE, TraceSource
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.records.records import Status

GOLDEN = Path(__file__).parents[2] / "traces" / "formats"
FILES = sorted(GOLDEN.iterdir())
S, MS = 1_000_000_000, 1_000_000
#: What each file says: columns of its recording; a list for each row.
SAID: dict[str, dict[str, Any]] = {
    "azure.csv": {"at_ns": [0, 4_313_329_000], "n_in": [374, 396], "n_out": [44, 109]},
    "azure-lmm.csv": {"at_ns": [0, 1100 * MS], "n_in": [1800, 40], "images": [2, 0]},
    "burstgpt.csv": {
        "at_ns": [0, 51 * S, 82_500 * MS], "n_in": [906, 36, 1779], "n_out": [446, 0, 123], "status": [0, 1, 0],
        "session": [0, -1, 0], "turn": [1, -1, 2], "latency_ns": [43 * S, -1, 8 * S], "think_ns": [-1, -1, 39_500 * MS],
        "model": ["GPT-4", "ChatGPT", "GPT-4"], "log": ["Conversation log", "API log", "Conversation log"],
    },
    "bailian.jsonl": {
        "at_ns": [0, 386 * MS, 21_136 * MS, 28_886 * MS], "n_in": [33, 16, 64, 65], "session": [0, 1, 0, 0],
        "turn": [1, 1, 2, 3], "type": ["text", "search", "text", "text"], "cumulative": True, "block_tokens": 16,
        "blocks": [(1089, 1090, 1091), (7,), (1089, 1090, 1092, 1093), (1089, 1090, 1092, 1093, 1094)],
    },
    "baseten.parquet": {
        "at_ns": [0, 2 * S], "n_in": [128, 192], "n_out": [50, 0], "session": [0, 0], "turn": [1, 2], "status": [0, 7],
        "gave_up_ns": [-1, 900 * MS], "latency_ns": [800 * MS, 900 * MS], "ttft_ns": [120 * MS, -1],
        "think_ns": [-1, 1200 * MS], "blocks": [(10, 11), (10, 11, 12)], "block_tokens": 64, "cumulative": True,
    },
    "dynamo.jsonl": {
        "at_ns": [0, 2 * S], "n_in": [37, 48], "n_out": [3, 0], "status": [0, 7], "gave_up_ns": [-1, 400 * MS],
        "latency_ns": [1500 * MS, 400 * MS], "ttft_ns": [250_500_000, -1], "think_ns": [-1, 500 * MS],
        "blocks": [(101, 102, 2**63 - 1), (101, 102, 103)], "block_tokens": 16, "model": ["m", "m"],
    },
    "envoy.json": {
        "at_ns": [0, S], "status": [0, 4], "latency_ns": [226 * MS, 5 * MS], "attempt": [1, -1], "bytes_in": [154, 1],
        "flags": [None, "UF,URX"], "n_in": [-1, -1],
    },
    "envoy.log": {
        "at_ns": [0, 690 * MS, 2190 * MS, 2690 * MS], "status": [0, 7, 3, 6], "gave_up_ns": [-1, 500 * MS, -1, -1],
        "bytes_in": [154, 20, 20, 20], "bytes_out": [0, 10, 24, 81], "flags": [None, "DC", "UT", "UO,URX"],
        "path": ["/api/v1/locations", "/v1/chat", "/v1/chat", "/v1/chat"],
    },
    "har.json": {
        "at_ns": [0, S], "status": [6, 7], "latency_ns": [820_500_000, 100 * MS], "ttft_ns": [503_500_000, -1],
        "bytes_in": [300, 0], "bytes_out": [12, -1], "host": ["api.example.com"] * 2, "method": ["POST", "GET"],
    },
    "mooncake.jsonl": {"at_ns": [0, 0, 0], "n_in": [6758, 7322, 7236], "block_tokens": 512, "cumulative": False},
    "mooncake-plus.jsonl": {
        "at_ns": [0, 1_500_500_000, 4 * S], "session": [0, 1, 0], "turn": [1, 1, 2], "priority": ["2", None, None],
        "blocks": [(0, 1), (2,), (0, 1, 3)], "cumulative": True,
    },
    "mooncake-plus.turns.jsonl": {
        "at_ns": [0, 100 * MS, 200 * MS, 350 * MS], "session": [0, 1, 0, 0], "turn": [1, 1, 2, 3], "waits": True,
        "think_ns": [-1, -1, 200 * MS, 150 * MS], "n_in": [-1] * 4, "cumulative": False, "timed": True,
        "carries": {"messages", "tools", "priority"},
    },
    "nginx.log": {
        "at_ns": [0, 4750 * MS], "latency_ns": [4250 * MS, 500 * MS], "status": [0, 7], "gave_up_ns": [-1, 500 * MS],
        "bytes_out": [512, 0], "path": ["/v1/chat", "/health"],
    },
    "otlp.jsonl": {
        "at_ns": [0, 5 * S], "n_in": [120, 200], "n_out": [8, 0], "session": [0, 0], "status": [0, 3],
        "latency_ns": [2 * S, 1500 * MS], "ttft_ns": [-1, 125 * MS], "think_ns": [-1, 3 * S], "model": ["m", None],
    },
    "plimsoll.jsonl": {
        "at_ns": [0, 2 * S], "n_in": [33, 64], "n_out": [13, -1], "session": [0, 0], "turn": [1, 2], "status": [0, 7],
        "think_ns": [-1, 7], "gave_up_ns": [-1, 500], "latency_ns": [MS, -1], "blocks": [(5, 6, 7), ()],
        "model": ["m", None], "block_tokens": 16, "cumulative": True,
    },
    "sagemaker.jsonl": {"at_ns": [0, 2 * S], "n_in": [9, -1], "n_out": [2, -1], "bytes_in": [15, 5]},
    "tracelab.jsonl": {
        "at_ns": [0, 30_787 * MS], "n_in": [32272, 35740], "session": [0, 0], "turn": [1, 2], "cumulative": True,
        "latency_ns": [9736 * MS, 12_731 * MS], "think_ns": [-1, 21_051 * MS], "provider": ["claude", "claude"],
    },
    "weka.json": {
        "at_ns": [0, 1750 * MS, 17 * S], "n_in": [100, 16, 130], "session": [0, 1, 0], "turn": [1, 1, 2],
        "think_ns": [0, -1, 11 * S], "latency_ns": [1500 * MS, 500 * MS, 9610 * MS], "ttft_ns": [250 * MS, -1, -1],
        "blocks": [(1, 2), (1,), (1, 2, 3)], "block_tokens": 64, "model": ["m", "s", "m"], "timed": True,
    },
    "csv.csv": {"at_ns": [0], "n_in": [5], "n_out": [-1]},
    "jsonl.jsonl": {"at_ns": [0], "n_in": [5], "n_out": [-1]},
}  # fmt: skip


def said(made: Recording, trace: Trace, name: str) -> Any:
    if name in trace.labels:
        codes, texts = trace.labels[name]
        return [None if code < 0 else texts[code] for code in codes]
    value = (
        getattr(made, name, None)
        if name in ("cumulative", "timed", "block_tokens", "waits", "carries")
        else getattr(trace, name)
    )
    return value.tolist() if isinstance(value, np.ndarray) else [*value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", SAID)
def test_every_format_is_read_to_the_letter(name: str) -> None:
    made = read(GOLDEN / name, "x")
    assert made.form == name.partition(".")[0]
    trace = made.rows()
    assert {key: said(made, trace, key) for key in SAID[name]} == SAID[name]
    columns = {key for key in OPTIONAL if key != "parent" and getattr(trace, key) is not None}
    assert columns <= {*formats()[made.form].columns}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_exactly_one_format_knows_a_file_as_its_own(path: Path) -> None:
    head = head_of(path)
    assert [name for name, one in formats().items() if one.detect(head)] == [path.name.partition(".")[0]]


def test_each_format_has_a_golden_file() -> None:
    assert {path.name.partition(".")[0] for path in FILES} == formats().keys() - {"run"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_gzip_packed_is_read_and_what_others_packed_is_refused(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / path.name
    packed.write_bytes(gzip.compress(path.read_bytes()))
    if path.name not in ("sharegpt.json", "baseten.parquet"):  # Parquet packs itself
        assert len(read(packed, "x")) == len(read(path, "x"))
        packed.write_bytes(packed.read_bytes()[:-9])
        with pytest.raises(ScenarioError, match="gzip can't unpack it"):
            read(packed, "x")
    packed.write_bytes(b"\x28\xb5\x2f\xfd" + path.read_bytes())
    with pytest.raises(ScenarioError, match=r"packed by zstd, which is not read here\. Unpack it"):
        read(packed, "x")


def test_conversations_without_times_are_no_recording_and_the_error_names_what_to_use(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    for path in (GOLDEN / "sharegpt.json", tmp_path / "a.jsonl"):
        with pytest.raises(ScenarioError, match=r"source: \{kind: sharegpt, path: \.\.\.\} .* kind server with a rate"):
            read(path, "x")


def test_nothing_secret_of_a_log_is_kept() -> None:
    for name in ("har.json", "envoy.log", "nginx.log", "otlp.jsonl"):
        assert b"SECRET" in (GOLDEN / name).read_bytes()
        made, out = read(GOLDEN / name, "x"), io.BytesIO()
        write(made, out)
        assert b"SECRET" not in out.getvalue()
        assert "10.0.0.1" not in out.getvalue().decode()


_MOON = '{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'


@pytest.mark.parametrize(
    ("text", "form", "told"),
    [
        ("time,input_tokens,user\n1,2,a\n", "auto", r":1: user would be lost\. Name it in columns, or leave it out: "
            r"columns\.ignore: \[user\]"),
        (_MOON + '{"timestamp": 1, "input_length": 5, "output_length": 1, "session_id": "a"}\n', "auto",
            r":2: session_id would be lost"),
        ((GOLDEN / "bailian.jsonl").read_text(), "mooncake",
            r":1: chat_id, parent_chat_id, type, turn would be lost\. This looks like bailian: give that format"),
        ((GOLDEN / "azure-lmm.csv").read_text(), "azure", r":1: NumImages would be lost\. This looks like azure-lmm"),
        (_MOON.replace("600", "1600"), "auto", r":1: hash_ids has 2 ids, and 1600 tokens are 4 blocks of 512"),
        (_MOON + _MOON.replace("[0, 1]", "[2, 1]"), "auto", r":2: hash_ids: block 1 followed another block before"),
        (_MOON + _MOON.replace("[0, 1]", "[1, 5]"), "auto", r":2: hash_ids: block 1 followed another block before"),
        ('{"session_id": "a", "timestamp": 0, "input_length": 5, "output_length": 1}\n', "auto",
            r"do not say whether a length contains the turns before it\. .* \(--column cumulative=true\)"),
        ('{"session_id": "a", "timestamp": 0, "input_length": 5, "output_length": 1, "message_mode": "delta"}\n'
         '{"session_id": "a", "delay": 0, "input_length": 5, "output_length": 1, "message_mode": "history"}\n', "auto",
            "say both history and delta"),
        ('{"timestamp": 0, "text_input": "", "priority": 1}\n', "auto", ":1: text_input is ''"),
        ('{"timestamp": 0, "text_input": "a", "messages": [{"role": "user"}]}\n', "auto", ":1: has messages and text"),
        ('{"timestamp": 0, "messages": [{"content": "a"}]}\n', "mooncake-plus", ":1: messages is not a list"),
        ('{"timestamp": 0, "text_input": "a", "tools": {}}\n', "auto", ":1: tools is not a list"),
        ('{"priority": 1, "input_length": 5, "output_length": 1}\n', "mooncake-plus", "nobody knows when it came"),
        ('1.1.1.1 - - [31/Jan/2026:12:00:05 +0000] "GET / HTTP/1.1" 200 5 "-" "x"\n', "auto",
            r":1: 'nothing' follows the agent, .* Log \$request_time there"),
        ('1.1.1.1 - - [31/Jan/2026:12:00:05 +0000] "GET / HTTP/1.1" 200 5 "-" "x" 1250\n', "auto", "'1250' follows"),
        ((GOLDEN / "envoy.log").read_text() + "junk\n", "auto", r":5: not a line of Envoy's or Istio's default"),
        ('{"log": {"version": "1.2"}}', "auto", r"log\.entries is not a list"),
        ('{"log": {"entries": [{"startedDateTime": "x"}]}}', "auto", "log.entries 0: startedDateTime is 'x'"),
        ('{"plimsoll_trace": 2}\n{"at_ns": 0}\n', "auto", r":1: plimsoll_trace is 2\. This reads 1: import it again"),
        ('{"plimsoll_trace": 1}\n{"at_ns": 0, "labels": {"a": "b"}}\n', "auto", r":2: labels is \{'a': 'b'\}"),
        ((GOLDEN / "tracelab.jsonl").read_text().replace('"timing_events"', '"tools2"'), "tracelab",
            "tools2 would be lost"),
        ('{"block_size": 64, "requests": [{"t": 0, "in": 5, "out": 1}, {"in": 5}]}', "auto",
            r":1: requests\[1\]: t is missing"),
        ('{"block_size": 0, "requests": [{"t": 0, "in": 5, "out": 1}]}', "auto", r":1: block_size is 0"),
        ((GOLDEN / "dynamo.jsonl").read_text().replace('_size":16', '_size":0'), "auto",
            "trace_block_size is 0, and a block has tokens"),
        ('{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "agent_context": 1, "request": '
         '{"request_received_ms": 0}}\n', "auto", ":1: agent_context is not an object"),
        ('{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": '
         '{"request_received_ms": 0, "finish_reason_metadata": "x"}}\n', "auto",
            ":1: finish_reason_metadata is not an object"),
        ('{"session_id": "a", "timestamp": 0, "input_length": 5, "output_length": 1, "message_mode": ["delta"]}\n',
            "auto", r":1: message_mode is \['delta'\]"),
        ((GOLDEN / "nginx.log").read_text().replace("/2026:", "/9999:"), "auto", ":1: at_ns is 25337"),
        ('{"start_time": "2026-01-31T12:00:00Z", "response_code": 200, "response_flags": "-", "attempt_count": '
         '4294967296}\n', "auto", ":1: attempt is 4294967295, which no recording has"),
        ('{"log": {"entries": [{"startedDateTime": "2026-01-31T12:00:00Z", "request": {"bodySize": '
         '9223372036854775808}}]}}', "auto", "bytes_in is 9223372036854775808, which no recording has"),
        ((GOLDEN / "tracelab.jsonl").read_text().replace('"user_message"', '["user_message"]').replace(
            '"timestamp":"', '"timestamp":"x'), "auto", ":1: timestamp is 'x"),
        ((GOLDEN / "otlp.jsonl").read_text().replace('"chat"', '["chat"]').replace('"gen_ai', '"x'), "auto",
            "no requests in it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_with_its_place_and_what_to_do(
    text: str, form: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(ScenarioError, match=told):
        read(tmp_path / "a", "x", form)


def test_a_column_may_be_left_out_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("time,input_tokens,user\n1,2,a\n")
    assert len(read(tmp_path / "a", "x", columns=Columns(ignore=("user",)))) == 1
    assert read(GOLDEN / "azure-lmm.csv", "x", columns=Columns(ignore=("NumImages",))).rows().images is None


def test_a_file_that_two_formats_know_is_refused_and_the_choice_is_named(tmp_path: Path) -> None:
    both = {**json.loads((GOLDEN / "sagemaker.jsonl").read_text().splitlines()[0]), "plimsoll_trace": 1}
    (tmp_path / "a").write_text(json.dumps(both) + "\n")
    with pytest.raises(
        ScenarioError, match=r"could be plimsoll or sagemaker\. Say which: format: plimsoll, or --trace"
    ):
        read(tmp_path / "a", "x")


def test_columns_of_your_own_say_all_that_a_recording_can_hold(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "when,who,gap,end,quit,took,first,pics,again,tenant\n0,u,,ok,,1.5,0.5,2,0,x\n2,v,,499,0.25,,,,1,y\n4,u,0.5,refused,,,,,,x\n"
    )
    names = Columns(
        time="when", session="who", think="gap", status="end", gave_up="quit", latency="took", ttft="first",
        images="pics", attempt="again", labels=("tenant",),
    )  # fmt: skip
    lines = (tmp_path / "a.csv").read_text().splitlines()
    entries = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for name in ("a.csv", "a.jsonl"):
        trace = read(tmp_path / name, "x", columns=names).rows()
        found = {key: getattr(trace, key) for key in ("session", "turn", "think_ns", "status", "gave_up_ns", "images")}
        assert {key: values.tolist() for key, values in found.items()} == {
            "session": [0, 1, 0], "turn": [1, 1, 2], "think_ns": [-1, -1, S // 2], "status": [0, 7, 6],
            "gave_up_ns": [-1, S // 4, -1], "images": [2, -1, -1],
        }  # fmt: skip
        assert trace.labels["tenant"][1] == ("x", "y")


def test_statuses_are_numbered_as_records_number_them() -> None:
    assert [name.upper() for name in STATUSES] == [status.name for status in Status]
    words = {"OK": "ok", "HTTP": "FAILED"}
    for status in (Status.OK, Status.HTTP, Status.TIMEOUT, Status.CONNECT, Status.REFUSED, Status.CANCELLED):
        assert getattr(recording, words.get(status.name, status.name).upper()) == status


def test_conversations_of_their_own_clocks_have_no_times_and_keep_their_order(tmp_path: Path) -> None:
    one = json.dumps(json.loads((GOLDEN / "weka.json").read_text()))
    (tmp_path / "a.jsonl").write_text(one + "\n" + one + "\n")
    made = read(tmp_path / "a.jsonl", "x")
    trace = made.rows()
    assert not made.timed
    assert trace.session is not None
    assert trace.session.tolist() == [0, 1, 0, 2, 3, 2]
    assert trace.blocks == (
        (1, 2),
        (1,),
        (1, 2, 3),
        *((tuple((1 << 32) | i for i in ids)) for ids in ((1, 2), (1,), (1, 2, 3))),
    )
    assert trace.at_ns.tolist() == [0, 1750 * MS, 17 * S] * 2


# -- what must hold of any rows ------------------------------------------------------------------------------------

_ANY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
_NS = st.integers(-1, 10**12)
_ROW = st.fixed_dictionaries(
    {"at_ns": st.integers(0, 10**15), "n_in": st.integers(-1, 10**6), "n_out": st.integers(-1, 10**6)},
    optional={
        "session": st.integers(0, 5), "think_ns": _NS, "status": st.integers(-1, 9), "gave_up_ns": _NS,
        "latency_ns": _NS, "ttft_ns": _NS, "images": st.integers(-1, 9), "attempt": st.integers(-1, 9), "bytes_in": _NS,
        "bytes_out": _NS, "label:model": st.sampled_from(["a", "b", "\u00e9\n", None]),
        "ids": st.lists(st.integers(0, 2**62), max_size=4),
    },
)  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, and all but a few bytes on disk."""
    for module, name, value in ((recording, "KEPT", 40), (recording, "STEP", 3), (rows, "STEP", 12)):
        monkeypatch.setattr(module, name, value)


def made_of(some: list[dict[str, Any]], path: Path) -> Recording:
    made = Recording(recording.BLOCKS, [name for name in OPTIONAL if name != "parent"], ["model"])
    reading = rows.Reading(path, "x", Columns(), 1)
    rows.keep(reading, enumerate(some), made)
    return made.sealed()


@pytest.mark.usefixtures("small")
@_ANY
@given(some=st.lists(_ROW, min_size=1, max_size=20))
def test_what_import_writes_reads_as_what_it_was(some: list[dict[str, Any]], tmp_path: Path) -> None:
    made = made_of(some, tmp_path)
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        write(made, file)
    again = read(path, "x", "plimsoll")
    one, other = made.rows(), again.rows()
    for name in ("at_ns", "n_in", "n_out", *(name for name in OPTIONAL if name != "parent")):
        values, told = getattr(one, name), getattr(other, name)
        assert (values is None and told is None) or values.tolist() == told.tolist(), name
    assert (one.blocks or ((),) * len(one)) == (other.blocks or ((),) * len(one))
    assert said(made, one, "model") == said(again, other, "model") if one.labels else not other.labels
    with path.open("wb") as file:
        write(made, file, lambda block: block ^ 1)
    assert [[i ^ 1 for i in ids] for ids in read(path, "x").rows().blocks or ()] == [[*ids] for ids in one.blocks or ()]


@pytest.mark.usefixtures("small")
@_ANY
@given(some=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6), st.integers(-1, 20)), min_size=1, max_size=40))
def test_sessions_and_turns_are_numbered_as_one_would_by_hand(some: list[tuple[int, int, int]], tmp_path: Path) -> None:
    made = made_of([{"at_ns": at, "session": f"s{who}", "latency_ns": took} for at, who, took in some], tmp_path)
    trace = made.rows()
    numbers: dict[int, int] = {}
    turns: dict[int, int] = {}
    ends: dict[int, int | None] = {}
    for k, (at, who, took) in enumerate(sorted(some, key=lambda one: one[0])):
        assert trace.session is not None
        assert trace.turn is not None
        assert trace.session[k] == numbers.setdefault(who, len(numbers))
        turns[who] = turns.get(who, 0) + 1
        assert trace.turn[k] == turns[who]
        before = ends.get(who)
        think = at - before if before is not None and at >= before else -1
        assert (-1 if trace.think_ns is None else trace.think_ns[k]) == think
        ends[who] = at + took if took >= 0 else None
    assert made.n_sessions == len(numbers)


@pytest.mark.usefixtures("small")
@_ANY
@given(parents=st.lists(st.integers(-1, 30), min_size=1, max_size=30), data=st.data())
def test_a_turn_is_of_the_session_that_its_first_parent_began(
    parents: list[int], data: st.DataObject, tmp_path: Path
) -> None:
    parents = [parent if parent < k else -1 for k, parent in enumerate(parents)]
    order = data.draw(st.permutations(range(len(parents))))
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            json.dumps({"chat_id": k + 100, "parent_chat_id": parents[k] + 100 if parents[k] >= 0 else -1,
                        "timestamp": at, "input_length": 1, "output_length": 1}) + "\n"
            for at, k in enumerate(order)
        )
    )  # fmt: skip
    root: list[int] = []
    for k, parent in enumerate(parents):
        root.append(k if parent < 0 else root[parent])
    trace = read(path, "x", "bailian").rows()
    numbers: dict[int, int] = {}
    assert trace.session is not None
    assert trace.session.tolist() == [numbers.setdefault(root[k], len(numbers)) for k in order]


def test_turns_that_come_before_themselves_are_an_error(tmp_path: Path) -> None:
    lines = [{"chat_id": a, "parent_chat_id": b, "timestamp": 0, "input_length": 1, "output_length": 1}
             for a, b in ((1, 2), (2, 1))]  # fmt: skip
    (tmp_path / "a").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ScenarioError, match="come before themselves"):
        read(tmp_path / "a", "x")


@_ANY
@given(st.lists(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=4), max_size=4), max_size=4))
def test_a_block_that_follows_two_others_is_found_wherever_it_stands(batches: list[list[list[int]]]) -> None:
    tree, before = Tree(), dict[int, int]()
    for batch in batches:
        wrong = []
        for row, ids in enumerate(batch):
            if sum(before.setdefault(i, parent) != parent for i, parent in zip(ids, [-1, *ids], strict=False)):
                wrong.append(row)
        assert [row for row, _ in tree.wrong(batch)] == wrong


def test_names_of_sessions_are_numbers_from_0_up_and_none_is_none() -> None:
    assert [key_of(None), key_of(""), key_of(7), key_of(0)] == [-1, -1, 7, 0]
    assert all(key_of(name) >= 0 for name in ("a", -5, 1 << 80, "-1", 2.5))
    assert len({key_of(f"u{k}") for k in range(10_000)}) == 10_000


def test_a_label_of_texts_without_number_is_refused_unless_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_VALUES", 1)
    for name, out in (("burstgpt.csv", ("model", "log")), ("envoy.log", ("path", "host", "flags"))):
        assert not {*out} & read(GOLDEN / name, "x", columns=Columns(ignore=out)).rows().labels.keys()
        with pytest.raises(ScenarioError, match=r"has more than 1 different values\. Leave it out: columns\.ignore"):
            read(GOLDEN / name, "x")


def test_named_formats_are_those_whose_columns_are_named() -> None:
    assert {name for name, one in formats().items() if one.takes == ("`columns`",)} == {*NAMED}


# -- what replay makes of them -----------------------------------------------------------------------------------------


def test_pictures_are_not_dropped_silently() -> None:
    with pytest.raises(ScenarioError, match=r"pictures in its prompts.* columns\.ignore"):
        SOURCE.build(TraceSource(path=str(GOLDEN / "azure-lmm.csv")), 7)
    plain = TraceSource(path=str(GOLDEN / "azure-lmm.csv"), columns=Columns(ignore=("NumImages",)))
    assert SOURCE.build(plain, 7).payload(0).n_in == 1800


def test_of_a_log_prompts_have_as_many_bytes_as_the_bodies_had() -> None:
    source = SOURCE.build(TraceSource(path=str(GOLDEN / "envoy.log"), prompt_tokens=9), 7)
    payloads = [source.payload(k) for k in range(4)]
    assert [len(payload.prompt or "") for payload in payloads] == [154, 20, 20, 20]
    assert {payload.n_in for payload in payloads} == {-1}


def test_blocks_are_as_long_as_the_format_says() -> None:
    source = SOURCE.build(TraceSource(path=str(GOLDEN / "bailian.jsonl"), unit="bytes"), 7)
    one, other = (source.payload(k).prompt or "" for k in (2, 3))
    assert one[:64] == other[:64], "four blocks of 16 are shared"
    assert len(other) == 65


def test_what_replay_makes_of_sessions_is_said() -> None:
    for name, said in (
        ("bailian.jsonl", "2 recorded sessions are sent by their own times"),
        ("azure.csv", ""),
    ):
        notes = KIND.notes(ReplayParams(trace=str(GOLDEN / name)), 7)
        assert any(said in note for note in notes) if said else not notes


def test_recorded_give_ups_are_replayed_when_they_came_and_no_others() -> None:
    whole = spec.parse({"kind": "replay", "params": {"trace": str(GOLDEN / "envoy.log")}, "cancel": "recorded"})
    plan = whole.build(4)
    assert cancellation.rows(whole.cancels, whole.seed, plan).tolist() == [-1, 500 * MS, 15 * S, -1]  # type: ignore[union-attr]
    chosen = cancellation.chosen(whole.cancels, whole.seed, plan, plan.query_id[::-1])
    assert chosen.tolist() == [False, True, True, False]
    part = {"trace": str(GOLDEN / "envoy.log"), "window": {"start": "500ms"}, "speed": 4.0}
    cut = spec.parse({"kind": "replay", "params": part, "cancel": "recorded"})
    assert cancellation.rows(cut.cancels, cut.seed, cut.build(4)).tolist() == [500 * MS, 15 * S, -1]  # type: ignore[union-attr]
    assert spec.parse(whole.to_mapping()).cancel == "recorded"
    assert spec.with_flags(trace=str(GOLDEN / "envoy.log"), cancel="recorded").cancel == "recorded"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "server", "cancel": "recorded"}, "cancel: recorded is of kind replay"),
        ({"kind": "replay", "params": {"trace": str(GOLDEN / "azure.csv")}, "cancel": "recorded"},
            "knows of no request that was given up"),
        ({"kind": "server", "cancel": "some"}, "cancel: .*recorded"),
    ],
)  # fmt: skip
def test_where_nothing_was_given_up_nothing_is_sent(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        spec.parse(given).build(4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("begin", ["", _MOON, "TIMESTAMP,ContextTokens,GeneratedTokens\n", "1.1.1.1 - - "])
def test_a_line_without_end_is_refused_in_bounded_memory(
    begin: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lines, rows):
        monkeypatch.setattr(module, "LONGEST", 1 << 16)
    monkeypatch.setattr(rows, "_WHOLE", 1 << 16)
    text = (begin + "1" * (1 << 17)).encode()
    (tmp_path / "a").write_bytes(gzip.compress(text) if packed else text)
    form = "nginx" if begin.startswith("1.") else "auto"
    with pytest.raises(ScenarioError, match=r"^\S+:\d+: a line of more than|not CSV|no column time"):
        read(tmp_path / "a", "x", form)


@settings(deadline=None, max_examples=300)
@given(data=st.data(), path=st.sampled_from(FILES), forced=st.sampled_from([True, False]))
def test_whatever_becomes_of_a_file_it_is_read_or_there_is_an_error_that_says_so(
    data: st.DataObject, path: Path, forced: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = path.read_bytes()
    at, to = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    odd = [b"", b"null", b"-1", b"1e400", b"[]", b"{}", b"true", b'"x"', b"9" * 30, b"\0", b"\xff", b"\n", b"NaN"]
    damaged = tmp_path_factory.mktemp("damaged") / path.name
    damaged.write_bytes(whole[:at] + data.draw(st.sampled_from(odd)) + whole[at if to - at > 40 else to :])
    try:
        made = read(damaged, "x", path.name.partition(".")[0] if forced else "auto")
    except ScenarioError as error:
        told = error.errors
    else:
        told = ["read"]
        write(made, io.BytesIO())
    assert told
    assert all(told)


def test_sessions_without_any_time_have_none_and_replay_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"session_id": "a", "input_length": 5, "output_length": 1, "message_mode": "delta"}\n'
        '{"session_id": "a", "delay": 250, "input_length": 6, "output_length": 2, "message_mode": "delta"}\n'
    )
    made = read(path, "x")
    trace = made.rows()
    assert (made.timed, made.cumulative) == (False, False)
    assert trace.think_ns is not None
    assert trace.think_ns.tolist() == [-1, 250 * MS]
    with pytest.raises(ScenarioError, match=r"don't say when they came.*kind sessions"):
        spec.with_flags(trace=str(path)).build(2)
    assert SOURCE.build(TraceSource(path=str(path)), 7).payload(1).n_in == 6, "its prompts are of use"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("total_hashes", [[1.5]], "total_hashes holds something else"),
        ("input_tokens", ["x"], "row 1: input_tokens is 'x'"),
        ("timestamp_start_unix_ms", [-5], "row 1: timestamp_start_unix_ms is -5"),
        ("extra", [1], "extra would be lost"),
        ("block_size", [64, 32], "block_size is 64 in one row and 32 in another"),
    ],
)
def test_parquet_is_looked_at_as_closely(column: str, value: list[Any], said: str, tmp_path: Path) -> None:
    known = {"timestamp_start_unix_ms": 1000, "input_tokens": 3, "output_tokens": 1}
    table = {name: [one] * len(value) for name, one in known.items()} | {column: value}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(ScenarioError, match=said):
        read(tmp_path / "a.parquet", "x", "baseten")
