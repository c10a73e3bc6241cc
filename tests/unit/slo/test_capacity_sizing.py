"""Replicas, the rule that decides, and what they cost: the vectors of SEMANTICS E.4 and arithmetic by hand."""

from __future__ import annotations

import math

import pytest

from plimsoll.slo.search.sizing import Capacity, Yield, around, costs, size


@pytest.mark.parametrize(
    ("headroom", "replicas", "binding", "utilisation", "one_down"),
    [("0.7", 12, "headroom", 0.694, 0.758), ("0.8", 11, "both", 0.758, 0.833), ("0.6", 14, "headroom", 0.595, 0.641)],
)
def test_the_vectors_of_e4(headroom: str, replicas: int, binding: str, utilisation: float, one_down: float) -> None:
    sized = size(1000, 120, headroom, "0.85")
    assert (sized.replicas, sized.by_one_down, sized.binding) == (replicas, 11, binding)
    assert sized.utilisation == pytest.approx(utilisation, abs=5e-4)
    assert sized.one_down == pytest.approx(one_down, abs=5e-4)


def test_the_loss_of_one_decides_in_a_small_fleet() -> None:
    sized = size(100, 120, "0.9", "0.85")
    assert (sized.replicas, sized.by_headroom, sized.by_one_down) == (2, 1, 2)
    assert sized.binding == "one down"


def test_a_share_is_decimal_and_not_its_binary_neighbour() -> None:
    """700 / (100 * 0.7) is 10 and not 11: the double nearest to 0.7 is below it."""
    assert size(700, 100, "0.7", "1").by_headroom == 10
    assert size(700, 100, "7/10", "1").by_headroom == 10


def test_the_fleets_around_it_say_which_rule_each_breaks() -> None:
    rows = around(1000, 120, "0.7", "0.85")
    assert [row.replicas for row in rows] == [10, 11, 12, 13, 14]
    kept = [(row.headroom_kept, row.one_down_kept) for row in rows]
    assert kept == [(False, False), (False, True), (True, True), (True, True), (True, True)]
    alone = around(1, 120, "0.7", "0.85")
    assert alone[0].replicas == 1
    assert math.isinf(alone[0].one_down)
    assert not alone[0].one_down_kept


def test_a_million_costs_what_an_hour_costs_over_what_an_hour_brings() -> None:
    """3.60 an hour at 70 % of 120/s: 3.60 / (84 * 3600) * 1e6 = 11.905; twelve of them for 1000/s: 12.00."""
    capacity = Capacity(120, 125, 130)
    found = {cost.per: cost for cost in costs(3.6, 1000, capacity, Yield(0.99, 100, 50), "0.7", "0.85")}
    assert found["requests"].full == pytest.approx(1e6 / 84 * 3.6 / 3600)
    assert found["requests"].target == pytest.approx(12.0)
    assert found["requests"].full_range == pytest.approx((1e6 / 91 * 3.6 / 3600, found["requests"].full))
    assert found["requests"].target_range == pytest.approx((11.0, 12.0))
    assert found["good_requests"].target == pytest.approx(12 / 0.99)
    assert found["output_tokens"].target == pytest.approx(0.12)
    assert found["input_tokens"].target == pytest.approx(0.24)


def test_what_is_not_known_has_no_cost_and_no_range() -> None:
    (only,) = costs(1, 10, Capacity(10, 10, None), Yield(), "1", "1")
    assert (only.per, only.full_range, only.target_range) == ("requests", None, None)
    with pytest.raises(ValueError, match="price"):
        costs(-1, 10, Capacity(10, 10, None), Yield(), "1", "1")
