"""Records as Parquet files of a run directory: the writer and the reader of one format, side by side.

pyarrow is imported inside the functions, so that ``slo`` stays light; arrays pass by their buffers, because pyarrow's
own conversions load pandas where it is installed (a quarter of a second, in every command). A newer schema is refused,
not guessed at.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.cancelled import PHASES
from plimsoll.slo.records.columns import Lists, blocks, offsets_of
from plimsoll.slo.records.labels import LabelTable, column_of, label_of
from plimsoll.slo.records.records import (
    COLUMNS,
    LATER,
    RAGGED,
    SCHEMA_VERSION,
    SESSION_COLUMNS,
    BoolArray,
    IntArray,
    Phase,
    Records,
    RecordsError,
    SessionTable,
    Stamp,
    Status,
    TokensFrom,
    contradiction,
    freeze,
    once,
    span_of,
)
from plimsoll.slo.records.trace_ids import TraceIds

_SCHEMA_KEY = b"plimsoll.records.schema"
_KEPT_KEY = b"plimsoll.kept"
_KEYS = ("query_id", "sample_ix")
_UNLIKE = "chunks: its rows are not those of requests. Measure again, or restore both files"
#: What is read at once: rows, entries of their lists, and bytes of each column's file.
_ROWS, _ENTRIES, _BUFFER = 1 << 16, 1 << 20, 1 << 18
_ENUMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "status": tuple(m.name for m in Status),
        "stamp": tuple(m.name.lower() for m in Stamp),
        "phase": PHASES,
        "tokens_from": tuple(m.name.lower() for m in TokensFrom),
        "n_in_from": tuple(m.name.lower() for m in TokensFrom),
    }
)


#: What is encoded at once, in bytes: it stays in the processor's cache.
_PAGE = 1 << 18
#: What is written at once, in rows and in chunks: a row group of each file.
BLOCK_ROWS, BLOCK_CHUNKS = 1 << 17, 1 << 20


def write(
    blocks: Iterable[Records], run_id: str, requests: IO[bytes], chunks: IO[bytes], traces: TraceIds | None = None
) -> None:
    """Write ``requests.parquet`` and ``chunks.parquet`` of a run to open files, a row group for each block. ``traces``:
    the trace ids of its requests, which get a column.

    The blocks are consecutive rows of one run: all with session columns or none, and the tables of texts of each begin
    with those of the one before. Raises OSError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writers: list[Any] = []
        for block in blocks:
            trace_ids = traces.column(block) if traces is not None else None
            tables = to_tables(block, request_ids(run_id, block), trace_ids)
            if not writers:
                for table, file in zip(tables, (requests, chunks), strict=True):
                    writer = pq.ParquetWriter(file, table.schema, **_encodings(table.schema))
                    writers.append(stack.enter_context(writer))
            for table, writer in zip(tables, writers, strict=True):
                writer.write_table(table, row_group_size=max(1, len(block)))
    pa.default_memory_pool().release_unused()


def write_chunks(blocks: Iterable[Records], mark: bytes, file: IO[bytes]) -> None:
    """Write a ``chunks.parquet`` of lists that were dropped in part, with a mark of that. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer: Any = None
        for block in blocks:
            table = to_tables(block, pa.nulls(len(block), pa.string()))[1]
            if writer is None:
                schema = table.schema.with_metadata({**table.schema.metadata, _KEPT_KEY: mark})
                writer = stack.enter_context(pq.ParquetWriter(file, schema, **_encodings(schema)))
            writer.write_table(table.cast(schema), row_group_size=max(1, len(block)))
    pa.default_memory_pool().release_unused()


def kept_mark(run_dir: Path) -> bytes:
    """The mark in ``chunks.parquet``; empty: nothing of it was dropped. ``load`` says what is wrong with the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bytes((pq.read_schema(run_dir / "chunks.parquet").metadata or {}).get(_KEPT_KEY, b""))
    except (OSError, pa.ArrowException):
        return b""


