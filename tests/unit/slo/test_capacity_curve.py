"""Curves through measured points, the line in its bracket, the knee, and when a series is saturated."""

from __future__ import annotations

import math

import pytest

from plimsoll.slo.search.curve import (
    Outcome,
    Standing,
    bracket,
    knee,
    linear_crossing,
    max_distance,
    pace,
    saturated,
    through,
)


def standing(x: float, outcome: Outcome = "PASS", completion: float = 1.0, **more: object) -> Standing:
    return Standing(x, outcome, completion, **more)  # type: ignore[arg-type]


def test_the_crossing_of_a_queue_s_curve_is_near_the_closed_form() -> None:
    # M/M/1 with mu = 100/s: W = 1/(mu - lambda); W = 40 ms at lambda = 75/s, which is none of the points.
    rates = (10.0, 30.0, 50.0, 70.0, 80.0, 90.0)
    found = through(rates, [1 / (100 - rate) for rate in rates]).crossing(0.04, 70.0, 80.0)
    assert found == pytest.approx(75.0, rel=0.01)


def test_there_is_no_value_beyond_the_measured_points() -> None:
    curve = through((10, 20, 40), (1.0, 2.0, 9.0))
    assert curve.at(9.99) is None
    assert curve.at(40.01) is None
    assert curve.at(20) == 2.0


def test_a_point_without_a_value_breaks_the_curve_and_nothing_is_read_across_the_gap() -> None:
    curve = through((10, 20, 30, 40), (1.0, 2.0, None, 9.0))
    assert curve.at(25) is None
    assert curve.at(35) is None
    assert curve.crossing(5.0, 20, 40) is None
    assert [len(piece) for piece in curve.drawn()] == [18, 1]
    assert through((1, 2), (1.0, math.inf)).pieces[-1].x == (1.0,)


def test_the_first_of_several_crossings_counts() -> None:
    curve = through((1, 2, 3, 4), (1.0, 3.0, 1.0, 3.0))
    found = curve.crossing(2.0, 1, 4)
    assert found is not None
    assert 1 < found < 2


def test_a_limit_that_is_met_exactly_at_a_point_is_crossed_there() -> None:
    assert through((10, 20, 30), (1.0, 2.0, 4.0)).crossing(2.0, 10, 30) == pytest.approx(20)


def test_values_of_zero_and_below_are_interpolated_without_logarithms() -> None:
    curve = through((1, 2, 3), (0.0, 0.5, 1.0))
    assert not curve.log_y
    assert curve.at(1.5) == pytest.approx(0.25, abs=0.05)
    assert through((1, 2), (1.0, 2.0)).crossing(0.0, 1, 2) is None


def test_a_load_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="x of its own"):
        through((1, 1), (1.0, 2.0))


def test_attainment_is_read_by_straight_lines() -> None:
    assert linear_crossing((10, 20, 30), (1.0, 0.95, 0.85), 0.9) == pytest.approx(25.0)
    assert linear_crossing((10, 20), (1.0, 0.95), 0.9) is None
    assert linear_crossing((10, 20), (0.8, 0.7), 0.9) is None


def test_the_knee_is_the_greatest_load_that_is_answered_kept_up_with_and_passes() -> None:
    points = [
        standing(10),
        standing(20),
        standing(30, completion=0.98),
        standing(40, unstable=True),
        standing(50, "INCONCLUSIVE"),
        standing(60, pace=0.7),
    ]
    found = knee(points)
    assert found is not None
    assert found.x == 20
    assert knee([standing(10, "FAIL")]) is None


def test_a_load_that_passes_above_one_that_fails_is_named() -> None:
    found = bracket([standing(10), standing(20, "INCONCLUSIVE"), standing(30, "FAIL"), standing(40)])
    assert [found.low, found.high] == [10, 30]
    assert list(found.undecided) == [20]
    assert list(found.passes_above) == [40]
    assert bracket([standing(10)]).high is None
    assert bracket([standing(10, "FAIL")]).low is None


def test_two_neighbours_that_fall_behind_end_a_series_and_one_does_not() -> None:
    behind = [standing(10), standing(20, "FAIL", unstable=True), standing(40, "FAIL", 0.3), standing(80, "FAIL", 0.1)]
    assert saturated(behind) == 20
    assert saturated([standing(10), standing(20, "FAIL", 0.2), standing(40), standing(80, "FAIL", 0.2)]) is None
    # A failed objective alone does not: the curve goes on.
    assert saturated([standing(20, "FAIL"), standing(40, "FAIL")]) is None
    # What the generator spoiled says nothing of the endpoint.
    assert saturated([standing(20, "INVALID", 0.0), standing(40, "INVALID", 0.0)]) is None


def test_a_slow_endpoint_that_keeps_up_is_at_full_pace_and_an_overloaded_one_is_not() -> None:
    second = 1e9
    assert pace(100, 10.0, 40 * second, 30 * second) == pytest.approx(1.0)
    # 20/s for 10 s into a server of 10/s: done after 20 s, half of them within 5 s of waiting.
    assert pace(200, 20.0, 20 * second, 5 * second) == pytest.approx(2 / 3)
    assert pace(20, 20.0, 20 * second, 5 * second) == 1.0


def test_the_bend_is_the_point_furthest_from_the_chord() -> None:
    assert max_distance((1, 2, 3, 4), (1, 1, 1, 10), "convex") == 3
    assert max_distance((1, 2, 3, 4), (1, 9, 10, 10), "concave") == 2
    assert max_distance((1, 2, 3), (1, 2, 3), "convex") is None
    assert max_distance((1, 2), (1, 2), "convex") is None
    assert max_distance((1, 2, 3), (1, math.inf, 3), "convex") is None
