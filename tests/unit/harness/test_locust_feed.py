"""Status lines as a table of requests: aggregate counts, and nothing counted twice."""

from __future__ import annotations

import pytest

from plimsoll.harness.distributed.relay import REQUESTS, Feed, milliseconds
from plimsoll.harness.generator.recorder import spread


def test_counters_are_cumulative_and_a_worker_is_counted_once() -> None:
    feed = Feed()
    feed.heard(0, {"done": 10, "failed": 2})
    feed.heard(1, {"done": 5, "failed": 0})
    feed.heard(0, {"done": 13, "failed": 2})
    row = feed.take()[REQUESTS]
    assert (row.n, row.failed, row.untimed) == (18, 2, 18)
    feed.heard(0, {"done": 14, "failed": 3})
    row = feed.take()[REQUESTS]
    assert (row.n, row.failed) == (1, 1)


def test_nothing_new_is_no_row() -> None:
    feed = Feed()
    feed.heard(0, {"done": 3, "failed": 0})
    feed.take()
    feed.heard(0, {"done": 3, "failed": 0})
    assert feed.take() == {}


def test_times_are_milliseconds_within_half_a_bin() -> None:
    feed = Feed()
    ns = [51_200_000, 51_200_000, 3_432_000_000]
    feed.heard(0, {"done": 4, "failed": 1, "latency": spread(ns), "ttft": spread(ns[:1])})
    rows = feed.take()
    assert set(rows) == {REQUESTS, "TTFT"}
    assert (rows[REQUESTS].n, rows[REQUESTS].untimed, rows["TTFT"].n) == (4, 1, 1)
    for value, found in zip([51.2, 3432.0], sorted(rows[REQUESTS].times), strict=True):
        assert found == pytest.approx(value, rel=0.011)


def test_a_histogram_that_is_ahead_of_its_counter_is_not_lost() -> None:
    feed = Feed()
    feed.heard(0, {"done": 0, "failed": 0, "latency": spread([1_000_000])})
    assert feed.take()[REQUESTS].n == 1


def test_the_middle_of_a_bin() -> None:
    (key,) = spread([1_000_000_000])
    assert milliseconds(key) == pytest.approx(1000.0, rel=0.011)
