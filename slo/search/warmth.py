"""Cold starts as numbers: when a series of answers came to its level, and what several starts have in common.

A series is the latencies of one start in the order of issue, the very first request among them. MSER-5 says where the
warm-up ends; because it looks at batches of five and caps what is extreme, a single slow first request is none of its
business, so leading requests that are slower than every one of the later half are counted besides. Repeats are summed up
by order statistics: cold starts are skewed, and a few of them carry no assumption about their shape. Nothing here knows
how a server is started, and no first start is left out of a summary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.confidence import order_statistic_bounds
from plimsoll.slo.statistics.warmup import BATCH, MATERIAL, MIN_BATCHES, detect

#: With fewer repeats every first one is the least or the greatest often enough.
_FEW = 4
#: Requests without which no steady state is looked for.
FEWEST = BATCH * MIN_BATCHES


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a series came to its level.

    ``requests``: how many came before (0: it was there from the first one); ``level_ns``: median of the others;
    ``excess_ns``: what the requests before took more than that, in sum; infinite where one of them failed, and negative where
    they were the faster ones (a queue or a cache that filled up, or a neighbour that came).
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

    Leading requests that are slower than each of the later half, and more than 5 % above the level, come before it too: of a
    steady series of n the first one does so by chance once in n / 2.
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
    level = float(np.median(latency_ns[drop:]))
    if not math.isfinite(level):
        return Unsettled("most requests failed at the end of the curve")
    slower = latency_ns > max(float(latency_ns[n // 2 :].max()), level * (1 + MATERIAL))
    leading = int(np.argmin(slower)) if not slower.all() else n
    before = max(drop, leading)
    level = float(np.median(latency_ns[before:]))
    return Settled(before, level, float((latency_ns[:before] - level).sum()))


@dataclass(frozen=True, slots=True)
class Spread:
    """One quantity over all repeats that have it, the first included.

    ``first``: of the first repeat (None: it has none); ``later``: median of the others (None: there are none); ``interval``:
    of the median over starts like these, None for too few repeats; ``range_confidence``: with how much confidence ``least``
    to ``greatest`` holds that median; ``apart``: how far beyond all the others the first lies, and how far those lie apart.
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
        """The first start lies beyond all the others (three or more), further than they lie apart, and by more than 5 %."""
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
        median=float(np.median(known)),
        least=float(known[0]),
        greatest=float(known[-1]),
        first=values[0],
        later=float(np.median(later)) if later else None,
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
