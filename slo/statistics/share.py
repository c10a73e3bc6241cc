"""Is the share of bad entries at most what was promised, and how sure are we when neighbours share their fate?

By number, n values of which k are bad are worth n / d with k / d bad in the exact binomial test, d being the design
effect of the memory that all values show; the test of the bare counts must agree. By distance, PASS also stands when
nearly all values are far below the limit, and FAIL when Markov's inequality shows it, whatever the memory. Events of
which nothing is known but which are bad show how they cluster by blocks.

With the memory given, all of it is monotone: one more bad entry never turns FAIL into anything else, and never makes a
PASS. docs/evidence/statistics.md has the proof, and what no test that estimates the memory can promise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import distance
from plimsoll.slo.statistics import memory as remembered
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distance import Distance, chance
from plimsoll.slo.statistics.distribution import exact, median
from plimsoll.slo.statistics.memory import Blocks, Memory, blocks_of, design_effect, p_of_blocks

_WINDOWS = 16
_SLAB = 4_000_000  # values taken at a time: bounds the memory, not the result

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class ShareTest:
    """``p_pass``: how often a share at the limit would look at least as good as this; ``p_fail``: at least as bad.

    ``interval``: lower and upper bound of the bad share, each at the confidence alone. ``allowed``: as many bad of n
    would pass if they lay evenly (-1: n is too small for any). ``n_needed``: 0 when decided, else the total n that
    decides in nine runs of ten if the observed share and memory hold, None when no n would. ``design_effect``: how many
    entries count as one, at least 1; n / design_effect is the effective sample size. ``by``: what decided.
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
    """The measured requests in order of due time: ``place`` int64[records] of each (-1: not measured), ``number`` of
    them.

    ``in_flight``: how many were under way on average. ``span_ns``: how long so many take to send, by the rate offered
    where that is the schedule's, else by the rate at which they ended. ``window`` int64[number]: stretches of the
    schedule with a rate of their own, None where it is constant. ``growing``: the backlog grew to the end, so what
    comes is worse than what came, and how long the endpoint remembers is no question to a FAIL.
    """

    place: IntArray
    number: int
    in_flight: float
    span_ns: int = 0
    window: IntArray | None = None
    growing: bool = False


