"""How much of its best an endpoint still gets done under more than it can do, whom it serves, and if it comes back.

``retained(good{phase=x3})``: good requests per second of the time in which the phase's requests were due, as a share of
the phase that got most done. ``fairness(good)``: the good share of the class served worst as a share of the best served
one's. Both are quotients of shares whose bounds (``statistics/share.py``) hold together at the confidence (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import BESIDE, Objective, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, no_data
from plimsoll.slo.objectives.selector import PHASE, rows_of
from plimsoll.slo.objectives.selector import split as told_apart
from plimsoll.slo.records.records import BoolArray, Records, Status
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.share import Course

#: Errors at which a FAIL is tried for its p value, as shares of the one asked for.
_ERRORS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.5)
#: A phase of fewer requests has no rate: theirs is the chance of a few gaps, and would be the best of all or none.
RATED = 10
#: It is broken at the end where it can't have recovered before this part of what was seen.
_END = 0.9
#: What waits gets less if it does by more than so many standard errors of the requests that came and went.
_SHRINKS = 3.0

State = Literal["recovered", "draining", "metastable", "unclear"]


@dataclass(frozen=True, slots=True)
class Lot:
    """Requests that are held against others: ``bad`` bool[n] in order of due time, ``per_s`` due (1: their share)."""

    label: str
    name: str
    bad: BoolArray
    per_s: float

    @property
    def rated(self) -> bool:
        """Enough of them came for a rate; a share needs no rate."""
        return self.label != PHASE or len(self.bad) >= RATED

    @property
    def good_per_s(self) -> float:
        return self.per_s * (1 - float(self.bad.mean()))

    def bounds(self, alpha: Fraction | None) -> tuple[float, float]:
        """Of the good ones per second, each alone at the error ``alpha``; None: as observed."""
        if alpha is None:
            return self.good_per_s, self.good_per_s
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
    ours, others = (tuple(one for one in objectives if (one.statistic in BESIDE) == of) for of in (True, False))
    return others, (Beside(ours, tuple(one for one in others if one.scope == "request")),) if ours else ()


def lots(label: str, records: Records, good: BoolArray, among: BoolArray) -> list[Lot]:
    """The measured requests ``among`` bool[records] by the values of a label; those without one are in none."""
    found, seen = [], told_apart(label, records)
    for name, where in zip(seen.values, seen.conditions, strict=True):
        rows = np.flatnonzero(rows_of(where, records) & records.in_measure & among)
        if len(rows) and where[0].values != ("",):
            due = records["due_ns"][rows]
            per_s = (len(rows) - 1) * 1e9 / max(int(np.ptp(due)), 1) if label == PHASE else 1.0
            found.append(Lot(label, name, ~good[rows[np.argsort(due, kind="stable")]], per_s))
    return found


def _judged(one: Objective, records: Records, good: BoolArray, alpha: Fraction) -> ObjectiveVerdict:
    label = BESIDE[one.statistic or ""]
    rest = tuple(part for part in one.where if part.label != label)
    those, others = (lots(label, records, good, rows_of(where, records)) for where in (one.where, rest))
    others, enough = [lot for lot in others if lot.rated], all(lot.rated for lot in those)
    if not those or not enough or len(others) < 2 or not any(lot.good_per_s for lot in others):
        there = ", ".join(lot.name for lot in others) or "nothing"
        each_of = f", each of {RATED} requests or more" if label == PHASE else ""
        told = f"{one.statistic} takes good requests in two values of {label}{each_of}, and there is {there}"
        return no_data(one, told)
    each = alpha / (len(others) + len(those))
    observed, (low, high) = _quotient(those, others, None)[0], _quotient(those, others, each)
    outcome: Outcome = "PASS" if one.met_by(low) else "INCONCLUSIVE" if one.met_by(high) else "FAIL"
    least = (e for e in _ERRORS if not one.met_by(_quotient(those, others, each * Fraction(e))[1]))
    p_fail = float(alpha) * next(least, 1.0) if outcome == "FAIL" else 1.0
    detail = f"{show(observed, 'ratio')}, shown to lie between {show(low, 'ratio')} and {show(high, 'ratio')}"
    n, off = sum(len(lot.bad) for lot in those), abs(observed - one.threshold)
    needed = None if outcome == "INCONCLUSIVE" else 0
    if needed is None and off:  # bounds come nearer as the root of the number
        needed = math.ceil(n * max(observed - low, high - observed, off) ** 2 / off**2)
    return ObjectiveVerdict(
        one, outcome, observed, (low, high), n, needed, detail, p_fail=p_fail, entries="requests", failed=0
    )


def _quotient(those: Sequence[Lot], others: Sequence[Lot], alpha: Fraction | None) -> tuple[float, float]:
    """Bounds of the least of ``those`` by the best of ``others``, which hold together where those of each lot do."""

    def ends(side: Sequence[Lot], pick: Callable[[Iterable[float]], float]) -> tuple[float, float]:
        found = [lot.bounds(alpha) for lot in side]
        return pick(low for low, _ in found), pick(high for _, high in found)

    (low, high), (least, most) = ends(those, min), ends(others, max)
    return min(low / most, 1.0), min(high / least, 1.0) if least else 1.0


def aftermath(records: Records, verdict: ObjectiveVerdict, since_ns: int) -> tuple[State, int, tuple[int, int]]:
    """What became of the endpoint since the load had gone, until when that was seen, and how many requests were in
    flight in the middle and at the end of it. ``verdict``: on ``recovered`` since then.

    Shown to be broken to the end, it is draining where fewer wait then than in the middle, by more than chance, and
    else metastable. What is neither that nor shown to have recovered is unclear, and so is a run that was cut short.
    """
    due, done = records["due_ns"], records["done_ns"]
    until = int(due.max())
    middle = (since_ns + until) // 2
    over = np.where(done == -1, np.iinfo(np.int64).max, done)
    (came, went), (came_by, went_by) = ((int((due <= at).sum()), int((over <= at).sum())) for at in (middle, until))
    waiting, moved = (came - went, came_by - went_by), came_by - came + went_by - went
    state: State = "unclear"
    if (records["status"] == Status.UNSENT).any():
        return state, until, waiting
    if math.isfinite(verdict.interval[1]):
        state = "recovered"
    elif math.isinf(verdict.observed) and verdict.interval[0] > _END * (until - since_ns):
        state = "draining" if waiting[0] - waiting[1] > _SHRINKS * math.sqrt(moved) else "metastable"
    return state, until, waiting
