"""Summaries of repeats hold their own order, whatever the values and whichever are missing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.statistics.warmup import Settled, settle, spread

_VALUES = st.lists(st.none() | st.floats(0, 1e12), max_size=40)


@given(_VALUES)
def test_a_summary_is_in_order_and_its_interval_is_of_values_that_were_seen(values: list[float | None]) -> None:
    found = spread(values)
    known = [value for value in values if value is not None]
    if not known:
        assert found is None
        return
    assert found is not None
    assert found.n == len(known)
    assert found.least <= found.median <= found.greatest
    if found.interval is not None:
        assert set(found.interval) <= set(known)
        assert found.interval[0] <= found.median <= found.interval[1]
    assert (found.interval is not None) == (len(known) >= 6)


@given(st.integers(100, 400), st.integers(0, 2**32 - 1), st.floats(1.0, 100.0))
def test_what_comes_before_the_level_is_part_of_the_series(n: int, seed: int, factor: float) -> None:
    values = np.random.default_rng(seed).gamma(4, 1e6, n)
    values[: n // 10] *= factor
    found = settle(values, np.arange(n))
    if isinstance(found, Settled):
        assert 0 <= found.requests < n
        assert values.min() <= found.level_ns <= values.max()
