"""Pareto fronts: beaten means beaten in both ways, and shown."""

from __future__ import annotations

import numpy as np

from plimsoll.slo.comparison.tiers import Point, front, interactivity


def point(name: str, x: float, y: float, runs: int = 5, spread: float = 0.01) -> Point:
    steps = [1 + spread * (i - (runs - 1) / 2) for i in range(runs)]
    return Point(name, tuple(x * s for s in steps), tuple(y * s for s in steps))


def beaten(*points: Point) -> dict[str, str]:
    return {p.name: p.dominated_by for p in front(points)}


def test_a_point_that_is_worse_in_both_ways_is_beaten_by_the_one_furthest_ahead() -> None:
    assert beaten(point("a", 10, 10), point("b", 20, 20), point("c", 30, 30)) == {"a": "c", "b": "c", "c": ""}


def test_a_trade_leaves_both_on_the_front() -> None:
    assert beaten(point("fast", 10, 30), point("wide", 30, 10)) == {"fast": "", "wide": ""}


def test_points_that_are_not_told_apart_stay_on_the_front() -> None:
    assert beaten(point("a", 10, 10), point("b", 10.05, 10.05)) == {"a": "", "b": ""}
    assert beaten(point("a", 10, 10, spread=0.4), point("b", 12, 12, spread=0.4)) == {"a": "", "b": ""}


def test_with_one_run_a_point_it_goes_by_value_and_says_so() -> None:
    found = front([point("a", 10, 10, 1), point("b", 11, 11, 1)])
    assert [(p.dominated_by, p.shown) for p in found] == [("b", False), ("", False)]
    assert all(p.shown for p in front([point("a", 10, 10), point("b", 20, 20)]) if p.dominated_by)


def test_lower_can_be_better_on_either_axis() -> None:
    found = front([point("a", 10, 10), point("b", 20, 20)], x_better="lower", y_better="lower")
    assert [p.dominated_by for p in found] == ["", "a"]


def test_unknown_values_neither_beat_nor_are_beaten() -> None:
    nan = float("nan")
    odd = Point("odd", (nan, nan), (1.0, 1.0))
    assert beaten(odd, point("a", 10, 10), Point("none", (), ())) == {"odd": "", "a": "", "none": ""}


def test_interactivity_is_one_over_tpot_and_failures_have_none() -> None:
    got = interactivity(np.array([20e6, np.inf, 0.0, np.nan]))
    assert got[0] == 50.0
    assert got[1] == 0.0
    assert np.isnan(got[2:]).all()
