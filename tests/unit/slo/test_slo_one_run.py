"""Within one pair of runs: correlated requests weigh less, and the interval is what the test does not reject."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.signal import lfilter

from plimsoll.slo.comparison.arms import OneRun, Within, of_percentiles, of_shares
from plimsoll.slo.comparison.quantity import parse
from plimsoll.slo.statistics import share

ALPHA = Fraction(1, 40)
P90 = parse("p90(ttft)")
ERRORS = parse("ratio(error)")


def pair(base: np.ndarray, candidate: np.ndarray, effect: float = 1.0, alpha: Fraction = ALPHA) -> OneRun:  # type: ignore[type-arg]
    a, b = np.sort(base), np.sort(candidate)
    value = float(a[math.ceil(0.9 * len(a)) - 1]) if len(a) else math.nan
    return of_percentiles(P90, value, Within(a, effect), Within(b, 1.0), alpha)


def shares(bad: int, of: int, more_bad: int, more_of: int, effect: float = 1.0) -> OneRun:
    nothing = np.empty(0)
    return of_shares(ERRORS, Within(nothing, effect, bad, of), Within(nothing, 1.0, more_bad, more_of), ALPHA)


def design(values: np.ndarray, level: float) -> float:
    n = len(values)
    laid = share.series(values, np.arange(n), share.Course(np.arange(n), n, 0.0))
    return laid.count(values > np.quantile(values, level)).design


def test_independent_requests_weigh_one_each_and_correlated_ones_less() -> None:
    rng = np.random.default_rng(4)
    assert design(rng.random(30_000), 0.99) < 2
    noise = rng.standard_normal(30_000)
    queue = lfilter([np.sqrt(1 - 0.95**2)], [1, -0.95], noise)
    assert design(queue, 0.9) > 5
    assert design(np.arange(2.0), 0.5) == 1.0


def test_the_interval_holds_every_ratio_that_the_test_does_not_reject_and_no_other() -> None:
    rng = np.random.default_rng(2)
    for effect in (1.0, 7.3):
        for _ in range(40):
            base, candidate = rng.exponential(size=300), rng.exponential(size=260) * 1.2
            low, high = pair(base, candidate, effect).interval
            for ratio in (low * 0.999, low * 1.001, high * 0.999, high * 1.001):
                # The base stretched by the ratio is the candidate's equal, as far as the test can tell, or it is not.
                seen = pair(base * ratio, candidate, effect)
                assert (min(seen.p, seen.p_less) <= ALPHA) == (not low <= ratio <= high)


def test_the_interval_covers_the_ratio_as_it_says() -> None:
    rng = np.random.default_rng(9)
    missed = [0, 0]
    for _ in range(1000):
        low, high = pair(rng.exponential(size=500), rng.exponential(size=500) * 1.2).interval
        missed[0] += low > 1.2
        missed[1] += high < 1.2
    assert max(missed) <= 1000 * 0.025 + 2 * (1000 * 0.025) ** 0.5
    assert sum(missed) >= 10


def test_a_share_worse_by_a_point_is_seldom_called_worse_by_more_than_a_point() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(1000):
        seen = shares(int(rng.binomial(5000, 0.02)), 5000, int(rng.binomial(5000, 0.03)), 5000)
        found += seen.low > 0.01
    assert 5 <= found <= 1000 * 0.025 + 2 * (1000 * 0.025) ** 0.5  # Fisher's p and a step above a point: 46 %


def test_a_design_effect_widens_every_interval_and_raises_every_p() -> None:
    rng = np.random.default_rng(5)
    base, candidate = rng.exponential(size=2000), rng.exponential(size=2000) * 1.3
    for plain, weighed in (
        (pair(base, candidate), pair(base, candidate, 20.0)),
        (shares(100, 5000, 200, 5000), shares(100, 5000, 200, 5000, 20.0)),
    ):
        assert weighed.low < plain.low < plain.high < weighed.high
        assert weighed.p > plain.p


def test_failures_and_nothing_are_not_made_up() -> None:
    inf, ones = np.full(100, np.inf), np.arange(1.0, 101)
    assert pair(inf, inf).interval == (0.0, np.inf)
    assert pair(ones, inf).interval == (np.inf, np.inf)
    assert pair(np.empty(0), ones).interval == (0.0, np.inf)
    assert pair(ones, np.ones(1)).interval[0] == 0.0
    assert shares(0, 0, 3, 10).interval == (-np.inf, np.inf)


def test_more_of_a_good_share_is_better() -> None:
    good = parse("ratio(good)")
    nothing = np.empty(0)
    seen = of_shares(good, Within(nothing, 1.0, 500, 1000), Within(nothing, 1.0, 100, 1000), ALPHA)
    assert seen.interval == pytest.approx((-seen.high, -seen.low))
    assert 0.3 < seen.interval[0] < 0.4 < seen.interval[1] < 0.5
