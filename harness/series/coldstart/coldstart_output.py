"""Publish a cold start: coldstart.json before the first start and after each, coldstart.html at the end, the result on
stdout.

Exit codes: 0 measured, and every ``--slo`` kept; 1 one was not, or a first request failed; 2 usage; 4 the generator
broke its promise in a curve; 5 the command died or was never ready; 130 interrupted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.series.coldstart.asked import Goal, Wanted, public_command
from plimsoll.harness.series.coldstart.coldstart_session import Ran, measure
from plimsoll.harness.series.ledger import Ledger, Session, read_document
from plimsoll.harness.series.publish import Output, publish, tell
from plimsoll.reports.documents.coldstart import FORMATS, render_terminal
from plimsoll.reports.models.coldstart_parts import (
    QUANTITIES,
    ColdstartReport,
    GoalPart,
    Outcome,
    RepeatPart,
    SpreadPart,
)
from plimsoll.reports.wording import units
from plimsoll.slo.search.warmth import repeats_needed, spread

FILE = "coldstart.json"
_FIELDS = {name: f"{name}_ns" for name in QUANTITIES}
#: Repeats whose runs take turns with an idle endpoint for longer than this share of the time to the first answer say
#: so.
_IDLE = 0.2


def coldstart(wanted: Wanted, out: Path, outputs: Sequence[Output], session: Session) -> int:
    """Make the repeats, sum them up, publish. Returns the exit code; raises HarnessFault before anything is started."""
    before = begin(wanted, out, session.resume)

    def keep(repeats: tuple[RepeatPart, ...]) -> None:
        write_json(out / FILE, document(wanted, Ran(repeats, interrupted=True)).document())

    ran = measure(wanted, out, before, keep, session.staff)
    if not ran.repeats and ran.fault is not None:
        raise ran.fault
    report = document(wanted, ran)
    remedy = "make room; the same command with --resume writes it, and repeats what it then lacks"
    own = {out / FILE: "json", out / "coldstart.html": "html"}
    code = publish(report, FORMATS, render_terminal, outputs, own, remedy, as_json=session.as_json, fault=ran.fault)
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
    unsettled = {part.unsettled: part.number for part in reversed(whole) if part.unsettled}
    said += [
        f"repeat {number}: no steady state found: {why}"
        for why, number in sorted(unsettled.items(), key=lambda item: item[1])
    ]
    return said
