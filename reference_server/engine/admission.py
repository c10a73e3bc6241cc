"""How fast a queue drains, and what follows: when to come back, and whether a deadline can still be met. Pure.

Departures are counted, finished or given up, and only while somebody waits: then the server is busy, and the rate at which answers
end is the rate at which places come free. It refuses to guess: with fewer than ``LEAST`` departures it knows no rate.
"""

from __future__ import annotations

import math
from collections import deque

LEAST = 8
"""Departures that make a rate."""
_WINDOW = 64
_RETRY_S = range(1, 61)
_SURE = 2.0
"""A deadline is out of reach when it would be missed even by a queue that drains so many times faster than measured."""


class Drain:
    """The departures of the present spell of queueing."""

    def __init__(self) -> None:
        self._departed_ns: deque[int] = deque(maxlen=_WINDOW)

    def departed(self, now_ns: int, *, n_waiting: int) -> None:
        """Somebody's answer ended while ``n_waiting`` others waited; without any, what was measured is history."""
        if n_waiting == 0:
            self._departed_ns.clear()
        else:
            self._departed_ns.append(now_ns)

    def wait_s(self, n: int, now_ns: int) -> float | None:
        """How long ``n`` departures take at the measured rate; None while that is unknown."""
        if len(self._departed_ns) < LEAST:
            return None
        # Up to now, not to the last departure: a queue that stands still gets slower by the minute.
        span_s = max(now_ns - self._departed_ns[0], 1) / 1e9
        return n * span_s / (len(self._departed_ns) - 1)

    def retry_after_s(self, n_waiting: int, now_ns: int) -> int:
        """When those who wait now will have been served: whole seconds, from 1 to 60; 1 while the rate is unknown."""
        wait_s = self.wait_s(n_waiting, now_ns)
        if wait_s is None:
            return _RETRY_S[0]
        return min(max(math.ceil(wait_s), _RETRY_S[0]), _RETRY_S[-1])

    def too_late(self, n_ahead: int, deadline_ns: int, now_ns: int) -> bool:
        """Would ``n_ahead`` who are served first make the deadline pass, even at twice the measured rate?"""
        if deadline_ns < 0 or n_ahead == 0:
            return False
        wait_s = self.wait_s(n_ahead, now_ns)
        return wait_s is not None and wait_s / _SURE > (deadline_ns - now_ns) / 1e9
