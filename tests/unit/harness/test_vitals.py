"""Stalls, collector pauses and the use of the processor are seen, in virtual time, and reach the generator's facts.
The probe of the host's timer: what is made of a lateness, and where it matters at all. Nothing sleeps here. What
status lines tell about objectives is a lower bound of what the verdict will count.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.clock import WallMap
from plimsoll.harness.generator.recorder import FRESH, spread
from plimsoll.harness.process.vitals import PULSE_NS, Durations, GcPauses, Pulse, Vitals, thread_wanted_ns
from plimsoll.harness.run import coordinator
from plimsoll.harness.run.coordinator import MOST_NS, chosen, matters, tuned
from plimsoll.harness.run.tally import Tally, over
from plimsoll.harness.sealing.accounts import vitals_of
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import IntArray
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.lateness import LagLimits
from plimsoll.slo.validity.strain import checks
from tests.virtual_time import VirtualClock

MS = 1_000_000
LIMITS = LagLimits(1 * MS, 1 * MS, 50 * MS, 50 * MS, "of a test")


@pytest.fixture
def callbacks() -> Iterator[None]:
    """Whatever a test does, the collector calls nobody afterwards."""
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before


def broken(done: dict[str, Any], **changes: Any) -> list[str]:
    facts = GeneratorFacts(**({"open_loop": False, "planned": 1} | vitals_of([done]) | changes))
    return [check.name for check in checks(facts, LIMITS, 1.0) if not check.ok]


def test_a_loop_that_keeps_time_has_no_stalls() -> None:
    clock = VirtualClock()
    pulse = Pulse(clock)
    pulse.start()
    clock.run(clock.now_ns() + 1000 * MS)
    pulse.stop()
    assert pulse.summary() == {"p99_ns": 0, "max_ns": 0, "count": 0, "total_ns": 0}
    assert pulse.late.count >= 1000 * MS // PULSE_NS


def test_a_stall_is_as_long_as_the_loop_stood_still_less_the_rest_of_the_period() -> None:
    clock = VirtualClock()
    pulse = Pulse(clock)
    pulse.start()
    start = clock.now_ns()
    clock.wake_at(start + 105 * MS, lambda: clock.spend(65 * MS))  # the beat of 110 ms comes at 170
    clock.wake_at(start + 405 * MS, lambda: clock.spend(9 * MS))  # 4 ms late: no stall
    clock.run(start + 1000 * MS)
    pulse.stop()
    seen = pulse.summary()
    assert (seen["count"], seen["max_ns"], seen["total_ns"]) == (1, 60 * MS, 60 * MS)


def test_durations_keep_their_percentile_in_bounded_memory() -> None:
    durations = Durations()
    for ns in range(1, 100_001):
        durations.add(ns * 1000)
    assert durations.count == 100_000
    assert durations.max_ns == 100 * MS
    assert 99 * MS <= durations.p99_ns() <= 100 * MS
    assert Durations().p99_ns() == 0


def test_a_loop_that_stands_still_until_the_end_is_heard_of() -> None:
    clock = VirtualClock()
    pulse = Pulse(clock)
    pulse.start()
    clock.spend(500 * MS)
    pulse.stop()
    assert pulse.summary()["max_ns"] == 490 * MS


def test_a_stall_of_a_closed_loop_becomes_a_broken_promise(callbacks: None) -> None:
    clock = VirtualClock()
    vitals = Vitals(clock)
    clock.wake_at(clock.now_ns() + 10 * MS, vitals.begin)
    clock.wake_at(clock.now_ns() + 3005 * MS, lambda: clock.spend(80 * MS))
    clock.run(clock.now_ns() + 5000 * MS)
    done = vitals.end() | {"cpu": 0.1, "core_wanted": 0.1, "client": {}}
    assert done["watched_ns"] == 4990 * MS
    assert broken(done) == ["loop stalls"]
    assert broken(done, open_loop=True) == []


def test_a_forced_collection_is_counted_timed_and_a_broken_promise_when_it_is_long(callbacks: None) -> None:
    clock = VirtualClock()
    vitals = Vitals(clock)
    vitals.begin()
    long = [0]

    def heavy(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            clock.spend(long[0])  # as long as a deep heap takes

    gc.callbacks.append(heavy)  # called after ours: between our two stamps
    was_on = gc.isenabled()
    gc.disable()  # as in a worker
    try:
        gc.collect()
        long[0] = 55 * MS
        gc.collect()
    finally:
        if was_on:
            gc.enable()
    done = vitals.end() | {"cpu": 0.1, "core_wanted": 0.1, "client": {}, "stalls": {}}
    assert done["gc"] == {"count": 2, "max_ns": 55 * MS, "total_ns": 55 * MS}
    assert broken(done) == ["gc pauses"]


def test_after_the_end_nobody_listens_to_the_collector(callbacks: None) -> None:
    pauses = GcPauses(lambda: 0)
    before = len(gc.callbacks)
    pauses.start()
    pauses.stop()
    pauses.stop()
    assert len(gc.callbacks) == before


def test_a_run_that_ended_before_t0_has_vital_signs_of_nothing(callbacks: None) -> None:
    done = Vitals(VirtualClock()).end()
    assert (done["watched_ns"], done["cpu"], done["stalls"]["max_ns"]) == (0, 0.0, 0)


def test_a_busy_thread_is_seen_to_want_its_core() -> None:
    before = thread_wanted_ns()
    if not before:
        pytest.skip("this kernel has no schedstat")
    for _ in range(400):
        sum(range(10_000))
    assert thread_wanted_ns() - before > 10 * MS


def test_the_worst_workers_times_and_the_sum_of_counts_become_facts() -> None:
    one = {
        "cpu": 0.5, "core_wanted": 0.6, "watched_ns": 10, "client": {"pool_waits": 3, "pool_wait_p99_ns": 7,
            "retried_on_stale_connection": 2},
        "stalls": {"p99_ns": 1, "max_ns": 2, "count": 1, "total_ns": 2}, "gc": {"count": 1, "max_ns": 5, "total_ns": 5},
    }  # fmt: skip
    two = one | {
        "cpu": 0.9,
        "engine_cpu": 0.8,
        "client": {"pool_waits": 4, "pool_wait_p99_ns": 9, "stream_waits": 4, "calls_refused_and_retried": 1},
    }
    facts = GeneratorFacts(open_loop=True, planned=1, **vitals_of([one, two]))
    assert (facts.loop_stall_count, facts.loop_stall_max_ns, facts.gc_pause_count, facts.gc_pause_max_ns) == (
        2,
        2,
        2,
        5,
    )
    assert (facts.pool_waits, facts.pool_wait_p99_ns, facts.stream_waits, facts.retried) == (7, 9, 4, 3)
    assert (facts.worker_cpu, facts.core_wanted, facts.engine_cpu) == ((0.5, 0.9), (0.6, 0.6), (0.8,))
    # A worker that says less (another engine, an older run) is understood.
    few = GeneratorFacts(open_loop=True, planned=1, **vitals_of([{"cpu": 0.1, "client": {}}]))
    assert (few.loop_stall_max_ns, few.watched_ns, few.core_wanted, few.stamps_refused) == (0, 0, (), 0)


def test_a_clock_that_is_set_too_often_to_follow_costs_stamps_and_then_the_run() -> None:
    """A fake wall clock: one step is mapped around; one between each read and its stamp can't be."""
    offset = [10**18]
    wall = WallMap(lambda: offset[0])
    reads = {"kernel_reads": 0, "user_reads": 0}

    def read(now_ns: int, stamped_with: int) -> None:
        stamp = wall.to_monotonic(now_ns - 1000 + stamped_with, now_ns - MS, now_ns)
        reads["kernel_reads" if stamp >= 0 else "user_reads"] += 1

    def done() -> dict[str, Any]:
        return {"cpu": 0.1, "client": {**reads, "clock_steps": wall.steps, "stamps_refused": wall.refused}}

    for i in range(1, 501):
        read(i * 100 * MS, offset[0])
    offset[0] += 3_600 * 1000 * MS
    for i in range(501, 1001):
        read(i * 100 * MS, offset[0])
    assert (wall.steps, reads["kernel_reads"]) == (1, 1000)
    assert broken(done()) == []
    for i in range(1001, 1021):
        offset[0] += 1000 * MS
        stamped_with = offset[0]
        offset[0] += 1000 * MS  # set twice between two samples: the stamp is on a clock that we never saw
        read(i * 100 * MS, stamped_with)
    assert reads == {"kernel_reads": 1000, "user_reads": 20}
    assert broken(done()) == ["stamps"]


