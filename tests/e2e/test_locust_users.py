"""The example for Locust users under real Locust, in one process and with two workers, against a server whose script is
known.

About 15 s on a quiet host. Two tests are alone, for they hold figures and losses against the server's script. A busy
host makes a run INVALID, and it says so; such a run is made again, as its own message asks.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plimsoll.harness.run.rundir import open_sealed, request_ids
from plimsoll.slo.records.records import Stamp, TokensFrom
from tests.e2e.plimsoll import ROOT, Server, plimsoll_here, server, wait_for

pytestmark = pytest.mark.e2e

EXAMPLE = str(ROOT / "docs" / "examples" / "locustfile_streaming.py")
CHAT, COMPLETE = "/v1/chat/completions", "completions"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "locust", "-f", EXAMPLE, *arguments]


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def locust(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("--headless", *arguments), capture_output=True, text=True, cwd=cwd, timeout=60, env=environ(),
        check=False
    )  # fmt: skip


def only_busy(run: Path) -> bool:
    """The run is INVALID, and all that is wrong is that this host had no time for it."""
    checks = json.loads((run / "report.json").read_text())["validity"]["checks"]
    broken = {check["name"] for check in checks if not check["ok"]}
    return bool(broken) and broken <= {"loop stalls", "generator CPU", "gc pauses"}


def entries(cwd: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Rows of Locust's CSV by (type, name)."""
    with (cwd / "csv_stats.csv").open(newline="") as file:
        return {(row["Type"], row["Name"]): row for row in csv.DictReader(file)}


@pytest.fixture(name="scripted", scope="module")
def scripted_server() -> object:
    with server("--model", "scripted", "--ttft", "50ms", "--itl", "10ms") as one:
        yield one


@pytest.mark.alone
def test_locusts_entries_keep_to_the_servers_script_and_a_broken_slo_is_exit_code_1(
    scripted: Server, tmp_path: Path
) -> None:
    for number in range(2):
        done = locust(
            tmp_path, "-u", "10", "-r", "10", "-t", "3s", "--host", scripted.url, "--csv", "csv", "--slo",
            "p50(ttft) <= 20ms", "--plimsoll-out", "run",
        )  # fmt: skip
        if done.returncode != 4:
            break
        shutil.move(tmp_path / "run", tmp_path / f"busy-{number}")
    assert done.returncode == 1 or only_busy(tmp_path / "busy-1"), done.stdout + done.stderr
    run = next(path for path in (tmp_path / "run", tmp_path / "busy-1") if path.is_dir())
    assert "coordinated omission" in done.stdout
    found = entries(tmp_path)
    n = int(found["POST", CHAT]["Request Count"])
    assert n >= 10
    # Never before the script; half of them at most 30 ms after it.
    for name in (CHAT, COMPLETE):
        assert float(found["TTFT", name]["Min Response Time"]) >= 50
        assert float(found["TTFT", name]["Median Response Time"]) <= 80
        assert 9 <= float(found["ITL", name]["Median Response Time"]) <= 12
    assert 9 <= float(found["TPOT", CHAT]["Average Response Time"]) <= 13
    assert float(found["POST", CHAT]["Min Response Time"]) >= 200
    assert int(found["ITL", CHAT]["Request Count"]) == 15 * n
    assert int(found["", "Aggregated"]["Request Count"]) == n + int(found["POST", COMPLETE]["Request Count"])
    records = open_sealed(run).records
    assert set(records["stamp"]) == {Stamp.USER}
    assert set(records["tokens_from"]) == {TokensFrom.USAGE, TokensFrom.CHUNKS}
    gate = plimsoll_here("gate", str(run), "--slo", "p50(ttft) <= 500ms", cwd=tmp_path)
    assert gate.returncode == 0 or run.name != "run", gate.stdout + gate.stderr


