"""Records: one column per stamp of one sample's exchange. The source of truth of every number printed.

Every request is kept (law 6): failed, timed-out, unfinished and unsent samples have rows too. Times are int64
nanoseconds on the monotonic clock relative to the run's t0; -1 means "did not happen", never 0. Only a
warm-up row may hold other negative times, because it came before t0 (``phase`` tells the two apart).

This module holds the schema, and how rows are picked and joined; ``plimsoll.slo.records.tables`` writes and reads it.
It computes no metric and judges nothing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.columns import Columns, Lists, Rows, as_type, constant, offsets_of, own
from plimsoll.slo.records.labels import LabelTable, join_labels

#: The second version holds the columns of live sessions, the third labels; runs without them are written as the first.
SCHEMA_VERSION = 3

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
#: What a metric is computed by: its values, and which of them there are.
Compute = Callable[["Records"], tuple[FloatArray, BoolArray]]


class Status(IntEnum):
    """How one sample's exchange ended."""

    OK = 0
    HTTP = 1  # a complete response with an error status, or an error inside a 200 stream
    GRPC = 2
    TIMEOUT = 3
    CONNECT = 4  # no connection: refused, unreachable, TLS or DNS failure, or reset by the peer at any time
    PROTOCOL = 5  # the bytes broke the protocol, or the stream was cut
    REFUSED = 6  # load shed: 429 or 503
    CANCELLED = 7  # we gave it up on purpose
    UNFINISHED = 8  # still in flight when the drain limit or an interrupt came
    UNSENT = 9  # planned but never sent


class Stamp(IntEnum):
    """Where a record's arrival times come from. A row is KERNEL only if every one of its reads was."""

    KERNEL = 0
    USER = 1


class Phase(IntEnum):
    """Warm-up rows, rows of queries that the scenario gave up on purpose, and rows of single attempts are kept and
    never measured: a measured row is a request, whatever was sent for it.
    """

    MEASURE = 0
    WARMUP = 1
    CANCEL = 2
    ATTEMPT = 3


class TokensFrom(IntEnum):
    """What a number of tokens was counted from: ``tokens_from`` says it of ``n_out``, ``n_in_from`` of ``n_in``."""

    NONE = 0
    USAGE = 1  # the server's usage block
    CHUNKS = 2  # number of non-empty content chunks: an estimate
    TOKENIZER = 3
    PLAN = 4  # nobody counted: the length that the payload was made with


#: name -> numpy dtype of every fixed-width column, in file order.
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "query_id": "i8",
        "sample_ix": "i8",
        "payload_ix": "i8",
        "due_ns": "i8",
        "ready_ns": "i8",  # the issuer took it up; ready - due is the generator's own lateness
        "sent_ns": "i8",  # first byte handed to the kernel
        "headers_ns": "i8",  # arrival of the end of the response headers
        "first_byte_ns": "i8",  # arrival of the first response byte
        "first_token_ns": "i8",  # first non-empty content or reasoning chunk
        "first_answer_ns": "i8",  # first non-empty content chunk after any reasoning
        "last_token_ns": "i8",
        "done_ns": "i8",  # arrival of the last response byte, or the moment it was given up
        "connect_ns": "i8",  # duration of the set-up of the connection it opened; -1: reused one
        "n_in": "i8",
        "n_out": "i8",
        "n_chunks": "i8",  # chunks that carried output (the length of chunk_ns)
        "media_ns": "i8",
        "bytes_out": "i8",
        "bytes_in": "i8",
        "code": "i4",  # HTTP status code, -1 none
        "status": "i1",
        "stamp": "i1",
        "phase": "i1",
        "tokens_from": "i1",
        "attempts": "i2",  # how often its request was sent; 0: never
        "worker": "i2",
        "error": "i4",  # index into errors, -1 none
        "server_timing": "i4",  # index into timings, -1 none
        "n_in_from": "i1",  # a TokensFrom; never CHUNKS
        "n_asked": "i8",  # output tokens asked for exactly, -1: no such wish
    }
)
#: So many workers have a number that fits its column.
MOST_WORKERS = 1 << 15
#: Columns that older run directories lack.
LATER = ("attempts", "n_in_from", "n_asked")


