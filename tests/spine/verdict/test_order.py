"""What stands for sorted values that are in no memory says what numpy says of the sorted array, rank by rank."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics import indicator as measuring
from plimsoll.slo.metrics.indicator import catalogue, extremes, measure, of_successes, successes
from plimsoll.slo.records.records import FloatArray, IntArray, Records, from_columns
from plimsoll.slo.statistics.order import Entries, Folded, buckets, by_time

MS = 1_000_000
whole_ns = st.integers(-(2**53), 2**53).map(float)
values = st.lists(st.one_of(whole_ns, st.floats(-1e200, 1e200), st.sampled_from([0.0, math.inf, 5.0])), min_size=1)


def folded(some: FloatArray, slab: int = 7) -> Folded:
    def slabs() -> Iterator[tuple[FloatArray, IntArray]]:
        for first in range(0, len(some), slab):
            yield some[first : first + slab], np.arange(first, min(first + slab, len(some)))

    found = Folded(slabs)
    for part, _ in slabs():
        found.add(part)
    return found


@given(some=values)
def test_every_rank_and_every_limit_is_that_of_the_sorted_array(some: list[float]) -> None:
    ordered = np.sort(np.array(some) + 0.0)
    found = folded(np.array(some))
    assert len(found) == len(some)
    assert found[np.arange(len(some))].tolist() == ordered.tolist()
    assert [float(found[rank]) for rank in (0, -1, len(some) // 2)] == [
        float(ordered[rank]) for rank in (0, -1, len(some) // 2)
    ]
    limits = np.concatenate([ordered, np.nextafter(ordered, -np.inf), np.nextafter(ordered, np.inf), [np.inf, 0.0]])
    for side in ("left", "right"):
        assert found.searchsorted(limits, side).tolist() == np.searchsorted(ordered, limits, side).tolist()
    with pytest.raises(IndexError, match="of"):
        found[len(some)]


@given(some=values)
def test_a_bucket_never_falls_where_values_rise(some: list[float]) -> None:
    assert (np.diff(buckets(np.sort(np.array(some)))) >= 0).all()


def test_the_mean_of_whole_numbers_is_exact_and_one_question_takes_one_pass() -> None:
    rng = np.random.default_rng(3)
    some = rng.gamma(9, 3 * MS, 50_000).astype(np.int64).astype(np.float64)
    passes = 0

    def slabs() -> Iterator[tuple[FloatArray, IntArray]]:
        nonlocal passes
        passes += 1
        for first in range(0, len(some), 1000):
            yield some[first : first + 1000], np.arange(first, first + 1000)

    found = Folded(slabs)
    for part, _ in slabs():
        found.add(part)
    ordered = np.sort(some)
    ranks = np.linspace(0, len(some) - 1, 200).astype(np.int64)
    assert found[ranks].tolist() == ordered[ranks].tolist()
    assert passes == 2
    assert found[ranks].tolist() == ordered[ranks].tolist()
    assert passes == 2, "what was read once is known"
    assert found.mean() == float(ordered.mean())
    assert found.std(ddof=1) == pytest.approx(float(ordered.std(ddof=1)), rel=1e-12)
    assert int(found.counts.sum()) == len(some)


def test_a_value_that_is_there_many_times_is_counted_and_not_kept() -> None:
    found = folded(np.array([1.0, 2.0, 3.0]))
    found.add_equal(math.inf, 10**9)
    assert (len(found), float(found[-1]), found.mean()) == (10**9 + 3, math.inf, math.inf)
    assert int(found.searchsorted(math.inf)) == 3


def answers(n: int, seed: int) -> Records:
    """Streamed answers of all sorts: a warm-up, failures with and without gaps, one chunk, none."""
    rng = np.random.default_rng(seed)
    chunks = []
    for row in range(n):
        gaps = rng.gamma(9, MS, int(rng.integers(0, 12))).astype(np.int64)
        chunks.append((row * 5 * MS + np.cumsum(gaps)).tolist())
    status = np.where(rng.random(n) < 0.1, 3, 0)
    phase = (np.arange(n) < n // 10).astype(np.int8)
    return from_columns(n, due_ns=np.arange(n) * 5 * MS, chunks=chunks, status=status, phase=phase)


@pytest.mark.parametrize("seed", range(5))
def test_values_of_lists_are_the_same_in_memory_and_folded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some, itl = answers(200, seed), catalogue()["itl"]
    held = measure(itl, some)
    monkeypatch.setattr(measuring, "HELD", 100)
    monkeypatch.setattr(measuring, "SLAB", 16)
    found = measure(itl, some)
    assert isinstance(found.ordered, Folded)
    assert (found.n, found.missing, found.failed) == (held.n, held.missing, held.failed)
    assert found.failed > 0
    assert found.values.tolist() == held.values.tolist()
    assert found.row.tolist() == held.row.tolist()
    assert found.ordered[np.arange(found.n)].tolist() == held.ordered[np.arange(held.n)].tolist()
    assert found.sizes is not None
    assert found.sizes.tolist() == np.bincount(held.row, minlength=len(some)).tolist()
    assert of_successes(itl, some, found).tolist() == of_successes(itl, some, held).tolist()
    alone = successes(itl, some, found)
    assert alone is not None
    kept = np.sort(held.values[of_successes(itl, some, held)])
    assert alone.ordered[np.arange(alone.n)].tolist() == kept.tolist()


def test_values_of_requests_have_their_records() -> None:
    plain = Entries((np.array([3.0, 1.0]), None))
    assert (plain.n, plain.plain, plain.row.tolist()) == (2, True, [0, 1])
    assert np.asarray(plain.ordered).tolist() == [1.0, 3.0]
    assert [row.tolist() for _, row in plain.slabs()] == [[0, 1]]
    assert Entries((np.empty(0), None)).n == 0


@given(
    times=st.lists(st.integers(-1, 6), max_size=30).map(np.array),
    seed=st.integers(0, 9),
)
def test_times_are_put_in_order_and_equal_ones_by_lot_or_as_they_stand(times: IntArray, seed: int) -> None:
    times = times.astype(np.int64)
    lot = np.random.default_rng(seed).permutation(len(times))
    found, drawn = by_time(times), by_time(times, lambda: lot)
    plain = np.arange(len(times))
    assert (plain if found is None else found).tolist() == np.argsort(times, kind="stable").tolist()
    assert (plain if drawn is None else drawn).tolist() == np.lexsort((lot, times)).tolist()


@pytest.mark.parametrize("greatest", [True, False])
def test_the_extremes_of_each_record_are_found_in_slabs(greatest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    some, itl = answers(150, 8), catalogue()["itl"]
    monkeypatch.setattr(measuring, "SLAB", 16)
    found, has = extremes(itl, some, greatest)
    for row in range(len(some)):
        gaps = np.diff(some.chunk_ns[some.chunk_offsets[row] : some.chunk_offsets[row + 1]])
        assert bool(has[row]) == (len(gaps) > 0)
        if len(gaps):
            assert found[row] == (gaps.max() if greatest else gaps.min())
