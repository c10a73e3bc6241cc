"""Whoever is killed, and when: the run can be judged, it says what it lost, and that is at most the last second.

The server's own log is what the records are held against. About 100 s on a quiet host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.harness.run.rundir import open_sealed, request_ids
from plimsoll.slo.records.records import Records, Status
from tests.e2e.oracle import Oracle, oracle
from tests.e2e.plimsoll import ROOT, children, plimsoll_here, wait_for

pytestmark = pytest.mark.e2e
LOAD = [
    *("--protocol", "openai-chat", "--model", "oracle", "--prompt-tokens", "4", "--output-tokens", "4", "--rate", "80"),
    *("--duration", "1500ms", "--workers", "2", "--option", "max_connections=64"),
]
SECOND = 1_000_000_000
#: Nothing is sent yet: before the plan is on disk, and when all but t0 is.
BEFORE = ["rename:plan.npz:1", "rename:scenario.yaml:1", "rename:begun.json:1"]
ANNOUNCED = ["rename:begun.json:2", "write:begun.json:2", "after:0.02"]
DURING = ["after:0.4", "after:0.9", "after:1.3"]
TOGETHER = ["all-after:0.5", "all-after:1.1", "all-after:1.5"]
SEALING = [
    *("write:requests.parquet:1", "rename:requests.parquet:1", "write:chunks.parquet:1", "rename:chunks.parquet:1"),
    *("write:generator.json:1", "rename:generator.json:1", "rename:scenario.yaml:2", "rename:manifest.json:1"),
]
SEALED = ["remove:*", "remove:segments", "remove:begun.json", "rename:report.json:1", "rename:report.html:1"]


@pytest.fixture(name="log", scope="module")
def log_() -> Iterator[Oracle]:
    with oracle("--ttft", "10ms", "--itl", "2ms") as server:
        yield server


def killed(url: str, at: str, path: Path) -> int:
    """A run that is killed there; the monotonic time by which it was."""
    words = [*LOAD, "--url", url, "--out", "r", "--slo", "p99(ttft) <= 2s"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fakes.killed_at", at, "--", "run", *words],
        cwd=path,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return time.monotonic_ns()


def lost(run: Path, log: Oracle, dead_ns: int) -> tuple[Records, list[int]]:
    """The records, and how long before the end the server had finished each request that they lack, in ns."""
    sealed = open_sealed(run)
    ids = request_ids(str(sealed.manifest["run_id"]), sealed.records)
    kept = {name for name, status in zip(ids, sealed.records["status"].tolist(), strict=True) if status == Status.OK}
    ours = [row for row in log.rows() if row.request_id.startswith(f"{sealed.manifest['run_id']}-")]
    return sealed.records, [dead_ns - row.done_ns for row in ours if row.outcome == "ok" and row.request_id not in kept]


def judged(path: Path) -> tuple[str, str]:
    """Outcome and reasons by `plimsoll report`, after which `gate` says the same by its exit code."""
    again = plimsoll_here("report", "r", "--json", cwd=path)
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    report = json.loads(again.stdout)
    return report["validity"]["outcome"], "\n".join(report["validity"]["reasons"])


@pytest.mark.parametrize("at", BEFORE)
def test_killed_before_its_plan_was_written_it_had_sent_nothing_and_says_so(
    at: str, log: Oracle, tmp_path: Path
) -> None:
    killed(log.url, at, tmp_path)
    again = plimsoll_here("report", "r", cwd=tmp_path)
    assert again.returncode == 2
    assert "nothing was sent" in again.stderr


@pytest.mark.parametrize("at", ANNOUNCED)
def test_killed_before_its_first_query_it_is_invalid_and_no_row_was_sent(at: str, log: Oracle, tmp_path: Path) -> None:
    dead_ns = killed(log.url, at, tmp_path)
    outcome, reasons = judged(tmp_path)
    assert outcome == "INVALID"
    assert "the coordinator (pid " in reasons
    assert ") was killed or died" in reasons
    records, missing = lost(tmp_path / "r", log, dead_ns)
    assert not missing
    assert set(records["status"].tolist()) == {Status.UNSENT}


@pytest.mark.parametrize("at", [*DURING, *TOGETHER, *SEALING])
def test_killed_on_the_way_it_loses_at_most_the_last_second_and_is_invalid(
    at: str, log: Oracle, tmp_path: Path
) -> None:
    dead_ns = killed(log.url, at, tmp_path)
    outcome, reasons = judged(tmp_path)
    assert outcome == "INVALID"
    assert ") was killed or died" in reasons
    records, missing = lost(tmp_path / "r", log, dead_ns)
    assert max(missing, default=0) < SECOND
    assert len(records) == len(records.measured()) > 100, "every planned sample has a row"
    if at in TOGETHER:
        assert "at most the last second of rows is missing of workers 0, 1" in reasons
    else:
        assert not missing, "workers write what they have when their coordinator is gone"
        assert "every row that they had" in reasons or (at in SEALING and "no row is missing" in reasons)
    if at in SEALING:
        assert records.ok.all()
    assert plimsoll_here("gate", "r", cwd=tmp_path).returncode == 4
    assert not (tmp_path / "r" / "segments").exists()


@pytest.mark.parametrize("at", SEALED)
def test_killed_with_its_manifest_written_it_is_whole(at: str, log: Oracle, tmp_path: Path) -> None:
    dead_ns = killed(log.url, at, tmp_path)
    _, reasons = judged(tmp_path)
    assert "was killed" not in reasons
    records, missing = lost(tmp_path / "r", log, dead_ns)
    assert records.ok.all()
    assert not missing


def test_a_killed_worker_costs_the_last_second_of_its_rows(log: Oracle, tmp_path: Path) -> None:
    """And what it had written of its last segment counts."""
    words = [*LOAD, "--url", log.url, "--out", "r", "--duration", "3s"]
    process = subprocess.Popen(
        [sys.executable, "-m", "plimsoll", "run", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wait_for(tmp_path / "r" / "segments" / "w001-000001.seg")
    os.kill(children(process.pid, "plimsoll.harness.generator.worker")[1], signal.SIGKILL)
    dead_ns = time.monotonic_ns()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 4, said.decode()
    records, missing = lost(tmp_path / "r", log, dead_ns)
    assert max(missing, default=0) < SECOND
    assert len(records) > 200
    assert "was killed by SIGKILL" in judged(tmp_path)[1]


def test_a_run_that_goes_on_is_left_alone(log: Oracle, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "plimsoll", "run", *LOAD, "--url", log.url, "--out", "r"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    again = plimsoll_here("report", "r", cwd=tmp_path)
    code = process.wait(30)
    if "going on" not in again.stderr:
        assert again.returncode == 0, "it had ended by then"
    else:
        assert again.returncode == 2
        assert f"the run is still going on (the coordinator, pid {process.pid} on " in again.stderr
    assert code in (0, 4)
    assert "was killed" not in judged(tmp_path)[1]
