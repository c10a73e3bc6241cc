"""The worker processes of one run on this host: start them, talk to them, notice when one dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.segments import load_segment
from plimsoll.harness.process import child, writing
from plimsoll.harness.sealing.workforce import Member, OnStatus, unready
from plimsoll.scenarios.plan.blocks import Blocks, Extent, Survey
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.slo.validity.generator import GeneratorFacts

#: Time for "go" to reach every worker.
LEAD_NS = 150_000_000
#: A worker speaks four times a second; at the end it may be busy with its last segments for a while.
SILENCE_S = 120.0
#: Status lines are short; a segment that no disk would take comes as one long line.
LINE_LIMIT = 1 << 30


class Crew:
    """All workers of a run, as processes of this host (``plimsoll.harness.sealing.workforce.Workforce``)."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._processes: list[asyncio.subprocess.Process] = []
        self._heard_s: list[float] = []
        self._log: Path | None = None
        self._on_status: OnStatus = lambda member, message: None
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    @property
    def dealing(self) -> Dealing:
        """They share a clock: each has its turn."""
        return "turns"

    @property
    def lead_ns(self) -> int:
        """Time for one line through each worker's stdin."""
        return LEAD_NS

    async def gather(self, plan: Survey, wanted: int, notice: Callable[[str], None]) -> int:
        """As many workers as the plan can use."""
        return split_workers(plan, wanted)

    async def start(self, specs: Sequence[Mapping[str, Any]], stderr: Any, heard: OnStatus) -> None:
        """Start one process per spec and wait until each is ready.

        Raises HarnessFault with everything that went wrong; all workers are gone then.
        """
        self._on_status = heard
        self._log = None if stderr is None else Path(stderr.name)
        for spec in specs:
            try:
                process = await child.begin(
                    child.command("plimsoll.harness.generator.worker"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    limit=LINE_LIMIT,
                    start_new_session=True,  # Ctrl-C is the coordinator's to handle
                )
            except HarnessFault:
                await self.kill()
                raise
            member = Member(int(spec["shard"]))
            self.members.append(member)
            self._processes.append(process)
            self._heard_s.append(time.monotonic())
            _say(process, spec)
            self._readers.append(asyncio.create_task(self._read(len(self.members) - 1)))
        while not all(member.fingerprint or member.faults or member.death for member in self.members):
            self._changed.clear()
            await self._changed.wait()
        faults, code = unready(self.members)
        if faults:
            faults += self.faults()
            await self.kill()
            raise HarnessFault(faults, ExitCode(code or ExitCode.USAGE))

    async def _read(self, place: int) -> None:
        member, process = self.members[place], self._processes[place]
        if process.stdout is None:
            return
        while line := await process.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                member.death = f"wrote something that is no message ({line[:80]!r})"
                process.kill()
                break
            self._heard_s[place] = time.monotonic()
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
        code = await process.wait()
        if member.done is None:
            member.death = member.death or child.death(code)
            member.died_ns = time.monotonic_ns()
        self._changed.set()

    def go(self, t0_ns: int) -> None:
        """All processes of a host share its monotonic clock."""
        self.tell({"type": "go", "t0_ns": t0_ns})

    def tell(self, message: Mapping[str, Any]) -> None:
        """The same message to everybody."""
        for process in self._processes:
            _say(process, message)

    async def finished(self) -> None:
        """Wait until every worker is done or dead; one that says nothing for a long time is dead."""
        while self._readers:  # none: an agent of a closed loop with fewer slots than workers
            _, waiting = await asyncio.wait(self._readers, timeout=SILENCE_S / 10)
            if not waiting:
                break
            for member, process, heard_s in zip(self.members, self._processes, self._heard_s, strict=True):
                silent = time.monotonic() - heard_s
                if process.returncode is None and member.done is None and silent > SILENCE_S:
                    member.death = f"said nothing for {silent:.0f} s and was killed"
                    process.kill()
        await asyncio.gather(*self._readers)

    def kill_unfinished(self) -> None:
        """End every worker that has not handed its records over: the user won't wait any longer."""
        for member, process in zip(self.members, self._processes, strict=True):
            if member.done is None and process.returncode is None:
                member.death = "did not end when asked to and was killed"
                process.kill()

    async def kill(self) -> None:
        """End every worker now."""
        for process in self._processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        await asyncio.gather(*self._readers)

    def faults(self) -> Sequence[str]:
        """What workers that ended on their own had to say: the end of what they wrote on stderr."""
        if self._log is None or not any(child.ENDED in (member.death or "") for member in self.members):
            return ()
        said = writing.tail(self._log)
        return (f"{self._log.name} ends: {said}",) if said else ()

    async def concluded(
        self, folder: Path, manifest: Mapping[str, Any], public: Mapping[str, Any], plan: Blocks, facts: GeneratorFacts
    ) -> bool:
        """The rows are here."""
        return False

    def facts(self) -> Mapping[str, Any]:
        """Nothing besides what the manifest holds anyway."""
        return {}


def split_workers(plan: Extent, wanted: int) -> int:
    """As many workers as the plan can use: a closed loop has no more than its slots."""
    if plan.cyclic:
        return max(1, min(wanted, plan.max_in_flight or 1))
    return max(1, min(wanted, plan.n_samples, plan.max_in_flight or plan.n_samples))


def _say(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
    """Send one message; a dead worker hears nothing, and its death is reported elsewhere."""
    if process.stdin is not None and process.returncode is None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            process.stdin.write(json.dumps(message).encode() + b"\n")