# -- the host's timer -----------------------------------------------------------------------------------------------

US = 1_000


def plan(rate: float = 10.0, **flags: object) -> Extent:
    return with_flags(None, **{"kind": "server", "rate": rate, "queries": 200, **flags}).blocks(1).extent()  # type: ignore[arg-type]


def late(p90_us: int) -> IntArray:
    """200 sleeps: half of them 30 us late, the rest so much, and one 20 ms."""
    return np.sort(np.array([30 * US] * 100 + [p90_us * US] * 99 + [20_000 * US], dtype=np.int64))


@pytest.mark.parametrize(
    ("p90_us", "rate", "workers", "spin_us"),
    [
        (40, 10, 1, 50),  # a good timer: as without a probe
        (180, 10, 1, 180),  # as long as hides it
        (
            9_000,
            10,
            1,
            200,
        ),  # somebody else has the core: no timer is that late, and waiting awake for long makes it worse
        (180, 5_000, 1, 50),  # a quarter of a core: 0.25 / 5,000 per s
        (180, 5_000, 2, 100),  # of each of two
        (180, 5_000, 4, 180),
        (40, 100_000, 1, 2.5),
    ],
)
def test_the_engine_stays_awake_as_long_as_hides_the_timer_for_a_quarter_of_a_core_at_most(
    p90_us: int, rate: float, workers: int, spin_us: float
) -> None:
    found = chosen(late(p90_us), plan(rate, arrival="constant"), workers)
    assert found["spin_ns"] == pytest.approx(spin_us * US, rel=0.01)
    assert found["spin_ns"] <= MOST_NS
    assert found["core_share"] == pytest.approx(found["spin_ns"] * rate / 1e9 / workers, rel=0.01)
    assert found["core_share"] <= 0.25
    assert found["late_ns"] == {"p50": 30 * US, "p90": p90_us * US, "p99": p90_us * US, "max": 20_000 * US}
    assert found["sleeps"] == 200


