"""The generator is judged by its own lateness, and every broken promise says what to do next."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from plimsoll.scenarios.plan.arrival import constant_rate
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import IntArray, Records, Status, from_columns
from plimsoll.slo.statistics import order
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.lateness import P_CLAIM, claimed, dispersion, exponential_fit, rate_per_s
from plimsoll.slo.validity.validity import Validity, assess
from tests.due_times import due_times

MS = 1_000_000
N = 1000


def poisson(n: int = N, rate: float = 100.0, seed: int = 1) -> IntArray:
    return np.cumsum(np.random.default_rng(seed).exponential(1e9 / rate, n)).astype(np.int64)


def run(due: IntArray, lag: object = 0, wait: object = 0, **columns: object) -> Records:
    """Requests taken up ``lag`` after due, sent ``wait`` after that, and answered 20 ms later."""
    ready = due + np.asarray(lag)
    sent = ready + np.asarray(wait)
    given: dict[str, object] = {
        "due_ns": due, "ready_ns": ready, "sent_ns": sent, "first_byte_ns": sent + 10 * MS, "done_ns": sent + 20 * MS
    }  # fmt: skip
    return from_columns(len(due), **(given | columns))  # type: ignore[arg-type]


def facts(**changes: object) -> GeneratorFacts:
    honest = GeneratorFacts(
        open_loop=True, planned=N, planned_queries=N, process="poisson", min_queries=N, elapsed_ns=20_000 * MS
    )
    return dataclasses.replace(honest, **changes)  # type: ignore[arg-type]


def only_reason(found: Validity) -> str:
    assert found.outcome == "INVALID"
    assert len(found.reasons) == 1, found.reasons
    assert found.reasons[0].count(". ") >= 1, "a reason ends with a next step"
    return found.reasons[0]


def test_an_honest_run_is_valid() -> None:
    found = assess(run(poisson(), lag=100_000), facts(), [parse("p99(ttft) <= 200ms")])
    assert (found.outcome, found.reasons, found.warnings) == ("VALID", (), ())
    assert (found.planned, found.sent, found.unsent) == (N, N, 0)
    assert (found.generator_lag_ns.p99, found.lag_ns.max) == (100_000, 100_000)
    assert found.offered_per_s == pytest.approx(found.achieved_per_s)
    assert all(check.ok for check in found.checks)


def late_by(rows: slice, ns: int) -> IntArray:
    late = np.zeros(N, np.int64)
    late[rows] = ns
    return late


def test_lateness_alone_makes_no_open_loop_invalid_that_has_objectives() -> None:
    """They are judged at both ends of it (test_slo_bracket.py). A comparison judges one, and keeps the limits."""
    for late in (late_by(slice(0, 20), 3 * MS), late_by(slice(500, 501), 21 * MS), late_by(slice(0, 5), 300 * MS)):
        found = assess(run(poisson(), lag=late), facts(), [parse("p99(latency) <= 900ms"), parse("p99(ttft) <= 200ms")])
        assert (found.outcome, found.paced) == ("VALID", True)
        assert "judged with it and with it taken off" in next(c.detail for c in found.checks if c.name == "lag")


def test_where_values_are_compared_lateness_has_limits_relative_to_the_tightest_objective() -> None:
    objectives = [parse("p99(latency) <= 900ms"), parse("p99(ttft) <= 200ms")]
    late = run(poisson(), lag=late_by(slice(0, 20), 3 * MS))  # 2 % of the requests
    reason = only_reason(assess(late, facts(), objectives, strict=True))
    assert "generator lag p99 3 ms, limit 2 ms (1 % of p99(ttft) <= 200ms" in reason
    assert assess(late, facts(), [parse("p99(ttft) <= 300ms")], strict=True).outcome == "VALID"
    held = run(poisson(), wait=late_by(slice(0, 20), 3 * MS))
    assert "generator lag p99 3 ms" in only_reason(assess(held, facts(), objectives, strict=True))
    one = run(poisson(), lag=late_by(slice(500, 501), 21 * MS))
    assert "generator lag max 21 ms, limit 20 ms" in only_reason(assess(one, facts(), objectives, strict=True))
    five = run(poisson(), lag=late_by(slice(0, 5), 300 * MS))
    reasons = assess(five, facts(), [parse("ttft <= 200ms")], strict=True).reasons
    assert any("5 of 1000 requests, limit 0.1 %" in reason for reason in reasons)


def test_the_limit_of_a_recovery_is_no_limit_on_a_request() -> None:
    objectives = [parse("recovered(ratio(good) >= 90%) <= 1ms after x3"), parse("ttft <= 200ms")]
    late = run(poisson(), lag=late_by(slice(0, 20), 3 * MS))
    reason = only_reason(assess(late, facts(), objectives, strict=True))
    assert "limit 2 ms (1 % of ttft <= 200ms" in reason


def test_without_objectives_no_percentile_may_be_more_than_a_tenth_the_generators() -> None:
    """Answers take 20 ms: one request 51 ms late leaves p50, p90 and p99 what they are; 2 % late by 30 ms don't."""
    one = assess(run(poisson(), lag=late_by(slice(500, 501), 51 * MS)), facts(), [])
    assert one.outcome == "VALID"
    assert "p99 of latency between 20 ms and 20 ms" in next(c.detail for c in one.checks if c.name == "lag")
    many = assess(run(poisson(), lag=late_by(slice(0, 20), 30 * MS)), facts(), [])
    assert "p99 of latency between 20 ms and 50 ms; limit 10% apart" in only_reason(many)
    limits = assess(run(poisson(), lag=late_by(slice(0, 20), 30 * MS)), facts(), [parse("ttft <= 200ms")])
    assert limits.outcome == "INVALID", "a limit on single requests judges nothing"


