"""Queueing arithmetic against the tables of SEMANTICS.md E and against simulated queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.search import sizing

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
