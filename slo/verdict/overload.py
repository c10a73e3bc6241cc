"""What an endpoint does with more than it can do: how much of its best it still gets done, whom it serves, and whether
it comes back when the load has gone.

``retained(good{phase=x3})``: good requests per second of the time in which the phase's requests were due, as a share of
the phase that got most done. ``fairness(good)``: the good share of the class served worst as a share of that of the one
served best. Each is a quotient of shares with bounds of their own (``statistics/share.py``), all of which hold together
at the confidence (Bonferroni), so those of the quotient do.

It is **metastable** where it is still broken when the load has gone and what waits does not get less: nothing that was
seen will end it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import BESIDE, Objective, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, no_data
from plimsoll.slo.objectives.selector import PHASE, Condition, Selector, rows_of, selected
from plimsoll.slo.objectives.selector import split as told_apart
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distribution import exact, quantile
from plimsoll.slo.statistics.share import Course

#: Errors at which a FAIL is tried for its p value, as shares of the one asked for.
_ERRORS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.5)
#: What waits gets less if it does by more than so many standard errors of the requests that came and went.
_SHRINKS = 3.0

After = Literal["recovered", "draining", "metastable", "unclear"]


@dataclass(frozen=True, slots=True)
class Lot:
    """Requests that are held against others. ``bad`` bool[n] in order of due time; ``per_s``: how many were due."""

    name: str
    bad: BoolArray
    per_s: float = 1.0

    @property
    def good_per_s(self) -> float:
        return self.per_s * (1 - float(self.bad.mean()))

    def bounds(self, alpha: Fraction) -> tuple[float, float]:
        """Of the good ones per second, each alone at the error ``alpha``."""
        low, high = share.interval(share.counted(self.bad), 1 - alpha)
        return self.per_s * (1 - high), self.per_s * (1 - low)


@dataclass(frozen=True, slots=True)
class Beside:
    """Objectives on ``retained`` and ``fairness``; ``limits``: on single requests, which say what is good."""

    objectives: tuple[Objective, ...]
    limits: tuple[Objective, ...]

    def judge(
        self, records: Records, confidence: sure.Probability, along: Course | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """One verdict for each objective."""
        good = goodput(records, self.limits).good
        return tuple(_judged(one, records, good, 1 - exact(confidence)) for one in self.objectives)


def split(objectives: Sequence[Objective]) -> tuple[tuple[Objective, ...], tuple[Beside, ...]]:
    """The objectives on requests as such, and those on quotients with what they are judged by."""
    ours = tuple(one for one in objectives if one.statistic in BESIDE)
    others = tuple(one for one in objectives if one.statistic not in BESIDE)
    return others, (Beside(ours, tuple(one for one in others if one.scope == "request")),) if ours else ()


def lots(label: str, records: Records, good: BoolArray, among: BoolArray, per_second: bool = False) -> list[Lot]:
    """The measured requests ``among`` bool[records] by the values of a label; those without one are in none."""
    found = []
    for name, where in _values(label, records):
        rows = np.flatnonzero(rows_of(where, records) & records.in_measure & among)
        if len(rows):
            due = records["due_ns"][rows]
            found.append(Lot(name, ~good[rows[np.argsort(due, kind="stable")]], _rate(due) if per_second else 1.0))
    return found


def _values(label: str, records: Records) -> list[tuple[str, Selector]]:
    seen = told_apart(label, records)
    pairs = zip(seen.values, seen.conditions, strict=True)
    return [(name, where) for name, where in pairs if where[0].values != ("",)]


def _rate(due: IntArray) -> float:
    span = float(np.ptp(due))
    return (len(due) - 1) * 1e9 / span if span else 0.0


def _judged(one: Objective, records: Records, good: BoolArray, alpha: Fraction) -> ObjectiveVerdict:
    label = BESIDE[one.statistic or ""]
    rest = tuple(part for part in one.where if part.label != label)
    others = lots(label, records, good, rows_of(rest, records), label == PHASE)
    those = lots(label, records, good, rows_of(one.where, records), label == PHASE)
    if not those or len(others) < 2 or not any(lot.good_per_s for lot in others):
        there = ", ".join(lot.name for lot in others) or "nothing"
        why = f"requests that are good are needed in two {label}s, and there is {there}"
        return no_data(one, f"no {one.statistic} to judge: {why}. Measure more of them")
    each = alpha / (len(others) + len(those))
    observed, low, high = _quotient(those, others, None)[0], *_quotient(those, others, each)
    outcome: Outcome = "PASS" if one.met_by(low) else "INCONCLUSIVE" if one.met_by(high) else "FAIL"
    p_fail = 1.0
    if outcome == "FAIL":
        least = (e for e in _ERRORS if not one.met_by(_quotient(those, others, each * Fraction(e))[1]))
        p_fail = float(alpha) * next(least, 1.0)
    least_lot, best = (pick(lots_, key=lambda lot: lot.good_per_s) for pick, lots_ in ((min, those), (max, others)))
    unit = "per_s" if label == PHASE else "ratio"
    detail = (
        f"{least_lot.name} has {show(least_lot.good_per_s, unit)} good, {best.name}, the best, "
        f"{show(best.good_per_s, unit)}: shown to lie between {show(low, 'ratio')} and {show(high, 'ratio')}"
    )
    n, off, needed = sum(len(lot.bad) for lot in those), abs(observed - one.threshold), 0
    if outcome == "INCONCLUSIVE" and off:  # bounds come nearer as the root of the number
        needed = math.ceil(n * max(observed - low, high - observed, off) ** 2 / off**2)
    return ObjectiveVerdict(
        one, outcome, observed, (low, high), n, needed, detail, p_fail=p_fail, entries="requests", failed=0
    )


def _quotient(those: Sequence[Lot], others: Sequence[Lot], alpha: Fraction | None) -> tuple[float, float]:
    """Bounds of the least of ``those`` by the best of ``others``; without an error, what was observed, twice."""

    def ends(lots_: Sequence[Lot], pick: Callable[[Iterable[float]], float]) -> tuple[float, float]:
        found = [(lot.good_per_s, lot.good_per_s) if alpha is None else lot.bounds(alpha) for lot in lots_]
        return pick(low for low, _ in found), pick(high for _, high in found)

    (low, high), (least, most) = ends(those, min), ends(others, max)
    return min(low / most, 1.0), min(high / least, 1.0) if least else 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """A phase of the run. Rates are per second of the time in which its requests were due.

    ``retained``: of the best phase's good ones; ``refused``: share of all; ``admitted``: the good share of the others;
    ``refusal_ns``: p99 of the time that it took to turn one away. None: there was none.
    """

    name: str
    offered_per_s: float
    good_per_s: float
    retained: float | None
    refused: float
    admitted: float | None
    refusal_ns: float | None
    classes: Mapping[str, float]


def steps(records: Records, limits: Sequence[Objective]) -> list[Step]:
    """Every phase in order; ``classes``: the good share of each, of a mix."""
    good, every = goodput(records, limits).good, np.ones(len(records), np.bool_)
    found = lots(PHASE, records, good, every, per_second=True)
    best = max((lot.good_per_s for lot in found), default=0.0)
    return [_step(lot, best, records, good) for lot in found]


def _step(lot: Lot, best: float, records: Records, good: BoolArray) -> Step:
    among = rows_of((Condition(PHASE, "=", (lot.name,)),), records)
    rows = among & records.in_measure
    refused = rows & (records["status"] == Status.REFUSED)
    taken = int(rows.sum()) - int(refused.sum())
    took = measure(catalogue()["latency"], selected(records.select(refused), (Condition("refused"),))).ordered
    return Step(
        lot.name,
        lot.per_s,
        lot.good_per_s,
        lot.good_per_s / best if best else None,
        float(refused.sum() / rows.sum()),
        float(good[rows].sum() / taken) if taken else None,
        quantile(took, "0.99") if len(took) else None,
        {one.name: one.good_per_s for one in lots("class", records, good, among)},
    )


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The time after the load had gone, at ``since_ns``, by the objective that is to be kept again.

    ``back_ns``: how long it took (None: it did not come back) and ``bounds_ns`` of that; ``waiting``: requests in
    flight in the middle and at the end of it.
    """

    state: After
    back_ns: float | None
    bounds_ns: tuple[float, float]
    since_ns: int
    until_ns: int
    waiting: tuple[int, int]


