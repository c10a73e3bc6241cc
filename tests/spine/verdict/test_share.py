"""A share of bad entries is judged as surely as its clusters allow. One more bad entry never helps, wherever it falls
and however the others lie.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.special import ndtri

from plimsoll.slo.records.records import Phase, from_columns
from plimsoll.slo.statistics.confidence import binomial_at_least, binomial_at_most
from plimsoll.slo.statistics.share import Course, bounds, counted, course, series, share_test, weigh


def even(bad: int, n: int) -> npt.NDArray[np.bool_]:
    some = np.zeros(n, bool)
    some[np.arange(bad) * n // max(bad, 1)] = True
    return some


def burst(bad: int, n: int) -> npt.NDArray[np.bool_]:
    return np.arange(n) < bad


def latencies(n: int, phi: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """A stationary AR(1) series: neighbours correlate by phi, as those in one busy period do."""
    noise = rng.standard_normal(n + 500)
    return np.asarray(lfilter([np.sqrt(1 - phi**2)], [1, -phi], noise)[500:])


@pytest.mark.long
@pytest.mark.parametrize(("n", "limit"), [(20_000, 0.01), (5_000, 0.1), (5_000, 0.5)])
def test_where_the_exact_test_passes_wrongly_in_a_third_of_runs_this_one_keeps_its_word(n: int, limit: float) -> None:
    rng = np.random.default_rng(7)
    naive = ours = 0
    runs = 300
    for _ in range(runs):
        bad = latencies(n, 0.95, rng) > ndtri(1 - limit)  # the share is exactly on the limit: a PASS is wrong
        naive += binomial_at_most(int(bad.sum()), n, limit) <= 0.05
        ours += share_test(bad, limit).outcome == "PASS"
    assert naive / runs > 0.25
    assert ours / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.long
def test_a_kept_promise_is_not_called_broken_by_a_burst() -> None:
    rng = np.random.default_rng(8)
    naive = ours = 0
    for _ in range(300):
        bad = latencies(20_000, 0.95, rng) > ndtri(0.99)
        naive += binomial_at_least(int(bad.sum()), 20_000, 0.01) <= 0.05
        ours += share_test(bad, 0.01).outcome == "FAIL"
    assert naive / 300 > 0.25
    assert ours / 300 <= 0.09


def test_independent_entries_cost_little_power() -> None:
    rng = np.random.default_rng(9)
    draws = [rng.random(5_000) < 0.006 for _ in range(400)]
    exact = np.mean([binomial_at_most(int(bad.sum()), 5_000, 0.01) <= 0.05 for bad in draws])
    both = np.mean([share_test(bad, 0.01).outcome == "PASS" for bad in draws])
    assert exact > 0.9
    assert both > exact - 0.12


def test_evenly_spread_entries_are_judged_by_the_exact_test_alone() -> None:
    assert share_test(even(77, 10_000), 0.01, "0.99").outcome == "PASS"
    assert share_test(even(78, 10_000), 0.01, "0.99").outcome == "INCONCLUSIVE"
    assert share_test(even(77, 10_000), 0.01, "0.99").allowed == 77


def test_the_same_number_in_one_burst_is_one_event() -> None:
    apart, together = share_test(even(50, 10_000), 0.01), share_test(burst(50, 10_000), 0.01)
    assert (apart.outcome, together.outcome) == ("PASS", "INCONCLUSIVE")
    assert apart.design_effect < 1.2
    assert together.design_effect > 30
    assert together.interval[1] > 0.01 > apart.interval[1]
    assert together.n_needed is not None
    assert together.n_needed > 10_000


def test_an_outage_that_breaks_the_promise_many_times_over_fails_even_as_one_event() -> None:
    assert share_test(burst(1000, 10_000), 0.01).outcome == "FAIL"


def test_no_bad_entry_leaves_the_exact_test_alone() -> None:
    assert [share_test(np.zeros(n, bool), "0.01").outcome for n in (298, 299)] == ["INCONCLUSIVE", "PASS"]
    assert share_test(np.zeros(298, bool), "0.01").n_needed == 299


def test_no_entries_show_nothing_and_say_how_many_would() -> None:
    found = share_test(np.zeros(0, bool), "0.01")
    assert (found.outcome, found.n, found.n_needed, found.interval) == ("INCONCLUSIVE", 0, 299, (0.0, 1.0))


@pytest.mark.parametrize("limit", [0.0, 1.0, -0.1, 1.5])
def test_a_limit_that_no_run_could_show_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match=r"strictly between|lies in 0\.\.1"):
        share_test(np.zeros(5, bool), limit)


def test_the_interval_holds_the_share_and_agrees_with_the_outcome() -> None:
    rng = np.random.default_rng(10)
    for _ in range(60):
        n = int(rng.integers(1, 4000))
        bad = latencies(n, 0.8, rng) > rng.uniform(0, 3)
        found = share_test(bad, 0.05)
        low, high = found.interval
        assert low <= bad.mean() <= high
        assert (found.outcome == "PASS") == (high <= 0.05 + 1e-8)
        assert (found.outcome == "FAIL") == (low > 0.05 - 1e-8)


def test_a_course_follows_the_due_times_and_leaves_the_warm_up_out() -> None:
    due = np.array([5, 4, 3, 2, 1, 0] * 100) + np.repeat(np.arange(100) * 6, 6)
    phase = np.where(np.arange(600) < 60, int(Phase.WARMUP), int(Phase.MEASURE))
    found = course(from_columns(600, due_ns=due, done_ns=due + 3, phase=phase))
    assert (found.place == -1).sum() == 60
    assert found.number == 540
    assert (np.diff(due[60:][np.argsort(found.place[60:])]) >= 0).all()
    assert found.in_flight == pytest.approx(3.0, abs=0.02)


def test_requests_due_at_one_moment_have_no_order_of_their_own() -> None:
    """An offline run: the n-th sample waits n times as long, and that is no memory of the endpoint's."""
    n = 2_000
    rows = from_columns(n, due_ns=np.zeros(n, np.int64), done_ns=np.arange(n) + 1)
    assert series(np.arange(n, dtype=float), np.arange(n), course(rows)).memory.design < 1.5
    assert series(np.arange(n, dtype=float), np.arange(n), whole(n)).memory.design > 100


