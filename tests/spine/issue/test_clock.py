"""The clock: absolute deadlines, and kernel stamps that a step of the wall clock can't corrupt. No deadline fires
early, twice or never, whatever is asked for and whenever: the clock on a loop and a timer that are ours.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.clock import MOST_AWAKE_NS, OFFSET_MAX_AGE_NS, LoopClock, WallMap, sample_offset

MS = 1_000_000


class Wall:
    """A wall clock that can be stepped: ``offset`` is CLOCK_REALTIME - CLOCK_MONOTONIC."""

    def __init__(self, offset: int = 10**18) -> None:
        self.offset = offset
        self.samples = 0

    def sample(self) -> int:
        self.samples += 1
        return self.offset


def test_a_kernel_stamp_is_mapped_to_monotonic_time() -> None:
    wall = Wall()
    assert WallMap(wall.sample).to_monotonic(10**18 + 5 * MS, 0, 6 * MS) == 5 * MS


def test_a_stamp_slightly_outside_its_window_is_clamped_to_it() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(10**18 + 6 * MS + 9_000, 0, 6 * MS) == 6 * MS
    assert mapping.to_monotonic(10**18 + 3 * MS - 9_000, 3 * MS, 6 * MS) == 3 * MS


@given(step=st.integers(-(10**12), 10**12).filter(lambda step: abs(step) > 300_000))
def test_a_step_of_the_wall_clock_changes_no_stamp(step: int) -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(wall.offset + 4 * MS, 3 * MS, 5 * MS) == 4 * MS
    before = wall.offset
    wall.offset += step
    # Stamped by the kernel after the step, with our last sample from before it.
    assert mapping.to_monotonic(wall.offset + 7 * MS, 6 * MS, 8 * MS) in range(6 * MS, 8 * MS + 1)
    # Stamped before the step, read after we know of it.
    late = mapping.to_monotonic(before + 7 * MS, 6 * MS, 8 * MS)
    assert late == -1 or 6 * MS <= late <= 8 * MS


def test_a_large_step_is_counted_and_stamps_on_both_sides_stay_right() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    mapping.to_monotonic(wall.offset + 4 * MS, 3 * MS, 5 * MS)
    before = wall.offset
    wall.offset += 3_600 * 10**9
    assert mapping.to_monotonic(wall.offset + 7 * MS, 6 * MS, 8 * MS) == 7 * MS
    assert mapping.to_monotonic(before + 7 * MS + 1, 6 * MS, 8 * MS) == 7 * MS + 1
    assert mapping.steps == 1


def test_a_stamp_that_fits_no_known_offset_is_refused_and_counted() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(wall.offset + 10**15, 0, 5 * MS) == -1
    assert mapping.refused == 1


def test_the_offset_is_sampled_again_when_it_is_old_and_only_then() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    mapping.to_monotonic(wall.offset + MS, 0, 2 * MS)
    first = wall.samples
    mapping.to_monotonic(wall.offset + 3 * MS, 0, 4 * MS)
    assert wall.samples == first
    now = 2 * MS + OFFSET_MAX_AGE_NS + 1
    mapping.to_monotonic(wall.offset + now - 1, 0, now)
    assert wall.samples == first + 1


def test_the_sampled_offset_agrees_with_the_two_clocks() -> None:
    assert abs(sample_offset() - (time.time_ns() - time.monotonic_ns())) < 50 * MS


def test_calls_come_in_deadline_order_never_early_and_soon_after() -> None:
    """Real time: bounded by 30 ms of waiting; lateness is only bounded loosely here (this machine is shared)."""

    async def main() -> list[tuple[int, int]]:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls: list[tuple[int, int]] = []
        begun = clock.now_ns()
        for ms in (20, 5, 30, 5, 0):
            due = begun + ms * MS
            clock.wake_at(due, lambda due=due: calls.append((due, clock.now_ns())))  # type: ignore[misc]
        clock.wake_at(begun + 30 * MS, lambda: done.set_result(None))
        await asyncio.wait_for(done, 5)
        clock.close()
        return calls

    calls = asyncio.run(main())
    assert len(calls) == 5
    assert [due for due, _ in calls] == sorted(due for due, _ in calls)
    assert all(0 <= now - due < 100 * MS for due, now in calls)


def test_a_call_may_ask_for_another_even_one_already_due() -> None:
    async def main() -> int:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        count = 0

        def again() -> None:
            nonlocal count
            count += 1
            if count == 50:
                done.set_result(None)
            else:
                clock.wake_at(0, again)

        clock.wake_at(clock.now_ns(), again)
        await asyncio.wait_for(done, 5)
        clock.close()
        return count

    assert asyncio.run(main()) == 50


def test_a_far_deadline_does_not_put_off_one_that_is_due_at_once() -> None:
    async def main() -> int:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock.wake_at(0, lambda: done.set_result(None))
        clock.wake_at(clock.now_ns() + 3600 * 1000 * MS, lambda: None)
        begun = clock.now_ns()
        await asyncio.wait_for(done, 5)
        clock.close()
        return clock.now_ns() - begun

    assert asyncio.run(main()) < 1000 * MS


def test_an_error_in_one_call_does_not_lose_the_others() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        clock = LoopClock(loop)
        done: asyncio.Future[None] = loop.create_future()
        now = clock.now_ns()
        clock.wake_at(now, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        clock.wake_at(now + 1, lambda: done.set_result(None))
        await asyncio.wait_for(done, 5)
        clock.close()
        return len(errors) == 1

    assert asyncio.run(main())


def test_work_that_asks_for_more_of_itself_lets_the_loop_breathe() -> None:
    """A chain of calls due at once must not keep sockets and other timers waiting until it ends."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        order: list[str] = []
        done: asyncio.Future[None] = loop.create_future()

        def chain() -> None:
            order.append("chain")
            if len(order) < 50:
                clock.wake_at(0, chain)
            else:
                done.set_result(None)

        clock.wake_at(0, chain)
        loop.call_later(0.0, lambda: order.append("loop"))
        await asyncio.wait_for(done, 5)
        clock.close()
        return order

    order = asyncio.run(main())
    assert order.index("loop") < 10


