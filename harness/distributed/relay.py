"""The two ends of the way between a coordinator and its agents: pipes to clean processes here, a transport of somebody
else's between.

Messages pass through unread but for the few that are named below (``harness/distributed/fleet_messages.py`` has them
all). Written for gevent, on whose loop Locust lives: a heartbeat must never wait for a pipe. Locust is not imported:
what is of it is handed in.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event
from gevent.fileobject import FileObject as FileObject
from gevent.queue import Queue

from plimsoll.harness.distributed import fleet_messages as messages
from plimsoll.harness.distributed import page
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.process import child
from plimsoll.slo.records.foreign import one_line

# -- figures for Locust's table ------------------------------------------------------------------------------------

REQUESTS = "requests"
#: name in a status line -> name in the table.
_NAMES = {name: name.upper() if name in ("ttft", "tpot") else name.replace("_", " ") for name in FRESH}


@dataclass(slots=True)
class Row:
    """What is new of one line of the table. ``times``: {milliseconds: count}; ``failed`` counts in ``n``."""

    n: int = 0
    failed: int = 0
    times: Counter[float] = field(default_factory=Counter)

    @property
    def untimed(self) -> int:
        """Those without a time: failures, warm-up, live audio."""
        return self.n - sum(self.times.values())


def milliseconds(bin_: str) -> float:
    """The middle of a bin of ``plimsoll.harness.generator.recorder.spread``."""
    return float(2.0 ** ((int(bin_) + 0.5) / 32) / 1e6)


class Feed:
    """Adds up the lines of every worker of one site until somebody takes what is new."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._rows: dict[str, Row] = {}

    def heard(self, shard: int, status: Mapping[str, Any]) -> None:
        """One worker's status line: counters are cumulative, histograms are of what is new."""
        done, failed = int(status.get("done", 0)), int(status.get("failed", 0))
        before = self._seen.get(shard, (0, 0))
        self._seen[shard] = (done, failed)
        requests = self._row(REQUESTS)
        requests.n += max(0, done - before[0])
        requests.failed += max(0, failed - before[1])
        for name in FRESH:
            bins = status.get(name) or {}
            row = requests if name == "latency" else self._row(_NAMES[name]) if bins else requests
            for key, count in bins.items():
                row.times[milliseconds(key)] += int(count)
                row.n += 0 if row is requests else int(count)

    def take(self) -> dict[str, Row]:
        """What came since the last call, by name; rows with nothing new are left out."""
        rows, self._rows = self._rows, {}
        for row in rows.values():
            row.n = max(row.n, sum(row.times.values()), row.failed)  # a bin may come before its counter
        return {name: row for name, row in rows.items() if row.n}

    def _row(self, name: str) -> Row:
        return self._rows.setdefault(name, Row())


# -- messages ------------------------------------------------------------------------------------------------------

#: The transport calls an agent missing after 3 to 5 s without a heartbeat; after so many more we give it up. A stopped
#: or overloaded host may come back until then, and its own processes have not noticed.
LOST_S = 3.0
#: Bytes of agents' messages that wait for the coordinator; those beyond are lost, and it finds what is missing.
BACKLOG = 256 << 20
#: What a site gets to end by itself.
ENDED_S = 15.0
#: Before the next site is started: one that can't live must not be a busy loop.
RESTART_S = 1.0
_log = logging.getLogger("plimsoll")


