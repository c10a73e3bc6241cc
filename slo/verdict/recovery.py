"""How long the endpoint took to keep an objective again after an event, and how long it did not keep it in all.

Requests lie in order of due time, and every stretch of W successive ones is looked at. A stretch breaks the objective
where more of it is bad than the objective allows. The endpoint has **recovered** with the first request after which no
stretch breaks it: within the last stretch that does, with the request from which on the rest of it keeps it. That is
what is observed. The earliest that it can have been is where the last stretch begins that is *shown* to be broken, by
the binomial test with Bonferroni's correction for the number of stretches; the latest is where the first begins from
which on every one is *shown* to keep it. PASS needs the latest within the limit, FAIL the earliest beyond it.

W is such that a quarter of the allowed bad ones pass nearly always, longer where neighbours share their fate: a
shorter fault than about W times the allowed share is none. A slower request never makes a PASS, or takes a FAIL away,
with W given. docs/evidence/statistics.md has the errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import against, goodput, over
from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, no_data
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import distance, share
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.memory import Memory, independent
from plimsoll.slo.statistics.share import Course as Along

#: A stretch with this part of the allowed bad ones is shown to keep the objective so often.
_GOOD, _POWER = Fraction(1, 4), Fraction(999, 1000)
#: A fault in which so many times the allowed share is bad is over before the latest moment as surely as asked for.
_BROKEN = 2.0
#: A run has at least so many stretches side by side, if the shortest that shows anything leaves room for them.
_SIDE_BY_SIDE = 3


@dataclass(frozen=True, slots=True)
class Stretches:
    """The stretches of ``width`` successive requests, each worth ``worth`` independent ones, by their first request.

    ``bad`` int64[requests]; ``allowed``: the share that may be.
    """

    bad: IntArray
    width: int
    worth: int
    allowed: Fraction

    @property
    def counts(self) -> IntArray:
        """int64[stretches]: how many of each are bad."""
        total = np.append(0, np.cumsum(self.bad))
        return np.asarray(total[self.width :] - total[: -self.width])

    @property
    def broken(self) -> BoolArray:
        """More than the allowed share is bad."""
        return np.asarray(self.counts > math.floor(self.allowed * self.width))

    def p_broken(self, most: int) -> float:
        """How often one of all stretches that are at the limit looks as bad as ``most`` of it bad."""
        p = sure.binomial_at_least(most * self.worth / self.width, self.worth, self.allowed)
        return min(1.0, max(p, sure.binomial_at_least(most, self.width, self.allowed)) * len(self.bad))

    def p_kept(self, most: int) -> float:
        """How often a stretch at the limit looks as good as ``most`` of it bad."""
        p = sure.binomial_at_most(most * self.worth / self.width, self.worth, self.allowed)
        return max(p, sure.binomial_at_most(most, self.width, self.allowed))

    def shown(self, alpha: float) -> tuple[BoolArray, BoolArray]:
        """bool[stretches] each: shown to be broken, shown to keep it."""
        counts, seen = self.counts, {int(k) for k in np.unique(self.counts)}
        bad = [k for k in seen if self.p_broken(k) <= alpha]
        good = [k for k in seen if self.p_kept(k) <= alpha]
        return np.isin(counts, bad), np.isin(counts, good)

    def recovered(self, first: int, alpha: float = 1.0) -> tuple[int, int, int]:
        """The request with which what begins with the stretch at ``first`` keeps the objective, the earliest and the
        latest that it can be.

        Where a share of at most ``allowed`` is bad afterwards, the likelihood ratio of a worse one, from there on,
        reaches 1 / ``alpha`` in at most ``alpha`` of all runs (Ville); backwards so does that of a small share against
        ``_BROKEN`` times the allowed one, where it was at least as bad before.
        """
        bad, most = self.bad[first:], float(self.allowed)
        reach = -math.log(alpha) * self.width / self.worth
        worse, small = min(_BROKEN**2 * most, (1 + most) / 2), most * float(_GOOD)
        forward, backward = _evidence(bad, worse, most), _evidence(bad, min(_BROKEN * most, (1 + most) / 2), small)
        here = bad[: 2 * self.width] * self.allowed.denominator - self.allowed.numerator
        peak = np.append(0, np.cumsum(here))
        seen = int(len(peak) - 1 - np.argmax(peak[::-1]))
        early = int(np.argmax(forward >= forward[: 2 * self.width].max() - reach))
        late = int(np.flatnonzero(backward >= backward.max() - reach)[-1])
        return first + seen, first + min(early, seen), first + max(late, seen)


def _evidence(bad: IntArray, one: float, other: float) -> FloatArray:
    """float64[requests + 1]: the logarithm of how much likelier so many are with the one bad share than the other."""
    steps = np.where(bad > 0, math.log(one / other), math.log((1 - one) / (1 - other)))
    return np.append(0.0, np.cumsum(steps))


def groups(marked: BoolArray) -> list[tuple[int, int]]:
    """(first, last) of each run of marked stretches."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def stretches_of(bad: BoolArray, memory: Memory, allowed: Fraction, confidence: sure.Probability) -> Stretches:
    """``memory``: of the requests where nothing is amiss."""
    least = sure.n_needed(0, 0, allowed, confidence) or 1
    worth = max(least, sure.passing(allowed, allowed * _GOOD, confidence, _POWER) or least)
    while worth > least and memory.needed(worth) * _SIDE_BY_SIDE > len(bad):
        worth = max(least, math.floor(worth * 0.9))
    return Stretches(bad.astype(np.int64), max(worth, math.ceil(memory.needed(worth))), worth, allowed)


