"""Records survive files, picking and joining, and never contradict themselves by it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.slo.records.records import COLUMNS, Records, concat, empty
from plimsoll.slo.records.tables import load, to_tables
from plimsoll.slo.validity.accounts import contradictions
from tests.property.slo.slo_strategies import records


def same(a: Records, b: Records) -> bool:
    """Equal in every value; string tables may be ordered differently."""
    fixed = [name for name in COLUMNS if name not in ("error", "server_timing")]
    return (
        all(np.array_equal(a.columns[name], b.columns[name]) for name in fixed)
        and all(a.columns[name].dtype == b.columns[name].dtype for name in COLUMNS)
        and np.array_equal(a.chunk_ns, b.chunk_ns)
        and np.array_equal(a.chunk_offsets, b.chunk_offsets)
        and all(a.texts(name) == b.texts(name) for name in ("error", "server_timing"))
    )


@settings(max_examples=25)
@given(records)
def test_files_give_back_what_was_written(some: Records) -> None:
    with TemporaryDirectory() as folder:
        names = ("requests.parquet", "chunks.parquet")
        for table, name in zip(to_tables(some, [f"r-{i}" for i in range(len(some))]), names, strict=True):
            pq.write_table(table, Path(folder) / name)
        assert same(load(Path(folder)), some)


@given(records, st.data())
def test_picking_rows_is_picking_them_one_by_one(some: Records, data: st.DataObject) -> None:
    order = np.array(data.draw(st.lists(st.integers(0, max(len(some) - 1, 0)), max_size=8)), np.int64)
    if len(some) == 0:
        order = order[:0]
    picked = some.select(order)
    assert same(picked, concat([some.select(np.array([i])) for i in order.tolist()]))
    mask = np.zeros(len(some), bool)
    mask[order] = True
    assert same(some.select(mask), some.select(np.unique(order)))


@given(st.lists(records, max_size=4))
def test_joining_and_splitting_cancel(parts: list[Records]) -> None:
    whole = concat(parts)
    bounds = np.cumsum([0, *(len(part) for part in parts)])
    for part, start, stop in zip(parts, bounds[:-1], bounds[1:], strict=True):
        assert same(whole.select(np.arange(start, stop)), part)
    assert same(concat([whole, empty()]), whole)


@given(records)
def test_honest_records_do_not_contradict_themselves(some: Records) -> None:
    assert contradictions(some) == []
    assert contradictions(some.measured()) == []
