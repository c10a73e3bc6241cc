"""A closed loop whose generator stood still in small pieces is INVALID; one that is only as slow as any generator is
told so.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from plimsoll.slo.records.records import IntArray, Records, Status, concat, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.strain import idle_slots
from plimsoll.slo.validity.validity import Validity, assess

MS = 1_000_000
FACTS = GeneratorFacts(
    open_loop=False, planned=0, elapsed_ns=10**12, watched_ns=4000 * MS, worker_cpu=(0.3,), slots=(4,), n_workers=1
)


def loop(slots: int, service_ns: int, gaps: IntArray, worker: int = 0, begin: int = 0) -> Records:
    """Each slot in turn sends its next request a gap after its answer."""
    free = [begin] * slots
    due = []
    for i, gap in enumerate(gaps.tolist()):
        slot = int(np.argmin(free))
        at = free[slot] + (gap if i >= slots else 0)
        due.append(at)
        free[slot] = at + service_ns
    return rows(np.array(due), service_ns, worker)


def rows(due: IntArray, service_ns: int, worker: int = 0, **columns: object) -> Records:
    done = due + service_ns
    n = len(due)
    given = {"query_id": np.arange(n) + 1_000_000 * worker, "done_ns": done} | columns
    return from_columns(n, due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=done, worker=worker, **given)


def found(records: Records, facts: GeneratorFacts = FACTS) -> Validity:
    return assess(records, dataclasses.replace(facts, planned=len(records.measured())))


def broken(seen: Validity) -> list[str]:
    return [check.name for check in seen.checks if not check.ok]


def frozen(n: int, slots: int) -> Records:
    """Answers take 2 ms, and the generator is stopped for the first 6 of every 12 ms."""
    free, due = [0] * slots, []
    for _ in range(n):
        slot = int(np.argmin(free))
        at = free[slot] + 20_000
        at += max(0, 6 * MS - at % (12 * MS))
        due.append(at)
        free[slot] = at + 2 * MS
    return rows(np.array(due), 2 * MS)


def test_a_generator_stopped_for_half_of_each_12_ms_is_invalid_though_nothing_stalled_for_10_ms() -> None:
    seen = found(frozen(4_000, 4))
    assert broken(seen) == ["idle slots"]
    assert "limit 15%. So much throughput is missing" in seen.reasons[0]
    assert "Free the host" in seen.reasons[0]


@pytest.mark.parametrize("service_ns", [20_000, 100_000, MS, 50 * MS])
def test_an_ordinary_turn_round_is_no_fault_however_fast_the_endpoint_and_it_is_told(service_ns: int) -> None:
    gaps = np.random.default_rng(1).exponential(60_000, 60_000 if service_ns < MS else 6_000).astype(np.int64)
    seen = found(loop(4, service_ns, gaps))
    assert broken(seen) == []
    told = [text for text in seen.warnings if "slots were idle for" in text]
    assert bool(told) == (60_000 / (60_000 + service_ns) > 0.1)


def test_of_a_full_core_idle_slots_follow_and_are_no_second_reason() -> None:
    assert broken(found(frozen(4_000, 4), dataclasses.replace(FACTS, worker_cpu=(0.99,)))) == ["generator CPU"]


def test_what_is_idle_is_what_was_put_in_whatever_the_pairing() -> None:
    gaps = np.random.default_rng(2).integers(0, 3 * MS, 4_000)
    one, two = loop(4, 5 * MS, gaps), loop(3, 5 * MS, gaps, worker=1)
    seen = idle_slots(concat([one, two]), dataclasses.replace(FACTS, slots=(4, 3), n_workers=2))
    assert seen is not None
    assert seen.share == pytest.approx(1.5 / 6.5, rel=0.02)


def test_a_warm_up_that_holds_its_slots_beyond_t0_is_no_idle_time() -> None:
    gaps = np.full(40, 10_000)
    late = rows(np.full(4, -100 * MS), 1_100 * MS, phase=1, query_id=np.arange(4))  # to 1 s after t0
    seen = idle_slots(concat([late, loop(4, 500 * MS, gaps, begin=1_000 * MS)]), FACTS)
    assert seen is not None
    assert seen.share < 0.001


def test_a_slot_that_rests_after_a_refused_connection_is_not_idle() -> None:
    due = np.arange(300) * 10 * MS
    refused = rows(due, 50_000, status=int(Status.CONNECT))
    seen = idle_slots(refused, dataclasses.replace(FACTS, slots=(1,)))
    assert seen is not None
    assert seen.share == 0


def test_short_runs_the_null_protocol_and_loops_without_slots_are_not_judged() -> None:
    assert broken(found(frozen(200, 4))) == []
    assert broken(found(frozen(4_000, 4), dataclasses.replace(FACTS, no_endpoint=True))) == []
    assert idle_slots(frozen(4_000, 4), dataclasses.replace(FACTS, slots=())) is None


def test_in_an_offline_run_each_sample_has_a_slot() -> None:
    made = loop(4, 5 * MS, np.full(2_000, 4 * MS))
    ready = made["ready_ns"]
    offline = from_columns(
        len(made), query_id=0, sample_ix=np.arange(len(made)), due_ns=0, ready_ns=ready, sent_ns=ready,
        first_byte_ns=made["done_ns"], done_ns=made["done_ns"],
    )  # fmt: skip
    facts = dataclasses.replace(FACTS, open_loop=True, planned=len(made), planned_queries=1)
    assert "idle slots" in broken(assess(offline, facts))
    assert "idle slots" not in [check.name for check in assess(offline, dataclasses.replace(facts, slots=())).checks]
