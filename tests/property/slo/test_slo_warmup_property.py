"""Warm-up and trend for any series: shift and scale change no decision, order of rows changes nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.statistics.warmup import capped, detect, mser
from plimsoll.slo.verdict.steadiness import mann_kendall, pettitt

# Multiples of 1/8 and powers of two: the arithmetic of a shift is then exact.
eighth = st.integers(0, 8_000).map(lambda k: k / 8)
series = st.lists(eighth, min_size=1, max_size=60)
with_failures = st.lists(eighth | st.just(float("inf")), min_size=100, max_size=160)


@given(series, st.sampled_from([0.5, 2.0, 1024.0]), st.integers(0, 1000))
def test_the_cut_does_not_depend_on_unit_or_offset(values: list[float], scale: float, offset: int) -> None:
    z = np.array(values)
    found, moved = mser(z), mser(z * scale + offset)
    assert np.allclose(moved.statistic, found.statistic * scale**2, rtol=1e-9, atol=1e-9)
    assert 0 <= found.batches <= len(z) // 2
    assert found.statistic[found.batches] == found.statistic.min()
    assert (found.statistic[: found.batches] > found.statistic.min()).all(), "ties go to the smallest"


@given(with_failures, st.randoms(use_true_random=False))
def test_rows_in_any_order_give_the_same_cut_and_none_is_lost(values: list[float], random: object) -> None:
    data, due = np.array(values), np.arange(len(values)) * 1000
    order = np.array(sorted(range(len(values)), key=lambda _: random.random()))  # type: ignore[attr-defined]
    found, again = detect(data, due), detect(data[order], due[order])
    if not np.isfinite(data).any():
        assert found is None
        return
    assert found is not None
    assert again is not None
    assert (found.drop, found.differs, found.until_ns) == (again.drop, again.differs, again.until_ns)
    assert len(capped(data)) == len(data)
    assert np.isfinite(capped(data)).all()
    assert found.drop <= len(data) // 2


@given(st.lists(eighth | st.just(float("inf")), min_size=0, max_size=40))
def test_a_series_backwards_has_the_opposite_trend(values: list[float]) -> None:
    forward, backward = mann_kendall(np.array(values)), mann_kendall(np.array(values[::-1]))
    assert forward.s == -backward.s
    assert 0.0 <= forward.p <= 1.0
    change = pettitt(np.array(values))
    assert 0 <= change.at < max(len(values), 1)
    assert change.k == pettitt(np.array(values[::-1])).k
