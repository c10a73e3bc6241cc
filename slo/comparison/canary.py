"""Two arms of one run, dealt by lot: is the canary worse than the base? Looked at again and again as the run goes on.

A step gives the canary one share of the queries. Arms are compared within a step only, because from step to step their
load changes, and with it their latencies. A step has ``LOOKS`` looks, at due times that are known before the run. Each
look spends a part of the error (``SPENDING``); the parts add up to one, so who looks often claims no more.

A percentile is compared by the share of values that lie beyond one limit, the percentile of both arms together after
the tolerance is taken off the canary's; a share is compared as it is. The unit is a batch of time, long against the
memory of the queues (``plimsoll.slo.statistics.memory``): batches of the two arms that lie at the same time are taken
together, so what both arms feel alike cancels. The exact test of the bare counts must agree. docs/evidence/canary.md
has the rates of both errors by simulation. Nothing is read, sent or stopped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.arms import Within, of_shares
from plimsoll.slo.comparison.quantity import Quantity, back, limits, worse
from plimsoll.slo.comparison.ranks import fisher
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import against, goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.statistics.memory import Memory, of_ranks, ranks

#: Looks of a step, at equal times.
LOOKS = 16
#: The most batches of a step, the fewest that say anything, and how many memories long one is at least.
BATCHES, LEAST_BATCHES, MEMORIES = 30, 8, 5.0


#: The part of a step's error that each look spends, 1 together. Half of it goes evenly to all looks: what breaks late
#: is seen soon; half to those at which the step has doubled, by what is new: looking costs little.
SPENDING = tuple(
    Fraction(1 + (max(1, look // 2) if look & (look - 1) == 0 else 0), 2 * LOOKS) for look in range(1, LOOKS + 1)
)


@dataclass(frozen=True, slots=True)
class Side:
    """One arm so far: ``values`` float64[n], up is worse, in order of ``due_ns`` int64[n]; a share's are 0 and 1."""

    values: FloatArray
    due_ns: IntArray
    memory: Memory
    ordered: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ordered", np.sort(self.values))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def held(self) -> float:
        """How many memories it holds."""
        return float(len(self) / max(1.0, self.memory.time) ** self.memory.doubt)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both arms by one quantity, so far. ``quantile``: of values where up is worse; None: a share. ``grown``: as if so
    many times as many requests had gone on alike.
    """

    base: Side
    canary: Side
    quantile: float | None
    grown: float = 1.0

    def p_worse(self, by: float, alpha: Fraction) -> float:
        """p value of "the canary is worse by more than this", on the scale of ``quantity.worse``.

        A canary that breaks down remembers for as long as it runs, and no batch is long against that. So by Markov's
        inequality: so many of its values beyond all of the base's are seen in at most one run of 1 / p, however long
        they hang together.
        """
        p = self._p(by, alpha, worse=True)
        if p <= float(alpha) or not len(self.canary):
            return p
        if self.quantile is None:
            bad, beyond, more = float(self.base.values.sum()), float(self.canary.values.mean()), by
        else:
            finite = self.base.values[np.isfinite(self.base.values)]
            beyond = float((self.canary.values - by > finite.max(initial=-math.inf)).mean())
            bad, more = float(len(self.base) - len(finite)), 0.0
        share = (bad + 1) / (len(self.base) / self.base.memory.design + 1) + more
        return min(p, share / beyond) if beyond else p

    def p_fine(self, by: float, alpha: Fraction) -> float:
        """p value of "it is not so much worse"."""
        return self._p(by, alpha, worse=False)

    def _p(self, by: float, alpha: Fraction, *, worse: bool) -> float:
        if not len(self.base) or not len(self.canary):
            return 1.0
        base, canary = self.marks(by)
        gap = float(canary.mean() - base.mean()) - (by if self.quantile is None else 0.0)
        if (gap <= 0) == worse:
            return 1.0
        p = self._by_batches(base, canary, gap if worse else -gap, worse=worse)
        if p > float(alpha):
            return p
        n, more_n, bad, more = (int(k * self.grown) for k in (len(base), len(canary), base.sum(), canary.sum()))
        if self.quantile is not None:
            return max(p, fisher(bad, n, more, more_n) if worse else fisher(more, more_n, bad, n))
        # A calm stretch has no bad ones in either arm: that few were seen counts as a verdict counts it.
        design = 1.0 if worse else max(self.base.memory.design, self.canary.memory.design)
        arms = [Within(np.empty(0), design, k, of) for k, of in ((bad, n), (more, more_n))]
        found = of_shares(_SHARE, arms[0], arms[1], alpha)
        return p if (found.low > by if worse else found.high < by) else 1.0

    def marks(self, by: float) -> tuple[BoolArray, BoolArray]:
        """Which values of either arm are bad, after ``by`` was taken off the canary's."""
        if self.quantile is None:
            return self.base.values > 0, self.canary.values > 0
        limit = _middle(self.base.ordered, self.canary.ordered - by, self.quantile)
        return self.base.values >= limit, self.canary.values - by >= limit

    def _by_batches(self, base: BoolArray, canary: BoolArray, gap: float, *, worse: bool) -> float:
        """Student's t of a ``gap`` above 0 between the shares of bad values, over batches of equal time."""
        from plimsoll.slo.statistics.special import stdtr

        batches = min(BATCHES, math.floor(min(self.base.held, self.canary.held) * self.grown / MEMORIES))
        if batches < LEAST_BATCHES:
            return 1.0
        first, last = (int(end(s.due_ns[at] for s in (self.base, self.canary))) for end, at in ((min, 0), (max, -1)))
        edges = np.linspace(first, last + 1, batches + 1)[1:-1]
        mine, other = (_excess(marks, side, edges) for marks, side in ((canary, self.canary), (base, self.base)))
        square = float(np.square(mine - other).sum())
        if not worse:
            # Few bad ones of the canary may be luck: it varies as the base does at the least.
            like_base = float(np.square(other).sum()) * len(self.base) / len(self.canary)
            square += max(0.0, like_base - float(np.square(mine).sum()))
        spread = math.sqrt(square / self.grown * batches / (batches - 1))
        return float(stdtr(batches - 1, -gap / spread)) if spread else 0.0


