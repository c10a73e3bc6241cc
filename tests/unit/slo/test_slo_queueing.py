"""Queueing arithmetic against the tables of SEMANTICS.md E and against simulated queues. The queueing overlay on
simulated queues, where the model is the truth, and on logs that contradict themselves. What a million costs, and
how many replicas a peak needs: SEMANTICS E.4.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_arms import arm

from plimsoll.slo.comparison.tiers import cost, million, needs
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.search import sizing
from plimsoll.slo.search.sizing import Load, little, load, overlay, pinned
from tests.unit.harness.capacity_folders import SERVICE_NS, md1, rows

INT = np.int64


def test_littles_law_on_the_worked_example() -> None:
    """E.1: requests (0,4), (1,3), (5,12) over 10: the tail outside the window explains the gap."""
    found = sizing.occupancy(np.array([0, 1, 5], INT), np.array([4, 3, 12], INT), 10)
    assert (found.by_sweep_ns, found.by_overlap_ns) == (11, 11)
    assert found.mean == pytest.approx(1.1)
    assert [found.rate_per_ns, found.response_ns] == pytest.approx([0.3, 13 / 3])
    assert found.rate_per_ns * found.response_ns == pytest.approx(1.3)
    assert found.bound == pytest.approx(0.7)
    assert abs(found.gap) <= found.bound


@given(
    st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(0, 10**11) | st.just(-1)), min_size=1, max_size=60),
    st.integers(1, 10**12),
)
def test_both_ways_to_count_agree_and_the_gap_stays_within_its_bound(rows: list[tuple[int, int]], until: int) -> None:
    arrived = np.array([at for at, _ in rows], INT)
    left = np.array([-1 if took < 0 else at + took for at, took in rows], INT)
    found = sizing.occupancy(arrived, left, until)
    assert found.by_sweep_ns == found.by_overlap_ns
    assert abs(found.gap) <= found.bound + 1e-6 * max(1.0, found.mean)


def test_departures_come_before_arrivals_on_a_tie_and_nonsense_is_refused() -> None:
    chain = sizing.occupancy(np.arange(5, dtype=INT), np.arange(1, 6, dtype=INT), 5)
    assert [chain.mean, chain.gap] == pytest.approx([1.0, 0.0])
    with pytest.raises(ValueError, match="left before it came"):
        sizing.occupancy(np.array([5], INT), np.array([4], INT), 10)
    with pytest.raises(ValueError, match="at least one request"):
        sizing.occupancy(np.empty(0, INT), np.empty(0, INT), 10)


@pytest.mark.parametrize(
    ("rho", "mm1", "md1"),
    [
        (0.3, (1.43, 4.28, 6.58, 9.87), (1.214, 2.071, 2.891)),
        (0.5, (2, 5.99, 9.21, 13.8), (1.5, 3.051, 4.336)),
        (0.7, (3.33, 9.99, 15.4, 23.0), (2.167, 5.103, 7.486)),
        (0.8, (5, 15.0, 23.0, 34.5), (3, 7.620, 11.356)),
        (0.9, (10, 30.0, 46.1, 69.1), (5.5, 15.129, 22.898)),
        (0.95, (20, 59.9, 92.1, 138), (10.5, 30.116, 45.938)),
    ],
)
def test_reference_curves_of_one_server(rho: float, mm1: tuple[float, ...], md1: tuple[float, ...]) -> None:
    """E.2."""
    assert [sizing.mm1_mean(rho), *(sizing.mm1_quantile(rho, p) for p in (0.95, 0.99, 0.999))] == pytest.approx(
        mm1, rel=0.005
    )
    assert [sizing.md1_mean(rho), *(sizing.md1_quantile(rho, p) for p in (0.95, 0.99))] == pytest.approx(
        md1, abs=0.0011
    )


@pytest.mark.parametrize(
    ("servers", "rho", "waits", "p99"),
    [
        (1, 0.8, 0.8, 23.03), (2, 0.8, 0.7111, 11.94), (4, 0.8, 0.5964, 6.89), (8, 0.8, 0.4576, 5.15),
        (16, 0.8, 0.3049, 4.74), (4, 0.9, 0.7878, 12.19), (8, 0.9, 0.7015, 7.09),
    ],
)  # fmt: skip
def test_reference_curves_of_pooled_servers(servers: int, rho: float, waits: float, p99: float) -> None:
    """E.2: one queue before c servers."""
    assert sizing.erlang_c(servers, rho) == pytest.approx(waits, abs=0.00006)
    assert sizing.mmc_quantile(servers, rho, 0.99) == pytest.approx(p99, abs=0.0065)


def test_one_pooled_server_is_mm1_and_equal_stages_are_no_division_by_zero() -> None:
    for p in (0.5, 0.95, 0.999):
        assert sizing.mmc_quantile(1, 0.8, p) == pytest.approx(sizing.mm1_quantile(0.8, p))
    # c (1 - rho) = 1: the wait's rate is the service's.
    assert sizing.mmc_within(2, 0.5, 3.0) == pytest.approx(sizing.mmc_within(2, 0.5 + 1e-7, 3.0), abs=1e-6)


def test_waits_in_mg1_and_the_heavy_traffic_tail() -> None:
    """E.2: Pollaczek-Khinchine at 0.8, and how far the exponential tail is off for M/D/1."""
    assert [sizing.pollaczek_khinchine(0.8, cv2) for cv2 in (0, 1, 4)] == pytest.approx([2, 4, 10])
    near = [sizing.heavy_traffic_quantile(rho, 0, 0.99) for rho in (0.5, 0.7, 0.8, 0.9)]
    assert near == pytest.approx([4.91, 8.08, 11.96, 23.50], abs=0.006)
    over = [value / sizing.md1_quantile(rho, 0.99) - 1 for value, rho in zip(near, (0.5, 0.7, 0.8, 0.9), strict=True)]
    assert over == pytest.approx([0.13, 0.08, 0.05, 0.03], abs=0.006)


def test_the_highest_utilisation_for_a_p99_in_service_times() -> None:
    """E.2."""
    for rho, within in ((0.539, 10), (0.770, 20), (0.908, 50)):
        assert sizing.mm1_quantile(rho, 0.99) == pytest.approx(within, rel=0.002)


def test_a_simulated_queue_has_the_quantiles_of_the_formula() -> None:
    rng = np.random.default_rng(1)
    n = 400_000
    come, take = np.cumsum(rng.exponential(1 / 0.7, n)), np.ones(n)
    worked = np.cumsum(take)
    gone = worked + np.maximum.accumulate(come - np.concatenate([[0.0], worked[:-1]]))
    took = np.sort(gone - come)
    assert took.mean() == pytest.approx(sizing.md1_mean(0.7), rel=0.03)
    assert took[int(0.99 * n)] == pytest.approx(sizing.md1_quantile(0.7, 0.99), rel=0.06)


@pytest.mark.parametrize(("headroom", "n"), [("0.7", 12), ("0.8", 11), ("0.6", 14)])
def test_replicas_for_a_peak(headroom: str, n: int) -> None:
    """E.4: 1000/s at 120/s a replica."""
    assert sizing.replicas(1000, 120, headroom) == n


def test_replicas_that_survive_the_loss_of_one() -> None:
    """E.4: utilisation and utilisation with one down."""
    assert sizing.size(1000, 120, "0.8", "0.85").by_one_down == 11
    assert [round(1000 / (n * 120), 3) for n in (12, 11)] == [0.694, 0.758]
    assert [round(1000 / ((n - 1) * 120), 3) for n in (12, 11)] == [0.758, 0.833]
    assert sizing.replicas(1000, 100, "1") == 10, "an exact fit is enough"


@pytest.mark.parametrize(
    "call",
    [
        lambda: sizing.mm1_mean(1.0),
        lambda: sizing.erlang_c(4, 1.2),
        lambda: sizing.replicas(0, 120, "0.7"),
        lambda: sizing.replicas(1000, 120, "0"),
        lambda: sizing.mm1_quantile(-0.1, 0.5),
        lambda: sizing.md1_quantile(0.5, 1.0),
    ],
)
def test_what_has_no_steady_state_or_no_sense_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=r"steady state|above 0|nothing may be used|strictly between"):
        call()


# -- the overlay ----------------------------------------------------------------------------------------------------

MS = 1_000_000


def run(rate: float, n: int = 20_000) -> Records:
    due, done = md1(rate, n, int(rate))
    return rows(due, done)


def test_each_queue_is_pinned_at_the_mean_of_the_lowest_load() -> None:
    """M/M/1 by its closed form, R = S / (1 - lambda S); M/D/1 and M/M/c by putting the service time back in."""
    assert pinned("M/M/1", 1, 50, 20 * MS).service_ns == pytest.approx(10 * MS)
    assert pinned("M/D/1", 1, 50, 15 * MS).service_ns == pytest.approx(10 * MS)  # rho 0.5: 1 + 0.5 / (2 * 0.5) = 1.5
    assert pinned("M/M/c", 2, 100, 10 / (1 - 0.25) * MS).service_ns == pytest.approx(10 * MS)  # M/M/2: S / (1 - rho^2)
    with pytest.raises(ValueError, match="above 0"):
        pinned("M/M/1", 1, 0, MS)


def test_an_m_d_1_endpoint_lies_on_the_m_d_1_curve_and_off_the_m_m_1_one() -> None:
    loads = [load(f"{rate}", rate, run(rate), stable=True) for rate in (30, 60, 90)]
    found = overlay(loads)
    assert found is not None
    mm1, md1_queue = found.queues
    assert md1_queue.service_ns == pytest.approx(SERVICE_NS, rel=0.02)
    for one in loads[1:]:
        predicted = md1_queue.quantile_ns(one.rate_per_s, 0.99)
        assert predicted is not None
        assert one.p99_ns / predicted == pytest.approx(1, abs=0.12)
    memoryless = mm1.quantile_ns(90, 0.99)
    assert memoryless is not None
    assert loads[-1].p99_ns < 0.75 * memoryless


def test_a_load_that_a_model_cannot_carry_has_no_prediction() -> None:
    queue = pinned("M/M/1", 1, 50, 20 * MS)
    assert queue.limit_per_s == pytest.approx(100)
    assert queue.quantile_ns(100.1, 0.5) is None
    assert queue.utilisation(150) == pytest.approx(1.5)


def test_curves_end_before_the_model_explodes_and_begin_at_the_pin() -> None:
    loads = [Load("a", 10, 100, 0, 20.0 * MS, MS, MS), Load("b", 500, 100, 0, 20.0 * MS, MS, MS)]
    found = overlay(loads, servers=4)
    assert found is not None
    assert [queue.model for queue in found.queues] == ["M/M/1", "M/D/1", "M/M/c"]
    for queue, curve in zip(found.queues, found.curves, strict=True):
        assert curve[0][0] == 10
        assert curve[-1][0] <= queue.limit_per_s
        assert all(a[2] <= b[2] for a, b in pairwise(curve))


def test_short_runs_and_endpoints_that_did_not_keep_up_pin_nothing() -> None:
    short, growing = Load("a", 10, 10, 0, MS, MS, MS), Load("b", 20, 500, 0, MS, MS, MS, stable=False)
    assert overlay([short, growing]) is None
    good = Load("c", 30, 500, 0, MS, MS, MS)
    found = overlay([short, growing, good])
    assert found is not None
    assert found.pin is good


def test_littles_law_holds_on_a_queue_whatever_its_load() -> None:
    for rate in (30, 90, 140):  # the last one is beyond what it can serve
        laws = little(run(rate, 2_000))
        assert [law.view for law in laws] == ["response", "service"]
        assert not any(law.wrong for law in laws)
        assert all(abs(law.mean - law.product) <= law.bound for law in laws)


def test_a_log_that_contradicts_itself_is_told() -> None:
    due, done = md1(30, 500, 1)
    early = done.copy()
    early[7] = due[7] - 1
    assert "before it came" in little(rows(due, early))[0].wrong
    lost = rows(due, np.where(np.arange(500) == 3, -1, done))
    assert little(lost)[0].wrong.startswith("1 requests were answered")


def test_what_was_never_sent_was_never_in_the_system_and_failures_are_infinitely_slow() -> None:
    columns = {
        "query_id": [0, 1, 2],
        "due_ns": [0, MS, 2 * MS],
        "sent_ns": [0, MS, -1],
        "done_ns": [4 * MS, 5 * MS, -1],
    }
    made = from_columns(3, status=[0, 3, 9], **columns)
    response = little(made)[0]
    assert response.rate_per_s == pytest.approx(1000)  # one arrival in [0, 1 ms)
    found = load("r", 1000, made, stable=True)
    assert (found.n, found.failed) == (1, 2)
    assert found.p99_ns == float("inf")


def test_a_run_without_requests_says_nothing() -> None:
    assert little(from_columns(0)) == ()
    empty = load("r", 1, from_columns(0), stable=True)
    assert not empty.usable


# -- cost -----------------------------------------------------------------------------------------------------------


def test_a_price_over_a_throughput() -> None:
    assert million(3.60, 1000) == pytest.approx(1.0)
    assert million(3.60, 0) == math.inf
    assert million(0, 1000) == 0


def test_the_cost_is_that_of_the_median_run_with_the_interval_of_its_throughput() -> None:
    made = arm("a", {"rate(output_tokens)": [900.0, 1000, 1100, 950, 1050, 1010, 990, 1000]})
    found = cost(made, 3.6)
    assert found is not None
    assert (found.per_s, found.value) == (1000.0, pytest.approx(1.0))
    assert found.interval[0] < 1.0 < found.interval[1]
    assert found.interval[0] == pytest.approx(1 / 1.05, rel=0.03)
    assert max(found.values) == pytest.approx(1000 / 900)


def test_fewer_than_six_runs_have_no_interval_and_a_dead_run_costs_without_limit() -> None:
    five = cost(arm("a", {"rate(ok)": [10.0] * 5}), 1.0, "requests")
    assert five is not None
    assert five.interval == (0.0, math.inf)
    dead = cost(arm("a", {"rate(ok)": [0.0] * 6}), 1.0, "requests")
    assert dead is not None
    assert (dead.value, dead.interval) == (math.inf, (math.inf, math.inf))


def test_without_a_rate_there_is_no_cost_and_a_price_is_a_number_of_at_least_nothing() -> None:
    assert cost(arm("a", {"rate(ok)": [10.0] * 5}), 1.0) is None
    assert str(needs("good_requests")) == "rate(good)"
    for price in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="write what an hour costs"):
            cost(arm("a", {"rate(ok)": [10.0]}), price, "requests")