def blocks_of(records: Records) -> Iterator[Records]:
    """Records in memory as ``write`` wants them: at least one block, of no rows if there are none."""
    weight = np.arange(len(records) + 1) * (BLOCK_CHUNKS // BLOCK_ROWS) + records.chunk_offsets
    begin = 0
    while True:
        end = int(np.searchsorted(weight, weight[begin] + BLOCK_CHUNKS, side="right")) - 1
        end = max(begin + 1, end)
        if begin == 0 and end >= len(records):
            yield records
            return
        yield records.select(slice(begin, end))
        begin = end
        if begin >= len(records):
            return


def _encodings(schema: Any) -> dict[str, Any]:
    """How columns are written: differences of whole numbers, which neighbours make small, are encoded in a tenth of the
    time that a dictionary of them takes, and are smaller; what is left to compress are texts and codes.
    """
    import pyarrow as pa

    encoding, compression, coded, numbers = {}, {}, [], []
    for field in schema:
        listed = pa.types.is_list(field.type)
        name = f"{field.name}.list.element" if listed else field.name
        kind = field.type.value_type if listed else field.type
        compression[name] = "none" if pa.types.is_integer(kind) else "zstd"
        if pa.types.is_integer(kind):
            encoding[name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_string(kind):
            encoding[name] = "DELTA_BYTE_ARRAY"
        elif pa.types.is_dictionary(kind):
            coded.append(name)
        if pa.types.is_integer(kind) and not listed:
            numbers.append(name)  # their least and greatest tell a column of one value
    return {
        "column_encoding": encoding, "compression": compression, "use_dictionary": coded, "write_statistics": numbers,
        "data_page_size": _PAGE,
    }  # fmt: skip


def request_ids(run_id: str, records: Records) -> Any:
    """The ``x-request-id`` of every row, an Arrow array of strings: ``<run>-<query_id>-<sample_ix>``; warm-up rows have
    a ``w`` after the run.
    """
    import pyarrow as pa

    n = len(records)
    if not n:
        return _strings(())
    run = np.frombuffer(run_id.encode("utf-8", "replace"), np.uint8)
    mark, dash, every = _letter("w"), _letter("-"), np.ones((1, 1), np.bool_)
    parts = [(run, every), (mark, (records["phase"] == Phase.WARMUP)[:, None]), (dash, every)]
    parts += [*_digits(records["query_id"]), (dash, every), *_digits(records["sample_ix"])]
    # A letter is kept in all rows, or in some: those are taken out of a table of all letters.
    parts = [(letters, kept) for letters, kept in parts if kept.any()]
    width = sum(letters.shape[-1] for letters, _ in parts)
    table, held = np.empty((n, width), np.uint8), np.empty((n, width), np.bool_)
    at = 0
    for letters, kept in parts:
        end = at + letters.shape[-1]
        table[:, at:end], held[:, at:end] = letters, kept
        at = end
    whole = bool(held.all())
    ends = offsets_of(np.full(n, at) if whole else held.sum(axis=1)).astype(np.int32)
    data = np.ascontiguousarray(table if whole else table[held])
    return pa.StringArray.from_buffers(n, pa.py_buffer(ends), pa.py_buffer(data))


def _letter(text: str) -> npt.NDArray[np.uint8]:
    return np.array([ord(text)], np.uint8)


def _digits(values: IntArray) -> Iterator[tuple[npt.NDArray[np.uint8], BoolArray]]:
    """The letters of whole numbers from the left: one for all rows or uint8[n, 1], and bool[n, 1]: the row has it."""
    yield _letter("-"), (values < 0)[:, None]
    size = np.abs(values).view(np.uint64)
    most = int(size.max())
    if most >> 32 == 0:
        size = size.astype(np.uint32)  # divided in a fifth of the time
    power = 10 ** (len(str(most)) - 1)
    one = size.dtype.type
    higher = np.zeros(len(size), size.dtype)
    while power:
        upper = size // one(power)
        digit = upper - higher * one(10) + one(48)
        yield digit.astype(np.uint8)[:, None], np.asarray((upper > 0) | (power == 1))[:, None]
        higher, power = upper, power // 10


def to_tables(records: Records, request_ids: Any, trace_ids: Any = None) -> tuple[Any, Any]:
    """The two Arrow tables of a run directory: ``requests.parquet`` and ``chunks.parquet``.

    Both have one row per record in the same order. Enumerations and texts are dictionary strings, a missing text is
    null; ``chunk_ns`` is a list<int64> column, ``merged`` (list<bool>) is made from it and never read back.
    ``request_ids[i]`` names row i on the wire (length n; texts, or an Arrow array of them), ``trace_ids[i]`` its trace
    (None: there is none).
    """
    import pyarrow as pa

    if len(request_ids) != len(records):
        raise ValueError(f"{len(request_ids)} request ids for {len(records)} records; give one per record")

    def column(name: str) -> Any:
        values = records.columns[name]
        if name in _ENUMS:
            # Attempts came with labels: files without are as they were.
            words = _ENUMS[name] if name != "phase" or records.labels is not None else PHASES[:-1]
            return pa.DictionaryArray.from_arrays(_array(values.astype(np.int8)), _strings(words))
        if name in ("error", "server_timing"):
            ix = _array(values.astype(np.int32), valid=records[name] >= 0)
            return pa.DictionaryArray.from_arrays(ix, _strings(records.table(name)))
        return _array(values)

    version = b"3" if records.labels is not None else b"1" if records.session is None else b"2"
    metadata = {_SCHEMA_KEY: version}
    requests = {name: column(name) for name in COLUMNS}
    requests["request_id"] = request_ids if isinstance(request_ids, pa.Array) else _strings(request_ids)
    if trace_ids is not None:
        requests["trace_id"] = trace_ids
    lists = pa.ListArray.from_arrays(_array(records.chunk_offsets.astype(np.int32)), _array(records.chunk_ns))
    chunks = {name: column(name) for name in ("query_id", "sample_ix", "phase")} | {"chunk_ns": lists}
    chunks["merged"] = pa.ListArray.from_arrays(lists.offsets, _array(merged_marks(records)))
    if records.session is not None:
        _add_session(records, records.session, requests, chunks)
    if records.labels is not None:
        for label, places in records.labels.columns.items():
            requests[column_of(label)] = _label(np.asarray(places), records.labels.texts.get(label))
    tables = pa.table(requests), pa.table(chunks)
    return tables[0].replace_schema_metadata(metadata), tables[1].replace_schema_metadata(metadata)


def _add_session(records: Records, session: SessionTable, requests: dict[str, Any], chunks: dict[str, Any]) -> None:
    """The columns of live sessions, beside the others: -1 for "did not happen" as there, lists with the chunks."""
    import pyarrow as pa

    for name in SESSION_COLUMNS:
        if name == "slice":
            ix = _array(records["slice"].astype(np.int32), valid=records["slice"] >= 0)
            requests[name] = pa.DictionaryArray.from_arrays(ix, _strings(session.slices))
        else:
            requests[name] = _array(session.columns[name])
    for name in RAGGED:
        values, offsets = session.ragged[name]
        chunks[name] = pa.ListArray.from_arrays(_array(offsets.astype(np.int32)), _array(values))


def _label(places: npt.NDArray[Any], texts: Sequence[str] | None) -> Any:
    """A column of a label: dictionary texts, null for none, or numbers."""
    import pyarrow as pa

    if texts is None:
        return _array(places.astype(np.int64, copy=False))
    return pa.DictionaryArray.from_arrays(_array(places.astype(np.int32), valid=places >= 0), _strings(texts))


def _array(values: npt.NDArray[Any], valid: BoolArray | None = None) -> Any:
    """An Arrow array of numbers or truth values; null where ``valid`` is false."""
    import pyarrow as pa

    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(
            pa.bool_(), len(values), [bits, pa.py_buffer(np.packbits(values, bitorder="little"))]
        )
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, data])


