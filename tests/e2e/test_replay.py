"""A run repeated from its directory, and a trace file from the command line. Real time, about six seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.cancelled import CANCEL
from plimsoll.slo.records.records import Records, Status
from tests.e2e.plimsoll import ROOT, Server, plimsoll_here, server

pytestmark = pytest.mark.e2e

MOONCAKE = ROOT / "tests" / "traces" / "mooncake_conversation_excerpt.jsonl"


def rows(folder: Path) -> Records:
    found = tables.load(folder).measured()
    return found.select(np.lexsort((found["sample_ix"], found["query_id"], found["due_ns"])))


@pytest.fixture(scope="module")
def target() -> Iterator[Server]:
    with server("--model", "scripted", "--ttft", "10ms", "--itl", "5ms") as running:
        yield running


def test_an_incident_is_repeated_with_the_same_samples_at_the_same_times(target: Server, tmp_path: Path) -> None:
    """A closed loop, whose times were nobody's plan; then its repetition, whose times were."""
    load = ("--concurrency", "3", "--queries", "20", "--duration", "0s", "--output-tokens", "5", "--seed", "9")
    first = plimsoll_here("run", "--url", target.url, *load, "--out", "a", cwd=tmp_path)
    assert first.returncode in (0, 4), first.stderr
    again = plimsoll_here("replay", "a", "--speed", "2", "--out", "b", cwd=tmp_path)
    assert again.returncode in (0, 4), again.stderr
    part = plimsoll_here("replay", "b", "--max-queries", "7", "--out", "c", cwd=tmp_path)
    assert part.returncode in (0, 4), part.stderr
    a, b, c = (rows(tmp_path / name) for name in "abc")
    assert len(a) == len(b) == 20
    assert np.abs((a["due_ns"] - a["due_ns"][0]) / 2 - b["due_ns"]).max() <= 1
    assert (a["payload_ix"] == b["payload_ix"]).all()
    assert (a["bytes_out"] == b["bytes_out"]).all(), "the same prompts"
    assert (c["due_ns"] == b["due_ns"][:7]).all(), "b was as fast as it was: no speed is applied twice"
    assert (b["ready_ns"] - b["due_ns"] >= 0).all()
    first_report, report = (json.loads((tmp_path / name / "report.json").read_text()) for name in "ab")
    beside = report["recorded"]["whole"]["latency"]
    assert "recorded" not in first_report
    assert beside["recorded"] == {name: first_report["metrics"]["latency"][name] for name in ("p50", "p90", "p99")}
    assert beside["replayed"] == {name: report["metrics"]["latency"][name] for name in ("p50", "p90", "p99")}


def test_a_trace_file_brings_times_and_lengths(target: Server, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in MOONCAKE.read_text().splitlines()][:8]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({**entry, "output_length": 3}) for entry in entries))
    done = plimsoll_here(
        "run", "--trace", "t.jsonl", "--speed", "10", "--url", target.url, "--out", "r", "--json", cwd=tmp_path
    )
    assert done.returncode in (0, 4), done.stderr
    found = rows(tmp_path / "r")
    assert found.ok.all(), found.texts("error")
    assert found["due_ns"].tolist() == [entry["timestamp"] * 100_000 for entry in entries]
    assert found["n_out"].tolist() == [3] * 8
    report = json.loads(done.stdout)
    assert report["run"]["scenario"]["kind"] == "replay"
    assert report["run"]["open_loop"]


