"""A recording in order of time, any part of which can be read. More than a megabyte of it lies in a file without a
name, so that memory does not grow with it. Only one that was not in order of time is sorted, in 32 bytes a row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plimsoll.scenarios.plan.plan import IntArray

#: Bytes that stay in memory, and rows that are put in order at a time.
KEPT, STEP = 1 << 20, 1 << 16
#: A row of a file, of one that may have ids of blocks, and of a run.
FILE = np.dtype([("at_ns", "<i8"), ("n_in", "<i4"), ("n_out", "<i4")])
BLOCKS = np.dtype([*FILE.descr, ("ids", "<i8"), ("ids_len", "<i8")])
RUN = np.dtype([(name, "<i8") for name in ("at_ns", "n_in", "n_out", "query_id", "sample_ix", "payload_ix")])


@dataclass(frozen=True, slots=True)
class Trace:
    """Consecutive requests, in order of time.

    ``at_ns`` int64[n] from the recording's first request, which is at 0; ``n_in`` and ``n_out`` int64[n] in tokens, -1
    unknown; ``query`` int64[n]: rows with the same one belong to one query (of several samples); ``payload_ix``
    int64[n]: the sample of its source that a run of ours sent, else None; ``blocks``: per row the ids of its prompt's
    blocks, else None.
    """

    at_ns: IntArray
    n_in: IntArray
    n_out: IntArray
    query: IntArray
    payload_ix: IntArray | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.at_ns)


class _Spool:
    """Bytes that are added at the end and read anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, data: bytes) -> None:
        self._held += data
        self.size += len(data)
        if self.size > KEPT:
            self._file = self._file or tempfile.TemporaryFile(prefix="plimsoll-")  # noqa: SIM115 - it lives as long as this
            self._file.write(self._held)
            self._file.flush()
            self._held.clear()

    def read(self, begin: int, n: int) -> bytes:
        if self._file is None:
            return bytes(self._held[begin : begin + n])
        return os.pread(self._file.fileno(), n, begin)

    def mapped(self, row: np.dtype[Any]) -> npt.NDArray[Any]:
        return np.frombuffer(self._held, row) if self._file is None else np.memmap(self._file, row, "r")


class Recording:
    """Rows are added, then ``sealed``, then read. Raises OSError where there is no room for them."""

    def __init__(self, row: np.dtype[Any]) -> None:
        self._row, self.blocks = row, row == BLOCKS
        self._rows, self._ids = _Spool(), _Spool()
        self._keys = ("at_ns", "query_id", "sample_ix") if row == RUN else ("at_ns",)
        self._in_order = True
        self._last = np.empty(0, row)
        self._first_ns = 0
        self.last_ns = 0
        self.n_payloads = 0

    def __len__(self) -> int:
        return self._rows.size // self._row.itemsize

    @property
    def grouped(self) -> bool:
        """Rows may share a query."""
        return self._row == RUN

    def add(self, columns: Mapping[str, Any], ids: Sequence[Sequence[int]] = ()) -> None:
        """The next rows, and the ids of their blocks."""
        rows = np.empty(len(columns["at_ns"]), self._row)
        for name, values in columns.items():
            rows[name] = values
        if ids:
            texts = [" ".join(map(str, some)).encode() for some in ids]
            rows["ids_len"] = sizes = [*map(len, texts)]
            rows["ids"] = self._ids.size + np.cumsum(sizes) - sizes
            self._ids.add(b"".join(texts))
        if not len(rows):
            return
        known = np.concatenate((self._last, rows))
        self._in_order &= _ascends([known[key] for key in self._keys])
        self._last = rows[-1:]
        if self.grouped:
            self.n_payloads = max(self.n_payloads, int(rows["payload_ix"].max()) + 1)
        self._rows.add(rows.tobytes())

    def sealed(self) -> Recording:
        """All rows are there: at least one."""
        if not self._in_order:
            found, rows = self._rows.mapped(self._row), _Spool()
            order = np.lexsort([found[key] for key in reversed(self._keys)])
            for begin in range(0, len(found), STEP):
                rows.add(found[order[begin : begin + STEP]].tobytes())
            self._rows = rows
        self._first_ns = int(self._read(0, 1)["at_ns"][0])
        self.last_ns = int(self._read(len(self) - 1, len(self))["at_ns"][0]) - self._first_ns
        return self

    def _read(self, begin: int, end: int) -> npt.NDArray[Any]:
        size = self._row.itemsize
        return np.frombuffer(self._rows.read(begin * size, (end - begin) * size), self._row)

    def lengths(self, rows: IntArray) -> IntArray:
        """``n_in`` of these rows, in any order."""
        found: IntArray = self._rows.mapped(self._row)["n_in"][rows].astype(np.int64)
        return found

    def rows(self, begin: int = 0, end: int | None = None) -> Trace:
        """This part of it."""
        found = self._read(begin, len(self) if end is None else min(end, len(self)))
        at_ns, n_in, n_out = (found[name].astype(np.int64) for name in ("at_ns", "n_in", "n_out"))
        if self.grouped:
            query, payload_ix = found["query_id"].copy(), found["payload_ix"].copy()
            return Trace(at_ns - self._first_ns, n_in, n_out, query, payload_ix)
        blocks = None
        if self._ids.size:
            where = zip(found["ids"].tolist(), found["ids_len"].tolist(), strict=True)
            blocks = tuple(tuple(map(int, self._ids.read(at, n).split())) for at, n in where)
        return Trace(at_ns - self._first_ns, n_in, n_out, np.arange(begin, begin + len(found)), None, blocks)

    def before(self, at_ns: int) -> int:
        """How many rows are earlier."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if int(self._read(middle, middle + 1)["at_ns"][0]) - self._first_ns < at_ns:
                low = middle + 1
            else:
                high = middle
        return low

    def queries(self, begin: int, end: int, most: int) -> Iterator[tuple[int, Trace, IntArray]]:
        """Whole queries of this part, of about so many rows each time: where its rows begin, they, and where among them
        queries do.
        """
        step = most
        while begin < end:
            stop = min(begin + step, end)
            rows = self.rows(begin, stop)
            begins = np.flatnonzero(np.append(True, rows.query[1:] != rows.query[:-1]))
            if self.grouped and stop < end:  # the last may go on
                if len(begins) == 1:
                    step *= 2
                    continue
                stop = begin + int(begins[-1])
                rows, begins = self.rows(begin, stop), begins[:-1]
            yield begin, rows, begins
            begin, step = stop, most


def _ascends(keys: Sequence[IntArray]) -> bool:
    """No row is before its neighbour, by the first key and among equals by the next."""
    falls, equal = np.zeros(len(keys[0]) - 1, np.bool_), True
    for key in keys:
        falls |= equal & (key[1:] < key[:-1])
        equal = equal & (key[1:] == key[:-1])
    return not bool(falls.any())
