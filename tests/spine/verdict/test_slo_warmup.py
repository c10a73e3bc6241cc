"""MSER-5 is the published rule, and a cut is only proposed where there is something to cut."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics import warmup
from plimsoll.slo.statistics.warmup import BATCH, Incident, capped, detect, inflation, mser

MS = 1_000_000
RUNS = 200


def due(n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(n, dtype=np.int64) * 50 * MS


def cold(values: FloatArray, share: float, times: float) -> FloatArray:
    """The same series with a start that is ``times`` as slow and comes down to the level within ``share`` of the
    run.
    """
    m = int(share * len(values))
    slow = values.copy()
    slow[:m] *= 1 + (times - 1) * np.exp(-3 * np.arange(m) / m)
    return slow


def brute(z: FloatArray, d: int) -> float:
    rest = z[d:]
    return float(((rest - rest.mean()) ** 2).sum() / len(rest) ** 2)


def test_the_worked_example_drops_two_batches() -> None:
    """SEMANTICS.md C.4."""
    z = np.array([8.0, 4.4, 2.8, 3.0, 2.8, 2.9, 2.8, 3.0])
    found = mser(z)
    assert found.statistic == pytest.approx([0.359824, 0.041224, 0.001343, 0.001600, 0.001719], abs=5e-7)
    assert (found.batches, found.batches * BATCH, found.too_short) == (2, 10, False)


def test_the_running_sums_are_the_definition() -> None:
    z = 1e9 + np.random.default_rng(0).exponential(1e6, 301)  # far from zero, where sums of squares would cancel
    assert mser(z).statistic == pytest.approx([brute(z, d) for d in range(151)], rel=1e-6)


def test_equal_values_are_cut_nowhere_and_ties_go_to_the_smallest_cut() -> None:
    assert mser(np.full(40, 7.0)).batches == 0
    assert mser(np.array([9.0, *[1.0] * 39])).batches == 1


def test_a_level_that_falls_to_the_end_is_too_short_a_run() -> None:
    found = mser(np.linspace(100.0, 1.0, 60))
    assert (found.batches, found.too_short) == (30, True)


def test_nothing_and_infinity_have_no_mser() -> None:
    for bad in (np.empty(0), np.array([1.0, np.inf])):
        with pytest.raises(ValueError, match="finite"):
            mser(bad)


def test_a_failure_is_as_slow_as_the_cap_and_never_leaves_the_series() -> None:
    values = np.arange(1.0, 101)
    assert capped(values).max() == 95.0
    with_failures = values.copy()
    with_failures[[3, 50]] = np.inf
    assert len(capped(with_failures)) == 100
    assert capped(with_failures)[3] == capped(with_failures)[50] == capped(with_failures).max() < np.inf
    mostly = np.where(np.arange(100) < 90, np.inf, 5.0)
    assert capped(mostly).tolist() == [5.0] * 100
    with pytest.raises(ValueError, match="finite"):
        capped(np.full(10, np.inf))


def test_a_cold_start_is_proposed_in_requests_and_in_time_whatever_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(4)
    values = cold(rng.lognormal(0, 0.2, 2000) * 120 * MS, 0.1, 3.0)
    found = detect(values, due(2000))
    assert found is not None
    assert found.proposed
    assert 80 <= found.drop <= 220
    assert found.until_ns == found.drop * 50 * MS
    assert found.before > 1.2 * found.after
    assert found.distance > 0
    shuffled = rng.permutation(2000)
    again = detect(values[shuffled], due(2000)[shuffled])
    assert again is not None
    assert (again.drop, again.until_ns, again.distance) == (found.drop, found.until_ns, found.distance)


def test_a_queue_that_fills_up_is_a_warm_up_as_well() -> None:
    values = cold(np.random.default_rng(5).lognormal(0, 0.1, 2000), 0.2, 0.3)
    found = detect(values, due(2000))
    assert found is not None
    assert found.proposed
    assert found.distance < 0


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("exponential", 0.01),
        ("lognormal", 0.01),
        ("constant", 0.0),
        ("outliers", 0.01),
        ("failures", 0.01),
        ("stall", 0.12),
    ],
)
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_a_steady_run_is_left_alone(name: str, most: float, n: int) -> None:
    make: dict[str, Callable[[np.random.Generator], FloatArray]] = {
        "exponential": lambda rng: rng.exponential(1.0, n),
        "lognormal": lambda rng: rng.lognormal(0, 1, n),
        "constant": lambda rng: np.full(n, 3.0),
        "outliers": lambda rng: rng.lognormal(0, 0.2, n) * np.where(rng.random(n) < 0.01, 50, 1),
        "failures": lambda rng: np.where(rng.random(n) < 0.03, np.inf, rng.lognormal(0, 0.3, n)),
        "stall": lambda rng: stalled(rng, n),
    }
    told = 0
    for seed in range(RUNS):
        found = detect(make[name](np.random.default_rng([seed, n])), due(n))
        told += found is not None and found.proposed
    assert told / RUNS <= most


def stalled(rng: np.random.Generator, n: int) -> FloatArray:
    """One stall of a twelfth of the run, anywhere, worked off within it."""
    values, at = rng.lognormal(0, 0.2, n), int(rng.integers(n // 10, int(0.9 * n)))
    part = values[at : at + n // 12]
    part += np.linspace(20, 0, len(part))
    return values


@pytest.mark.parametrize(
    ("n", "share", "times", "least"), [(1000, 0.05, 3, 0.9), (5000, 0.02, 5, 0.95), (300, 0.2, 3, 0.9)]
)
def test_a_cold_start_is_found(n: int, share: float, times: float, least: float) -> None:
    told = 0
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, n])
        found = detect(cold(rng.lognormal(0, 0.3, n), share, times), due(n))
        told += found is not None and found.proposed
    assert told / RUNS >= least


def test_too_few_or_all_at_once_or_all_failed_say_nothing() -> None:
    values = np.random.default_rng(0).exponential(size=100)
    assert detect(values[:99], due(99)) is None
    assert detect(values, np.zeros(100, np.int64)) is None
    assert detect(np.full(100, np.inf), due(100)) is None
    assert detect(values, due(100)) is not None


def test_a_run_that_is_still_falling_at_its_half_is_not_given_a_cut() -> None:
    values = np.linspace(10.0, 1.0, 1000) * np.random.default_rng(1).lognormal(0, 0.02, 1000)
    found = detect(values, due(1000))
    assert found is not None
    assert found.differs
    assert found.cut.too_short
    assert not found.proposed


def test_inflation_of_an_autoregressive_series_is_the_textbook_one() -> None:
    rng = np.random.default_rng(2)
    assert inflation(rng.normal(size=100_000)) == pytest.approx(1.0, abs=0.1)
    series = np.zeros(200_000)
    noise = rng.normal(size=len(series))
    for i in range(1, len(series)):
        series[i] = 0.8 * series[i - 1] + noise[i]
    assert inflation(series) == pytest.approx((1 + 0.8) / (1 - 0.8), rel=0.1)
    assert inflation(np.ones(50)) == inflation(np.ones(2)) == 1.0


@pytest.mark.parametrize("rho", [0.0, 0.8, 0.99])
def test_a_long_series_is_correlated_in_blocks_and_says_the_same(rho: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    noise, series = rng.normal(size=60_000), np.zeros(60_000)
    for i in range(1, len(series)):
        series[i] = rho * series[i - 1] + noise[i]
    whole = inflation(series)
    monkeypatch.setattr(warmup, "WHOLE", 10_000)
    monkeypatch.setattr(warmup, "LAGS", 2_048)
    assert inflation(series) == pytest.approx(whole, rel=1e-9)


def test_a_million_requests_take_less_than_a_second() -> None:
    values = np.random.default_rng(3).exponential(size=1_000_000)
    began = time.process_time()
    assert detect(values, np.arange(1_000_000)) is not None
    assert time.process_time() - began < 1.0


# -- a slow beginning in which something went wrong -----------------------------------------------------------


def test_one_failure_before_the_cut_or_beside_it_takes_the_proposal_away() -> None:
    values = cold(np.random.default_rng(4).lognormal(0, 0.2, 2000) * 120 * MS, 0.1, 3.0)
    calm = detect(values, due(2000))
    assert calm is not None
    assert calm.proposed
    for at, proposed in ((0, False), (calm.drop - 1, False), (calm.drop + 20, False), (3 * calm.drop, True)):
        failed = values.copy()
        failed[at] = np.inf
        found = detect(failed, due(2000))
        assert found is not None
        assert found.ended
        assert found.proposed == proposed, at
        if not proposed:
            assert found.incident == Incident(1, None)


def served(rng: np.random.Generator, n: int, rate: float, stall: tuple[float, float] | None, load: float) -> FloatArray:
    """Values in ns of one server, first come first served, that is cold at first and stands still for a while."""
    at = np.arange(n) / rate * 1e9
    took = rng.exponential(load / rate, n) * 1e9 * (1 + np.exp(-np.arange(n) / 40))
    free, values = 0.0, np.zeros(n)
    for i in range(n):
        begin = max(at[i], free)
        if stall is not None and stall[0] * 1e9 <= begin < stall[1] * 1e9:
            begin = stall[1] * 1e9
        free = begin + took[i]
        values[i] = free - at[i]
    return values


@pytest.mark.parametrize("rate", [20.0, 200.0])
@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("since", [0.0, 1.0])
def test_a_stall_at_the_beginning_is_never_advised_away(rate: float, load: float, since: float) -> None:
    """Of runs whose first stretch differs because the server stood still for two seconds, none is to be run again
    without it.
    """
    seen = told = 0
    n = int(rate * 30)
    when = (np.arange(n) / rate * 1e9).astype(np.int64)
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        found = detect(served(rng, n, rate, (since, since + 2.0), load), when)
        assert found is not None
        seen += found.ended
        told += found.proposed
        if found.ended and found.incident is not None and found.incident.stall is not None:
            assert found.incident.stall[1] >= 1e9 * (since + 2.0)
    assert seen >= 20
    assert told == 0


def test_a_closed_loop_whose_first_wave_is_slow_keeps_its_proposal() -> None:
    """All slots are asked at once and answered at once, though nobody stood still."""
    slots, waves = 64, 30
    rng = np.random.default_rng(0)
    took = rng.lognormal(0, 0.1, (waves, slots)) * 200 * MS
    took[0] *= 3
    begin = np.concatenate([np.zeros((1, slots)), np.cumsum(took, axis=0)[:-1]])
    found = detect(took.ravel(), begin.ravel().astype(np.int64))
    assert found is not None
    assert found.proposed
    assert found.drop <= 2 * slots


@pytest.mark.parametrize("rate", [20.0, 1000.0])
def test_a_cold_start_without_a_stall_keeps_its_proposal(rate: float) -> None:
    """Slow answers come as evenly as they were asked for."""
    kept = seen = 0
    n = int(rate * 20)
    when = (np.arange(n) / rate * 1e9).astype(np.int64)
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        found = detect(cold(rng.lognormal(0, 0.2, n) * 120 * MS, 0.1, 3.0), when)
        assert found is not None
        seen += found.ended
        kept += found.proposed
    assert seen >= 50
    assert kept >= 0.98 * seen
