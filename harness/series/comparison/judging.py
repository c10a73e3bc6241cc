"""Compare what the arguments name: read the sides, refuse what is not like for like, judge, keep a baseline.

The verbs' own work besides flags. Nothing is sent from here; interleaved runs are made by ``harness/series/comparison/rounds.py`` first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.series.comparison import baseline
from plimsoll.harness.series.comparison.baseline import Baseline
from plimsoll.harness.series.comparison.replications import Read, Side, read, unlike
from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Comparison, compare
from plimsoll.slo.comparison.false_alarm import FalseAlarms, false_alarm_rate
from plimsoll.slo.comparison.quantity import Quantity, QuantityError, every_usual, parse_all
from plimsoll.slo.objectives.objective import Objective

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
    found = read(sides, wanted(asked), asked.objectives)
    return found, unlike(found, asked.despite)


def wanted(asked: Question) -> tuple[Quantity, ...]:
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
    quantities = {str(quantity): quantity for quantity in (*baseline.kept(), *wanted(asked))}
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
