"""Numbers for people: digits, prefixes, and what rounding may never say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.wording import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_234, "1.23 µs"),
        (999_600, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (999_950_000, "1.00 s"),
        (75_000_000_000, "75.0 s"),
        (750_000_000_000, "12 min 30 s"),
        (4_000_000_000_000, "1 h 06 min"),
    ],
)
def test_a_time_has_three_digits_and_the_prefix_that_fits(value: int, text: str) -> None:
    assert units.duration(value) == text


@given(st.integers(1, 10**12))
def test_a_time_never_shows_a_thousand_of_a_smaller_unit(value: int) -> None:
    number = float(units.duration(value).split()[0])
    assert number < 1000


@given(st.floats(1e-9, 1.0, exclude_max=True))
def test_a_share_below_one_is_never_shown_as_all_or_nothing(share: float) -> None:
    shown = units.percent(share)
    assert shown != "0 %"
    if share < 1 - 1e-9:
        assert float(shown.removesuffix(" %")) < 100


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ns", "∞"),
        (0.9956, "ratio", "99.56 %"),
        (48.21, "per_s", "48.2/s"),
        (12_345.6, "per_s", "12,346/s"),
        (128, "1", "128"),
        (0.1234, "1", "0.123"),
    ],
)
def test_each_unit_has_one_spelling(value: float | None, unit: str, text: str) -> None:
    assert units.human(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (200_000_000, "ns", "200 ms"),
        (1_500_000_000, "ns", "1.5 s"),
        (0.995, "ratio", "99.5 %"),
        (40.0, "per_s", "40/s"),
        (1200.0, "per_s", "1,200/s"),
    ],
)
def test_a_limit_reads_as_its_author_wrote_it(value: float, unit: str, text: str) -> None:
    assert units.limit(value, unit) == text


@pytest.mark.parametrize(
    ("q", "name"),
    [(0.0, "min"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1.0, "max")],
)
def test_quantiles_are_named_as_people_say_them(q: float, name: str) -> None:
    assert units.quantile_name(q) == name
