"""One session of comparing: find or make the runs, compare them, publish the result, choose the exit code.

Exit codes by the outcome: 0 no regression, 1 regression, 3 inconclusive, 4 invalid; 2 for what is wrong with the
question, 5 when an arm can't be reached before the first request, 130 when the user stopped it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import Output
from plimsoll.harness.run.job import default_out, find_scenario
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.series.comparison import baseline
from plimsoll.harness.series.comparison.arms import BUNDLED, read_arms
from plimsoll.harness.series.comparison.arms import Arm as Endpoint
from plimsoll.harness.series.comparison.baseline import Baseline
from plimsoll.harness.series.comparison.replications import Read, Side, find, of_interleaving, read, unlike
from plimsoll.harness.series.comparison.rounds import Contest, carry_out_all, public_command
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.publish import duration, publish, tell
from plimsoll.reports.documents.comparison import FORMATS
from plimsoll.reports.models import comparison_parts as documents
from plimsoll.reports.models.comparison_parts import ComparisonReport
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Comparison, FalseAlarms, compare, false_alarm_rate
from plimsoll.slo.comparison.quantity import Quantity, QuantityError, every_usual, parse_all
from plimsoll.slo.objectives.objective import Objective

MAX_REPEATS = 1000
#: What to do where a file of the result can't be written.
REMEDY = "make room and compare again"
#: Fewer runs than this can rarely tell two arms apart.
ENOUGH_RUNS = 5
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a comparison, checked. ``objectives``: None for each run's own."""

    quantities: tuple[Quantity, ...] | None
    objectives: tuple[Objective, ...] | None
    tolerance: float
    share_tolerance: float
    confidence: str
    despite: tuple[str, ...] = ()
    single_run: bool = False
    proof: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The comparison, and what was read for it, base first."""

    comparison: Comparison
    sides: tuple[Read, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The question, and where the answer goes."""

    question: Question
    session: Session = field(default_factory=Session)
    save_baseline: Path | None = None
    aa: bool = False


def of_runs(texts: Sequence[str], wanted: Wanted) -> int:
    """Compare runs that are on disk. Returns the exit code; raises HarnessFault with every error."""
    outputs, said = wanted.session.outputs(FORMATS, "a comparison")
    alone = bool(wanted.aa or wanted.save_baseline)
    if not texts:
        said.append("nothing to compare. Give BASE and CANDIDATE, or --interleave SCENARIO and two --arm")
    sides: tuple[Side, ...] = ()
    try:
        sides = find(texts)
    except HarnessFault as fault:
        said += fault.errors
    if len(sides) == 1 and not alone:
        said.append(f"{texts[0]}: one side alone. Add a CANDIDATE, or --save-baseline FILE, or --aa")
    said += _which_to_keep(wanted, [side.name for side in sides])
    if said:
        raise HarnessFault(said)
    return _answer(sides, wanted, outputs, wanted.session.out, list(map(redact, sys.argv)))


def of_interleaved(
    scenario: str,
    load: Mapping[str, Any],
    asked: Asked,
    arm_texts: Sequence[str],
    repeats: int,
    cooldown: str,
    wanted: Wanted,
) -> int:
    """Make the runs, then compare them. Returns the exit code; raises HarnessFault with every error."""
    session = wanted.session
    arms, said = read_arms(arm_texts)
    outputs, problems = session.outputs(FORMATS, "a comparison")
    said += problems
    if wanted.aa and len(arm_texts) == 1 and arms:
        arms = (arms[0], arms[0].model_copy(update={"name": f"{arms[0].name}-again"}))
    elif wanted.aa and len(arms) > 1 and any(_endpoint(arm) != _endpoint(arms[0]) for arm in arms):
        said.append("--aa: the arms are not the same endpoint. Give one --arm; it runs as both")
    elif len(arm_texts) < 2:
        said.append("--interleave: give two --arm NAME=URL or more (with --aa one will do)")
    said += _which_to_keep(wanted, [arm.name for arm in arms])
    cooldown_ns = duration("--cooldown", cooldown, said)
    if not 1 <= repeats <= MAX_REPEATS:
        said.append(f"--repeats {repeats}: give a number from 1 to {MAX_REPEATS}")
    contest = Contest(scenario, load, asked, arms, repeats, cooldown_ns)
    if said:
        said += _of_scenario(scenario, load)
        raise HarnessFault(said)
    out = session.out or default_out("compare")
    ran = carry_out_all(contest, out, resume=session.resume, staff=session.staff)
    if ran.interrupted:
        return int(ExitCode.INTERRUPTED)
    if ran.fault is not None:
        raise ran.fault
    return _answer(of_interleaving(out, plan=ran.plan), wanted, outputs, out, public_command(arms))


