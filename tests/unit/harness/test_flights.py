"""Time-outs of exchanges on the wire: each once, none early, and a storm of them costs no more than a calm."""

from __future__ import annotations

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.live.flights import SWEEP_EACH_NS, Flights
from tests.virtual_time import VirtualClock

MS = 1_000_000


def fly(n: int, apart_ns: int, timeout_ns: int) -> tuple[list[int], int]:
    """(how late each of ``n`` exchanges timed out, sweeps) where nothing is ever answered."""
    clock = VirtualClock()
    late: list[int] = []
    sweeps = 0

    def give_up(exchange: Exchange, status: int, error: str) -> None:
        late.append(clock.now_ns() - exchange.ready_ns - timeout_ns)
        flights.land(exchange)

    flights = Flights(clock, give_up)

    def send(query: int) -> None:
        exchange = Exchange(query, 0, 0, clock.now_ns(), None)
        exchange.ready_ns, exchange.on_done = clock.now_ns(), lambda _: None
        flights.add(exchange, timeout_ns)

    start = clock.now_ns()
    for query in range(n):
        clock.wake_at(start + query * apart_ns, lambda query=query: send(query))  # type: ignore[misc]
    seen = -1
    while clock._heap:
        clock.run(clock._heap[0][0])
        sweeps += len(late) > max(seen, 0)
        seen = len(late)
    assert len(flights) == 0
    return late, sweeps


def test_one_that_is_not_answered_times_out_on_time() -> None:
    assert fly(1, 0, 50 * MS) == ([0], 1)


def test_a_storm_of_time_outs_is_swept_together_and_none_is_early() -> None:
    n = 2000
    late, sweeps = fly(n, 10_000, 20 * MS)  # 100,000 a second: 2,000 under way
    assert len(late) == n
    assert all(0 <= each <= n * SWEEP_EACH_NS for each in late)
    assert sweeps < n / 20
