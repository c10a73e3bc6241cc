"""Is the share of bad entries at most what was promised, and how sure are we when neighbours share their fate?

Number: n values of which k are bad are worth n / d with k / d bad in the exact binomial test (Clopper and Pearson 1934), d
being the design effect of the memory that all values show (``slo.statistics.memory``), few as the bad ones may be. The exact
test of the bare counts must agree too, so nothing is ever shown by fewer requests than independent ones would take.

Distance (``slo.statistics.distance``): where a run holds few memories, counting can't show what every value shows. PASS also
stands when nearly all values are far below the limit, on the assumption that beyond what was seen the tail falls as a
queue's does; a rare slow mode that the run never met breaks it, as it breaks any short run. FAIL also stands when twenty
times the share that may be bad is (Markov's inequality, whatever the memory), or twenty times the share that may be beyond
some multiple of the limit.

Events of which nothing is known but which are bad (errors, slices) have no values to show a memory. They are cut into
BLOCKS in order of due time, and only what varies from block to block counts: to show few bad, only blocks worse than the
limit speak against it; to show many, only those that are better. Under a share exactly at the limit a third of three times
the sum of squared excesses is at least the half of the variance on that side, and the largest excess pays for skewness.

With the memory given, all are monotone: one more bad entry never turns FAIL into anything else, and never makes a PASS.
No test that estimates the memory of values can promise that of it as well: docs/statistics.md has the proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from slo.distribution import exact
from slo.records import BoolArray, FloatArray, IntArray, Records
from slo.statistics import confidence as sure
from slo.statistics import memory as remembered
from slo.statistics.confidence import Probability
from slo.statistics.distance import Distance, chance
from slo.statistics.memory import Memory

#: Blocks of entries of which only the bad ones are known; fewer entries a block tell nothing of how they cluster.
BLOCKS = 30
MIN_BLOCK = 10
MIN_BLOCKS = 8
#: Weight of the squared excess on one side of the limit.
EXCESS_WEIGHT = 3.0
_WINDOWS = 16
_SLAB = 4_000_000  # values taken at a time: bounds the memory, not the result

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class ShareTest:
    """``p_pass``: how often a share at the limit would look at least as good as this; ``p_fail``: at least as bad.

    ``interval``: lower and upper bound of the bad share, each at the confidence alone. ``allowed``: as many bad of n
    would pass if they lay evenly (-1: n is too small for any). ``n_needed``: 0 when decided, else the total n that decides
    in nine runs of ten if the observed share and memory hold, None when no n would. ``design_effect``: how many entries
    count as one, at least 1; n / design_effect is the effective sample size. ``by``: what decided.
    """

    outcome: Outcome
    p_pass: float
    p_fail: float
    interval: tuple[float, float]
    n: int
    bad: int
    allowed: int
    n_needed: int | None
    design_effect: float
    by: Literal["number", "distance", ""] = "number"


@dataclass(frozen=True, slots=True)
class Course:
    """The measured requests in order of due time: ``place`` int64[records] of each (-1: not measured), ``number`` of them.

    ``in_flight``: how many were under way on average, over ``span_ns``. ``window`` int64[number]: stretches of the schedule with a rate of
    their own, None where it is constant.
    """

    place: IntArray
    number: int
    in_flight: float
    span_ns: int = 0
    window: IntArray | None = None


def course(records: Records, planned: bool = False) -> Course:
    """``planned``: due times are a schedule's and not the endpoint's doing, so a rate that changes may be cut at.

    Requests due at the same moment have no order of their own: they get one by lot.
    """
    rows = np.flatnonzero(records.in_measure)
    due = records["due_ns"][rows]
    order = np.lexsort((np.random.default_rng(2).permutation(len(rows)), due))
    place = np.full(len(records), -1, np.int64)
    place[rows[order]] = np.arange(len(rows))
    done = records["done_ns"][rows]
    last = int(max(done.max(), due.max())) if len(rows) else 0
    span = last - int(due.min()) if len(rows) else 0
    under_way = float((np.where(done == -1, last, done) - due).clip(0).sum())
    window = _windows(due[order]) if planned else None
    return Course(place, len(rows), under_way / span if span > 0 else 0.0, span, window)


def _windows(due: IntArray) -> IntArray | None:
    """Equal counts, if they take times that a constant rate would not give them: beyond six standard errors."""
    count = len(due) // _WINDOWS
    if count < remembered.LEAST:
        return None
    edges = np.linspace(0, len(due) - 1, _WINDOWS + 1).astype(np.int64)
    took = np.diff(due[edges]).astype(np.float64)
    gaps = np.diff(due).astype(np.float64)
    within = [float(np.std(gaps[a:b])) / max(float(np.mean(gaps[a:b])), 1.0) for a, b in itertools.pairwise(edges)]
    off = np.abs(took / max(took.mean(), 1.0) - 1)
    if float(off.max()) <= 6 * max(float(np.median(within)), 0.1) / math.sqrt(count):
        return None
    return np.minimum(np.searchsorted(edges, np.arange(len(due)), "right") - 1, _WINDOWS - 1)


@dataclass(frozen=True, slots=True)
class Series:
    """Values of the requests of a course, ``place`` int64[m] of each among the ``size`` int64[requests] that have one.

    ``memory`` is that of all values.
    """

    place: IntArray
    size: IntArray
    memory: Memory

    @property
    def nested(self) -> bool:
        """Whether requests have several values each."""
        return len(self.place) > len(self.size)

    def count(self, bad: BoolArray, failed: BoolArray | None = None) -> Counted:
        """Evidence about the bad[m] ones; ``failed`` bool[m], of those, have no value: they show too many bad as errors do."""
        n, k = len(bad), int(np.count_nonzero(bad))
        within, blocks = 1.0, None
        if self.nested and len(self.size) < remembered.LEAST:  # too few requests for a memory: each is a block
            blocks = Blocks(self._by_request(bad), self.size.astype(np.float64))
        elif self.nested and 0 < k < n:
            within = _within(self._by_request(bad) - k / n * self.size, self.size, k / n)
        design = self.memory.design / self.memory.within * max(self.memory.within, within)
        errors = None
        if failed is not None and failed.any():
            has = np.zeros(len(self.size), bool)
            has[self.place[failed]] = True
            errors = blocks_of(has)
        return Counted(n, k, design, self.memory, blocks, errors)

    def _by_request(self, bad: BoolArray) -> FloatArray:
        counts = np.zeros(len(self.size))
        for first in range(0, len(bad), _SLAB):
            part = slice(first, first + _SLAB)
            counts += np.bincount(self.place[part][bad[part]], minlength=len(self.size))
        return counts


def series(values: FloatArray, row: IntArray, along: Course) -> Series:
    """Lay values[m] of the records at row[m] along a course; a larger value is a worse one, or the other way round."""
    on = along.place[row]
    count = np.bincount(on, minlength=along.number)
    has = count > 0
    place = (np.cumsum(has) - 1)[on]
    size = count[has]
    score = remembered.ranks(values)
    window = None if along.window is None else along.window[has]
    if len(values) == len(size):
        ordered = np.empty(len(size))
        ordered[place] = score
        return Series(place, size, remembered.of_ranks(ordered, along.in_flight, window))
    summed: FloatArray = np.bincount(place, score, minlength=len(size)).astype(np.float64)
    if len(size) < remembered.LEAST:
        return Series(place, size, remembered.independent(len(size)))
    within = max(1.0, float(np.square(summed).mean()) / max(float(np.square(score).mean() * size.mean()), 1e-300))
    for level in (0.9, 0.99):  # whole requests may be slow without showing in the ranks of all their values
        above = np.bincount(place[score > level - 0.5], minlength=len(size))
        share = float(above.sum()) / max(len(values), 1)
        if 0 < share < 1:
            within = max(within, _within(above - share * size, size, share))
    found = remembered.of_ranks(summed, along.in_flight, window)
    memory = Memory(found.requests, found.time, found.own, found.doubt, within)
    return Series(place, size, memory)


def _within(event: FloatArray, size: IntArray, share: float) -> float:
    """How many values of one request count as one: the spread of their counts against independent ones; at least 1."""
    if len(size) < 2:
        return float(max(size.max(initial=1), 1))
    return max(1.0, float(np.square(event).mean()) / (float(size.mean()) * share * (1 - share)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """``bad`` float64[b] and ``size`` float64[b] of contiguous blocks of entries in order of due time."""

    bad: FloatArray
    size: FloatArray

    @property
    def n(self) -> int:
        """Number of entries."""
        return int(self.size.sum())

    @property
    def n_bad(self) -> int:
        """Number of bad ones."""
        return int(self.bad.sum())

    @property
    def dependent(self) -> bool:
        """Whether there are enough entries to see how bad ones cluster."""
        return len(self.size) >= MIN_BLOCKS


def blocks_of(bad: BoolArray) -> Blocks:
    """Cut bad[n] into blocks of nearly equal counts."""
    n = len(bad)
    number = max(1, min(BLOCKS, n // MIN_BLOCK))
    edges = np.linspace(0, n, number + 1).astype(np.int64)
    counts = np.add.reduceat(bad, edges[:-1], dtype=np.int64) if n else np.zeros(1, np.int64)
    return Blocks(counts.astype(np.float64), np.diff(edges).astype(np.float64))


@dataclass(frozen=True, slots=True)
class Counted:
    """``bad`` of ``n`` entries, of which ``design`` count as one by their ``memory``.

    ``blocks``: of entries of which nothing is known but which are bad; then these show how they cluster. ``errors``: of the
    requests that failed, where the entries are values: more of them than may be bad break a promise on values too.
    """

    n: int
    bad: int
    design: float
    memory: Memory
    blocks: Blocks | None = None
    errors: Blocks | None = None

    def p(self, limit: Probability, side: Literal["few", "many"]) -> float:
        """p value by number: the exact one of the bare counts, and the one that knows how entries cluster."""
        if self.blocks is not None:
            return _by_blocks(self.blocks, limit, side)
        exactly = sure.binomial_at_most if side == "few" else sure.binomial_at_least
        bare = exactly(self.bad, self.n, limit)
        return bare if self.design == 1.0 else max(bare, exactly(self.bad / self.design, self.n / self.design, limit))


def counted(bad: BoolArray) -> Counted:
    """Evidence about bad[n], in order of due time, of which nothing else is known."""
    blocks = blocks_of(np.asarray(bad))
    n = blocks.n
    return Counted(n, blocks.n_bad, design_effect(blocks), remembered.independent(n), blocks)


def _by_blocks(seen: Blocks, limit: Probability, side: Literal["few", "many"]) -> float:
    """p value of events of which only the bad ones are known: the worse of both tests."""
    exactly = sure.binomial_at_most if side == "few" else sure.binomial_at_least
    bare = exactly(seen.n_bad, seen.n, limit)
    return max(bare, clustered_p(seen, float(exact(limit)), side)) if seen.dependent else bare


def clustered_p(seen: Blocks, limit: float, side: Literal["few", "many"]) -> float:
    """How often bad entries that cluster as these do would, at a share of ``limit``, look as ``few`` or as ``many``.

    1 when the observed share lies on the wrong side of the limit, 0 when no block does.
    """
    from scipy.special import stdtr

    excess = seen.bad - limit * seen.size
    if side == "many":
        excess = -excess
    against = np.maximum(excess, 0.0)
    gap = -float(excess.sum()) - float(against.max())
    if gap <= 0:
        return 1.0
    spread = math.sqrt(EXCESS_WEIGHT * float(np.square(against).sum()))
    return float(stdtr(len(seen.size) - 1, -gap / spread)) if spread else 0.0


def design_effect(seen: Blocks) -> float:
    """How much more block counts vary than independent entries would: at least 1. For display; no verdict uses it."""
    share = seen.n_bad / seen.n if seen.n else 0.0
    if not seen.dependent or not 0.0 < share < 1.0:
        return 1.0
    rest = seen.bad - share * seen.size
    expected = share * (1 - share) * float(seen.size.sum())
    b = len(seen.size)
    return max(1.0, float(np.square(rest).sum()) * b / (b - 1) / expected)


def p_few(seen: Counted, limit: Probability, far: Distance | None = None) -> float:
    """p value of "the bad share is at most ``limit``"."""
    if not seen.n:
        return 1.0
    number = seen.p(limit, "few")
    if far is None:
        return number
    return max(sure.binomial_at_most(seen.bad, seen.n, limit), min(number, chance(far.reach(float(exact(limit))))))


def p_many(seen: Counted, limit: Probability, far: Distance | None = None) -> float:
    """p value of "the bad share is above ``limit``"; of values Markov's inequality holds whatever the memory."""
    if not seen.n:
        return 1.0
    number = seen.p(limit, "many")
    if seen.blocks is not None or not seen.bad:
        return number
    bound = float(exact(limit))
    number = min(number, bound * seen.n / seen.bad, far.many(bound) if far is not None else 1.0)
    if seen.errors is not None:
        number = min(number, _by_blocks(seen.errors, limit, "many"))
    return max(sure.binomial_at_least(seen.bad, seen.n, limit), number)


