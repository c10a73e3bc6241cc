"""The queueing overlay on simulated queues, where the model is the truth, and on logs that contradict themselves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.search.sizing import Load, little, load, overlay, pinned
from tests.unit.harness.capacity_folders import SERVICE_NS, md1, rows

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
