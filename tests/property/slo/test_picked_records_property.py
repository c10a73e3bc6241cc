"""Picked rows are the rows that were asked for, whatever was read before and however often they are picked from; and
files of any row groups are read as they were written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.records import tables
from plimsoll.slo.records.columns import BLOCK, Lists, Rows, blocks
from plimsoll.slo.records.records import COLUMNS, SESSION_COLUMNS, Records, Status, from_columns
from plimsoll.slo.validity.accounts import Sums, sums

Made = tuple[Records, list[list[int]]]


@st.composite
def made(draw: st.DrawFn) -> Made:
    """Records whose columns differ from row to row or don't, and the chunks of each row."""
    n = draw(st.integers(1, 25))
    several = draw(st.lists(st.lists(st.integers(0, 99), max_size=4).map(sorted), min_size=n, max_size=n))
    live: dict[str, Any] = {"open_ns": np.arange(n), "ragged": {"word_lag_ns": several}} if draw(st.booleans()) else {}
    status = draw(st.sampled_from([0, np.arange(n) % len(Status)]))
    errors = draw(st.lists(st.sampled_from([None, "slow", "gone"]), min_size=n, max_size=n))
    return from_columns(n, due_ns=np.arange(n) * 7, status=status, chunks=several, errors=errors, **live), several


def picks(n: int) -> st.SearchStrategy[Any]:
    """A way to name some of n rows."""
    ends = st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda pair: slice(*sorted(pair)))
    positions = st.lists(st.integers(-n, n - 1), max_size=2 * n) if n else st.just([])
    marks = st.lists(st.booleans(), min_size=n, max_size=n)
    return st.one_of(ends, positions.map(lambda ix: np.array(ix, np.int64)), marks.map(lambda m: np.array(m, bool)))


def same(picked: Records, whole: Made, rows: list[int]) -> None:
    """``picked`` are these rows of ``whole``, column by column and chunk by chunk."""
    records, chunks = whole
    assert len(picked) == len(rows)
    for name in (*COLUMNS, *SESSION_COLUMNS):
        assert picked[name].tolist() == [int(records[name][row]) for row in rows], name
    expected = [time for row in rows for time in chunks[row]]
    first, last = (ends.tolist() for ends in picked.chunks.ends)
    assert first == [min(chunks[row], default=-1) for row in rows]
    assert last == [max(chunks[row], default=-1) for row in rows]
    assert picked.chunk_ns.tolist() == expected
    assert np.diff(picked.chunk_offsets).tolist() == [len(chunks[row]) for row in rows]
    assert picked.ragged("word_lag_ns")[0].tolist() == (expected if records.session is not None else [])
    assert picked.texts("error") == [records.texts("error")[row] for row in rows]


@given(made(), st.data())
def test_rows_picked_again_and_again_are_those_of_a_list(whole: Made, data: st.DataObject) -> None:
    records, rows = whole[0], list(range(len(whole[0])))
    for _ in range(data.draw(st.integers(1, 4))):
        pick = data.draw(picks(len(rows)))
        if data.draw(st.booleans()):  # what was made before is picked from as what was not
            assert len(records.chunk_ns) >= 0
            assert len(records["due_ns"]) == len(rows)
        records, rows = records.select(pick), np.array(rows, np.int64)[pick].tolist()
        begin, end = data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows))).map(sorted))
        part = records.chunks.part(begin, end)
        assert part.tolist() == [time for row in rows[begin:end] for time in whole[1][row]]
    same(records, whole, rows)
    if rows:
        same(records.with_columns(status=np.full(len(rows), 3)).measured(), (with_status(whole[0], 3), whole[1]), rows)


def with_status(records: Records, status: int) -> Records:
    return replace(records, columns={**records.columns, "status": np.full(len(records), status, np.int8)})


@given(made(), st.integers(1, 30), st.integers(1, 30))
def test_files_of_any_row_groups_are_read_as_they_were_written(whole: Made, rows: int, others: int) -> None:
    records, counted = whole[0], Sums()
    with TemporaryDirectory() as name:
        for table, file, group in zip(
            tables.to_tables(records, ["x"] * len(records)), ("requests", "chunks"), (rows, others), strict=True
        ):
            pq.write_table(table, Path(name) / f"{file}.parquet", row_group_size=group)
        same(tables.load(Path(name), counted.add), whole, list(range(len(records))))
    assert counted.texts() == sums(records)


@pytest.mark.parametrize("rows", [np.array([3]), np.array([-4]), np.array([True, False])])
def test_rows_that_are_not_there_are_refused_at_once(rows: Any) -> None:
    with pytest.raises(IndexError, match="3 rows"):
        from_columns(3).select(rows)


def test_what_the_caller_changes_afterwards_is_not_picked() -> None:
    marks, places = np.array([True, False, True]), np.array([2, 0])
    by_mark, by_place = from_columns(3).select(marks), from_columns(3).select(places)
    marks[:], places[:] = False, 1
    assert by_mark["query_id"].tolist() == [0, 2]
    assert by_place["query_id"].tolist() == [2, 0]


def test_marks_of_more_rows_than_are_counted_at_once_find_the_same_parts() -> None:
    n = 2 * BLOCK + 77
    marks = np.random.default_rng(5).random(n) < 0.3
    rows, expected = Rows.of(marks, n), np.flatnonzero(marks)
    for begin, end in ((0, 10), (len(expected) // 3, len(expected) // 2), (len(expected) - 5, len(expected))):
        assert np.array_equal(rows.part(begin, end), expected[begin:end])


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(8, 400))
def test_blocks_hold_every_row_once_and_no_more_than_they_may(lengths: list[int], size: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    found = list(blocks(offsets, size))
    assert [row for begin, end in found for row in range(begin, end)] == list(range(len(lengths)))
    assert all(end == begin + 1 or sum(lengths[begin:end]) + 8 * (end - begin) <= size for begin, end in found)
    lists = Lists(offsets, np.arange(offsets[-1]))
    assert np.array_equal(np.concatenate([lists.part(*rows) for rows in found] or [lists.values]), lists.values)
