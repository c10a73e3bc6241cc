"""Values that are in no memory, seen through a function: ranks and counts are those of the mapped array."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics import memory, share
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
            ends = [share.bounds_of(s, share.exact(p), upward=upward, scaled=True) for s in (one, other)]
            assert ends[0] == pytest.approx(ends[1], rel=1e-9)
