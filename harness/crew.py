"""The worker processes of one run: start them, talk to them, notice when one dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HarnessFault
from harness.exit_codes import ExitCode
from harness.segments import load_segment
from slo.records import Records

#: A worker speaks four times a second; at the end it may be busy with its last segments for a while.
SILENCE_S = 120.0
#: Status lines are short; a segment that no disk would take comes as one long line.
LINE_LIMIT = 1 << 30


@dataclass(slots=True)
class Member:
    """One worker process and what it has said so far."""

    index: int
    process: asyncio.subprocess.Process
    fingerprint: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Any] | None = None
    death: str | None = None
    faults: list[str] = field(default_factory=list)
    fault_code: int = 0
    segments: list[Records] = field(default_factory=list)
    heard_s: float = field(default_factory=time.monotonic)
    died_ns: int | None = None

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send one message; a dead worker hears nothing, and its death is reported elsewhere."""
        stdin = self.process.stdin
        if stdin is not None and self.process.returncode is None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                stdin.write(json.dumps(message).encode() + b"\n")


class Crew:
    """All workers of a run. ``on_status(member, message)`` hears each status line."""

    def __init__(self, on_status: Callable[[Member, dict[str, Any]], None]) -> None:
        self.members: list[Member] = []
        self._on_status = on_status
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    async def start(self, specs: Sequence[Mapping[str, Any]], stderr: Any) -> None:
        """Start one process per spec and wait until each is ready.

        Raises HarnessFault with everything that went wrong; all workers are gone then.
        """
        for index, spec in enumerate(specs):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "harness.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=LINE_LIMIT,
                start_new_session=True,  # Ctrl-C is the coordinator's to handle
            )
            member = Member(index, process)
            self.members.append(member)
            member.tell(spec)
            self._readers.append(asyncio.create_task(self._read(member)))
        while not all(member.fingerprint or member.faults or member.death for member in self.members):
            self._changed.clear()
            await self._changed.wait()
        faults = [text for member in self.members for text in member.faults]
        codes = [member.fault_code for member in self.members if member.fault_code]
        faults += [f"worker {m.index} {m.death} while it prepared" for m in self.members if m.death and not m.faults]
        prints = {member.fingerprint for member in self.members}
        if not faults and len(prints) > 1:
            faults.append("the workers computed different plans: is every process running the same version and files?")
        if faults:
            await self.kill()
            raise HarnessFault(list(dict.fromkeys(faults)), ExitCode(codes[0]) if codes else ExitCode.USAGE)

    async def _read(self, member: Member) -> None:
        stdout = member.process.stdout
        if stdout is None:
            return
        while line := await stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                member.death = f"wrote something that is no message ({line[:80]!r})"
                member.process.kill()
                break
            member.heard_s = time.monotonic()
            kind = message["type"]
            if kind == "status":
                member.status = message
                self._on_status(member, message)
            elif kind == "ready":
                member.fingerprint = message["fingerprint"]
            elif kind == "fault":
                member.faults += message["errors"]
                member.fault_code = message["code"]
            elif kind == "segment":
                member.segments.append(load_segment(base64.b64decode(message["data"])))
            elif kind == "done":
                member.done = message
            self._changed.set()
        code = await member.process.wait()
        if member.done is None:
            member.death = member.death or _death(code)
            member.died_ns = time.monotonic_ns()
        self._changed.set()

    def tell(self, message: Mapping[str, Any]) -> None:
        """The same message to everybody."""
        for member in self.members:
            member.tell(message)

    async def finished(self) -> None:
        """Wait until every worker is done or dead; one that says nothing for a long time is dead."""
        while True:
            _, waiting = await asyncio.wait(self._readers, timeout=SILENCE_S / 10)
            if not waiting:
                break
            for member in self.members:
                silent = time.monotonic() - member.heard_s
                if member.process.returncode is None and member.done is None and silent > SILENCE_S:
                    member.death = f"said nothing for {silent:.0f} s and was killed"
                    member.process.kill()
        await asyncio.gather(*self._readers)

    def kill_unfinished(self) -> None:
        """End every worker that has not handed its records over: the user won't wait any longer."""
        for member in self.members:
            if member.done is None and member.process.returncode is None:
                member.death = "did not end when asked to and was killed"
                member.process.kill()

    async def kill(self) -> None:
        """End every worker now."""
        for member in self.members:
            if member.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    member.process.kill()
        await asyncio.gather(*self._readers)


def _death(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
