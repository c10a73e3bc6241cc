"""Bounds of a percentile that know how slow values cluster: a value is a bound when the share beyond it is shown to be
small, or large, enough by the tests of ``plimsoll.slo.statistics.share``, by number or by distance.

For independent values these are the usual order statistics. Nothing is judged here; a verdict and its bounds agree
because both ask the same tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import distance
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.share import Counted, Series, p_few, p_many


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

    ``upward``: larger values are worse, or better (False). ``scaled``: multiples of a value mean something, so distance counts.
    ``floor``, and +inf, where the sample is too small for a bound: nothing can be below it. ``failed`` bool[m]: values that
    are the worst there is because a request has none.
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
    """The largest limit that is shown to be broken and the nearest that is shown to be kept, where the bare number agrees.

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
    """The largest limit that Markov's inequality says is broken, or that the whole run lies beyond; -inf where there is none."""
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
