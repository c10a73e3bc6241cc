"""A latency budget over a whole run: the server's own stages, what is left, and the hop that overspent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.plimsoll import plimsoll_here, server

pytestmark = pytest.mark.e2e


def test_a_queue_that_overspends_is_named_and_promises_on_stages_are_judged(tmp_path: Path) -> None:
    scenario = {
        "kind": "concurrency", "params": {"concurrency": 6}, "stop": {"min_queries": 120, "min_duration": "1s"},
        "source": {"kind": "synthetic_text", "prompt_tokens": 4, "output_tokens": 4}, "target": {"model": "scripted"},
        "budget": {"gateway": "40ms", "queue": "10ms", "answer": "200ms of prefill+decode"},
        "objectives": ["p90(stage.queue) <= 10ms", "p90(stage.decode) <= 2s", "max(stage.nothing) <= 1s"],
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    with server("--model", "scripted", "--ttft", "20ms", "--itl", "2ms", "--slots", "2") as served:
        done = plimsoll_here("run", "s.yaml", "--url", served.url, "--out", "r", cwd=tmp_path)
    assert done.returncode in (1, 4), done.stderr
    report = json.loads((tmp_path / "r/report.json").read_text())
    found = {tuple(one["hops"] or one["sources"]): one for one in report["hops"]["spent"]}
    assert [name for name, one in found.items() if one["hops"]] == [("queue",), ("answer",), ("gateway",)]
    assert report["hops"]["overspent"] == ["queue"]
    assert found["queue",]["over"] > 0.9 * found["queue",]["n"]  # three wait for each that is answered
    assert 20e6 <= found["answer",]["p50_ns"] <= 60e6
    assert sum(one["slow_ns"] for one in found.values()) == pytest.approx(report["hops"]["latency_ns"])
    judged = {one["objective"]: one for one in report["verdict"]["objectives"]}
    assert judged["p90(stage.queue) <= 10ms"]["outcome"] == "FAIL"
    assert judged["p90(stage.decode) <= 2s"]["outcome"] == "PASS"
    assert judged["max(stage.nothing) <= 1s"]["outcome"] == "INCONCLUSIVE"
    assert report["metrics"]["stage.queue"]["n"] == report["hops"]["n"]
    assert "queue took" in done.stdout
    assert "Latency budget" in (tmp_path / "r/report.html").read_text()


def test_a_budget_that_cannot_be_read_is_refused_before_any_load(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("kind: server\nbudget: {queue: soon, wait: 5ms of queue, q: 5ms of queue.a}\n")
    done = plimsoll_here("run", "s.yaml", "--url", "http://127.0.0.1:1", "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("budget.") == 3, done.stderr
    assert not (tmp_path / "r").exists()
