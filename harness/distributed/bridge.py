"""The coordinator's way to its agents: JSON lines through a process of its own that speaks Locust.

Locust patches the interpreter as it is imported, so it never runs in the coordinator. This file starts that process and reads and
writes its lines; what the messages to agents say is ``harness/distributed/fleet_messages.py``'s, and who is an agent is the fleet's.

Its lines are the envelopes of ``messages.py``, and one more, which comes first: ``{"event": "listening", "at": "HOST:PORT", "web": URL |
null}``, or ``{"event": "fault", "errors": [...]}`` where that can't be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import child
from plimsoll.harness.run.watcher import Beginning

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
    """``HOST:PORT``, ``:PORT``, ``PORT`` or ``HOST``; what is left out is ``default``'s (``:PORT`` there: a host must be given). Raises HarnessFault."""
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


class Bridge:
    """Lines to and from the process that is Locust's master. A ``plimsoll.harness.run.watcher.Watcher``: open for as long as the run.

    ``at``: where the master is to listen, and it is started; or ``fd:R,W``, the two descriptors that a running master gave us.
    """

    def __init__(self, at: str = MASTER, web: str | None = None, notice: Callable[[str], None] = _notice) -> None:
        self._notice = notice
        self._inherited = _INHERITED.fullmatch(at)
        self._at = None if self._inherited else address(at, "--locust-master", MASTER)
        self._web = None if web is None else address(web, "--locust-web", WEB)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        #: The first line: where it listens.
        self.listening: Mapping[str, Any] = {}

    async def open(self) -> None:
        """Start it (or take the descriptors) and wait until it listens. Raises HarnessFault with what it says if it can't."""
        if self._inherited is not None:
            await self._inherit(int(self._inherited[1]), int(self._inherited[2]))
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
            await loop.connect_read_pipe(lambda: protocol, os.fdopen(reads, "rb", 0))
            transport, flow = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(writes, "wb", 0)
            )
            self._writer = asyncio.StreamWriter(transport, flow, None, loop)
        except (OSError, ValueError):
            raise HarnessFault(
                f"--locust-master fd:{reads},{writes}: these are no pipes of ours. The shipped locustfile gives them; "
                "give HOST:PORT yourself"
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
                self._writer.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def begin(self, beginning: Beginning) -> None:
        """The run is the fleet's."""

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """Its status lines came through here."""

    def enough(self) -> str | None:
        """Never."""
        return None

    def end(self) -> None:
        """The bridge is closed when the run is sealed."""

    async def close(self) -> None:
        """Let it tell the agents and end; a master that was there before us stays. Never raises."""
        if self._writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                await asyncio.wait_for(self._writer.drain(), ENDED_S)
            self._writer.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), ENDED_S)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