@dataclass(frozen=True, slots=True, init=False)
class Records:
    """Columns of equal length n, plus the ragged arrival times of output chunks.

    ``columns[name]`` has the dtype of ``COLUMNS[name]``. Chunk arrivals of row i are
    ``chunk_ns[chunk_offsets[i]:chunk_offsets[i + 1]]`` (int64 ns relative to t0, non-decreasing); ``chunks`` are both,
    which picked rows make when they are asked for. ``errors`` and ``timings`` are string tables that the columns of
    those names index. ``session``: the columns of live sessions, ``labels``: what rows are told apart by, if any row
    has some.
    ``kept``: what is known of these rows and takes long to find.
    """

    columns: Mapping[str, npt.NDArray[np.generic]]
    chunks: Lists
    errors: Sequence[str]
    timings: Sequence[str]
    session: SessionTable | None
    labels: LabelTable | None
    kept: dict[object, Any] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        columns: Mapping[str, npt.NDArray[np.generic]],
        chunk_ns: IntArray | None = None,
        chunk_offsets: IntArray | None = None,
        errors: Sequence[str] = (),
        timings: Sequence[str] = (),
        session: SessionTable | None = None,
        chunks: Lists | None = None,
        labels: LabelTable | None = None,
    ) -> None:
        """``chunk_ns`` and ``chunk_offsets`` take the place of those of ``chunks``, where they are given."""
        if chunks is None or chunk_ns is not None or chunk_offsets is not None:
            held = chunks if chunks is not None else Lists(np.zeros(1, np.int64), np.empty(0, np.int64))
            chunks = Lists(
                held.offsets if chunk_offsets is None else chunk_offsets, held.values if chunk_ns is None else chunk_ns
            )
        given = {"columns": columns, "chunks": chunks, "errors": errors, "timings": timings, "session": session}
        given |= {"labels": labels, "kept": {}}
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, name: str) -> IntArray:
        """A column by name, as int64; one of the session columns is all -1 in records without sessions."""
        if name in SESSION_COLUMNS:
            return self.session.columns[name] if self.session is not None else blank(len(self)).columns[name]
        return as_type(self.columns[name], np.int64)

    @property
    def chunk_ns(self) -> IntArray:
        """int64[m]: arrivals of the chunks of all rows, row by row."""
        return self.chunks.values

    @property
    def chunk_offsets(self) -> IntArray:
        """int64[n + 1]: where each row's chunks begin and end in ``chunk_ns``."""
        return self.chunks.offsets

    def ragged(self, name: str) -> tuple[IntArray, IntArray]:
        """(values int64[m], offsets int64[n+1]) of one of the lists of ``RAGGED``."""
        if self.session is not None:
            return self.session.ragged[name]
        if name not in RAGGED:
            raise KeyError(name)
        return np.empty(0, np.int64), np.zeros(len(self) + 1, np.int64)

    @property
    def ok(self) -> BoolArray:
        """bool[n]: the request succeeded."""
        return self._where("status", int(Status.OK))

    @property
    def in_measure(self) -> BoolArray:
        """bool[n]: the row belongs to the measured phase, not to the warm-up."""
        return self._where("phase", int(Phase.MEASURE))

    @property
    def planned(self) -> BoolArray:
        """bool[n]: the row is a sample of the plan, not of the warm-up, and not one attempt of several."""
        return ~(self._where("phase", int(Phase.WARMUP)) | self._where("phase", int(Phase.ATTEMPT)))

    def _where(self, name: str, value: int) -> BoolArray:
        if (name, value) not in self.kept:
            column = self.columns[name]
            found = np.full(len(self), column[0] == value) if constant(column) else np.asarray(column == value)
            found.setflags(write=False)
            self.kept[name, value] = found
        return self.kept[name, value]  # type: ignore[no-any-return]

    def measured(self) -> Records:
        """The rows of the measured phase."""
        return self.select(self.in_measure)

    def without_chunks(self) -> Records:
        """The same rows without their chunk times, which are most of the memory of a long run."""
        none = Lists(np.broadcast_to(np.int64(0), (len(self) + 1,)), np.empty(0, np.int64))
        return Records(self.columns, None, None, self.errors, self.timings, self.session, none, self.labels)

    def keeping(self, kept: BoolArray) -> Records:
        """The same rows, of which only those of ``kept`` bool[n] have their chunk times and what goes with them."""

        def left(values: IntArray, offsets: IntArray) -> Ragged:
            lengths = np.diff(offsets)
            return values[np.repeat(kept, lengths)], offsets_of(np.where(kept, lengths, 0))

        return self._with_lists(left)

    def forgotten(self) -> Records:
        """The same rows without any chunk time, of which nothing is known any more."""
        none = np.empty(0, np.int64), np.broadcast_to(np.int64(0), (len(self) + 1,))
        return self._with_lists(lambda *_: none)

    def _with_lists(self, made: Callable[[IntArray, IntArray], Ragged]) -> Records:
        values, offsets = made(self.chunk_ns, self.chunk_offsets)
        session = self.session
        if session is not None:
            lists = {name: made(*session.ragged[name]) for name in CHUNKED[1:]}
            session = SessionTable(session.columns, {**session.ragged, **lists}, session.slices)
        chunks = Lists(offsets, values, dropped=True)
        return Records(self.columns, None, None, self.errors, self.timings, session, chunks, self.labels)

    def select(self, rows: slice | npt.NDArray[Any]) -> Records:
        """The given rows with their chunks: a slice, bool[n], or integer positions in any order.

        A column and the chunks are picked when they are asked for; all rows as they are: these records. Raises
        IndexError for rows that are not there.
        """
        picked = Rows.of(rows, len(self))
        if isinstance(picked.where, slice) and picked.count == len(self):
            return self
        columns = Columns(tuple(self.columns), lambda name: picked.select(self.columns[name]))
        session = None if self.session is None else self.session.select(picked)
        labels = None if self.labels is None else self.labels.select(picked)
        return Records(columns, None, None, self.errors, self.timings, session, self.chunks.select(picked), labels)

    def with_columns(self, **columns: npt.NDArray[Any]) -> Records:
        """The same rows with these columns in place of theirs; each gets the schema's dtype and becomes read-only."""
        over = {name: own(column, COLUMNS[name]) for name, column in columns.items()}
        return self.over(ChainMap(over, self.columns))  # type: ignore[arg-type]

    def over(
        self,
        columns: Mapping[str, npt.NDArray[np.generic]],
        session: SessionTable | None = None,
        chunks: Lists | None = None,
    ) -> Records:
        """The same rows with these columns, and where they are given this session and these chunks."""
        session = self.session if session is None else session
        chunks = self.chunks if chunks is None else chunks
        return Records(columns, None, None, self.errors, self.timings, session, chunks, self.labels)

    def labelled(self, labels: LabelTable | None) -> Records:
        """The same rows with these labels. Raises ValueError for another number of rows."""
        if labels is not None and len(labels) != len(self):
            raise ValueError(f"{len(labels)} rows of labels for {len(self)} records; give one per record")
        return Records(self.columns, None, None, self.errors, self.timings, self.session, self.chunks, labels)

    def label(self, name: str) -> IntArray:
        """int64[n]: a label that is a number, -1 where a row has none."""
        columns = self.labels.columns if self.labels is not None else {}
        return np.asarray(columns[name], np.int64) if name in columns else np.full(len(self), -1)

    def table(self, name: str) -> Sequence[str]:
        """The string table that column ``error``, ``server_timing`` or ``slice`` indexes."""
        slices = self.session.slices if self.session is not None else ()
        return {"error": self.errors, "server_timing": self.timings, "slice": slices}[name]

    def texts(self, name: str) -> list[str | None]:
        """The strings of column ``error``, ``server_timing`` or ``slice``, None where there is none."""
        table = self.table(name)
        return [table[i] if i >= 0 else None for i in self[name].tolist()]