def test_lateness_does_not_add_to_tpot_so_tpot_objectives_do_not_tighten_the_limit() -> None:
    late = np.full(N, 0, np.int64)
    late[:20] = 900_000
    late[0] = 6 * MS
    for strict in (False, True):
        assert assess(run(poisson(), lag=late), facts(), [parse("p99(tpot) <= 10ms")], strict=strict).outcome == "VALID"


def test_few_requests_that_the_client_held_back_for_long_are_told() -> None:
    """Below 1 % of them, but longer than lag may be: p99.9 and the maximum are the generator's."""
    asked = [parse("p99(ttft) <= 200ms")]
    few = assess(run(poisson(), wait=late_by(slice(10, 13), 80 * MS)), facts(), asked)
    assert "3 requests were held back by the client" in few.warnings[0]
    assert few.warnings[0].endswith("read no percentile above their share")
    assert assess(run(poisson(), wait=late_by(slice(10, 13), 15 * MS)), facts(), asked).warnings == ()
    opened = run(poisson(), wait=late_by(slice(10, 13), 80 * MS), connect_ns=late_by(slice(10, 13), 79 * MS))
    assert assess(opened, facts(), asked).warnings == ()


def test_rows_taken_away_together_with_the_number_of_planned_ones_are_missed_by_the_plan() -> None:
    fewer = run(poisson(N - 10))
    assert assess(fewer, facts(planned=N - 10, min_queries=0), []).outcome == "VALID"
    found = assess(fewer, facts(planned=N - 10, plan_samples=N, min_queries=0), [])
    assert only_reason(found).startswith(
        "generator.json says that 990 samples were planned, plan.npz holds 1000; 990 of 1000"
    )
    assert (found.planned, found.unsent) == (N, 10)


@pytest.mark.parametrize(("shape", "n"), [(1.5625, 5000), (2.0, 1000), (0.7, 2000), (50.0, 300)])
def test_a_plan_that_is_not_the_poisson_process_it_claims_is_invalid(shape: float, n: int) -> None:
    """Gaps of gamma: 1.5625 has a spread of 0.8 of the mean, 20 % more regular than Poisson."""
    gaps = np.random.default_rng(3).gamma(shape, 1e7 / shape, n)
    some = run(np.cumsum(gaps).astype(np.int64))
    given = facts(planned=n, planned_queries=n, min_queries=0, elapsed_ns=10**12)
    assert "the planned times are not poisson: " in only_reason(assess(some, given, []))
    assert assess(some, dataclasses.replace(given, process="gamma"), []).outcome == "VALID"
    assert assess(some, dataclasses.replace(given, process=None), []).outcome == "VALID"


