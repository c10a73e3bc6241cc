"""Batches by size: counted exactly where each size is, by buckets where they are, and not at all over a restart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plimsoll.harness.scraping.sources import of_json
from plimsoll.slo.records.records import Status, from_columns
from plimsoll.slo.server.batch_sizes import BatchSizes, batch_sizes
from plimsoll.slo.server.beside import COLUMNS, medians, of_names, of_side
from plimsoll.slo.server.canonical import SIZES
from plimsoll.slo.server.courses import courses
from plimsoll.slo.server.served import Served, Track
from plimsoll.slo.server.server_side import server_side
from tests.unit.slo.test_server_courses import S, asked, track

NAN, INF = float("nan"), float("inf")
EXACT = "reference_batch_size_total"


def found(*tracks: Track, n: int = 5) -> tuple[BatchSizes, ...]:
    """Samples at -1, 0, 1, 2, 3 s, of a run whose last answer came at 2.5 s."""
    served = Served({"a": asked("a", n)}, tracks)
    return batch_sizes(served, courses(served)[1], 5 * S // 2)


def test_each_size_is_counted_from_before_the_run_to_after_it() -> None:
    """What was counted before t0 is not in it, and a size that came up later began at 0; models are summed."""
    (one,) = found(
        track(EXACT, [3, 5, 6, 6, 9], model="m", size="1"),
        track(EXACT, [None, None, 2, 2, 2], model="m", size="8"),
        track(EXACT, [0, 0, 0, 1, 1], model="n", size="8"),
        track(EXACT, [4, 4, 4, 4, 4], model="n", size="2"),
    )
    assert (one.exact, one.of, one.sizes) == (True, "requests", ((0, 1, 6), (7, 8, 3)))
    assert (one.since_ns, one.until_ns) == (2_000_000 - S, 3 * S)
    assert one.mean == (6 * 1 + 3 * 8) / 9


def test_buckets_are_counted_between_their_ends_and_over_ranks() -> None:
    family = "vllm:iteration_tokens_total_bucket"
    grown = {"1.0": 10, "8.0": 10, "64.0": 25, "+Inf": 26}
    (one,) = found(
        *(track(family, [0, 0, 0, 0, n], engine=rank, le=le) for le, n in grown.items() for rank in ("0", "1"))
    )
    assert (one.exact, one.of, one.mean) == (False, "tokens", None)
    assert one.sizes == ((0, 1, 20), (8, 64, 30), (64, float("inf"), 2))


def test_two_pages_of_one_server_tell_of_its_batches_once_and_two_servers_twice() -> None:
    """The engine that ranks first speaks for a host; on another host, or of the same engine, nobody is silenced."""
    sources = {name: asked(name, 5) for name in ("a", "b", "c")}
    here = {name: replace(one, origin=replace(one.origin, where="http://h/x")) for name, one in sources.items()}
    statistics = "triton_statistics_batch_executions"
    tracks = (
        track(EXACT, [0, 0, 1, 1, 2], "a", size="1"),
        track(statistics, [0, 0, 1, 1, 2], "b", size="1"),
        track(EXACT, [0, 0, 3, 3, 3], "c", size="4"),
    )
    assert [one.source for one in batch_sizes(Served(here, tracks), (), 2 * S)] == ["a", "c"]
    assert sorted(one.source for one in batch_sizes(Served(sources, tracks), (), 2 * S)) == ["a", "b", "c"]


def test_over_a_restart_nothing_is_known() -> None:
    (one,) = found(
        track(EXACT, [3, 5, 1, 2, 3], model="m", size="1"), track("reference_requests_total", [3, 5, 1, 2, 3])
    )
    assert (one.sizes, one.why) == ((), "it restarted during the run")


def test_tritons_statistics_count_each_size() -> None:
    batch = [{"batch_size": size, "compute_infer": {"count": n, "ns": 1}} for size, n in ((1, 7), (4, 2))]
    values = of_json({"model_stats": [{"name": "m", "version": "1", "batch_stats": batch}]})
    sized = {labels: value for (family, labels), value in values.items() if family.endswith("batch_executions")}
    assert sized == {'{model="m",version="1",size="1"}': 7, '{model="m",version="1",size="4"}': 2}


def test_columns_have_what_is_wholly_known_and_no_more() -> None:
    assert track(EXACT, [1], size="1").name == SIZES
    rows = from_columns(1, sent_ns=np.array([0]), done_ns=np.array([5 * S // 2]), status=np.array([Status.OK]))
    tracks = (track("reference_waiting", [9, 1, 4, 2, 0]), track("reference_resident_bytes", [5, 6, 7, None, 8]))
    side = server_side(Served({"a": asked("a", 5)}, tracks), rows)
    assert of_side(side) == {"max(server.queue)": 4.0}
    assert (side.idle["server.queue"], side.idle["host.rss"]) == (9, 5)  # of the sample at -1 s: that at 0 s came after
    names = {"host.rss": {"max": 8.0, "mean": 7.0, "unknown": 0}, "server.busy": {"mean": 0.5, "unknown": 1}}
    assert of_names(names, 0.25) == {"max(host.rss)": 8.0, "joules per output token": 0.25}
    assert medians([{"max(host.rss)": 1.0}, {"max(host.rss)": 3.0, "mean(server.busy)": 1.0}]) == {"max(host.rss)": 2.0}
    assert medians([]) == {}
    assert set(of_side(side)) <= COLUMNS.keys()


@pytest.mark.parametrize("size", ["x", "NaN", "Inf", "1e400", "-1", "0", ""])
@pytest.mark.parametrize("values", [[0, 0, 1, 1, 2], [0, NAN, 3, INF, NAN], [1e308, 0, 1e308, 0, 1e308]])
def test_a_size_that_is_none_counts_nothing_and_loses_no_other(size: str, values: list[float | None]) -> None:
    (one,) = found(track(EXACT, values, size=size), track(EXACT, [0, 0, 1, 1, 2], size="4"))
    assert one.sizes == ((3, 4, 2),)


def test_a_count_that_is_none_is_the_one_before_it() -> None:
    (one,) = found(track(EXACT, [1, 2, 5, NAN, INF], size="4"))
    assert one.sizes == ((3, 4, 4),)
