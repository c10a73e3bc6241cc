"""What a million costs, and how many replicas a peak needs: SEMANTICS E.4."""

from __future__ import annotations

import math

import pytest
from made_arms import arm

from plimsoll.slo.comparison.tiers import cost, million, needs


def test_a_price_over_a_throughput() -> None:
    assert million(3.60, 1000) == pytest.approx(1.0)
    assert million(3.60, 0) == math.inf
    assert million(0, 1000) == 0


def test_the_cost_is_that_of_the_median_run_with_the_interval_of_its_throughput() -> None:
    made = arm("a", {"rate(output_tokens)": [900.0, 1000, 1100, 950, 1050, 1010, 990, 1000]})
    found = cost(made, 3.6)
    assert found is not None
    assert (found.per_s, found.value) == (1000.0, pytest.approx(1.0))
    assert found.interval[0] < 1.0 < found.interval[1]
    assert found.interval[0] == pytest.approx(1 / 1.05, rel=0.03)
    assert max(found.values) == pytest.approx(1000 / 900)


def test_fewer_than_six_runs_have_no_interval_and_a_dead_run_costs_without_limit() -> None:
    five = cost(arm("a", {"rate(ok)": [10.0] * 5}), 1.0, "requests")
    assert five is not None
    assert five.interval == (0.0, math.inf)
    dead = cost(arm("a", {"rate(ok)": [0.0] * 6}), 1.0, "requests")
    assert dead is not None
    assert (dead.value, dead.interval) == (math.inf, (math.inf, math.inf))


def test_without_a_rate_there_is_no_cost_and_a_price_is_a_number_of_at_least_nothing() -> None:
    assert cost(arm("a", {"rate(ok)": [10.0] * 5}), 1.0) is None
    assert str(needs("good_requests")) == "rate(good)"
    for price in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="write what an hour costs"):
            cost(arm("a", {"rate(ok)": [10.0]}), price, "requests")
