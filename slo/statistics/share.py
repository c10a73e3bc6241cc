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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import distance
from plimsoll.slo.statistics import memory as remembered
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distance import Distance, chance
from plimsoll.slo.statistics.distribution import exact, median
from plimsoll.slo.statistics.memory import Blocks, Memory, blocks_of, design_effect, p_of_blocks
from plimsoll.slo.statistics.order import SLAB, Entries, Folded, Ranked, add, by_time, mapped

T = TypeVar("T")

_WINDOWS = 16
#: So many things that several judges look at are kept with a course.
_KEPT = 8
_COMPARE: Mapping[str, Callable[..., Any]] = {">": gt, ">=": ge, "<": lt, "<=": le}

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class ShareTest:
    """``p_pass``: how often a share at the limit would look at least as good as this; ``p_fail``: at least as bad.

    ``interval``: lower and upper bound of the bad share, each at the confidence alone. ``allowed``: as many bad of n
    would pass if they lay evenly (-1: n is too small for any). ``n_needed``: 0 when decided, else the total n that
    decides in nine runs of ten if the observed share and memory hold, None when no n would. ``design_effect``: how many
    entries count as one, at least 1; n / design_effect is the effective sample size. ``by``: what decided. ``memory``:
    that of the entries, by which a part of them is judged.
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
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """The measured requests in order of due time: ``place`` int64[records] of each (-1: not measured), ``number`` of
    them.

    ``in_flight``: how many were under way on average. ``span_ns``: how long so many take to send, by the rate offered
    where that is the schedule's, else by the rate at which they ended. ``window`` int64[number]: stretches of the
    schedule with a rate of their own, None where it is constant. ``growing``: the backlog grew to the end, so what
    comes is worse than what came, and how long the endpoint remembers is no question to a FAIL. ``plain``: every record
    is measured, and they are in order already.
    """

    place: IntArray
    number: int
    in_flight: float
    span_ns: int = 0
    window: IntArray | None = None
    growing: bool = False
    plain: bool = False
    _kept: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def in_order(self, values: npt.NDArray[Any], rows: IntArray) -> npt.NDArray[Any]:
        """values[m] of the measured records rows[m], each of them once, in order of due time."""
        if self.plain and len(rows) == self.number:
            return values
        found = np.empty(self.number, values.dtype)
        has = np.zeros(self.number, np.bool_)
        found[self.place[rows]] = values
        has[self.place[rows]] = True
        return found[has]

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for each of the last few keys: verdict, budget and bounds look at the same
        values.
        """
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = make()
        found: T = self._kept[key]
        return found


def course(records: Records, planned: bool = False, growing: bool = False, offered_per_s: float = 0.0) -> Course:
    """``planned``: due times are a schedule's and not the endpoint's doing, so a rate that changes may be cut at.
    ``offered_per_s``: by that schedule; 0 where there is none.

    Requests due at the same moment have no order of their own: they get one by lot.
    """
    measured = records.in_measure
    rows: slice | IntArray = slice(None) if bool(measured.all()) else np.flatnonzero(measured)
    due, done = records["due_ns"][rows], records["done_ns"][rows]
    n = len(due)
    order = by_time(due, lambda: np.random.default_rng(2).permutation(n))
    last = int(max(done.max(), due.max())) if n else 0
    span = last - int(due.min()) if n else 0
    under_way = 0
    for first in range(0, n, SLAB):
        begun, over = due[first : first + SLAB], done[first : first + SLAB]
        under_way += int((np.where(over == -1, last, over) - begun).clip(0).sum())
    plain = order is None and n == len(records)
    place = np.full(len(records), -1, np.int64)
    if order is not None:
        rows, due = order if n == len(records) else np.arange(len(records))[rows][order], due[order]
    place[rows] = np.arange(n)
    window = _windows(due) if planned else None
    sending = round(n / offered_per_s * 1e9) if offered_per_s > 0 else span
    return Course(place, n, float(under_way) / span if span > 0 else 0.0, sending, window, growing, plain)


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
    return np.repeat(np.arange(_WINDOWS), np.diff(np.append(edges[:-1], len(due))))


@dataclass(frozen=True, slots=True)
class Beyond:
    """The values on one side of a limit, which are the bad ones."""

    operator: Literal[">", ">=", "<", "<="]
    limit: float

    def of(self, values: FloatArray) -> BoolArray:
        """Which of them."""
        return np.asarray(_COMPARE[self.operator](values, self.limit))

    def number(self, ordered: Ranked) -> int:
        """How many of ascending values."""
        below = int(ordered.searchsorted(self.limit, "left" if self.operator in ("<", ">=") else "right"))
        return below if self.operator in ("<", "<=") else len(ordered) - below


