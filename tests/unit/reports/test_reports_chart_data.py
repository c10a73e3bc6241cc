"""Chart data is exact, bounded, and says where failures are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.parts.charts import curve, distribution, grouped, number
from plimsoll.reports.parts.parts import MAX_CURVE_POINTS
from plimsoll.slo.statistics.distribution import quantile

values = st.lists(st.one_of(st.integers(1, 10**12), st.just(float("inf"))), min_size=1, max_size=300)


@given(values)
def test_every_point_of_a_curve_is_the_exact_quantile(drawn: list[float]) -> None:
    ordered = np.sort(np.array(drawn, float))
    made = curve(ordered, "ns")
    for q, value in zip(made.q, made.value, strict=True):
        assert value == number(float(ordered[round(q * len(ordered)) - 1]), "ns")
    assert made.q == sorted(set(made.q))
    assert made.q[-1] == 1.0
    assert made.failed == drawn.count(float("inf"))


@given(values)
def test_a_curve_has_the_last_value_before_the_failures(drawn: list[float]) -> None:
    finite = [v for v in drawn if v != float("inf")]
    known = [v for v in curve(np.sort(np.array(drawn, float)), "ns").value if v is not None]
    assert (max(known) if known else None) == (max(finite) if finite else None)


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 1_000_000])
def test_a_curve_is_bounded_and_holds_the_usual_percentiles(n: int) -> None:
    ordered = np.arange(1, n + 1, dtype=float)
    made = curve(ordered, "ns")
    assert len(made.q) <= MAX_CURVE_POINTS
    for p in ("0.5", "0.9", "0.99", "0.999"):
        assert quantile(ordered, p) in made.value


def test_a_curve_of_nothing_is_empty() -> None:
    assert curve(np.empty(0), "ns").q == []


@given(values)
def test_a_histogram_counts_every_value_once(drawn: list[float]) -> None:
    made = distribution(np.sort(np.array(drawn, float)), "ns")
    assert sum(made.counts) + made.infinite == made.n == len(drawn)
    assert len(made.edges) == (len(made.counts) + 1 if made.counts else 0)
    assert len(made.counts) <= 48


def test_a_few_gaps_of_nothing_do_not_stretch_a_histogram_over_decades() -> None:
    made = distribution(np.sort(np.array([0.0, 0.0, 1.0, *[5e6 + i * 1e3 for i in range(500)]])), "ns")
    assert made.edges[0] == pytest.approx(5e6 / 1000, rel=0.1)
    assert made.counts[0] == 3
    assert sum(made.counts) == 503


@given(st.lists(st.tuples(st.one_of(st.integers(0, 99), st.just(float("inf"))), st.integers(0, 4)), max_size=60))
def test_grouped_quantiles_are_those_of_each_group_alone(rows: list[tuple[float, int]]) -> None:
    v = np.array([row[0] for row in rows], float)
    g = np.array([row[1] for row in rows], np.int64)
    (p50, p99) = grouped(v, g, 5, ("0.5", "0.99"))
    for group in range(5):
        part = np.sort(v[g == group])
        if len(part) == 0:
            assert np.isnan(p50[group])
        else:
            assert (p50[group], p99[group]) == (quantile(part, "0.5"), quantile(part, "0.99"))


def test_an_infinity_becomes_null_and_a_time_becomes_whole() -> None:
    assert number(float("inf"), "ns") is None
    assert number(float("nan"), "1") is None
    assert number(1.6, "ns") == 2
    assert number(0.5, "1") == 0.5