def interval(seen: Counted, confidence: Probability = "0.95", far: Distance | None = None) -> tuple[float, float]:
    """Bounds of the bad share, each alone at ``confidence``: the limits that the tests don't tell from the observed share.

    (0, 1) for no entries. Never narrower than Clopper and Pearson's.
    """
    if not seen.n:
        return 0.0, 1.0
    low, high = sure.clopper_pearson(seen.bad, seen.n, confidence, sides=1)
    alpha = float(1 - exact(confidence)) * (1 + 1e-9)
    share = seen.bad / seen.n
    if high < 1 and p_few(seen, high, far) > alpha:
        high = _edge(high, 1.0, lambda limit: p_few(seen, limit, far) <= alpha)
    if low > 0 and p_many(seen, low) > alpha:
        low = _edge(low, 0.0, lambda limit: p_many(seen, limit) <= alpha)
    return min(low, share), max(high, share)


def _edge(inside: float, outside: float, holds: Callable[[float], bool]) -> float:
    """Between a limit that does not hold and the end of the scale: the nearest that does, to one part in 10^9."""
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if holds(middle) else (middle, outside)
    return outside


def share_test(bad: BoolArray, limit: Probability, confidence: Probability = "0.95") -> ShareTest:
    """Test bad[n], in order of due time, against a promised bad share ``limit`` strictly between 0 and 1, by number alone.

    Nothing is known but which ones are bad, so of few bad ones nothing shows how they cluster: give the values they come
    of where there are any (``series``). No entries: INCONCLUSIVE. Raises ValueError for a limit or confidence outside (0, 1).
    """
    return weigh(counted(bad), limit, confidence)


