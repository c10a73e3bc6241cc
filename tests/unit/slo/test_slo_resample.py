"""The spread within one run: correlated requests weigh less, and ranks are drawn instead of values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.signal import lfilter

from slo.comparison.resample import design_effect, ranks, ratio_interval


def test_independent_requests_weigh_one_each_and_correlated_ones_less() -> None:
    rng = np.random.default_rng(4)
    assert design_effect(rng.random(30_000) > 0.99) < 2
    noise = rng.standard_normal(30_000)
    queue = lfilter([np.sqrt(1 - 0.95**2)], [1, -0.95], noise)
    assert design_effect(queue > np.quantile(queue, 0.9)) > 5
    assert design_effect(np.zeros(1000, bool)) == design_effect(np.array([True, False])) == 1.0


def test_the_rank_of_a_resampled_quantile_is_binomial() -> None:
    drawn = ranks(10_000, Fraction(99, 100), 1.0, np.random.default_rng(0), 20_000)
    assert drawn.mean() == pytest.approx(9899.5, abs=1)
    assert drawn.std() == pytest.approx(np.sqrt(10_001 * 0.99 * 0.01), rel=0.03)
    wider = ranks(10_000, Fraction(99, 100), 25.0, np.random.default_rng(0), 20_000)
    assert wider.std() == pytest.approx(5 * drawn.std(), rel=0.05)


def test_the_interval_covers_the_ratio_as_it_says() -> None:
    rng = np.random.default_rng(9)
    covered = 0
    for seed in range(200):
        base, candidate = np.sort(rng.exponential(size=2000)), np.sort(rng.exponential(size=2000) * 1.2)
        low, high = ratio_interval(base, candidate, Fraction(9, 10), seed=seed)
        covered += low <= 1.2 <= high
    assert covered >= 180


def test_failures_and_nothing_are_not_made_up() -> None:
    inf = np.full(100, np.inf)
    assert ratio_interval(inf, inf, Fraction(1, 2)) == (0.0, np.inf)
    assert ratio_interval(np.ones(100), inf, Fraction(1, 2)) == (np.inf, np.inf)
    assert np.isnan(ratio_interval(np.empty(0), inf, Fraction(1, 2))).all()
