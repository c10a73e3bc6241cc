"""Arrival processes against published schedules, exact arithmetic and statistics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plimsoll.scenarios.plan.arrival import (
    MAX_QUERIES,
    RateProfile,
    Segment,
    constant_rate,
    expected_queries,
)
from plimsoll.scenarios.plan.plan import IntArray
from tests.due_times import PROCESSES, due_times

S = 1_000_000_000


def arrivals(
    process: str, rate: float | RateProfile, seed: int, n: int = 1, duration_ns: int = 0, b: float = 1.0
) -> IntArray:
    profile = rate if isinstance(rate, RateProfile) else constant_rate(rate)
    return due_times(process, profile, seed, min_queries=n, min_duration_ns=duration_ns, burstiness=b)  # type: ignore[arg-type]


def dispersion(due: IntArray, window_ns: int) -> float:
    """Variance over mean of the counts in equal windows: 1 for Poisson."""
    counts = np.bincount(due // window_ns)[: due[-1] // window_ns]
    return float(counts.var(ddof=1) / counts.mean())


# LoadGen 6.0.17's own schedules, observed by running it.
@pytest.mark.parametrize(
    ("seed", "rate", "published"),
    [
        (42, 400, [0, 3980751, 4487372, 8269182, 10540299]),
        (0, 100, [0, 8985603, 27581645, 47097098, 65886738, 75656802]),
        (16159082839903944936, 1, [0, 1843654016, 2301577704, 3587440020, 4300434743, 4686841368]),
        (2023080168, 1, [0, 1843654016, 2301577704, 3587440020, 4300434743, 4686841368]),
    ],
)
def test_loadgen_schedules_match_bit_for_bit(seed: int, rate: float, published: list[int]) -> None:
    assert arrivals("loadgen", rate, seed, n=len(published)).tolist() == published


def test_loadgen_run_of_two_seconds_has_the_published_end() -> None:
    due = arrivals("loadgen", 400, 42, duration_ns=2 * S)
    assert (len(due), due[-1]) == (799, 2005471926)
    assert arrivals("loadgen", 400, 42, n=800)[-1] == 2009374553


def test_loadgen_refuses_a_changing_rate() -> None:
    with pytest.raises(ValueError, match="plain number"):
        arrivals("loadgen", RateProfile((Segment(1, 2, S),), 2), 1)


def test_constant_rate_does_not_drift_in_an_hour() -> None:
    due = arrivals("constant", 1000, 0, duration_ns=3600 * S)
    assert np.array_equal(due, np.arange(3_600_001) * 1_000_000)


@pytest.mark.parametrize("rate", [3, 0.1, 7.3, 999.7])
def test_constant_due_times_are_the_rounded_exact_ones(rate: float) -> None:
    from fractions import Fraction

    due = arrivals("constant", rate, 0, n=100_001)
    for k in (1, 2, 999, 54_321, 100_000):
        assert abs(Fraction(int(due[k])) - k * S / Fraction(repr(rate))) <= Fraction(1, 2) + Fraction(1, 1000)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_list_ends_with_the_first_arrival_at_or_after_the_minimum(process: str) -> None:
    due = arrivals(process, 50, 3, n=10, duration_ns=4 * S)
    assert due[0] == 0
    assert due[-2] < 4 * S <= due[-1]
    assert len(arrivals(process, 50, 3, n=1000, duration_ns=4 * S)) == 1000


@pytest.mark.parametrize("process", PROCESSES)
def test_a_longer_list_begins_with_the_shorter(process: str) -> None:
    short, long = arrivals(process, 50, 9, n=300), arrivals(process, 50, 9, n=70_000)
    assert np.array_equal(short, long[:300])


@pytest.mark.parametrize("process", ["poisson", "gamma", "loadgen"])
def test_seeds_differ_and_seed_zero_is_a_seed(process: str) -> None:
    lists = [arrivals(process, 50, seed, n=100).tobytes() for seed in (0, 1, 2)]
    assert len(set(lists)) == 3
    assert arrivals(process, 50, 0, n=100).tobytes() == lists[0]


@pytest.mark.parametrize(("process", "b"), [("poisson", 1.0), ("loadgen", 1.0), ("gamma", 1.0)])
def test_poisson_gaps_are_exponential_and_counts_disperse_as_poisson(process: str, b: float) -> None:
    due = arrivals(process, 200, 20260, n=20_000, b=b)
    assert stats.kstest(np.diff(due) / S, "expon", args=(0, 1 / 200)).pvalue > 0.01
    assert 0.9 < dispersion(due, S // 4) < 1.1
    assert len(due) / due[-1] * S == pytest.approx(200, rel=4 / np.sqrt(20_000))


@pytest.mark.parametrize("b", [0.25, 4.0])
def test_gamma_gaps_have_the_shape_and_mean_asked_for(b: float) -> None:
    gaps = np.diff(arrivals("gamma", 100, 7, n=20_000, b=b)) / S
    assert stats.kstest(gaps, "gamma", args=(b, 0, 1 / (100 * b))).pvalue > 0.01
    assert dispersion(arrivals("gamma", 100, 7, n=20_000, b=b), S) == pytest.approx(1 / b, rel=0.35)


def test_a_poisson_ramp_is_an_inhomogeneous_poisson_process() -> None:
    profile = RateProfile((Segment(10, 500, 40 * S),), 500)
    due = arrivals("poisson", profile, 5, duration_ns=40 * S)
    # Given their number, the cumulative rate at the arrivals is uniform: the time-change theorem backwards.
    work = np.array([profile.expected(int(t)) for t in due[1:-1]])
    assert stats.kstest(work / profile.expected(40 * S), "uniform").pvalue > 0.01
    assert len(due) == pytest.approx(255 * 40, abs=4 * np.sqrt(255 * 40))


def test_steps_give_each_stretch_its_rate_and_the_last_holds() -> None:
    profile = RateProfile((Segment(5, 5, 20 * S), Segment(50, 50, 10 * S)), 5)
    due = arrivals("constant", profile, 0, duration_ns=60 * S)
    counts = [int(((due >= a * S) & (due < b * S)).sum()) for a, b in ((0, 20), (20, 30), (30, 60))]
    assert counts == [100, 500, 150]
    assert profile.expected(60 * S) == 750


def test_a_constant_ramp_follows_the_closed_form() -> None:
    due = arrivals("constant", RateProfile((Segment(0, 50, 60 * S),), 50), 0, duration_ns=80 * S)
    k = np.arange(1501)  # L(t) = 50/120 t^2 until 60 s
    assert np.abs(due[:1501] - np.sqrt(k * 120 / 50) * S).max() <= 1
    assert np.diff(due[1501:]).tolist() == [20_000_000] * (len(due) - 1502)


def test_a_pause_in_the_middle_sends_nothing() -> None:
    profile = RateProfile((Segment(10, 10, S), Segment(0, 0, 5 * S)), 10)
    due = arrivals("poisson", profile, 4, duration_ns=20 * S)
    assert not ((due > S) & (due < 6 * S)).any()
    assert (due > 6 * S).any()


def test_a_ramp_down_to_nothing_and_up_again_stays_sorted() -> None:
    profile = RateProfile((Segment(100, 0, 10 * S), Segment(0, 100, 10 * S)), 100)
    for process in ("constant", "poisson"):
        due = arrivals(process, profile, 4, duration_ns=25 * S)
        assert (np.diff(due) >= 0).all()
        assert len(due) == pytest.approx(1501, abs=160)


@pytest.mark.parametrize(
    ("segments", "hold", "says"),
    [
        ((), 0, "last rate above 0"),
        ((), float("nan"), "not a rate"),
        ((Segment(-1, 2, S),), 2, "not a rate"),
        ((Segment(1, 2, 0),), 2, "lasts no time"),
    ],
)
def test_impossible_profiles_are_refused(segments: tuple[Segment, ...], hold: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RateProfile(segments, hold)


def test_a_huge_schedule_is_refused_with_its_number_before_it_is_built() -> None:
    assert expected_queries(constant_rate(1e7), 1, 3600 * S) == 36_000_000_001
    with pytest.raises(ValueError, match="36,000,000,001 queries, more than 2,000,000,000"):
        arrivals("poisson", 1e7, 1, duration_ns=3600 * S)
    with pytest.raises(ValueError, match="last too long"):
        arrivals("poisson", 1e-6, 1, n=MAX_QUERIES)


def test_initial_rate_skips_a_start_at_zero() -> None:
    assert RateProfile((Segment(0, 50, S),), 50).initial == 50
    assert RateProfile((Segment(5, 5, S),), 50).initial == 5
