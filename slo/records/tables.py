"""Records as Parquet files of a run directory: the writer and the reader of one format, side by side.

pyarrow is imported inside the functions, so that ``slo`` stays light; arrays pass by their buffers, because pyarrow's
own conversions load pandas where it is installed (a quarter of a second, in every command). A newer schema is refused,
not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.cancelled import PHASES
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
    from_arrays,
    offsets_of,
    once,
)

_SCHEMA_KEY = b"plimsoll.records.schema"
_ENUMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "status": tuple(m.name for m in Status),
        "stamp": tuple(m.name.lower() for m in Stamp),
        "phase": PHASES,
        "tokens_from": tuple(m.name.lower() for m in TokensFrom),
        "n_in_from": tuple(m.name.lower() for m in TokensFrom),
    }
)


#: What is written at once, in rows and in chunks: a row group of each file.
BLOCK_ROWS, BLOCK_CHUNKS = 1 << 17, 1 << 21


def write(blocks: Iterable[Records], run_id: str, requests: IO[bytes], chunks: IO[bytes]) -> None:
    """Write ``requests.parquet`` and ``chunks.parquet`` of a run to open files, a row group for each block.

    The blocks are consecutive rows of one run: all with session columns or none, and the tables of texts of each begin
    with those of the one before. Raises OSError.
    """
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writers: list[Any] = []
        for block in blocks:
            tables = to_tables(block, request_ids(run_id, block))
            if not writers:
                for table, file in zip(tables, (requests, chunks), strict=True):
                    writer = pq.ParquetWriter(file, table.schema, **_encodings(table.schema))
                    writers.append(stack.enter_context(writer))
            for table, writer in zip(tables, writers, strict=True):
                writer.write_table(table, row_group_size=max(1, len(block)))


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
        yield records.select(np.arange(begin, min(end, len(records))))
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


def to_tables(records: Records, request_ids: Any) -> tuple[Any, Any]:
    """The two Arrow tables of a run directory: ``requests.parquet`` and ``chunks.parquet``.

    Both have one row per record in the same order. Enumerations and texts are dictionary strings, a missing text is
    null; ``chunk_ns`` is a list<int64> column, ``merged`` (list<bool>) is made from it and never read back.
    ``request_ids[i]`` names row i on the wire (length n; texts, or an Arrow array of them).
    """
    import pyarrow as pa

    if len(request_ids) != len(records):
        raise ValueError(f"{len(request_ids)} request ids for {len(records)} records; give one per record")

    def column(name: str) -> Any:
        values = records.columns[name]
        if name in _ENUMS:
            return pa.DictionaryArray.from_arrays(_array(values.astype(np.int8)), _strings(_ENUMS[name]))
        if name in ("error", "server_timing"):
            ix = _array(values.astype(np.int32), valid=records[name] >= 0)
            return pa.DictionaryArray.from_arrays(ix, _strings(records.table(name)))
        return _array(values)

    metadata = {_SCHEMA_KEY: b"1" if records.session is None else str(SCHEMA_VERSION).encode()}
    requests = {name: column(name) for name in COLUMNS}
    requests["request_id"] = request_ids if isinstance(request_ids, pa.Array) else _strings(request_ids)
    lists = pa.ListArray.from_arrays(_array(records.chunk_offsets.astype(np.int32)), _array(records.chunk_ns))
    chunks = {name: column(name) for name in ("query_id", "sample_ix", "phase")} | {"chunk_ns": lists}
    chunks["merged"] = pa.ListArray.from_arrays(lists.offsets, _array(merged_marks(records)))
    if records.session is not None:
        _add_session(records, records.session, requests, chunks)
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


def _session_of(requests: Any, chunks: Any) -> SessionTable | None:
    """The columns of live sessions, if the files have them. Raises ``RecordsError``."""
    if "media_start_ns" not in requests.column_names:
        return None
    missing = sorted(({*SESSION_COLUMNS} - {*requests.column_names}) | ({*RAGGED} - {*chunks.column_names}))
    if missing:
        raise RecordsError(f"the session columns {', '.join(missing)} are missing. Measure again, or restore the files")
    columns: dict[str, Any] = {
        name: _numbers(requests.column(name), name) for name in SESSION_COLUMNS if name != "slice"
    }
    columns["slice"], slices = _decode(requests.column("slice"), "slice", None)
    ragged = {}
    for name in RAGGED:
        ragged[name] = _lists(chunks.column(name), name)
    return freeze(columns, ragged, slices)


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


def _numbers(column: Any, name: str) -> npt.NDArray[Any]:
    """The whole numbers of an Arrow array or column; -1 for null. Raises ``RecordsError`` for anything else."""
    import pyarrow as pa

    array = column.combine_chunks() if hasattr(column, "chunks") else column
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


def load(run_dir: Path) -> Records:
    """Read ``requests.parquet`` and ``chunks.parquet`` of a run directory.

    Raises ``RecordsError`` for a file that is absent, not ours, of a newer Plimsoll, or that does not fit the other
    one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name in ("requests.parquet", "chunks.parquet"):
        path = run_dir / name
        if not path.is_file():
            raise RecordsError(f"{path}: no such file. Give the directory of a finished run")
        try:
            file = pq.ParquetFile(path)
            # What is made from other columns is left alone: of a large run it is gigabytes while it is decoded.
            wanted = [column for column in file.schema_arrow.names if column not in ("merged", "request_id")]
            tables.append(file.read(wanted))
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise RecordsError(f"{path}: not a Parquet file ({error}). Measure again, or restore the file") from error
    try:
        return from_tables(*tables)
    except RecordsError as error:
        raise RecordsError(f"{run_dir}: {error}") from error


