"""Coordinated omission in virtual time: what a stall must look like, to the nanosecond. SEMANTICS.md A.1, B.1, B.3 and
F.6.

The whole way from plan to percentile is Plimsoll's own (plan, issuer, columns, indicator, quantile); only time and the
endpoint are scripted. The ideal is computed apart, from the planned due times and the endpoint's law alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hdrh.histogram import HdrHistogram

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.harness.generator.recorder import Columns
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plugins import kinds
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.statistics.distribution import HdrConfig, hdr_counts, quantile
from tests.exact_summary import summary
from tests.histogram_rank import hdr_quantile
from tests.virtual_time import VirtualClient, VirtualClock

MS = 1_000_000
S = 1_000_000_000
FloatArray = npt.NDArray[np.float64]


def plan_of(kind: str, stop: Stop, seed: int = 42, **params: object) -> Plan:
    found = kinds()[kind]
    return found.build(found.params.model_validate(params), stop, 100, seed)


class World:
    """One run of a plan in virtual time. ``law(sent)`` is when an endpoint answers what was sent then, both from t0."""

    def __init__(self, plan: Plan, law: Callable[[int], int], blocked_ns: int = 0) -> None:
        clock = VirtualClock()
        columns = Columns()

        def service(exchange: Exchange) -> int:
            sent = exchange.sent_ns - t0
            clock.spend(blocked_ns)
            return law(sent) - sent

        client = VirtualClient(clock, service)
        issuer = Issuer(Load(plan, None, ["x"] * 100, "run", 1_000_000), client, clock, columns.append)
        t0 = clock.now_ns() + S
        issuer.start(t0)
        clock.run()
        self.records = columns.to_records(t0, worker=0)

    def values(self, name: str = "latency") -> FloatArray:
        return np.sort(measure(catalogue()[name], self.records).values)


def frozen(start_ns: int, for_ns: int, takes_ns: int) -> Callable[[int], int]:
    """An endpoint of endless parallelism that answers after ``takes_ns``, but nothing between start and start + for."""

    def law(sent_ns: int) -> int:
        done = sent_ns + takes_ns
        return start_ns + for_ns if start_ns <= done < start_ns + for_ns else done

    return law


def ideal(due_ns: npt.NDArray[np.int64], law: Callable[[int], int]) -> FloatArray:
    """What an observer notes who sends at every due time and sees every answer."""
    return np.sort(np.array([law(int(due)) - int(due) for due in due_ns], dtype=np.float64))


@pytest.mark.parametrize("arrival", ["poisson", "constant", "loadgen"])
def test_a_two_second_stall_in_an_open_loop_is_the_ideal_observers_to_the_nanosecond(arrival: str) -> None:
    """SEMANTICS.md B.1: 2 s of silence in 20 s at 200/s."""
    law = frozen(8 * S, 2 * S, 5 * MS)
    plan = plan_of("server", Stop(1, 20 * S), rate=200, arrival=arrival)
    seen, expected = World(plan, law).values(), ideal(plan.due_ns, law)
    assert np.array_equal(seen, expected)
    for p in ("0.5", "0.95", "0.99", "0.999", "1"):
        assert quantile(seen, p) == quantile(expected, p)
    assert quantile(seen, "0.5") == 5 * MS
    assert 1.7 * S < quantile(seen, "0.99") < quantile(seen, "0.999") < 2.01 * S


@pytest.mark.parametrize("users", [1, 2, 8])
def test_a_closed_loop_hides_the_same_stall(users: int) -> None:
    """SEMANTICS.md B.1: why the claim above can fail. One request in 3,200 meets the stall, so p99.9 shows nothing."""
    plan = plan_of("concurrency", Stop(1, 20 * S), concurrency=users)
    seen = World(plan, frozen(8 * S, 2 * S, 5 * MS)).values()
    assert quantile(seen, "0.99") == quantile(seen, "0.999") == 5 * MS
    assert seen[-1] == 2 * S + 5 * MS  # it would have been answered in the very nanosecond of the freeze
    assert np.count_nonzero(seen > 5 * MS) == users


def test_time_that_issuing_takes_is_charged_to_the_latency() -> None:
    """SEMANTICS.md A.1 [RUN] and E.3: issuing blocks for 5 ms at 400/s. LoadGen too charges that to the latency."""
    plan = plan_of("server", Stop(1, S), rate=400, arrival="loadgen")
    world = World(plan, lambda sent: sent, blocked_ns=5 * MS)
    due, n = plan.due_ns, len(plan.due_ns)
    assert n == 403
    assert round((n - 1) / due[-1] * S, 2) == 401.35
    # A queue of one server with a fixed service time: each begins when it is due or when the one before is over.
    begun = np.empty(n, dtype=np.int64)
    free = 0
    for k, at in enumerate(due.tolist()):
        begun[k] = max(at, free)
        free = int(begun[k]) + 5 * MS
    assert np.array_equal(world.records["sent_ns"], begun)
    assert np.array_equal(world.values("lag"), np.sort((begun - due).astype(np.float64)))
    fluid = S * (401.35 / 200 - 1)
    assert world.values("lag")[-1] == pytest.approx(fluid, rel=0.02)


def test_gil_tenes_example_in_an_open_loop() -> None:
    """SEMANTICS.md B.3, third row: 100 s at 100/s and 1 ms, then 100 s of silence."""
    law = frozen(100 * S, 100 * S, MS)

    def stalled(sent: int) -> int:  # the example's server does its 1 ms of work after the stall
        return 200 * S + MS if 100 * S <= sent < 200 * S else law(sent)

    plan = plan_of("server", Stop(20_000, 0), rate=100, arrival="constant")
    found = summary(World(plan, stalled).values() / 1e6)
    assert found.n == 20_000
    assert (found.p50, found.p90, found.p99, found.p99_9) == (1, 80_001, 98_001, 99_801)
    assert quantile(World(plan, stalled).values(), "0.75") == 50_001 * MS
    assert found.mean == pytest.approx(25_003.5)


def test_gil_tenes_example_in_a_closed_loop() -> None:
    """SEMANTICS.md B.3, first row: 10,000 answers of 1 ms and one of 100 s. Its mean was taken from a histogram."""
    seen = np.append(np.full(10_000, 1_000), 100_000_000)  # in us
    found = summary(seen.astype(np.float64))
    assert (found.p50, found.p90, found.p99, found.p99_9, found.n) == (1_000, 1_000, 1_000, 1_000, 10_001)
    assert found.mean == pytest.approx(10_998.9, abs=0.05)
    assert hdr_mean(hdr_counts(seen, US)[0]) == pytest.approx(10_996, abs=0.5)


def test_gil_tenes_example_filled_up_afterwards() -> None:
    """SEMANTICS.md B.3, second row: the expected-interval rule (10 ms) on the same data, in a histogram of us."""
    seen = [*[1_000] * 10_000, *expected_interval(100_000_000, 10_000)]
    counts, clamped = hdr_counts(seen, US)
    assert (len(seen), clamped) == (20_000, 0)
    percentiles = [hdr_quantile(counts, p, US) / 1e6 for p in ("0.5", "0.75", "0.9", "0.99", "0.999")]
    assert percentiles == pytest.approx([0.001, 50.004, 80.019, 98.042, 99.811], abs=0.0006)
    assert hdr_mean(counts) / 1e6 == pytest.approx(25.00, abs=0.005)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1000, list(range(1000, 0, -100))), (150, [150]), (250, [250, 150]), (1050, list(range(1050, 100, -100)))],
)
def test_the_expected_interval_rule_is_javas_and_the_package_has_another(value: int, expected: list[int]) -> None:
    """SEMANTICS.md F.6 and B.8: the Python package also records the remainder below the interval.

    We correct nothing.
    """
    assert expected_interval(value, 100) == expected
    theirs = HdrHistogram(1, 10_000, 3)
    theirs.record_corrected_value(value, 100)
    remainder = value % 100 != 0
    assert theirs.get_total_count() == len(expected) + remainder  # the trap


#: SEMANTICS.md B.5: 1 us to 1 h to three digits.
US = HdrConfig(1, 3_600_000_000, 3)


def expected_interval(value: int, interval: int) -> list[int]:
    """HdrHistogram's (Java) correction after the fact: the value, then less by an interval while that is at least
    one.
    """
    return [value, *range(value - interval, interval - 1, -interval)]


def hdr_mean(counts: npt.NDArray[np.int64]) -> float:
    """HdrHistogram's mean: every value stands in the middle of its bucket."""
    low, high = US.bounds(np.arange(len(counts)))
    width = high - low + 1
    middle = np.where(width > 1, low + width // 2, low)
    return float((counts * middle).sum() / counts.sum())
