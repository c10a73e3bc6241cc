"""The test vectors of SEMANTICS.md B and F that no other test holds; each names its section. Elsewhere: F.1 and C.1 in
test_slo_confidence, F.2 (A.3) in test_scenarios_arrival, F.4 in test_scenarios_conformance, B.5 to B.8 in
test_slo_distribution, B.3 and F.6 below, the sample order of A.3 in
test_scenarios_loadgen_samples. Coordinated omission in virtual time: what a stall must look like, to the
nanosecond. SEMANTICS.md A.1, B.1, B.3 and F.6. The whole way from plan to percentile is Plimsoll's own (plan,
issuer, columns, indicator, quantile); only time and the endpoint are scripted. The ideal is computed apart, from
the planned due times and the endpoint's law alone.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hdrh.histogram import HdrHistogram

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.harness.generator.recorder import Columns
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plugins import kinds
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.statistics import distribution as dist
from plimsoll.slo.statistics.confidence import (
    binomial_at_most,
    clopper_pearson,
    max_failures,
    most_bad_allowed,
    n_needed,
    n_required,
    order_statistic_bounds,
)
from plimsoll.slo.statistics.distribution import HdrConfig, hdr_counts, quantile
from plimsoll.slo.validity.validity import Validity
from plimsoll.slo.verdict.verdict import judge
from tests.exact_summary import summary
from tests.histogram_rank import hdr_quantile
from tests.virtual_time import VirtualClient, VirtualClock

MS = 1_000_000
US = HdrConfig(1, 3_600_000_000, 3)


def test_percentile_conventions_of_a_hundred_and_a_thousand_values() -> None:
    """B.10: the same data, different answers."""
    hundred, thousand = np.arange(1.0, 101), np.arange(1.0, 1001)
    assert dist.quantile_linear(thousand, "0.99") == pytest.approx(990.01)
    assert np.percentile(hundred, 99, method="lower") == 99  # Endpoints' choice
    assert dist.quantile_linear(hundred, "0.99") == pytest.approx(float(np.percentile(hundred, 99)))
    counts, _ = dist.hdr_counts(np.arange(1, 101), US)
    assert hdr_quantile(counts, "0.99", US) == 99


@pytest.mark.parametrize(("percent", "package", "ours"), [(94, 9, 10), (95, 10, 10), (14, 1, 2), (15, 2, 2)])
def test_histogram_ranks_are_rounded_up_where_the_package_rounds_to_nearest(
    percent: int, package: int, ours: int
) -> None:
    """B.5: values 1..10."""
    theirs = HdrHistogram(1, 1000, 3)
    for value in range(1, 11):
        theirs.record_value(value)
    assert theirs.get_value_at_percentile(percent) == package
    config = HdrConfig(1, 1000, 3)
    counts, _ = dist.hdr_counts(np.arange(1, 11), config)
    assert hdr_quantile(counts, percent / 100, config) == ours


def test_a_quarter_of_one_and_four_twos_is_two() -> None:
    """B.5: [1, 2, 2, 2, 2] at p25 is 2 in Java and here, 1 in Python and C."""
    config = HdrConfig(1, 1000, 3)
    theirs = HdrHistogram(1, 1000, 3)
    for value in (1, 2, 2, 2, 2):
        theirs.record_value(value)
    counts, _ = dist.hdr_counts([1, 2, 2, 2, 2], config)
    assert (theirs.get_value_at_percentile(25), hdr_quantile(counts, "0.25", config)) == (1, 2)


def test_a_lone_zero_is_read_in_javas_form_and_in_pythons() -> None:
    """B.6: Python writes a single empty count as -1, Java as 0; the counts are the same."""
    expected, _ = dist.hdr_counts([1, 2, 2, 1_000_000], US)
    for lone in (b"\x00", b"\x01"):
        payload = lone + bytes.fromhex("0204bbae0102")
        inflated = struct.pack(">6I", 0x1C849313, len(payload), 0, 3, 0, 1)
        inflated += struct.pack(">Qd", 3_600_000_000, 1.0) + payload
        deflated = zlib.compress(inflated)
        blob = struct.pack(">II", 0x1C849314, len(deflated)) + deflated
        counts, config = dist.decode(base64.b64encode(blob))
        assert config == US
        assert np.array_equal(counts, expected)


def test_the_packages_counters_wrap_where_ours_do_not() -> None:
    """B.8: 65,535 + 2 is 1 in a histogram of 16-bit counters."""
    theirs = HdrHistogram(1, 1000, 3, word_size=2)
    theirs.record_value(7, 65_535)
    theirs.record_value(7, 2)
    assert theirs.get_count_at_value(7) == 1  # the trap
    counts, _ = dist.hdr_counts(np.full(65_537, 7), HdrConfig(1, 1000, 3))
    assert counts[7] == 65_537


@pytest.mark.parametrize(("n", "over", "more"), [(458, 0, 1), (190, 1, 472), (10_000, 78, 102)])
def test_a_server_run_says_how_many_good_queries_are_missing(n: int, over: int, more: int) -> None:
    """F.3 (A.6): n = 190 with one over is LoadGen's own output."""
    assert max_failures(n, "0.99") < over
    assert n_required(over, "0.99") - n == more


