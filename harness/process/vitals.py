"""A worker's own vital signs: stalls of its loop, pauses of the garbage collector, its use of the processor.

They are facts for ``slo/validity/validity.py``: no limit is applied here. Watching costs one timer event each 10 ms,
and starts just before t0, so that a slow warm-up is not held against the run.
"""

from __future__ import annotations

import gc
import math
import resource
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plimsoll.harness.clock import Clock

#: The stall monitor's period, and how late it must be to count as a stall.
PULSE_NS = 10_000_000
STALL_NS = 10_000_000
#: Watching starts this long before t0: its own first steps then delay no query.
AHEAD_NS = 1_000_000
_BINS = 2048
#: Of the calling thread: nanoseconds on a core, nanoseconds runnable and waiting for one, number of turns.
SCHEDSTAT = Path("/proc/thread-self/schedstat")


class Durations:
    """Any number of durations in 16 KiB: counts in bins of 2.2 % (32 an octave), as the compiled engine has."""

    __slots__ = ("_bins", "count", "max_ns")

    def __init__(self) -> None:
        self._bins = array("q", bytes(8 * _BINS))
        self.count = 0
        self.max_ns = 0

    def add(self, ns: int) -> None:
        place = 0 if ns < 1000 else min(int(math.log2(ns / 1000) * 32) + 1, _BINS - 1)
        self._bins[place] += 1
        self.count += 1
        self.max_ns = max(self.max_ns, ns)

    def p99_ns(self) -> int:
        """Nearest rank: the upper edge of its bin, never above the maximum; 0 for none."""
        left = -(-99 * self.count // 100)
        for place, n in enumerate(self._bins):
            left -= n
            if left <= 0:
                return min(int(1000 * 2 ** (place / 32)), self.max_ns)
        return 0


class Pulse:
    """A timer that measures how late the loop runs it: our own stalls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running = False
        self._due_ns = 0
        self._stalls = self._stalled_ns = 0
        self.late = Durations()

    def start(self) -> None:
        self._running = True
        self._due_ns = self._clock.now_ns() + PULSE_NS
        self._clock.wake_at(self._due_ns, self._beat)

    def _beat(self) -> None:
        if not self._running:
            return
        now = self._clock.now_ns()
        self._note(now - self._due_ns)
        self._due_ns = now + PULSE_NS
        self._clock.wake_at(self._due_ns, self._beat)

    def stop(self) -> None:
        """No more beats. One that is overdue counts: the loop may have stood still until the very end."""
        if self._running:
            self._note(max(0, self._clock.now_ns() - self._due_ns))
        self._running = False

    def _note(self, late_ns: int) -> None:
        self.late.add(late_ns)
        if late_ns > STALL_NS:
            self._stalls += 1
            self._stalled_ns += late_ns

    def summary(self) -> dict[str, int]:
        """``p99_ns`` and ``max_ns`` of the lateness of all beats; ``count`` and ``total_ns`` of those over 10 ms."""
        return {
            "p99_ns": self.late.p99_ns(),
            "max_ns": self.late.max_ns,
            "count": self._stalls,
            "total_ns": self._stalled_ns,
        }


class GcPauses:
    """How often and how long the garbage collector stopped the process.

    Workers disable the collector; a plug-in or a library can still call it, and that is heard here too.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._begun_ns = -1
        self.count = 0
        self.max_ns = 0
        self.total_ns = 0

    def start(self) -> None:
        gc.callbacks.append(self._heard)

    def stop(self) -> None:
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def _heard(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun_ns = self._now_ns()
        elif self._begun_ns >= 0:
            took = self._now_ns() - self._begun_ns
            self._begun_ns = -1
            self.count += 1
            self.total_ns += took
            self.max_ns = max(self.max_ns, took)

    def summary(self) -> dict[str, int]:
        return {"count": self.count, "max_ns": self.max_ns, "total_ns": self.total_ns}


class Vitals:
    """All of them over one run. A timer may call ``begin``; ``end`` gives the keys of the ``done`` message."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pulse = Pulse(clock)
        self._pauses = GcPauses(clock.now_ns)
        self._begun: tuple[int, float, int] | None = None

    def begin(self) -> None:
        self._begun = self._clock.now_ns(), cpu_s(), thread_wanted_ns()
        self._pulse.start()
        self._pauses.start()

    def end(self) -> dict[str, Any]:
        """``stalls``, ``gc``, ``cpu`` and ``core_wanted`` (shares of one core), ``watched_ns``: all since ``begin``."""
        begun = self._begun or (self._clock.now_ns(), cpu_s(), thread_wanted_ns())
        self._pulse.stop()
        self._pauses.stop()
        watched = self._clock.now_ns() - begun[0]
        return {
            "stalls": self._pulse.summary(),
            "gc": self._pauses.summary(),
            "cpu": (cpu_s() - begun[1]) * 1e9 / max(1, watched) if watched > 0 else 0.0,
            "core_wanted": (thread_wanted_ns() - begun[2]) / watched if watched > 0 else 0.0,
            "watched_ns": watched,
        }


def cpu_s() -> float:
    """Seconds that all threads of this process have used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def thread_wanted_ns() -> int:
    """Nanoseconds that this thread has run or was ready to and had no core; 0 where the kernel doesn't say.

    Beside a process that competes for its core a saturated loop uses far less than 100 %; this tells the two apart.
    """
    try:
        ran, waited, _ = SCHEDSTAT.read_text().split()
    except (OSError, ValueError):
        return 0
    return int(ran) + int(waited)