def _strings(texts: Sequence[str]) -> Any:
    import pyarrow as pa

    encoded = [text.encode("utf-8", "replace") for text in texts]
    ends = offsets_of(np.array([len(text) for text in encoded], np.int64)).astype(np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _numbers(array: Any, name: str) -> npt.NDArray[Any]:
    """The whole numbers of an Arrow array; -1 for null. Raises ``RecordsError`` for anything else."""
    import pyarrow as pa

    if not pa.types.is_integer(array.type) or array.type == pa.uint64():
        raise RecordsError(f"column {name} holds {array.type}, not whole numbers. Measure again, or restore the file")
    valid, data = array.buffers()
    stop = array.offset + len(array)
    dtype = np.dtype(array.type.to_pandas_dtype())
    values = np.frombuffer(data, dtype, stop)[array.offset :] if data is not None else np.empty(0, dtype)
    if valid is None or not array.null_count:
        return values
    held = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[array.offset : stop].astype(bool)
    return np.where(held, values, -1)


@dataclass(frozen=True, slots=True)
class _Half:
    """One of the two tables, to be read a batch at a time: ``batches(columns, rows)``; ``entries`` of each list."""

    name: str
    schema: Any
    rows: int
    entries: Mapping[str, int]
    batches: Callable[[list[str], int], Iterable[Any]]


class _NotParquet(RecordsError):
    """A file that pyarrow can't read; the text names it."""


def load(run_dir: Path, visit: Callable[[Records], object] | None = None) -> Records:
    """Read ``requests.parquet`` and ``chunks.parquet`` of a run directory, a batch at a time, and check every row.

    ``visit`` sees the rows of each batch, in order. Raises ``RecordsError`` for a file that is absent, not ours, of a
    newer Plimsoll, or that does not fit the other one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    @contextmanager
    def readable(path: Path) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise _NotParquet(f"{path}: not a Parquet file ({error}). Measure again, or restore the file") from error

    def half(name: str) -> _Half:
        path = run_dir / f"{name}.parquet"
        if not path.is_file():
            raise _NotParquet(f"{path}: no such file. Give the directory of a finished run")
        with readable(path):
            # Read as a stream: else a whole row group of every column is in memory before its first row is decoded.
            file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)

        def batches(columns: list[str], rows: int) -> Iterator[Any]:
            with readable(path):
                found = file.iter_batches(rows, columns=columns, use_threads=False)
            while True:
                with readable(path):
                    batch = next(found, None)
                if batch is None:
                    return
                yield batch

        entries = Counter[str]()
        for at in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(at)
            for column in map(group.column, range(group.num_columns)):
                entries[column.path_in_schema.partition(".")[0]] += column.num_values
        return _Half(name, file.schema_arrow, file.metadata.num_rows, entries, batches)

    try:
        found = _read(half("requests"), half("chunks"), visit)
        left = Lists(found.chunk_offsets, found.chunk_ns, bool(kept_mark(run_dir)))
        return replace(found, chunks=left)
    except _NotParquet:
        raise
    except RecordsError as error:
        raise RecordsError(f"{run_dir}: {error}") from error
    finally:
        pa.default_memory_pool().release_unused()  # some 80 MB that batches were decoded in


def names(run_dir: Path) -> set[str]:
    """The columns that the two files have, of which ``load`` has read the rows."""
    import pyarrow.parquet as pq

    return {name for file in ("requests.parquet", "chunks.parquet") for name in pq.read_schema(run_dir / file).names}


def from_tables(requests: Any, chunks: Any) -> Records:
    """The inverse of ``to_tables`` (request ids are not part of Records). Raises ``RecordsError``."""

    def half(name: str, table: Any) -> _Half:
        entries = {one: sum(len(part.values) for part in table.column(one).chunks) for one in _lists_in(table.schema)}
        return _Half(name, table.schema, table.num_rows, entries, lambda names, n: table.select(names).to_batches(n))

    return _read(half("requests", requests), half("chunks", chunks), None)


def _lists_in(schema: Any) -> list[str]:
    return [field.name for field in schema if field.name in ("chunk_ns", *RAGGED) and hasattr(field.type, "value_type")]


def _check_schema(half: _Half, needed: set[str]) -> None:
    """Raises ``RecordsError`` for a table that is not ours, of a newer Plimsoll, or without one of these columns."""
    version = (half.schema.metadata or {}).get(_SCHEMA_KEY)
    if version is None:
        raise RecordsError(f"{half.name}: no Plimsoll schema version inside. Give the directory of a Plimsoll run")
    if int(version) > SCHEMA_VERSION:
        raise RecordsError(
            f"{half.name}: written with records schema {int(version)}, this Plimsoll reads up to "
            f"{SCHEMA_VERSION}. Install the Plimsoll that wrote it, or a newer one"
        )
    if missing := sorted(needed - {*half.schema.names}):
        raise RecordsError(f"{half.name}: columns {', '.join(missing)} are missing. Measure again, or restore the file")


def _read(requests: _Half, chunks: _Half, visit: Callable[[Records], object] | None) -> Records:
    """The records of two tables, each batch checked as it comes. Raises ``RecordsError``."""
    import pyarrow as pa

    _check_schema(requests, {*COLUMNS} - {*LATER})
    _check_schema(chunks, {"query_id", "sample_ix", "phase", "chunk_ns"})
    live = "media_start_ns" in requests.schema.names
    if live and (missing := {*SESSION_COLUMNS, *RAGGED} - {*requests.schema.names, *chunks.schema.names}):
        raise RecordsError(
            f"the session columns {', '.join(sorted(missing))} are missing. Measure again, or restore the files"
        )
    n = requests.rows
    own_columns = SESSION_COLUMNS if live else ()
    labels = {label: name for name in requests.schema.names if (label := label_of(name)) is not None}
    worded = [name for name in labels.values() if not pa.types.is_integer(requests.schema.field(name).type)]
    columns = {name: _Column(name, n, COLUMNS.get(name, "i8")) for name in (*COLUMNS, *own_columns, *labels.values())}
    texts = {name: _Texts(name, _ENUMS.get(name)) for name in (*_ENUMS, "error", "server_timing", "slice", *worded)}
    lists = {name: _Lists(name, n, chunks.entries.get(name, 0)) for name in ("chunk_ns", *(RAGGED if live else ()))}

    def records(held: Mapping[str, Any], listed: Mapping[str, Any]) -> Records:
        session = None
        if live:
            ragged = {name: listed[name] for name in RAGGED}
            session = freeze({name: held[name] for name in own_columns}, ragged, texts["slice"].table)
        values, offsets = listed["chunk_ns"]
        fixed = MappingProxyType({name: held[name] for name in COLUMNS})
        named = None
        if labels:
            tables = {label: tuple(texts[name].table) for label, name in labels.items() if name in texts}
            named = LabelTable({label: held[name] for label, name in labels.items()}, tables, len(held["status"]))
        chunked = Lists(offsets, values)
        return Records(fixed, None, None, texts["error"].table, texts["server_timing"].table, session, chunked, named)

    wanted = [name for name in columns if name in requests.schema.names]
    rows = max(1, min(_ROWS, _ENTRIES * max(1, chunks.rows) // max(1, *(one.size for one in lists.values()))))
    batches = requests.batches(wanted, rows), chunks.batches([*_KEYS, "phase", *lists], rows)
    for left, right in _abreast(*batches):
        here = {
            name: texts[name].places(left.column(name)) if name in texts else _numbers(left.column(name), name)
            for name in wanted
        }
        _add_later(here)
        if any(not np.array_equal(here[key], _numbers(right.column(key), key)) for key in _KEYS):
            raise RecordsError(_UNLIKE)
        listed = {name: _lists(right.column(name), name) for name in lists}
        for name, column in columns.items():
            column.add(here[name])
        for name, one in lists.items():
            one.add(*listed[name])
        if visit is not None:
            visit(records(here, listed))
    found = records({name: one.whole() for name, one in columns.items()}, {n: one.whole() for n, one in lists.items()})
    found = replace(found, errors=tuple(found.errors), timings=tuple(found.timings))
    spans = {name: one.span for name, one in (columns | lists).items()}
    if problem := contradiction(found, spans):
        raise RecordsError(f"{problem}. Measure again, or restore the files")
    return found


def _abreast(left: Iterable[Any], right: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The batches of two tables, cut so that both have the same rows. Raises ``RecordsError`` where one has more."""
    others, b = iter(right), None
    for a in left:
        while a.num_rows:
            if b is None or not b.num_rows:
                b = next(others, None)
                if b is None:
                    raise RecordsError(_UNLIKE)
                continue
            n = min(a.num_rows, b.num_rows)
            yield a.slice(0, n), b.slice(0, n)
            a, b = a.slice(n), b.slice(n)
    if (b is not None and b.num_rows) or any(more.num_rows for more in others):
        raise RecordsError(_UNLIKE)


class _Column:
    """A column that comes a batch at a time: one value as long as no row has another."""

    def __init__(self, name: str, n: int, dtype: str) -> None:
        self.name, self.n, self.dtype = name, n, np.dtype(dtype)
        self.span = (0, 0)
        self._at, self._array = 0, np.empty(0, self.dtype)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Raises ``RecordsError`` for numbers that the schema's type doesn't hold."""
        low, high = span_of(values)
        limits = np.iinfo(self.dtype)
        if low < limits.min or high > limits.max:
            raise RecordsError(
                f"column {self.name} holds numbers that are too large. Measure again, or restore the file"
            )
        least, most = self.span if self._at else (low, high)
        self.span = min(low, least), max(high, most)
        if not len(self._array) and self.span[0] != self.span[1]:
            self._array = np.empty(self.n, self.dtype)
            self._array[: self._at] = least
        if len(self._array):
            self._array[self._at : self._at + len(values)] = values
        self._at += len(values)

    def whole(self) -> npt.NDArray[Any]:
        if not len(self._array):
            return np.broadcast_to(np.array(self.span[0], self.dtype), (self.n,))
        self._array.setflags(write=False)
        return self._array


class _Lists:
    """Lists that come a batch at a time, of at most ``size`` entries."""

    def __init__(self, name: str, n: int, size: int) -> None:
        self.name, self.size, self.span = name, size, (0, 0)
        self._values, self._offsets = np.empty(0, np.int64), np.broadcast_to(np.int64(0), (n + 1,))
        self._row = self._at = 0

    def add(self, values: IntArray, offsets: IntArray) -> None:
        """Raises ``RecordsError`` for lists that are none."""
        if offsets[-1] != len(values) or bool((offsets[1:] < offsets[:-1]).any()):
            rows = len(self._offsets) - 1
            raise RecordsError(
                f"the lists of {self.name} are not those of {rows} rows. Measure again, or restore the files"
            )
        low, high = span_of(values)
        least, most = self.span if self._at else (low, high)
        self.span = (min(low, least), max(high, most)) if len(values) else self.span
        if len(values) and not len(self._values):
            self._values, self._offsets = np.empty(self.size, np.int64), np.zeros(len(self._offsets), np.int64)
        if len(self._values):
            self._offsets[self._row + 1 : self._row + len(offsets)] = offsets[1:] + self._at
            self._values[self._at : self._at + len(values)] = values
        self._row, self._at = self._row + len(offsets) - 1, self._at + len(values)

    def whole(self) -> tuple[IntArray, IntArray]:
        for array in (self._values, self._offsets):
            array.setflags(write=False)
        return self._values[: self._at], self._offsets


class _Texts:
    """A column of strings as places in ``table``: an enumeration's names, or texts in order of appearance."""

    def __init__(self, name: str, names: tuple[str, ...] | None) -> None:
        self.name, self.fixed, self.table = name, names is not None, list(names or ())
        self._known = {text: place for place, text in enumerate(self.table)}
        self._dictionary: Any = None
        self._map = np.empty(0, np.int64)

    def places(self, column: Any) -> npt.NDArray[Any]:
        """Places of a batch's strings, -1 for null. Raises ``RecordsError``."""
        import pyarrow as pa

        held = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(held) or pa.types.is_large_string(held)):
            raise RecordsError(f"column {self.name} holds {column.type}, not texts. Measure again, or restore the file")
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if self._dictionary is None or not encoded.dictionary.equals(self._dictionary):
            self._dictionary, self._map = encoded.dictionary, self._placed(encoded.dictionary.to_pylist())
        return np.asarray(self._map[_numbers(encoded.indices, self.name)])

    def _placed(self, texts: list[Any]) -> npt.NDArray[Any]:
        """The place of each of a dictionary's texts, and -1 after the last."""
        if None in texts:
            raise RecordsError(f"column {self.name} lacks some of its texts. Measure again, or restore the file")
        unknown = sorted({*texts} - {*self._known}) if self.fixed else []
        if unknown:
            raise RecordsError(f"requests: unknown value {unknown[0]!r}. Install the Plimsoll that wrote it")
        for text in texts:
            if text not in self._known:
                self._known[text] = len(self.table)
                self.table.append(text)
        return np.array([*(self._known[text] for text in texts), -1], COLUMNS.get(self.name, "i8"))


