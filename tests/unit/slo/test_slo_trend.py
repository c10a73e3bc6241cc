"""Trend, change point and plateau against brute force, textbook identities and known rates of error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.verdict.steadiness import Windows, hamed_rao, mann_kendall, pettitt, steady_window, variation, windows

S = 1_000_000_000


def of(p50: FloatArray, p90: FloatArray | None = None) -> Windows:
    edges = np.arange(len(p50) + 1, dtype=np.int64) * 60 * S
    return Windows(edges, {"p50": p50, "p90": 3 * p50 if p90 is None else p90})


def test_windows_hold_equal_numbers_of_requests_in_order_of_issue() -> None:
    due = np.arange(1010, dtype=np.int64)
    values = due.astype(np.float64)
    shuffled = np.random.default_rng(0).permutation(1010)
    seen = windows(values[shuffled], due[shuffled])
    assert seen is not None
    assert len(seen) == 20
    assert seen.edges_ns.tolist() == [*range(0, 1000, 50), 1009]
    assert seen.values["p50"][0] == 24
    assert seen.values["p90"][0] == 44  # the 45th of 50
    assert seen.values["p90"][19] == 950 + 53  # the last window has 60


def test_fewer_than_five_windows_of_forty_are_none() -> None:
    assert windows(np.ones(199), np.arange(199)) is None
    assert windows(np.ones(300), np.zeros(300, np.int64)) is None
    found = windows(np.ones(200), np.arange(200))
    assert found is not None
    assert len(found) == 5


def test_four_windows_can_never_show_a_trend_and_five_can() -> None:
    assert mann_kendall(np.arange(4.0)).direction == "none"
    assert mann_kendall(np.arange(5.0)).direction == "up"


def test_mann_kendalls_statistic_is_kendalls() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 6, 30).astype(np.float64)
    found = mann_kendall(values)
    s = sum(np.sign(values[j] - values[i]) for i in range(30) for j in range(i + 1, 30))
    assert found.s == s
    assert found.tau == pytest.approx(s / (30 * 29 / 2))
    distinct = rng.permutation(12).astype(np.float64)
    assert mann_kendall(distinct).tau == pytest.approx(stats.kendalltau(np.arange(12), distinct).statistic)
    ties = [int((values == v).sum()) for v in range(6)]
    variance = (30 * 29 * 65 - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = (s - np.sign(s)) / math.sqrt(variance * found.correction)
    assert found.z == pytest.approx(float(z))
    assert found.p == pytest.approx(float(2 * stats.norm.sf(abs(z))))


def test_sens_slope_is_the_median_of_all_slopes() -> None:
    found = mann_kendall(np.array([1.0, 3.0, 5.0, 7.0, 100.0, 11.0]))
    assert found.slope == pytest.approx(2.0)
    assert found.direction == "up"
    assert mann_kendall(-np.arange(8.0)).direction == "down"
    assert mann_kendall(np.full(8, 2.0)).direction == "none"
    assert mann_kendall(np.array([1.0, 2.0])).p == 1.0


def test_an_infinite_percentile_ranks_last_and_is_no_error() -> None:
    found = mann_kendall(np.array([1.0, 2.0, 3.0, 4.0, 5.0, np.inf, np.inf]))
    assert (found.s, found.direction) == (20, "up")
    assert math.isnan(found.slope)
    assert pettitt(np.array([1.0, 1.0, 1.0, np.inf, np.inf, np.inf])).at == 3
    assert variation(np.array([1.0, np.inf])) == math.inf


def test_the_correction_for_neighbours_that_resemble_each_other_keeps_the_level_better() -> None:
    """20 windows of an AR(1) of 0.5 without a trend: the plain test cries wolf twice as often as Hamed and Rao's."""
    rng = np.random.default_rng(2)
    plain = corrected = 0
    for _ in range(400):
        series = rng.normal(size=20)
        for i in range(1, 20):
            series[i] += 0.5 * series[i - 1]
        found = mann_kendall(series)
        corrected += found.p <= 0.05
        plain += math.erfc(abs(found.z * math.sqrt(found.correction)) / math.sqrt(2)) <= 0.05
    assert corrected < plain
    assert hamed_rao(np.array([1.0, 9.0] * 10), 0.0) == 1.0, "never below 1"


def test_independent_windows_trend_by_chance_in_one_run_of_twenty() -> None:
    rng = np.random.default_rng(3)
    told = sum(mann_kendall(rng.exponential(size=20)).direction != "none" for _ in range(1000))
    assert told / 1000 <= 0.05


def test_pettitt_finds_the_change_of_level() -> None:
    found = pettitt(np.r_[np.zeros(7), np.ones(13)])
    # U after 7 of 20: every later one is larger, so |U| = 7 * 13.
    assert (found.at, found.k) == (7, 91)
    assert found.p == pytest.approx(2 * math.exp(-6 * 91**2 / (20**3 + 20**2)))
    assert pettitt(np.ones(9)).p == 1.0
    assert pettitt(np.ones(1)).p == 1.0


def test_a_flat_run_is_steady_from_end_to_end() -> None:
    flat = 100 + np.array([0.0, 1, -1, 0.5, -0.5, 1, 0, -1])
    found = steady_window(of(flat))
    assert (found.status, found.verdict, found.first, found.last) == ("windowable", "steady", 0, 8)


def test_the_first_plateau_wins_and_what_comes_before_it_is_left_out() -> None:
    start = np.r_[300.0, 200.0, 150.0, 100 + np.array([0.0, 1, -1, 0.5, -0.5, 1])]
    found = steady_window(of(start))
    assert (found.verdict, found.first, found.last) == ("steady", 3, 9)


def test_a_lasting_change_after_the_plateau_is_an_anomaly() -> None:
    wobble = np.array([0.0, 1, -1, 0.5, -0.5, 1])
    found = steady_window(of(np.r_[100 + wobble, 140 + wobble]))
    assert (found.verdict, found.first, found.last) == ("anomaly", 0, 6)


def test_a_drift_has_its_direction_and_scatter_has_none() -> None:
    assert steady_window(of(np.linspace(100, 300, 12))).verdict == "drifting_up"
    assert steady_window(of(np.linspace(300, 100, 12))).verdict == "drifting_down"
    assert steady_window(of(np.array([100.0, 180, 90, 170, 95, 175, 99, 160]))).verdict == "not_found"


def test_too_few_windows_or_too_short_a_run_have_a_status_of_their_own() -> None:
    assert steady_window(of(np.ones(3))).status == "insufficient_windows"
    assert steady_window(of(np.ones(8)), min_duration_ns=481 * S).status == "insufficient_duration"
    # Steady only for its last four minutes, where ten are asked for.
    late = np.r_[np.linspace(300, 120, 8), np.full(4, 100.0)]
    assert steady_window(of(late), min_duration_ns=600 * S).last == 0


def test_every_series_must_be_on_the_plateau() -> None:
    flat, wild = np.full(8, 100.0), np.array([300.0, 500, 290, 520, 310, 490, 300, 505])
    assert steady_window(of(flat, wild)).verdict == "not_found"


def test_a_window_full_of_failures_is_no_plateau() -> None:
    assert steady_window(of(np.full(6, 100.0), np.full(6, np.inf))).last == 0