@pytest.mark.parametrize(
    ("n", "over", "outcome"),
    [(10_000, 77, "PASS"), (10_000, 78, "INCONCLUSIVE"), (459, 0, "PASS"), (458, 0, "INCONCLUSIVE")],
)
def test_an_objective_at_99_percent_is_loadgens_early_stopping(n: int, over: int, outcome: str) -> None:
    """F.3 (A.6), from records to verdict: exactly at the limit is within it."""
    took = np.full(n, 100 * MS)
    took[np.arange(over) * n // max(over, 1)] += 1  # evenly: the vector is for independent queries
    verdict = judge(rows(took), [parse("p99(latency) <= 100ms")], valid(n), "0.99").objectives[0]
    assert (verdict.outcome, verdict.n, verdict.bad) == (outcome, n, over)


@pytest.mark.parametrize(
    ("n", "percentile", "early"),
    [(459, 4, 0), (662, 6, 1), (1000, 9, 2), (10_000, 99, 77), (60_000, 599, 543), (270_336, 2703, 2583)],
)
def test_early_stopping_is_stricter_than_the_percentile(n: int, percentile: int, early: int) -> None:
    """A.6: how many may be over by ``sorted[floor(0.99 n)] <= T``, and by early stopping."""
    assert max_failures(n, "0.99") == most_bad_allowed(n, "0.01", "0.99") == early
    for over, met in ((percentile, True), (percentile + 1, False)):
        values = np.sort(np.r_[np.zeros(n - over), np.ones(over)])
        assert (dist.quantile_loadgen(values, "0.99") == 0) == met


@pytest.mark.parametrize(("p", "n"), [("0.5", 11), ("0.9", 64), ("0.95", 130), ("0.97", 219), ("0.999", 6636)])
def test_the_least_n_of_an_estimate_is_the_published_floor(p: str, n: int) -> None:
    """A.11: below it no query may be over, so there is no estimate; at it one may, and the estimate is the maximum."""
    assert (max_failures(n - 1, p), max_failures(n, p)) == (0, 1)


@pytest.mark.parametrize(
    ("confidence", "sides", "least"),
    [
        ("0.95", 1, {"0.9": 29, "0.95": 59, "0.99": 299, "0.999": 2995}),
        ("0.99", 1, {"0.9": 44, "0.95": 90, "0.99": 459, "0.999": 4603}),
        ("0.95", 2, {"0.5": 6, "0.9": 36, "0.95": 72, "0.99": 368, "0.999": 3688}),
        ("0.99", 2, {"0.5": 8, "0.9": 51, "0.95": 104, "0.99": 528, "0.999": 5296}),
    ],
)
def test_a_bound_exists_from_the_tabulated_n_on(confidence: str, sides: int, least: dict[str, int]) -> None:
    """F.7 (C.1): with one request fewer the upper rank is n + 1, which is no value at all."""
    for p, n in least.items():
        assert order_statistic_bounds(n, p, confidence, sides)[1] <= n
        assert order_statistic_bounds(n - 1, p, confidence, sides)[1] == n


@pytest.mark.parametrize(
    ("n", "p", "coverage"),
    [
        (100, "0.5", 0.9648), (100, "0.9", 0.9557), (100, "0.95", 0.9826), (368, "0.99", 0.9624),
        (1000, "0.5", 0.9537), (1000, "0.9", 0.9549), (1000, "0.95", 0.9581), (1000, "0.99", 0.9761),
        (5000, "0.99", 0.9537), (5000, "0.999", 0.9796), (10_000, "0.99", 0.9558), (10_000, "0.999", 0.9755),
        (100_000, "0.99", 0.9512), (100_000, "0.999", 0.9548),
    ],
)  # fmt: skip
def test_an_interval_covers_what_the_table_says(n: int, p: str, coverage: float) -> None:
    """F.7 (C.1): F(u - 1) - F(l - 1) of a binomial."""
    lower, upper = order_statistic_bounds(n, p)
    covers = binomial_at_most(upper - 1, n, p) - binomial_at_most(lower - 1, n, p)
    assert covers == pytest.approx(coverage, abs=0.00006)


@pytest.mark.parametrize(("bad", "n"), [(0, 2995), (1, 4742), (2, 6294), (3, 7752), (5, 10_511), (10, 16_959)])
def test_so_many_requests_show_that_fewer_than_one_in_a_thousand_is_bad(bad: int, n: int) -> None:
    """F.8 (D.4): at 95 %."""
    assert most_bad_allowed(n, "0.001") == bad
    assert most_bad_allowed(n - 1, "0.001") == bad - 1
    if not bad:
        assert n_needed(0, 1, "0.001") == n


def test_four_hundred_and_eighty_bad_of_240_000_fail_an_objective_of_three_nines() -> None:
    """F.8 (D.4): 0.2 % bad with [0.1825 %, 0.2187 %], against 0.1 %."""
    low, high = clopper_pearson(480, 240_000)
    assert (round(low / 0.001, 2), round(480 / 240_000 / 0.001, 2), round(high / 0.001, 2)) == (1.83, 2.0, 2.19)
    took = np.full(240_000, 50 * MS)
    took[::500] = 500 * MS  # evenly: in one piece they would be one event
    verdict = judge(rows(took), [parse("p99.9(latency) <= 100ms")], valid(240_000)).objectives[0]
    assert (verdict.outcome, verdict.bad, verdict.n_needed) == ("FAIL", 480, 0)


def rows(took_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Records:
    """Requests due every ms that took so long."""
    due = np.arange(len(took_ns)) * MS
    return from_columns(len(due), due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=due, done_ns=due + took_ns)


def valid(n: int) -> Validity:
    """A generator beyond reproach."""
    from plimsoll.slo.validity.lateness import Lag

    lag = Lag(0, 0, 0)
    return Validity("VALID", (), (), (), n, n, 0, 1000.0, 1000.0, lag, lag, "kernel", 1.0, None)


# -- coordinated omission in virtual time ---------------------------------------------------------------------------

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
        issuer = Issuer(Load(cut(plan), None, ["x"] * 100, "run", 1_000_000), client, clock, columns.append)
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
