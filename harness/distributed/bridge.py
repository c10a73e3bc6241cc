"""Who starts a process that speaks Locust: the coordinator's bridge to its agents, and an agent that waits for runs.

Locust patches the interpreter as it is imported, so it never runs in them: this file starts ``locust_.py`` and reads
and writes its lines. They are envelopes (``docs/reference/distributed-messages.md``) and one more, which comes first:
``{"event": "listening", "at": "HOST:PORT", "web": URL | null}``, or ``{"event": "fault", "errors": [...]}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NoReturn

from plimsoll.harness.distributed import fleet_messages as messages
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import child
from plimsoll.harness.run.watcher import Watcher
from plimsoll.slo.records.foreign import one_line

#: Where Locust's master listens, and its page, unless told otherwise.
MASTER = "*:5557"
WEB = "127.0.0.1:8089"
#: A message is 512 KiB at most as it is let in (``port.OURS``); its line may be six times as long by what JSON escapes.
LINE_LIMIT = 1 << 22
#: The process imports Locust, which takes a second or two.
STARTED_S = 60.0
#: After its stdin is closed it tells every agent to end, which takes Locust half a second.
ENDED_S = 5.0
_ADDRESS = re.compile(r"(?:(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+)?:)?(?P<port>\d{1,5})")
_INHERITED = re.compile(r"fd:(\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class Address:
    """``HOST:PORT``; host ``*`` is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address(text: str, flag: str, default: str) -> Address:
    """``HOST:PORT``, ``:PORT``, ``PORT`` or ``HOST``; what is left out is ``default``'s (``:PORT`` there: a host must
    be given). Raises HarnessFault.
    """
    host, _, port = default.rpartition(":")
    found = _ADDRESS.fullmatch(text)
    if found:
        host, port = found["host"] or host, found["port"]
    elif re.fullmatch(r"[^\s:\[\]/]+", text):
        host = text
    if not host or not (found or host == text) or not 0 <= int(port) < 65536:
        raise HarnessFault(
            f"{flag}: {text!r} is no HOST:PORT. Write for example {flag} {host or '10.0.0.1'}:{default[-4:]}"
        )
    return Address(host, int(port))


def require_locust() -> None:
    """Raises HarnessFault if Locust is not installed. Does not import it."""
    if find_spec("locust") is None:
        raise HarnessFault(
            "Locust is not installed. Install it here and on every agent: pip install 'plimsoll-slo[locust]'"
        )


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bridge(Watcher):
    """Lines to and from the process that is Locust's master. A ``plimsoll.harness.run.watcher.Watcher``: open for as
    long as a run. It may be opened again for the next run of a session, at the same address.

    ``at``: where the master is to listen, and it is started; or ``fd:R,W``, the two descriptors that a running master
    gave us.
    """

    def __init__(self, at: str = MASTER, web: str | None = None, notice: Callable[[str], None] = _notice) -> None:
        self._notice = notice
        self._inherited = _INHERITED.fullmatch(at)
        self._at = None if self._inherited else address(at, "--locust-master", MASTER)
        self._web = None if web is None else address(web, "--locust-web", WEB)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.ReadTransport | None = None
        #: The first line: where it listens.
        self.listening: Mapping[str, Any] = {}

    async def open(self) -> None:
        """Start it (or take the descriptors) and wait until it listens. Raises HarnessFault with its words."""
        if self._inherited is not None:
            await self._inherit(int(self._inherited[1]), int(self._inherited[2]))
            if self.listening:  # a later run: that master has said so, and knows the agents
                self.say({"to": "*", "message": {"type": "who"}})
                return
        else:
            await self._start()
        line = None
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(self.hear(), STARTED_S)
        if line is None or line.get("event") != "listening":
            await self.close()
            raise HarnessFault(
                list((line or {}).get("errors", ()))
                or ["--locust-master: Locust's master did not start; what it said is above. Nothing was sent"]
            )
        self.listening = line
        if self._process is not None:
            page = f"; its page is {line['web']}" if line.get("web") else ""
            self._notice(f"Locust's master listens at {line['at']}{page}")

    async def _start(self) -> None:
        require_locust()
        web = [] if self._web is None else ["--web", str(self._web)]
        self._process = await child.begin(
            child.command("plimsoll.harness.distributed.locust_", "master", "--bind", str(self._at), *web),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            start_new_session=True,  # Ctrl-C is the coordinator's to handle
        )
        self._reader, self._writer = self._process.stdout, self._process.stdin

    async def _inherit(self, reads: int, writes: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._reader = asyncio.StreamReader(LINE_LIMIT)
            protocol = asyncio.StreamReaderProtocol(self._reader)
            self._reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(reads), "rb", 0))
            transport, flow = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(os.dup(writes), "wb", 0)
            )
            self._writer = asyncio.StreamWriter(transport, flow, None, loop)
        except (OSError, ValueError):
            raise HarnessFault(
                f"--locust-master fd:{reads},{writes}: this process has no such pipes. Only the shipped locustfile "
                "names pipes: give HOST:PORT"
            ) from None

    async def hear(self) -> dict[str, Any] | None:
        """The next envelope; None when the process is gone. Stop in Locust's page is Ctrl-C for us."""
        while self._reader is not None:
            try:
                line = await self._reader.readline()
                envelope = dict(json.loads(line)) if line else None
            except (OSError, ValueError):  # half a line, or one that is too long: nobody whom we could go on with
                return None
            if envelope is None or envelope.get("event") != "stop":
                return envelope
            signal.raise_signal(signal.SIGINT)
        return None

    def say(self, line: Mapping[str, Any]) -> None:
        """Send one line; a dead process hears nothing, and ``hear`` says so."""
        if self._writer is not None and not self._writer.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(messages.line(line))

    async def close(self) -> None:
        """Let it tell the agents and end; a master that was there before us stays. Never raises."""
        if self._writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                await asyncio.wait_for(self._writer.drain(), ENDED_S)
            self._writer.close()
        if self._reading is not None:
            self._reading.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), ENDED_S)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()


