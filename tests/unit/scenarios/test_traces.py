"""Recordings: every format read exactly, replayed at any speed, and prompts that share what the recorded ones
shared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.kinds.replay import KIND, ReplayParams
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.samples.traces import BLOCK_TOKENS, Columns, read
from plimsoll.scenarios.sources.trace import SOURCE, TraceSource

TRACES = Path(__file__).parents[2] / "traces"
AZURE, MOONCAKE = TRACES / "azure_llm_2023_conv_excerpt.csv", TRACES / "mooncake_conversation_excerpt.jsonl"
S, MS = 1_000_000_000, 1_000_000
STOP = Stop()


def built(n_samples: int = 7, stop: Stop = STOP, seed: int = 5, **params: Any) -> Plan:
    return KIND.build(ReplayParams.model_validate(params), stop, n_samples, seed)


def test_azures_trace_is_read_to_its_last_digit() -> None:
    trace = read(AZURE, "x").rows()
    assert len(trace) == 40
    assert trace.at_ns[:2].tolist() == [0, 4_314_579_000]  # 18:15:46.6805900 to 18:15:50.9951690
    assert (trace.n_in[0], trace.n_out[0], trace.n_in[1], trace.n_out[1]) == (374, 44, 396, 109)
    assert trace.blocks is None


def test_mooncakes_trace_is_read_with_its_blocks() -> None:
    trace = read(MOONCAKE, "x").rows()
    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    assert trace.at_ns.tolist() == [row["timestamp"] * MS for row in rows]
    assert trace.n_in.tolist() == [row["input_length"] for row in rows]
    assert trace.blocks is not None
    assert [list(ids) for ids in trace.blocks] == [row["hash_ids"] for row in rows]


@pytest.mark.parametrize(
    ("name", "text", "given"),
    [
        ("a.csv", "time,input_tokens,output_tokens\n1.5,7,8\n0.25,3,4\n", {}),
        ("a.csv", "\ufefftime, input_tokens, output_tokens\r\n1.5, 7, 8\r\n0.25, 3, 4\r\n", {}),
        ("b.txt",
            '{"time": 1.5, "input_tokens": 7, "output_tokens": 8}\n\n{"time": 0.25, "input_tokens": 3, "output_tokens": 4}', {}),  # noqa: E501
        ("c.csv", "ts,p,c\n1500,7,8\n250,3,4\n", {"columns": Columns(time="ts", input_tokens="p", output_tokens="c"),
            "unit": "ms"}),
        ("d.csv", "time,input_tokens,output_tokens\n2026-01-31T12:00:01.75Z,7,8\n2026-01-31 12:00:00.5,3,4\n", {}),
    ],
)  # fmt: skip
def test_files_of_your_own_are_put_in_order_of_time(tmp_path: Path, name: str, text: str, given: Any) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    trace = read(tmp_path / name, "x", **given).rows()
    assert (trace.at_ns.tolist(), trace.n_in.tolist(), trace.n_out.tolist()) == ([0, 1250 * MS], [3, 7], [4, 8])


def test_times_of_an_epoch_keep_every_nanosecond(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n1700000000.123456789\n1700000000.123456791\n")
    trace = read(tmp_path / "a.csv", "x").rows()
    assert trace.at_ns.tolist() == [0, 2]
    assert (trace.n_in.tolist(), trace.n_out.tolist()) == ([-1, -1], [-1, -1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column time in the first line"),
        ("when,what\n1,2\n", r"no column time in the first line, which has when, what\. Name yours"),
        ("time,input_tokens\n1,x\nsoon,3\nnan,1\n",
            r"a.csv:2: input_tokens is 'x'.*\n.*:3: time is 'soon'.*\n.*:4: time is 'nan'"),
        ("time\n", "no requests in it"),
        ("time,input_tokens, time\n1,2,3\n", r"a.csv:1: columns 1 and 3 are both called 'time'\. Give each a name"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": "no"}\n{oops\n[]\n',
            r":1: hash_ids.*\n.*:2: not JSON.*\n.*:3: not an object"),
        ('{"time": true}\n', "time is missing"),
        ("time\n1e40\n", "which no clock shows"),
        ("time,input_tokens\n1,-3\n", "not a length in tokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", "TIMESTAMP is 'x', neither a number nor a date"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_line_by_line_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(spec.ScenarioError, match=said):
        read(tmp_path / "a.csv", "x")


def test_folders_and_missing_files_say_what_to_give(tmp_path: Path) -> None:
    for path, form, said in (
        (tmp_path / "no", "auto", r"params.trace: .*no does not exist"),
        (tmp_path, "auto", "is no run directory"),
        (tmp_path, "csv", "is a folder"),
        (AZURE, "run", "is a file. Give the folder"),
    ):
        with pytest.raises(spec.ScenarioError, match=said):
            read(path, "params.trace", form)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"params.trace is not given"):
        built()


def test_columns_without_a_name_may_be_many(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,,\n1,x,y\n2,x,y\n")
    assert read(tmp_path / "a.csv", "x").rows().at_ns.tolist() == [0, S]


@pytest.mark.parametrize("junk", [b"\0\0\0", b"\xff\xfe{", b'{"a":' * 5000, b"time\n" + b"\0,\n" * 3, b'"\n"' * 9])
def test_whatever_bytes_a_file_holds_there_is_one_clear_error(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "junk").write_bytes(junk)
    with pytest.raises(spec.ScenarioError):
        read(tmp_path / "junk", "x")


def test_a_replay_is_due_when_the_recording_was_and_the_faster_the_sooner() -> None:
    trace = read(AZURE, "x").rows()
    plan = built(trace=str(AZURE))
    assert (plan.due_ns == trace.at_ns).all()
    assert plan.open_loop
    assert (built(trace=str(AZURE), speed=2).due_ns == np.rint(trace.at_ns / 2)).all()
    assert plan.stop.min_duration_ns == 0
    assert plan.stop.min_queries == 40


def test_a_window_is_cut_by_the_recordings_own_time_and_begins_at_0() -> None:
    trace = read(AZURE, "x").rows()
    kept = (trace.at_ns >= 5 * S) & (trace.at_ns < 12 * S)
    plan = built(trace=str(AZURE), window={"start": "5s", "end": "12s"}, speed=0.5)
    assert 2 < plan.n_queries == kept.sum() < 40
    assert (plan.due_ns == 2 * (trace.at_ns[kept] - trace.at_ns[kept][0])).all()
    assert (built(40, trace=str(AZURE), window={"start": "5s", "end": "12s"}).payload_ix == np.flatnonzero(kept)).all()
    with pytest.raises(ValueError, match="holds no request: the recording lasts"):
        built(trace=str(AZURE), window={"start": "10m"})


def test_max_queries_cuts_and_minima_do_not_stretch() -> None:
    plan = built(trace=str(AZURE), stop=Stop(min_queries=3, max_queries=3))
    assert plan.n_queries == 3
    assert built(trace=str(AZURE), stop=Stop(min_queries=5000)).n_queries == 40


def test_row_i_carries_sample_i_of_a_source_as_long_and_else_samples_at_random() -> None:
    assert built(40, trace=str(AZURE)).payload_ix.tolist() == list(range(40))
    some = built(7, trace=str(AZURE)).payload_ix
    assert some.max() < 7
    assert len(set(some.tolist())) > 1


def test_shards_are_the_whole_and_the_same_seed_gives_the_same_plan() -> None:
    plan = built(trace=str(MOONCAKE))
    parts = [plan.shard(i, 3) for i in range(3)]
    assert sorted(np.concatenate([part.query_id for part in parts]).tolist()) == list(range(30))
    assert plan.fingerprint() == built(trace=str(MOONCAKE)).fingerprint()
    assert plan.fingerprint() != built(trace=str(MOONCAKE), seed=6).fingerprint()


def run_directory(folder: Path, n_source: int = 9) -> Path:
    """What a run of queries of two samples leaves, its rows in another order than the schedule's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    query = [1, 1, 0, 0, 2, 2, 0]
    table = {
        "query_id": query, "sample_ix": [0, 1, 0, 1, 0, 1, 0], "payload_ix": [3, 4, 7, 8, 0, 1, 5],
        "due_ns": [50 * MS, 50 * MS, 20 * MS, 20 * MS, 90 * MS, 90 * MS, -3 * S], "n_in": [5] * 7, "n_out": [-1, 2, 3,
            4, 5, 6, 7],
        "phase": ["measure", "cancel", "measure", "measure", "measure", "measure", "warmup"],
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / "requests.parquet")
    return folder