HTTP = Target("http://127.0.0.1:1", "openai-chat", "m")


@pytest.mark.parametrize(
    ("target", "made", "does"),
    [
        (HTTP, plan, True),
        (HTTP, lambda: plan(rate=None, kind="concurrency", concurrency=2), False),  # nothing is due
        (HTTP, lambda: plan(rate=None, kind="offline"), False),  # one query
        (Target("http://127.0.0.1:1", "openai-chat", "m", spin_ns=0), plan, False),  # the user has chosen
        (Target("http://127.0.0.1:1", "openai-chat", "m", engine="python"), plan, False),
        (Target("https://127.0.0.1:1", "openai-chat", "m"), plan, False),  # the Python engine
        (Target("http://127.0.0.1:1", "null"), plan, False),
    ],
)
def test_only_an_open_loop_of_the_compiled_engine_is_probed_for(
    target: Target, made: Callable[[], Extent], does: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.harness.host.calibration_table.find_spec", lambda name: object())

    async def asked(limit_ns: int) -> IntArray:
        return late(180)

    monkeypatch.setattr(coordinator, "lateness", asked)
    load = made()
    assert matters(target, load) is does
    tuned_target, facts = asyncio.run(tuned(target, load, 1))
    if does:
        assert (tuned_target.spin_ns, facts["timer"]["spin_ns"]) == (180 * US, 180 * US)
    else:
        assert (tuned_target, facts) == (target, {})


# -- objectives in status lines -------------------------------------------------------------------------------------


def line(measured: int, bad: int = 0, **values: list[int]) -> dict[str, Any]:
    return {"measured": measured, "bad": bad, **{name: spread(values.get(name, [])) for name in FRESH}}


def test_values_over_a_limit_and_failures_are_bad() -> None:
    tally = Tally([parse("p99(latency) <= 100ms")])
    tally.add(0, line(3, 1, latency=[50_000_000, 150_000_000]))
    tally.add(0, line(4, 1, latency=[200_000_000]))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (4, 3)
    assert found.burn == pytest.approx(3 / 4 / 0.01)


def test_workers_add_up() -> None:
    tally = Tally([parse("ratio(error) <= 1%")])
    tally.add(0, line(10, 1))
    tally.add(1, line(20, 2))
    tally.add(0, line(15, 1))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (35, 3)


def test_a_failed_request_with_a_late_first_token_counts_once() -> None:
    tally = Tally([parse("p90(ttft) <= 10ms")])
    tally.add(0, line(2, 1, ttft=[50_000_000]))
    assert tally.counts()[0].bad == 1


def test_a_request_that_breaks_two_limits_is_one_bad_request() -> None:
    tally = Tally([parse("ratio(good) >= 90%"), parse("ttft <= 10ms"), parse("tpot <= 1ms")])
    tally.add(0, line(1, 0, ttft=[50_000_000], tpot=[5_000_000]))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (1, 1)


@pytest.mark.parametrize("text", ["mean(latency) <= 1s", "p99(e2e) <= 1s", "rate(ok) >= 5/s", "max(ttft) <= 1s"])
def test_what_status_lines_do_not_tell_is_left_out(text: str) -> None:
    assert Tally([parse(text)]).counts() == ()


@given(st.lists(st.integers(1, 10**12), max_size=50), st.integers(1, 10**12))
def test_over_is_never_more_than_there_are_and_misses_only_the_bin_of_the_limit(values: list[int], limit: int) -> None:
    found = over(spread(values), float(limit))
    assert found <= sum(value > limit for value in values)
    assert found >= sum(value > limit * 1.05 + 1 for value in values)