def weigh(
    seen: Counted, limit: Probability, confidence: Probability = "0.95", far: Distance | None = None
) -> ShareTest:
    """The verdict on evidence. Raises ValueError for a limit or confidence outside (0, 1)."""
    bound = exact(limit)
    if not 0 < bound < 1:
        raise ValueError(f"limit {limit}: lies strictly between 0 and 1")
    alpha = float(1 - exact(confidence))
    few, many = p_few(seen, bound, far), p_many(seen, bound, far)
    outcome: Outcome = "FAIL" if many <= alpha else "PASS" if few <= alpha else "INCONCLUSIVE"
    by: Literal["number", "distance", ""] = "number" if outcome != "INCONCLUSIVE" else ""
    if (outcome == "PASS" and p_few(seen, bound) > alpha) or (outcome == "FAIL" and p_many(seen, bound) > alpha):
        by = "distance"
    return ShareTest(
        outcome=outcome,
        p_pass=few,
        p_fail=many,
        interval=interval(seen, confidence, far),
        n=seen.n,
        bad=seen.bad,
        allowed=sure.most_bad_allowed(seen.n, bound, confidence),
        n_needed=needed(seen, bound, confidence, far) if outcome == "INCONCLUSIVE" else 0,
        design_effect=seen.design,
        by=by,
    )


def needed(seen: Counted, limit: Fraction, confidence: Probability, far: Distance | None = None) -> int | None:
    """The total, above what there is, that decides in nine runs of ten if share and memory hold: by number, or by distance
    where that takes fewer.
    """
    share = Fraction(seen.bad, seen.n) if seen.n else Fraction(0)
    worth = sure.deciding(share, limit, confidence)
    if worth is None:
        return None
    clustered = max(seen.memory.needed(worth), worth * min(seen.design, seen.n)) if seen.design > 1 else worth
    if far is not None and share < limit:
        requests = far.needed(float(limit), float(1 - exact(confidence)))
        if requests is not None:
            clustered = min(clustered, max(worth, requests * seen.n / far.memory.requests))
    return max(math.ceil(clustered), seen.n + 1)