def names(run_dir: Path) -> set[str]:
    """The columns that the two files have, of which ``load`` has read the rows."""
    import pyarrow.parquet as pq

    return {name for file in ("requests.parquet", "chunks.parquet") for name in pq.read_schema(run_dir / file).names}


def from_tables(requests: Any, chunks: Any) -> Records:
    """The inverse of ``to_tables`` (request ids are not part of Records). Raises ``RecordsError``."""
    for name, table, needed in (
        ("requests", requests, {*COLUMNS} - {*LATER}),
        ("chunks", chunks, {"query_id", "sample_ix", "phase", "chunk_ns"}),
    ):
        version = (table.schema.metadata or {}).get(_SCHEMA_KEY)
        if version is None:
            raise RecordsError(f"{name}: no Plimsoll schema version inside. Give the directory of a Plimsoll run")
        if int(version) > SCHEMA_VERSION:
            raise RecordsError(
                f"{name}: written with records schema {int(version)}, this Plimsoll reads up to "
                f"{SCHEMA_VERSION}. Install the Plimsoll that wrote it, or a newer one"
            )
        missing = sorted(needed - set(table.column_names))
        if missing:
            raise RecordsError(f"{name}: columns {', '.join(missing)} are missing. Measure again, or restore the file")
    columns: dict[str, npt.NDArray[Any]] = {}
    texts: dict[str, tuple[str, ...]] = {}
    for name in COLUMNS:
        if name == "attempts" and name not in requests.column_names:
            columns[name] = once(columns["sent_ns"])  # an older run: it may have repeated some, and didn't say which
        elif name not in requests.column_names:
            continue
        elif name in _ENUMS or name in ("error", "server_timing"):
            columns[name], texts[name] = _decode(requests.column(name), name, _ENUMS.get(name))
        else:
            columns[name] = _numbers(requests.column(name), name)
        if not np.array_equal(columns[name].astype(COLUMNS[name]), columns[name]):
            raise RecordsError(f"column {name} holds numbers that are too large. Measure again, or restore the file")
    _add_later(columns)
    keys = ("query_id", "sample_ix")
    if chunks.num_rows != requests.num_rows or any(
        not np.array_equal(columns[key], _numbers(chunks.column(key), key)) for key in keys
    ):
        raise RecordsError("chunks: its rows are not those of requests. Measure again, or restore both files")
    times, offsets = _lists(chunks.column("chunk_ns"), "chunk_ns")
    session = _session_of(requests, chunks)
    records = from_arrays(columns, times, offsets, texts["error"], texts["server_timing"], session)
    if problem := contradiction(records):
        raise RecordsError(f"{problem}. Measure again, or restore the files")
    return records


def _add_later(columns: dict[str, npt.NDArray[Any]]) -> None:
    """Fill the columns that an older run directory lacks. Its server counted both ends of a request or neither."""
    if "n_in_from" not in columns:
        told = np.where(columns["tokens_from"] == TokensFrom.USAGE, int(TokensFrom.USAGE), int(TokensFrom.PLAN))
        columns["n_in_from"] = np.where(columns["n_in"] >= 0, told, int(TokensFrom.NONE))
    columns.setdefault("n_asked", np.full(len(columns["n_in"]), -1, np.int64))


def _lists(column: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(values, offsets) of a column of lists of whole numbers. Raises ``RecordsError`` for anything else."""
    import pyarrow as pa

    lists = column.combine_chunks()
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise RecordsError(f"column {name} holds {lists.type}, not lists. Measure again, or restore the file")
    if lists.null_count:  # never in our own files, which are read without pyarrow.compute: 0.05 s to load
        return _numbers(lists.flatten(), name), offsets_of(_numbers(lists.value_lengths(), name))
    ends = _numbers(lists.offsets, name).astype(np.int64)
    return _numbers(lists.values[ends[0] : ends[-1]], name), ends - ends[0]


def _decode(column: Any, name: str, names: tuple[str, ...] | None) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """Indices into ``names`` (or into the texts found, -1 for null) of a column of strings. Raises ``RecordsError``."""
    import pyarrow as pa

    encoded = column.combine_chunks()
    held = encoded.type.value_type if pa.types.is_dictionary(encoded.type) else encoded.type
    if not (pa.types.is_string(held) or pa.types.is_large_string(held)):
        raise RecordsError(f"column {name} holds {encoded.type}, not texts. Measure again, or restore the file")
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    found = tuple(encoded.dictionary.to_pylist())
    if None in found:
        raise RecordsError(f"column {name} lacks some of its texts. Measure again, or restore the file")
    ix = _numbers(encoded.indices, name).astype(np.int64)
    if names is None:
        return ix, found
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise RecordsError(f"requests: unknown value {unknown[0]!r}. Install the Plimsoll that wrote it")
    table = np.array([names.index(text) for text in found] + [-1], np.int64)
    return table[ix], names


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
    same = merged_marks(records)
    which = np.flatnonzero(same)
    if len(which) == 0:
        return Merged(len(same), 0, None)
    wait = np.sort(records.chunk_ns[which] - _earliest(records, which))
    return Merged(len(same), len(which), int(wait[-(-99 * len(wait) // 100) - 1]))


def _earliest(records: Records, which: IntArray) -> IntArray:
    """For each of these chunks the last time known to be before it: an earlier chunk with another time, or sent_ns."""
    # Chunks of one read are neighbours, and the marks of a row's last chunk keep rows apart: runs of `which` are the
    # reads.
    first = np.append(True, np.diff(which) != 1)
    begin = which[np.maximum.accumulate(np.where(first, np.arange(len(which)), 0))]
    row = np.searchsorted(records.chunk_offsets, which, side="right") - 1
    opens = records.chunk_offsets[row] == begin
    return np.asarray(np.where(opens, records["sent_ns"][row], records.chunk_ns[begin - 1]))