def test_what_came_before_the_window_is_sent_and_not_judged(target: Server, tmp_path: Path) -> None:
    rows_of = (
        {"timestamp": 1000 * (i // 3), "input_length": 600, "output_length": 2, "hash_ids": [0, i + 1]}
        for i in range(30)
    )
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows_of)))
    part = ("--window", "5s..8s", "--prehistory", "3s", "--speed", "4", "--spread", "--load", "2")
    done = plimsoll_here("replay", "t.jsonl", *part, "--url", target.url, "--workers", "2", "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    found = tables.load(tmp_path / "r")
    before = found.select(~found.in_measure)
    assert 12 <= len(before) <= 18, "three ticks of three, twice, but for copies across the edges"
    assert (before["due_ns"] < 0).all()
    assert (before["due_ns"] >= -750_000_000).all()
    assert len(set(before["payload_ix"].tolist())) == len(before)
    assert found.ok.all()
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["validity"]["planned"] == len(found) - len(before)
    told = [text for text in report["warnings"] if text.startswith("replay: ")]
    assert "requests were put at random times within the 1s of the recording's clock" in told[0]
    assert "load 2 resamples whole sessions" in told[1]
    assert all(f"warning: {text}" in done.stderr for text in told)


def test_what_cannot_be_replayed_ends_before_any_load(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("time,input_tokens\n0,5\nnever,6\n")
    done = plimsoll_here("replay", "bad.csv", cwd=tmp_path)
    assert (done.returncode, "bad.csv:3: time is 'never'" in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path).glob("runs/*")), "no run directory is left"


def test_what_was_given_up_is_given_up_again_at_its_time_and_in_a_replay_of_the_replay(
    target: Server, tmp_path: Path
) -> None:
    entries = [{"time": k / 10, "output_tokens": 60, "gave_up": 0.12 if k % 4 == 1 else None} for k in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    file = {"trace": "t.jsonl", "columns": {"gave_up": "gave_up"}}
    scenario = {"name": "t", "kind": "replay", "params": file, "cancel": "recorded"}
    scenario |= {"source": {"kind": "trace", "path": "t.jsonl", "columns": {"gave_up": "gave_up"}}}
    (tmp_path / "t.yaml").write_text(json.dumps(scenario))
    for first, out in (("run", "a"), ("replay", "b")):
        what = "t.yaml" if first == "run" else "a"
        done = plimsoll_here(first, what, "--url", target.url, "--out", out, cwd=tmp_path)
        assert done.returncode in (0, 4), done.stderr
        found = tables.load(tmp_path / out)
        gone = found["status"] == Status.CANCELLED
        assert sorted(found["query_id"][gone].tolist()) == [1, 5, 9]
        assert (found["phase"][gone] == CANCEL).all()
        waited_ns = (found["done_ns"] - found["ready_ns"])[gone]
        assert (waited_ns >= 120_000_000).all()
        assert (waited_ns < 200_000_000).all(), "its answer takes 300 ms"
        report = json.loads((tmp_path / out / "report.json").read_text())
        assert any("3 of 12 requests were given up when they were recorded" in text for text in report["warnings"])


def test_later_turns_wait_for_answers_and_a_mix_is_replayed_whole_or_by_class(target: Server, tmp_path: Path) -> None:
    source = {"kind": "synthetic_text", "prompt_tokens": 20, "output_tokens": 3}
    mix = {
        "chat": {"kind": "sessions", "params": {"rate": 4, "turns": 3, "think": "70ms"}, "source": source},
        "api": {"kind": "server", "params": {"rate": 9}, "source": source},
    }
    stop = {"min_queries": 6, "min_duration": "0s"}
    (tmp_path / "m.yaml").write_text(json.dumps({"name": "m", "target": {"url": target.url}, "stop": stop, "mix": mix}))
    for command in (
        ("run", "m.yaml", "--out", "a"),
        ("replay", "a", "--out", "b"),
        ("replay", "a", "--class", "chat", "--sessions", "turns", "--speed", "2", "--out", "c"),
    ):
        done = plimsoll_here(*command, cwd=tmp_path)
        assert done.returncode in (0, 4), done.stderr
    a, b, c = (
        pq.read_table(tmp_path / name / "requests.parquet").to_pandas().sort_values(["due_ns", "query_id"])
        for name in "abc"
    )
    for name in mix:
        assert a[a["class"] == name].due_ns.tolist() == b[b["class"] == name].due_ns.tolist(), "on one clock"
        assert a[a["class"] == name].payload_ix.tolist() == b[b["class"] == name].payload_ix.tolist()
    assert len(c) == (a["class"] == "chat").sum()
    for _, turns in c.groupby("session"):
        assert turns.turn.tolist() == [*range(1, len(turns) + 1)]
        assert {due - done for due, done in zip(turns.due_ns[1:], turns.done_ns, strict=False)} == {35_000_000}
    for verb in ("replay", "import"):
        done = plimsoll_here(verb, "a", *("--class", "nope", "--out", "d"), cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "chat" in done.stderr, done.stderr
        assert "--class" in done.stderr
    done = plimsoll_here("import", "a", "--class", "chat", "--out", "t.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows_of = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()[1:]]
    assert {row["think_ns"] for row in rows_of if row["turn"] > 1} == {70_000_000}