def _which_to_keep(wanted: Wanted, names: Sequence[str]) -> list[str]:
    """Told before hours of runs are made for it."""
    if wanted.save_baseline is None or len(names) <= 2:
        return []
    return [f"--save-baseline: which of {', '.join(names)}? Give that one alone"]


def _of_scenario(scenario: str, load: Mapping[str, Any]) -> list[str]:
    """What is wrong with the scenario, besides: all errors are told at once."""
    try:
        find_scenario(scenario, load)
    except ScenarioError as error:
        return error.errors
    return []


def _endpoint(arm: Endpoint) -> Endpoint:
    return arm.model_copy(update={"name": "", "url": arm.url or BUNDLED})


def _answer(
    sides: Sequence[Side], wanted: Wanted, outputs: Sequence[Output], out: Path | None, command: Sequence[str]
) -> int:
    code, result = 0, None
    if wanted.aa:
        answer, rate = false_alarms(sides, wanted.question)
        # Surely more false alarms than the design allows: the gate is not to be trusted on this host.
        code = int(ExitCode.FAIL) if rate.interval[0] > rate.expected else _unless_undecided(rate)
        result = document(answer, command, rate, title=f"A/A of {sides[0].name}").model_copy(update={"exit_code": code})
    elif len(sides) > 1:
        result = document(ask(sides, wanted.question), command)
    if result is not None:
        own = {} if out is None else pair(out, "comparison")
        code = publish(result, FORMATS, FORMATS.terminal, outputs, own, REMEDY, as_json=wanted.session.as_json)
    if wanted.save_baseline is not None:
        _save(wanted.save_baseline, sides, wanted, code)
    return code


def _unless_undecided(rate: FalseAlarms) -> int:
    return int(ExitCode.INCONCLUSIVE if rate.undecided == rate.splits else ExitCode.PASS)


def _save(path: Path, sides: Sequence[Side], wanted: Wanted, code: int) -> None:
    """The newest side becomes the baseline, unless that would write a regression down as the new normal."""
    side = sides[-1]
    if code:
        tell(
            f"warning: {path} is not written, because {side.name} did not pass; to accept it, give it alone with "
            "--save-baseline"
        )
        return
    for text in keep_baseline(path, side, wanted.question):
        tell(f"warning: {text}")
    tell(f"baseline of {side.name}: {path}")


def question(
    metrics: Sequence[str],
    asked: Asked,
    tolerance: str,
    share_tolerance: str,
    despite: Sequence[str] = (),
    *,
    single_run: bool = False,
    proof: bool = False,
) -> tuple[Question, list[str]]:
    """The question that flags ask, and every error in them, each with its flag."""
    promises, errors = read_promises(asked)
    quantities: tuple[Quantity, ...] | None = None
    try:
        quantities = parse_all(metrics) if metrics else None
    except QuantityError as error:
        errors += [f"--metric {text}" for text in error.errors]
    fractions = []
    for flag, text in (("--tolerance", tolerance), ("--share-tolerance", share_tolerance)):
        try:
            fractions.append(percentage(text))
        except ValueError as error:
            errors.append(f"{flag} {error}")
            fractions.append(0.0)
    made = Question(
        quantities, promises.objectives if asked.any_objective else None, fractions[0], fractions[1],
        promises.confidence, tuple(despite), single_run, proof,
    )  # fmt: skip
    return made, errors


def percentage(text: str) -> float:
    """``5%`` or ``0.05`` as 0.05. Raises ValueError."""
    found = _PERCENT.fullmatch(text)
    value = Decimal(found[1]) / (100 if found[2] else 1) if found else Decimal(-1)
    if not 0 <= value < 1:
        raise ValueError(f"{text}: not a share from 0 to below 100 %. Write 5% or 0.05")
    return float(value)


def ask(sides: Sequence[Side], asked: Question) -> Answer:
    """Compare the sides with the first of them. Raises HarnessFault for what can't be read or is not like for like."""
    found, warnings = measured(sides, asked)
    arms = [side.arm for side in found]
    missing = [
        f"{side.arm.name}: no run of it holds {quantity}. Make the baseline again with --metric '{quantity}'"
        for side, given in zip(found, sides, strict=True)
        for quantity in asked.quantities or ()
        if given.baseline is not None and baseline.without([str(quantity)], given.baseline)
    ]
    if missing:
        raise HarnessFault(missing)
    return Answer(_compared(arms, asked), found, warnings)


def measured(sides: Sequence[Side], asked: Question) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    """Every side read, with warnings about what is not quite alike. Raises HarnessFault."""
    found = read(sides, _quantities(asked), asked.objectives)
    return found, unlike(found, asked.despite)


