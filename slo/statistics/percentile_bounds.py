"""Bounds of a percentile that know how slow values cluster: a value is a bound when the share beyond it is shown to be
small, or large, enough by the tests of ``slo.statistics.share``, by number or by distance.

For independent values these are the usual order statistics. Nothing is judged here; a verdict and its bounds agree
because both ask the same tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from slo.distribution import exact
from slo.records import FloatArray
from slo.statistics import confidence as sure
from slo.statistics import distance
from slo.statistics.share import Counted, Series, p_few, p_many


def bounds(
    values: FloatArray,
    laid: Series,
    p: Fraction,
    confidence: sure.Probability = "0.95",
    upward: bool | None = None,
    floor: float = 0.0,
) -> tuple[float, float]:
    """Lower and upper bound of the p-quantile of values[m], m > 0, laid along ``laid``; each alone at ``confidence``.

    ``upward``: larger values are worse, or better (False), and distance counts; None: it says nothing of this unit.
    ``floor``, and +inf, where the sample is too small for a bound: nothing can be below it.
    """
    ordered, n = np.sort(values), len(values)
    limit, alpha = 1 - p, float(1 - exact(confidence))
    lower, upper = sure.order_statistic_bounds(n, p, confidence, sides=1)

    def beyond(rank: int) -> Counted:
        return laid.count(values > ordered[rank - 1])

    def from_on(rank: int) -> Counted:
        return laid.count(values >= ordered[rank - 1])

    above = _first(lambda rank: p_few(beyond(rank), limit) <= alpha, upper, n)
    below = _first(lambda rank: p_many(from_on(n + 1 - rank), limit) <= alpha, n + 1 - lower, n)
    high = math.inf if above is None else float(ordered[above - 1])
    low = floor if below is None else float(ordered[n - below])
    bare_high = float(ordered[upper - 1]) if upper <= n else math.inf
    bare_low = float(ordered[lower - 1]) if lower >= 1 else floor
    if upward is True:
        high = min(high, max(bare_high, _far(ordered, laid, float(limit), alpha)))
        low = max(low, min(bare_low, _multiple(ordered, float(limit), alpha)))
    elif upward is False and ordered[0] > 0:
        turned = (1 / ordered)[::-1]
        low = max(low, min(bare_low, 1 / _far(turned, laid, float(p), alpha)))
        high = min(high, max(bare_high, 1 / max(_multiple(turned, float(p), alpha), 1e-300)))
    return low, high


def _far(ordered: FloatArray, laid: Series, allowed: float, alpha: float) -> float:
    """The nearest limit that passes by distance."""
    base, bulk = distance.least_of(ordered), distance.bulk_of(ordered, laid.memory, allowed)
    if bulk <= base or math.isinf(bulk):
        return max(bulk, 0.0)
    factor = max(distance.LEAST, distance.required(laid.memory, allowed) * distance.reach_for(alpha))
    return min(bulk * factor, base + (bulk - base) * factor * distance.FROM_BASE)


def _multiple(ordered: FloatArray, allowed: float, alpha: float) -> float:
    """The largest limit that Markov's inequality says is broken; 0 where it says so of none."""
    finite = ordered[: np.searchsorted(ordered, np.inf)]
    found = 0.0
    for multiple in (1.0, *distance.MULTIPLES):
        least = distance.tail(allowed, multiple) / alpha * len(ordered)
        of = ordered if multiple == 1.0 else finite  # failures are beyond the limit, and no multiple of it
        rank = len(of) - math.ceil(least)
        if 0 <= rank < len(of):
            found = max(found, float(of[rank]) / multiple)
    return found


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