def course(records: Records, planned: bool = False, growing: bool = False, offered_per_s: float = 0.0) -> Course:
    """``planned``: due times are a schedule's and not the endpoint's doing, so a rate that changes may be cut at.
    ``offered_per_s``: by that schedule; 0 where there is none.

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
    sending = round(len(rows) / offered_per_s * 1e9) if offered_per_s > 0 else span
    return Course(place, len(rows), under_way / span if span > 0 else 0.0, sending, window, growing)


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
    if float(off.max()) <= 6 * max(median(within), 0.1) / math.sqrt(count):
        return None
    return np.minimum(np.searchsorted(edges, np.arange(len(due)), "right") - 1, _WINDOWS - 1)


@dataclass(frozen=True, slots=True)
class Series:
    """Values of the requests of a course, ``place`` int64[m] of each among the ``size`` int64[requests] that have one.

    ``memory`` is that of all values; ``growing`` as of the course.
    """

    place: IntArray
    size: IntArray
    memory: Memory
    growing: bool = False

    @property
    def nested(self) -> bool:
        """Whether requests have several values each."""
        return len(self.place) > len(self.size)

    def count(self, bad: BoolArray, failed: BoolArray | None = None) -> Counted:
        """Evidence about the bad[m] ones; ``failed`` bool[m], of those, have no value: they show too many bad as errors
        do.
        """
        n, k = len(bad), int(np.count_nonzero(bad))
        within, requests = 1.0, None
        if self.nested:
            counts = self._by_request(bad)
            requests = (int(np.count_nonzero(2 * counts > self.size)), len(self.size))
            # Too few to see how values of one request cluster: each request counts as one.
            if len(self.size) < remembered.LEAST:
                within = n / len(self.size)
            elif 0 < k < n:
                within = _within(counts - k / n * self.size, self.size, k / n)
        design = self.memory.design / self.memory.within * max(self.memory.within, within)
        errors = None
        if failed is not None and failed.any():
            has = np.zeros(len(self.size), bool)
            has[self.place[failed]] = True
            errors = blocks_of(has)
        return Counted(n, k, design, self.memory, errors=errors, requests=requests, growing=self.growing)

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
        return Series(place, size, remembered.of_ranks(ordered, along.in_flight, window), along.growing)
    summed: FloatArray = np.bincount(place, score, minlength=len(size)).astype(np.float64)
    if len(size) < remembered.LEAST:
        return Series(place, size, remembered.independent(len(size)), along.growing)
    within = max(1.0, float(np.square(summed).mean()) / max(float(np.square(score).mean() * size.mean()), 1e-300))
    for level in (0.9, 0.99):  # whole requests may be slow without showing in the ranks of all their values
        above = np.bincount(place[score > level - 0.5], minlength=len(size))
        share = float(above.sum()) / max(len(values), 1)
        if 0 < share < 1:
            within = max(within, _within(above - share * size, size, share))
    found = remembered.of_ranks(summed, along.in_flight, window)
    memory = Memory(found.requests, found.time, found.own, found.doubt, within)
    return Series(place, size, memory, along.growing)


def _within(event: FloatArray, size: IntArray, share: float) -> float:
    """How many values of one request count as one: the spread of their counts against independent ones; at least 1."""
    if len(size) < 2:
        return float(max(size.max(initial=1), 1))
    return max(1.0, float(np.square(event).mean()) / (float(size.mean()) * share * (1 - share)))


@dataclass(frozen=True, slots=True)
class Counted:
    """``bad`` of ``n`` entries, of which ``design`` count as one by their ``memory``.

    ``blocks``: of entries of which nothing is known but which are bad; then these show how they cluster. ``errors``: of
    the requests that failed, where the entries are values: a promise on values allows no more of them than one on
    errors does. ``requests``: (those with most of their values bad, all), where each has several: a request may be slow
    in all of them, so nothing is shown by fewer requests than it takes where each has one. ``growing`` as of the
    course.
    """

    n: int
    bad: int
    design: float
    memory: Memory
    blocks: Blocks | None = None
    errors: Blocks | None = None
    requests: tuple[int, int] | None = None
    growing: bool = False

    def p(self, limit: Probability, side: Literal["few", "many"]) -> float:
        """p value by number: the exact one of the bare counts, and the one that knows how entries cluster."""
        if self.blocks is not None:
            return p_of_blocks(self.blocks, limit, side)
        exactly = sure.binomial_at_most if side == "few" else sure.binomial_at_least
        bare = exactly(self.bad, self.n, limit)
        return bare if self.design == 1.0 else max(bare, exactly(self.bad / self.design, self.n / self.design, limit))


def counted(bad: BoolArray, growing: bool = False) -> Counted:
    """Evidence about bad[n], in order of due time, of which nothing else is known."""
    blocks = blocks_of(np.asarray(bad))
    n = blocks.n
    return Counted(n, blocks.n_bad, design_effect(blocks), remembered.independent(n), blocks, growing=growing)


def p_few(seen: Counted, limit: Probability, far: Distance | None = None) -> float:
    """p value of "the bad share is at most ``limit``"."""
    if not seen.n:
        return 1.0
    number = seen.p(limit, "few")
    if far is not None:
        number = max(
            sure.binomial_at_most(seen.bad, seen.n, limit), min(number, chance(far.reach(float(exact(limit)))))
        )
    if seen.errors is not None:  # of these neither the memory of the values tells how they cluster, nor a distance
        number = max(number, p_of_blocks(seen.errors, limit, "few"))
    return number if seen.requests is None else max(number, sure.binomial_at_most(*seen.requests, limit))


def p_many(seen: Counted, limit: Probability, far: Distance | None = None) -> float:
    """p value of "the bad share is above ``limit``"; of values Markov's inequality holds whatever the memory."""
    if not seen.n:
        return 1.0
    bare = sure.binomial_at_least(seen.bad, seen.n, limit)
    if seen.growing:
        return bare
    number = _many_by_number(seen, limit)
    if seen.blocks is not None or not seen.bad:
        return number
    bound = float(exact(limit))
    return max(bare, min(number, bound * seen.n / seen.bad, far.many(bound) if far is not None else 1.0))


def _many_by_number(seen: Counted, limit: Probability) -> float:
    """The same by counting alone: of all values, or of the failures among them."""
    number = seen.p(limit, "many")
    return number if seen.errors is None else min(number, p_of_blocks(seen.errors, limit, "many"))


