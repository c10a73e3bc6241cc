"""Agents under real Locust, as processes of their own on loopback: one valid run, its entries in Locust's page, and
every death. About 40 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
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

import msgpack
import pytest
import zmq

from plimsoll.harness.exit_codes import OF_OUTCOME
from plimsoll.harness.run.rundir import open_sealed
from tests.e2e.plimsoll import PLIMSOLL, Server, plimsoll_here, server

pytestmark = pytest.mark.e2e
LOCUSTFILE = Path(__file__).parents[2] / "harness" / "distributed" / "locustfile.py"
#: Limits so wide that only a death, never a busy host, spoils a run.
LOAD = ["smoke", "--rate", "40", "--warmup", "0s", "--seed", "7", "--workers", "1"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Host:
    """Everything that one test starts, marked in the environment that children inherit; nothing of it outlives the
    test.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.port, self.mark = path, free_port(), uuid.uuid4().hex
        self.started: list[subprocess.Popen[bytes]] = []
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

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

    def plimsoll(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        return self.start(name, *PLIMSOLL, *words)

    def agent(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        at = f"127.0.0.1:{self.port}"
        words = ["agent", "--locust-worker", at, "--name", name, "--workers", "1", *arguments]
        self.agents[name] = self.plimsoll(name, *words)
        return self.agents[name]

    def both(self) -> None:
        for name in ("a", "b"):
            if name not in self.agents or self.agents[name].poll() is not None:
                self.agent(name)

    def master(self, agents: int, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        at = f"127.0.0.1:{self.port}"
        words = ["run", *LOAD, "--locust-master", at, "--expect-workers", str(agents), "--out", name, *arguments]
        return self.plimsoll(name, *words)

    def said(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text()

    def report(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.path / name / "report.json").read_text()))

    def left(self, *words: str) -> list[int]:
        """Processes of this test whose command line has all of the words (none given: any)."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                ours = self.mark.encode() in (folder / "environ").read_bytes() and command
                if ours and all(word in command for word in words):
                    found.append(int(folder.name))
        return found

    def below(self, pid: int) -> list[int]:
        """What a process started, and what that started."""
        found = []
        for one in self.left():
            with contextlib.suppress(OSError):
                above = int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[1])
                found += [one, *self.below(one)] if above == pid else []
        return found

    def end(self) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait()


def until(reached: Callable[[], object], seconds: float, what: str) -> Any:
    by = time.monotonic() + seconds
    while time.monotonic() < by:
        if found := reached():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """For agents a and b, who stay from run to run: whoever is there already is not started again."""
    found = Host(tmp_path_factory.mktemp("fleet"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Server]:
    with server("--model", "scripted") as found:
        yield found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, endpoint: Server) -> Iterator[Callable[[], Host]]:
    """Locust's own command line with our locustfile; the first call starts it, so that it runs while another test
    waits.
    """
    host = Host(tmp_path_factory.mktemp("plain"))

    def begun() -> Host:
        command = [str(Path(sys.executable).with_name("locust")), "-f", str(LOCUSTFILE), "--headless"]
        given = {"scenario": "smoke", "url": endpoint.url, "rate": "40", "duration": "1s", "out": "out"}
        words = [word for name, value in given.items() for word in (f"--plimsoll-{name}", value)]
        words += ["--plimsoll-flags=--warmup 0.3s --workers 1"]
        if not host.started:
            host.start("locust", *command, *words, "--plimsoll-slo", "p50(latency) <= 1us; ratio(error) <= 50%")
        return host

    yield begun
    host.end()


def test_two_agents_send_one_valid_schedule_that_locust_shows_and_stay_for_the_next_run(
    fleet: Host, endpoint: Server
) -> None:
    fleet.both()
    shutil.rmtree(fleet.path / "valid", ignore_errors=True)
    page = f"127.0.0.1:{free_port()}"
    master = fleet.master(2, "valid", "--url", endpoint.url, "--duration", "3s", "--locust-web", page)

    def entries() -> dict[str, int]:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{page}/stats/requests", timeout=5) as answer:
            rows = {row["name"]: row["num_requests"] for row in json.load(answer)["stats"]}
            return rows if rows.get("TTFT") and rows.get("TPOT") else {}
        return {}

    until(lambda: "waiting for" in fleet.said("valid"), 60, "the master")
    _babble(fleet.port)
    shown = until(entries, 60, "our entries in Locust's page")
    assert shown["Aggregated"] == shown["requests"] >= shown["TTFT"]
    assert master.wait(60) == 0, fleet.said("valid")
    assert "speaks no Locust" in fleet.said("valid"), "the stranger was not heard"
    assert not re.search(r"\x1b\]|(?m:^\s*::)|Traceback", fleet.said("valid")), fleet.said("valid")
    manifest = json.loads((fleet.path / "valid" / "manifest.json").read_text())
    assert {agent["name"]: len(agent["shards"]) for agent in manifest["agents"]} == {"a": 1, "b": 1}
    report = fleet.report("valid")
    assert (report["validity"]["outcome"], report["validity"]["sent"]) == ("VALID", report["counts"]["ok"])
    assert report["validity"]["planned"] == report["counts"]["ok"] > 3 * 40 * 0.9
    until(lambda: "the run is over" in fleet.said("a") and "the run is over" in fleet.said("b"), 20, "the agents' word")
    assert len(fleet.left("agent", "--locust-worker")) == 2


def test_a_killed_site_and_a_killed_locust_process_make_the_run_invalid_and_a_late_agent_is_refused(
    fleet: Host, plain: Callable[[], Host]
) -> None:
    """a loses its site and waits for the next run; of b its two upper processes die, and those below them end by
    themselves.
    """
    fleet.both()
    shutil.rmtree(fleet.path / "killed", ignore_errors=True)
    master = fleet.master(2, "killed", "--protocol", "null", "--duration", "60s")
    segments = fleet.path / "killed" / "segments"
    until(lambda: len({path.name[:4] for path in segments.glob("w*.seg")}) == 2, 60, "a sealed segment of each")
    late = fleet.agent("late", "--once")
    assert late.wait(60) == 2, fleet.said("late")
    assert "too late" in fleet.said("late")
    (site,) = fleet.left("plimsoll.harness.distributed.site", "--name=a")
    standby = fleet.agents["b"]
    (relay,) = fleet.left("plimsoll.harness.distributed.locust_", "--name=b")
    below = fleet.below(relay)
    os.kill(site, signal.SIGKILL)
    standby.kill()
    os.kill(relay, signal.SIGKILL)
    until(lambda: not {*below} & {*fleet.left()}, 15, "the end of the killed agent's site and worker")
    assert len(below) >= 2, "a site and its worker"
    plain()  # it takes 8 s until Locust misses b
    assert master.wait(60) == 4, fleet.said("killed")
    report = fleet.report("killed")
    reasons = "\n".join(report["validity"]["reasons"])
    assert all(re.search(rf"agent {name} \(.*lost", reasons) for name in "ab"), reasons
    records = open_sealed(fleet.path / "killed").records
    assert all(records.select(records["worker"] == worker).ok.sum() > 10 for worker in (0, 1)), "a segment was lost"
    assert report["validity"]["planned"] > report["counts"]["ok"]


def test_nothing_outlives_a_killed_coordinator_and_an_agent_told_to_leave(host: Host) -> None:
    agent, master = host.agent("a"), host.master(1, "out", "--protocol", "null", "--duration", "60s")
    until(
        lambda: "the run begins" in host.said("a") and host.left("plimsoll.harness.generator.worker"),
        60,
        "the run's begin",
    )
    until(lambda: [*(host.path / "out" / "segments").glob("w*.seg")], 30, "a segment")
    master.kill()
    until(lambda: "waiting for the next one" in host.said("a"), 30, "the agent's word")
    (folder,) = until(lambda: re.findall(r"--agent-folder (\S+)`", host.said("a")), 15, f"the folder {host.said('a')}")
    done = plimsoll_here("report", "out", "--agent-folder", folder, "--json", cwd=host.path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["validity"]["outcome"] == "INVALID"
    assert re.search(r"the coordinator \(pid \d+\) was killed or died \d", report["validity"]["reasons"][0])
    assert report["counts"]["ok"] > 10
    shutil.rmtree(folder)
    agent.send_signal(signal.SIGINT)
    assert agent.wait(30) == 130
    until(lambda: not host.left(), 15, "the end of every process")


def test_an_agent_that_is_told_to_leave_says_so_to_both_sides(host: Host) -> None:
    agent, master = host.agent("a"), host.master(1, "out", "--protocol", "null", "--duration", "60s")
    until(
        lambda: "the run begins" in host.said("a") and host.left("plimsoll.harness.generator.worker"),
        60,
        "the run's begin",
    )
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(30) == 130
    assert "it was told to leave (SIGTERM): stopping" in host.said("a"), host.said("a")
    assert "the master is gone" not in host.said("a")
    assert master.wait(60) == 4
    assert "was lost" in host.said("out")
    assert "it was told to leave (SIGTERM)" in host.said("out"), host.said("out")


def test_plain_locust_runs_the_scenario_and_ends_with_the_verdicts_exit_code(plain: Callable[[], Host]) -> None:
    host = plain()
    (process,) = host.started
    code = process.wait(60)
    report = host.report("out")
    assert code == OF_OUTCOME[report["verdict"]["outcome"]] != 0, host.said("locust")
    assert len(report["verdict"]["objectives"]) == 2
    last = host.said("locust").rpartition("# reqs      # fails")[2]
    table = {name: int(n) for name, n in re.findall(r"plimsoll +(TTFT|TPOT|requests) +(\d+) +0\(", last)}
    assert table["TTFT"] == table["TPOT"] == report["counts"]["ok"]
    assert table["requests"] == report["counts"]["ok"] + report["counts"]["warmup"]
    until(lambda: not host.left(), 15, "the end of every process")


def test_a_port_that_is_taken_is_one_clear_error(host: Host, endpoint: Server) -> None:
    taken = re.sub(r"^http://", "", endpoint.url)
    host.port = int(taken.rpartition(":")[2])
    assert host.master(1, "out", "--protocol", "null").wait(40) == 2
    assert host.said("out") == (
        f"error: --locust-master: Locust cannot listen at {taken} (the port is taken). Give another HOST:PORT\n"
    )


def _babble(port: int) -> None:
    """A stranger at the master's port: noise, then frames of its transport that are no message of Locust's."""
    with socket.create_connection(("127.0.0.1", port), 5) as noise:
        noise.sendall(bytes(range(256)) * 16)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.IDENTITY, b"stranger")
        stranger.setsockopt(zmq.LINGER, 2_000)
        stranger.connect(f"tcp://127.0.0.1:{port}")
        hello = {"type": "hello", "name": "stranger"}
        for data in (hello, {"type": "piece"}, {}, None, [1], {"type": 7}):
            stranger.send(msgpack.dumps(("plimsoll", data, "stranger")))
        stranger.send(b"\xc1 no msgpack")
        for kind, data in (("client_ready", 2), ("client_ready", "2"), ("heartbeat", None), ("stats", {}), ("logs", 1)):
            stranger.send(msgpack.dumps((kind, data, "stranger")))
        for name in (b"\x1b]0;owned\x07", b"::error::owned"):
            with context.socket(zmq.DEALER) as one:
                one.setsockopt(zmq.IDENTITY, name)
                one.setsockopt(zmq.LINGER, 2_000)
                one.connect(f"tcp://127.0.0.1:{port}")
                one.send(msgpack.dumps(("client_ready", "1.0", name.decode())))
        stranger.send(msgpack.dumps({"no": "tuple"}))


def test_rows_that_stay_with_agents_are_judged_there_and_come_together(host: Host, endpoint: Server) -> None:
    for name in ("a", "b"):
        host.agent(name, "--once", "--out", f"rows-{name}")
    words = ["--url", endpoint.url, "--duration", "2s", "--slo", "p50(latency) <= 10s", "--leave-rows"]
    assert host.master(2, "left", *words).wait(60) == 0, host.said("left")
    assert [host.agents[name].wait(30) for name in ("a", "b")] == [0, 0]
    report = host.report("left")
    assert report["verdict"]["outcome"] == "PASS"
    assert "rows stayed with the agents" in report["run"]["kept"]
    assert not (host.path / "left" / "requests.parquet").exists()
    folders = [next((host.path / f"rows-{name}").iterdir()) for name in ("a", "b")]
    assert host.plimsoll("gate", "gate", "left").wait(30) == 0, host.said("gate")
    asked = [word for folder in folders for word in ("--agent-folder", str(folder))]
    assert host.plimsoll("report", "report", "left", *asked).wait(30) == 0, host.said("report")
    together = host.report("left-with-agents")
    assert together["verdict"]["outcome"] == "PASS"
    for name, metric in report["metrics"].items():
        other = together["metrics"][name]
        assert metric | {"mean": 0} == other | {"mean": 0}, name
        assert metric["mean"] == pytest.approx(other["mean"], rel=1e-12), name
    assert host.plimsoll("compare", "compare", "left", "left-with-agents").wait(30) == 2
    assert "--agent-folder" in host.said("compare")
