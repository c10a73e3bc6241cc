"""How many requests an objective takes: the verdict's own arithmetic backwards, checked against the verdict."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.statistics.confidence import chance_to_pass, most_bad_allowed, passing, sample
from plimsoll.slo.statistics.share import Course, series, share_test, weigh

ONE_PERCENT = Fraction(1, 100)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("p99(ttft) <= 200ms", "1/100"), ("p99.9(latency) < 1s", "1/1000"), ("p5(output_rate) >= 20/s", "1/20"),
        ("ratio(error) <= 0.1%", "1/1000"), ("ratio(good) >= 99.5%", "1/200"), ("mean(ttft) <= 1s", None),
        ("max(latency) <= 2s", None), ("rate(ok) >= 10/s", None), ("ttft <= 200ms", None),
    ],
)  # fmt: skip
def test_an_objective_allows_this_share_of_bad_values(text: str, limit: str | None) -> None:
    assert parse(text).allowed == (None if limit is None else Fraction(limit))


@pytest.mark.parametrize(
    ("limit", "at_95", "at_99", "estimate"),
    [("0.1", 29, 44, 64), ("0.05", 59, 90, 130), ("0.01", 299, 459, 662), ("0.001", 2995, 4603, 6636)],
)
def test_the_least_counts_are_the_published_ones(limit: str, at_95: int, at_99: int, estimate: int) -> None:
    """SEMANTICS.md A.6 and C.1."""
    found = sample(Fraction(limit))
    assert (found.least, found.loadgen, found.loadgen_estimate) == (at_95, at_99, estimate)
    assert sample(Fraction(limit), "0.99").least == at_99


@pytest.mark.parametrize(("limit", "share"), [("0.1", "0.05"), ("0.1", "0.02"), ("0.1", "0.07"), ("0.2", "0.1")])
def test_from_the_count_on_every_run_passes_as_likely_as_asked_for(limit: str, share: str) -> None:
    """By brute force over every n: the binomial saw never falls below 90 % again, and one request fewer does."""
    from scipy.stats import binom

    found = passing(Fraction(limit), Fraction(share), "0.95", "0.9")
    assert found is not None
    n = np.arange(1, 4 * found)
    allowed = np.array([most_bad_allowed(int(k), limit) for k in n])
    power = np.where(allowed < 0, 0.0, binom.cdf(allowed, n, float(share)))
    assert int(n[power < 0.9][-1]) + 1 == found


def test_no_bad_one_at_all_takes_the_least() -> None:
    assert passing(ONE_PERCENT, Fraction(0), "0.95", "0.9") == 299
    assert sample(ONE_PERCENT, assumed=0.0).with_bad == 299


@pytest.mark.parametrize("share", ["0.01", "0.02", "0.00999999999"])
def test_no_number_of_requests_passes_on_or_beyond_the_limit(share: str) -> None:
    assert sample(ONE_PERCENT, assumed=share).with_bad is None


@pytest.mark.parametrize(
    ("limit", "share", "runs"),
    [
        ("0.1", "0.05", 400),
        ("0.01", "0.005", 400),
        ("0.01", "0.001", 400),
        pytest.param("0.001", "0.0005", 100, marks=pytest.mark.long),
    ],
)
def test_the_real_verdict_passes_that_often_on_independent_requests(limit: str, share: str, runs: int) -> None:
    """The whole of a verdict, not the binomial test alone: simulated runs of the planned length."""
    n = sample(Fraction(limit), assumed=share).with_bad
    assert n is not None
    rng = np.random.default_rng(1)
    entries = np.arange(n)
    passed = errors = 0
    for _ in range(runs):
        values = rng.random(n)
        bad = values > 1 - float(share)
        passed += weigh(series(values, entries, Course(entries, n, 0.0)).count(bad), limit).outcome == "PASS"
        errors += share_test(bad, limit).outcome == "PASS"
    assert passed / runs >= 0.9 - 3 * (0.9 * 0.1 / runs) ** 0.5
    assert errors / runs >= 0.9 - 3 * (0.9 * 0.1 / runs) ** 0.5


def test_dependent_requests_are_worth_less() -> None:
    alone, dependent = sample(ONE_PERCENT), sample(ONE_PERCENT, design_effect=2.5)
    assert dependent.least == 748  # 299 * 2.5, rounded up
    assert alone.with_bad is not None
    assert dependent.with_bad is not None
    assert dependent.with_bad == pytest.approx(2.5 * alone.with_bad, abs=2)
    with pytest.raises(ValueError, match="1 or more"):
        sample(ONE_PERCENT, design_effect=0.9)


def test_the_chance_of_a_run_grows_from_nothing_to_what_was_planned() -> None:
    assert chance_to_pass(298, ONE_PERCENT, "0.005") == 0.0
    assert chance_to_pass(299, ONE_PERCENT, "0.005") == pytest.approx(0.995**299)
    assert chance_to_pass(299, ONE_PERCENT, 0.0) == 1.0
    planned = sample(ONE_PERCENT).with_bad
    assert planned is not None
    assert chance_to_pass(planned, ONE_PERCENT, "0.005") >= 0.9
    assert chance_to_pass(planned, ONE_PERCENT, "0.005", design_effect=2.0) < 0.9
