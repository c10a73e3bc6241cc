"""Start the server, wait, ask, stop it; as often as asked for. Nothing may answer at the URL before a start.

Whatever ends a repeat early, the server is stopped with all that it started, coldstart.json has the repeats that are
finished, and ``--resume`` makes the rest. Exit codes: 0 measured, and every ``--slo`` kept; 1 one was not, or a first
request failed; 2 usage; 4 the generator broke its promise in a curve; 5 the command died or was never ready; 130
interrupted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process import interrupts
from plimsoll.harness.process.writing import Output, no_room, write_json
from plimsoll.harness.run.attempts import put_aside, spoiled
from plimsoll.harness.run.job import Prepared, hold
from plimsoll.harness.run.judged import conclude, write_report
from plimsoll.harness.run.readiness import Ready, preflight, wait_ready
from plimsoll.harness.run.rundir import ATTEMPTS, RunDirectory, Sealed
from plimsoll.harness.scraping.scraping import startup
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.secrecy.secrets import public_shell
from plimsoll.harness.series.coldstart.coldstart_flags import Goal, Wanted
from plimsoll.harness.series.coldstart.warden import Served
from plimsoll.harness.series.ledger import Ledger, Session, read_document
from plimsoll.harness.series.one_run import ALONE, Staff
from plimsoll.harness.series.publish import publish, tell
from plimsoll.harness.transport.client import Target
from plimsoll.reports.documents.coldstart import (
    FORMATS,
    QUANTITIES,
    ColdstartReport,
    GoalPart,
    Outcome,
    RepeatPart,
    SpreadPart,
)
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import FloatArray, Records, Status
from plimsoll.slo.statistics.warmup import Settled, repeats_needed, settle, spread

#: Between two looks at a server that starts: a two-hundredth of the time waited, but at least and at most this.
_SHARE, _LEAST_S, _MOST_S = 0.005, 0.005, 0.1
#: A connection that is not accepted by then is tried anew: behind a firewall the first attempt may hang.
_CONNECT_NS = 1_000_000_000
#: After the last process is gone the kernel may need a moment to give the port back.
_FREE_S = 5.0
#: Of what --between wrote, when it failed.
_SAID_BYTES = 2000
_REMEDY = "Make room there; --resume makes the repeats that it lacks"
#: Points of a curve that are kept in the document: the first ones all, of the rest about as many, further and further
#: apart.
_ALL, _SPARSE = 200, 300
#: Lateness of ours in the first request that is worth a word, as a share of its latency.
_LATE = 0.05
FILE = "coldstart.json"
_FIELDS = {name: f"{name}_ns" for name in QUANTITIES}
#: Repeats whose runs take turns with an idle endpoint for longer than this share of the time to the first answer say
#: so.
_IDLE = 0.2


@dataclass(frozen=True, slots=True)
class Ran:
    """What there is now; ``fault``: what ended it early, if something did."""

    repeats: tuple[RepeatPart, ...]
    interrupted: bool
    fault: HarnessFault | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start, whole or as far as it came. ``fault`` cut it short; ``reports``: of its runs, by their folders;
    ``retries``: how many more there may be where the machine spoiled it.
    """

    part: RepeatPart
    fault: HarnessFault | None = None
    reports: tuple[tuple[str, Report], ...] = ()
    retries: int = 0

    @property
    def spoiled(self) -> bool:
        """A run of it is INVALID by the generator alone."""
        return self.fault is None and any(spoiled(report) for _, report in self.reports)