def test_a_run_directory_is_repeated_query_by_query_with_its_own_samples(tmp_path: Path) -> None:
    plan = built(9, trace=str(run_directory(tmp_path)))
    assert plan.due_ns.tolist() == [0, 30 * MS, 70 * MS]
    assert plan.offsets.tolist() == [0, 2, 4, 6]
    assert plan.payload_ix.tolist() == [7, 8, 3, 4, 0, 1]
    assert plan.sample_ix.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="used 9 samples and the source has 4"):
        built(4, trace=str(tmp_path))
    assert built(1, trace=str(tmp_path)).payload_ix.tolist() == [0] * 6, "only the times were asked for"


def words(text: str | None) -> list[str]:
    return (text or "").split(" ")


def test_prompts_share_exactly_the_prefixes_that_the_recorded_ones_shared() -> None:
    source = SOURCE.build(TraceSource(path=str(MOONCAKE)), 7)
    trace = read(MOONCAKE, "x").rows()
    assert trace.blocks is not None
    assert len(source) == 30
    per_block = round(BLOCK_TOKENS / 1.3)
    pairs = [(i, j) for i in range(8) for j in range(i)]
    for i, j in pairs:
        one, other = (words(source.payload(k).prompt) for k in (i, j))
        same = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        ids = zip(trace.blocks[i], trace.blocks[j], strict=False)
        shared = next((k for k, (a, b) in enumerate(ids) if a != b), 10**9)
        assert same // per_block == shared, (i, j)
        assert same - shared * per_block < 5, "words that are alike by chance"
    for i in range(30):
        payload = source.payload(i)
        assert payload.n_in == trace.n_in[i]
        assert abs(len(words(payload.prompt)) - trace.n_in[i] / 1.3) < len(trace.blocks[i])
        assert payload.max_output_tokens == trace.n_out[i]