_SHARE = Quantity("ratio", "error", None, "lower", "ratio")


def _middle(one: FloatArray, other: FloatArray, quantile: float) -> float:
    """The quantile of both ascending arms together, each with the same weight."""

    def first(mine: FloatArray, others: FloatArray) -> float:
        """The least of mine at or below which so many of both are; infinite for none."""
        low, high = 0, len(mine)
        while low < high:
            middle = (low + high) // 2
            value = mine[middle]
            below = np.searchsorted(mine, value, "right") / len(mine) + np.searchsorted(others, value, "right") / len(
                others
            )
            low, high = (low, middle) if below >= 2 * quantile else (middle + 1, high)
        return float(mine[low]) if low < len(mine) else math.inf

    return min(first(one, other), first(other, one))


def _excess(marks: BoolArray, side: Side, edges: FloatArray) -> FloatArray:
    """Bad values of each batch beyond its share of them, as a part of all values."""
    places = np.concatenate([[0], np.searchsorted(side.due_ns, edges), [len(marks)]])
    bad = np.diff(np.concatenate([[0], np.cumsum(marks)])[places])
    found: FloatArray = (bad - marks.mean() * np.diff(places)) / len(marks)
    return found


# -- a run, step by step ----------------------------------------------------------------------------------------------

#: An end of an interval is looked for so far from no change: a factor of e^7 either way, or all points of a share.
_FARTHEST, _HALVINGS = 7.0, 24
#: How many times as long a run might have to be.
_TIMES = tuple(1.25**k for k in range(1, 31))
Outcome = Literal["PROMOTE", "ABORT", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class Step:
    """The canary has this ``share`` of the queries that are due from ``begin_ns`` to before ``end_ns``."""

    share: float
    begin_ns: int
    end_ns: int

    def cut_ns(self, look: int) -> int:
        """A look, from 0, is of the queries that are due before this."""
        return self.begin_ns + (self.end_ns - self.begin_ns) * (look + 1) // LOOKS


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. ``tolerances`` as of ``compare``, one for each quantity; ``limits`` say what a good request is.
    Of a step in which the canary has all there is nothing to compare, and only the last may be such a one.
    """

    quantities: tuple[Quantity, ...]
    tolerances: tuple[float, ...]
    steps: tuple[Step, ...]
    alpha: Fraction = Fraction(1, 20)
    limits: tuple[Objective, ...] = ()

    @property
    def compared(self) -> tuple[Step, ...]:
        """The steps with two arms."""
        return tuple(step for step in self.steps if step.share < 1)


@dataclass(frozen=True, slots=True)
class Weighed:
    """One quantity at one look. ``alphas``: the error of "worse", and of "fine"."""

    quantity: Quantity
    tolerance: float
    pair: Pair
    alphas: tuple[Fraction, Fraction]
    outcome: Literal["worse", "fine", "open"]

    @property
    def values(self) -> tuple[float, float]:
        """Of the base and of the canary, in the quantity's unit; NaN for no data."""
        return self._seen(self.pair.base), self._seen(self.pair.canary)

    def _seen(self, side: Side) -> float:
        if not len(side):
            return math.nan
        if self.pair.quantile is None:
            share_ = float(side.values.mean())
            return share_ if self.quantity.better == "lower" else 1 - share_
        assert self.quantity.quantile is not None
        ascending = side.ordered if self.quantity.better == "lower" else -side.ordered[::-1]
        found = quantile(ascending, self.quantity.quantile)
        # The logarithm of a whole number of ns gives it back to 12 digits, and those are the value that was measured.
        return float(f"{math.exp(found):.12g}") if found < math.inf else found

    @property
    def interval(self) -> tuple[float, float]:
        """Of the effect, as of ``compare``: the tolerances that are not shown to be broken, nor to be kept."""
        top = 1.0 if self.pair.quantile is None else _FARTHEST
        low = _edge(lambda by: self.pair.p_worse(by, self.alphas[0]) <= self.alphas[0], -top, top)
        high = _edge(lambda by: self.pair.p_fine(by, self.alphas[1]) <= self.alphas[1], top, -top)
        return back(low, high, self.quantity)

    @property
    def more(self) -> float | None:
        """So many times as many requests it would take to be decided, if all goes on alike; None: nobody can say."""
        by, (abort, promote) = limits(self.quantity, self.tolerance)[0], self.alphas
        for times in _TIMES:
            longer = replace(self.pair, grown=times)
            if longer.p_worse(by, abort) <= abort or longer.p_fine(by, promote) <= promote:
                return times
        return None


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found."""

    step: int
    look: int
    cut_ns: int
    weighed: tuple[Weighed, ...]


@dataclass(slots=True)
class Canary:
    """Takes the looks in order until it knows. ``outcome`` None: it does not, yet; ``last``: the last look of each
    step, as far as there are such. ``late`` says of an outcome and the rows of both arms whether the generator's
    lateness made it: then the next look decides, where there is one.
    """

    question: Question
    late: Callable[[Canary, Records, Records], bool] | None = None
    outcome: Outcome | None = None
    last: list[Look] = field(default_factory=list)
    _step: int = 0
    _look: int = 0

    @property
    def cut_ns(self) -> int | None:
        """The next look is of the queries due before this; None: it is decided."""
        return None if self.outcome else self.question.compared[self._step].cut_ns(self._look)

    @property
    def begin_ns(self) -> int:
        """And of those due from here on."""
        return self.question.compared[min(self._step, len(self.question.compared) - 1)].begin_ns

    def take(self, base: Records, canary: Records) -> None:
        """The next look at all measured rows so far of both arms."""
        cut_ns, steps = self.cut_ns, self.question.compared
        assert cut_ns is not None  # nobody asks once it is decided
        part = SPENDING[self._look] * self.question.alpha
        alone = part / (len(steps) * len(self.question.quantities))
        arms = [_between(one, self.begin_ns, cut_ns) for one in (base, canary)]
        final, ends = self._step == len(steps) - 1, self._look == LOOKS - 1
        asked, weighed = zip(self.question.quantities, self.question.tolerances, strict=True), []
        for one, tolerance in asked:
            weighed.append(_weigh(_pair(one, tolerance, arms, self.question.limits), one, tolerance, (alone, part)))
        self.last[self._step :] = [Look(self._step, self._look, cut_ns, tuple(weighed))]
        if any(one.outcome == "worse" for one in weighed):
            self.outcome = "ABORT"
        elif final and all(one.outcome == "fine" for one in weighed):
            self.outcome = "PROMOTE"
        elif final and ends:
            self.outcome = "INCONCLUSIVE"
        if self.outcome and self.late and not (final and ends) and self.late(self, base, canary):
            self.outcome = None
        self._step, self._look = (self._step + 1, 0) if ends and not self.outcome else (self._step, self._look + 1)


def follow(
    question: Question,
    base: Records,
    canary: Records,
    until_ns: int,
    late: Callable[[Canary, Records, Records], bool] | None = None,
) -> Canary:
    """All looks at a run of which the queries that were due before ``until_ns`` are known."""
    found = Canary(question, late)
    while (cut_ns := found.cut_ns) is not None and cut_ns <= until_ns:
        found.take(base, canary)
    return found


def stands(found: Canary, base: Records, canary: Records) -> bool:
    """Whether these rows give the same outcome at the look that decided, if their memory is that of the others."""
    look, question = found.last[-1], found.question
    arms = [_between(one, question.compared[look.step].begin_ns, look.cut_ns) for one in (base, canary)]
    words = []
    for one in look.weighed:
        made = _pair(one.quantity, one.tolerance, arms, question.limits)
        sides = (replace(made.base, memory=one.pair.base.memory), replace(made.canary, memory=one.pair.canary.memory))
        words.append(_weigh(Pair(*sides, made.quantile), one.quantity, one.tolerance, one.alphas).outcome)
    return "worse" in words if found.outcome == "ABORT" else all(word == "fine" for word in words)


def _between(records: Records, begin_ns: int, cut_ns: int) -> Records:
    due = records["due_ns"]
    return records.select(np.flatnonzero(records.in_measure & (due >= begin_ns) & (due < cut_ns)))


def remembered(values: FloatArray, by: float, in_flight: float = 0.0) -> Memory:
    """Memory of what is compared with a tolerance ``by``, in order of time: about their middle, values a quarter of the
    tolerance apart are the same. A host's drift by a per mille would be a memory of minutes, and can break no limit.
    """
    middle = float(np.median(values)) if len(values) else 0.0
    steps = np.round((values - middle) / (by / 4)) if math.isfinite(middle) and by > 0 else values
    return of_ranks(ranks(steps), in_flight)


def _pair(one: Quantity, tolerance: float, arms: Sequence[Records], limits_: Sequence[Objective]) -> Pair:
    sides = []
    for records in arms:
        due = records["due_ns"]
        if one.quantile is None:
            good = goodput(records, limits_)
            fell, row = against(one.indicator, records, good.good)
            values = fell.astype(np.float64)
            # Limits on times have values, which show a memory where the few bad ones can't.
            seen = good.severity[row] if one.indicator == "good" and good.attainment else values
        else:
            measured = measure(catalogue()[one.indicator], records)
            seen, row = np.asarray(measured.values), measured.row
            values = worse(seen, one)
        order = np.argsort(due[row], kind="stable")
        flying = share.course(records).in_flight
        if one.quantile is None:
            memory = of_ranks(ranks(seen[order]), flying)
        else:
            memory = remembered(values[order], abs(limits(one, tolerance)[0]), flying)
        sides.append(Side(values[order], due[row][order], memory))
    least = None if one.quantile is None else float(one.quantile if one.better == "lower" else 1 - one.quantile)
    return Pair(sides[0], sides[1], least)


def _weigh(pair: Pair, one: Quantity, tolerance: float, alphas: tuple[Fraction, Fraction]) -> Weighed:
    by, (abort, promote) = limits(one, tolerance)[0], alphas
    is_worse = pair.p_worse(by, abort) <= abort
    is_fine = not is_worse and pair.p_fine(by, promote) <= promote
    return Weighed(one, tolerance, pair, alphas, "worse" if is_worse else "fine" if is_fine else "open")


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """How far from ``inside`` on it holds; the infinity behind it where it does not even there."""
    if not holds(inside):
        return math.copysign(math.inf, inside)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