def measure(
    wanted: Wanted,
    out: Path,
    before: tuple[RepeatPart, ...],
    keep: Callable[[tuple[RepeatPart, ...]], None],
    staff: Staff = ALONE,
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
            if not repeats:
                keep(repeats)
            part, fault = _repeat(wanted, number, out, staff)
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
            interrupts.run(preflight(target))
        except HarnessFault as fault:
            if fault.code == ExitCode.UNREACHABLE:
                return
            raise
        if time.monotonic() >= until:
            raise HarnessFault(
                f"--url {wanted.url}: something answers there already, so no start can be timed. Stop it, or "
                "give the port that --start will listen on"
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


def _repeat(wanted: Wanted, number: int, out: Path, staff: Staff) -> tuple[RepeatPart, HarnessFault | None]:
    """One start, and another while the machine spoils it and ``--retries`` allows that: the last, with the fault that
    cut it short.

    Earlier ones lie in its folder ``attempts``. Raises HarnessFault where nothing began.
    """
    folder, notes = out / "repeats" / f"{number:03d}", list[str]()
    put_aside(out, str(folder.relative_to(out)))
    folder.mkdir(parents=True)
    while True:
        made = _one(wanted, number, out, folder, staff)
        if not made.spoiled or len(notes) >= made.retries:
            return made.part.model_copy(update={"notes": [*notes, *made.part.notes]}), made.fault
        kept = _set_apart(folder, len(notes) + 1, made.reports)
        why = next(iter(made.part.invalid), "no reason given")
        what = f"attempt {len(notes) + 1} was INVALID by the generator alone ({why})"
        said = f"{what}; it is kept in {kept.relative_to(out)}"
        notes.append(said)
        tell(f"[{number}/{wanted.repeats}] {said}. Starting the server again")
        time.sleep(wanted.cooldown_ns / 1e9)
        _between(wanted)


def _set_apart(folder: Path, number: int, reports: Sequence[tuple[str, Report]]) -> Path:
    """Where a spoiled attempt is kept, its reports with its runs."""
    kept = folder / ATTEMPTS / str(number)
    kept.mkdir(parents=True)
    for entry in [entry for entry in folder.iterdir() if entry.name != ATTEMPTS]:
        entry.rename(kept / entry.name)
    for name, report in reports:
        there = RunDirectory(kept / name)
        write_report(
            report.model_copy(update={"run": report.run.model_copy(update={"directory": str(there.path)})}), there
        )
    return kept


def _one(wanted: Wanted, number: int, out: Path, folder: Path, staff: Staff) -> Attempt:
    """One start in its folder. Raises HarnessFault where nothing began."""
    label = f"[{number}/{wanted.repeats}] "
    part = RepeatPart(
        number=number,
        complete=False,
        folder=str(folder.relative_to(out)),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    fault: HarnessFault | None = None
    reports: list[tuple[str, Report]] = []
    # Now: later the server would wait for it.
    alone, rest = wanted.first(folder / "first"), wanted.rest(folder / "curve")
    served = Served(wanted.start, wanted.stop, folder / "server.log", wanted.stop_timeout_ns / 1e9)
    try:
        part = _wait(wanted, served, label, part)
        first = _run(alone, f"{label}first request: ", staff)
        part = of_first(part, first, served.spawned_ns)
        served.raise_if_ended()
        curve = _run(rest, f"{label}curve: ", staff)
        reports = [_reported(alone, first), _reported(rest, curve)]  # only now: the server was waiting
        part = of_curve(part, curve, first, list(reports[1][1].validity.reasons))
        served.raise_if_ended()
        part = part.model_copy(update={"complete": True, "phases": startup(_target(wanted))})
    except KeyboardInterrupt:
        fault = HarnessFault("interrupted", ExitCode.INTERRUPTED)
    except HarnessFault as caught:
        fault = caught
    finally:
        tell(f"{label}stopping the server ...")
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
                f"--start: {wanted.url} still answers after the command was stopped. If it serves elsewhere (a "
                "container, say), give the command that stops that: --stop 'COMMAND'"
            )
    return Attempt(part, fault, tuple(reports), rest.job.scenario.retries)


def _remove_unused(directory: RunDirectory) -> None:
    """A run directory that no run came to fill."""
    with contextlib.suppress(OSError):  # it holds something, or is gone
        directory.segments.rmdir()
        directory.path.rmdir()


def _wait(wanted: Wanted, served: Served, label: str, part: RepeatPart) -> RepeatPart:
    """Until it is ready. Raises HarnessFault (exit 5) when it dies or takes too long."""

    def pause(waited_s: float) -> float:
        return min(max(_SHARE * waited_s, _LEAST_S), _MOST_S)

    tell(f"{label}started, waiting until {wanted.url} is ready ...")
    timeout_s = wanted.ready_timeout_ns / 1e9
    try:
        ready: Ready = interrupts.run(wait_ready(_target(wanted), timeout_s, wanted.path, pause, served.raise_if_ended))
    except HarnessFault as fault:
        if fault.code != ExitCode.UNREACHABLE or "--start" in str(fault):
            raise
        raise HarnessFault(
            f"{wanted.url} was not ready after {units.duration(wanted.ready_timeout_ns)} (--ready-timeout): "
            f"{fault}\n{served.tail()}",
            ExitCode.UNREACHABLE,
        ) from None
    port, at = ready.port_ns - served.spawned_ns, ready.ready_ns - served.spawned_ns
    how = f"{ready.route} says so" if ready.route else "it has no health route, so its port is all there is"
    tell(f"{label}port open after {units.duration(port)}, ready after {units.duration(at)} ({how})")
    return part.model_copy(
        update={
            "port_ns": port,
            "port_late_ns": ready.port_late_ns,
            "ready_ns": at,
            "ready_late_ns": ready.ready_late_ns,
            "route": ready.route,
        }
    )


def _run(prepared: Prepared, label: str, staff: Staff) -> Sealed:
    """An ordinary run in its own sealed directory. Raises HarnessFault."""
    try:
        outcome = staff.send(prepared, label)
    finally:
        staff.page.end()
    if outcome.interrupted:
        raise HarnessFault("interrupted", ExitCode.INTERRUPTED)
    return outcome.sealed


def _reported(prepared: Prepared, sealed: Sealed) -> tuple[str, Report]:
    """Write the run's own report: its folder and that."""
    report = conclude(sealed, prepared.promises)
    write_report(report, sealed.directory)
    return prepared.job.directory.path.name, report


def of_first(part: RepeatPart, sealed: Sealed, spawned_ns: int) -> RepeatPart:
    """``part`` with the first request in it."""
    rows = _in_order(sealed)
    if not len(rows):
        return part.model_copy(update={"notes": [*part.notes, "the first request was never sent"]})
    due, done, token = (int(rows[name][0]) for name in ("due_ns", "done_ns", "first_token_ns"))
    sent_at = int(sealed.manifest["t0_monotonic_ns"]) + due - spawned_ns
    status = Status(int(rows["status"][0]))
    said: dict[str, object] = {
        "first_status": status.name,
        "idle_ns": max(0, sent_at - (part.ready_ns or 0)),
        "requests": 1,
        "failed": int(status != Status.OK),
    }
    if status != Status.OK:
        error = int(rows["error"][0])
        why = f": {rows.errors[error]}" if error >= 0 else ""
        said["notes"] = [*part.notes, f"the first request failed, {status.name}{why}"]
        return part.model_copy(update=said)
    latency = done - due
    first = token - due if token >= 0 else None
    said |= {"first_latency_ns": latency, "first_ttft_ns": first}
    if part.ready_ns is not None:
        said["first_answer_ns"] = part.ready_ns + (latency if first is None else first)
    late = int(rows["ready_ns"][0]) - due
    if late > _LATE * latency:
        said["notes"] = [
            *part.notes,
            f"the first request was taken up {late / 1e6:.1f} ms late, by this machine's doing",
        ]
    return part.model_copy(update=said)


def of_curve(part: RepeatPart, sealed: Sealed, first: Sealed, invalid: Sequence[str]) -> RepeatPart:
    """``part`` with the curve in it: the first request, then those of the second run."""
    rows, alone = _in_order(sealed), _in_order(first)
    latency = np.concatenate((_latency(alone), _latency(rows)))
    took = int(alone["done_ns"][0] - alone["due_ns"][0]) if len(alone) else 0
    due = np.concatenate((np.zeros(len(alone), np.int64), took + rows["due_ns"] - rows["due_ns"].min(initial=0)))
    found = settle(latency, due)
    said: dict[str, object] = {
        "idle_ns": part.idle_ns + _idle(first, sealed),
        "requests": len(latency),
        "failed": int(np.isinf(latency).sum()),
        "invalid": list(invalid),
        "curve": thinned(latency),
    }
    if isinstance(found, Settled):
        said |= {"steady_after": found.requests, "steady_level_ns": round(found.level_ns)}
        said["excess_ns"] = round(found.excess_ns) if np.isfinite(found.excess_ns) else None
        if part.ready_ns is not None and found.requests < len(due):
            said["steady_ns"] = part.ready_ns + int(due[found.requests])
    else:
        said["unsettled"] = found.why
    return part.model_copy(update=said)


def thinned(latency_ns: FloatArray) -> list[tuple[int, int | None]]:
    """(request number, latency) for a drawing: all of the first 200, then some of the rest; a failed one has none."""
    n = len(latency_ns)
    kept = np.arange(min(n, _ALL))
    if n > _ALL:
        kept = np.unique(np.concatenate((kept, np.geomspace(_ALL, n - 1, _SPARSE).astype(np.int64))))
    return [(int(i) + 1, int(latency_ns[i]) if np.isfinite(latency_ns[i]) else None) for i in kept]


def _in_order(sealed: Sealed) -> Records:
    """Measured rows in the order of issue."""
    rows = sealed.records.measured()
    return rows.select(np.lexsort((rows["query_id"], rows["due_ns"])))


def _latency(rows: Records) -> FloatArray:
    return np.where(rows.ok, (rows["done_ns"] - rows["due_ns"]).astype(np.float64), np.inf)


def _idle(first: Sealed, then: Sealed) -> int:
    """Between the first answer and the next request nothing was in flight: we were starting the second run."""
    over, due = first.records.measured()["done_ns"], then.records.measured()["due_ns"]
    if not len(over) or not len(due):
        return 0
    ended = int(first.manifest["t0_monotonic_ns"]) + int(over.max())
    return max(0, int(then.manifest["t0_monotonic_ns"]) + int(due.min()) - ended)


def coldstart(wanted: Wanted, out: Path, outputs: Sequence[Output], session: Session) -> int:
    """Make the repeats, sum them up, publish. Returns the exit code; raises HarnessFault before anything is started."""
    wanted = replace(wanted, scenario=hold(wanted.scenario))
    before = begin(wanted, out, session.resume)

    def keep(repeats: tuple[RepeatPart, ...]) -> None:
        write_json(out / FILE, document(wanted, Ran(repeats, interrupted=True)).document())

    ran = measure(wanted, out, before, keep, session.staff)
    if not ran.repeats and ran.fault is not None:
        raise ran.fault
    report = document(wanted, ran)
    remedy = "make room; the same command with --resume writes it, and repeats what it then lacks"
    own = {out / FILE: "json", out / "coldstart.html": "html"}
    code = publish(report, FORMATS, FORMATS.terminal, outputs, own, remedy, as_json=session.as_json, fault=ran.fault)
    if ran.interrupted or ran.fault is not None:
        tell(f"the same command with --resume makes the repeats that {out} lacks")
    return code


def begin(wanted: Wanted, out: Path, resume: bool) -> tuple[RepeatPart, ...]:
    """The finished repeats of an earlier session in ``out``, which is there then. Raises HarnessFault."""
    ledger = Ledger(out, FILE, "cold start")
    found = ledger.before(resume, lambda: read_document(ledger.path, ColdstartReport, "Name a new --out"))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarnessFault(f"--out: cannot make {out} ({error.strerror}). Name a folder that you may write") from None
    if found is None:
        return ()
    whole = tuple(part for part in found.repeats if part.complete)
    ledger.go_on(
        resume,
        f"{len(whole)} of {found.wanted} repeats made. Add --resume to make the rest",
        found.settings,
        wanted.settings(),
    )
    return whole[: wanted.repeats]


def document(wanted: Wanted, ran: Ran) -> ColdstartReport:
    """Everything that a renderer may show."""
    whole = [part for part in ran.repeats if part.complete]
    kept = [_goal(goal, whole) for goal in wanted.goals]
    outcome, code = _outcome(ran, whole, kept)
    return ColdstartReport(
        outcome=outcome,
        exit_code=int(code),
        start=public_shell(wanted.start),
        url=wanted.url,
        settings=wanted.settings(),
        wanted=wanted.repeats,
        repeats_for_interval=repeats_needed(),
        repeats=list(ran.repeats),
        spreads=_spreads(whole),
        goals=kept,
        warnings=_warnings(wanted, whole),
        plimsoll=package_version(),
        command=shlex.join(map(redact, wanted.command)),
    )


def _outcome(ran: Ran, whole: Sequence[RepeatPart], kept: Sequence[GoalPart]) -> tuple[Outcome, ExitCode]:
    if ran.interrupted:
        return "INTERRUPTED", ExitCode.INTERRUPTED
    if ran.fault is not None:
        return "UNREACHABLE" if ran.fault.code == ExitCode.UNREACHABLE else "STOPPED", ran.fault.code
    if any(goal.outcome == "FAIL" for goal in kept) or any(part.first_status != "OK" for part in whole):
        return "FAIL", ExitCode.FAIL
    if any(part.invalid for part in whole):
        return "INVALID", ExitCode.INVALID
    return "PASS" if kept else "MEASURED", ExitCode.PASS


def _value(part: RepeatPart, quantity: str) -> int | None:
    value: int | None = getattr(part, _FIELDS[quantity])
    return value


def _goal(goal: Goal, whole: Sequence[RepeatPart]) -> GoalPart:
    values = [_value(part, goal.quantity) for part in whole]
    kept = sum(goal.kept(value) for value in values)
    known = [value for value in values if value is not None]
    worst = max(known) if known and len(known) == len(values) else None
    return GoalPart(
        objective=goal.text,
        outcome="PASS" if whole and kept == len(values) else "FAIL",
        worst=worst,
        kept=kept,
        of=len(values),
    )


def _spreads(whole: Sequence[RepeatPart]) -> list[SpreadPart]:
    parts = []
    for name in QUANTITIES:
        found = spread([_value(part, name) for part in whole])
        if found is not None:
            fields = {key: getattr(found, key) for key in found.__dataclass_fields__ if key != "apart"}
            parts.append(SpreadPart(quantity=name, first_differs=found.first_differs, **fields))
    return parts


def _warnings(wanted: Wanted, whole: Sequence[RepeatPart]) -> list[str]:
    said = []
    found = spread([part.ready_ns for part in whole])
    if found is not None and found.first_differs and found.first is not None and found.later is not None:
        slower = found.first > found.later
        why = (
            "files that were not in memory yet, most likely" if slower else "something that was still warm, most likely"
        )
        cure = "" if wanted.between else ". --between 'COMMAND' can put the machine into one state before every start"
        said.append(
            f"the first start took {units.duration(found.first)} to ready, the others {units.duration(found.later)}: "
            f"{why}{cure}"
        )
    if not all(part.route for part in whole):
        said.append("no health route: ready means that the port was open, and the server may have been loading still")
    idle = [part for part in whole if part.idle_ns > _IDLE * (part.first_answer_ns or 0)]
    if idle:
        most = units.duration(max(part.idle_ns for part in idle))
        said.append(
            f"up to {most} of a start passed with nothing in flight, while our runs were set up. It is left out of "
            "every time, and what the server did in it is in none of them"
        )
    for part in whole:
        said += [f"repeat {part.number}: {text}" for text in (*part.notes, *part.invalid)]
        if part.excess_ns is not None and part.excess_ns < 0:
            said.append(
                f"repeat {part.number}: it was faster before its steady level than at it. That is no warm-up: a queue "
                "that filled up, or a neighbour that came"
            )
        if part.stop_forced:
            said.append(f"repeat {part.number}: the server did not stop on SIGTERM and was killed (--stop-timeout)")
    for why in dict.fromkeys(part.unsettled for part in whole if part.unsettled):
        numbers = [str(part.number) for part in whole if part.unsettled == why]
        which = f"repeat {numbers[0]}" if len(numbers) == 1 else f"repeats {', '.join(numbers)}"
        said.append(f"{which}: no steady state found: {why}")
    return said
