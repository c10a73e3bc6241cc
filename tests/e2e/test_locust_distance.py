"""Agents a long way from Locust's master, and masters that go: 20 ms each way, a connection that breaks, and what
``plimsoll agent --once`` ends with. About 60 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_locust_agents import Host, free_port, until

pytestmark = pytest.mark.e2e
NULL = ("--protocol", "null", "--duration")
WAY_S = 0.020
POISSON = """
name: poisson
kind: server
params: {rate: 40, arrival: poisson}
stop: {min_duration: 2s}
target: {protocol: "null"}
"""


class Line:
    """A line to a port of this host on which everything takes ``WAY_S`` each way, however much is on it. ``cut`` breaks
    its connections, and what is on its way is lost; new ones may be made.
    """

    def __init__(self, to: int) -> None:
        self.to, self.port = to, free_port()
        self._loop = asyncio.new_event_loop()
        self._ends: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Line:
        self._over = asyncio.Event()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        def now() -> None:
            for end in self._ends:
                end.transport.abort()

        self._loop.call_soon_threadsafe(now)

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._connected, "127.0.0.1", self.port):
            await self._over.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far, there = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        self._ends += [writer, there]
        await asyncio.gather(self._carry(reader, there), self._carry(far, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self._loop.call_later(WAY_S, writer.write, data)
        self._loop.call_later(WAY_S, writer.close)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.end()


def clocks(report: dict[str, Any]) -> dict[str, Any]:
    return next(check for check in report["validity"]["checks"] if check["name"] == "clocks")


def at_the_end_of(line: Line, host: Host, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    at = host.port
    host.port = line.port
    try:
        return host.agent(name, *arguments)
    finally:
        host.port = at


def masters(host: Host) -> list[int]:
    """The coordinator, and Locust's master below it."""
    return [*host.left("run", "--locust-master"), *host.left("plimsoll.harness.distributed.locust_", "master")]


def test_40_ms_between_agent_and_master_spoil_no_poisson_run_and_a_constant_rate_is_told_so(host: Host) -> None:
    (host.path / "poisson.yaml").write_text(POISSON)
    at = f"127.0.0.1:{host.port}"
    words = ("--warmup", "0s", "--seed", "7", "--workers", "1", "--locust-master", at, "--expect-workers", "2")
    with Line(host.port) as line:
        far, near = at_the_end_of(line, host, "far"), host.agent("near")
        first = host.plimsoll("poisson", "run", "poisson.yaml", *words, "--out", "poisson")
        assert first.wait(60) in (0, 4), host.said("poisson")
        report = host.report("poisson")
        found = clocks(report)
        assert found["ok"], report["validity"]["reasons"]
        known_ms = float(re.search(r"known to within ([\d.]+) ms at t0, limit 500 ms", found["seen"])[1])  # type: ignore[index]
        assert 1e3 * WAY_S <= known_ms < 250
        assert report["counts"]["ok"] == report["validity"]["planned"] > 2 * 40 * 0.5
        second = host.master(2, "constant", *NULL, "1s")
        assert second.wait(60) == 4, host.said("constant")
        (reason,) = (text for text in host.report("constant")["validity"]["reasons"] if "the clock of each" in text)
        assert "limit 5 ms" in reason
        for agent in (far, near):
            agent.send_signal(signal.SIGINT)
            assert agent.wait(30) == 130


def test_a_connection_that_breaks_in_a_run_ends_it_though_another_one_could_be_made(host: Host) -> None:
    """What was on its way is lost: the run once waited for it for ever."""
    with Line(host.port) as line:
        agent = at_the_end_of(line, host, "far", "--once")
        master = host.master(1, "cut", *NULL, "60s")
        until(lambda: [*(host.path / "cut" / "segments").glob("w*.seg")], 60, "a segment")
        line.cut()
        assert master.wait(60) == 4
        assert agent.wait(30) == 4
    reasons = "\n".join(host.report("cut")["validity"]["reasons"])
    assert re.search(r"agent far \(.*was lost .*: the connection broke", reasons), reasons
    said = host.said("far")
    assert f"the master at 127.0.0.1:{line.port} is gone (the connection broke)" in said
    assert "plimsoll agent far: the connection broke: stopping" in said
    assert "--agent-folder" in said, "the rows that did not come home are here"


def test_once_is_0_after_a_run_and_4_where_nothing_was_sent(host: Host) -> None:
    some, none = host.agent("some", "--once"), host.agent("none", "--once")
    master = host.master(2, "one", *NULL, "0s", "--queries", "1")
    assert master.wait(60) in (0, 3, 4), host.said("one")
    assert host.report("one")["counts"]["ok"] == 1
    assert sorted((some.wait(30), none.wait(30))) == [0, 4]
    said = host.said("some" if some.returncode else "none")
    assert said.splitlines()[-1] == (
        "the run is over: nothing was sent from here, for no query of its plan fell to this agent"
    )


@pytest.mark.parametrize("in_run", [False, True])
def test_once_ends_with_4_and_one_line_when_the_master_was_killed_before_the_run_or_in_it(
    host: Host, in_run: bool
) -> None:
    agent = host.agent("a", "--once")
    host.master(1 if in_run else 2, "out", *NULL, "60s")
    until(lambda: ("the run begins" if in_run else "has taken this agent in") in host.said("a"), 60, "the agent's word")
    if in_run:
        until(lambda: [*(host.path / "out" / "segments").glob("w*.seg")], 30, "a segment")
    for pid in masters(host):
        os.kill(pid, signal.SIGKILL)
    assert agent.wait(30) == 4, host.said("a")
    (last,) = [text for text in host.said("a").splitlines() if text.startswith("the master at")]
    gone = f"the master at 127.0.0.1:{host.port} is gone ("
    why = ("the connection broke", "the master ended")  # whichever is noticed first
    assert last in [f"{gone}{text}); nothing more is waited for (--once)" for text in why]
    assert ("--agent-folder" in host.said("a")) == in_run
    until(lambda: not host.left(), 15, "the end of every process")


def test_a_master_may_have_as_many_agents_as_its_host_allows_open_files(host: Host) -> None:
    """Each has a connection to it; 1,024 is the usual soft limit."""
    command = f"ulimit -Sn 256; exec {sys.executable} -m plimsoll.harness.distributed.locust_ master --bind 127.0.0.1:0"
    master = subprocess.Popen(["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert master.stdin is not None
    assert master.stdout is not None
    with master, master.stdin:
        assert b"listening" in master.stdout.readline()
        (found,) = re.findall(r"Max open files +(\d+) +(\d+)", Path(f"/proc/{master.pid}/limits").read_text())
    assert found[0] == found[1] != "256"


def test_a_crowd_at_the_masters_port_lets_everybody_else_have_their_turn() -> None:
    """Of 1,000 agents there is always a message: nothing reached the coordinator, which took all of them for lost."""
    code = """
import gevent, msgpack
from plimsoll.harness.distributed.locust_ import Port

class Crowd:
    def recv_multipart(self):
        return [b"a", msgpack.dumps(("client_ready", "2.0", "a"))]

turns = []
def other():
    while True:
        turns.append(1)
        gevent.sleep(0)

port = Port("127.0.0.1", 0)
port.socket = Crowd()
gevent.spawn(other)
for _ in range(1000):
    assert port.recv_from_client()[0] == "a"
print(len(turns))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20
