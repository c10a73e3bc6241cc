"""Agents of a distributed run as processes of this host, with plain pipes where a transport would be: for tests.

Each agent is the real site in a process of its own. What a relay does is done here
(``harness/distributed/fleet_messages.py``), and can be done badly: clocks that are off or drift, another version,
damaged pieces, silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.harness.distributed.fleet import Fleet
from plimsoll.harness.distributed.fleet_messages import line, pong
from plimsoll.harness.run.job import prepare
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.one_run import carry_out
from plimsoll.reports.report import Report
from plimsoll.scenarios.flags import Flags
from plimsoll.slo.records.records import Records

ROOT = Path(__file__).parent.parent
#: From "ready" to t0.
LEAD_NS = 300_000_000
#: Asks nobody: what is tested here is who sends what and when, not a transport.
NULL: Flags = {"protocol": "null", "rate": 200.0, "duration": 1.0, "seed": 7, "warmup": 0.0}

#: Changes a message on its way; None: it is lost.
Change = Callable[[dict[str, Any]], dict[str, Any] | None]


def untouched(message: dict[str, Any]) -> dict[str, Any]:
    return message


@dataclass
class Clock:
    """An agent's clock as its relay shows it: so far ahead, and going so much faster."""

    ahead_ns: int = 0
    drift: float = 0.0
    wall_ahead_ns: int = 0
    _begun_ns: int = field(default_factory=time.monotonic_ns)

    def offset_ns(self) -> int:
        return self.ahead_ns + int(self.drift * (time.monotonic_ns() - self._begun_ns))


@dataclass
class AgentOverPipe:
    """One agent: its process, its relay's misdeeds, and what went through."""

    name: str
    workers: int | None = 1
    clock: Clock = field(default_factory=Clock)
    up: Change = untouched
    down: Change = untouched
    wrapper: Sequence[str] = ()  # what the site is started with, say ["unshare", ...]
    kept_in: Path | None = None  # where its folder of segments is made
    out: Path | None = None  # where rows go that stay with it
    longest: int = 0
    seen: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None


