"""Events of a run: commands, calls, faults and marks, each at its moment of the run's clock, done by the coordinator.

No sender waits for one: commands are processes of their own, calls threads. What each did, when it began and ended, its
exit code and the end of what it said are kept, without secrets, for manifest.json and every time axis. A command that
still runs when the run is over is ended, with what it started; what a command that has ended left behind goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.process.child import death
from plimsoll.harness.secrecy.redaction import KNOWN, learn, redact
from plimsoll.harness.secrecy.secrets import expanded, public_output, public_shell, shell_secrets
from plimsoll.harness.wire.headers import RESERVED, header_error
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.events import EventSection, HttpSection, cut, names_of, phases_of, stretches
from plimsoll.slo.records.foreign import one_line

#: So much of the end of what an event said is kept, in characters.
OUTPUT = 2_000
#: An event that began later than this was late: then the run is not the experiment that was asked for.
LATE_NS = 1_000_000_000
#: What was sent SIGTERM may take so long to be gone, and what has ended to be read.
_GRACE_S, _READ_S = 2.0, 0.5
_FAULTS = "/admin/faults"


@dataclass(frozen=True, slots=True)
class Event:
    """One event, checked. ``public``: as it may be shown; ``command``, or ``call``, its references resolved, whose url
    is "" where it goes to the endpoint's faults; neither: a note.
    """

    name: str
    section: EventSection = field(repr=False)
    public: str
    command: str = field(default="", repr=False)
    call: HttpSection | None = field(default=None, repr=False)


@dataclass(slots=True)
class Done:
    """What became of an event; times in ns from t0, -1: it did not begin, or end. ``exit``: of a command its exit code
    (negative: the signal that killed it), of a call the status. ``fault``: why it failed; "": it did not.
    """

    name: str
    does: str
    text: str
    due_ns: int
    begun_ns: int = -1
    ended_ns: int = -1
    exit: int | None = None
    output: str = ""
    fault: str = ""


def prepared(scenario: Scenario, where: str) -> tuple[tuple[Event, ...], list[str]]:
    """The events of a scenario with what they need of this host, and every error in them."""
    found, errors = [], []
    for place, (name, one) in enumerate(zip(names_of(scenario.events), scenario.events, strict=True)):
        at = f"{where}:events[{place}]"
        command, call, public = "", None, one.note or ""
        if one.run is not None:
            command, public = one.run, public_shell(one.run)
            learn(shell_secrets(one.run))
            errors += [f"{at}.run: {text}" for text in unrunnable(one.run)]
        elif one.http is not None:
            known = len(errors)
            learn(shell_secrets(one.http.body))
            url, body = (expanded(text, f"{at}.http", errors) for text in (one.http.url, one.http.body))
            headers = {key: expanded(text, f"{at}.http.headers", errors) for key, text in one.http.headers.items()}
            call = one.http.model_copy(update={"url": url, "body": body, "headers": headers})
            if len(errors) == known:
                errors += [f"{at}.http{text}" for text in unsendable(call)]
            public = f"{one.http.method} {public_shell(one.http.url)}"
        elif one.fault is not None:
            method, body = ("DELETE", "") if one.fault == "off" else ("POST", json.dumps({"fault": one.fault}))
            call, public = HttpSection.model_construct(method=method, url="", body=body), f"fault {one.fault}"
        found.append(Event(name, one, redact(public), command, call))
    return tuple(found), errors


def unsendable(call: HttpSection) -> list[str]:
    """Why a call can't be sent, its references resolved; no value is repeated."""
    named = [(name, value) for name, value in call.headers.items() if name.lower() not in RESERVED]
    errors = [f".headers: {wrong}" for one in named if (wrong := header_error(*one)) is not None]
    try:
        parts = urlsplit(call.url)
        sound = parts.port != 0 and f"{parts.path}{parts.query}".isascii() and not re.search(r"[\0- \x7f]", call.url)
    except ValueError:
        sound = False
    if not sound:
        errors.append(".url: has a port outside 1 to 65535, white space, or a path beyond ASCII. Correct or escape it")
    return errors


