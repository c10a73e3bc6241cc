"""Where p50 and p99 go: stages are read as servers write them, requests are taken whole, and nothing is left out.
Chunks that share a read are found, row by row, and their error is bounded.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics.anatomy import BAND_MAX, Anatomy, anatomy
from plimsoll.slo.metrics.stages import durations, parse
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, concat, empty, from_arrays, from_columns
from plimsoll.slo.verdict.counts import count

MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("queue;dur=0.012, prefill;dur=3.4", {"queue": 12_000, "prefill": 3_400_000}),
        ('cache;desc="Cache, Read";dur=23.2', {"cache": 23_200_000}),
        ("db; dur=53, app ;dur=47.2", {"db": 53 * MS, "app": 47_200_000}),
        ("miss, db;dur=5", {"db": 5 * MS}),
        ('total;DUR="12"', {"total": 12 * MS}),
        ("a;dur=1,a;dur=2", {"a": 3 * MS}),
        ("a;dur=.5", {"a": 500_000}),
        ("a;dur=-1, b;dur=1", {"b": MS}),
        ("a;dur=x, b;dur=1", {"b": MS}),
        ("a;duration=3", {}),
        ("a;dur=1e3", {}),
        ("a;dur=99999999999999", {}),
        ("=;;dur=1, b;dur=2", {"b": 2 * MS}),
        ("preprocess;dur=3, preprocess.resize;dur=2", {"preprocess": 3 * MS, "preprocess.resize": 2 * MS}),
        ("", {}),
    ],
)
def test_server_timing_is_read_as_the_standard_writes_it(text: str, stages: dict[str, int]) -> None:
    assert parse(text) == stages
    assert list(parse(text)) == list(stages)


@given(st.text(st.sampled_from('ab;=,dur" \\.019-\n\x00é'), max_size=60))
def test_garbage_is_no_error_and_no_negative_time(text: str) -> None:
    assert all(ns >= 0 for ns in parse(text).values())


@pytest.mark.parametrize(
    "text", ["a" * 64_000, 'a;"' + "x" * 64_000, "a.b-" * 16_000 + ";dur=1x", "a;dur=" + "9" * 64_000]
)
def test_a_header_as_long_as_a_head_may_be_costs_no_more_than_its_length(text: str) -> None:
    """54 s of processor time of one header of 100 kB, before; of a run's requests each may have its own."""
    begun = time.process_time()
    assert parse(text) == {}
    assert time.process_time() - begun < 0.5


def run(timings: list[str | None], latency_ms: list[float], held_ms: float = 0.0, **columns: object) -> Records:
    done = [round(value * MS) for value in latency_ms]
    given = {"due_ns": 0, "ready_ns": 0, "sent_ns": round(held_ms * MS), "done_ns": done}
    return from_columns(len(done), timings=timings, **(given | columns))  # type: ignore[arg-type]


def found(records: Records) -> Anatomy:
    taken = anatomy(records)
    assert taken is not None
    return taken


def test_the_tail_shows_the_stage_that_makes_it() -> None:
    n = 1000
    slow = [i >= 980 for i in range(n)]
    timings = [f"queue;dur={80 if s else 1}, decode;dur=20" for s in slow]
    middle, tail = found(run(timings, [(110 if s else 30) + i / 1e6 for i, s in enumerate(slow)], held_ms=2)).bands
    assert (middle.percentile, tail.percentile) == (50.0, 99.0)
    assert middle.stages_ns == {"queue": MS, "decode": 20 * MS}
    assert tail.stages_ns == {"queue": 80 * MS, "decode": 20 * MS}
    assert (middle.held_ns, tail.held_ns) == (2 * MS, 2 * MS)
    assert abs(middle.rest_ns - 7 * MS) < 1000
    assert abs(tail.rest_ns - 8 * MS) < 1000


def test_bands_are_of_whole_requests_evenly_around_the_rank() -> None:
    n = 1001
    middle, tail = found(run(["a;dur=1"] * n, [float(i) for i in range(n)])).bands
    assert (middle.n, tail.n) == (11, 11)
    assert middle.latency_ns == 500 * MS
    assert tail.latency_ns == 990 * MS
    one = found(run(["a;dur=1"], [3.0])).bands
    assert [(band.n, band.latency_ns) for band in one] == [(1, 3 * MS)] * 2


def test_a_million_requests_cost_no_more_than_their_bands() -> None:
    n = 300_000
    records = run(["a;dur=1"] * n, np.arange(n, dtype=float).tolist())
    assert max(band.n for band in found(records).bands) <= BAND_MAX + 1


