"""Callbacks at absolute instants on the event loop, as exactly as Linux allows: one timerfd, one heap.

Callbacks run in the wake-up itself, with no task switch between the clock and the write; the timer is set early by
about what wake-ups have been taking lately, never by more than 0.2 ms, and the rest is waited out. It refuses to sleep
for intervals: every instant is absolute, so lateness never adds up.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_MAX_LEAD_NS = 200_000
_LATER_NS, _EARLIER_NS = 5_000, 20_000
"""Steps of the lead after a wake-up in time and after a late one: four in five come in time."""

Fire = Callable[[int], int | None]
"""Called with the instant it was due; returns the next one, or None when there is none. Must not raise."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Entry:
    """One series of callbacks, in the wheel until it says None or is cancelled."""

    __slots__ = ("cancelled", "fire", "shift_ns")

    def __init__(self, fire: Fire) -> None:
        self.fire = fire
        self.shift_ns = 0
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class DeadlineWheel:
    """Runs callbacks at their due instants (monotonic nanoseconds). Linux only; for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._heap: list[tuple[int, int, Entry]] = []
        self._n_added = 0
        self._armed_ns = -1
        self._lead_ns = _MAX_LEAD_NS // 2
        loop.add_reader(self._fd, self._wake)

    def at(self, due_ns: int, fire: Fire) -> Entry:
        """Call ``fire`` at ``due_ns``, at once if that has passed, and again at each instant it returns."""
        entry = Entry(fire)
        self._push(due_ns, entry)
        self._arm()
        return entry

    async def sleep_until(self, due_ns: int) -> None:
        """Return at ``due_ns``."""
        future: asyncio.Future[None] = self._loop.create_future()

        def fire(_due_ns: int) -> None:
            if not future.done():
                future.set_result(None)

        entry = self.at(due_ns, fire)
        try:
            await future
        finally:
            entry.cancel()

    def postpone(self, by_ns: int) -> None:
        """Move everything still to come by that much: time stood still for the server."""
        for _, _, entry in self._heap:
            entry.shift_ns += by_ns
        self._heap[:] = [(due_ns + by_ns, order, entry) for due_ns, order, entry in self._heap]

    def close(self) -> None:
        """Release the timer; nothing will be called any more."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._heap.clear()

    def _push(self, due_ns: int, entry: Entry) -> None:
        self._n_added += 1
        heapq.heappush(self._heap, (due_ns, self._n_added, entry))

    def _wake(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # the timer was set anew between epoll's answer and now
            return
        heap = self._heap
        self._wait_out()
        self._armed_ns = -1
        while heap and heap[0][0] <= time.monotonic_ns():
            due_ns, _, entry = heapq.heappop(heap)
            if entry.cancelled:
                continue
            following_ns = entry.fire(due_ns)
            if following_ns is not None and not entry.cancelled:
                self._push(following_ns + entry.shift_ns, entry)
        self._arm()

    def _wait_out(self) -> None:
        """Spin from the wake-up to the instant that it was meant for, and learn how early to be woken."""
        due_ns = self._armed_ns
        now_ns = time.monotonic_ns()
        if now_ns > due_ns:
            self._lead_ns = min(_MAX_LEAD_NS, self._lead_ns + _EARLIER_NS)
            return
        self._lead_ns = max(0, self._lead_ns - _LATER_NS)
        if due_ns - now_ns <= _MAX_LEAD_NS:
            while time.monotonic_ns() < due_ns:
                pass

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] == self._armed_ns or self._fd < 0:
            return
        self._armed_ns = self._heap[0][0]
        seconds, nanoseconds = divmod(max(1, self._armed_ns - self._lead_ns), 1_000_000_000)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
