"""Sizing is monotone, and the chosen fleet is the smallest that keeps both rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.search.sizing import around, size

_RATES = st.floats(0.01, 1e6).map(lambda value: round(value, 2)).filter(lambda value: value > 0)
_SHARES = st.integers(1, 100).map(lambda percent: f"{percent}/100")


@given(_RATES, _RATES, _SHARES, _SHARES)
def test_the_fleet_keeps_both_rules_and_one_less_breaks_one(peak: float, each: float, h: str, down: str) -> None:
    sized = size(peak, each, h, down)
    rows = {row.replicas: row for row in around(peak, each, h, down)}
    assert rows[sized.replicas].headroom_kept
    assert rows[sized.replicas].one_down_kept
    if sized.replicas > 1:
        less = rows[sized.replicas - 1]
        assert not (less.headroom_kept and less.one_down_kept)


@given(_RATES, _RATES, _RATES, _SHARES, _SHARES)
def test_a_lower_capacity_never_needs_fewer(peak: float, one: float, other: float, h: str, down: str) -> None:
    low, high = sorted((one, other))
    assert size(peak, low, h, down).replicas >= size(peak, high, h, down).replicas
