"""Bounds of a percentile that know how slow values cluster: a value is a bound when the share beyond it is shown to be
small, or large, enough by both tests of ``slo.statistics.share``.

For independent values these are the usual order statistics. Nothing is judged here; a verdict and its bounds agree
because both ask the same tests.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from slo.distribution import exact
from slo.indicator import Measured
from slo.statistics import confidence as sure
from slo.statistics.share import Blocks, Cut, p_few, p_many


def bounds(measured: Measured, cut: Cut, p: Fraction, confidence: sure.Probability = "0.95") -> tuple[float, float]:
    """Lower and upper bound of the p-quantile of ``measured.values``, each alone at ``confidence``.

    0 and +inf where the sample is too small for one (no indicator is negative). Needs at least one value.
    """
    ordered, n = np.sort(measured.values), measured.n
    limit, alpha = 1 - p, float(1 - exact(confidence))
    lower, upper = sure.order_statistic_bounds(n, p, confidence, sides=1)

    def beyond(rank: int) -> Blocks:
        return cut.count(measured.values > ordered[rank - 1], measured.row)

    def from_on(rank: int) -> Blocks:
        return cut.count(measured.values >= ordered[rank - 1], measured.row)

    high = _first(lambda rank: p_few(beyond(rank), limit) <= alpha, upper, n)
    low = _first(lambda rank: p_many(from_on(n + 1 - rank), limit) <= alpha, n + 1 - lower, n)
    return (
        0.0 if low is None else float(ordered[n - low]),
        float("inf") if high is None else float(ordered[high - 1]),
    )


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
