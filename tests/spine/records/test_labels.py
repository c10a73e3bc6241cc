"""Labels: columns by which rows are told apart keep their values through files, picking and joining."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.records import tables
from plimsoll.slo.records.labels import LabelTable, column_of, label_of
from plimsoll.slo.records.records import Records, RecordsError, concat, from_columns
from plimsoll.slo.records.tables import load, to_tables

Row = tuple[str | None, int | None]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "é", None]), st.sampled_from([0, 1, 2**40, None])), max_size=9)


def labelled(rows: list[Row]) -> Records:
    return from_columns(
        len(rows), due_ns=np.arange(len(rows)), labels={"class": [row[0] for row in rows], "turn": [r[1] for r in rows]}
    )


def told(records: Records) -> list[Row]:
    table = records.labels
    if table is None:
        return [(None, None)] * len(records)
    words = [None if i < 0 else table.texts["class"][i] for i in table.columns["class"].tolist()]
    return list(zip(words, (None if i < 0 else i for i in table.columns["turn"].tolist()), strict=True))


def save(folder: Path, some: Records) -> None:
    for table, name in zip(to_tables(some, ["x"] * len(some)), ("requests", "chunks"), strict=True):
        pq.write_table(table, folder / f"{name}.parquet")


@given(ROWS)
def test_a_file_gives_back_every_label(rows: list[Row]) -> None:
    some = labelled(rows)
    back = tables.from_tables(*to_tables(some, ["x"] * len(some)))
    assert told(back) == rows
    assert told(back.with_columns(status=np.zeros(len(rows)))) == rows


@given(ROWS, ROWS, st.integers(0, 3))
def test_rows_keep_their_labels_where_they_are_joined_and_picked(one: list[Row], two: list[Row], bare: int) -> None:
    joined = concat([labelled(one), from_columns(bare), labelled(two)])
    all_rows = [*one, *[(None, None)] * bare, *two]
    assert told(joined) == all_rows
    picked = np.arange(len(all_rows))[::-2]
    assert told(joined.select(picked)) == [all_rows[i] for i in picked]


def test_a_run_without_labels_is_written_as_before(tmp_path: Path) -> None:
    save(tmp_path, from_columns(2))
    assert load(tmp_path).labels is None
    assert pq.read_schema(tmp_path / "requests.parquet").metadata[tables._SCHEMA_KEY] == b"1"


def test_labels_of_ours_and_of_users_have_columns_of_their_own(tmp_path: Path) -> None:
    some = from_columns(2, labels={"class": ["a", "b"], "backend": ["x", None], "phase": [None, "during"]})
    save(tmp_path, some)
    names = pq.read_schema(tmp_path / "requests.parquet").names
    assert {"class", "label_backend", "phase_name"} <= {*names}
    assert [label_of(column_of(one)) for one in ("class", "backend", "phase")] == ["class", "backend", "phase"]
    assert label_of("due_ns") is None
    assert label_of("phase") is None


def test_an_index_without_its_text_is_refused(tmp_path: Path) -> None:
    table = LabelTable({"turn": np.array([1, -7])}, {}, 2)
    save(tmp_path, from_columns(2).labelled(table))
    with pytest.raises(RecordsError, match="turn points at a text that is not there, or holds a number below 0"):
        load(tmp_path)


def test_mixed_and_unequal_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="label turn mixes int, str"):
        LabelTable.of({"turn": [1, "b"]})
    with pytest.raises(ValueError, match="unequal lengths"):
        LabelTable.of({"turn": [1], "class": ["a", "b"]})
    with pytest.raises(ValueError, match="1 rows of labels for 2 records"):
        from_columns(2).labelled(LabelTable.of({"turn": [1]}))