# -- no deadline fires early, twice or never ------------------------------------------------------------------------

US = 1_000


class World:
    """Time, a timerfd and a loop: reading the time costs some, arming the timer more, and the timer fires late."""

    def __init__(self, arming_ns: int, reading_ns: int, late_ns: int) -> None:
        self.now = 1_000_000_000
        self.arming_ns, self.reading_ns, self.late_ns = arming_ns, reading_ns, late_ns
        self.armed: int | None = None
        self.soon: deque[Callable[[], None]] = deque()
        self.reader: Callable[[], None] | None = None
        self.turns = 0

    def monotonic_ns(self) -> int:
        self.now += self.reading_ns
        return self.now

    def settime(self, fd: int, flags: int, spec: Any, old: None) -> int:
        self.now += self.arming_ns
        value = spec._obj.it_value
        due = value.tv_sec * 1_000_000_000 + value.tv_nsec
        self.armed = due if due < 1 << 61 else None
        return 0

    def read(self, fd: int, size: int) -> bytes:
        if self.armed is None or self.armed > self.now:
            raise BlockingIOError
        self.armed = None  # it fires once
        return bytes(8)

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.reader = call

    def remove_reader(self, fd: int) -> None:
        self.reader = None

    def turn(self) -> bool:
        """One turn of the loop: what was asked for before it, then what is readable.

        False if nothing will ever happen.
        """
        self.turns += 1
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        if not self.soon and self.armed is not None and self.armed > self.now:
            self.now = self.armed + self.late_ns  # asleep
        if self.reader is not None and self.armed is not None and self.armed <= self.now:
            self.reader()
        return bool(self.soon) or self.armed is not None


def clock_in(world: World, patch: pytest.MonkeyPatch) -> LoopClock:
    patch.setattr(time, "monotonic_ns", world.monotonic_ns)
    patch.setattr(os, "read", world.read)

    class Libc:
        timerfd_settime = staticmethod(world.settime)

        @staticmethod
        def timerfd_create(clock: int, flags: int) -> int:
            return 1 << 20

    patch.setattr(ctypes, "CDLL", lambda *_, **__: Libc)
    loop: Any = world
    return LoopClock(loop)


#: How far ahead a deadline is, from long past to a second; most near the border between waiting awake and arming.
AHEAD = st.one_of(
    st.integers(-1_000_000, 0),
    st.integers(0, 2 * MOST_AWAKE_NS),
    st.integers(0, 3_000_000),
    st.sampled_from([0, 1, 20 * US, MOST_AWAKE_NS, MOST_AWAKE_NS + 1, 1_000_000_000]),
)
#: A call: how long it takes, what it asks for itself, and whether it then raises.
CALL = st.tuples(AHEAD, st.integers(0, 200_000), st.lists(AHEAD, max_size=3), st.booleans())


@given(
    arming_ns=st.sampled_from([200, 2 * US, 25 * US, 60 * US]),
    reading_ns=st.sampled_from([200, 900]),
    late_ns=st.sampled_from([0, 30 * US, 700 * US]),
    rounds=st.lists(st.tuples(st.lists(CALL, max_size=5), st.integers(0, 100_000)), min_size=1, max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_every_deadline_is_met_once_never_early_and_in_order(
    arming_ns: int, reading_ns: int, late_ns: int, rounds: list[tuple[list[tuple[int, int, list[int], bool]], int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(arming_ns, reading_ns, late_ns)
        clock = clock_in(world, patch)
        asked: list[int] = []
        met: dict[int, int] = {}

        def ask(ahead: int, spend: int, more: list[int], fails: bool) -> None:
            number, due = len(asked), world.now + ahead
            asked.append(due)

            def call() -> None:
                assert number not in met
                assert world.now >= due
                met[number] = world.now
                world.now += spend
                for each in more:
                    ask(each, 0, [], False)
                if fails:
                    raise ZeroDivisionError

            clock.wake_at(due, call)

        def turn() -> bool:
            try:
                return world.turn()
            except ZeroDivisionError:  # the loop's exception handler is told, and it goes on
                return True

        for calls, between in rounds:
            for call in calls:
                ask(*call)
            world.now += between
            turn()
        for _ in range(20_000):
            if len(met) == len(asked) or not turn():
                break
        assert sorted(met) == list(range(len(asked)))
        clock._heap.clear()


@given(st.integers(1, MOST_AWAKE_NS), st.sampled_from([2 * US, 25 * US, 60 * US]))
@settings(max_examples=50, deadline=None)
def test_waiting_awake_gives_the_loop_a_turn_each_time_it_looks(ahead: int, arming_ns: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(arming_ns, 500, 0)
        clock = clock_in(world, patch)
        done: list[int] = []
        clock.wake_at(world.now + ahead, lambda: done.append(world.now))
        looks = 0
        while not done:
            before = world.turns
            assert len(world.soon) <= 1  # one waits, however many deadlines there are
            world.turn()
            assert world.turns == before + 1
            looks += 1
            assert looks < 200
        assert not world.soon  # and nobody spins once it is met
