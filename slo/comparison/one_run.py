"""What one run on each side says of itself: between-run variance is unknown, so it holds for these two runs only.

Requests of one run depend on each other: a queue that is long stays long for a while. So counts are divided by the base's
design effect, the verdict's own (``plimsoll.slo.statistics.share``), before they are tested. Percentiles are compared by the exact exceedance test and the interval
of all ratios that it does not reject, shares by the interval of their difference; there is no second method beside either.

It says nothing of other runs, and nothing here judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.comparison.quantity import Quantity, back, worse
from plimsoll.slo.comparison.ranks import fisher
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.confidence import clopper_pearson


@dataclass(frozen=True, slots=True)
class Within:
    """What one run knows about its own spread.

    ``ordered`` float64[n]: its values, ascending. ``design_effect``: how many of them carry as much as one independent
    value would. ``bad``, ``of``: for a share, its counts.
    """

    ordered: FloatArray
    design_effect: float
    bad: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class OneRun:
    """A single pair of runs, by one quantity.

    ``interval``: of the ratio, or of the difference of shares; ``low``, ``high``: the same where up is worse, infinite where
    there are too few values. ``base_over`` of ``base_n`` and ``candidate_over`` of ``candidate_n``: requests beyond the
    base's value (failed ones, for a share). ``p``: Fisher's exact test, one-sided, that the candidate has more of them by
    chance; ``p_less``: fewer.
    """

    interval: tuple[float, float]
    low: float
    high: float
    p: float
    p_less: float
    base_over: int
    base_n: int
    candidate_over: int
    candidate_n: int


def of_shares(quantity: Quantity, base: Within, candidate: Within, alpha: Fraction) -> OneRun:
    """Two shares of bad requests; each end of the interval is wrong with ``alpha`` at most.

    The ends are Newcombe's (1998) from exact bounds of both shares: they only rise when the candidate has one more bad.
    """
    weigh = _Weighing(base.design_effect)
    low = _least_step(weigh, base, candidate, alpha)
    high = -_least_step(weigh, candidate, base, alpha)
    return OneRun(
        back(low, high, quantity),
        low,
        high,
        weigh.more(base.bad, base.of, candidate.bad, candidate.of),
        weigh.more(candidate.bad, candidate.of, base.bad, base.of),
        base.bad,
        base.of,
        candidate.bad,
        candidate.of,
    )


def _least_step(weigh: _Weighing, first: Within, second: Within, alpha: Fraction) -> float:
    """Lower bound of how much greater the second share of bad ones is."""
    if not first.of or not second.of:
        return -math.inf
    (a, of_a), (b, of_b) = weigh.fewer(first.bad, first.of, second.bad, second.of)
    most, least = clopper_pearson(a, of_a, 1 - 2 * alpha)[1], clopper_pearson(b, of_b, 1 - 2 * alpha)[0]
    return b / of_b - a / of_a - math.hypot(b / of_b - least, most - a / of_a)


def of_percentiles(quantity: Quantity, value: float, base: Within, candidate: Within, alpha: Fraction) -> OneRun:
    """Two percentiles, the base's being ``value``: how many requests of the candidate lie beyond it, however stretched.

    A ratio is in the interval when the exceedance test at ``alpha`` does not reject it in either direction. The limit is an
    order statistic of the base, so the test counts the base as random, too.
    """
    weigh = _Weighing(base.design_effect)
    x, y = worse(base.ordered, quantity), np.sort(worse(candidate.ordered, quantity))
    limit = float(worse(np.array([value]), quantity)[0])
    n, more_n = len(x), len(y)
    over, more = int(np.count_nonzero(x > limit)), int(np.count_nonzero(y > limit))
    # No more of the candidate's than of the base's, in proportion, can't show that there are more, nor the other way round.
    alike = min(math.ceil(over * more_n / max(n, 1)), more_n)
    enough = _first(lambda count: weigh.more(over, n, count, more_n) <= alpha, more_n, alike)
    few = alike - _first(lambda gone: weigh.more(alike - gone, more_n, over, n) <= alpha, alike)
    # ``enough`` lie beyond every limit below the enough-th largest, at most ``few`` beyond the next smaller one.
    low = -math.inf if enough > more_n else _step(float(y[more_n - enough]), limit, -math.inf)
    high = math.inf if few < 0 else _step(float(y[more_n - few - 1]), limit, math.inf)
    return OneRun(
        back(low, high, quantity),
        low,
        high,
        weigh.more(over, n, more, more_n),
        weigh.more(more, more_n, over, n),
        over,
        n,
        more,
        more_n,
    )


def _first(holds: Callable[[int], bool], top: int, low: int = 0) -> int:
    """The least of low..top that ``holds``, which stays true once it is; top + 1 when none does."""
    high = top + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _step(later: float, earlier: float, unknown: float) -> float:
    """The difference; infinite from infinite is ``unknown``."""
    return unknown if later == earlier and math.isinf(later) else later - earlier


@dataclass(frozen=True, slots=True)
class _Weighing:
    """Counts as if only every ``by``-th request were worth counting, rounded against what is to be shown.

    By the base's design effect alone: the candidate's would grow with its own slowness and excuse it.
    """

    by: float

    def fewer(self, bad: int, n: int, more_bad: int, more_n: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Both counts with their totals: the first rounded up, the second down."""
        if self.by <= 1:
            return (bad, n), (more_bad, more_n)
        few, many = math.ceil(n / self.by), math.ceil(more_n / self.by)
        return (min(math.ceil(bad / self.by), few), few), (math.floor(more_bad / self.by), many)

    def more(self, bad: int, n: int, more_bad: int, more_n: int) -> float:
        """Fisher's one-sided p that the second has more."""
        first, second = self.fewer(bad, n, more_bad, more_n)
        return fisher(*first, *second)
