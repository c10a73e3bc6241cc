"""``Flights`` holds the exchanges of live sessions and calls that are on the wire, and the time-out of each.

Every exchange ends exactly once: by its session, by its time-out, or because it was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.held import relieve
from plimsoll.slo.records.records import Status

_TIMEOUT = int(Status.TIMEOUT)
#: Sweeps are so far apart for each exchange under way: a tenth of the time at most goes into them.
SWEEP_EACH_NS = 1_000


class Flights:
    """``give_up(exchange, status, text)`` is called for each exchange that takes longer than it may."""

    __slots__ = ("_clock", "_deadlines", "_give_up", "_sweep_ns")

    def __init__(self, clock: Clock, give_up: Callable[[Exchange, int, str], None]) -> None:
        self._clock = clock
        self._give_up = give_up
        self._deadlines: dict[Exchange, tuple[int, int]] = {}
        self._sweep_ns = -1

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, exchange: Exchange, timeout_ns: int) -> None:
        """It may take ``timeout_ns`` from when it was taken up."""
        exchange.on_wire = True
        deadline = exchange.ready_ns + timeout_ns
        self._deadlines[exchange] = (deadline, timeout_ns)
        if self._sweep_ns < 0 or deadline < self._sweep_ns:
            self._sweep_ns = deadline
            self._clock.wake_at(deadline, self._sweep)

    def allow(self, exchange: Exchange, more_ns: int) -> None:
        """It may take so much longer: what it takes to say is known only now, and is not the other side's time."""
        if exchange in self._deadlines:
            deadline, span = self._deadlines[exchange]
            self._deadlines[exchange] = (deadline + more_ns, span + more_ns)

    def land(self, exchange: Exchange) -> None:
        """It is over: hand it back, exactly once."""
        if exchange.on_wire:
            exchange.on_wire = False
            del self._deadlines[exchange]
            exchange.on_done(exchange)

    def relieve(self, limit: int) -> None:
        """Give up the biggest answers while all of them hold more than ``limit`` bytes."""
        relieve(self._deadlines, self._give_up, limit)

    def _sweep(self) -> None:
        now = self._clock.now_ns()
        if self._sweep_ns < 0 or now < self._sweep_ns:
            return  # an earlier deadline came after this call was asked for
        self._sweep_ns = -1
        late = [(exchange, span) for exchange, (deadline, span) in self._deadlines.items() if deadline <= now]
        for exchange, span in late:
            self._give_up(exchange, _TIMEOUT, f"not over after {span / 1e9:g} s (timeout)")
        if self._deadlines:
            # Each sweep looks at all: where thousands time out one by one, it must not become all that we do.
            soonest = now + len(self._deadlines) * SWEEP_EACH_NS
            self._sweep_ns = max(min(deadline for deadline, _ in self._deadlines.values()), soonest)
            self._clock.wake_at(self._sweep_ns, self._sweep)