def test_no_honest_plan_is_called_another_process() -> None:
    """2,000 seeds a size: the smallest p of the fit is far above the limit; and LoadGen's own, whole ns at a very high
    rate, constant.
    """
    for n in (201, 1000):
        least = min(exponential_fit(np.random.default_rng(seed).exponential(1e7, n)) for seed in range(2000))
        assert least > 1e-4 > 100 * P_CLAIM
    for rate, seed in ((50.0, 1), (2_000_000.0, 2)):
        loadgen = due_times("loadgen", constant_rate(rate), seed, min_queries=50_000, min_duration_ns=0)
        assert claimed(loadgen, "poisson") is None
    for seed in range(50):
        even = due_times("poisson", constant_rate(333.0), seed, min_queries=300, min_duration_ns=2 * 10**9)
        assert claimed(even, "poisson") is None
    steady = due_times("constant", constant_rate(333.0), 1, min_queries=300, min_duration_ns=2 * 10**9)
    assert claimed(steady, "constant") is None
    assert "gaps" in str(claimed(np.append(steady, steady[-1] + 10 * MS), "constant"))
    assert claimed(poisson(150, seed=4) * 0 + np.arange(150), "poisson") is None, "too few to say"


def test_one_late_request_at_the_end_is_no_other_rate_and_a_stall_no_other_process() -> None:
    due = poisson()
    assert (
        assess(run(due, lag=late_by(slice(N - 1, N), 200 * MS)), facts(), [parse("p99(latency) <= 1s")]).outcome
        == "VALID"
    )
    fast = poisson(10_000, rate=1000.0)
    stalled = np.where((fast > 4_000 * MS) & (fast < 4_080 * MS), 4_080 * MS - fast, 0)  # 80 requests at once
    given = facts(planned=10_000, min_queries=0, elapsed_ns=10**12)
    found = assess(run(fast, lag=stalled), given, [parse("p99(latency) <= 1s")])
    assert found.outcome == "VALID"
    assert found.arrivals is not None
    assert found.arrivals.dispersion_ready > found.arrivals.dispersion_planned + 0.5, (
        "by itself it would be another process"
    )
    every = np.maximum(-(-fast // (40 * MS)) * (40 * MS) - fast, 0)  # it wakes up every 40 ms
    assert (
        assess(run(fast, lag=every), given, [parse("p99(latency) <= 1s")]).reasons[0].startswith("index of dispersion")
    )


def test_counts_that_depend_on_each_other_are_another_process() -> None:
    """Windows of 10 requests that leave too few and too many by turns, each moved by at most a window."""
    due = poisson(20_000, rate=1000.0)
    given = facts(planned=20_000, min_queries=0, elapsed_ns=10**12)
    moved = np.where((due // (10 * MS)) % 2 == 0, np.random.default_rng(1).random(len(due)) < 0.45, False)
    late = np.where(moved, 10 * MS, 0)
    found = assess(run(due, lag=late), given, [parse("p99(latency) <= 1s")])
    assert found.arrivals is not None
    assert found.arrivals.leaned is not None
    assert found.arrivals.leaned < -0.3
    assert not found.arrivals.kept


def test_waiting_before_it_left_makes_no_run_invalid_and_is_told_by_its_cause() -> None:
    """Opening a connection, the pool's limit, and the client: three causes, three texts, and none of them lag."""
    asked = [parse("p99(ttft) <= 200ms")]
    client = assess(run(poisson(), wait=80 * MS), facts(), asked)
    assert client.outcome == "VALID"
    assert (client.lag_ns.p99, client.generator_lag_ns.p99) == (80 * MS, 0)
    opened = assess(run(poisson(), wait=80 * MS, connect_ns=79 * MS), facts(), asked)
    pooled = assess(run(poisson(), wait=80 * MS), facts(pool_waits=N, pool_wait_p99_ns=80 * MS), asked)
    assert [len(found.warnings) for found in (client, opened, pooled)] == [1, 1, 1]
    assert "1000 requests were held back by the client (sent - ready has p99 80 ms" in client.warnings[0]
    assert "1000 requests opened a connection of their own" in opened.warnings[0]
    assert "1000 requests waited for one of max_connections connections, p99 80 ms" in pooled.warnings[0]
    over = facts(pool_waits=N, stream_waits=N, pool_wait_p99_ns=80 * MS)
    (streams,) = assess(run(poisson(), wait=80 * MS), over, asked).warnings
    assert "1000 requests waited for a place on a connection, p99 80 ms: the server's own limit" in streams
    assert "raise target.options.channels" in streams
    assert "max_connections" not in streams


def test_chunks_that_share_a_read_may_be_the_servers_a_proxys_or_our_doing() -> None:
    due = poisson()
    together = run(due, chunks=[[t + 11 * MS, t + 12 * MS, t + 12 * MS] for t in due.tolist()])
    (text,) = assess(together, facts(), []).warnings
    assert "33.3% of the chunks came in one read with a later one" in text
    assert "the server writes several at once, or a proxy before it gathers them, or this host read late" in text


def test_a_slow_server_is_told_apart_from_a_wait_before_sending() -> None:
    """Its time counts from sent: nothing is said about connections."""
    slow = run(poisson(), first_byte_ns=poisson() + 900 * MS, done_ns=poisson() + 901 * MS)
    assert assess(slow, facts(), []).warnings == ()


def test_planned_but_unsent_makes_an_open_loop_invalid() -> None:
    due = poisson()
    status = np.zeros(N, np.int64)
    status[-1] = Status.UNSENT
    gone = np.where(np.arange(N) == N - 1, -1, due)
    some = run(due, status=status, ready_ns=gone, sent_ns=gone, first_byte_ns=-1, done_ns=np.where(gone < 0, -1, due))
    found = assess(some, facts(min_queries=0), [])
    assert "999 of 1000 planned requests were sent" in only_reason(found)
    assert found.unsent == 1
    assert assess(some, facts(min_queries=0, open_loop=False), []).outcome == "VALID"


def test_rows_that_are_missing_altogether_are_unsent_too() -> None:
    found = assess(run(poisson(N - 10)), facts(min_queries=0), [])
    assert "990 of 1000" in only_reason(found)
    assert found.unsent == 10


def test_a_refused_connection_was_an_attempt() -> None:
    some = run(poisson(), status=int(Status.CONNECT), sent_ns=-1, first_byte_ns=-1)
    found = assess(some, facts(), [])
    assert (found.outcome, found.sent, found.stamp) == ("VALID", N, "none")


def test_nothing_measured_is_invalid() -> None:
    assert any("0 of 1000 planned" in r for r in assess(from_columns(0), facts(), []).reasons)
    assert assess(from_columns(0), facts(open_loop=False, planned=0, min_queries=0), []).outcome == "INVALID"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"interrupted": True}, "the run was interrupted before its end. What was measured until then is kept"),
        ({"aborted": "8192 requests in flight"}, "aborted: 8192 requests in flight"),
        ({"max_duration_hit": True}, "stopped by max_duration"),
        ({"worker_faults": ("worker 1 exited with 9",)}, "worker 1 exited with 9"),
        ({"disk_faults": ("no space left",)}, "records not written: no space left"),
        ({"min_queries": N + 1}, "1000 queries issued, min_queries 1001"),
        ({"min_duration_ns": 20_001 * MS}, "lasted 20 s, min_duration 20 s"),
        ({"planned": N + 1}, "1000 of 1001 planned"),
    ],
)
def test_each_broken_promise_alone_makes_the_run_invalid(changes: dict[str, object], says: str) -> None:
    assert says in only_reason(assess(run(poisson()), facts(**changes), []))