def _quantities(asked: Question) -> tuple[Quantity, ...]:
    """What to measure of each run: the quantities asked for, and what the usual ones need."""
    known = {str(quantity): quantity for quantity in every_usual()}
    return tuple((known | {str(quantity): quantity for quantity in asked.quantities or ()}).values())


def false_alarms(sides: Sequence[Side], asked: Question) -> tuple[Answer, FalseAlarms]:
    """A/A: all the runs given are of one endpoint. How often would the gate cry regression? Raises HarnessFault.

    The answer compares every other run with the rest, which is the gate as interleaving uses it.
    """
    found, warnings = measured(sides, asked)
    if any(not side.started_ns for side in found):
        raise HarnessFault("--aa: a baseline file does not say in what order its runs were made. Give run directories")
    timed = [pair for side in found for pair in zip(side.started_ns, side.arm.runs, strict=True)]
    runs = tuple(replace(run, pair=None) for _, run in sorted(timed, key=lambda pair: pair[0]))
    if len(runs) < 2:
        raise HarnessFault("--aa: one run can't be compared with itself. Make ten of one endpoint, or more")
    name = found[0].arm.name
    rate = false_alarm_rate(
        Arm(name, runs), asked.quantities, asked.tolerance, asked.confidence, share_tolerance=asked.share_tolerance
    )
    even = 2 * (len(runs) // 2)
    turns = ((f"{name}, odd runs", 0), (f"{name}, even runs", 1))
    halves = [replace(found[0], arm=Arm(label, runs[first:even:2])) for label, first in turns]
    return Answer(_compared([half.arm for half in halves], asked), tuple(halves), warnings), rate


def _compared(arms: Sequence[Arm], asked: Question) -> Comparison:
    return compare(
        arms[0], arms[1:], asked.quantities, asked.tolerance, asked.confidence, share_tolerance=asked.share_tolerance,
        single_run=asked.single_run, proof=asked.proof,
    )  # fmt: skip


def keep_baseline(path: Path, side: Side, asked: Question) -> tuple[str, ...]:
    """Write a side as a baseline file; what the user should know of it. Raises HarnessFault, also for INVALID runs."""
    if side.baseline is not None:
        raise HarnessFault(f"--save-baseline: {side.name} is a baseline file already. Copy it")
    quantities = {str(quantity): quantity for quantity in (*baseline.kept(), *_quantities(asked))}
    [found] = read([side], tuple(quantities.values()), asked.objectives)
    unlike([found], asked.despite)
    spoilt = [
        f"{run.directory}: {(*run.reasons, run.unstable)[0]}" for run in found.arm.runs if run.reasons or run.unstable
    ]
    if spoilt:
        raise HarnessFault([f"--save-baseline: {text}. A baseline is made of valid runs only" for text in spoilt])
    baseline.save(
        path, Baseline(found.arm, found.likenesses, found.limits, datetime.now(UTC).isoformat(timespec="seconds"))
    )
    notes = []
    if len(found.arm.runs) < ENOUGH_RUNS:
        notes.append(
            f"the baseline has {len(found.arm.runs)} of at least {ENOUGH_RUNS} runs: little can be shown against it"
        )
    failed = sum(run.failed for run in found.arm.runs)
    if failed:
        notes.append(f"{failed} requests of the baseline failed: whatever they reach is infinitely slow in it")
    return tuple(notes)


def document(
    answer: Answer, command: Sequence[str], false_alarms: FalseAlarms | None = None, title: str = ""
) -> ComparisonReport:
    """The comparison as a renderer takes it. ``command``: without secrets."""
    arms = [side.arm for side in answer.sides]
    return documents.build(
        answer.comparison,
        arms[0],
        arms[1:],
        title=title,
        warnings=answer.warnings,
        false_alarms=false_alarms,
        plimsoll=package_version(),
        command=shlex.join(command),
        started_at=begun(answer.sides),
    )


def begun(sides: Sequence[Read]) -> str:
    """When the first of their runs began, ISO 8601; "" where nobody knows."""
    starts = [start for side in sides for start in side.started_ns if start]
    return datetime.fromtimestamp(min(starts) / 1e9, UTC).isoformat(timespec="seconds") if starts else ""


def pair(out: Path, stem: str) -> dict[Path, str]:
    """``STEM.json`` and ``STEM.html`` in a folder, which is made, with their formats."""
    with suppress(OSError):  # said of each file that is to lie in it
        out.mkdir(parents=True, exist_ok=True)
    return {out / f"{stem}.{name}": name for name in ("json", "html")}
