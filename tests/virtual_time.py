"""A world without real time: a clock that jumps from event to event, and a client with a scripted service time.

Tests of time run here: they are exact, and a ten-minute run takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from plimsoll.harness.exchange import Exchange
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status


class VirtualClock:
    """Time moves only when the next event is run. ``late_ns`` is added to every wake-up, like a busy loop."""

    def __init__(self, start_ns: int = 1_000_000_000, late_ns: int = 0) -> None:
        self._now = start_ns
        self._late = late_ns
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def now_ns(self) -> int:
        return self._now

    def wake_at(self, due_ns: int, call: Callable[[], None]) -> None:
        self._serial += 1
        heappush(self._heap, (max(due_ns, self._now) + self._late, self._serial, call))

    def spend(self, ns: int) -> None:
        """The code under test takes this long: everything that falls due meanwhile is late."""
        self._now += ns

    def run(self, until_ns: int | None = None) -> None:
        """Run events in time order until none is left, or the next is later than ``until_ns``."""
        while self._heap and (until_ns is None or self._heap[0][0] <= until_ns):
            due, _, call = heappop(self._heap)
            self._now = max(self._now, due)
            call()
        if until_ns is not None:
            self._now = max(self._now, until_ns)


class VirtualClient:
    """Answers each exchange after ``service(exchange)`` virtual ns; a service of None never answers."""

    def __init__(self, clock: VirtualClock, service: Callable[[Exchange], int | None]) -> None:
        self._clock = clock
        self._service = service
        self.sent: list[Exchange] = []
        self.ids: list[bytes] = []
        self.peak = 0
        self._flying: set[Exchange] = set()

    def encode(self, payload: Payload) -> Payload:
        return payload

    async def open(self, connections: int) -> None:
        """Nothing to open."""

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        exchange.sent_ns = self._clock.now_ns()
        self.sent.append(exchange)
        self.ids.append(request_id)
        self._flying.add(exchange)
        self.peak = max(self.peak, len(self._flying))
        service = self._service(exchange)
        if service is not None:
            self._clock.wake_at(exchange.sent_ns + service, lambda: self._answer(exchange, int(Status.OK), None))

    def _answer(self, exchange: Exchange, status: int, error: str | None) -> None:
        if exchange not in self._flying:
            return
        self._flying.discard(exchange)
        exchange.done_ns = self._clock.now_ns()
        exchange.status = status
        exchange.error = error
        exchange.on_done(exchange)

    def settle(self, exchange: Exchange) -> None:
        """Nothing to take apart."""

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        self._answer(exchange, status, error)

    async def close(self) -> None:
        """Nothing to close."""

    def stats(self) -> dict[str, Any]:
        return {}
