"""Construction, picking, files and contradictions of records. Records survive files, picking and joining, and never
contradict themselves by it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import (
    COLUMNS,
    Records,
    RecordsError,
    Stamp,
    Status,
    concat,
    contradiction,
    empty,
    from_columns,
)
from plimsoll.slo.records.tables import load, to_tables
from plimsoll.slo.validity.accounts import contradictions
from tests.property.slo.slo_strategies import records


def one(**columns: object) -> Records:
    """One good streamed request, with some columns replaced."""
    good: dict[str, object] = {
        "due_ns": 100, "ready_ns": 110, "sent_ns": 120, "headers_ns": 205, "first_byte_ns": 200,
        "first_token_ns": 210, "first_answer_ns": 210, "last_token_ns": 230, "done_ns": 240, "n_out": 3,
        "stamp": int(Stamp.USER), "chunks": [[210, 220, 230]],
    }  # fmt: skip
    return from_columns(1, **(good | columns))  # type: ignore[arg-type]


def test_what_is_not_given_did_not_happen() -> None:
    some = from_columns(2, due_ns=[5, 6], status=Status.TIMEOUT, errors=["slow", None])
    assert some["query_id"].tolist() == [0, 1]
    assert some["first_token_ns"].tolist() == [-1, -1]
    assert some["status"].tolist() == [Status.TIMEOUT] * 2
    assert some.texts("error") == ["slow", None]
    assert (some["n_chunks"].tolist(), some.chunk_offsets.tolist()) == ([0, 0], [0, 0, 0])


def test_unknown_columns_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown columns ttft"):
        from_columns(1, ttft=3)
    with pytest.raises(ValueError, match="columns done_ns have another length than 2"):
        from_columns(due_ns=[1, 2], done_ns=[1, 2, 3])


def test_arrays_are_read_only() -> None:
    some = one()
    for array in (some.columns["due_ns"], some.chunk_ns, some.chunk_offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_picking_reorders_chunks_with_their_rows() -> None:
    some = from_columns(3, chunks=[[1, 2], [], [5]])
    picked = some.select(np.array([2, 1, 0]))
    assert picked.chunk_ns.tolist() == [5, 1, 2]
    assert picked.chunk_offsets.tolist() == [0, 1, 1, 3]


def test_joining_merges_the_string_tables() -> None:
    left, right = from_columns(2, errors=["a", "b"]), from_columns(3, errors=["b", None, "c"])
    both = concat([left, right])
    assert both.errors == ("a", "b", "c")
    assert both.texts("error") == ["a", "b", "b", None, "c"]
    assert len(concat([])) == len(empty()) == 0


def test_warm_up_rows_are_kept_and_not_measured() -> None:
    some = from_columns(3, phase=[1, 0, 1], due_ns=[-50, 5, -3])
    assert some.measured()["due_ns"].tolist() == [5]
    assert len(some) == 3


def test_names_in_files_are_the_enumerations_names() -> None:
    some = from_columns(2, status=[0, 3], stamp=[0, 1], phase=[0, 1], tokens_from=[1, 3], errors=[None, "slow"])
    requests, chunks = to_tables(some, ["run-0-0", "run-1-0"])
    rows = requests.to_pylist()
    assert [r["status"] for r in rows] == ["OK", "TIMEOUT"]
    assert [r["stamp"] for r in rows] == ["kernel", "user"]
    assert [r["phase"] for r in rows] == ["measure", "warmup"]
    assert [r["tokens_from"] for r in rows] == ["usage", "tokenizer"]
    assert [r["error"] for r in rows] == [None, "slow"]
    assert [r["request_id"] for r in rows] == ["run-0-0", "run-1-0"]
    assert chunks.column_names == ["query_id", "sample_ix", "phase", "chunk_ns", "merged"]


def test_a_directory_from_before_a_column_is_read_with_what_the_others_say_of_it() -> None:
    some = from_columns(
        4, n_in=[5, 5, 5, -1], tokens_from=[1, 2, 0, 0], n_in_from=[1, 4, 4, 0], n_asked=[7, -1, -1, -1]
    )
    requests, chunks = to_tables(some, ["x"] * 4)
    assert requests.column("n_in_from").to_pylist() == ["usage", "plan", "plan", "none"]
    assert tables.from_tables(requests, chunks)["n_asked"].tolist() == [7, -1, -1, -1]
    older = tables.from_tables(requests.drop_columns(["n_in_from", "n_asked"]), chunks)
    assert older["n_in_from"].tolist() == [1, 4, 4, 0]
    assert older["n_asked"].tolist() == [-1] * 4


def write(folder: Path, some: Records, schema: bytes | None = None) -> None:
    for table, name in zip(to_tables(some, ["x"] * len(some)), ("requests", "chunks"), strict=True):
        changed = table if schema is None else table.replace_schema_metadata({tables._SCHEMA_KEY: schema})
        pq.write_table(changed, folder / f"{name}.parquet")


def test_a_newer_schema_is_refused_with_the_next_step(tmp_path: Path) -> None:
    write(tmp_path, one(), schema=b"99")
    with pytest.raises(RecordsError, match=r"records schema 99.*reads up to 3. Install the Plimsoll that wrote it"):
        load(tmp_path)


def test_files_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="no such file"):
        load(tmp_path)
    (tmp_path / "requests.parquet").write_bytes(b"nonsense")
    with pytest.raises(RecordsError, match="not a Parquet file"):
        load(tmp_path)
    requests, chunks = to_tables(one(), ["x"])
    with pytest.raises(RecordsError, match="no Plimsoll schema version"):
        tables.from_tables(requests.replace_schema_metadata(None), chunks)
    with pytest.raises(RecordsError, match="columns due_ns are missing"):
        tables.from_tables(requests.drop_columns(["due_ns"]), chunks)
    with pytest.raises(RecordsError, match="rows are not those"):
        tables.from_tables(requests, chunks.slice(0, 0))


def test_a_run_older_than_the_column_of_attempts_sent_each_request_once() -> None:
    some = from_columns(3, due_ns=0, sent_ns=[5, -1, 7], attempts=[2, 0, 1])
    requests, chunks = to_tables(some, ["x", "y", "z"])
    assert requests.column("attempts").to_pylist() == [2, 0, 1]
    assert tables.from_tables(requests, chunks)["attempts"].tolist() == [2, 0, 1]
    assert tables.from_tables(requests.drop_columns(["attempts"]), chunks)["attempts"].tolist() == [1, 0, 1]
    assert from_columns(2, sent_ns=[5, -1])["attempts"].tolist() == [1, 0]


def test_request_ids_must_be_one_per_record() -> None:
    with pytest.raises(ValueError, match="2 request ids for 1 records"):
        to_tables(one(), ["a", "b"])


def test_a_good_request_has_no_contradiction() -> None:
    assert contradictions(one()) == []


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"sent_ns": 90, "ready_ns": 90}, "ready_ns is earlier than due_ns"),
        ({"sent_ns": 105}, "sent_ns is earlier than ready_ns"),
        ({"first_byte_ns": 119}, "first_byte_ns is earlier than sent_ns"),
        ({"first_token_ns": 190}, "first_token_ns is earlier than first_byte_ns"),
        ({"first_answer_ns": 209}, "first_answer_ns is earlier than first_token_ns"),
        ({"last_token_ns": 209}, "last_token_ns is earlier than first_token_ns"),
        ({"done_ns": 229}, "done_ns is earlier than last_token_ns"),
        ({"done_ns": -1}, "status is OK but there is no done_ns"),
        ({"sent_ns": -1}, "status is OK but nothing was sent"),
        ({"status": Status.UNSENT}, "status is UNSENT but sent_ns is set"),
        ({"sent_ns": -1, "status": Status.HTTP}, "an answer arrived but nothing was sent"),
        ({"due_ns": -1}, "due_ns is missing"),
        ({"due_ns": -7}, "due_ns is before t0"),
        ({"n_chunks": 2}, "n_chunks is not the number of chunk_ns"),
        ({"chunks": [[210, 230, 220]]}, "chunk_ns goes back in time"),
        ({"error": 4}, "error points outside its table"),
        ({"status": 17}, "status is not a known one"),
        ({"attempts": 0}, "attempts and sent_ns disagree on whether it was sent"),
        ({"sent_ns": -1, "attempts": 1}, "attempts and sent_ns disagree on whether it was sent"),
    ],
)
def test_each_contradiction_is_found(columns: dict[str, object], text: str) -> None:
    found = contradictions(one(**columns))
    assert any(text in line and "query 0 sample 0" in line for line in found), found


def test_time_going_back_between_two_requests_is_no_contradiction() -> None:
    early, late = one(), one(query_id=1)
    assert contradictions(concat([late, early])) == []


def test_the_same_sample_twice_is_a_contradiction() -> None:
    assert "more than one row" in contradictions(concat([one(), one()]))[0]


def test_offsets_that_do_not_partition_the_chunks_are_found() -> None:
    broken = dataclasses.replace(one(), chunk_offsets=np.array([0, 2]))
    assert contradictions(broken) == ["the offsets of chunk_ns do not partition it"]


def test_kernel_stamps_may_differ_from_user_stamps_by_the_clock_tolerance() -> None:
    assert contradictions(one(stamp=int(Stamp.KERNEL), sent_ns=205, headers_ns=206)) == []


def test_warm_up_rows_may_be_before_t0() -> None:
    assert contradictions(one(phase=1, due_ns=-500, ready_ns=-499, sent_ns=-498)) == []


@pytest.mark.parametrize("name", sorted(tables._ENUMS))
@pytest.mark.parametrize("code", [-1, 100])
def test_every_column_that_is_written_as_a_word_has_only_codes_that_have_one(name: str, code: int) -> None:
    """Else the run that such a segment came into could not be sealed."""
    records = from_columns(2)
    columns = {**records.columns, name: np.array([0, code], COLUMNS[name])}
    assert contradiction(dataclasses.replace(records, columns=columns)) == f"{name} has a value that means nothing"
    assert contradiction(records) is None


# -- records survive files, picking and joining ---------------------------------------------------------------------


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