def test_two_workers_rows_are_all_judged_on_the_master(scripted: Server, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    for number in range(2):
        workers = [
            subprocess.Popen(
                command("--worker", "--master-port", port), cwd=tmp_path, env=environ(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]  # fmt: skip
        try:
            done = locust(
                tmp_path, "--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers",
                "2",
                "-u", "10", "-r", "10", "-t", "2s", "--host", scripted.url, "--csv", "csv", "--slo", "p90(ttft) <= 2s",
                "--plimsoll-out", "run",
            )  # fmt: skip
            for worker in workers:
                worker.wait(20)
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
                    worker.wait()
        if done.returncode != 4:
            break
        shutil.move(tmp_path / "run", tmp_path / f"busy-{number}")
    assert done.returncode in (0, 4), done.stdout + done.stderr
    assert done.returncode == 0 or only_busy(tmp_path / "busy-1"), done.stdout + done.stderr
    sealed = open_sealed(next(path for path in (tmp_path / "run", tmp_path / "busy-1") if path.is_dir()))
    assert sealed.facts.worker_faults == ()
    assert set(sealed.records["worker"]) == {0, 1}
    ids = {f"{sealed.manifest['run_id']}-{number}-0" for number in sealed.records["query_id"].tolist()}
    assert ids <= scripted.truth().keys()
    # Rows are what Locust counted, and what was still in flight at its end.
    assert len(sealed.records) >= int(entries(tmp_path)["", "Aggregated"]["Request Count"])


def test_a_user_that_wakes_up_as_it_is_stopped_sends_nothing(tmp_path: Path) -> None:
    code = """
import gevent
from types import SimpleNamespace
from locust.env import Environment
from locust.user.task import LOCUST_STATE_RUNNING, LOCUST_STATE_WAITING
from plimsoll.harness.distributed.locust_ import StreamingUser

class Reader(StreamingUser):
    host = "http://127.0.0.1:9"

sent = []
def begun():
    sent.append(1)
    raise SystemError
environment = Environment()
environment.plimsoll = SimpleNamespace(next_id=begun)
ends = []
for state in (LOCUST_STATE_WAITING, None, LOCUST_STATE_RUNNING):
    user = Reader(environment)
    user._state, user._greenlet = state, None
    user._group = SimpleNamespace(killone=lambda greenlet: None)  # it comes in a moment
    user.stop()
    try:
        user.chat("hello")
    except BaseException as error:
        ends.append(type(error).__name__)
print(ends, len(sent))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, env=environ(),
        check=False
    )  # fmt: skip
    # A task that is under way goes on to its end, with all of its requests.
    assert done.stdout.split("\n")[-2] == "['GreenletExit', 'GreenletExit', 'SystemError'] 1", done.stdout + done.stderr


def test_errors_in_a_stream_are_failures_in_locust_and_in_the_verdict(tmp_path: Path) -> None:
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms", "--fault", "stream_error=at:2") as broken:
        done = locust(
            tmp_path, "-u", "4", "-r", "4", "-t", "2s", "--host", broken.url, "--csv", "csv", "--slo",
            "ratio(error) <= 10%", "--plimsoll-out", "run",
        )  # fmt: skip
    found = entries(tmp_path)["POST", CHAT]
    assert found["Failure Count"] == found["Request Count"] != "0"
    assert "the script fails the answer here" in (tmp_path / "csv_failures.csv").read_text()
    assert ("TPOT", CHAT) not in entries(tmp_path)
    assert done.returncode == (4 if only_busy(tmp_path / "run") else 1), done.stdout


@pytest.mark.alone
def test_a_killed_locust_leaves_a_run_that_can_be_judged(scripted: Server, tmp_path: Path) -> None:
    """At most the last second of its users' requests is missing, by the server's own log."""
    words = ["--headless", "-u", "5", "-r", "5", "-t", "60s", "--host", scripted.url, "--plimsoll-out", "run"]
    process = subprocess.Popen(
        command(*words), cwd=tmp_path, env=environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(tmp_path / "run" / "segments" / "w*.seg", 40)
    time.sleep(1.2)
    process.kill()
    process.wait()
    dead_ns = time.monotonic_ns()
    done = plimsoll_here("report", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    validity = json.loads(done.stdout)["validity"]
    assert validity["outcome"] == "INVALID"
    assert "Locust's master (pid " in validity["reasons"][0]
    assert "at most the last second of their rows" in validity["reasons"][0]
    sealed = open_sealed(tmp_path / "run")
    kept = set(request_ids(str(sealed.manifest["run_id"]), sealed.records))
    ours = [row for row in scripted.truth().values() if row["request_id"].startswith(sealed.manifest["run_id"])]
    assert len(ours) > 20
    assert all(dead_ns - row["done_ns"] < 1_000_000_000 for row in ours if row["request_id"] not in kept)