def test_parts_follow_their_whole_and_are_counted_once() -> None:
    timing = "queue;dur=1, preprocess;dur=6, inference;dur=3, preprocess.decode;dur=4, preprocess.resize;dur=2, lost.part;dur=5"  # noqa: E501
    band = found(run([timing] * 5, [20.0] * 5)).bands[0]
    assert list(band.stages_ns) == [
        "queue",
        "preprocess",
        "preprocess.decode",
        "preprocess.resize",
        "inference",
        "lost.part",
    ]
    assert band.rest_ns == (20 - 1 - 6 - 3 - 5) * MS


def test_failed_unfinished_and_warm_up_requests_and_silent_servers_are_left_out() -> None:
    assert anatomy(run([None, None], [1.0, 2.0])) is None
    assert anatomy(run(["cache;desc=hit"], [1.0])) is None
    assert anatomy(run([], [])) is None
    mixed = run(
        ["a;dur=1", "a;dur=9", None, "a;dur=9"], [5.0, 50.0, 6.0, 70.0], status=[0, 1, 0, 0], phase=[0, 0, 0, 1]
    )
    assert (found(mixed).n, found(mixed).n_ok) == (1, 2)
    assert found(mixed).bands[1].stages_ns == {"a": MS}


@given(
    st.lists(
        st.tuples(st.floats(0, 1e3), st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e3)), max_size=3)),
        min_size=1,
        max_size=40,
    )
)
def test_what_a_band_shows_adds_up_to_its_latency(rows: list[tuple[float, list[tuple[str, float]]]]) -> None:
    texts = [", ".join(f"{name};dur={ms:.3f}" for name, ms in stages) or None for _, stages in rows]
    taken = anatomy(run(texts, [ms for ms, _ in rows], held_ms=0.5))
    for band in taken.bands if taken is not None else ():
        assert band.held_ns + sum(band.stages_ns.values()) + band.rest_ns == band.latency_ns


# -- chunks that share a read ---------------------------------------------------------------------------------------


def test_a_chunk_with_the_time_of_the_next_one_is_merged() -> None:
    rows = from_columns(chunks=[[10, 20, 20, 20, 50], [50, 60], [], [70, 70]], sent_ns=[1, 2, 3, 4])
    assert tables.merged_marks(rows).tolist() == [False, True, True, False, False, False, False, True, False]


def test_the_error_is_bounded_by_the_read_before_or_by_the_send() -> None:
    rows = from_columns(chunks=[[10, 30, 30, 30], [50, 50]], sent_ns=[1, 8])
    found = tables.merged_chunks(rows)
    assert (found.chunks, found.merged, found.share) == (6, 3, 0.5)
    assert found.uncertainty_p99_ns == 42  # waits 20, 20 and 42


def test_without_shared_reads_there_is_no_error() -> None:
    assert tables.merged_chunks(from_columns(chunks=[[1, 2], [2, 3]])) == tables.Merged(4, 0, None)
    assert tables.merged_chunks(empty()).share == 0.0


def test_counting_merged_chunks_holds_a_block_at_a_time() -> None:
    """The offsets of all blocks together were 800 MB of a run of 100 million requests."""
    n = 1_000_000
    rows = from_columns(n)
    rows = from_arrays(dict(rows.columns), np.arange(n), np.arange(n + 1), (), ())
    tracemalloc.start()
    try:
        found, (_, peak) = tables.merged_chunks(rows), tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.chunks, found.merged) == (n, 0)
    assert peak < 8 * n / 4  # bytes


def test_joining_runs_adds_their_counts() -> None:
    one = from_columns(chunks=[[10, 10]], sent_ns=[0])
    two = from_columns(chunks=[[10], [10, 10]], sent_ns=[0, 0])
    assert tables.merged_chunks(concat([one, two])).merged == 2


def test_a_stage_longer_than_the_request_is_none_of_it_and_is_counted() -> None:
    """Of 100 ms: a stage may be the whole and what rounding adds, not an hour, whatever else is said beside it."""
    said = ["queue;dur=10, model;dur=101.5", "queue;dur=10, model;dur=3600000", None, "queue;dur=250.5"]
    records = run(said, [100] * 4)
    took = durations(records, ["queue", "model"])
    assert took["queue"].tolist() == [10 * MS, 10 * MS, -1, -1]
    assert took["model"].tolist() == [101_500_000, -1, -1, -1]
    assert [band.stages_ns.get("model", 0) <= 101_500_000 for band in found(records).bands] == [True, True]
    assert count(records).false_stages == 2
    assert count(run(said, [4_000_000] * 4)).false_stages == 0
