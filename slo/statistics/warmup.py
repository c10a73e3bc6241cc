"""Where does the warm-up of a run end? MSER-5 proposes how many requests to leave out, and never leaves one out.

``mser`` is the rule of White (1997) and nothing else, which finds a smallest value on a steady run as well. So
``detect`` caps the series, and proposes only a cut whose two sides differ by more than chance and by an amount that
matters, and before which no request failed and the endpoint did not stand still (``Incident``). It does not test for
stationarity (``plimsoll.slo.verdict.steadiness`` does), and no verdict depends on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.confidence import order_statistic_bounds
from plimsoll.slo.statistics.distribution import median, u_errors
from plimsoll.slo.statistics.order import by_time

BATCH = 5
#: With fewer batches than this (100 requests) nothing is proposed.
MIN_BATCHES = 20
#: Values above this quantile count as being on it. A request that failed is infinitely slow and so is among them: it
#: takes part as a slow one, and a lone time-out of a minute does not outweigh a thousand answers.
CAP = 0.95
#: Standard errors between the ranks of the requests before and after the cut.
Z_LIMIT = 3.5
#: The same for the first half of what is before the cut: a warm-up begins at the beginning. An early stall does not.
Z_FIRST_HALF = 2.5
#: A minimum this far along what was tried may as well lie beyond it: noise moves it by some batches.
NEAR_END = 0.9
#: The medians before and after the cut differ by at least this share of the latter.
MATERIAL = 0.05
#: So much more than the stretch before the cut, as a share of it, is looked at for failures and stalls: what touches it
#: counts.
REACH = 0.5
#: A stall holds up at least so many requests, and lasts so many times as long as a request usually takes; before the
#: first answer, where a slow start looks alike, twice as long.
HELD_UP = 8
STALL = 2.0
#: Longer series of batch means are correlated in blocks, at so many lags: what an FFT holds stays below 50 MB.
WHOLE = 1 << 20
LAGS = 1 << 16
#: Before the first answer slowness alone answers nothing: it goes on to answer as evenly as it was asked, half of those
#: that waited in half of that time. After a stall it is more than that by this many roots of their number (1.5 standard
#: errors).
RELEASED = 0.75


@dataclass(frozen=True, slots=True)
class Cut:
    """``statistic[d]`` = MSER of dropping ``d`` batches, for d = 0 .. k // 2 (float64); ``batches``: the d that
    minimises it, the smallest of equals; ``too_short``: it is the last one tried, so the minimum may lie beyond.
    """

    batches: int
    too_short: bool
    statistic: FloatArray


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened in the stretch before a cut, or beside it: so many requests ``failed``; ``stall``: from when to
    when nothing was answered although requests waited, None for no such time.
    """

    failed: int
    stall: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Warmup:
    """What MSER-5 says of a series, and whether it is worth proposing.

    ``drop``: requests before the cut, 0 for none; ``until_ns``: when the first request after it was due; ``before`` and
    ``after``: medians of both sides (NaN without a cut), infinite where failures reach; ``distance``: between their
    ranks, in standard errors that allow for autocorrelation, positive where the requests before the cut are the slower
    ones. ``differs``: the two sides do, by more than chance and by an amount that matters; ``incident``: then, whether
    something went wrong before the cut.
    """

    cut: Cut
    n: int
    drop: int
    until_ns: int
    before: float
    after: float
    distance: float
    differs: bool
    incident: Incident | None = None

    @property
    def too_short(self) -> bool:
        """The sides differ, and the cut is at the end of what was tried: the warm-up may be longer than half of the
        run.
        """
        return self.differs and self.cut.batches >= NEAR_END * (len(self.cut.statistic) - 1)

    @property
    def ended(self) -> bool:
        """The sides differ, and the end of the first is in sight."""
        return self.differs and not self.too_short

    @property
    def proposed(self) -> bool:
        """Worth proposing to leave out: it ended, and nothing went wrong in it."""
        return self.ended and self.incident is None


