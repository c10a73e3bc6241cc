"""Events of a run against real processes: what they did is on the run's clock, in every report, and in the verdict.

Real time; each test sends at most 60 requests a second for some seconds.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records import tables
from tests.e2e.plimsoll import begin, plimsoll, server

pytestmark = pytest.mark.e2e

S = 1_000_000_000


def file_of(folder: Path, events: str, duration: str = "12s", rate: int = 60, objectives: str = "") -> Path:
    path = folder / "events.yaml"
    path.write_text(
        f"name: events\nkind: server\nparams: {{rate: {rate}}}\ntarget: {{protocol: openai-chat, model: scripted}}\n"
        "source: {kind: synthetic_text, prompt_tokens: 8, output_tokens: 2, count: 64}\n"
        f"stop: {{min_queries: 1, min_duration: {duration}}}\ntimeout: 10s\n"
        f"events:\n{events}{f'objectives: [{objectives}]' if objectives else ''}\n"
    )
    return path


def until(holds: Callable[[], bool]) -> None:
    for _ in range(400):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_a_frozen_server_recovers_when_it_is_let_go(tmp_path: Path) -> None:
    freeze = "kill -STOP $PLIMSOLL_SERVER_PID; sleep 2; kill -CONT $PLIMSOLL_SERVER_PID; echo thawed token=abcdef99"
    events = f'  - {{at: 4s, name: freeze, run: "{freeze}"}}\n'
    asked = ", ".join(
        f'"{text}"'
        for text in (
            "recovered(p90(ttft) <= 1s) <= 6s after freeze",
            "recovered(p90(ttft) <= 1s) <= 200ms after freeze",
            "time_out_of(p90(ttft) <= 1s) <= 6s",
            "p50(ttft{phase=before}) <= 1s",
        )
    )
    path, out, trace = file_of(tmp_path, events, objectives=asked), tmp_path / "run", tmp_path / "trace.json"
    done = plimsoll("run", str(path), "--out", str(out), "--format", f"perfetto={trace}", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    (event,) = report["events"]
    assert (event["name"], event["exit"], event["fault"]) == ("freeze", 0, "")
    assert event["output"] == "thawed token=[redacted]"
    assert 4 * S <= event["begun_ns"] <= 4.5 * S
    took = event["ended_ns"] - event["begun_ns"]
    assert 2 * S <= took <= 4 * S
    assert [one["name"] for one in report["phases"]] == ["before", "during", "after"]
    before, good, strict, out_of = report["verdict"]["objectives"]
    assert [one["outcome"] for one in (before, good, strict, out_of)] == ["PASS", "PASS", "FAIL", "PASS"]
    # A request that was due less than a second before the end waited less than a second.
    assert took - 1.1 * S <= good["observed"] <= took + 0.5 * S
    labels = tables.load(out).labels
    assert labels is not None
    assert labels.texts["phase"] == ("before", "during", "after")
    assert '"ph":"i"' in trace.read_text()
    assert b"abcdef99" not in b"".join(file.read_bytes() for file in out.iterdir() if file.is_file())
    page = (out / "report.html").read_text()
    assert "freeze" in page
    assert "kill -STOP" in page
    again = plimsoll("report", str(out), "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["verdict"] == report["verdict"]


def test_an_experiment_whose_event_fails_is_invalid_and_says_why(tmp_path: Path) -> None:
    events = (
        '  - {at: 500ms, name: broken, run: "echo no permission; exit 3"}\n'
        '  - {at: 1s, name: endless, timeout: 500ms, run: "sleep 60"}\n'
        "  - {at: 1s, name: slow start, fault: 'stall=for:100ms'}\n"
        "  - {at: 2s, name: unknown, fault: nonsense}\n"
        "  - {at: 2500ms, name: half time, note: a mark}\n"
    )
    done = plimsoll("run", str(file_of(tmp_path, events, "3s", 20)), "--out", "run", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]["outcome"]) == (4, "INVALID")
    reason = report["verdict"]["reasons"][0]
    for text in (
        "broken: ended with exit code 3",
        "endless: was ended after 0.5 s",
        'unknown: was answered with status 400 ({"error": {"message": "nonsense: unknown fault',
    ):
        assert text in reason
    exits = {one["name"]: one["exit"] for one in report["events"]}
    assert exits == {"broken": 3, "endless": -signal.SIGTERM, "slow start": 201, "unknown": 400, "half time": None}


def test_ctrl_c_ends_an_event_and_what_it_started(tmp_path: Path) -> None:
    events = f'  - {{at: 1s, name: long, run: "echo $$ > {tmp_path}/pid; sleep 300"}}\n  - {{at: 20s, note: later}}\n'
    running = begin("run", str(file_of(tmp_path, events, "30s", 20)), "--out", "run", "--json", cwd=tmp_path)
    until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text().strip()))
    pid = int((tmp_path / "pid").read_text())
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)
    stdout, _ = running.communicate(timeout=30)
    assert time.monotonic() - begun < 10
    assert not Path(f"/proc/{pid}").exists()
    report: dict[str, Any] = json.loads(stdout)
    assert report["exit_code"] == 130
    assert [one["fault"] for one in report["events"]] == [
        "was ended: interrupted before it was done",
        "did not begin: interrupted before 20 s",
    ]


def test_a_killed_run_keeps_the_events_that_it_had(tmp_path: Path) -> None:
    path = file_of(tmp_path, '  - {at: 1s, name: early, run: "echo hi"}\n', "30s", 20)
    running = begin("run", str(path), "--out", "run", cwd=tmp_path)
    begun = tmp_path / "run" / "begun.json"
    until(lambda: begun.exists() and '"output": "hi"' in begun.read_text())
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    done = plimsoll("report", "run", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["events"][0]["output"] == "hi"
    assert [one["name"] for one in report["phases"]] == ["before", "during", "after"]
    assert {"before", "after"} <= set(report["by"]["phase"])


def test_arms_of_one_run_go_to_their_own_targets(tmp_path: Path) -> None:
    with (
        server("--model", "scripted", "--ttft", "20ms") as base,
        server("--model", "scripted", "--ttft", "60ms") as canary,
    ):
        path = tmp_path / "arms.yaml"
        path.write_text(
            f"kind: server\nparams: {{rate: 50}}\ntarget: {{url: '{base.url}', protocol: openai-chat}}\n"
            "source: {kind: synthetic_text, prompt_tokens: 8, output_tokens: 2, count: 64}\n"
            "stop: {min_queries: 1, min_duration: 5s}\n"
            f"arms: {{base: {{share: 60%}}, canary: {{share: 40%, target: {{url: '{canary.url}'}}}}}}\n"
            'objectives: ["p50(ttft{arm=base}) <= 20s"]\n'
        )
        done = plimsoll("run", str(path), "--out", "run", "--json", cwd=tmp_path)
        report = json.loads(done.stdout)
        fast, slower = (report["by"]["arm"][name]["metrics"]["ttft"]["p50"] for name in ("base", "canary"))
        assert 20_000_000 <= fast < slower
        assert slower >= 60_000_000
        n = {name: one["requests"] for name, one in report["by"]["arm"].items()}
        assert sum(n.values()) == sum(report["counts"]["by_status"].values())
        assert 0.45 < n["base"] / sum(n.values()) < 0.75
        both = plimsoll("compare", "run/classes/base", "run/classes/canary", "--json", cwd=tmp_path)
        assert both.returncode in (0, 1, 3, 4), both.stderr
