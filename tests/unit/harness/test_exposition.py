"""The text in which servers expose metrics: read as the reference parser reads it, whole or not at all."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.harness.wire.exposition import NotMetrics, declared, labels_of, quoted, samples

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\r"), max_size=12)


def _read(page: str, open_metrics: bool = False) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (name, tuple(sorted(labels_of(labels).items()))): value
        for (name, labels), value in samples(page, open_metrics).items()
    }


@given(values=st.lists(st.tuples(_TEXT, _TEXT, st.floats()), min_size=1, max_size=5, unique_by=lambda one: one[:2]))
def test_any_labels_and_values_are_read_as_the_reference_parser_reads_them(
    values: list[tuple[str, str, float]],
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("vllm:kv_cache_usage_perc", "help\nwith # and {", ("engine", "model_name"), registry=registry)
    for one, other, value in values:
        gauge.labels(one, other).set(value)
    page = generate_latest(registry).decode()
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    found = _read(page)
    assert found.keys() == expected.keys()
    assert all(value == expected[key] or math.isnan(value) for key, value in found.items())
    assert {key for key, value in found.items() if math.isnan(value)} == {
        key for key, value in expected.items() if math.isnan(value)
    }


def test_exemplars_timestamps_and_created_of_open_metrics() -> None:
    registry = CollectorRegistry()
    counter = Counter("done", "x", ("route",), registry=registry)
    counter.labels('a"} 5 # {').inc(3, {"trace_id": "abc} 9"})
    Histogram("took_seconds", "x", registry=registry).observe(0.25, {"trace_id": "d"})
    page = generate_open(registry).decode()
    found = _read(page, open_metrics=True)
    assert found["done_total", (("route", 'a"} 5 # {'),)] == 3
    assert found["took_seconds_sum", ()] == 0.25
    assert ("done_created", (("route", 'a"} 5 # {'),)) in found
    assert _read('a{b="c"} 1.5 1700000000123\nb +Inf\nc NaN 17\r\n')["a", (("b", "c"),)] == 1.5
    with pytest.raises(NotMetrics, match="cut off"):
        samples(page.removesuffix("# EOF\n"), open_metrics=True)


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("<!DOCTYPE html>\n<html><body>hello 5</body></html>\n", "HTML"),
        ('{"a": 1}\n', "JSON"),
        ('a 1\nb{c="d"} 2\nthis is no metric at all\n', "line 3"),
        ("a 1\nb 2", "cut off"),
        ('a 1\nb{c="d', "cut off"),
        ("a 1\nb one\n", "a value is none"),
        ("foo5\n", "line 1"),
        ("", "no metrics"),
        ("# TYPE a counter\n", "no metrics"),
    ],
)
def test_what_is_no_whole_page_has_no_values(page: str, what: str) -> None:
    with pytest.raises(NotMetrics, match=what):
        samples(page)


def test_the_first_of_a_series_that_stands_there_twice_counts() -> None:
    assert samples('a{b="c"} 1\na{b="c"} 2\n') == {("a", '{b="c"}'): 1.0}


@given(values=st.dictionaries(st.sampled_from(("a", "b", "c")), _TEXT))
def test_labels_that_we_write_are_read_again(values: dict[str, str]) -> None:
    written = quoted(**values)
    assert labels_of(written) == values
    assert samples(f"x{written} 1\n") == {("x", written): 1.0}


def test_a_counter_that_counted_nothing_is_declared() -> None:
    registry = CollectorRegistry()
    Counter("reference_rejected", "x", ("model",), registry=registry)
    assert "reference_rejected_total" in declared(generate_latest(registry).decode())
    assert "reference_rejected_total" in declared(generate_open(registry).decode())


def test_a_page_of_200_kb_costs_less_than_two_per_cent_of_a_core_at_once_a_second() -> None:
    """By processor time, the best of five, so that other load does not count: about 4 ms."""
    labels = 'engine="%d",model_name="meta-llama/Llama-3.1-8B-Instruct",le="%d"'
    page = "".join(f"vllm:e2e_request_latency_seconds_bucket{{{labels % (k % 8, k)}}} {k}.0\n" for k in range(2000))
    assert len(page) > 200_000

    def cost() -> float:
        begun = time.process_time()
        assert len(samples(page)) == 2000
        return time.process_time() - begun

    assert min(cost() for _ in range(5)) < 0.02