@dataclass(frozen=True, slots=True)
class Spells:
    """Objectives on recoveries. ``moments``: ns from t0 of what they may be after: events, as they began, and phases,
    as they ended; ``others``: the objectives of the run, whose limits on single requests say what is good;
    ``widths``: of stretches, found in the records as they are, for those without the generator's lateness too.
    """

    objectives: tuple[Objective, ...]
    moments: Mapping[str, int]
    others: tuple[Objective, ...] = ()
    widths: dict[Objective, tuple[int, int]] = field(default_factory=dict, compare=False)

    @property
    def limits(self) -> tuple[Objective, ...]:
        """What is to be kept again."""
        return tuple(one.of for one in self.objectives if one.of is not None)

    def judge(
        self, records: Records, confidence: sure.Probability, along: Along | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """One verdict for each objective."""
        return tuple(self._judged(one, records, confidence) for one in self.objectives)

    def _judged(self, one: Objective, records: Records, confidence: sure.Probability) -> ObjectiveVerdict:
        of, since = one.of, 0
        assert of is not None
        assert of.allowed is not None
        if one.statistic == "recovered":
            name = one.after or next(iter(self.moments), "")
            if name not in self.moments:
                there = ", ".join(self.moments) or "nothing"
                return no_data(one, f"{name or 'no event'} did not happen in this run: there is {there}")
            since = self.moments[name]
        rows = _of(of, records, self.others, since)
        if one not in self.widths:
            made = stretches_of(rows.bad, rows.memory(of.allowed, confidence), of.allowed, confidence)
            self.widths[one] = made.width, made.worth
        found = Stretches(rows.bad.astype(np.int64), *self.widths[one], of.allowed)
        if rows.n < found.width:
            told = f"{rows.n:,} requests came then, and it takes {found.width:,} to see whether they keep {of}"
            return no_data(one, f"{told}. Measure for longer", found.width)
        return _verdict(one, rows.due - since, found, float(1 - exact(confidence)))


def split(
    objectives: Sequence[Objective], moments: Mapping[str, int]
) -> tuple[tuple[Objective, ...], tuple[Spells, ...]]:
    """The objectives on requests, and those on recoveries with what they are judged by."""
    ours, others = (tuple(one for one in objectives if (one.of is not None) == of) for of in (True, False))
    return others, (Spells(ours, moments, others),) if ours else ()


@dataclass(frozen=True, slots=True)
class _Requests:
    """Those that an objective is about, in order of due time. ``over``: how many times over its limit each is, of a
    ``timed`` one; else 1 of bad ones, and 0.
    """

    records: Records
    row: IntArray
    due: IntArray
    bad: BoolArray
    over: FloatArray
    timed: bool

    @property
    def n(self) -> int:
        return len(self.row)

    def memory(self, allowed: Fraction, confidence: sure.Probability) -> Memory:
        """Of those that no broken stretch holds: what is amiss has a memory of its own. None, where these lie so far
        within the limit that a verdict on them would ask for none (``plimsoll.slo.statistics.distance``).
        """
        first = stretches_of(self.bad, independent(self.n), allowed, confidence)
        if self.n < first.width:
            return independent(self.n)
        calm = np.ones(self.n, np.bool_)
        for begin, end in groups(first.broken):
            calm[begin : end + first.width] = False
        part = self.records.select(self.row[calm])
        if not len(part):
            return independent(0)
        found = share.series(self.over[calm], np.arange(len(part)), share.course(part)).memory
        far = distance.Distance(np.sort(self.over[calm]), found).reach(float(allowed)) if self.timed else 0.0
        return independent(self.n) if distance.chance(far) <= float(1 - exact(confidence)) else found


def _of(of: Objective, records: Records, objectives: Sequence[Objective], since: int) -> _Requests:
    """Those due from then on."""
    part = selected(records, of.where)
    if of.statistic == "ratio":
        good = goodput(part, objectives)
        bad, row = against(of.indicator, part, good.good)
        timed = of.indicator == "good" and bool(good.attainment)
        timed = timed and all(limit.objective.unit in ("ns", "per_s") for limit in good.attainment)
        times = good.severity[row] if timed else bad.astype(np.float64)
    else:
        found = measure(catalogue()[of.indicator], part, judged=True)
        row, bad, times = found.row, ~np.asarray(of.met_by(found.values)), over(of, found.values)
        timed = of.unit in ("ns", "per_s")
    due = part["due_ns"][row]
    order = np.argsort(due, kind="stable")
    order = order[due[order] >= since]
    return _Requests(part, row[order], due[order], bad[order], times[order], timed)


def recovery_of(found: Stretches, due: IntArray, alpha: float) -> tuple[float, float, float]:
    """What was observed, the least and the most, in ns; ``due`` int64[requests] from what it is counted from."""
    broken, (bad, good) = found.broken, found.shown(alpha)
    at = np.append(due, math.inf).astype(np.float64)
    observed = low = high = 0.0
    if broken.any():
        last = int(np.flatnonzero(broken)[-1])
        place, _, late = found.recovered(last, alpha)
        observed, high = (float(at[place]), float(at[late])) if last < len(broken) - 1 else (math.inf, math.inf)
    if bad.any():
        low = min(float(at[found.recovered(int(np.flatnonzero(bad)[-1]), alpha)[1]]), observed)
    if not good.all():
        high = max(high, float(at[np.flatnonzero(~good)[-1] + 1]) if good[-1] else math.inf)
    return observed, low, high


def time_out(found: Stretches, due: IntArray, alpha: float) -> tuple[float, float, float]:
    """What was observed, the least and the most of the time, in ns, in which the objective was not kept."""
    broken, (bad, good) = found.broken, found.shown(alpha)
    back = Stretches(found.bad[::-1], found.width, found.worth, found.allowed)
    n, at = len(due), np.append(due, due[-1]).astype(np.float64)
    observed = low = high = 0.0

    def ends(first: int, last: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(seen, earliest, latest) of the begin and of the end of what these stretches are in."""
        begun = back.recovered(n - found.width - first, alpha)
        return (n - begun[0], n - begun[2], n - begun[1]), found.recovered(last, alpha)

    for first, last in groups(broken):
        begin, end = ends(first, last)
        observed += float(at[end[0]] - at[begin[0]])
    for first, last in groups(bad):
        begin, end = ends(first, last)
        low += max(0.0, float(at[end[1]] - at[begin[2]]))
    for first, last in groups(~good):
        edges = [first, last + found.width]
        if (inside := np.flatnonzero(broken[first : last + 1])).size:
            begin, end = ends(first + int(inside[0]), first + int(inside[-1]))
            edges = [min(begin[1], first + found.width - 1), max(end[2], last + 1)]
        high += float(at[min(edges[1], n)] - at[edges[0]])
    return observed, min(low, observed), max(high, observed)


def _verdict(one: Objective, due: IntArray, found: Stretches, alpha: float) -> ObjectiveVerdict:
    """``due``: since what it is counted from."""
    after, p_fail = one.statistic == "recovered", None
    observed, low, high = (recovery_of if after else time_out)(found, due, alpha)
    if after:
        p_fail = found.p_broken(int(found.counts[due[: len(found.counts)] >= one.threshold].max(initial=0)))
    outcome: Outcome = "PASS" if one.met_by(high) else "INCONCLUSIVE" if one.met_by(low) else "FAIL"
    seen = show(observed, "ns") if math.isfinite(observed) else "not"
    detail = (
        f"{seen}, in the {show(float(due[-1]), 'ns')} that were seen, by stretches of {found.width:,} requests: shown "
        f"to lie between {show(low, 'ns')} and {show(high, 'ns')}"
    )
    needed = 0 if outcome != "INCONCLUSIVE" else None
    more = {"p_fail": p_fail, "entries": "requests", "failed": 0}
    return ObjectiveVerdict(one, outcome, observed, (low, high), len(due), needed, detail, **more)  # type: ignore[arg-type]