# -- an agent that waits for runs ----------------------------------------------------------------------------------

#: Between two stays.
PAUSE_S = 1.0
#: After a run that had begun without us: it may go on for hours, and each stay costs it a refusal.
LATE_S = 10.0
#: The site stops its workers and keeps their rows; the Locust worker waits for it.
LEFT_S = 20.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Standby:
    """``arguments`` are the site's. ``once``: end after the first run."""

    def __init__(self, master: Address, arguments: Sequence[str], once: bool, notice: Callable[[str], None]) -> None:
        self._master, self._arguments, self._once, self._notice = master, list(arguments), once, notice
        self._waits = self._connected = False
        self._pause_s = PAUSE_S
        self._signal = "interrupted"

    def serve(self) -> int:
        """Stay with a master until there is a reason to go; returns the exit code.

        0: the run that was asked for is over; 2: refused; 4: it broke off here, or nothing was sent; 130: interrupted.
        """
        before = {number: signal.signal(number, self._interrupt) for number in _STOP_SIGNALS}
        try:
            while (code := self._stay()) is None:
                time.sleep(self._pause_s)
            return int(code)
        except KeyboardInterrupt:
            return int(ExitCode.INTERRUPTED)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: object) -> NoReturn:
        self._signal = signal.Signals(number).name
        raise KeyboardInterrupt

    def _stay(self) -> ExitCode | None:
        """One Locust worker, from its start to its end; None: wait for the next master or run."""
        command = child.command("plimsoll.harness.distributed.locust_", "agent", str(self._master), *self._arguments)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        last: dict[str, Any] = {"event": "died"}
        self._connected = False
        self._pause_s = PAUSE_S
        try:
            for line in process.stdout or ():
                last = json.loads(line)
                self._say(last)
            code = process.wait()
        except KeyboardInterrupt:
            self._notice(f"{self._signal}: leaving ...")
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.write(json.dumps({"reason": f"it was told to leave ({self._signal})"}) + "\n")
            raise
        finally:
            _end(process)
        return self._after(last, code)

    def _say(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "connected":
            self._connected = True
            self._notice(f"connected to the master at {self._master}; waiting for a run ...")
            self._waits = False
        elif kind == "go":
            self._notice("the run begins")
        elif kind == "waiting" and not self._waits:
            self._waits = True
            self._notice(
                f"nobody answers at {self._master} yet: waiting. Is `plimsoll run ... --locust-master` (or locust "
                "--master) running there, and may this host reach its port?"
            )

    def _after(self, last: dict[str, Any], code: int) -> ExitCode | None:
        kind = last["event"]
        if kind == "refused":  # the site has said why
            if self._once or not last["late"]:
                return ExitCode.USAGE
            self._pause_s = LATE_S
        if kind == "ended":
            if last["code"] == ExitCode.USAGE and not last["greeted"]:  # it has said why
                return ExitCode.USAGE
            idle = last["code"] == messages.IDLE and last["whole"]
            whole = (last["code"] == 0 or idle) and last["whole"]
            if idle:
                self._notice("the run is over: nothing was sent from here, for no query of its plan fell to this agent")
            elif whole and not last["ran"]:
                self._notice("the run was called off before its first query: nothing was sent from here")
            else:
                self._notice("the run is over" if whole else f"the run broke off here (exit code {last['code']})")
            if self._once:
                return ExitCode.PASS if whole and last["ran"] and not idle else ExitCode.INVALID
        elif kind == "gone":
            over = self._once and (last["ran"] or self._connected)  # with --once: this master's run was the one
            if self._connected:
                next_ = "nothing more is waited for (--once)" if over else "waiting for the next one"
                self._notice(f"the master at {self._master} is gone ({one_line(last['reason'])}); {next_}")
            if over:
                return ExitCode.INVALID
        elif kind != "left":
            over = self._once and kind == "go"
            next_ = "The run broke off here" if over else "Starting another"
            self._notice(f"error: the Locust worker ended with exit code {code}; what it said is above. {next_}")
            return ExitCode.INVALID if over else None
        return None


def _end(process: subprocess.Popen[str]) -> None:
    """Its stdin is its life line; whoever can't wait gets it killed, and then the site's ends."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(LEFT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
