"""The limit of requests under way, in virtual time: a number, and one that finds itself."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import pytest

from plimsoll.reference_server.config import configure, parser
from plimsoll.reference_server.service.limit import WINDOW, Limit, parse_limit
from plimsoll.reference_server.values.errors import ConfigError

MS = 1_000_000


@dataclass
class Outcome:
    p99_ms: float
    refused: float
    good_per_s: float
    most: int


def overload(limit: Limit, *, rate: float, servers: int = 4, mean_ms: float = 20.0, seconds: int = 60) -> Outcome:
    """Poisson arrivals at so many servers with one line (exponential times): what became of the second half."""
    draw, now_ns, free, ends = random.Random(11), 0, [0] * servers, []
    latencies, n, n_refused = [], 0, 0
    while now_ns < seconds * 10**9:
        now_ns += round(draw.expovariate(rate) * 1e9)
        while ends and ends[0][0] <= now_ns:
            end_ns, came_ns = heapq.heappop(ends)
            limit.give(came_ns, end_ns)
            if came_ns > seconds * 5 * 10**8:
                latencies.append((end_ns - came_ns) / MS)
        late = now_ns > seconds * 5 * 10**8
        n += late
        if not limit.take():
            n_refused += late
            continue
        end_ns = max(now_ns, heapq.heappop(free)) + round(draw.expovariate(1 / mean_ms) * MS)
        heapq.heappush(free, end_ns)
        heapq.heappush(ends, (end_ns, now_ns))
    latencies.sort()
    good = sum(ms <= 200 for ms in latencies)
    return Outcome(latencies[-len(latencies) // 100], n_refused / n, good / seconds * 2, limit.most)


def test_a_limit_that_follows_p99_keeps_it_at_twice_the_load_and_loses_no_throughput() -> None:
    """200/s fit. A limit too high keeps throughput and nobody is in time; one too low is in time and idles."""
    found = overload(Limit(target_ns=200 * MS), rate=400)
    high, low = overload(Limit(256), rate=400), overload(Limit(3), rate=400)
    assert found.p99_ms < 240
    assert found.good_per_s > 190
    assert found.refused == pytest.approx(0.5, abs=0.03)
    assert high.p99_ms > 1_000
    assert high.good_per_s < 5
    assert low.p99_ms < 200
    assert low.good_per_s < 0.75 * found.good_per_s


def test_it_refuses_nobody_below_the_capacity_and_grows_only_where_it_was_reached() -> None:
    found = overload(Limit(target_ns=200 * MS), rate=120)
    assert found.refused < 0.001
    assert found.most < 30


def test_it_follows_a_device_that_becomes_faster() -> None:
    slow, fast = (overload(Limit(target_ns=200 * MS), rate=800, mean_ms=ms) for ms in (20.0, 10.0))
    assert fast.most > 1.5 * slow.most


def test_only_requests_taken_after_a_decision_have_a_say_in_the_next() -> None:
    limit = Limit(50, target_ns=10)
    for _ in range(40):
        assert limit.take()
    for _ in range(WINDOW):
        limit.take()
        limit.give(0, 100)
    assert limit.most == 45
    for _ in range(40):
        limit.give(0, 10_000)
    for _ in range(WINDOW - 1):
        limit.take()
        limit.give(200, 300)
    assert limit.most == 45
    limit.take()
    limit.give(200, 300)
    assert limit.most == 40


def test_it_never_falls_below_one() -> None:
    limit = Limit(2, target_ns=1)
    for _ in range(40 * WINDOW):
        assert limit.take()
        limit.give(10**9, 2 * 10**9)
    assert limit.most == 1


@pytest.mark.parametrize(("text", "most", "target_ns"), [("16", 16, 0), ("200ms", 20, 200 * MS)])
def test_a_limit_is_a_number_or_a_time(text: str, most: int, target_ns: int) -> None:
    limit = parse_limit(text)
    assert limit is not None
    assert (limit.most, limit.target_ns) == (most, target_ns)


@pytest.mark.parametrize("text", ["0", "-3", "few", "0ms", "1.5"])
def test_a_limit_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--in-flight"):
        configure(parser().parse_args([f"--in-flight={text}"]))