def test_without_blocks_no_two_prompts_begin_alike_and_bytes_are_exact() -> None:
    source = SOURCE.build(TraceSource(path=str(AZURE), unit="bytes", max_prompt_tokens=300, max_output_tokens=20), 7)
    payloads = [source.payload(i) for i in range(40)]
    assert [len(payload.prompt or "") for payload in payloads] == [payload.n_in for payload in payloads]
    assert max(payload.n_in for payload in payloads) == 300
    assert max(payload.max_output_tokens for payload in payloads) == 20
    assert len({(payload.prompt or "")[:24] for payload in payloads}) == 40
    blocks = SOURCE.build(TraceSource(path=str(MOONCAKE), unit="bytes"), 7)
    assert (blocks.payload(0).prompt or "")[:512] == (blocks.payload(1).prompt or "")[:512]
    assert (blocks.payload(0).prompt or "")[:1024] != (blocks.payload(1).prompt or "")[:1024]


def test_unknown_lengths_take_the_default_and_a_length_of_0_is_asked_for_as_1(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,output_tokens\n0,0\n1,5\n")
    source = SOURCE.build(TraceSource(path=str(tmp_path / "a.csv"), prompt_tokens=30), 7)
    assert [(source.payload(i).n_in, source.payload(i).max_output_tokens) for i in range(2)] == [(30, 1), (30, 5)]
    (tmp_path / "b.csv").write_text("time\n0\n")
    assert SOURCE.build(TraceSource(path=str(tmp_path / "b.csv")), 7).payload(0).max_output_tokens == -1


def test_flags_say_the_same_as_a_file() -> None:
    made = spec.with_flags(trace=str(AZURE), speed=2.0, window="1s..9s", cancel="25%:300ms")
    assert (made.kind, made.source.kind, made.source.path) == ("replay", "trace", str(AZURE))  # type: ignore[attr-defined]
    assert (made.params.speed, made.params.window.start_ns, made.params.window.end_ns) == (2.0, S, 9 * S)  # type: ignore[attr-defined]
    assert made.cancel is not None
    assert (made.cancel.share, made.cancel.after) == (0.25, 300 * MS)
    base = spec.parse({"kind": "server", "source": {"kind": "tensors", "inputs": [{"name": "x", "shape": [1]}]}})
    own = spec.with_flags(base, kind="replay", trace=str(AZURE))
    assert own.source.kind == "tensors", "samples of its own stay"  # type: ignore[attr-defined]
    for wrong, said in (
        ({"window": "1s-9s"}, r"--window: .* Write it like 10m\.\.20m"),
        ({"cancel": "some:1s"}, "--cancel: 'some' is not a share"),
    ):
        with pytest.raises(spec.ScenarioError, match=said):
            spec.with_flags(trace=str(AZURE), **wrong)  # type: ignore[arg-type]


def test_a_whole_recording_is_planned_at_once(tmp_path: Path) -> None:
    lines = "\n".join(f"{i * 0.01:.2f},{i % 500},{i % 90}" for i in range(50_000))
    (tmp_path / "a.csv").write_text("time,input_tokens,output_tokens\n" + lines)
    plan = built(50_000, trace=str(tmp_path / "a.csv"))
    assert plan.n_queries == 50_000
    assert plan.due_ns[-1] == round(499.99 * S)
