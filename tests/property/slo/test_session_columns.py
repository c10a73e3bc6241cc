"""The columns of live sessions go with their rows, whatever is done to the rows."""

from __future__ import annotations

import io
from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.generator.recorder import Columns
from plimsoll.harness.generator.segments import dump_segment, load_segment
from plimsoll.slo.records import records as rows
from plimsoll.slo.records.records import RAGGED, SESSION_COLUMNS, Records
from plimsoll.slo.records.tables import from_tables, to_tables

NS = st.integers(-1, 10**12)


@st.composite
def sessions(draw: st.DrawFn) -> Records:
    n = draw(st.integers(1, 6))
    lists = st.lists(st.lists(NS, max_size=4), min_size=n, max_size=n)
    columns = st.lists(NS, min_size=n, max_size=n)
    return rows.from_columns(
        n,
        speech_end_ns=draw(columns),
        words=draw(columns),
        slices=draw(st.lists(st.sampled_from([None, "clean", "noisy"]), min_size=n, max_size=n)),
        ragged={"word_lag_ns": draw(lists), "frame_lag_ns": draw(lists)},
    )


def plain(n: int) -> Records:
    return rows.from_columns(n)


def same(a: Records, b: Records) -> bool:
    assert len(a) == len(b)
    for name in SESSION_COLUMNS:
        if name != "slice":
            assert np.array_equal(a[name], b[name]), name
    assert a.texts("slice") == b.texts("slice")
    for name in RAGGED:
        assert all(np.array_equal(x, y) for x, y in zip(a.ragged(name), b.ragged(name), strict=True)), name
    return True


@given(sessions(), st.data())
def test_selecting_rows_in_any_order_takes_their_sessions_along(records: Records, data: st.DataObject) -> None:
    ix = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=8))
    picked = records.select(np.array(ix, np.int64))
    assert picked["words"].tolist() == [int(records["words"][i]) for i in ix]
    assert picked.texts("slice") == [records.texts("slice")[i] for i in ix]
    values, offsets = records.ragged("word_lag_ns")
    got, bounds = picked.ragged("word_lag_ns")
    for place, i in enumerate(ix):
        wanted = values[offsets[i] : offsets[i + 1]]
        assert got[bounds[place] : bounds[place + 1]].tolist() == wanted.tolist()


@given(st.lists(st.one_of(sessions(), st.integers(0, 3).map(plain)), min_size=1, max_size=4))
def test_joined_records_split_again_are_what_they_were(parts: list[Records]) -> None:
    whole = rows.concat(parts)
    assert (whole.session is not None) == any(part.session is not None for part in parts)
    at = 0
    for part in parts:
        assert same(whole.select(np.arange(at, at + len(part))), part)
        at += len(part)


@given(st.one_of(sessions(), st.integers(1, 3).map(plain)))
def test_segments_and_parquet_give_back_what_was_written(records: Records) -> None:
    buffer = io.BytesIO()
    dump_segment(buffer, records)
    assert same(load_segment(buffer.getvalue()), records)
    requests, chunks = to_tables(records, ["r"] * len(records))
    assert same(from_tables(requests, chunks), records)
    assert requests.schema.metadata[b"plimsoll.records.schema"] == (b"1" if records.session is None else b"2")


def test_the_recorder_keeps_sessions_among_rows_without_and_makes_instants_relative() -> None:
    columns = Columns()
    for query in range(3):
        exchange = Exchange(query, 0, 0, 1_000, None)
        if query == 1:
            stamps = exchange.session = SessionStamps()
            stamps.speech_end_ns, stamps.media_out_ns, stamps.slice = 5_000, 70, "noisy"
            stamps.frame_lag_ns = array("q", [3, 4])
        columns.append(exchange)
    records = columns.to_records(1_000, 0)
    assert records["speech_end_ns"].tolist() == [-1, 4_000, -1]
    assert records["media_out_ns"].tolist() == [-1, 70, -1]
    assert records.texts("slice") == [None, "noisy", None]
    values, offsets = records.ragged("frame_lag_ns")
    assert (values.tolist(), offsets.tolist()) == ([3, 4], [0, 0, 2, 2])


def test_the_stopwatch_of_a_session_has_every_column() -> None:
    of_a_turn = {"follows", "taken_before_ns", "sounding_ns", "under_way", "cut"}  # what it has of the turn before
    assert set(SessionStamps.__slots__) - {"texts", "heard"} - of_a_turn == {*SESSION_COLUMNS, *RAGGED}


def test_records_without_sessions_answer_as_if_nothing_had_happened() -> None:
    records = plain(2)
    assert records["first_partial_ns"].tolist() == [-1, -1]
    assert records.ragged("chunk_audio_ns")[1].tolist() == [0, 0, 0]
    assert records.texts("slice") == [None, None]
