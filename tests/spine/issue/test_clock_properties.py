"""No deadline fires early, twice or never, whatever is asked for and whenever: the clock on a loop and a timer that are
ours.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.clock import MOST_AWAKE_NS, LoopClock

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
