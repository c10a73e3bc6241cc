"""Concurrency regions of MLPerf Endpoints. SEMANTICS.md A.11 and F.9."""

from __future__ import annotations

import pytest

from plimsoll.slo.statistics.regions import LONG_NS, SHORT_NS, least_duration_ns, regions, tokens_per_s_per_user


@pytest.mark.parametrize(
    ("most", "least", "low", "medium", "high"),
    [
        (8192, 32, (33, 52), (53, 437), (438, 8192)),
        (256, 1, (2, 7), (8, 41), (42, 256)),
        (
            1024,
            16,
            (17, 26),
            (27, 117),
            (118, 1024),
        ),  # not the rules' printed example, which breaks their own algorithm
    ],
)
def test_regions_are_those_of_the_algorithm(
    most: int, least: int, low: tuple[int, int], medium: tuple[int, int], high: tuple[int, int]
) -> None:
    found = regions(most, least)
    assert (found.low, found.medium, found.high) == (low, medium, high)


def test_the_margin_is_a_tenth_more_rounded_up() -> None:
    assert [regions(most, 1).margin for most in (256, 100, 1001)] == [282, 110, 1102]


def test_regions_touch_and_cover_everything_above_the_least() -> None:
    for least in (0, 1, 16, 32):
        for most in range(least + 8, least + 400):
            found = regions(most, least)
            assert found.low[0] == least + 1
            assert (found.medium[0], found.high[0]) == (found.low[1] + 1, found.medium[1] + 1)
            assert found.high[1] == most
            assert found.low[0] <= found.low[1] < found.medium[1] < most


def test_too_narrow_a_range_is_refused() -> None:
    with pytest.raises(ValueError, match="Raise the highest concurrency"):
        regions(10, 5)


def test_points_above_32_in_flight_last_twice_as_long() -> None:
    assert (least_duration_ns(32), least_duration_ns(33)) == (SHORT_NS, LONG_NS) == (600 * 10**9, 1200 * 10**9)


def test_interactivity_is_the_inverse_of_the_p90_of_tpot() -> None:
    assert tokens_per_s_per_user(25e6) == 40.0
    with pytest.raises(ValueError, match="more than one token"):
        tokens_per_s_per_user(0.0)