def once(sent_ns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``attempts`` of rows of which nothing more is known: sent once, or never."""
    return np.asarray(sent_ns != -1, COLUMNS["attempts"])


class RecordsError(ValueError):
    """Files that are not records, or that a newer Plimsoll wrote. The message ends with a next step."""


#: No run lasts so long, and sums of fewer of them overflow.
_CENTURY_NS = 1 << 61


def contradiction(records: Records, spans: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> str | None:
    """What no records of ours can hold: a code that means nothing, an index without its text, lists that don't fit.

    ``spans``: the least and the greatest value of columns, where they are known. None: nothing.
    """
    n = len(records)

    def outside(name: str, least: int, end: int) -> bool:
        if not n:
            return False
        low, high = spans[name] if name in spans else span_of(records[name])
        return not (least <= low and high < end)

    for name, codes in (
        ("status", Status),
        ("stamp", Stamp),
        ("phase", Phase),
        ("tokens_from", TokensFrom),
        ("n_in_from", TokensFrom),
    ):
        if outside(name, 0, len(codes)):
            return f"{name} has a value that means nothing"
    timed = [name for name in COLUMNS if name.endswith("_ns")] + (
        [*SESSION_TIMES] if records.session is not None else []
    )
    for name in timed:
        if outside(name, -_CENTURY_NS, _CENTURY_NS):
            return f"{name} holds a time a century away"
    low, high = spans["chunk_ns"] if "chunk_ns" in spans else span_of(records.chunk_ns)
    if low < -_CENTURY_NS or high >= _CENTURY_NS:
        return "chunk_ns holds a time a century away"
    for name in ("error", "server_timing", "slice"):
        if outside(name, -1, len(records.table(name))):
            return f"{name} points at a text that is not there"
    lists = {"chunk_ns": (records.chunk_ns, records.chunk_offsets)}
    if records.session is not None:
        lists |= records.session.ragged
    for name, (values, offsets) in lists.items():
        fit = (
            len(offsets) == n + 1
            and offsets[0] == 0
            and offsets[-1] == len(values)
            and bool((offsets[1:] >= offsets[:-1]).all())
        )
        if not fit or any(len(column) != n for column in records.columns.values()):
            return f"the lists of {name} are not those of {n} rows"
    return None if records.labels is None else records.labels.contradiction()


def span_of(values: npt.NDArray[Any]) -> tuple[int, int]:
    """The least and the greatest value; (0, 0) of none."""
    some = values[:1] if constant(values) else values
    return (int(some.min()), int(some.max())) if len(some) else (0, 0)


def from_arrays(
    columns: Mapping[str, npt.NDArray[Any]],
    chunk_ns: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    errors: Sequence[str],
    timings: Sequence[str],
    session: SessionTable | None = None,
    labels: LabelTable | None = None,
) -> Records:
    """Records of private, read-only arrays with the schema's dtypes; a given one that nobody may write to is kept."""
    fixed = {name: own(columns[name], dtype) for name, dtype in COLUMNS.items()}
    chunks = Lists(own(offsets), own(chunk_ns))
    if session is not None and len(session) != len(chunks):
        raise ValueError(f"{len(session)} session rows for {len(chunks)} records; give one per record")
    return Records(MappingProxyType(fixed), None, None, tuple(errors), tuple(timings), session, chunks, labels)


_ZERO = frozenset(
    {"sample_ix", "n_chunks", "bytes_out", "bytes_in", "status", "stamp", "phase", "tokens_from", "n_in_from", "worker"}
)


def from_columns(
    n: int | None = None,
    *,
    chunks: Sequence[Sequence[int]] | None = None,
    errors: Sequence[str | None] | None = None,
    timings: Sequence[str | None] | None = None,
    slices: Sequence[str | None] | None = None,
    ragged: Mapping[str, Sequence[Sequence[int]]] | None = None,
    labels: Mapping[str, Sequence[str | int | None]] | None = None,
    **columns: Any,
) -> Records:
    """Records from what is known; the rest takes the schema's "did not happen".

    A column is a sequence of length n or one value for every row. Not given: ``query_id`` counts from 0, ``n_chunks``
    is the length of each row's ``chunks`` (ns, relative to t0), status is OK, phase MEASURE, counters of bytes 0,
    ``attempts`` 1 where ``sent_ns`` is given, everything else -1. ``errors``, ``timings`` and ``slices`` are one text
    (or None) per row, ``ragged[name]`` one list per row, ``labels[name]`` a text or a number per row. Session
    columns may be given like the others. Raises ValueError for an unknown column or unequal lengths.
    """
    unknown = sorted(set(columns) - {*COLUMNS, *SESSION_COLUMNS})
    if unknown:
        raise ValueError(f"unknown columns {', '.join(unknown)}; known: {', '.join((*COLUMNS, *SESSION_COLUMNS))}")
    rows_of_chunks = [list(row) for row in chunks] if chunks is not None else None
    given = (
        rows_of_chunks, errors, timings, slices, *(ragged or {}).values(), *(labels or {}).values(), *columns.values(),
    )  # fmt: skip
    sized = [v for v in given if v is not None and not np.isscalar(v)]
    rows = n if n is not None else (len(sized[0]) if sized else 1)
    full: dict[str, Any] = {name: np.full(rows, 0 if name in _ZERO else -1) for name in COLUMNS}
    full["query_id"] = np.arange(rows)
    full["attempts"] = once(np.broadcast_to(np.asarray(columns.get("sent_ns", -1)), (rows,)))
    listed = rows_of_chunks if rows_of_chunks is not None else [[]] * rows
    lengths = np.array([len(row) for row in listed], np.int64)
    full["n_chunks"] = lengths
    full["error"], error_table = _intern(errors, rows)
    full["server_timing"], timing_table = _intern(timings, rows)
    own: dict[str, Any] = {}
    for name, value in columns.items():
        place = full if name in COLUMNS else own
        place[name] = np.broadcast_to(np.asarray(value), (rows,)) if np.ndim(value) == 0 else np.asarray(value)
    bad = sorted(name for name, column in full.items() if len(column) != rows)
    if bad:
        raise ValueError(f"columns {', '.join(bad)} have another length than {rows}; give every column the same")
    flat = np.array([t for row in listed for t in row], np.int64)
    session = _session(own, slices, ragged, rows) if own or slices is not None or ragged else None
    named = None if labels is None else LabelTable.of(labels)
    return from_arrays(full, flat, offsets_of(lengths), error_table, timing_table, session).labelled(named)


def _session(
    columns: dict[str, Any],
    slices: Sequence[str | None] | None,
    ragged: Mapping[str, Sequence[Sequence[int]]] | None,
    rows: int,
) -> SessionTable:
    columns["slice"], table = _intern(slices, rows)
    lists = {}
    for name, listed in (ragged or {}).items():
        lengths = np.array([len(row) for row in listed], np.int64)
        lists[name] = (np.array([value for row in listed for value in row], np.int64), offsets_of(lengths))
    return freeze(columns, lists, table)


def _intern(texts: Sequence[str | None] | None, rows: int) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Index of each text in the table of distinct texts (order of first appearance); -1 for None."""
    table: dict[str, int] = {}
    given = texts if texts is not None else [None] * rows
    ix = [-1 if text is None else table.setdefault(text, len(table)) for text in given]
    return np.array(ix, np.int64), tuple(table)


def empty() -> Records:
    return from_columns(0)


def _one_table(parts: Sequence[tuple[IntArray, Sequence[str]]]) -> tuple[IntArray, tuple[str, ...]]:
    """The indices of all parts, in order, into one table of the texts of all."""
    table: dict[str, int] = {}
    moved = []
    for index, texts in parts:
        # The extra last entry maps -1 (no text) to itself.
        moved.append(np.array([table.setdefault(text, len(table)) for text in texts] + [-1], np.int64)[index])
    return np.concatenate(moved), tuple(table)


def concat(parts: Sequence[Records]) -> Records:
    """The rows of all parts, in order; string tables are merged. No parts: empty records."""
    if not parts:
        return empty()
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS
    }
    tables: dict[str, tuple[str, ...]] = {}
    for name in ("error", "server_timing"):
        columns[name], tables[name] = _one_table([(part[name], part.table(name)) for part in parts])
    lengths = np.concatenate([np.diff(part.chunk_offsets) for part in parts])
    chunks = np.concatenate([part.chunk_ns for part in parts])
    session = join([part.session for part in parts], [len(part) for part in parts])
    labels = join_labels([part.labels for part in parts], [len(part) for part in parts])
    return from_arrays(columns, chunks, offsets_of(lengths), tables["error"], tables["server_timing"], session, labels)


# -- live sessions -----------------------------------------------------------------------------------------------------

# The optional columns of live sessions: speech in, speech out. A run without them has none of these in memory or on
# disk. ``SessionTable`` goes with a ``Records`` row by row. Times are ns relative to t0 like those of ``Records``,
# durations are ns, -1 means "did not happen" or "not known". Nothing is computed here.


#: Instants: relative to t0 in records, absolute monotonic while the exchange lives.
SESSION_TIMES = (
    "open_ns",  # the session was usable: its ready message, or the upgrade where there is none
    "media_start_ns",  # the instant of audio sample 0 on the simulated microphone
    "speech_start_ns",  # true speech onset on that timeline
    "speech_end_ns",  # true speech end on that timeline
    "input_end_ns",  # the input's true end: the last frame's due time; for text and uploads the last write
    "first_partial_ns",  # first non-empty transcript of any kind
    "first_final_ns",  # first final transcript that is not empty
    "final_ns",  # last message that made part of the transcript final; none where some of it never became so
    "endpoint_ns",  # the server said that the speaker had finished: first such event from the true speech end on
    "first_audio_ns",  # arrival of the first decoded audio sample
    "audible_ns",  # arrival of the chunk that holds the first audible sample
)
#: Durations, counts and codes.
SESSION_VALUES = (
    "leading_silence_ns",  # playing time before the first audible sample of the answer
    "media_out_ns",  # playing time of all audio received
    "false_endpoints",  # endpoint events strictly inside speech
    "n_partials",
    "n_revised",  # words of the running transcript that were changed or taken back
    "words",  # words of the reference, normalised
    "word_errors",  # substituted, left out and added
    "unsent_bytes",  # most bytes that the peer had not taken when a frame was due
    "frame_ns",  # playing time of one full frame
    "pace",  # Pace, below
)
SESSION_COLUMNS = (*SESSION_TIMES, *SESSION_VALUES, "slice")
#: What the plan says of each row. It is put in when a run directory is opened, never stamped and never stored.
PLANNED = ("deadline_ns",)  # from due: the time its query had, see ``plimsoll.slo.records.queries``
#: Lists, one a row: their entries are durations in ns.
RAGGED = (
    "chunk_audio_ns",  # playing time of each audio chunk; as many as chunk_ns
    "chunk_cursor_ns",  # how far into the audio the transcript reached at each of chunk_ns; -1 unknown
    "word_lag_ns",  # of each word of the reference that was heard: when it stood for good, minus when it was over
    "frame_lag_ns",  # of each frame: written minus due
)

#: Lists with an entry a chunk: what they say goes with the chunk times.
CHUNKED = ("chunk_ns", "chunk_audio_ns", "chunk_cursor_ns")

#: Codes of the column ``pace``: how audio was sent.
PACE_FILE, PACE_CAPTURE, PACE_EAGER, PACE_OTHER = 0, 1, 2, 3

Ragged = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Session columns of n rows: ``columns[name]`` int64[n]; ``ragged[name]`` (values int64[m], offsets int64[n+1]).

    ``columns["slice"]`` indexes ``slices``, -1 for none.
    """

    columns: Mapping[str, IntArray]
    ragged: Mapping[str, Ragged]
    slices: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.columns["slice"])

    def select(self, rows: Rows) -> SessionTable:
        """These rows, picked when they are asked for."""

        def lists(name: str) -> Ragged:
            values, offsets = self.ragged[name]
            found = Lists(offsets, values).select(rows)
            return found.values, found.offsets

        columns = Columns(tuple(self.columns), lambda name: rows.select(self.columns[name]))
        return SessionTable(columns, Columns(tuple(self.ragged), lists), self.slices)


