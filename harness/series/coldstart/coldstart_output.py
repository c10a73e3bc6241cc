"""Publish a cold start: coldstart.json after every repeat, coldstart.html at the end, the result on stdout; and go on from such a folder.

Exit codes: 0 measured, and every ``--slo`` kept; 1 one was not, or a first request failed; 2 usage; 4 the generator broke its
promise in a curve; 5 the command died or was never ready; 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.series.coldstart.asked import Goal, Wanted, public_command
from plimsoll.harness.series.coldstart.coldstart_session import Ran, measure
from plimsoll.harness.series.comparison.comparison_output import Output, as_written, say, say_drawn, tell_faults, write
from plimsoll.reports.coldstart.coldstart_formats import FORMATS
from plimsoll.reports.coldstart.coldstart_parts import (
    QUANTITIES,
    ColdstartReport,
    GoalPart,
    Outcome,
    RepeatPart,
    SpreadPart,
)
from plimsoll.reports.coldstart.coldstart_text import render_terminal
from plimsoll.reports.wording import units
from plimsoll.slo.search.warmth import repeats_needed, spread

FILE = "coldstart.json"
_FIELDS = {name: f"{name}_ns" for name in QUANTITIES}
#: Repeats whose runs take turns with an idle endpoint for longer than this share of the time to the first answer say so.
_IDLE = 0.2


def coldstart(wanted: Wanted, out: Path, outputs: Sequence[Output], *, resume: bool, as_json: bool) -> int:
    """Make the repeats, sum them up, publish. Returns the exit code; raises HarnessFault before anything is started."""
    before = _before(wanted, out, resume)

    def keep(repeats: tuple[RepeatPart, ...]) -> None:
        write_json(out / FILE, document(wanted, Ran(repeats, interrupted=True)).document())

    ran = measure(wanted, out, before, keep)
    if not ran.repeats and ran.fault is not None:
        raise ran.fault
    report = document(wanted, ran)
    remedy = "make room; the same command with --resume writes it, and repeats what it then lacks"
    written = [write(output.path, output.render(report), remedy) for output in outputs]
    written += [
        write(out / name, FORMATS[kind](report), remedy) for name, kind in ((FILE, "json"), ("coldstart.html", "html"))
    ]
    report = as_written(report, written)
    if as_json:
        say(FORMATS["json"](report).decode())
    elif not any(str(output.path) == "-" for output in outputs):
        say_drawn(lambda width: render_terminal(report, width))
        if written[-1]:
            say(f"\nReport: {out / 'coldstart.html'}\n")
    tell_faults(ran.fault)
    if ran.interrupted or ran.fault is not None:
        print(f"the same command with --resume makes the repeats that {out} lacks", file=sys.stderr)
    return report.exit_code


def _before(wanted: Wanted, out: Path, resume: bool) -> tuple[RepeatPart, ...]:
    """The finished repeats of an earlier session in ``out``. Raises HarnessFault."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = any(out.iterdir())
    except OSError as error:
        raise HarnessFault(f"--out: cannot make {out} ({error.strerror}). Name a folder that you may write") from None
    if not resume:
        if taken:
            raise HarnessFault(f"--out: {out} is not empty. Name a new folder, or give --resume to go on with it")
        return ()
    path = out / FILE
    if not path.is_file():
        return ()  # it was stopped before its first repeat was over
    try:
        earlier = ColdstartReport.model_validate_json(files.read_bytes(path))
    except (OSError, ValidationError) as error:
        raise HarnessFault(f"{path}: can't be read ({type(error).__name__}). Name a new --out") from None
    here = wanted.settings()
    differ = [key for key in here if earlier.settings.get(key) != here[key]]
    if differ:
        raise HarnessFault(
            f"--resume: {out} was measured with another {', '.join(differ)}. Give the same, or a new --out"
        )
    return tuple(part for part in earlier.repeats if part.complete)[: wanted.repeats]


def document(wanted: Wanted, ran: Ran) -> ColdstartReport:
    """Everything that a renderer may show."""
    whole = [part for part in ran.repeats if part.complete]
    kept = [_goal(goal, whole) for goal in wanted.goals]
    outcome, code = _outcome(ran, whole, kept)
    return ColdstartReport(
        outcome=outcome,
        exit_code=int(code),
        start=public_command(wanted.start),
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
            f"the first start took {units.duration(found.first)} to ready, the others {units.duration(found.later)}: {why}{cure}"
        )
    if not all(part.route for part in whole):
        said.append("no health route: ready means that the port was open, and the server may have been loading still")
    idle = [part for part in whole if part.idle_ns > _IDLE * (part.first_answer_ns or 0)]
    if idle:
        most = units.duration(max(part.idle_ns for part in idle))
        said.append(
            f"up to {most} of a start passed with nothing in flight, while our runs were set up. It is left out of every time, and what "
            "the server did in it is in none of them"
        )
    for part in whole:
        said += [f"repeat {part.number}: {text}" for text in (*part.notes, *part.invalid)]
        if part.excess_ns is not None and part.excess_ns < 0:
            said.append(
                f"repeat {part.number}: it was faster before its steady level than at it. That is no warm-up: a queue that filled up, or "
                "a neighbour that came"
            )
        if part.stop_forced:
            said.append(f"repeat {part.number}: the server did not stop on SIGTERM and was killed (--stop-timeout)")
    unsettled = {part.unsettled: part.number for part in reversed(whole) if part.unsettled}
    said += [
        f"repeat {number}: no steady state found: {why}"
        for why, number in sorted(unsettled.items(), key=lambda item: item[1])
    ]
    return said
