"""Chunks that share a read are found, row by row, and their error is bounded."""

from __future__ import annotations

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import concat, empty, from_columns


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


def test_joining_runs_adds_their_counts() -> None:
    one = from_columns(chunks=[[10, 10]], sent_ns=[0])
    two = from_columns(chunks=[[10], [10, 10]], sent_ns=[0, 0])
    assert tables.merged_chunks(concat([one, two])).merged == 2
