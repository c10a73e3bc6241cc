"""Where a series of answers comes to its level, and what several starts have in common."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.warmup import Settled, Unsettled, repeats_needed, settle, spread

MS = 1e6


def steady(n: int = 120, seed: int = 1) -> FloatArray:
    return np.random.default_rng(seed).normal(10 * MS, 0.3 * MS, n)


def settled(values: FloatArray) -> Settled:
    found = settle(values, np.arange(len(values)) * 10_000_000)
    assert isinstance(found, Settled)
    return found


def test_a_steady_series_is_steady_from_the_first_request() -> None:
    found = settled(steady())
    assert (found.requests, found.excess_ns) == (0, 0)
    assert found.level_ns == pytest.approx(10 * MS, rel=0.01)


def test_a_single_slow_first_request_is_seen_though_mser_looks_at_batches() -> None:
    values = steady()
    values[0] = 900 * MS
    found = settled(values)
    assert found.requests == 1
    assert found.excess_ns == pytest.approx(890 * MS, rel=0.01)


def test_a_slow_beginning_is_cut_where_it_ends() -> None:
    values = steady(200)
    values[:30] += np.linspace(60, 20, 30) * MS
    found = settled(values)
    assert 30 <= found.requests <= 40
    assert found.excess_ns == pytest.approx(30 * 40 * MS, rel=0.05)


def test_an_early_fast_request_is_no_warm_up_and_chance_seldom_makes_one() -> None:
    values = steady()
    values[0] = 5 * MS
    assert settled(values).requests == 0
    assert sum(settled(steady(seed=seed)).requests > 0 for seed in range(300)) <= 12


def test_a_failed_first_request_has_no_finite_excess() -> None:
    values = steady()
    values[0] = np.inf
    found = settled(values)
    assert found.requests == 1
    assert found.excess_ns == np.inf


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (steady(99), "99 requests are too few"),
        (np.full(120, np.inf), "not one request succeeded"),
        (np.where(np.arange(120) < 50, 10 * MS, np.inf), "failed at the end"),
        (np.linspace(100, 1, 200) * MS, "still changing"),
    ],
)
def test_no_level_is_told_with_its_reason(values: FloatArray, why: str) -> None:
    found = settle(values, np.arange(len(values)) * 10_000_000)
    assert isinstance(found, Unsettled)
    assert why in found.why


def test_an_interval_takes_six_repeats_and_fewer_say_what_their_range_is_worth() -> None:
    assert repeats_needed() == 6
    five = spread([3.0, 3.1, 3.2, 3.3, 3.4])
    assert five is not None
    assert five.interval is None
    assert five.range_confidence == 0.9375
    six = spread([3.0, 3.1, 3.2, 3.3, 3.4, 3.5])
    assert six is not None
    assert six.interval == (3.0, 3.5)


def test_the_first_start_is_in_the_summary_and_beside_it() -> None:
    found = spread([8.0, 3.0, 3.1, 3.2])
    assert found is not None
    assert (found.first, found.later, found.greatest, found.median) == (8.0, 3.1, 8.0, pytest.approx(3.15))
    assert found.first_differs
    like = spread([3.05, 3.0, 3.1, 3.2])
    assert like is not None
    assert not like.first_differs
    three = spread([8.0, 3.0, 3.1])
    assert three is not None
    assert not three.first_differs  # of three any may be the greatest
    scattered = spread([5.0, 3.0, 4.5, 2.0])
    assert scattered is not None
    assert not scattered.first_differs  # the others lie further apart than that


def test_repeats_that_lack_a_quantity_are_left_out_of_it_and_none_at_all_is_none() -> None:
    found = spread([None, 2.0, 4.0])
    assert found is not None
    assert (found.n, found.first, found.later) == (2, None, 3.0)
    assert not found.first_differs
    assert spread([None, None]) is None