def unrunnable(command: str) -> list[str]:
    """Why the shell could not run a command: its grammar, or a first word that is no command of this host."""
    parsed = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
    if parsed.returncode:
        said = redact(parsed.stderr.strip().splitlines()[-1][:200]) if parsed.stderr.strip() else "it says nothing"
        return [f"/bin/sh can't read it ({said}). Correct the command"]
    words = [word for word in command.split() if "=" not in word.partition("/")[0]]
    first = words[0].strip("\"'(){};&|") if words else ""
    if not first or any(char in first for char in "$`\\<>*?[") or "(" in command.split()[0]:
        return []
    known = subprocess.run(["/bin/sh", "-c", 'command -v -- "$0"', first], capture_output=True, check=False)
    return [f"{first} is no command of this host. Install it, or correct the name"] if known.returncode else []


def phases_at(scenario: Scenario) -> list[tuple[str, int]]:
    """The phases as they are known before the run."""
    return stretches(scenario.phases) if scenario.phases else [("before", 0)] if scenario.events else []


def moments_of(scenario: Scenario) -> tuple[tuple[str, ...], bool]:
    """What a recovery may be counted from, and whether it is clear which where nobody says it."""
    ended = tuple(name for name, one in scenario.phases.items() if one.to_ns is not None)
    cuts = phases_of(scenario.events) if scenario.events and not scenario.phases else ()
    events = names_of(scenario.events)
    return (*events, *ended, *cuts), len(events or ended) == 1


