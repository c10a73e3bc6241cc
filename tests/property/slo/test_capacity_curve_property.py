"""Properties of the curve through a sweep's points, whatever they are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.slo.search.curve import Standing, bracket, knee, through

LOADS = st.lists(st.floats(0.5, 1e5), min_size=2, max_size=12, unique_by=lambda x: round(x, 3))
VALUES = st.floats(1e-3, 1e12)


@st.composite
def points(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    x = sorted(round(value, 3) for value in draw(LOADS))
    return x, [draw(VALUES) for _ in x]


@settings(max_examples=60)
@given(points())
def test_between_two_points_the_curve_never_leaves_their_values(made: tuple[list[float], list[float]]) -> None:
    x, y = made
    curve = through(x, y)
    for (x0, y0), (x1, y1) in pairwise(zip(x, y, strict=True)):
        found = curve.at(x0 + (x1 - x0) * 0.37)
        assert found is not None
        assert min(y0, y1) * (1 - 1e-6) <= found <= max(y0, y1) * (1 + 1e-6)
    assert [curve.at(value) for value in x] == y
    assert curve.at(x[0] * 0.99) is None
    assert curve.at(x[-1] * 1.01) is None


@settings(max_examples=60)
@given(points(), st.floats(0.01, 0.99))
def test_a_crossing_lies_in_its_bracket_and_on_the_limit(made: tuple[list[float], list[float]], share: float) -> None:
    x, y = made
    assume(abs(y[0] - y[-1]) > 1e-6 * y[0])
    limit = y[0] ** (1 - share) * y[-1] ** share
    found = through(x, y).crossing(limit, x[0], x[-1])
    assert found is not None
    assert x[0] <= found <= x[-1]
    assert through(x, y).at(found) == pytest.approx(limit, rel=1e-3)


STANDINGS = st.lists(
    st.builds(
        Standing,
        st.integers(1, 1000).map(float),
        st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]),
        st.floats(0, 1),
        st.booleans(),
    ),
    max_size=10,
    unique_by=lambda s: s.x,
)


@settings(max_examples=60)
@given(STANDINGS)
def test_the_bracket_holds_no_pass_and_no_fail_inside(made: list[Standing]) -> None:
    found = bracket(made)
    inside = [
        s.outcome for s in made if (found.low is None or s.x > found.low) and (found.high is None or s.x < found.high)
    ]
    assert "PASS" not in inside
    assert "FAIL" not in inside
    at = knee(made)
    assert at is None or (at.outcome == "PASS" and at.completion >= 0.99)
