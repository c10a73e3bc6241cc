"""A backlog that grows to the end has a reason of its own, and a PASS on it is none."""

from __future__ import annotations

import dataclasses

import numpy as np

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import IntArray, Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess, backlog
from plimsoll.slo.verdict.verdict import judge

MS = 1_000_000
S = 1_000 * MS
N = 4000
FACTS = GeneratorFacts(open_loop=True, planned=N, planned_queries=N, process="constant", elapsed_ns=10**12)


def served(every_ns: int, n: int = N, gap_ns: int = 10 * MS) -> tuple[IntArray, IntArray]:
    """n requests, one each ``gap_ns``, to one server that takes ``every_ns`` for each."""
    due = np.arange(n, dtype=np.int64) * gap_ns
    served_by = np.arange(1, n + 1, dtype=np.int64) * every_ns
    return due, np.maximum(due + every_ns, served_by)


def rows(due: IntArray, done: IntArray) -> Records:
    return from_columns(len(due), due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=done, done_ns=done)


def test_ten_per_cent_too_much_is_a_growing_backlog() -> None:
    found = backlog(*served(11 * MS))
    assert found is not None
    assert found.growing
    # 1334 have come after a third and 1211 are served (one each 11 ms); at the end 4000 and 3635.
    assert found.in_flight == (123, 365)
    assert found.latency_ns[1] > found.latency_ns[0]


def test_a_server_that_keeps_up_is_steady_however_long_it_takes() -> None:
    assert not backlog(*served(9 * MS)).growing  # type: ignore[union-attr]
    due, _ = served(MS)
    for share in (0.1, 0.5, 2.0):  # of the run: with 2.0 nothing is over before the last is due
        found = backlog(due, due + int(share * N * 10 * MS))
        assert found is not None
        assert not found.growing, "in flight grows while the endpoint fills up; latency does not"


def test_an_endpoint_that_still_fills_up_while_its_latency_drifts_is_no_queue() -> None:
    """320 requests at 100/s, each answered after 3 s and a drift of 10 ms: in flight grows to the end of the
    schedule.
    """
    due = np.arange(320, dtype=np.int64) * 10 * MS
    done = due + 3 * S + np.linspace(0, 10 * MS, 320).astype(np.int64)
    found = backlog(due, done)
    assert found is not None
    assert found.in_flight[1] - found.in_flight[0] > 100
    assert not found.growing


def test_one_stall_that_is_worked_off_or_not_yet_is_no_trend() -> None:
    due, done = served(MS)
    for at in (20 * S, 38 * S):
        frozen = np.where((due >= at) & (due < at + 2 * S), at + 2 * S, done)
        assert not backlog(due, frozen).growing  # type: ignore[union-attr]


def test_requests_that_are_given_up_bound_the_backlog() -> None:
    due, done = served(20 * MS)
    given_up = np.minimum(done, due + 2 * S)
    assert not backlog(due, given_up).growing  # type: ignore[union-attr]


def test_requests_that_were_never_over_are_in_flight_for_ever() -> None:
    due, done = served(11 * MS)
    cut = np.where(done > due[-1], -1, done)
    assert backlog(due, cut).growing  # type: ignore[union-attr]


def test_too_few_requests_say_nothing() -> None:
    assert backlog(*served(30 * MS, n=200)) is None
    assert backlog(np.zeros(0, np.int64), np.zeros(0, np.int64)) is None
    assert backlog(np.zeros(1000, np.int64), np.full(1000, S)) is None, "all due at once: there is no rate"


def test_a_pass_on_a_growing_backlog_is_invalid_and_a_failure_stays_one() -> None:
    overloaded = rows(*served(11 * MS))
    for text, outcome in (("p99(latency) <= 60s", "INVALID"), ("p99(latency) <= 1s", "FAIL")):
        asked = [parse(text)]
        seen = assess(overloaded, FACTS, asked)
        assert seen.outcome == "VALID", "the generator kept its promise"
        verdict = judge(overloaded, asked, seen)
        assert verdict.outcome == outcome
        assert "unstable: the backlog grew to the end, from 123 to 365 requests in flight" in verdict.reasons[-1]
        assert verdict.reasons[-1].endswith("Lower the rate")
        assert any("unstable" in warning for warning in seen.warnings)


def test_without_an_objective_the_numbers_of_a_growing_backlog_prove_nothing() -> None:
    overloaded = rows(*served(11 * MS))
    assert judge(overloaded, [], assess(overloaded, FACTS)).outcome == "INVALID"
    steady = rows(*served(9 * MS))
    assert judge(steady, [], assess(steady, FACTS)).outcome == "PASS"


def test_only_an_open_loop_of_constant_rate_is_judged() -> None:
    overloaded = rows(*served(11 * MS))
    for changes in ({"open_loop": False}, {"process": None}):
        assert assess(overloaded, dataclasses.replace(FACTS, **changes)).unstable is None  # type: ignore[arg-type]