def interval(seen: Counted, confidence: Probability = "0.95", far: Distance | None = None) -> tuple[float, float]:
    """Bounds of the bad share, each alone at ``confidence``: the limits that the tests don't tell from the observed
    share.

    (0, 1) for no entries. Never narrower than Clopper and Pearson's.
    """
    if not seen.n:
        return 0.0, 1.0
    low, high = sure.clopper_pearson(seen.bad, seen.n, confidence, sides=1)
    alpha = float(1 - exact(confidence)) * (1 + 1e-9)
    share = seen.bad / seen.n
    if high < 1 and p_few(seen, high, far) > alpha:
        high = _edge(high, 1.0, lambda limit: p_few(seen, limit, far) <= alpha)
    if low > 0 and p_many(seen, low, far) > alpha:
        low = _edge(low, 0.0, lambda limit: p_many(seen, limit, far) <= alpha)
    return min(low, share), max(high, share)


def _edge(inside: float, outside: float, holds: Callable[[float], bool]) -> float:
    """Between a limit that does not hold and the end of the scale: the nearest that does, to one part in 10^9."""
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if holds(middle) else (middle, outside)
    return outside


def share_test(bad: BoolArray, limit: Probability, confidence: Probability = "0.95") -> ShareTest:
    """Test bad[n], in order of due time, against a promised bad share ``limit`` strictly between 0 and 1, by number
    alone.

    Nothing is known but which ones are bad, so of few bad ones nothing shows how they cluster: give the values they
    come of where there are any (``series``). No entries: INCONCLUSIVE. Raises ValueError for a limit or confidence
    outside (0, 1).
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
    many_counted = many if seen.growing or outcome != "FAIL" else _many_by_number(seen, bound)
    if (outcome == "PASS" and p_few(seen, bound) > alpha) or (outcome == "FAIL" and many_counted > alpha):
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
    """The total, above n, that decides in nine runs of ten if share and memory hold: by number, or by distance."""
    share = Fraction(seen.bad, seen.n) if seen.n else Fraction(0)
    worth = sure.deciding(share, limit, confidence)
    if worth is None:
        return None
    bare = worth
    if not share and far is not None and far.ordered[0] < far.ordered[-1]:
        worth = math.ceil(worth * sure.CLUSTERED_NONE)
    clustered = max(seen.memory.needed(worth), worth * min(seen.design, seen.n)) if seen.design > 1 else worth
    if far is not None and share < limit:
        requests = far.needed(float(limit), float(1 - exact(confidence)))
        if requests is not None:  # the bare count has to agree, and it looks for no memory
            clustered = min(clustered, max(bare, requests * seen.n / far.memory.requests))
    parts = [clustered]
    if seen.errors is not None and share < limit:
        parts.append(_needed_of(seen.errors, limit, confidence) * seen.n / seen.errors.n)
    if seen.requests is not None and share < limit:
        slow, of = seen.requests
        parts.append((sure.deciding(Fraction(slow, of), limit, confidence) or 0) * seen.n / of)
    return max(math.ceil(max(parts)), seen.n + 1)


def _needed_of(errors: Blocks, limit: Fraction, confidence: Probability) -> float:
    """The entries that it takes to show that few of them fail, if they go on to cluster as they did."""
    worth = sure.deciding(Fraction(errors.n_bad, errors.n), limit, confidence)
    return 0.0 if worth is None else worth * design_effect(errors)


# -- bounds of a percentile -------------------------------------------------------------------------------------------

# For independent values these are the usual order statistics.


def bounds(
    values: FloatArray,
    laid: Series,
    p: Fraction,
    confidence: sure.Probability = "0.95",
    *,
    upward: bool = True,
    scaled: bool = False,
    floor: float = 0.0,
    failed: BoolArray | None = None,
) -> tuple[float, float]:
    """Lower and upper bound of the p-quantile of values[m], m > 0, laid along ``laid``; each alone at ``confidence``.

    ``upward``: larger values are worse, or better (False). ``scaled``: multiples of a value mean something, so distance
    counts. ``floor``, and +inf, where the sample is too small for a bound: nothing can be below it. ``failed`` bool[m]:
    values that are the worst there is because a request has none.
    """
    alpha = float(1 - exact(confidence))
    if upward:
        ordered = np.sort(values)
        low, high = _by_number(values, ordered, laid, p, confidence, failed)
        near, far = _by_distance(ordered, laid, p, confidence, scaled, failed, alpha)
        return max(low, near, floor), min(high, far)
    ordered = np.sort(-values)
    low, high = _by_number(-values, ordered, laid, 1 - p, confidence, failed)
    with np.errstate(divide="ignore"):
        turned = -1 / ordered if scaled else ordered
    near, far = _by_distance(turned, laid, 1 - p, confidence, scaled, failed, alpha)
    if scaled:
        return max(-high, 1 / far if far > 0 else math.inf, floor), min(-low, 1 / near if near > 0 else math.inf)
    return max(-high, -far, floor), min(-low, -near)


def _by_number(
    values: FloatArray,
    ordered: FloatArray,
    laid: Series,
    p: Fraction,
    confidence: sure.Probability,
    failed: BoolArray | None,
) -> tuple[float, float]:
    """Where larger values are worse; ``ordered``: the values, ascending. (-inf, inf): no bound."""
    n = len(values)
    limit, alpha = 1 - p, float(1 - exact(confidence))
    lower, upper = sure.order_statistic_bounds(n, p, confidence, sides=1)

    def beyond(rank: int) -> Counted:
        return laid.count(values > ordered[rank - 1], failed)

    def from_on(rank: int) -> Counted:
        return laid.count(values >= ordered[rank - 1], failed)

    above = _first(lambda rank: p_few(beyond(rank), limit) <= alpha, upper, n)
    below = _first(lambda rank: p_many(from_on(n + 1 - rank), limit) <= alpha, n + 1 - lower, n)
    high = math.inf if above is None else float(ordered[above - 1])
    return -math.inf if below is None else float(ordered[n - below]), high


def _by_distance(
    ordered: FloatArray,
    laid: Series,
    p: Fraction,
    confidence: sure.Probability,
    scaled: bool,
    failed: BoolArray | None,
    alpha: float,
) -> tuple[float, float]:
    """The largest limit that is shown to be broken and the nearest that is shown to be kept, where the bare number
    agrees.

    ``ordered`` ascending, larger is worse. (-inf, inf): distance says nothing.
    """
    lower, upper = sure.order_statistic_bounds(len(ordered), p, confidence, sides=1)
    near, far, limit = -math.inf, math.inf, 1 - p
    if lower >= 1:
        near = min(float(ordered[lower - 1]), _multiple(ordered, float(limit), alpha, scaled))
    if scaled and upper <= len(ordered):
        # What a limit beyond all of them asks beside distance: few failures, and requests enough.
        rest = laid.count(np.zeros(len(ordered), bool), failed)
        if p_few(replace(rest, design=1.0), limit) <= alpha:
            far = max(float(ordered[upper - 1]), _far(ordered, laid, float(limit), alpha))
    return near, far


def _far(ordered: FloatArray, laid: Series, allowed: float, alpha: float) -> float:
    """The nearest limit that passes by distance."""
    base, bulk = distance.least_of(ordered), distance.bulk_of(ordered, laid.memory, allowed)
    if bulk <= base or math.isinf(bulk):
        return max(bulk, 0.0)
    factor = max(distance.LEAST, distance.required(laid.memory, allowed) * distance.reach_for(alpha))
    return min(bulk * factor, base + (bulk - base) * factor * distance.FROM_BASE)


def _multiple(ordered: FloatArray, allowed: float, alpha: float, scaled: bool) -> float:
    """The largest limit that Markov's inequality says is broken, or that the whole run lies beyond; -inf: none."""
    finite = ordered[: np.searchsorted(ordered, np.inf)]
    found = -math.inf
    for multiple in (1.0, *distance.MULTIPLES) if scaled else (1.0,):
        least = distance.tail(allowed, multiple) / alpha * len(ordered)
        of = ordered if multiple == 1.0 else finite  # failures are beyond the limit, and no multiple of it
        rank = len(of) - math.ceil(least)
        if 0 <= rank < len(of):
            found = max(found, float(of[rank]) / multiple)
    return max(found, distance.whole_beyond(ordered)) if scaled and alpha >= 0.05 else found


def _first(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    """The smallest rank from ``start`` to ``most`` that holds, where all after it do; None when none does.

    Gallops, because the answer is nearly always at or just after the start, and each question counts all values.
    """
    if start > most:
        return None
    if holds(start):
        return start
    bad, step = start, 1
    while bad + step < most and not holds(bad + step):
        bad, step = bad + step, step * 2
    good = min(bad + step, most)
    if good == most and not holds(most):
        return None
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if holds(middle) else (middle, good)
    return good