class Happenings:
    """Does the events of one run. ``begin`` at t0, ``end`` when the last query is over. ``cuts``: they make phases."""

    def __init__(self, events: Sequence[Event], folder: Path, notice: Callable[[str], None], cuts: bool) -> None:
        self._events, self._folder, self._notice, self._cuts = events, folder, notice, cuts
        self.done = [Done(one.name, one.section.does, one.public, one.section.at_ns) for one in events]
        self._tasks: list[asyncio.Task[None]] = []
        self._t0_ns = 0
        self._told: Callable[[Done], None] = lambda _: None

    @property
    def known(self) -> dict[str, Any]:
        """For the manifest: what became of the events, and the phases that they cut."""
        if not self._events:
            return {}
        times = [(one.begun_ns, one.ended_ns) for one in self.done]
        phases = {"phases": cut([one.section for one in self._events], times)} if self._cuts else {}
        return {"events": [asdict(one) for one in self.done], **phases}

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this is not the experiment that was asked for; none: it is."""
        return tuple(f"{one.name}: {one.fault}" for one in self.done if one.fault)

    def begin(self, t0_ns: int, url: str, pid: int | None, told: Callable[[Done], None]) -> None:
        """t0 is known, on this process's monotonic clock. ``url``: the endpoint; ``pid``: the bundled server's;
        ``told``: hears of each event as it begins and ends.
        """
        self._t0_ns, self._told = t0_ns, told
        around = {**os.environ, "PLIMSOLL_URL": url, "PLIMSOLL_RUN": str(self._folder)}
        around |= {} if pid is None else {"PLIMSOLL_SERVER_PID": str(pid)}
        ordered = sorted(zip(self._events, self.done, strict=True), key=lambda one: one[1].due_ns)
        for due_ns, same in itertools.groupby(ordered, key=lambda one: one[1].due_ns):
            self._tasks.append(asyncio.create_task(self._at(due_ns, [*same], url, around)))

    def interrupt(self) -> None:
        """The user wants no more: what goes on is ended, and nothing begins."""
        for task in self._tasks:
            if not task.cancelling():  # else it is about to end its command, and would leave that
                task.cancel()

    async def end(self, interrupted: bool = False) -> None:
        """The run is over: what goes on is ended."""
        while self._tasks:
            self.interrupt()
            tasks, self._tasks = self._tasks, []
            await asyncio.gather(*tasks, return_exceptions=True)
        over = "interrupted" if interrupted else "the run was over"
        for one in self.done:
            if one.begun_ns < 0:
                one.fault = one.fault or f"did not begin: {over} before {one.due_ns / 1e9:g} s"
            elif one.ended_ns < 0:
                one.ended_ns, one.fault = self._now_ns(), f"was ended: {over} before it was done"

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._t0_ns

    async def _at(self, due_ns: int, same: list[tuple[Event, Done]], url: str, around: Mapping[str, str]) -> None:
        """The events of one instant, which begin in the order of the file."""
        await asyncio.sleep(max(0.0, (due_ns - self._now_ns()) / 1e9))
        self._tasks += [asyncio.create_task(self._happen(*one, url, around)) for one in same]

    async def _happen(self, event: Event, done: Done, url: str, around: Mapping[str, str]) -> None:
        done.begun_ns = self._now_ns()
        late = done.begun_ns - done.due_ns
        self._told(done)
        timeout_s = event.section.timeout_ns / 1e9
        try:
            if event.command:
                await self._run(event, done, around, timeout_s)
            elif event.call is not None:
                status, said = await _answer(event.call, event.call.url or url + _FAULTS, timeout_s)
                done.exit, done.output = status, KNOWN.cut(said, OUTPUT)
                if not 200 <= status < 300:
                    done.fault = f"was answered with status {status} ({one_line(done.output, 120) or 'no text'})"
        except TimeoutError:
            done.fault = f"was ended after {timeout_s:g} s (timeout)"
        except (OSError, http.client.HTTPException, ValueError) as error:
            done.fault = redact(f"could not be done ({str(error)[:200] or type(error).__name__})")
        done.ended_ns = done.begun_ns if done.does == "note" else self._now_ns()
        if late > LATE_NS and not done.fault:
            done.fault = f"began {late / 1e9:.1f} s late: the coordinator's host gave it no time"
        if done.fault:
            self._notice(f"warning: {'' if done.name.startswith('event ') else 'event '}{done.name} {done.fault}")
        self._told(done)

    async def _run(self, event: Event, done: Done, around: Mapping[str, str], timeout_s: float) -> None:
        # A pipe of our own: asyncio's would hang on the process, and be open still when the loop is closed.
        ours, theirs = os.pipe()
        said = bytearray()
        try:
            reading = asyncio.create_task(_tail(await _reader(ours), said))
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", event.command, stdin=asyncio.subprocess.DEVNULL, stdout=theirs,
                stderr=asyncio.subprocess.STDOUT, start_new_session=True, env=around,
            )  # fmt: skip
        finally:
            os.close(theirs)
        try:
            done.exit = await asyncio.wait_for(process.wait(), timeout_s)
            if done.exit:
                done.fault = death(done.exit)
        finally:
            if process.returncode is None:
                await _ended(process)
                done.exit = process.returncode
            # What it left behind may hold its end of the pipe, and is read on while the run lasts.
            self._tasks.append(reading)
            await asyncio.wait([reading], timeout=_READ_S)
            done.output = public_output(said, OUTPUT)


async def _reader(pipe: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    made = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0)
    )
    return reader, made[0]


async def _tail(pipe: tuple[asyncio.StreamReader, asyncio.ReadTransport], said: bytearray) -> None:
    stream, transport = pipe
    try:
        while data := await stream.read(65_536):
            said += data
            del said[: -8 * OUTPUT]
    finally:
        transport.close()


async def _ended(process: asyncio.subprocess.Process) -> None:
    """The command and what it started: SIGTERM, and SIGKILL to what does not go."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left, or nobody of ours
        os.killpg(process.pid, signal.SIGTERM)
        over = time.monotonic() + _GRACE_S
        while time.monotonic() < over:
            await asyncio.sleep(0.02)
            os.killpg(process.pid, 0)
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GRACE_S)


async def _answer(call: HttpSection, url: str, timeout_s: float) -> tuple[int, str]:
    """As ``_called`` has it, and no later. Nobody waits for its thread: one that hangs ends with the process."""
    answer = futures.Future[tuple[int, str]]()
    answer.set_running_or_notify_cancel()  # from now on it can't be cancelled

    def work() -> None:
        try:
            answer.set_result(_called(call, url, timeout_s))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wait_for(asyncio.wrap_future(answer), timeout_s)


def _called(call: HttpSection, url: str, timeout_s: float) -> tuple[int, str]:
    """(status, the begin of the answer). Raises OSError, HTTPException or ValueError."""
    parts = urlsplit(url)
    make = http.client.HTTPConnection
    if parts.scheme == "https":
        make = partial(http.client.HTTPSConnection, context=ssl.create_default_context())  # type: ignore[assignment]
    connection = make(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        kind = {"Content-Type": "application/json"} if call.body[:1] in ("{", "[") and call.body else {}
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(call.method, path, call.body.encode() or None, {**kind, **call.headers})
        answer = connection.getresponse()
        return answer.status, answer.read(8 * OUTPUT).decode(errors="replace").strip()
    finally:
        connection.close()
