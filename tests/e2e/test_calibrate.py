"""``plimsoll calibrate`` on this machine, briefly, and what a run makes of the table.

Bound: a calibration of 5 s plus the start of its servers; runs of one to three seconds at no more than 30 requests/s.
How fast the machine is, is not judged: only that the table says what was measured.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.run.coordinator import LIMIT_NS, lateness
from tests.e2e.plimsoll import begin, children, plimsoll, plimsoll_here, server

pytestmark = pytest.mark.e2e

CHAT = ("--protocol", "openai-chat", "--kind", "server", "--output-tokens", "8", "--arrival", "constant")


def calibrated(folder: Path) -> dict[str, Any]:
    env = {"XDG_CACHE_HOME": str(folder / "cache"), "PLIMSOLL_CALIBRATION": ""}
    done = plimsoll("calibrate", "--budget", "5s", "--json", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert "calibrating for about 5 s against the" in done.stderr
    assert json.loads((folder / "cache/plimsoll/calibration.json").read_text())["tables"] == [json.loads(done.stdout)]
    return dict(json.loads(done.stdout))


def lowered(folder: Path, table: dict[str, Any], rate: float) -> Path:
    """The same table, as if one worker kept only ``rate`` requests/s: no test may need what a busy machine can't do."""
    kept = {**table["closed_loop"], "asked": rate, "kept": True, "why": "", "requests_per_s": rate}
    streams = {**kept, "token_events_per_s": 1e6}
    error = {"p50": 4_000, "p99": 70_000}
    added = {**streams, "ttft_error_ns": error, "itl_error_ns": error, "kernel_share": 1.0}
    changed = {**table, "open_loop": [kept], "tokens": [streams], "streams": [{**kept, "asked": 1e5}], "added": added}
    path = folder / "lowered.json"
    path.write_text(json.dumps({"schema": "plimsoll.calibration/1", "tables": [changed]}))
    return path


@pytest.mark.alone
def test_a_machine_is_measured_and_a_run_beyond_its_table_is_warned_before_the_start(tmp_path: Path) -> None:
    table = calibrated(tmp_path)
    assert table["closed_loop"]["requests_per_s"] > 100
    assert table["open_loop"]
    assert table["tokens"]
    assert table["streams"]
    assert table["timer_late_ns"]["p99"] >= table["timer_late_ns"]["p50"] > 0
    probes = [*table["open_loop"], *table["tokens"], *table["streams"]]
    assert all(probe["kept"] == (probe["why"] == "") for probe in probes)
    compared = [*table["tokens"], *table["streams"]]
    assert all(probe["ttft_error_ns"]["p99"] is not None and probe["kernel_share"] > 0.9 for probe in compared)

    env = {"PLIMSOLL_CALIBRATION": str(lowered(tmp_path, table, 20.0))}
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms") as target:
        there = ("--url", target.url, "--model", "scripted", *CHAT, "--workers", "1", "--json")
        over = plimsoll_here("run", *there, "--rate", "30", "--duration", "1s", "--out", "over", cwd=tmp_path, env=env)
        within = plimsoll_here("run", *there, "--rate", "15", "--duration", "2s", "--out", "in", cwd=tmp_path, env=env)
    warning = "30 requests/s from one worker is beyond what this machine does honestly: 20 a worker"
    assert over.stderr.startswith(f"warning: {warning}"), over.stderr
    report = json.loads(over.stdout)
    assert report["warnings"][0].startswith(warning)
    assert report["validity"]["generator_error"]["added_ttft_ns"] is None
    assert "beyond" not in within.stderr
    timer = json.loads(within.stdout)["run"]["timer"]
    if table["host"]["engine"] == "native":
        assert 0 <= timer["p50_ns"] <= timer["p90_ns"] <= timer["p99_ns"] <= timer["max_ns"]
        assert 50_000 <= timer["spin_ns"] <= 200_000
        assert timer["core_share"] == pytest.approx(timer["spin_ns"] * 15 / 1e9, rel=0.1)
    else:
        assert timer is None
    error = json.loads(within.stdout)["validity"]["generator_error"]
    assert error["added_ttft_ns"] == {"p50": 4_000, "p99": 70_000}, error
    assert (error["stamp"], error["engine"]) == ("kernel", table["host"]["engine"])
    again = plimsoll_here("report", "in", "--json", cwd=tmp_path)  # with no table at hand
    assert json.loads(again.stdout)["validity"]["generator_error"] == error


def test_a_budget_that_is_too_short_is_refused_at_once(tmp_path: Path) -> None:
    done = plimsoll_here("calibrate", "--budget", "1s", cwd=tmp_path)
    assert done.returncode == 2
    assert "--budget: 1s is not from 5 s to 10 min" in done.stderr


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_calibration_writes_nothing_and_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    process = begin("calibrate", "--out", "c.json", cwd=tmp_path)
    assert process.stderr is not None
    while "closed loop" not in process.stderr.readline():
        assert process.poll() is None
    servers = children(process.pid, "reference_server")
    assert servers
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), errors
    until = time.monotonic() + 10
    while any(alive(pid) for pid in servers):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert list(tmp_path.glob("c.json*")) == []


def test_the_probe_is_of_real_sleeps_and_ends_in_time_on_any_host() -> None:
    begun = time.monotonic_ns()
    found = asyncio.run(lateness(20))
    assert len(found) == 20
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0, "never before its time"
    assert time.monotonic_ns() - begun >= 20_000_000
    few = asyncio.run(lateness(10**9, limit_ns=20_000_000))
    assert 1 <= len(few) <= 25
    assert LIMIT_NS < 500_000_000
