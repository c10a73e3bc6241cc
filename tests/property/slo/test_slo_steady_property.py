"""Queues by simulation: stable ones pass as steady in at least 99 % of runs, overloaded ones are found in as many.
Warm-up and trend for any series: shift and scale change no decision, order of rows changes nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.statistics.warmup import capped, detect, mser
from plimsoll.slo.validity.validity import backlog
from plimsoll.slo.verdict.steadiness import mann_kendall, pettitt

SEEDS = 300
Floats = npt.NDArray[np.float64]


def arrivals(shape: str, n: int, random: np.random.Generator) -> Floats:
    return np.cumsum(random.exponential(1.0, n)) if shape[0] == "M" else np.arange(1.0, n + 1)


def services(shape: str, n: int, random: np.random.Generator) -> Floats:
    """Mean 1: exponential, constant, or with a heavy tail (lognormal, squared coefficient of variation 3.2)."""
    if shape[2] == "M":
        return random.exponential(1.0, n)
    return np.ones(n) if shape[2] == "D" else random.lognormal(-0.72, 1.2, n)


def departures(come: Floats, take: Floats) -> Floats:
    """One server, first come, first served: the Lindley recursion, unrolled."""
    worked = np.cumsum(take)
    return worked + np.maximum.accumulate(come - np.concatenate([[0.0], worked[:-1]]))


def flagged(shape: str, load: float, n: int) -> float:
    found = 0
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, n])
        come = arrivals(shape, n, random)
        gone = departures(come, load * services(shape, n, random))
        seen = backlog((come * 1e6).astype(np.int64), (gone * 1e6).astype(np.int64))
        found += seen is not None and seen.growing
    return found / SEEDS


@pytest.mark.parametrize("n", [300, 1000, 5000])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("shape", ["M/M/1", "M/D/1", "D/M/1", "M/G/1"])
def test_a_stable_queue_is_steady_however_busy_and_however_short_the_run(shape: str, load: float, n: int) -> None:
    assert flagged(shape, load, n) <= 0.01


@pytest.mark.parametrize(
    ("shape", "load", "n"),
    [
        ("M/M/1", 1.1, 12_000),  # a minute at 200/s
        ("M/D/1", 1.1, 6_000),
        ("D/M/1", 1.1, 6_000),
        ("M/G/1", 1.25, 6_000),
        ("M/M/1", 1.25, 3_000),
        ("M/M/1", 2.0, 500),
    ],
)
def test_an_overloaded_queue_is_found_in_a_run_of_realistic_length(shape: str, load: float, n: int) -> None:
    assert flagged(shape, load, n) >= 0.99


# -- slo warmup property --------------------------------------------------------------------------------------------

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
