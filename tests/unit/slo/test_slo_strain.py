"""A generator that had no time for its promise is found, also where every lag is 0 by definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, Stamp, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity, assess

MS = 1_000_000
N = 200

CLOSED = GeneratorFacts(
    open_loop=False, planned=N, planned_queries=N, elapsed_ns=4000 * MS, watched_ns=4000 * MS, worker_cpu=(0.3,)
)
OPEN = dataclasses.replace(CLOSED, open_loop=True, process="constant")
OFFLINE = dataclasses.replace(CLOSED, open_loop=True, planned_queries=1)


def rows(stamp: int = Stamp.KERNEL, **more: object) -> Records:
    """One request each 20 ms, answered after 20 ms, never late."""
    due = np.arange(N) * 20 * MS
    done = due + 20 * MS
    times = {"due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": done, "done_ns": done}
    return from_columns(N, **times, stamp=stamp, **more)  # type: ignore[arg-type]


def offline() -> Records:
    done = np.arange(1, N + 1) * 20 * MS
    ready = done - 20 * MS
    return from_columns(
        N, query_id=0, sample_ix=np.arange(N), due_ns=0, ready_ns=ready, sent_ns=ready, first_byte_ns=done, done_ns=done
    )


def broken(found: Validity) -> list[str]:
    names = [check.name for check in found.checks if not check.ok]
    assert (found.outcome == "INVALID") == bool(names)
    assert all(reason.count(". ") >= 1 for reason in found.reasons), "a reason ends with a next step"
    return names


@pytest.mark.parametrize(("part", "name"), [("loop_stall", "loop stalls"), ("gc_pause", "gc pauses")])
def test_one_long_stop_of_a_closed_loop_breaks_the_schedule_that_no_lag_shows(part: str, name: str) -> None:
    asked = [parse("p99(latency) <= 200ms")]

    def stopped(longest_ns: int) -> GeneratorFacts:
        seen = {f"{part}_max_ns": longest_ns, f"{part}_total_ns": longest_ns, f"{part}_count": 1}
        return dataclasses.replace(CLOSED, **seen)  # type: ignore[arg-type]

    assert broken(assess(rows(), stopped(20 * MS), asked)) == []
    found = assess(rows(), stopped(21 * MS), asked)
    assert broken(found) == [name]
    assert "at most 21 ms, limit 20 ms" in found.reasons[0]
    assert broken(assess(rows(), stopped(50 * MS), [])) == [], "without an objective a hiccup of 50 ms is allowed"


@pytest.mark.parametrize(("part", "name"), [("loop_stall", "loop stalls"), ("gc_pause", "gc pauses")])
def test_many_short_stops_count_by_their_sum(part: str, name: str) -> None:
    def stopped(total_ns: int) -> GeneratorFacts:
        seen = {f"{part}_max_ns": 11 * MS, f"{part}_total_ns": total_ns, f"{part}_count": total_ns // (11 * MS)}
        return dataclasses.replace(CLOSED, watched_ns=10_000 * MS, **seen)  # type: ignore[arg-type]

    assert broken(assess(rows(), stopped(99 * MS), [])) == []
    found = assess(rows(), stopped(101 * MS), [])
    assert broken(found) == [name]
    assert "101 ms in all, limit 100 ms (1 % of the run)" in found.reasons[0]


def test_an_open_loop_shows_its_stalls_as_lag_unless_its_stamps_are_userland_ones() -> None:
    stalled = dataclasses.replace(OPEN, loop_stall_count=1, loop_stall_max_ns=60 * MS, loop_stall_total_ns=60 * MS)
    assert broken(assess(rows(), stalled, [])) == []
    assert broken(assess(rows(Stamp.USER), stalled, [])) == ["loop stalls"]
    assert broken(assess(rows(Stamp.USER), dataclasses.replace(stalled, no_endpoint=True), [])) == []


@pytest.mark.parametrize(
    ("facts", "measured"), [(CLOSED, rows()), (OFFLINE, offline())], ids=["closed loop", "offline"]
)
def test_a_saturated_worker_measured_itself(facts: GeneratorFacts, measured: Records) -> None:
    found = assess(measured, dataclasses.replace(facts, worker_cpu=(0.4, 0.91)), [])
    assert broken(found) == ["generator CPU"]
    assert "91% of a core" in found.reasons[0]
    assert "plimsoll calibrate" in found.reasons[0]
    assert broken(assess(measured, dataclasses.replace(facts, worker_cpu=(0.4, 0.9)), [])) == []


def test_a_worker_that_others_kept_from_its_core_was_saturated_too() -> None:
    shared = dataclasses.replace(CLOSED, worker_cpu=(0.5,), core_wanted=(0.97,))
    assert broken(assess(rows(), shared, [])) == ["generator CPU"]


def test_of_a_native_engine_its_own_thread_counts_not_the_process() -> None:
    """The process also writes records meanwhile, on another core."""
    native = dataclasses.replace(CLOSED, worker_cpu=(1.4,), core_wanted=(0.5,), engine_cpu=(0.8,))
    assert broken(assess(rows(), native, [])) == []
    assert broken(assess(rows(), dataclasses.replace(native, engine_cpu=(0.95,)), [])) == ["generator CPU"]
    assert broken(assess(rows(), dataclasses.replace(native, core_wanted=(0.95,)), [])) == ["generator CPU"]


def test_a_busy_open_loop_that_keeps_its_schedule_is_only_warned_about() -> None:
    found = assess(rows(), dataclasses.replace(OPEN, worker_cpu=(0.99,)), [])
    assert broken(found) == []
    assert "Add workers" in found.warnings[0]


def test_saturation_is_not_judged_where_it_means_nothing() -> None:
    busy = dataclasses.replace(CLOSED, worker_cpu=(1.0,))
    assert broken(assess(rows(), dataclasses.replace(busy, no_endpoint=True), [])) == [], (
        "null measures Plimsoll itself"
    )
    assert broken(assess(rows(), dataclasses.replace(busy, watched_ns=999 * MS), [])) == [], "the start is most of it"


def test_lost_kernel_stamps_make_two_kinds_of_numbers_that_cannot_be_compared() -> None:
    lost = dataclasses.replace(OPEN, clock_steps=1, stamps_refused=10, kernel_reads=990, user_reads=10)
    assert broken(assess(rows(), lost, [])) == []
    found = assess(rows(), dataclasses.replace(lost, stamps_refused=11), [])
    assert broken(found) == ["stamps"]
    assert "11 of 1000 reads" in found.reasons[0]


def test_where_no_stamp_can_be_mapped_all_answers_are_stamped_alike() -> None:
    none = dataclasses.replace(OPEN, stamps_refused=500, kernel_reads=0, user_reads=500)
    assert broken(assess(rows(Stamp.USER), none, [])) == []


def test_requests_that_were_sent_again_are_told_with_their_true_cause() -> None:
    attempts = np.where(np.arange(N) < 3, 2, 1)

    def warned(**more: object) -> str:
        (text,) = (text for text in assess(rows(**more), CLOSED).warnings if "sent again" in text)
        return text

    text = warned(attempts=attempts)
    assert text.startswith(
        "3 of 200 requests were sent again, because the server had closed the connection, or refused the call, before"
    )
    assert "If it closes connections that are idle, a longer keep-alive time-out" in text
    killed = warned(attempts=attempts, status=np.where(attempts == 2, Status.CONNECT, Status.OK))
    assert "3 of them failed all the same" in killed
    assert "keep-alive" not in killed, "a server that is gone closed nothing for being idle"


def test_an_older_run_that_sent_some_again_is_not_believed() -> None:
    found = assess(rows(), dataclasses.replace(CLOSED, retried=24))
    assert any("24 requests were sent again" in text and "read and dropped" in text for text in found.warnings)
    assert not any("sent again" in text for text in assess(rows(), CLOSED).warnings)