def freeze(
    columns: Mapping[str, npt.NDArray[Any]], ragged: Mapping[str, tuple[Any, Any]], slices: Sequence[str]
) -> SessionTable:
    """A table of private, read-only arrays; what is not given is "did not happen".

    Raises ValueError for unknown names.
    """
    unknown = sorted({*columns} - {*SESSION_COLUMNS, *PLANNED} | ({*ragged} - {*RAGGED}))
    if unknown:
        raise ValueError(f"unknown session columns {', '.join(unknown)}")
    sizes = {len(column) for column in columns.values()} | {len(offsets) - 1 for _, offsets in ragged.values()}
    if len(sizes) != 1:
        raise ValueError(f"session columns of unequal lengths {sorted(sizes)}; give every column the same")
    n = sizes.pop()
    names = (*SESSION_COLUMNS, *PLANNED)
    absent, no_lists = np.broadcast_to(np.int64(-1), (n,)), np.broadcast_to(np.int64(0), (n + 1,))
    fixed = {name: own(columns.get(name, absent)) for name in names}
    nothing = (np.empty(0, np.int64), no_lists)
    lists = {name: (own(values), own(bounds)) for name in RAGGED for values, bounds in [ragged.get(name, nothing)]}
    return SessionTable(MappingProxyType(fixed), MappingProxyType(lists), tuple(slices))


def blank(n: int) -> SessionTable:
    """n rows of requests that were no sessions."""
    return freeze({"slice": np.broadcast_to(np.int64(-1), (n,))}, {}, ())


def join(parts: Sequence[SessionTable | None], lengths: Sequence[int]) -> SessionTable | None:
    """The rows of all parts in order, None standing for ``lengths[i]`` blank rows; None if no part has any."""
    if not any(part is not None for part in parts):
        return None
    whole = [part if part is not None else blank(n) for part, n in zip(parts, lengths, strict=True)]
    columns = {name: np.concatenate([part.columns[name] for part in whole]) for name in (*SESSION_COLUMNS, *PLANNED)}
    columns["slice"], slices = _one_table([(part.columns["slice"], part.slices) for part in whole])
    ragged = {}
    for name in RAGGED:
        sizes = np.concatenate([np.diff(part.ragged[name][1]) for part in whole])
        ragged[name] = (np.concatenate([part.ragged[name][0] for part in whole]), offsets_of(sizes))
    return freeze(columns, ragged, slices)
