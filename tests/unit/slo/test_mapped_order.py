"""Values that are in no memory, seen through a function: ranks and counts are those of the mapped array."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics import memory, order, share
from plimsoll.slo.statistics.memory import independent
from plimsoll.slo.statistics.order import Entries, Folded, mapped
from plimsoll.slo.statistics.share import Course, lay

times = st.floats(0, 1e15) | st.sampled_from([0.0, 1.0, 3e7, np.inf])


def folded(
    values: FloatArray, row: IntArray | None = None, at_a_time: int = 7
) -> tuple[Folded, Callable[[], Iterator[tuple[FloatArray, IntArray]]]]:
    rows = np.arange(len(values)) if row is None else row

    def slabs() -> Iterator[tuple[FloatArray, IntArray]]:
        for first in range(0, len(values), at_a_time):
            yield values[first : first + at_a_time], rows[first : first + at_a_time]

    made = Folded(slabs)
    for part, _ in slabs():
        made.add(part)
    return made, slabs


@given(st.lists(times, min_size=1, max_size=60), st.floats(1e-3, 1e12), st.data())
def test_ranks_and_counts_are_those_of_the_mapped_array(
    given_values: list[float], limit: float, data: st.DataObject
) -> None:
    values = np.array(given_values)

    def above(v: FloatArray) -> FloatArray:
        return v / limit

    def below(v: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(v > 0, limit / v, np.inf)

    for of, falls in ((above, False), (below, True), (np.negative, True)):
        plain = mapped(np.sort(values), of, falls)
        other = mapped(folded(values)[0], of, falls)
        assert len(other) == len(values)
        ranks = np.array(data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=9)), np.int64)
        assert other[ranks].tolist() == plain[ranks].tolist()
        limits = np.array(data.draw(st.lists(st.sampled_from(np.asarray(plain).tolist()) | times, max_size=9)))
        limits = np.concatenate([limits, np.nextafter(limits, np.inf), np.nextafter(limits, -np.inf), -limits])
        for side in ("left", "right"):
            assert other.searchsorted(limits, side).tolist() == plain.searchsorted(limits, side).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_nested_values_in_slabs_show_the_memory_that_they_show_in_one_array(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 400)
    row = np.repeat(np.arange(400), sizes)
    level = np.cumsum(rng.normal(0, 1, 400))
    values = np.round(1e7 * np.exp(0.2 * level[row] + rng.normal(0, 1, len(row))))
    place = rng.permutation(400) if seed % 2 else np.arange(400)
    along = Course(place, 400, 3.0, 10**9, plain=not seed % 2)
    one = lay(Entries((values, row), sizes=sizes), along)
    monkeypatch.setattr(memory, "RANKED", 10**9)
    made, slabs = folded(values, row)
    other = lay(Entries(again=slabs, folded=made, sizes=sizes), along)
    assert one.memory != independent(400)
    assert other.memory.time == pytest.approx(one.memory.time, rel=1e-9)
    assert other.memory.within == pytest.approx(one.memory.within, rel=1e-9)
    assert other.memory.doubt == pytest.approx(one.memory.doubt, rel=1e-9)
    for p in ("0.5", "0.9", "0.99"):
        for upward in (True, False):
            ends = [share.bounds(s, share.exact(p), upward=upward, scaled=True) for s in (one, other)]
            assert ends[0] == pytest.approx(ends[1], rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_values_beyond_limits_are_counted_by_request_from_a_band_of_them_as_from_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "HELD", 6400)  # bands of some hundred values
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(300), rng.integers(0, 20, 300))
    values = np.round(rng.gamma(3, 1e7, len(row)), -5 * (seed % 2))
    values[rng.random(len(row)) < 0.02 * (seed % 3)] = np.inf
    if seed == 7:
        values[::2] = 2e7  # more than a band takes
    made, again = folded(values, row, 512)
    passes = []

    def counted() -> Iterator[tuple[FloatArray, IntArray]]:
        passes.append(1)
        return again()

    made._slabs = counted
    entries = Entries(again=counted, folded=made, sizes=np.bincount(row, minlength=300))
    laid = share.Series(entries, None, np.bincount(row, minlength=300), independent(300))
    near = np.sort(values)[len(values) * 9 // 10 + np.arange(-9, 10)]
    limits = [*near.tolist(), *np.nextafter(near, 0).tolist(), -1.0, 0.0, 1.0, 2e7, float(values.max()), 1e16, np.inf]
    for limit in limits:
        for operator in share._COMPARE:
            bad = share.Beyond(operator, limit)
            want = np.bincount(row[bad.of(values)], minlength=300)
            assert laid.by_request([bad])[0].tolist() == want.tolist(), (operator, limit)
    if seed in (0, 1, 3):
        assert len(passes) < len(limits)


def test_what_is_looked_up_is_read_ahead_in_one_pass() -> None:
    values = np.random.default_rng(3).gamma(3, 1e7, 5000)
    made, again = folded(values, at_a_time=512)
    passes = []

    def counted() -> Iterator[tuple[FloatArray, IntArray]]:
        passes.append(1)
        return again()

    made._slabs = counted

    def searched() -> float:
        """A bisection: where it looks next depends on what it found."""
        low, high = 0, len(made) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if float(made[middle]) < 2.5e7 else (low, middle)
        return float(made[high])

    made.ahead(searched)
    assert searched() == float(np.sort(values)[np.searchsorted(np.sort(values), 2.5e7)])
    assert len(passes) == 1


def test_a_long_series_shows_the_products_that_numpy_adds_up_at_once() -> None:
    score = np.random.default_rng(5).normal(0, 1, 3 * memory.PIECE + 7)
    for n in (5, memory.PIECE - 1, memory.PIECE, memory.PIECE + 3, len(score)):
        some = score[:n]
        want = [
            float((some[lag:] * some[: n - lag]).sum()) if lag < n else 0.0 for lag in range(1, memory.LAGS[-1] + 1)
        ]
        assert memory._lagged(some) == pytest.approx(want, abs=1e-9)
