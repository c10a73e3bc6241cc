"""The test vectors of SEMANTICS.md A.2 to A.11, B.5 to B.10, C.1 and C.2 that no other test holds; each names its
section.

Elsewhere: C.4 in test_slo_warmup, E in test_slo_queueing, the tables of A.6 and C.1 in
test_slo_confidence, F.3 and the coverages of C.1 in test_semantics_vectors, A.10 in test_presets.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from scipy import stats

from plimsoll.scenarios.plan.arrival import constant_rate
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.scenarios.plugins import kinds
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.statistics import distribution
from plimsoll.slo.statistics import distribution as dist
from plimsoll.slo.statistics.confidence import (
    binomial_at_most,
    max_failures,
    most_bad_allowed,
    n_required,
    order_statistic_bounds,
)
from plimsoll.slo.statistics.distribution import HdrConfig
from tests import hdr_log
from tests.due_times import due_times

MS = 1_000_000
US = HdrConfig(1, 3_600_000_000, 3)
# -- A.2 to A.4: settings and generation ----------------------------------------------------------------------


def test_a_plan_starts_from_loadgens_own_defaults() -> None:
    """A.2: min_query_count 100, min_duration 10 s, samples_per_query 8, server and offline 1/s, no maximum."""
    stop = Stop()
    assert (stop.min_queries, stop.min_duration_ns, stop.max_duration_ns, stop.max_queries) == (100, 10**10, None, None)
    found = {name: kind.params() for name, kind in kinds().items()}
    assert found["multi_stream"].model_dump()["samples_per_query"] == 8
    assert found["server"].model_dump()["rate"] == 1.0
    assert found["offline"].model_dump()["expected_rate"] == 1.0


@pytest.mark.parametrize("rate", [10, 100, 1000])
def test_the_number_of_poisson_arrivals_stays_within_three_standard_deviations(rate: int) -> None:
    """A.3: N within 3 sqrt(lambda T) of lambda T; not rescaled to the target, so it is not exactly that either."""
    expected = rate * 20
    counts = [
        len(due_times("loadgen", constant_rate(rate), seed, min_queries=1, min_duration_ns=20 * 10**9))
        for seed in range(60)
    ]
    outside = sum(abs(n - 1 - expected) > 3 * math.sqrt(expected) for n in counts)
    assert outside <= 2  # 0.3 % of the seeds
    assert len(set(counts)) > 10


@pytest.mark.parametrize("p", ["0.5", "0.9", "0.95", "0.97", "0.99", "0.999"])
def test_loadgens_rank_has_no_float_hazard_up_to_20_000(p: str) -> None:
    """A.4: floor(n p) in doubles, as LoadGen has it, and in rationals, as we do, is the same rank."""
    exact = Fraction(p)
    assert [int(n * float(p)) for n in range(1, 20_001)] == [int(n * exact) for n in range(1, 20_001)]


# -- A.6: early stopping --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "d"), [("0.9", "0"), ("0.99", "0"), ("0.99", "0.005"), ("0.999", "0")])
@pytest.mark.parametrize("t", [0, 1, 2, 7, 40])
def test_the_required_number_is_the_first_whose_odds_are_below_one_per_cent(p: str, d: str, t: int) -> None:
    """A.6: odds(h, t) = P[Binomial(h + t, 1 - p + d) <= t], strictly below 1 - c at h_min and not one earlier."""
    over = 1 - Fraction(p) + Fraction(d)
    n = n_required(t, p, d=d)
    assert stats.binom.cdf(t, n, float(over)) < 0.01 <= stats.binom.cdf(t, n - 1, float(over))
    assert binomial_at_most(t, n, over) == pytest.approx(stats.binom.cdf(t, n, float(over)))


@pytest.mark.parametrize("n", [459, 662, 866, 1000, 10_000])
@pytest.mark.parametrize("p", ["0.9", "0.99"])
def test_loadgens_estimate_lies_one_rank_above_the_smallest_bound(n: int, p: str) -> None:
    """A.6: one budget unit is spent on the estimate itself; hence 662 and not 459 before the maximum may be quoted."""
    _, upper = order_statistic_bounds(n, p, "0.99", sides=1)
    assert upper - 1 == n - max_failures(n, p) - 1


def test_early_stopping_is_always_the_stricter_rule_in_server_mode() -> None:
    """A.6 [CALC]: p = 0.99, every n up to 3,000 and some beyond."""
    for n in [*range(100, 3001), 60_000, 270_336]:
        by_percentile = n - 1 - int(n * Fraction("0.99"))
        assert most_bad_allowed(n, "0.01", "0.99") <= by_percentile


@pytest.mark.parametrize(
    ("p", "n"),
    [
        ("0.5", 11), ("0.75", 24), ("0.8", 31), ("0.9", 64), ("0.95", 130), ("0.97", 219), ("0.99", 662), ("0.999",
            6636),
        ("0.9999", 66_381),
    ],
)  # fmt: skip
def test_the_floors_of_endpoints_percentile_grid(p: str, n: int) -> None:
    """A.11: below these an estimate is null."""
    assert n_required(1, p) == n


# -- A.7 and D.6: marginal and joint --------------------------------------------------------------------------


def test_two_marginal_limits_of_99_percent_leave_98_of_a_hundred_good() -> None:
    """A.7: with independent failures of 1 % each, 1.99 % break at least one limit; goodput is joint."""
    n = 10_000
    slow_start, slow_tokens = np.arange(n) % 100 == 0, (np.arange(n) // 100) % 100 == 0
    due = np.arange(n, dtype=np.int64) * MS
    first = due + np.where(slow_start, 300, 100) * MS
    last = first + np.where(slow_tokens, 900, 90) * MS
    records = from_columns(n, due_ns=due, first_token_ns=first, last_token_ns=last, done_ns=last, n_out=10)
    limits = [parse("ttft <= 200ms"), parse("tpot <= 50ms"), parse("ratio(good) >= 99%")]
    found = goodput(records, limits)
    assert 1 - int(found.good.sum()) / n == pytest.approx(0.0199)
    # D.6: joint attainment is at least 1 - the sum of what each limit loses.
    assert int(found.good.sum()) / n >= 1 - 2 * 0.01


# -- B.5 to B.10: histograms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ((1, 3_600_000_000, 3), 188_416), ((1, 3_600_000_000, 2), 26_624), ((1, 3_600_000_000, 4), 2_490_368),
        ((1, 3_600_000_000, 5), 16_777_216), ((1, 3_600_000_000_000, 3), 270_336), ((1000, 3_600_000_000_000, 3),
            196_608),
        ((1, 60_000_000, 3), 139_264),
    ],
)  # fmt: skip
def test_a_histogram_takes_so_many_bytes(config: tuple[int, int, int], size: int) -> None:
    """B.5: eight bytes a count."""
    low, high, digits = config
    counts, _ = dist.hdr_counts([low, high], HdrConfig(low, high, digits))
    assert counts.nbytes == size


def test_three_digits_are_exact_below_2048_and_within_a_tenth_of_a_percent_above() -> None:
    """B.5: 2,048 sub-buckets, half of 2^10; worst relative width 1/1024."""
    assert (US.sub_count, US.half_magnitude) == (2048, 10)
    low, high = US.bounds(np.arange(US.counts_len))
    width = high - low + 1
    assert (width[:2048] == 1).all()
    assert float((width[2048:] / low[2048:]).max()) == 1 / 1024
    assert np.array_equal(low[1:], high[:-1] + 1)


def test_closed_loop_quartiles_of_gil_tenes_example_show_nothing() -> None:
    """B.3, first row: p75 too is 1 ms."""
    seen = np.append(np.full(10_000, 1.0), 100_000.0)
    assert dist.quantile(seen, "0.75") == 1.0


def test_intervals_of_a_log_add_up_to_the_whole() -> None:
    """B.7: the histogram of a time range is the sum of the intervals in it."""
    values = np.random.default_rng(0).lognormal(17, 1, 300).astype(np.int64)
    parts = [dist.hdr_counts(values[i::3])[0] for i in range(3)]
    text = distribution.write(
        distribution.Log(0.0, tuple(distribution.Interval(float(i), 1.0, counts) for i, counts in enumerate(parts)))
    )
    back = dist.merge([interval.counts for interval in hdr_log.read(text).intervals])
    assert np.array_equal(back, dist.hdr_counts(values)[0])


def test_the_package_takes_some_values_above_its_range_and_none_far_above() -> None:
    """B.8: out of range is inside the array up to its end; we clamp, and say how many."""
    theirs = HdrHistogram(1, 1000, 3)
    assert theirs.record_value(1500)  # the trap: 1000 was the highest
    assert not theirs.record_value(10_000_000)
    counts, clamped = dist.hdr_counts([1500, 10_000_000], HdrConfig(1, 1000, 3))
    assert (int(counts[1000]), clamped) == (2, 2)


def test_the_relative_error_of_a_sketch_costs_so_many_bins() -> None:
    """B.9: DDSketch at 1 %: gamma 1.020202, 551 bins for 1 ms to 60 s and 1,605 for 1 ns to a day.

    We keep every value.
    """
    gamma = 1.01 / 0.99
    assert round(gamma, 6) == 1.020202
    bins = [math.ceil(math.log(high / low) / math.log(gamma)) for low, high in ((1e-3, 60.0), (1e-9, 86_400.0))]
    assert bins == pytest.approx([551, 1605], abs=1)


def test_the_lower_method_of_endpoints_is_a_rank_below() -> None:
    """B.10 and A.11: index floor(p (n - 1)) of 1..1000 is the 990th at p99, where LoadGen takes the 991st."""
    thousand = np.arange(1.0, 1001)
    assert float(np.percentile(thousand, 99, method="lower")) == 990
    assert dist.quantile_loadgen(thousand, "0.99") == 991
    assert dist.quantile(thousand, "0.99") == 990


# -- C.1 and C.2: bounds and the bootstrap --------------------------------------------------------------------


@pytest.mark.parametrize("p", ["0.9", "0.95", "0.99", "0.999"])
@pytest.mark.parametrize("c", ["0.95", "0.99"])
def test_a_one_sided_bound_exists_from_the_logarithm_on(p: str, c: str) -> None:
    """C.1: ceil(ln(1 - c) / ln p)."""
    least = math.ceil(math.log(1 - float(c)) / math.log(float(p)))
    assert order_statistic_bounds(least, p, c, sides=1)[1] == least
    assert order_statistic_bounds(least - 1, p, c, sides=1)[1] == least  # n + 1: there is none


@pytest.mark.parametrize("n", [100, 368, 1000, 5000])
@pytest.mark.parametrize("p", ["0.5", "0.9", "0.95", "0.99"])
def test_ranks_are_the_outermost_that_equal_tails_allow(n: int, p: str) -> None:
    """C.1: l the largest with F(l - 1) <= 2.5 %, u the smallest with F(u - 1) >= 97.5 %."""
    lower, upper = order_statistic_bounds(n, p)
    cdf = stats.binom(n, float(p)).cdf
    assert cdf(lower - 1) <= 0.025 < cdf(lower)
    assert cdf(upper - 2) < 0.975 <= cdf(upper - 1)


def test_a_bootstrap_of_an_extreme_percentile_is_the_maximum_in_63_of_100_resamples() -> None:
    """C.2 [CALC]: n = 1,000 at p99.9; 1 - (1 - 1/n)^n = 0.632."""
    n, draws = 1000, 4000
    assert 1 - (1 - 1 / n) ** n == pytest.approx(0.632, abs=0.0005)
    rng = np.random.default_rng(1)
    hits = sum(int((rng.integers(0, n, n) == n - 1).any()) for _ in range(draws))
    assert hits / draws == pytest.approx(0.632, abs=0.025)


def test_the_rank_of_a_resampled_quantile_is_binomial() -> None:
    """C.2: index of the bootstrap q-quantile ~ Binomial(n + 1, q); so a resample is one draw and a look-up."""
    n, q, draws = 2000, 0.9, 4000
    rng = np.random.default_rng(2)
    rank = math.ceil(q * n)
    direct = np.array([np.partition(rng.integers(1, n + 1, n), rank - 1)[rank - 1] for _ in range(draws)])
    drawn = rng.binomial(n + 1, q, draws)
    assert direct.mean() == pytest.approx(drawn.mean(), abs=1.5)
    assert direct.std() == pytest.approx(drawn.std(), rel=0.05)
