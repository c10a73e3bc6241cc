"""The generator is judged by its own lateness, and every broken promise says what to do next."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from slo.arrivals import dispersion, exponential_fit, rate_per_s
from slo.objective import parse
from slo.records import IntArray, Records, Status, from_columns
from slo.validity import GeneratorFacts, Validity, assess

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


def test_a_late_generator_makes_the_run_invalid_relative_to_the_tightest_objective() -> None:
    late = np.zeros(N, np.int64)
    late[:20] = 3 * MS  # 2 % of the requests
    objectives = [parse("p99(latency) <= 900ms"), parse("p99(ttft) <= 200ms")]
    reason = only_reason(assess(run(poisson(), lag=late), facts(), objectives))
    assert "generator lag p99 3 ms, limit 2 ms (1 % of p99(ttft) <= 200ms" in reason
    assert assess(run(poisson(), lag=late), facts(), [parse("p99(ttft) <= 300ms")]).outcome == "VALID"


def test_one_hiccup_above_a_tenth_of_the_objective_makes_the_run_invalid() -> None:
    late = np.zeros(N, np.int64)
    late[500] = 21 * MS
    reason = only_reason(assess(run(poisson(), lag=late), facts(), [parse("p99(ttft) <= 200ms")]))
    assert "generator lag max 21 ms, limit 20 ms" in reason
    assert assess(run(poisson(), lag=late), facts(), []).outcome == "VALID"


def test_without_latency_objectives_the_limits_come_from_the_median_latency() -> None:
    late = np.zeros(N, np.int64)
    late[500] = 51 * MS
    assert "limit 50 ms (10 % of the median latency" in only_reason(assess(run(poisson(), lag=late), facts(), []))


def test_lateness_does_not_add_to_tpot_so_tpot_objectives_do_not_tighten_the_limit() -> None:
    late = np.full(N, 0, np.int64)
    late[:20] = 900_000
    late[0] = 6 * MS
    assert assess(run(poisson(), lag=late), facts(), [parse("p99(tpot) <= 10ms")]).outcome == "VALID"


def test_requests_later_than_a_whole_objective_are_counted() -> None:
    late = np.zeros(N, np.int64)
    late[:5] = 300 * MS
    reasons = assess(run(poisson(), lag=late), facts(), [parse("ttft <= 200ms")]).reasons
    assert any("5 of 1000 requests, limit 0.1 %" in reason for reason in reasons)


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
        ({"interrupted": True}, "interrupted: yes"),
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
    gaps = np.random.default_rng(2).gamma(0.1, 1e8, N)  # far from Poisson, but sent as planned
    found = assess(run(np.cumsum(gaps).astype(np.int64)), facts(elapsed_ns=10**12), [])
    assert found.outcome == "VALID"
    assert found.arrivals is not None
    assert found.arrivals.ks_p is not None
    assert found.arrivals.ks_p < 1e-6


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


def test_one_query_with_all_samples_lasts_until_its_last_answer() -> None:
    some = run(np.zeros(10, np.int64), query_id=0, sample_ix=np.arange(10), done_ns=700 * MS)
    offline = facts(planned=10, min_queries=1, min_duration_ns=600 * MS, elapsed_ns=0, process=None)
    assert assess(some, offline, []).outcome == "VALID"


def test_warnings_do_not_invalidate() -> None:
    strained = facts(
        loop_stall_count=3, loop_stall_max_ns=30 * MS, loop_stall_p99_ns=MS, worker_cpu=(0.5, 0.97), gc_pause_count=2,
        gc_pause_max_ns=3 * MS, watched_ns=10_000 * MS,
    )  # fmt: skip
    found = assess(run(poisson()), strained, [])
    assert found.outcome == "VALID"
    stalls, collector, cpu = found.warnings
    assert "stalled 3 times" in stalls
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