class Lines:
    """JSON lines over two pipes, in greenlets. ``heard`` gets each line, and None at the end."""

    def __init__(self, reads: Any, writes: Any, heard: Callable[[dict[str, Any] | None], None]) -> None:
        self._reads, self._writes = reads, writes
        self._queue: Queue[bytes | None] = Queue()
        #: Bytes that are said and not written yet.
        self.waiting = 0
        self._writing = gevent.spawn(self._write)
        gevent.spawn(self._read, heard)

    def say(self, line: Mapping[str, Any]) -> None:
        """Send one line, some time soon."""
        said = messages.line(line)
        self.waiting += len(said)
        self._queue.put(said)

    def close(self) -> None:
        """End of our side, once everything is written."""
        self._queue.put(None)
        self._writing.join(1.0)

    def _write(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more: the other greenlet notices
            while (line := self._queue.get()) is not None:
                self._writes.write(line)
                if self._queue.empty():  # of a crowd, many in one system call
                    self._writes.flush()
                self.waiting -= len(line)
        with contextlib.suppress(OSError, ValueError):
            self._writes.close()

    def _read(self, heard: Callable[[dict[str, Any] | None], None]) -> None:
        with contextlib.suppress(OSError):
            for line in self._reads:
                try:
                    heard(json.loads(line))
                except Exception:  # noqa: BLE001 - one bad message must not end the way of all others
                    _log.exception("a message could not be passed on: %r", line[:200])
        heard(None)


class Office:
    """The master's end: messages between the agents and one coordinator at a time.

    ``send(agent, message)`` reaches an agent; ``misses(agent)``: the transport does not hear of it.
    """

    def __init__(self, send: Callable[[str, dict[str, Any]], None], misses: Callable[[str], bool]) -> None:
        self._send, self._misses = send, misses
        self._agents: dict[str, float] = {}  # since when it is missed; 0: it is not
        self._lines: Lines | None = None
        gevent.spawn(self._watch)

    @property
    def reachable(self) -> int:
        """How many agents are not missed."""
        return sum(not self._misses(agent) for agent in self._agents)

    def attach(self, lines: Lines | None, **listening: Any) -> None:
        """From now on this is the coordinator (None: there is none, and no site goes on)."""
        self._lines = lines
        if lines is not None:
            lines.say({"event": "listening", **listening})
        for agent in list(self._agents):
            gone = {"type": "orphaned", "reason": "the run's coordinator is gone"}
            self._send(agent, {"type": "who"} if lines is not None else gone)

    def told(self, line: Mapping[str, Any]) -> None:
        """A line of the coordinator's: to one agent or to all."""
        for agent in [*self._agents] if line["to"] == "*" else [str(line["to"])]:
            message = dict(line["message"])
            if message["type"] == "ping":
                message["sent_ns"] = time.monotonic_ns()  # the later, the tighter the bound
            self._send(agent, message)

    def heard(self, agent: str, message: Mapping[str, Any]) -> None:
        """A message of an agent's."""
        at_ns = time.monotonic_ns()
        if messages.problem(message) is not None or (self._lines is not None and self._lines.waiting > BACKLOG):
            return  # whoever reaches the port can say anything, and more than anybody can take
        if message["type"] == "leaving":
            self._lose(agent, one_line(message["reason"]))
            return
        if message["type"] == "hello":
            self._say({"event": "joined", "agent": agent})
            self._agents[agent] = 0.0
        elif agent not in self._agents:
            return
        self._say({"from": agent, "message": message, "at_ns": at_ns})

    def _say(self, line: Mapping[str, Any]) -> None:
        if self._lines is not None:
            self._lines.say(line)

    def _lose(self, agent: str, reason: str) -> None:
        if self._agents.pop(agent, None) is not None:
            self._say({"event": "lost", "agent": agent, "reason": reason})

    def _watch(self) -> None:
        while True:
            gevent.sleep(0.5)
            self.look()

    def look(self) -> None:
        """Give up who has been missed for too long."""
        now = time.monotonic()
        for agent, since in [*self._agents.items()]:
            missed = self._misses(agent)
            self._agents[agent] = (since or now) if missed else 0.0
            if missed and since and now - since > LOST_S:
                self._lose(agent, f"nothing was heard of it for {LOST_S + 3:g} s or more")
                self._send(agent, {"type": "orphaned", "reason": "the master heard nothing of this agent"})


class Relay:
    """An agent's end: the site's pipes to the master and back; pings are answered here.

    ``show`` gets what is new for a live table of requests; ``site``: the command of the site.
    """

    def __init__(
        self, send: Callable[[dict[str, Any]], None], show: Callable[[Mapping[str, Row]], None], site: Sequence[str]
    ) -> None:
        self._send, self._show, self._command = send, show, list(site)
        self._hello: dict[str, Any] | None = None
        self._wanted = True
        self._process: Any = None
        self._lines: Lines | None = None
        self._feed = Feed()
        #: Told of every message from the master and, with its code, of the end of each site.
        self.on_master: Callable[[Mapping[str, Any]], None] = lambda message: None
        self.on_ended: Callable[[int], None] = lambda code: gevent.spawn_later(RESTART_S, self.open)
        self.closed = False

    def open(self) -> None:
        """Start a site; its hello goes out as soon as it is wanted."""
        if self.closed:
            return
        self._hello, self._feed = None, Feed()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._lines = Lines(self._process.stdout, self._process.stdin, self._of_site)

    def heard(self, message: Mapping[str, Any]) -> None:
        """A message of the master's."""
        kind = message["type"]
        if kind == "ping":
            self._send(messages.pong(message, time.monotonic_ns(), time.time_ns()))
            return
        self.on_master(message)
        if kind == "who":
            self._wanted = True
            self._greet()
        elif kind == "orphaned":
            self.end_site(one_line(message.get("reason") or "the master has no use for this agent any more"))
        elif self._lines is not None:
            self._lines.say(message)

    @property
    def greeted(self) -> bool:
        """Whether the site of now has said its hello."""
        return self._hello is not None

    def end_site(self, reason: str = "the master is gone") -> None:
        """Nobody is there for whom it could go on: the site says why, stops its workers and keeps their rows."""
        if self._lines is not None:
            self._lines.say({"type": "orphaned", "reason": reason})
            self._lines.close()

    def close(self, reason: str) -> None:
        """Leave: nothing of ours is left afterwards."""
        self.closed = True
        with contextlib.suppress(Exception):
            self._send({"type": "leaving", "reason": reason})
        self.end_site(reason)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(ENDED_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _greet(self) -> None:
        if self._wanted and self._hello is not None:
            self._wanted = False
            self._send({**self._hello, "wall_ns": time.time_ns()})

    def _of_site(self, message: dict[str, Any] | None) -> None:
        if message is None:
            code = self._process.wait()
            with contextlib.suppress(Exception):
                self._send({"type": "ended", "code": code})
            if not self.closed:
                self.on_ended(code)
        elif message["type"] == "hello":
            self._hello = message
            self._greet()
        else:
            self._send(message)
            if message["type"] == "workers":
                for shard, status in message["lines"]:
                    self._feed.heard(shard, status)
                self._show(self._feed.take())


# -- start and stop ------------------------------------------------------------------------------------------------

#: After Stop a coordinator waits 5 s for answers in flight, seals, and judges.
SEALED_S = 60.0
#: Locust's workers report every 3 s and its CSV files are written every second, but not at the end: else their last
#: rows were missing.
CSV_S = 4.2


class StartButton:
    """A coordinator of its own for each start, and its exit code for Locust's.

    ``environment`` and ``runner`` are Locust's; ``agents()``: how many workers it has.
    """

    def __init__(self, environment: Any, runner: Any, office: Office, agents: Callable[[], int]) -> None:
        self._environment, self._runner, self._office, self._agents = environment, runner, office, agents
        self._given, self._host = dict(vars(environment.parsed_options)), environment.host  # before any form
        self._process: Any = None
        self._stopped = self._quitting = False
        self._ended = Event()
        environment.events.test_start.add_listener(self.start)
        environment.events.test_stop.add_listener(self.stop)
        environment.events.quitting.add_listener(self.quit)

    def start(self, **_: Any) -> None:
        """Locust's test_start."""
        if self._process is not None:
            _log.error(
                "the run before is not sealed yet: nothing was started. Press Start again when its verdict is there"
            )
            return
        (theirs, ours), (mine, yours) = os.pipe(), os.pipe()
        self._stopped = False
        self._ended.clear()
        try:
            options = page.chosen(self._given, vars(self._environment.parsed_options))
            words = page.command(options, self._host, self._agents(), (theirs, yours))
            command = child.command("plimsoll", *words)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs, yours), start_new_session=True
            )
        except (HarnessFault, OSError) as error:
            _log.error("error: %s", error)
        for number in (theirs, yours):
            os.close(number)
        lines = Lines(FileObject(mine, "rb"), FileObject(ours, "wb"), self._of_coordinator)
        self._office.attach(lines, at="plimsoll", web=None)
        gevent.spawn(self._over, lines)

    def stop(self, **_: Any) -> None:
        """Locust's test_stop is Ctrl-C for the coordinator, unless it stops for want of workers: that is a fault."""
        if self._process is not None and not self._stopped and (self._office.reachable or self._quitting):
            self._stopped = True
            self._process.send_signal(signal.SIGINT)

    def quit(self, **_: Any) -> None:
        """Locust's quitting: what was measured is sealed and judged first."""
        self._quitting = True
        if self._process is None:
            return
        self.stop()
        try:
            self._ended.wait(SEALED_S)
        except KeyboardInterrupt:
            self._process.send_signal(signal.SIGINT)
            self._ended.wait(SEALED_S)
        if self._process is not None:
            self._process.kill()

    def _of_coordinator(self, line: dict[str, Any] | None) -> None:
        if line is not None:
            self._office.told(line)

    def _over(self, lines: Lines) -> None:
        code = int(ExitCode.USAGE) if self._process is None else self._process.wait()
        self._office.attach(None)
        lines.close()
        self._process = None
        self._environment.process_exit_code = code if code >= 0 else 128 - code
        self._ended.set()
        level = logging.INFO if code == 0 else logging.WARNING
        _log.log(level, "the run ended with exit code %d", self._environment.process_exit_code)
        options = self._environment.parsed_options
        if self._quitting:
            return
        if options.headless:
            if options.csv_prefix:
                gevent.sleep(CSV_S)
            self._runner.quit()
            return
        self._runner.stop()
        if options.autostart and options.autoquit != -1:
            gevent.sleep(options.autoquit)
            self._runner.quit()
            self._environment.web_ui.stop()
