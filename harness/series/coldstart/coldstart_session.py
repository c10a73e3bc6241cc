"""Start the server, wait, ask, stop it; as often as asked for. Each repeat is a start of its own, one after the other.

Nothing may answer at the URL before. Whatever ends a repeat early (Ctrl-C, a command that dies, a server that is never ready), the
server is stopped with all that it started, the repeats that are finished are on disk, and ``--resume`` makes the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process.writing import no_room
from plimsoll.harness.run.coordinator import preflight
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.readiness import Ready, wait_ready
from plimsoll.harness.run.remains import put_aside
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.harness.series.coldstart.answers import of_curve, of_first
from plimsoll.harness.series.coldstart.asked import Wanted
from plimsoll.harness.series.coldstart.served import Served
from plimsoll.harness.series.one_run import carry_out, judge, write_report
from plimsoll.harness.transport.client import Target
from plimsoll.reports.coldstart.coldstart_parts import RepeatPart
from plimsoll.reports.wording import units

#: Between two looks at a server that starts: a two-hundredth of the time waited, but at least and at most this.
_SHARE, _LEAST_S, _MOST_S = 0.005, 0.005, 0.1
#: A connection that is not accepted by then is tried anew: behind a firewall the first attempt may hang.
_CONNECT_NS = 1_000_000_000
#: After the last process is gone the kernel may need a moment to give the port back.
_FREE_S = 5.0
#: Of what --between wrote, when it failed.
_SAID_BYTES = 2000
_REMEDY = "Make room there; --resume makes the repeats that it lacks"


@dataclass(frozen=True, slots=True)
class Ran:
    """What there is now; ``fault``: what ended it early, if something did."""

    repeats: tuple[RepeatPart, ...]
    interrupted: bool
    fault: HarnessFault | None = None


def measure(
    wanted: Wanted, out: Path, before: tuple[RepeatPart, ...], keep: Callable[[tuple[RepeatPart, ...]], None]
) -> Ran:
    """Make the repeats that ``before`` lacks; ``keep`` writes down what there is, after each.

    Raises HarnessFault (exit 2) when something answers at the URL before anything was started.
    """
    repeats = before
    if len(before) < wanted.repeats:
        raise_if_answered(wanted)
    for number in range(len(before) + 1, wanted.repeats + 1):
        try:
            if number > len(before) + 1 and wanted.cooldown_ns:
                time.sleep(wanted.cooldown_ns / 1e9)
            _between(wanted)
            part, fault = _one(wanted, number, out)
        except KeyboardInterrupt:
            return Ran(repeats, interrupted=True)
        except HarnessFault as fault_before:
            return Ran(repeats, interrupted=False, fault=fault_before)
        except OSError as error:
            return Ran(repeats, interrupted=False, fault=no_room(error, out, _REMEDY))
        repeats = (*repeats, part)
        try:
            keep(repeats)
        except OSError as error:
            if number < wanted.repeats:  # or it is tried again, with everything else
                fault = fault or no_room(error, out, _REMEDY)
        if fault is not None:
            stopped = fault.code == ExitCode.INTERRUPTED
            return Ran(repeats, stopped, None if stopped else fault)
    return Ran(repeats, interrupted=False)


def raise_if_answered(wanted: Wanted, within_s: float = 0.0) -> None:
    """Nothing accepts connections at the URL, now or ``within_s``. Raises HarnessFault (exit 2) if something does."""
    target = _target(wanted)
    until = time.monotonic() + within_s
    while True:
        try:
            asyncio.run(preflight(target))
        except HarnessFault as fault:
            if fault.code == ExitCode.UNREACHABLE:
                return
            raise
        if time.monotonic() >= until:
            raise HarnessFault(
                f"--url {wanted.url}: something answers there already, so no start could be told from it. Stop it, or give the "
                "port that --start will listen on"
            )
        time.sleep(0.05)


def _target(wanted: Wanted) -> Target:
    flags = wanted.flags
    return Target(
        url=str(flags["url"]),
        protocol=str(flags.get("protocol") or "http"),
        connect_timeout_ns=_CONNECT_NS,
        tls_verify=flags.get("tls_verify") is not False,
        ca_file=flags.get("ca_file"),
    )


def _between(wanted: Wanted) -> None:
    """What the user wants done before each start. Raises HarnessFault when it fails."""
    if not wanted.between:
        return
    with tempfile.TemporaryFile() as output:  # no pipe: what it leaves running would hold that open, and us up
        process = subprocess.Popen(
            ["/bin/sh", "-c", wanted.between],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:  # Ctrl-C: nothing of it goes on
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if code:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _SAID_BYTES))
            said = " ".join(output.read().decode("utf-8", "replace").split()[-40:]) or "it said nothing"
            raise HarnessFault(f"--between: ended with exit code {code} ({said}). Correct it, or leave it out")


def _one(wanted: Wanted, number: int, out: Path) -> tuple[RepeatPart, HarnessFault | None]:
    """One start, whole or as far as it came; with the fault that cut it short. Raises HarnessFault where nothing began."""
    folder = out / "repeats" / f"{number:03d}"
    put_aside(out, str(folder.relative_to(out)))
    folder.mkdir(parents=True)
    label = f"[{number}/{wanted.repeats}] "
    part = RepeatPart(
        number=number,
        complete=False,
        folder=str(folder.relative_to(out)),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    fault: HarnessFault | None = None
    alone, rest = (
        wanted.first(folder / "first"),
        wanted.rest(folder / "curve"),
    )  # now: later the server would wait for it
    served = Served(wanted.start, wanted.stop, folder / "server.log", wanted.stop_timeout_ns / 1e9)
    try:
        part = _wait(wanted, served, label, part)
        first = _run(alone, f"{label}first request: ")
        part = of_first(part, first, served.spawned_ns)
        served.raise_if_ended()
        curve = _run(rest, f"{label}curve: ")
        _reported(alone, first)  # only now: the server was waiting
        part = of_curve(part, curve, first, _reported(rest, curve))
        served.raise_if_ended()
        part = part.model_copy(update={"complete": True})
    except KeyboardInterrupt:
        fault = HarnessFault("interrupted", ExitCode.INTERRUPTED)
    except HarnessFault as caught:
        fault = caught
    finally:
        _say(f"{label}stopping the server ...")
        stopped = served.stop()
        for prepared in (alone, rest):
            _remove_unused(prepared.job.directory)
    part = part.model_copy(update={"stop_forced": stopped.forced, "stop_ns": stopped.took_ns})
    if fault is not None:
        part = part.model_copy(update={"notes": [*part.notes, str(fault).split("\n", 1)[0]]})
    with contextlib.suppress(KeyboardInterrupt):
        try:
            raise_if_answered(wanted, _FREE_S)
        except HarnessFault:
            fault = fault or HarnessFault(
                f"--start: {wanted.url} still answers after the command was stopped. If it serves elsewhere (a container, say), "
                "give the command that stops that: --stop 'COMMAND'",
            )
    return part, fault


def _remove_unused(directory: RunDirectory) -> None:
    """A run directory that no run came to fill."""
    with contextlib.suppress(OSError):  # it holds something, or is gone
        directory.segments.rmdir()
        directory.path.rmdir()


def _wait(wanted: Wanted, served: Served, label: str, part: RepeatPart) -> RepeatPart:
    """Until it is ready. Raises HarnessFault (exit 5) when it dies or takes too long."""

    def pause(waited_s: float) -> float:
        return min(max(_SHARE * waited_s, _LEAST_S), _MOST_S)

    _say(f"{label}started, waiting until {wanted.url} is ready ...")
    timeout_s = wanted.ready_timeout_ns / 1e9
    try:
        ready: Ready = asyncio.run(wait_ready(_target(wanted), timeout_s, wanted.path, pause, served.raise_if_ended))
    except HarnessFault as fault:
        if fault.code != ExitCode.UNREACHABLE or "--start" in str(fault):
            raise
        raise HarnessFault(
            f"{wanted.url} was not ready after {units.duration(wanted.ready_timeout_ns)} (--ready-timeout): {fault}\n{served.tail()}",
            ExitCode.UNREACHABLE,
        ) from None
    port, at = ready.port_ns - served.spawned_ns, ready.ready_ns - served.spawned_ns
    how = f"{ready.route} says so" if ready.route else "it has no health route, so its port is all there is"
    _say(f"{label}port open after {units.duration(port)}, ready after {units.duration(at)} ({how})")
    return part.model_copy(
        update={
            "port_ns": port,
            "port_late_ns": ready.port_late_ns,
            "ready_ns": at,
            "ready_late_ns": ready.ready_late_ns,
            "route": ready.route,
        }
    )


def _run(prepared: Prepared, label: str) -> Sealed:
    """An ordinary run in its own sealed directory. Raises HarnessFault."""
    outcome = carry_out(prepared, label=label)
    if outcome.interrupted:
        raise HarnessFault("interrupted", ExitCode.INTERRUPTED)
    return outcome.sealed


def _reported(prepared: Prepared, sealed: Sealed) -> list[str]:
    """Write the run's own report. Returns why it is INVALID, if it is."""
    report = judge(sealed, prepared.promises)
    write_report(report, sealed.directory)
    return list(report.validity.reasons)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
