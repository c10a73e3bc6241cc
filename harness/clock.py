"""Clock: the only reader of time, and the only sleep: ``wake_at`` an absolute deadline.

All times are int nanoseconds of CLOCK_MONOTONIC, which every process of one host shares, so a t0 agreed by the
coordinator means the same instant in each worker. Waiting goes through a ``timerfd`` armed with an absolute time:
an interval sleep loses 41 % of the load at 1,000 requests/s and a loop's own timer wakes about 0.6 ms late, a
timerfd 0.03 ms.

It also maps the kernel's receive stamps (CLOCK_REALTIME) to monotonic time. The offset between the two clocks is
sampled again and again, so that a step of the wall clock cannot corrupt a run: a mapped stamp outside the window in
which the bytes must have arrived is refused, and the caller takes a userland stamp and says so.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

_TFD_TIMER_ABSTIME = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_UNARMED = 1 << 62
#: At most so long is a deadline waited for awake, whatever arming the timer costs.
MOST_AWAKE_NS = 5_000
#: An offset older than this is sampled again before it is used.
OFFSET_MAX_AGE_NS = 50_000_000
#: The wall clock has stepped when the offset moves by more than this between two samples (NTP slews 500 ppm:
#: 25 us in 50 ms).
STEP_NS = 250_000


class Clock(Protocol):
    """Time as the issuer sees it; ``tests/virtual_time.py`` has another."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        ...

    def wake_at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Call ``call`` once, as soon as possible after ``due_ns``; never before it."""
        ...


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("it_interval", _Timespec), ("it_value", _Timespec)]


class LoopClock:
    """The real clock of one event loop: CLOCK_MONOTONIC, one timerfd, a heap of deadlines.

    Raises OSError where the kernel has no timerfd (anything but Linux).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed: Plimsoll needs Linux for exact schedules")
        self._settime = libc.timerfd_settime
        self._fd = fd
        self._loop = loop
        self._spec = _Itimerspec()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._armed_ns = _UNARMED
        self._set_ns = _UNARMED  # what the kernel's timer is set to, also while nobody waits for it
        self._near_ns = self._cost_of_arming()
        loop.add_reader(fd, self._fire)

    now_ns = staticmethod(time.monotonic_ns)

    def wake_at(self, due_ns: int, call: Callable[[], None]) -> None:
        self._serial += 1
        heappush(self._heap, (due_ns, self._serial, call))
        if due_ns < self._armed_ns:
            self._wait_for(due_ns)

    def _cost_of_arming(self) -> int:
        """What a deadline 20 us away costs through the timer, its interrupt included: 2 us on bare metal, 25 where a
        hypervisor has a say in it. The median of nine.
        """
        costs = []
        for _ in range(9):
            begun = time.monotonic_ns()
            self._arm(begun + 20_000)
            while time.monotonic_ns() < begun + 20_000:
                pass
            self._arm(_UNARMED)
            costs.append(time.monotonic_ns() - begun - 20_000)
        return min(max(sorted(costs)[4], 0), MOST_AWAKE_NS)

    def _wait_for(self, due_ns: int) -> None:
        """Come back at ``due_ns``: by the timer, or by another turn of the loop where arming would take longer than
        that.
        """
        if due_ns - time.monotonic_ns() > self._near_ns:
            self._arm(due_ns)
        else:
            self._armed_ns = -_UNARMED  # earlier than any deadline: nobody arms, that turn looks at them all
            self._loop.call_soon(self._run)

    def _arm(self, due_ns: int) -> None:
        self._armed_ns = due_ns
        if due_ns == self._set_ns:
            return
        self._set_ns = due_ns
        # A zero it_value would disarm the timer; a time in the past fires at once.
        value = self._spec.it_value
        value.tv_sec, value.tv_nsec = divmod(max(due_ns, 1), 1_000_000_000)
        if self._settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # re-armed between the wake-up and the read
        self._set_ns = _UNARMED
        if self._armed_ns >= 0:  # else a turn of the loop is on its way and runs everything
            self._run()

    def _run(self) -> None:
        heap = self._heap
        self._armed_ns = -_UNARMED  # earlier than any deadline: calls made below don't arm, the last line does
        now = time.monotonic_ns()
        ready = []
        while heap and heap[0][0] <= now:
            ready.append(heappop(heap))
        done = 0
        try:
            # What these calls ask for is run on a later turn, even if it is due already: sockets must get theirs.
            for entry in ready:
                done += 1
                entry[2]()
        finally:
            for entry in ready[done:]:  # a call raised: the others are not lost
                heappush(heap, entry)
            self._armed_ns = _UNARMED
            if heap:
                self._wait_for(heap[0][0])

    def close(self) -> None:
        """Stop; pending calls are dropped."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._heap.clear()


def sample_offset() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC in ns: the tightest of three bracketed readings."""
    best_width, best = 1 << 62, 0
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best = after - before, wall - (before + after) // 2
    return best


class WallMap:
    """Maps kernel receive stamps (CLOCK_REALTIME ns) to monotonic ns.

    ``steps`` counts the wall-clock steps seen, ``refused`` the stamps that fitted neither side of one.
    """

    __slots__ = ("_offset", "_previous", "_sample", "_sampled_ns", "refused", "steps")

    def __init__(self, sample: Callable[[], int] = sample_offset) -> None:
        self._sample = sample
        self._offset = self._previous = sample()
        self._sampled_ns = -OFFSET_MAX_AGE_NS
        self.steps = 0
        self.refused = 0

    def to_monotonic(self, wall_ns: int, earliest_ns: int, now_ns: int) -> int:
        """The monotonic time of a kernel stamp, or -1 if it can't be trusted.

        ``earliest_ns`` is a time before which the bytes can't have come (the previous read of that socket, or the
        send that they answer), ``now_ns`` the time just after the read. A stamp up to 20 us outside is the
        offset's own error and is clamped.
        """
        if now_ns - self._sampled_ns > OFFSET_MAX_AGE_NS:
            self._resample(now_ns)
        stamp = wall_ns - self._offset
        if earliest_ns - 20_000 <= stamp <= now_ns + 20_000:
            return min(max(stamp, earliest_ns), now_ns)
        # Either the clock stepped since the last sample, or the stamp was made before the step that we know of.
        stale = self._offset
        self._resample(now_ns)
        for offset in (self._offset, self._previous, stale):
            stamp = wall_ns - offset
            if earliest_ns - 20_000 <= stamp <= now_ns + 20_000:
                return min(max(stamp, earliest_ns), now_ns)
        self.refused += 1
        return -1

    def _resample(self, now_ns: int) -> None:
        offset = self._sample()
        self._sampled_ns = now_ns
        if abs(offset - self._offset) > STEP_NS:
            self._previous = self._offset
            self.steps += 1
        self._offset = offset