def aftermath(records: Records, verdict: ObjectiveVerdict, since_ns: int) -> Aftermath:
    """``verdict``: on ``recovered`` since then.

    Broken at the end, and shown to be so beyond the middle, it is draining where fewer wait at the end than then, by
    more than chance, and else metastable. What is neither that nor shown to have recovered is unclear.
    """
    due, done = records["due_ns"], records["done_ns"]
    until = int(due.max())
    broken = math.isinf(verdict.observed) and verdict.interval[0] > (until - since_ns) / 2
    edges = np.array([(since_ns + until) // 2, until])
    over = np.where(done == -1, np.iinfo(np.int64).max, done)
    came, went = ((stamp[:, None] <= edges).sum(axis=0) for stamp in (due, over))
    waiting = (int(came[0] - went[0]), int(came[1] - went[1]))
    moved = float(came[1] - came[0] + went[1] - went[0])
    shrinks = waiting[0] - waiting[1] > _SHRINKS * math.sqrt(moved)
    state: After = "unclear"
    if math.isfinite(verdict.interval[1]):
        state = "recovered"
    elif broken:
        state = "draining" if shrinks else "metastable"
    back = verdict.observed if math.isfinite(verdict.observed) else None
    return Aftermath(state, back, verdict.interval, since_ns, until, waiting)