def _add_later(columns: dict[str, npt.NDArray[Any]]) -> None:
    """Fill the columns that an older run directory lacks. Its server counted both ends of a request or neither."""
    if "attempts" not in columns:
        columns["attempts"] = once(columns["sent_ns"])  # it may have repeated some, and didn't say which
    if "n_in_from" not in columns:
        told = np.where(columns["tokens_from"] == TokensFrom.USAGE, int(TokensFrom.USAGE), int(TokensFrom.PLAN))
        columns["n_in_from"] = np.where(columns["n_in"] >= 0, told, int(TokensFrom.NONE))
    columns.setdefault("n_asked", np.broadcast_to(np.int64(-1), (len(columns["n_in"]),)))


def _lists(lists: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(values, offsets) of an Arrow array of lists of whole numbers. Raises ``RecordsError`` for anything else."""
    import pyarrow as pa

    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise RecordsError(f"column {name} holds {lists.type}, not lists. Measure again, or restore the file")
    if lists.null_count:  # never in our own files, which are read without pyarrow.compute: 0.05 s to load
        return _numbers(lists.flatten(), name), offsets_of(_numbers(lists.value_lengths(), name))
    ends = _numbers(lists.offsets, name).astype(np.int64)
    return _numbers(lists.values[ends[0] : ends[-1]], name), ends - ends[0]


# -- chunks that one read brought together -----------------------------------------------------------------------------

# Chunks that one read brought together: only the last of them has a time of its own. The kernel keeps one arrival time
# a read, that of the last segment in it (it joins segments that wait in the socket, so that shorter reads would not
# tell more). Two chunks with the same time therefore came in one read: either the server wrote them together, or the
# generator came late to a socket that already held both. The earlier one arrived somewhere between the read before and
# the time it carries. They are found here, and that error is bounded; nothing is corrected.

#: With a larger share of such chunks the report says so beside the gaps.
MERGED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Merged:
    """``chunks`` in all; ``merged`` of them carry the time of a later chunk of their stream.

    ``uncertainty_p99_ns``: of the merged ones, how long before that time they may have come (nearest rank; None: none).
    """

    chunks: int
    merged: int
    uncertainty_p99_ns: int | None

    @property
    def share(self) -> float:
        """Merged chunks per chunk; 0 without chunks."""
        return self.merged / self.chunks if self.chunks else 0.0


def merged_marks(records: Records) -> BoolArray:
    """bool[number of chunks]: the chunk carries the time of the next chunk of its row."""
    times = records.chunk_ns
    same = np.zeros(len(times), np.bool_)
    if len(times) > 1:
        same[:-1] = times[1:] == times[:-1]
        ends = records.chunk_offsets[1:] - 1
        same[ends[np.diff(records.chunk_offsets) > 0]] = False  # the next chunk is another row's
    return same


def merged_chunks(records: Records) -> Merged:
    """Count the merged chunks and bound their error by the read before, or by the time the request was sent."""
    spans = [slice(*rows) for rows in blocks(records.chunk_offsets)]  # all parts at once hold all offsets once more
    counts = (int(np.count_nonzero(merged_marks(records.select(span)))) for span in spans)
    chunks, merged = int(records.chunk_offsets[-1]), sum(counts)
    if not merged:
        return Merged(chunks, 0, None)
    wait, at = np.empty(merged, np.int64), 0
    for part in map(records.select, spans):
        which = np.flatnonzero(merged_marks(part))
        wait[at : at + len(which)] = part.chunk_ns[which] - _earliest(part, which)
        at += len(which)
    rank = -(-99 * merged // 100) - 1
    wait.partition(rank)
    return Merged(chunks, merged, int(wait[rank]))


def _earliest(records: Records, which: IntArray) -> IntArray:
    """For each of these chunks the last time known to be before it: an earlier chunk with another time, or sent_ns."""
    # Chunks of one read are neighbours, and the marks of a row's last chunk keep rows apart: runs of `which` are the
    # reads.
    first = np.append(True, np.diff(which) != 1)
    begin = which[np.maximum.accumulate(np.where(first, np.arange(len(which)), 0))]
    row = np.searchsorted(records.chunk_offsets, which, side="right") - 1
    opens = records.chunk_offsets[row] == begin
    return np.asarray(np.where(opens, records["sent_ns"][row], records.chunk_ns[begin - 1]))