def whole(n: int) -> Course:
    return Course(np.arange(n), n, 0.0)


def test_bounds_of_evenly_spread_values_are_nearly_the_order_statistics() -> None:
    """Multiples of the golden ratio lie as evenly as can be, at every threshold; C.1 has ranks 884 and 916 for one
    side.
    """
    values = np.argsort(np.argsort(np.arange(1000) * 0.6180339887498949 % 1.0)).astype(np.float64)
    low, high = bounds(series(values, np.arange(1000), whole(1000)), Fraction(9, 10))
    assert 881.0 <= low <= 883.0
    assert 915.0 <= high <= 917.0


def test_bounds_of_a_percentile_widen_with_the_clusters() -> None:
    """Sorted values, worst case: one trend, and nothing is known of how it goes on."""
    values = np.arange(1000.0)
    low, high = bounds(series(values, np.arange(1000), whole(1000)), Fraction(9, 10), floor=-np.inf)
    assert (low, high) == (-np.inf, np.inf)


def test_the_floor_is_told_where_a_sample_is_too_small_for_a_bound() -> None:
    """A finalization may be negative: no bound "above 0" for a percentile of -191 ms."""
    values = np.full(20, -191e6)
    assert bounds(series(values, np.arange(20), whole(20)), Fraction(5, 100), floor=-np.inf)[0] == -np.inf
    assert bounds(series(np.abs(values), np.arange(20), whole(20)), Fraction(5, 100))[0] == 0.0


def test_whole_requests_that_are_slow_count_once() -> None:
    """300 requests of 60 gaps, 1 % of the requests slow in all of them: 180 bad gaps are three requests."""
    rng = np.random.default_rng(3)
    gaps = rng.exponential(1.0, (300, 60))
    gaps[[20, 150, 290]] += 50
    values, row = gaps.ravel(), np.repeat(np.arange(300), 60)
    seen = series(values, row, whole(300)).count(values > 40)
    assert seen.bad == 180
    assert 40 < seen.design < 90


def test_weighing_events_is_judging_their_entries() -> None:
    bad = even(13, 777)
    assert weigh(counted(bad), "0.02") == share_test(bad, "0.02")


# -- one more bad entry never helps ---------------------------------------------------------------------------------

RANK = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}
limits = st.sampled_from(["0.001", "0.01", "0.05", "0.1", "0.5", "0.9", "0.99"])
#: Runs of equal entries, so that clusters of every size occur.
entries = st.lists(st.tuples(st.booleans(), st.integers(1, 90)), min_size=1, max_size=14).map(
    lambda runs: np.concatenate([np.full(length, value) for value, length in runs])
)


@given(bad=entries, at=st.integers(0, 10_000), limit=limits)
def test_a_good_entry_that_turns_bad_never_improves_the_outcome(bad: np.ndarray, at: int, limit: str) -> None:
    worse = bad.copy()
    worse[at % len(bad)] = True
    before, after = share_test(bad, limit, "0.9"), share_test(worse, limit, "0.9")
    assert after.p_pass >= before.p_pass - 1e-12
    assert after.p_fail <= before.p_fail + 1e-12
    assert RANK[after.outcome] >= RANK[before.outcome]


@given(bad=entries, limit=limits)
def test_the_outcome_is_never_surer_than_that_of_independent_entries(bad: np.ndarray, limit: str) -> None:
    even = np.zeros(len(bad), bool)
    k = int(bad.sum())
    even[np.arange(k) * len(bad) // max(k, 1)] = True
    clustered, apart = share_test(bad, limit), share_test(even, limit)
    assert clustered.p_pass >= apart.p_pass - 1e-9 or apart.p_pass > 0.05
    low, high = clustered.interval
    assert 0.0 <= low <= k / len(bad) <= high <= 1.0
