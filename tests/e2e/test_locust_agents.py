"""Agents under real Locust, as processes of their own on loopback: one valid run, its entries in Locust's page, and every death. About 40 s."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.exit_codes import OF_OUTCOME
from tests.e2e.plimsoll import PLIMSOLL, Server, server

pytestmark = pytest.mark.e2e
LOCUSTFILE = Path(__file__).parents[2] / "harness" / "distributed" / "locustfile.py"
#: Limits so wide that only a death, never a busy host, spoils a run.
LOAD = ["smoke", "--rate", "40", "--warmup", "0s", "--seed", "7"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Host:
    """Everything that one test starts, marked in the environment that children inherit; nothing of it outlives the test."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.port, self.mark = tmp_path, free_port(), uuid.uuid4().hex
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.path / f"{name}.log").open("wb")
        with log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.path,
                env={**os.environ, "PLIMSOLL_TEST": self.mark},
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def agent(self, name: str) -> subprocess.Popen[bytes]:
        address = f"127.0.0.1:{self.port}"
        return self.start(
            name, *PLIMSOLL, "agent", "--locust-worker", address, "--name", name, "--workers", "1", "--once"
        )

    def master(self, url: str, *arguments: str) -> subprocess.Popen[bytes]:
        at = f"127.0.0.1:{self.port}"
        words = ["run", *LOAD, "--url", url, "--locust-master", at, "--expect-workers", "2", "--out", "out"]
        return self.start("master", *PLIMSOLL, *words, *arguments)

    def said(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text()

    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "out" / "report.json").read_text()))

    def left(self, *words: str) -> list[int]:
        """Processes of this test whose command line has one of the words (none given: any)."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                ours = self.mark.encode() in (folder / "environ").read_bytes() and command
                if ours and (not words or any(word in command for word in words)):
                    found.append(int(folder.name))
        return found


def until(reached: Callable[[], object], seconds: float, what: str) -> Any:
    by = time.monotonic() + seconds
    while time.monotonic() < by:
        if found := reached():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what}")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    for pid in found.left():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in found.started:
        process.wait()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Server]:
    with server() as found:
        yield found


def test_two_agents_send_one_valid_schedule_that_locust_shows_and_a_late_one_is_refused(
    host: Host, endpoint: Server
) -> None:
    page = f"127.0.0.1:{free_port()}"
    agents = [host.agent("a"), host.agent("b")]
    master = host.master(endpoint.url, "--duration", "7s", "--locust-web", page)
    until(lambda: all("taken this agent in" in host.said(name) for name in ("a", "b")), 40, "both agents")
    late = host.agent("late")

    def entries() -> dict[str, int]:
        with urllib.request.urlopen(f"http://{page}/stats/requests", timeout=5) as answer:
            rows = {row["name"]: row["num_requests"] for row in json.load(answer)["stats"]}
        return rows if rows.get("TTFT") and rows.get("TPOT") else {}

    shown = until(entries, 20, "our entries in Locust's page")
    assert shown["Aggregated"] == shown["requests"] >= shown["TTFT"]
    assert (master.wait(60), [agent.wait(30) for agent in agents], late.wait(30)) == (0, [0, 0], 2), host.said("master")
    assert "too late" in host.said("late")
    manifest = json.loads((host.path / "out" / "manifest.json").read_text())
    assert {agent["name"]: len(agent["shards"]) for agent in manifest["agents"]} == {"a": 1, "b": 1}
    report = host.report()
    assert (report["validity"]["outcome"], report["validity"]["sent"]) == ("VALID", report["counts"]["ok"])
    assert report["validity"]["planned"] == report["counts"]["ok"] > 7 * 40 * 0.9
    until(lambda: not host.left(), 10, "the end of every process")


def test_an_agent_killed_in_mid_run_makes_it_invalid_and_its_rows_are_kept(host: Host, endpoint: Server) -> None:
    agents = [host.agent("a"), host.agent("b")]
    master = host.master(endpoint.url, "--duration", "5s")
    until(lambda: "the run begins" in host.said("a"), 40, "the run's begin")
    time.sleep(3.0)  # two of them after t0
    (site,) = [pid for pid in host.left("harness.distributed.site") if b"--name=a" in _arguments(pid)]
    os.kill(site, signal.SIGKILL)
    assert master.wait(60) == 4, host.said("master")
    assert [agents[0].wait(30), agents[1].wait(30)] == [4, 0]
    report = host.report()
    assert re.search(r"agent a \(.*lost", "\n".join(report["validity"]["reasons"]))
    assert report["validity"]["planned"] > report["counts"]["ok"] > 0.5 * report["validity"]["planned"]
    until(lambda: not host.left(), 15, "the end of every process")


def test_nothing_outlives_a_killed_locust_process_or_a_killed_coordinator(host: Host, endpoint: Server) -> None:
    agents = [host.agent("a"), host.agent("b")]
    master = host.master(endpoint.url, "--duration", "60s")
    until(lambda: "the run begins" in host.said("a"), 40, "the run's begin")
    (relay,) = [pid for pid in host.left("harness.distributed.locust_") if b"--name=a" in _arguments(pid)]
    agents[0].kill()
    os.kill(relay, signal.SIGKILL)
    until(lambda: len(host.left("harness.distributed.site")) == 1, 10, "the end of the killed agent's site")
    until(lambda: len(host.left("harness.worker")) == 1, 10, "the end of the killed agent's worker")
    until(lambda: "was lost" in host.said("master"), 15, "the news of it")
    master.kill()
    until(lambda: not host.left("harness.distributed", "harness.worker"), 20, "the end of every process")
    assert agents[1].wait(20) == 4


def test_plain_locust_runs_the_scenario_and_ends_with_the_verdicts_exit_code(host: Host, endpoint: Server) -> None:
    command = [str(Path(sys.executable).with_name("locust")), "-f", str(LOCUSTFILE), "--headless"]
    given = {"scenario": "smoke", "url": endpoint.url, "rate": "40", "duration": "2s", "out": "out"}
    words = [word for name, value in given.items() for word in (f"--plimsoll-{name}", value)]
    process = host.start("locust", *command, *words, "--plimsoll-slo", "p50(latency) <= 1us; ratio(error) <= 50%")
    code = process.wait(60)
    report = host.report()
    assert code == OF_OUTCOME[report["verdict"]["outcome"]] != 0, host.said("locust")
    assert len(report["verdict"]["objectives"]) == 2
    last = host.said("locust").rpartition("# reqs      # fails")[2]
    table = {name: int(n) for name, n in re.findall(r"plimsoll +(TTFT|TPOT|requests) +(\d+) +0\(", last)}
    assert table["TTFT"] == table["TPOT"] == report["counts"]["ok"]
    assert table["requests"] == report["counts"]["ok"] + report["counts"]["warmup"]
    until(lambda: not host.left(), 10, "the end of every process")


def test_a_port_that_is_taken_is_one_clear_error(host: Host, endpoint: Server) -> None:
    taken = re.sub(r"^http://", "", endpoint.url)
    host.port = int(taken.rpartition(":")[2])
    assert host.master(endpoint.url).wait(40) == 2
    assert host.said("master") == (
        f"error: --locust-master: Locust cannot listen at {taken} (the port is taken). Give another HOST:PORT\n"
    )


def _arguments(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