class BridgeOverPipes:
    """``plimsoll.harness.distributed.fleet.Bridge``; a context manager that leaves no process behind."""

    def __init__(self, *agents: AgentOverPipe) -> None:
        self.agents = {agent.name: agent for agent in agents}
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._backlog: list[dict[str, Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> BridgeOverPipes:
        for agent in self.agents.values():
            self.start(agent)
        return self

    def start(self, agent: AgentOverPipe) -> None:
        self.agents[agent.name] = agent
        workers = [] if agent.workers is None else ["--workers", str(agent.workers)]
        out = [] if agent.out is None else ["--out", str(agent.out)]
        site = ["-m", "plimsoll.harness.distributed.site", "--name", agent.name]
        agent.process = subprocess.Popen(
            [*agent.wrapper, sys.executable, *site, *workers, *out],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **({"TMPDIR": str(agent.kept_in)} if agent.kept_in is not None else {})},
            start_new_session=True,
        )
        for target in (self._read, self._read_errors):
            thread = threading.Thread(target=target, args=(agent,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def __exit__(self, *exception: object) -> None:
        for agent in self.agents.values():
            assert agent.process is not None
            assert agent.process.stdin is not None
            with contextlib.suppress(OSError):
                agent.process.stdin.close()
            try:
                agent.process.wait(15)
            except subprocess.TimeoutExpired:
                agent.process.kill()
                agent.process.wait()
        for thread in self._threads:
            thread.join(5)
        for agent in self.agents.values():
            assert agent.process is not None
            for pipe in (agent.process.stdout, agent.process.stderr):
                if pipe is not None:
                    pipe.close()

    # -- the relay ----------------------------------------------------------------------------------------------

    def _read(self, agent: AgentOverPipe) -> None:
        assert agent.process is not None
        assert agent.process.stdout is not None
        self._arrived({"event": "joined", "agent": agent.name})
        for text in agent.process.stdout:
            agent.longest = max(agent.longest, len(text))
            message = json.loads(text)
            agent.seen.append(message["type"])
            changed = agent.up(message)
            if changed is not None:
                self._arrived({"from": agent.name, "message": changed})
        self._arrived({"from": agent.name, "message": {"type": "ended", "code": agent.process.wait()}})

    def _read_errors(self, agent: AgentOverPipe) -> None:
        assert agent.process is not None
        assert agent.process.stderr is not None
        for text in agent.process.stderr:
            agent.errors.append(text.decode().rstrip())

    def _arrived(self, envelope: dict[str, Any]) -> None:
        envelope.setdefault("at_ns", time.monotonic_ns())
        with self._lock:
            if self._loop is None:
                self._backlog.append(envelope)
            elif not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._queue.put_nowait, envelope)

    # -- the bridge ---------------------------------------------------------------------------------------------

    async def hear(self) -> Mapping[str, Any] | None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            for envelope in self._backlog:
                self._queue.put_nowait(envelope)
            self._backlog.clear()
        return await self._queue.get()

    def say(self, line: Mapping[str, Any]) -> None:
        for agent in self.agents.values() if line["to"] == "*" else [self.agents[line["to"]]]:
            self._pass(agent, dict(line["message"]))

    def event(self, **event: Any) -> None:
        """Something that the transport itself says."""
        self._arrived(dict(event))

    def _pass(self, agent: AgentOverPipe, message: dict[str, Any]) -> None:
        offset = agent.clock.offset_ns()
        if message["type"] == "ping":
            wall = time.time_ns() + agent.clock.wall_ahead_ns
            answer = agent.up(pong(message, time.monotonic_ns() + offset, wall))
            if answer is not None:
                self._arrived({"from": agent.name, "message": answer})
            return
        if message["type"] == "go":
            message["t0_ns"] -= offset  # the site's own clock is this host's
        changed = agent.down(message)
        assert agent.process is not None
        assert agent.process.stdin is not None
        if changed is not None:
            with contextlib.suppress(OSError, ValueError):  # it is gone, as the test wanted
                agent.process.stdin.write(line(changed))
                agent.process.stdin.flush()


class Ran:
    """One run: its directory, its records, its report."""

    def __init__(self, out: Path, records: Records, report: Report, interrupted: bool) -> None:
        self.path = out
        self.records = records
        self.report = report
        self.interrupted = interrupted
        self.manifest: dict[str, Any] = json.loads((out / "manifest.json").read_text())

    @property
    def reasons(self) -> str:
        return "\n".join(self.report.validity.reasons)


def run(
    tmp_path: Path,
    bridge: BridgeOverPipes,
    flags: Flags = NULL,
    expected: int | None = None,
    name: str = "run",
    scenario: Path | None = None,
    leave: bool = False,
    slo: Sequence[str] = (),
) -> Ran:
    """One whole run over the agents of this bridge, judged."""
    where = None if scenario is None else str(scenario)
    prepared = prepare(where, flags, Asked(slo), [], tmp_path / name, ["plimsoll", "run"])
    fleet = Fleet(bridge, expected or len(bridge.agents), patience_s=20, lead_ns=LEAD_NS, leave=leave)
    outcome = carry_out(prepared, workforce=fleet)
    sealed = outcome.sealed
    return Ran(sealed.directory.path, sealed.records, judge(sealed, prepared.promises), outcome.interrupted)


def during(seconds_after_go: float, agent: AgentOverPipe, act: Callable[[], None]) -> None:
    """``act`` so long after an agent was told t0, which is ``LEAD_NS`` and a little before it."""
    passed = agent.down

    def watch(message: dict[str, Any]) -> dict[str, Any] | None:
        if message["type"] == "go":
            threading.Timer(seconds_after_go, act).start()
        return passed(message)

    agent.down = watch