def mser(means: FloatArray) -> Cut:
    """The rule on batch means Z_1 .. Z_k: MSER(d) = sum over j > d of (Z_j - mean)^2, over (k - d)^2.

    ``means`` float64[k], finite, k >= 1 (else ValueError). O(k).
    """
    k = len(means)
    if k == 0 or not np.isfinite(means).all():
        raise ValueError("MSER wants at least one batch mean, each of them finite; cap infinite values first")
    # Sums from the end, about a value in the middle of the data: no cancellation to speak of.
    z = (means - median(means))[::-1]
    left = np.arange(1, k + 1)
    squares = np.maximum(np.cumsum(z * z) - np.cumsum(z) ** 2 / left, 0.0)
    statistic = (squares / left.astype(np.float64) ** 2)[::-1][: k // 2 + 1]
    best = int(np.argmin(statistic))
    return Cut(best, k > 1 and best == k // 2, statistic)


def capped(values: FloatArray) -> FloatArray:
    """Values with everything above the 95th percentile put on it, or on the largest finite value if that is less.

    A copy. Raises ValueError when no value is finite.
    """
    greatest = float(np.max(values, initial=-math.inf, where=np.isfinite(values)))
    if greatest == -math.inf:
        raise ValueError("not one value is finite: nothing succeeded, so there is no level to come to")
    rank = max(math.ceil(CAP * len(values)), 1) - 1
    return np.minimum(values, min(float(np.partition(values, rank)[rank]), greatest))


def detect(values: FloatArray, due_ns: IntArray) -> Warmup | None:
    """Find the end of the warm-up of ``values`` (times, +inf for a failure), which belong to requests due at
    ``due_ns``.

    They may come in any order; the order of issue is that of ``due_ns``, in which a queue or a cache sees them. None:
    fewer than 100 of them, all due at once, or no success among them. 1 M values take about 0.2 s.
    """
    n = len(values)
    if n < BATCH * MIN_BATCHES or int(np.ptp(due_ns)) == 0 or not np.isfinite(values).any():
        return None
    order = by_time(due_ns)
    series, due = (values, due_ns) if order is None else (values[order], due_ns[order])
    level = capped(series)
    k = n // BATCH
    means = level[: k * BATCH].reshape(k, BATCH).mean(axis=1)
    cut = mser(means)
    drop = cut.batches * BATCH
    if drop == 0:
        return Warmup(cut, n, 0, int(due[0]), math.nan, math.nan, 0.0, differs=False)
    before, after = median(series[:drop]), median(series[drop:])
    # Only the part after the cut tells how far requests depend on each other: before it there is the trend itself.
    slack = inflation(means[cut.batches :])
    distance = u_errors(level[:drop], level[drop:], slack)
    first = u_errors(level[: -(-drop // 2)], level[drop:], slack)
    material = math.isfinite(after) and abs(before - after) > MATERIAL * after
    beyond_chance = abs(distance) > Z_LIMIT and math.copysign(first, distance * first) > Z_FIRST_HALF
    differs = bool(beyond_chance and material)
    incident = _incident(series, due, drop, after) if differs else None
    return Warmup(cut, n, drop, int(due[drop]), before, after, distance, differs, incident)


def _incident(series: FloatArray, due: IntArray, drop: int, level: float) -> Incident | None:
    """Failures and the longest stall in the stretch before or beside the cut; ``level``: the median after the cut."""
    reach = min(len(series), drop + max(2 * BATCH, int(REACH * drop)))
    failed = int(np.count_nonzero(~np.isfinite(series[:reach])))
    stall = _stall(series, due, int(due[reach - 1]), level)
    return Incident(failed, stall) if failed or stall else None


def _stall(series: FloatArray, due: IntArray, until_ns: int, level: float) -> tuple[int, int] | None:
    """The longest time that begins before ``until_ns`` in which nothing was answered although requests waited."""
    done = np.where(np.isfinite(series), due + series, np.inf)
    ends = np.sort(done[np.isfinite(done)])
    begins = np.concatenate([[float(due[0])], ends[:-1]])
    found: tuple[int, int] | None = None
    for place in np.flatnonzero((ends - begins > STALL * level) & (begins <= until_ns)).tolist():
        begin, end = float(begins[place]), float(ends[place])
        if place == 0:
            stood = end - begin > 2 * STALL * level and _stood_at_the_start(done, due, end)
        else:
            stood = _waiting(done, due, end) >= HELD_UP
        if stood and (found is None or end - begin > found[1] - found[0]):
            found = int(begin), int(end)
    return found


def _waiting(done: FloatArray, due: IntArray, end: float) -> int:
    """Requests in flight at the end of a silence."""
    return int(np.count_nonzero(done[: int(np.searchsorted(due, end))] >= end))


def _stood_at_the_start(done: FloatArray, due: IntArray, end: float) -> bool:
    """Whether the requests due before the first answer, but for those of the first moment, were then let go together.

    Those of one moment come together anyway: a closed loop begins with as many as it has slots.
    """
    since = int(np.searchsorted(due, due[0], side="right"))
    waited = done[since : int(np.searchsorted(due, end))]
    together = int(np.count_nonzero(waited <= end + (end - float(due[0])) / 2))
    return len(waited) >= HELD_UP and together > len(waited) / 2 + RELEASED * math.sqrt(len(waited))


def inflation(series: FloatArray) -> float:
    """By how much autocorrelation multiplies the variance of a mean: 1 + 2 sum of rho, at least 1.

    The sum ends before the first pair of neighbouring lags whose sum is not positive (Geyer's initial positive
    sequence). By FFT, O(n log n); of more than a million values lags up to ``LAGS`` alone.
    """
    n = len(series)
    if n < 4:
        return 1.0
    centred = series - series.mean()
    covariance = _whole_covariance(centred) if n <= WHOLE else _covariance(centred)
    if covariance[0] <= 0.0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0.0)
    kept = pairs[: ends[0]] if len(ends) else pairs
    return max(1.0, float(2.0 * kept.sum() - 1.0))


def _whole_covariance(centred: FloatArray) -> FloatArray:
    n = len(centred)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance: FloatArray = np.fft.irfft(power, size)[: n // 2]
    return covariance


def _covariance(centred: FloatArray) -> FloatArray:
    """The same for the first lags, the sum of blocks: each with itself and what follows it."""
    found = np.zeros(LAGS)
    size = 8 * LAGS
    for first in range(0, len(centred), size - LAGS):
        block, beyond = (np.fft.rfft(centred[first : first + much], size) for much in (size - LAGS, size))
        found += np.fft.irfft(np.conj(block) * beyond, size)[:LAGS]
    return found


# -- cold starts -------------------------------------------------------------------------------------------------------

# Cold starts as numbers: when a series of answers came to its level, and what several starts have in common. A series
# is the latencies of one start in the order of issue, the very first request among them. MSER-5 says where the warm-up
# ends; because it looks at batches of five and caps what is extreme, a single slow first request is none of its
# business, so leading requests that are slower than every one of the later half are counted besides. Repeats are summed
# up by order statistics: cold starts are skewed, and a few of them carry no assumption about their shape. Nothing here
# knows how a server is started, and no first start is left out of a summary.

#: With fewer repeats every first one is the least or the greatest often enough.
_FEW = 4
#: Requests without which no steady state is looked for.
FEWEST = BATCH * MIN_BATCHES


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a series came to its level.

    ``requests``: how many came before (0: it was there from the first one); ``level_ns``: median of the others;
    ``excess_ns``: what the requests before took more than that, in sum; infinite where one of them failed, and negative
    where they were the faster ones (a queue or a cache that filled up, or a neighbour that came).
    """

    requests: int
    level_ns: float
    excess_ns: float


@dataclass(frozen=True, slots=True)
class Unsettled:
    """No steady state, and why not."""

    why: str


def settle(latency_ns: FloatArray, due_ns: IntArray) -> Settled | Unsettled:
    """Find the level of a series in the order of issue: ``latency_ns`` float64[n] (+inf: failed), ``due_ns`` ascending.

    Leading requests that are slower than each of the later half, and more than 5 % above the level, come before it too:
    of a steady series of n the first one does so by chance once in n / 2.
    """
    n = len(latency_ns)
    if n < FEWEST:
        return Unsettled(f"{n} requests are too few to tell a level from noise: it takes {FEWEST} (--requests)")
    if not np.isfinite(latency_ns).any():
        return Unsettled("not one request succeeded")
    found = detect(latency_ns, due_ns)
    if found is not None and found.too_short:
        return Unsettled("it was still changing in the middle of the curve: make it longer (--requests or --duration)")
    drop = found.drop if found is not None and found.ended else 0
    level = median(latency_ns[drop:])
    if not math.isfinite(level):
        return Unsettled("most requests failed at the end of the curve")
    slower = latency_ns > max(float(latency_ns[n // 2 :].max()), level * (1 + MATERIAL))
    leading = int(np.argmin(slower)) if not slower.all() else n
    before = max(drop, leading)
    level = median(latency_ns[before:])
    return Settled(before, level, float((latency_ns[:before] - level).sum()))


@dataclass(frozen=True, slots=True)
class Spread:
    """One quantity over all repeats that have it, the first included.

    ``first``: of the first repeat (None: it has none); ``later``: median of the others (None: there are none);
    ``interval``: of the median over starts like these, None for too few repeats; ``range_confidence``: with how much
    confidence ``least`` to ``greatest`` holds that median; ``apart``: how far beyond all the others the first lies, and
    how far those lie apart.
    """

    n: int
    median: float
    least: float
    greatest: float
    first: float | None
    later: float | None
    interval: tuple[float, float] | None
    range_confidence: float

    apart: tuple[float, float] | None = None

    @property
    def first_differs(self) -> bool:
        """The first start lies beyond all others (three or more), further than they lie apart and by more than 5 %."""
        if self.apart is None or self.later is None or self.n < _FEW:
            return False
        return self.apart[0] > max(self.apart[1], MATERIAL * self.later)


def spread(values: Sequence[float | None], confidence: Fraction | str | float = "0.95") -> Spread | None:
    """Sum up one quantity, a value per repeat in their order (None: it has none). None when no repeat has any."""
    known = np.sort(np.array([value for value in values if value is not None], np.float64))
    n = len(known)
    if n == 0:
        return None
    low, high = order_statistic_bounds(n, "0.5", confidence)
    enough = low >= 1 and high <= n
    later = [value for value in values[1:] if value is not None]
    return Spread(
        n=n,
        median=median(known),
        least=float(known[0]),
        greatest=float(known[-1]),
        first=values[0],
        later=median(later) if later else None,
        interval=(float(known[low - 1]), float(known[high - 1])) if enough else None,
        range_confidence=1 - 2.0 ** (1 - n),
        apart=_apart(values[0], later),
    )


def _apart(first: float | None, later: Sequence[float]) -> tuple[float, float] | None:
    if first is None or not later:
        return None
    nearest = max(min(later) - first, first - max(later), 0.0)
    return nearest, max(later) - min(later)


def repeats_needed(confidence: Fraction | str | float = "0.95") -> int:
    """The fewest repeats that have an interval: 6 at 95 %."""
    n = 2
    while 1 - Fraction(1, 2 ** (n - 1)) < Fraction(str(confidence)):
        n += 1
    return n