def test_no_rate_is_low_enough_for_a_worker_that_died() -> None:
    due = poisson()
    lost = (np.arange(N) % 2 == 1) & (due > due[N // 3])
    whole = run(due)
    stamps = {name: np.where(lost, -1, whole[name]) for name in ("ready_ns", "sent_ns", "first_byte_ns")}
    some = run(due, **stamps, status=np.where(lost, int(Status.UNSENT), whole["status"]))
    dead = only_reason(assess(some, facts(worker_faults=("worker 1 ended with agent b",)), []))
    assert "worker 1 ended with agent b; " in dead
    assert "ower the rate" not in dead
    assert "Lower the rate" in only_reason(assess(some, facts(), []))


@pytest.mark.parametrize(
    ("n", "told"),
    [(3, "0 died; 1 died; 2 died"), (4, "0 died; 1 died; 2 died; and 1 more (generator.json has them)")],
)
def test_of_many_lost_workers_a_reason_names_three(n: int, told: str) -> None:
    reason = only_reason(assess(run(poisson()), facts(worker_faults=tuple(f"{i} died" for i in range(n))), []))
    assert f"worker faults: {told}. Correct that" in reason


@pytest.mark.parametrize("stamp", [0, 1])
def test_a_clock_jump_is_said_and_spoils_nothing_because_stamps_are_mapped_around_it(stamp: int) -> None:
    found = assess(run(poisson(), stamp=stamp), facts(clock_steps=2), [])
    assert found.outcome == "VALID"
    assert "jumped 2 times" in found.warnings[0]


def test_contradicting_records_make_the_run_invalid() -> None:
    assert "done_ns is earlier" in only_reason(assess(run(poisson(), done_ns=1), facts(), []))


def test_a_stretched_load_is_invalid_by_its_rate() -> None:
    due = poisson()
    stretched = (due * 1.03).astype(np.int64)
    found = assess(run(due, ready_ns=stretched, sent_ns=stretched, first_byte_ns=-1, done_ns=stretched), facts(), [])
    assert any("limit 1 %" in reason and "issued at" in reason for reason in found.reasons)


def test_a_tiny_run_is_not_judged_by_the_noise_of_its_span() -> None:
    due = np.array([0, 10 * MS], np.int64)
    some = run(due, lag=np.array([0, 900_000]))  # 9 % longer, and less than 1 ms late
    assert assess(some, facts(planned=2, min_queries=2), []).outcome == "VALID"


def test_bunched_issue_times_are_not_the_planned_poisson_process() -> None:
    due = poisson(rate=10_000.0)
    bunched = (due // (40 * MS) + 1) * (40 * MS)  # one wake-up every 40 ms, 400 requests each
    some = run(due, ready_ns=bunched, sent_ns=bunched, first_byte_ns=-1, done_ns=bunched)
    found = assess(some, facts(), [])
    assert any("index of dispersion of the issue times" in reason for reason in found.reasons)
    assert found.arrivals is not None
    assert found.arrivals.dispersion_sent > 5


def test_bunching_is_found_even_where_no_request_is_late_enough_to_matter() -> None:
    due = poisson(rate=10_000.0)
    bunched = (due // (2 * MS) + 1) * (2 * MS)  # 20 requests at each wake-up, against answers that take 2 s
    some = run(due, ready_ns=bunched, sent_ns=bunched, first_byte_ns=-1, done_ns=bunched + 2000 * MS)
    assert only_reason(assess(some, facts(), [])).startswith("index of dispersion of the issue times")


def test_an_unlucky_seed_is_not_the_generators_fault() -> None:
    """The worst fit of 3,000 honest seeds, sent as planned."""
    worst = min(range(3000), key=lambda seed: exponential_fit(np.diff(poisson(300, seed=seed)).astype(float)))
    found = assess(run(poisson(300, seed=worst)), facts(planned=300, min_queries=0, elapsed_ns=10**12), [])
    assert found.outcome == "VALID"
    assert found.arrivals is not None
    assert found.arrivals.ks_p is not None
    assert found.arrivals.ks_p < 0.01


def test_poisson_times_fit_their_process() -> None:
    due = poisson(5000)
    found = assess(run(due), facts(planned=5000, min_queries=0, elapsed_ns=10**12), [])
    assert found.arrivals is not None
    assert found.arrivals.dispersion_planned == pytest.approx(1.0, abs=0.25)
    assert found.arrivals.ks_p is not None
    assert found.arrivals.ks_p > 0.01


def test_dispersion_and_rate_of_known_sequences() -> None:
    even = np.arange(1000) * 10
    assert dispersion(even, 100.0) == pytest.approx(0.0)
    assert rate_per_s(even) == pytest.approx(1e8)
    assert np.isnan(dispersion(even[:1], 100.0))
    assert (rate_per_s(even[:1]), rate_per_s(np.zeros(5, np.int64))) == (0.0, 0.0)
    assert exponential_fit(np.zeros(5)) == 0.0


def test_what_begins_together_is_no_rate() -> None:
    """Two queries of eight samples, 110 ms each, are 73/s and not 136/s; four slots of 100 ms are 40/s however short
    the run is.
    """
    due = np.repeat(np.arange(2) * 110 * MS, 8)
    asked = facts(open_loop=False, process=None, planned=16, min_queries=2, slots=(1,))
    found = assess(run(due, query_id=np.repeat([0, 1], 8), done_ns=due + 110 * MS), asked)
    assert found.offered_per_s == found.achieved_per_s == pytest.approx(8 / 0.11)
    slots = np.add.outer(np.arange(3) * 100 * MS, np.arange(4) * 1000).ravel()
    asked = facts(open_loop=False, process=None, planned=12, min_queries=1, slots=(4,))
    found = assess(run(slots, done_ns=slots + 100 * MS - 500), asked)
    assert found.offered_per_s == pytest.approx(40, rel=1e-3)
    assert "issued at 40/s, planned 40/s" in next(check.detail for check in found.checks if check.name == "rate")


def test_a_rate_is_of_what_left_and_not_of_what_waited_for_a_connection() -> None:
    due = np.arange(N) * 25 * MS
    found = assess(run(due, wait=np.arange(N) * 30 * MS), facts(process="constant", pool_waits=N - 1))
    assert found.offered_per_s == pytest.approx(40)
    assert found.achieved_per_s == pytest.approx(1000 / 55)


def test_one_query_with_all_samples_lasts_until_its_last_answer() -> None:
    some = run(np.zeros(10, np.int64), query_id=0, sample_ix=np.arange(10), done_ns=700 * MS)
    offline = facts(planned=10, min_queries=1, min_duration_ns=600 * MS, elapsed_ns=0, process=None)
    assert assess(some, offline, []).outcome == "VALID"


def test_a_single_stall_is_said_to_have_come_once() -> None:
    one = facts(loop_stall_count=1, loop_stall_max_ns=30 * MS, loop_stall_p99_ns=MS, watched_ns=10_000 * MS)
    found = assess(run(poisson()), one, [])
    assert "the event loop stalled once for more than" in found.warnings[0]
    assert any("the event loop stalled once, at most 30 ms" in check.detail for check in found.checks)


def test_warnings_do_not_invalidate() -> None:
    strained = facts(
        loop_stall_count=3, loop_stall_max_ns=30 * MS, loop_stall_p99_ns=MS, worker_cpu=(0.5, 0.97), gc_pause_count=2,
        gc_pause_max_ns=3 * MS, watched_ns=10_000 * MS,
    )  # fmt: skip
    found = assess(run(poisson()), strained, [])
    assert found.outcome == "VALID"
    stalls, collector, cpu = found.warnings
    assert "stalled 3 times for" in stalls
    assert "garbage collector ran 2 times" in collector
    assert "1 of 2 workers used or waited for more than 90%" in cpu


def test_a_closed_loop_is_told_to_hide_stalls() -> None:
    found = assess(run(poisson()), facts(open_loop=False), [])
    assert found.outcome == "VALID"
    assert "coordinated omission" in found.warnings[0]


def test_where_the_stamps_come_from_is_told() -> None:
    stamps = np.zeros(N, np.int64)
    assert assess(run(poisson()), facts(), []).stamp == "kernel"
    stamps[:250] = 1
    found = assess(run(poisson(), stamp=stamps), facts(), [])
    assert (found.stamp, found.kernel_share) == ("mixed", 0.75)


def test_facts_survive_json_and_ignore_what_they_do_not_know() -> None:
    some = facts(worker_cpu=(0.5, 0.25), disk_faults=("full",), aborted="ceiling")
    document = json.loads(json.dumps(some.to_json()))
    assert GeneratorFacts.from_json(document) == some
    assert GeneratorFacts.from_json(document | {"later": 1}) == some


def test_samples_that_wait_for_their_turn_on_the_wire_are_not_the_generators_lateness() -> None:
    """One offline query of 1,000 samples, 1 ms apart: only the first one's lag is ours."""
    n = 1000
    ready = np.arange(n) * MS
    columns = {"ready_ns": ready, "sent_ns": ready, "first_byte_ns": ready, "headers_ns": ready, "done_ns": ready + MS}
    records = from_columns(n, query_id=0, sample_ix=np.arange(n), due_ns=0, status=0, stamp=0, **columns)
    given = GeneratorFacts(open_loop=True, planned=n, planned_queries=1, min_queries=1, elapsed_ns=1000 * MS)
    assert assess(records, given, []).outcome == "VALID"
    late = from_columns(
        n,
        query_id=0,
        sample_ix=np.arange(n),
        due_ns=0,
        status=0,
        stamp=0,
        **{k: v + 100 * MS for k, v in columns.items()},
    )
    assert "generator lag max 100 ms" in " ".join(assess(late, given, []).reasons)


def test_one_hiccup_in_a_short_run_is_judged_as_a_maximum() -> None:
    """Below 100 values the p99 is the maximum."""
    due = np.arange(50) * 20 * MS
    ready = due.copy()
    ready[7] += 5 * MS
    done = {"sent_ns": ready, "first_byte_ns": ready, "headers_ns": ready, "done_ns": ready + MS}
    records = from_columns(50, due_ns=due, ready_ns=ready, status=0, stamp=0, **done)
    given = GeneratorFacts(open_loop=True, planned=50, planned_queries=50, min_queries=1, elapsed_ns=int(due[-1]))
    assert assess(records, given, []).outcome == "VALID"


def test_objectives_that_lateness_adds_nothing_to_ask_less_of_the_schedule() -> None:
    due = np.arange(400) * 20 * MS
    ready = due.copy()
    ready[::40] += 3 * MS
    done = {"sent_ns": ready, "first_byte_ns": ready, "headers_ns": ready, "done_ns": ready + MS}
    records = from_columns(400, due_ns=due, ready_ns=ready, status=0, stamp=0, **done)
    given = GeneratorFacts(open_loop=True, planned=400, planned_queries=400, min_queries=1, elapsed_ns=int(due[-1]))
    assert assess(records, given, []).outcome == "INVALID"
    assert assess(records, given, [parse("p90(tpot) <= 1ms")]).outcome == "VALID"


def test_in_a_tiny_run_the_span_may_be_off_by_the_lateness_that_is_allowed_anyway() -> None:
    """30 ms late at the end of 0.4 s is 8 % of the span, but within the 50 ms that a run without objectives allows."""
    due = np.arange(20) * 20 * MS
    ready = due.copy()
    ready[-1] += 30 * MS
    done = {"sent_ns": ready, "first_byte_ns": ready, "headers_ns": ready, "done_ns": ready + MS}
    records = from_columns(20, due_ns=due, ready_ns=ready, status=0, stamp=0, **done)
    given = GeneratorFacts(open_loop=True, planned=20, planned_queries=20, min_queries=1, elapsed_ns=int(due[-1]))
    assert assess(records, given, []).outcome == "VALID"


def test_few_requests_that_are_all_late_are_no_comparison() -> None:
    """Of fewer than 100 the p99 is one hiccup and not judged; that the typical one left 40 ms late to an endpoint of 20
    ms is judged.
    """
    due = np.arange(90) * 50 * MS
    few = facts(planned=90, planned_queries=90, min_queries=0, process="constant")
    assert "generator lag p50 40 ms, limit 1 ms" in only_reason(assess(run(due, lag=40 * MS), few, strict=True))
    hiccup = np.where(np.arange(90) == 40, 40 * MS, 0)
    assert assess(run(due, lag=hiccup), few, strict=True).outcome == "VALID"


@pytest.mark.parametrize("shape", ["exponential", "even", "ties"])
def test_the_fit_of_many_gaps_reads_few_of_them_and_says_the_same(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(8)
    gaps = {
        "exponential": random.exponential(1e6, 20_000).round(),
        "even": random.integers(900_000, 1_100_000, 20_000).astype(np.float64),
        "ties": random.integers(0, 5, 20_000) * 1e6,
    }[shape]
    fitted = -np.expm1(-np.sort(gaps) / gaps.mean())
    steps = np.arange(len(gaps) + 1) / len(gaps)
    distance = float(max((steps[1:] - fitted).max(), (fitted - steps[:-1]).max()))
    found = []
    monkeypatch.setattr("plimsoll.slo.statistics.special.kolmogorov", lambda x: found.append(x) or 0.5)
    exponential_fit(gaps)
    monkeypatch.setattr(order, "SLAB", 500)
    exponential_fit(gaps)
    assert found == [np.sqrt(len(gaps)) * distance] * 2
