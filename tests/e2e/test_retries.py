"""``--retries`` for real: a worker that stood still is the machine's doing, so the run is made again, and the user's
word ends it.

Real processes and sockets; single stream, because there a stop is INVALID however short the promise is. About ten
seconds each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.plimsoll import begin, children, plimsoll_here, server, wait_for

pytestmark = pytest.mark.e2e

FAST = ("--model", "scripted", "--ttft", "10ms", "--itl", "1ms")


def begin_run(url: str, folder: Path, retries: int) -> subprocess.Popen[str]:
    """Single stream for 3 s; 10 % of 2 s: hiccups of a shared machine stay far below, half a second is far above."""
    (folder / "s.yaml").write_text(
        f"kind: single_stream\nretries: {retries}\nstop: {{min_queries: 1, min_duration: 3s}}\nobjectives: "
        "[p50(latency) <= 2s]\n"
    )
    return begin("run", "s.yaml", "--url", url, "--output-tokens", "4", "--out", "r", "--json", cwd=folder)


def freeze(process: subprocess.Popen[str], folder: Path) -> None:
    """Stop the worker of the attempt that goes on for half a second."""
    wait_for(folder / "r" / "segments" / "w*.seg")
    worker = children(process.pid, "plimsoll.harness.generator.worker")[0]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(worker, signal.SIGCONT)


def test_a_run_that_the_machine_spoiled_is_made_again_and_both_are_there(tmp_path: Path) -> None:
    with server(*FAST) as target:
        process = begin_run(target.url, tmp_path, retries=2)
        freeze(process, tmp_path)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    report = json.loads(out)
    first, *_, last = report["attempts"]
    assert (first["outcome"], last["outcome"], last["directory"]) == ("INVALID", "PASS", ".")
    assert "the event loop stalled" in first["reasons"][0]
    assert "attempt 1 of 3: INVALID by the generator alone" in err
    assert report["exit_code"] == 0
    assert report["run"]["timer"] is None, "a closed loop has no due times, so nobody asked the timer"
    kept = plimsoll_here("gate", "r/attempts/1", "--quiet", cwd=tmp_path)
    assert (kept.returncode, kept.stdout[:7], kept.stdout.count("\n")) == (4, "INVALID", 1)
    shown = plimsoll_here("report", "r", cwd=tmp_path)
    assert "INVALID by the generator alone" in " ".join(shown.stdout.split())
    seeds = {
        json.loads((tmp_path / path / "manifest.json").read_text())["plan_fingerprint"]
        for path in ("r", "r/attempts/1")
    }
    assert len(seeds) == 1, "the same schedule"


def test_ctrl_c_in_a_later_attempt_ends_everything(tmp_path: Path) -> None:
    with server(*FAST) as target:
        process = begin_run(target.url, tmp_path, retries=5)
        freeze(process, tmp_path)
        wait_for(tmp_path / "r" / "attempts" / "1" / "report.json")
        wait_for(tmp_path / "r" / "segments" / "w*.seg")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["exit_code"] == 130
    assert [one["number"] for one in report["attempts"]] == [1, 2]
    assert "interrupted before its end" in report["verdict"]["reasons"][0]
    assert not children(process.pid, "plimsoll.harness.generator.worker")


def test_an_endpoint_that_is_gone_before_the_second_attempt_leaves_the_first_as_the_result(tmp_path: Path) -> None:
    with server(*FAST) as target:
        process = begin_run(target.url, tmp_path, retries=2)
        freeze(process, tmp_path)
        target.process.kill()
        out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert (process.returncode, report["exit_code"], report["verdict"]["outcome"]) == (4, 4, "INVALID"), err
    assert "attempt 2 of 3 could not begin (target.url: cannot connect to" in err
    assert "Attempt 1, which was INVALID, is the run again, in r" in err
    assert "Nothing was sent" not in err
    assert json.loads((tmp_path / "r" / "report.json").read_text()) == report
