"""How long a system remembers: how many neighbouring requests share one fate, and so how many a run is worth.

It estimates the integrated autocorrelation time of the ranks of all values, in order of due time (ranks, because a time
may be infinite): the largest of the means of the first K periodogram ordinates that is beyond what independent values
reach, and at least what Little's law makes of the part that neighbours share. Doubt scales the design effect between no
dependence and all of it. docs/evidence/statistics.md has the method and its simulation. Nothing here knows of limits,
verdicts or requests, and a series of fewer than 30 says nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.order import SLAB, Entries, Folded, buckets

#: Shorter series tell nothing of their memory and count as independent.
LEAST = 30
#: The ranks' time is multiplied by this, for the tail.
TAIL = 2.0
#: With m memories in the run it is worth m / (1 + FEW / m).
FEW = 8.0
#: Numbers of periodogram ordinates to average.
LADDER = (1, 2, 3, 4, 6, 8, 12, 16, *(2**i for i in range(5, 13)))
#: From this many ordinates on the mean counts below its limit too, once there is doubt.
STEADY_RUNG = 8
LAGS = (1, 2, 4, 8, 16)
#: Standard errors between which doubt grows from 0 to 1.
DOUBT = (1.2, 2.4)
#: Standard errors that the part which neighbours share is taken below what is seen.
SHARED = 2.0
#: A long series is added up to at most this many cells; what is left of memory within one is in the cells' variance.
CELLS = 8192
#: Values of one bucket that are looked at one by one.
FEW_LOOKS = 4
#: So many products are added up at a time: OpenBLAS begins threads for more.
PIECE = 10_000
#: More values than this are ranked by the quantiles of a sample.
RANKED = 200_000


@dataclass(frozen=True, slots=True)
class Memory:
    """``requests``: length of the series; ``time``: how many successive ones share one fate by their ranks (>= 1),
    ``own`` the same without what Little's law adds; ``doubt`` in [0, 1]: how sure it is that they do at all;
    ``within``: how many values of one request count as one (1 where each has one value).
    """

    requests: int
    time: float
    own: float
    doubt: float
    within: float = 1.0

    @property
    def design(self) -> float:
        """How many values count as one: at least 1."""
        return self.within * self._raised(self.time)

    @property
    def held(self) -> float:
        """How many memories the run holds by what the series itself shows, tail counted in and scarcity not."""
        return float(self.requests / max(1.0, (TAIL * self.own) ** self.doubt))

    def needed(self, worth: float) -> float:
        """The values it takes for a run to be worth ``worth`` independent ones, if memory is as long as it seems."""
        m = (worth + math.sqrt(worth * worth + 4 * FEW * worth)) / 2
        clustered = max(1.0, TAIL * self.time * m / worth) ** self.doubt
        return float(worth * self.within * clustered)

    def _raised(self, time: float) -> float:
        if self.doubt == 0.0:
            return 1.0
        m = self.requests / (TAIL * time)
        return float(min(max(1.0, TAIL * time * (1 + FEW / m)), self.requests) ** self.doubt)


def independent(n: int) -> Memory:
    return Memory(n, 1.0, 1.0, 0.0)


class Places:
    """Where values lie among ``ordered`` float64[m], m > 0, ascending: twice the mid-rank of each.

    Each bucket knows which of the distinct ordered values it begins with, so that a value takes a look or two instead
    of a search.
    """

    def __init__(self, ordered: FloatArray) -> None:
        begins, middles = _ties(ordered)
        self._distinct = np.append(ordered[begins[:-1]], np.nan)
        # At 2 j: values between the distinct ones j - 1 and j; at 2 j + 1: equal to j.
        self._twice = np.zeros(2 * len(begins), np.int32)
        self._twice[0::2] = 2 * begins
        self._twice[1:-1:2] = middles
        cells = buckets(self._distinct[:-1])
        self._first, self._last = int(cells[0]), int(cells[-1])
        found = np.bincount(cells - self._first, minlength=self._last - self._first + 1)
        self._begins = np.concatenate([[0], np.cumsum(found)]).astype(np.int32)

    def twice(self, values: FloatArray) -> IntArray:
        """int[k]: how many of the ordered values are below each value, and not above it, added up."""
        cells = buckets(values)
        cells -= self._first
        np.clip(cells, 0, len(self._begins) - 1, out=cells)
        place = np.take(self._begins, cells)
        for _ in range(FEW_LOOKS):
            above = np.take(self._distinct, place) < values
            if not above.any():
                break
            place += above
        else:
            left = np.flatnonzero(np.take(self._distinct, place) < values)
            place[left] = np.searchsorted(self._distinct[:-1], values[left])
        equal = np.take(self._distinct, place) == values
        place *= 2
        place += equal
        found: IntArray = np.take(self._twice, place)
        return found

    @property
    def possible(self) -> IntArray:
        """All that ``twice`` may be of a value, ascending."""
        return self._twice[:-1].astype(np.int64)

    def first(self, holds: BoolArray) -> tuple[Literal[">", ">="], float]:
        """Above which value, or from which on, ``twice`` is one of the last ``possible`` ones, those that hold."""
        before, equal = divmod(int(np.argmax(np.append(holds, True))), 2)
        values = np.concatenate([[-math.inf], self._distinct[:-1], [math.inf]])
        return (">=" if equal else ">"), float(values[before + equal])


def _ties(ordered: FloatArray) -> tuple[IntArray, IntArray]:
    """(where each distinct one of ascending values begins, and the end; twice the mid-rank of each)"""
    begins = np.append(np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])), len(ordered))
    return begins, begins[1:] + begins[:-1]


def sample(entries: Entries) -> FloatArray:
    """The values, ascending, that others are ranked among: all, or of many those at random places."""
    if entries.n <= RANKED:
        return np.asarray(
            entries.ordered[np.arange(entries.n)] if isinstance(entries.ordered, Folded) else entries.ordered
        )
    places = np.sort(np.random.default_rng(1).integers(0, entries.n, RANKED // 2))
    found, begin, first = np.empty(len(places)), 0, 0
    for values, _ in entries.slabs():
        last = first + int(np.searchsorted(places[first:], begin + len(values)))
        found[first:last] = values[places[first:last] - begin]
        begin, first = begin + len(values), last
    found.sort()
    return found


def ranks(values: FloatArray) -> FloatArray:
    """Mid-ranks of values[n] as shares of n, about their mean: float64[n]. Ties share one; +inf and -inf are values."""
    return centred_ranks(Entries((values, None)))


def centred_ranks(entries: Entries) -> FloatArray:
    """The same of values that are in memory."""
    n, found = entries.n, np.empty(entries.n)
    if n > RANKED:
        known = sample(entries)
        places = Places(known)
        for first in range(0, n, SLAB):
            found[first : first + SLAB] = places.twice(entries.values[first : first + SLAB])
        found /= 2.0 * len(known)
    elif n:
        order = np.argsort(entries.values)
        begins, middles = _ties(entries.values[order])
        found[order] = np.repeat(middles, np.diff(begins))
        found /= 2.0 * n
    if n:
        found -= found.mean()
    return found


def of_ranks(score: FloatArray, in_flight: float = 0.0, cut: IntArray | None = None) -> Memory:
    """Memory of a series score[n] with mean 0, in order of time, of which ``in_flight`` requests overlap on average.

    ``cut`` int64[n] ascending: the window that each belongs to, where the load itself changes from one to the next.
    Their means are taken out first, so memory longer than a window can't be seen then.
    """
    n = len(score)
    if n < LEAST:
        return independent(n)
    if cut is not None:
        score = score - (np.bincount(cut, score) / np.maximum(np.bincount(cut), 1))[cut]
    variance = float(np.square(score).mean())
    if variance <= 0.0:
        return independent(n)
    edges = np.linspace(0, n, min(n, CELLS) + 1).astype(np.int64)[:-1]
    cells = np.add.reduceat(score, edges) if n > CELLS else score
    lagged = _lagged(score) / (n * variance)
    return of_cells(cells, n, variance, lagged, n, in_flight, 1 if cut is None else int(cut[-1]) + 1)


def of_cells(
    cells: FloatArray, n: int, variance: float, lagged: FloatArray, seen: int, in_flight: float, lowest: int
) -> Memory:
    """The same of ``n`` scores of this variance that are added up to cells, in order of time.

    ``lagged`` float64[LAGS[-1]]: their autocorrelations, from ``seen`` of them. ``lowest``: windows whose means are
    taken out.
    """
    time, sure = _spectral(cells, n * variance, lowest)
    sums = np.cumsum(lagged)
    errors = max(float(sums[lag - 1]) * math.sqrt(seen / lag) for lag in LAGS)
    doubt = 1.0 if sure else min(max((errors - DOUBT[0]) / (DOUBT[1] - DOUBT[0]), 0.0), 1.0)
    turnover = 1 + 2 * max(float(lagged[0]) - SHARED / math.sqrt(seen), 0.0) * in_flight
    return Memory(n, max(time, turnover), time, doubt)


def _lagged(score: FloatArray) -> FloatArray:
    """The sum of score[i] * score[i + lag] for each lag up to the longest, in pieces short enough that BLAS begins no
    thread: those wait in a loop, and the last digit would depend on their number.
    """
    found = np.zeros(LAGS[-1])
    for first in range(0, len(score), PIECE):
        for lag in range(1, min(LAGS[-1], len(score) - first - 1) + 1):
            later = score[first + lag : first + lag + PIECE]
            found[lag - 1] += score[first : first + len(later)] @ later
    return found


def _spectral(cells: FloatArray, squares: float, lowest: int) -> tuple[float, bool]:
    """The largest mean of the first K periodogram ordinates over the variance (``squares``: that of all scores), and
    whether one is beyond independence.

    Windows taken out beforehand leave nothing in the first ``lowest`` ordinates: rungs begin above them.
    """
    from plimsoll.slo.statistics.special import gammaincinv

    power = np.square(np.abs(np.fft.rfft(cells)[1:])) / squares
    total = np.cumsum(power)
    first = lowest if lowest > 1 else 0
    means: list[float] = []
    time, sure, steady = 1.0, False, 1.0
    for rungs in LADDER:
        last = first + rungs
        if last > len(cells) // 4:
            break
        means.append(float(total[last - 1] - (total[first - 1] if first else 0.0)) / rungs)
        # Memory is strongest at the lowest frequencies. What comes back in step, as every tenth answer of a slow
        # backend, is none.
        mean = min(means[-1], 2 * max(means[-4:-1])) if rungs >= STEADY_RUNG else means[-1]
        if mean > float(gammaincinv(rungs, 0.995)) / rungs:
            time, sure = max(time, mean), True
        if rungs >= STEADY_RUNG:
            steady = max(steady, mean)
    return max(time, steady), sure


# -- events of which only the bad ones are known ----------------------------------------------------------------------

# They are cut in order of due time, and only what varies from block to block counts: to show few bad, only blocks worse
# than the limit speak against it; to show many, only those that are better. Under a share exactly at the limit a third
# of three times the sum of squared excesses is at least the half of the variance on that side, and the largest excess
# pays for skewness. Bursts that are rarer than a run is long can't be seen by this, or by any other test:
# docs/evidence/statistics.md has the figures.

#: Blocks of entries of which only the bad ones are known; fewer entries a block tell nothing of how they cluster.
BLOCKS = 30
MIN_BLOCK = 10
MIN_BLOCKS = 8
#: Weight of the squared excess on one side of the limit.
EXCESS_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Blocks:
    """``bad`` float64[b] and ``size`` float64[b] of contiguous blocks of entries in order of due time."""

    bad: FloatArray
    size: FloatArray

    @property
    def n(self) -> int:
        return int(self.size.sum())

    @property
    def n_bad(self) -> int:
        return int(self.bad.sum())

    @property
    def dependent(self) -> bool:
        """Whether there are enough entries to see how bad ones cluster."""
        return len(self.size) >= MIN_BLOCKS


def blocks_of(bad: BoolArray) -> Blocks:
    """Cut bad[n] into blocks of nearly equal counts."""
    n, edges = len(bad), block_edges(len(bad))
    counts = np.add.reduceat(bad, edges[:-1], dtype=np.int64) if n else np.zeros(1, np.int64)
    return Blocks(counts.astype(np.float64), np.diff(edges).astype(np.float64))


def block_edges(n: int) -> IntArray:
    """int64[blocks + 1]: the places at which n entries are cut."""
    number = max(1, min(BLOCKS, n // MIN_BLOCK))
    return np.linspace(0, n, number + 1).astype(np.int64)


def p_of_blocks(seen: Blocks, limit: Probability, side: Literal["few", "many"]) -> float:
    """p value of events of which only the bad ones are known: the worse of both tests."""
    exactly = sure.binomial_at_most if side == "few" else sure.binomial_at_least
    bare = exactly(seen.n_bad, seen.n, limit)
    return max(bare, clustered_p(seen, float(exact(limit)), side)) if seen.dependent else bare


def clustered_p(seen: Blocks, limit: float, side: Literal["few", "many"]) -> float:
    """How often bad entries that cluster as these do would, at a share of ``limit``, look as ``few`` or as ``many``.

    1 when the observed share lies on the wrong side of the limit, 0 when no block does.
    """
    from plimsoll.slo.statistics.special import stdtr

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