class Crowd(NamedTuple):
    """How the bad values of a run lie in requests that have several: so many requests have ``most`` of theirs bad, and
    ``square`` is the mean square of what one has beyond its share.
    """

    most: int
    square: float


@dataclass(frozen=True, slots=True)
class Series:
    """Values (``entries``) of the requests of a course: ``at`` int64[records] is the place of each among the ``size``
    int64[requests] that have one; None: their own position.

    ``memory`` is that of all values; ``growing`` as of the course; ``errors``: which requests have the worst value,
    because they failed, where one did. ``crowds``: of values that are elsewhere, who knows how bad ones crowd.
    """

    entries: Entries
    at: IntArray | None
    size: IntArray
    memory: Memory
    growing: bool = False
    errors: Blocks | None = None
    crowds: Callable[[Beyond], Crowd] | None = None

    @property
    def nested(self) -> bool:
        """Whether requests have several values each."""
        return self.entries.n > len(self.size)

    def count(self, bad: BoolArray, failed: BoolArray | None = None) -> Counted:
        """Evidence about the bad[m] ones; ``failed`` bool[m], of those, have no value: they show too many bad as errors
        do.
        """
        errors = self.errors_of(self.entries.row[failed]) if failed is not None and failed.any() else None
        crowd, k = None, int(np.count_nonzero(bad))
        if self.nested:
            row = self.entries.row[bad]
            counts = np.bincount(row if self.at is None else self.at[row], minlength=len(self.size))
            crowd = self._crowd(counts.astype(np.float64), k)
        return self.counted(k, crowd, errors)

    def beyond(self, bad: Beyond, errors: Blocks | None = None) -> Counted:
        """Evidence about the bad ones; ``errors`` of them are of failures."""
        k, crowd = bad.number(self.entries.ordered), None
        if self.nested:
            crowd = self._crowd(self.by_request([bad])[0], k) if self.crowds is None else self.crowds(bad)
        return self.counted(k, crowd, errors)

    def _crowd(self, counts: FloatArray, k: int) -> Crowd:
        """Of float64[requests], the ``k`` bad values of each."""
        off = counts - k / self.entries.n * self.size
        return Crowd(int(np.count_nonzero(2 * counts > self.size)), float(np.square(off).mean()))

    def counted(self, k: int, crowd: Crowd | None, errors: Blocks | None) -> Counted:
        """Evidence about ``k`` bad values, of nested ones with how they ``crowd``."""
        n, within, requests = self.entries.n, 1.0, None
        if crowd is not None:
            requests = (crowd.most, len(self.size))
            # Too few to see how values of one request cluster: each request counts as one.
            if len(self.size) < remembered.LEAST:
                within = n / len(self.size)
            elif 0 < k < n:
                within = crowded(crowd.square, n / len(self.size), k / n)
        design = self.memory.design / self.memory.within * max(self.memory.within, within)
        return Counted(n, k, design, self.memory, errors=errors, requests=requests, growing=self.growing)

    def errors_of(self, row: IntArray) -> Blocks:
        """The requests of these records against all that have a value, in order."""
        has = np.zeros(len(self.size), np.bool_)
        has[row if self.at is None else self.at[row]] = True
        return blocks_of(has)

    def by_request(self, limits: Sequence[Beyond]) -> list[FloatArray]:
        """float64[requests] for each limit: how many bad values each request has, in order."""
        entries, records = self.entries, len(self.size if self.at is None else self.at)
        folded = entries.ordered if isinstance(entries.ordered, Folded) else None
        bands = folded.bands([bad.limit for bad in limits], records) if folded is not None else [None] * len(limits)
        found = []
        for bad, band in zip(limits, bands, strict=True):
            if band is None:
                counts = np.zeros(records)
                for values, row in entries.slabs():
                    add(counts, row[bad.of(values)])
            else:
                counts = band.beyond(bad.limit, "left" if bad.operator in ("<", ">=") else "right")
                if bad.operator in ("<", "<="):
                    assert entries.sizes is not None  # as of all lists
                    counts = entries.sizes - counts
            found.append(counts if self.at is None else self.in_order(counts))
        return found

    def in_order(self, of_records: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What each record has, of those that have a value, in order."""
        if self.at is None:
            return of_records
        found = np.empty(len(self.size), of_records.dtype)
        has = slice(None) if len(self.size) == len(self.at) else self.at >= 0
        found[self.at[has]] = of_records[has]
        return found


def series(values: FloatArray, row: IntArray, along: Course) -> Series:
    """Lay values[m] of the records at row[m] along a course; a larger value is a worse one, or the other way round."""
    return lay(Entries((values, row)), along)


def lay(entries: Entries, along: Course, worst: float | None = None) -> Series:
    """The same of values that may be in no memory. ``worst``: what failures are, where some are among them."""
    if entries.plain and along.plain and along.number == entries.n:
        at, size, window = None, _ones(entries.n), along.window
    elif entries.plain and len(along.place) == along.number == entries.n:
        at, size, window = along.place, _ones(entries.n), along.window
    else:
        at, size, window = _places(entries, along)
    bare = Series(entries, at, size, remembered.independent(len(size)), along.growing)
    if worst is not None:
        failed = [row[values == worst] for values, row in entries.slabs()]
        bare = replace(bare, errors=bare.errors_of(np.concatenate(failed)))
    if not bare.nested:
        score = remembered.centred_ranks(entries)
        ordered = score
        if at is not None:
            ordered = np.empty(len(size))
            ordered[at if entries.plain else at[entries.row]] = score
        return replace(bare, memory=remembered.of_ranks(ordered, along.in_flight, window))
    if len(size) < remembered.LEAST:
        return bare
    spread = _spread(bare)
    summed = spread.summed
    within = max(1.0, float(np.square(summed).mean()) / max(spread.square * float(size.mean()), 1e-300))
    for above in spread.above:
        share = float(above.sum()) / max(entries.n, 1)
        if 0 < share < 1:
            square = float(np.square(above - share * size).mean())
            within = max(within, crowded(square, float(size.mean()), share))
    found = remembered.of_ranks(summed, along.in_flight, window)
    return replace(bare, memory=replace(found, within=within))


#: Whole requests may be slow without showing in the ranks of all their values: shares of values below these ranks.
LEVELS = (0.9, 0.99)


class _Spread(NamedTuple):
    """Of each request the sum of its ranks about their mean, float64[requests], and how many lie above each of the
    levels; ``square``: the mean square of all.
    """

    summed: FloatArray
    square: float
    above: tuple[FloatArray, ...]


def _spread(laid: Series) -> _Spread:
    """How ranks lie in the requests that have several values; of many values in two passes, with whole sums."""
    entries, at, size = laid.entries, laid.at, laid.size
    if not isinstance(entries.ordered, Folded):
        score = remembered.centred_ranks(entries)
        place = entries.row if at is None else at[entries.row]
        above = [np.bincount(place[score > level - 0.5], minlength=len(size)).astype(np.float64) for level in LEVELS]
        summed = np.bincount(place, score, minlength=len(size)).astype(np.float64)
        return _Spread(summed, float(np.square(score).mean()), tuple(above))
    known = remembered.sample(entries)
    places, twice = remembered.Places(known), 2.0 * len(known)
    sums, squares = np.zeros(len(size if at is None else at)), 0.0
    for values, row in entries.slabs():
        rank = places.twice(values)
        add(sums, row, rank)
        squares += float(np.square(rank / twice).sum())
    mean = float(sums.sum()) / twice / entries.n
    levels = [Beyond(*places.first(places.possible / twice - mean > level - 0.5)) for level in LEVELS]
    summed = laid.in_order(sums) / twice - mean * size
    return _Spread(summed, squares / entries.n - mean * mean, tuple(laid.by_request(levels)))


def _ones(n: int) -> IntArray:
    """One value each."""
    return np.broadcast_to(np.int64(1), (n,))


def _places(entries: Entries, along: Course) -> tuple[IntArray, IntArray, IntArray | None]:
    """(place of each record among those with a value, or -1; how many values each of these has; its window)."""
    sizes = entries.sizes
    if sizes is None:
        sizes = np.bincount(entries.row, minlength=len(along.place))
    valued = sizes > 0
    at = np.where(valued, along.place, -1)
    number, window = int(np.count_nonzero(valued)), along.window
    if number < along.number:
        has = np.zeros(along.number, np.bool_)
        has[at[valued]] = True
        at[valued] = (np.cumsum(has) - 1)[at[valued]]
        window = None if window is None else window[has]
    size = np.empty(number, np.int64)
    size[at[valued]] = sizes[valued]
    return at, size, window


def crowded(square: float, each: float, share: float) -> float:
    """How many values of one request count as one: the mean square of its bad ones beyond its share, against that of
    independent ones, ``each`` a request; at least 1.
    """
    return max(1.0, square / (each * share * (1 - share)))


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
    return counted_in(blocks_of(np.asarray(bad)), growing)


def counted_in(blocks: Blocks, growing: bool = False) -> Counted:
    """The same of blocks of entries in order of due time."""
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
        memory=seen.memory,
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
    laid: Series,
    p: Fraction,
    confidence: sure.Probability = "0.95",
    *,
    upward: bool = True,
    scaled: bool = False,
    floor: float = 0.0,
) -> tuple[float, float]:
    """Lower and upper bound of the p-quantile of values along a course, one at least; each alone at ``confidence``.

    ``upward``: larger values are worse, or better (False). ``scaled``: multiples of a value mean something, so distance
    counts. ``floor``, and +inf, where the sample is too small for a bound: nothing can be below it.
    """
    alpha = float(1 - exact(confidence))
    ordered = laid.entries.ordered
    if upward:
        low, high = _by_number(laid, ordered, p, confidence, upward)
        near, far = _by_distance(ordered, laid, p, confidence, scaled, alpha)
        return max(low, near, floor), min(high, far)
    negative = mapped(ordered, np.negative, falls=True)
    low, high = _by_number(laid, negative, 1 - p, confidence, upward)
    turned = mapped(ordered, _inverse, falls=True) if scaled else negative
    near, far = _by_distance(turned, laid, 1 - p, confidence, scaled, alpha)
    if scaled:
        return max(-high, 1 / far if far > 0 else math.inf, floor), min(-low, 1 / near if near > 0 else math.inf)
    return max(-high, -far, floor), min(-low, -near)


def _inverse(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return -1 / -values


def _by_number(
    laid: Series, ordered: Ranked, p: Fraction, confidence: sure.Probability, upward: bool
) -> tuple[float, float]:
    """Where larger values of ``ordered`` are worse: the values of ``laid``, ascending, or (not ``upward``) their
    negatives. (-inf, inf): no bound.
    """
    n = len(ordered)
    limit, alpha = 1 - p, float(1 - exact(confidence))
    lower, upper = sure.order_statistic_bounds(n, p, confidence, sides=1)

    def beyond(rank: int) -> Counted:
        value = float(ordered[rank - 1])
        return laid.beyond(Beyond(">", value) if upward else Beyond("<", -value), laid.errors)

    def from_on(rank: int) -> Counted:
        value = float(ordered[rank - 1])
        return laid.beyond(Beyond(">=", value) if upward else Beyond("<=", -value), laid.errors)

    above = _first(lambda rank: p_few(beyond(rank), limit) <= alpha, upper, n)
    below = _first(lambda rank: p_many(from_on(n + 1 - rank), limit) <= alpha, n + 1 - lower, n)
    high = math.inf if above is None else float(ordered[above - 1])
    return -math.inf if below is None else float(ordered[n - below]), high


def _by_distance(
    ordered: Ranked, laid: Series, p: Fraction, confidence: sure.Probability, scaled: bool, alpha: float
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
        rest = laid.counted(0, Crowd(0, 0.0) if laid.nested else None, laid.errors)
        if p_few(replace(rest, design=1.0), limit) <= alpha:
            far = max(float(ordered[upper - 1]), _far(ordered, laid, float(limit), alpha))
    return near, far


def _far(ordered: Ranked, laid: Series, allowed: float, alpha: float) -> float:
    """The nearest limit that passes by distance."""
    base, bulk = distance.least_of(ordered), distance.bulk_of(ordered, laid.memory, allowed)
    if bulk <= base or math.isinf(bulk):
        return max(bulk, 0.0)
    factor = max(distance.LEAST, distance.required(laid.memory, allowed) * distance.reach_for(alpha))
    return min(bulk * factor, base + (bulk - base) * factor * distance.FROM_BASE)


def _multiple(ordered: Ranked, allowed: float, alpha: float, scaled: bool) -> float:
    """The largest limit that Markov's inequality says is broken, or that the whole run lies beyond; -inf: none."""
    finite = int(ordered.searchsorted(math.inf))
    found: list[tuple[int, float]] = []  # ranks are looked up together: each question may be a pass over all values
    for multiple in (1.0, *distance.MULTIPLES) if scaled else (1.0,):
        least = distance.tail(allowed, multiple) / alpha * len(ordered)
        of = len(ordered) if multiple == 1.0 else finite  # failures are beyond the limit, and no multiple of it
        rank = of - math.ceil(least)
        if 0 <= rank < of:
            found.append((rank, multiple))
    values = np.asarray(ordered[np.array([rank for rank, _ in found], np.int64)])
    most = float((values / np.array([multiple for _, multiple in found])).max(initial=-math.inf))
    return max(most, distance.whole_beyond(ordered)) if scaled and alpha >= 0.05 else most


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
