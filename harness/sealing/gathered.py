"""What the workers of a run recorded, as blocks of rows in the order in which a run is sealed.

Segments hold rows in the order in which they ended; a run has them by phase (warm-up first), query and sample. A first
pass reads every segment once, checks it and keeps how many rows it has of each range of keys. Then each block takes its
own rows from the segments that have some of them, so that a worker that lags by the whole run costs no more than one
that doesn't. Nothing grows with the rows but the index, and that to ``_MOST_RANGES`` ranges only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import each_segment, mapped_segment, segment_files
from plimsoll.harness.sealing.planned import END, MEASURED, keys
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.columns import Rows as Picked
from plimsoll.slo.records.columns import constant, offsets_of
from plimsoll.slo.records.labels import NO_LABELS, LabelTable, number_of
from plimsoll.slo.records.records import COLUMNS, IntArray, Phase, Records, SessionTable
from plimsoll.slo.records.tables import BLOCK_CHUNKS, BLOCK_ROWS

#: Keys of one range of the index at first, as a power of two; ranges are joined where there would be more than so many.
_FINEST, _MOST_RANGES = 8, 1 << 19
#: What a row weighs in a block, in chunks.
_ROW = BLOCK_CHUNKS // BLOCK_ROWS
#: Rows in memory are looked at in parts of so many.
_PART = 1 << 15
_TEXTS = ("error", "server_timing")


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows as a worker left them: in a file, with the CRC-32 that was found right, or in memory."""

    path: Path | None
    check: bytes
    records: Records | None = None

    def rows(self) -> Records:
        """Raises HarnessFault for a file that is not there any more, or is another one."""
        if self.path is None:
            assert self.records is not None
            return self.records
        try:
            found, check = mapped_segment(self.path)
        except (OSError, ValueError, KeyError) as error:
            what = str(getattr(error, "strerror", None) or error)
        else:
            if check == self.check:
                return found
            what = "its content has changed"
        raise HarnessFault(
            f"{self.path}: this segment was whole a moment ago and can't be read now ({what}). The run is not sealed: "
            "restore the file, and give the run's folder to `plimsoll report`, which seals it"
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """Some rows of records: their places there and their keys."""

    records: Records
    rows: IntArray | slice
    key: IntArray

    def column(self, name: str) -> npt.NDArray[Any]:
        """Its values in these rows; a broadcast of one where all rows of the segment have that."""
        column: npt.NDArray[Any] = self.records.columns[name]
        return column[: len(self.key)] if constant(column) else column[self.rows]

    @classmethod
    def all(cls, records: Records, width: int) -> Taken:
        """Every row."""
        return cls(records, slice(0, len(records)), _keys(records, width))


class Gathered:
    """The rows of segments and of memory (``parts``), found by their keys. ``width``: see ``planned.keys``.

    ``faults``: what could not be read; ``names``: the segment files that were there; ``rows``: how many rows each
    worker has. Labels ``without`` are left out: somebody else has them.
    """

    def __init__(
        self, folders: Sequence[Path], parts: Sequence[Records], width: int, without: Collection[str] = ()
    ) -> None:
        self.width, self._without = width, without
        #: Of each label its texts, in order of appearance; and those labels that are numbers, every one of them.
        self._words: dict[str, dict[str, int]] = {}
        self._numbers: set[str] = set()
        self.faults: list[str] = []
        self.names = {f"{path.name.partition('.')[0]}.seg" for folder in folders for path in segment_files(folder)}
        self.rows: Counter[int] = Counter()
        self._texts: dict[str, dict[str, int]] = {name: {} for name in (*_TEXTS, "slice")}
        self._has_sessions = False
        self._sources: list[_Source] = []
        self._ranges = _Ranges()
        for path, check, records in each_segment(folders, self.faults):
            if bool((records.columns["phase"] == Phase.CANCEL).any()):
                why = "phase has a value that no worker writes"
                self.faults.append(f"segment {path} is unreadable ({why}): its rows are missing")
            else:
                self._add(records, _Source(path, check))
        for records in parts:
            for begin in range(0, len(records), _PART):
                part = records.select(slice(begin, begin + _PART))
                self._add(part, _Source(None, b"", part))
        self._ranges.close()
        for label, words in self._words.items():
            if words and all(number_of(word) >= 0 for word in words):
                self._numbers.add(label)
            elif words:
                self._numbers.discard(label)

    def _add(self, records: Records, source: _Source) -> None:
        for name, texts in self._texts.items():
            for text in records.table(name):
                texts.setdefault(text, len(texts))
        self._has_sessions |= records.session is not None
        labels = records.labels or NO_LABELS
        for label in labels.columns:
            if label in self._without:
                continue
            words = self._words.setdefault(label, {})
            for text in labels.texts.get(label, ()):
                words.setdefault(text, len(words))
            if label not in labels.texts:
                self._numbers.add(label)
        if not len(records):
            return
        worker = records["worker"]
        for one in np.unique(worker).tolist() if worker.min() != worker.max() else [int(worker[0])]:
            self.rows[one] += int((worker == one).sum())
        weight = np.diff(records.chunk_offsets) + _ROW
        self._ranges.add(len(self._sources), _keys(records, self.width), weight)
        self._sources.append(source)

    def end_of_block(self, begin: int) -> int:
        """The key at which a block that begins at this one is full; ``END``: nothing is left after it."""
        return self._ranges.end_of_block(begin)

    def take(self, begin: int, end: int) -> list[Taken]:
        """The rows with a key from ``begin`` to before ``end``, in the order of segments. Raises HarnessFault."""
        found = []
        for number in self._ranges.sources(begin, end):
            records = self._sources[number].rows()
            key = _keys(records, self.width)
            rows = np.flatnonzero((key >= begin) & (key < end))
            if len(rows):
                together = len(rows) == rows[-1] - rows[0] + 1
                found.append(Taken(records, slice(rows[0], rows[-1] + 1) if together else rows, key[rows]))
        return found

    def joined(self, parts: Sequence[Taken]) -> tuple[Records, IntArray]:
        """All these rows in the order of a run, and where each was when they stood one after another.

        Rows of one phase, query and sample stay as they stood. Texts are those of the whole run.
        """
        order = _order(parts)
        columns = {name: self._column(name, parts, order) for name in COLUMNS}
        starts, lengths, values = _lists(parts)
        starts, lengths = starts[order], lengths[order]
        chunks, offsets = _taken(values, starts, lengths), offsets_of(lengths)
        session = self._session(parts, order) if self._has_sessions else None
        errors, timings = (tuple(self._texts[name]) for name in _TEXTS)
        labels = self._labels(parts, order) if self._words else None
        return Records(MappingProxyType(columns), chunks, offsets, errors, timings, session, None, labels), order

    def _labels(self, parts: Sequence[Taken], order: IntArray) -> LabelTable:
        """What answers said: of a label whose texts are whole numbers, every one in the run, numbers."""
        columns = {}
        for label in self._words:
            pieces = [self._label(label, part) for part in parts]
            columns[label] = (np.concatenate(pieces) if pieces else np.empty(0, np.int64))[order]
        texts = {label: tuple(words) for label, words in self._words.items() if label not in self._numbers}
        return LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(order))

    def _label(self, label: str, part: Taken) -> IntArray:
        table, words = part.records.labels, self._words[label]
        if table is None or label not in table.columns:
            return np.full(len(part.key), -1)
        column = table.columns[label][part.rows]
        if label in table.texts:
            numeric = label in self._numbers
            places = [number_of(text) if numeric else words.setdefault(text, len(words)) for text in table.texts[label]]
            return np.asarray(np.array([*places, -1], np.int64)[column])
        if label in self._numbers:
            return np.asarray(column, np.int64)
        places = [-1 if one < 0 else words.setdefault(str(one), len(words)) for one in column.tolist()]
        return np.array(places, np.int64)

    def _column(self, name: str, parts: Sequence[Taken], order: IntArray) -> npt.NDArray[Any]:
        columns = [self._moved(part, name) if name in _TEXTS else part.column(name) for part in parts]
        if not columns:
            return np.empty(0, COLUMNS[name])
        if all(constant(column) and column[0] == columns[0][0] for column in columns):
            return np.broadcast_to(columns[0][:1], len(order))
        return (columns[0] if len(columns) == 1 else np.concatenate(columns))[order]

    def _moved(self, part: Taken, name: str) -> npt.NDArray[Any]:
        """A column that points into the texts of the whole run."""
        column = part.column(name)
        places = self._places(name, part.records.table(name))
        return np.broadcast_to(places[column[:1]], len(column)) if constant(column) else places[column]

    def _places(self, name: str, table: Sequence[str]) -> npt.NDArray[Any]:
        """Where texts are in the table of the whole run, new ones at its end. The last is -1's: no text."""
        texts = self._texts[name]
        return np.array([texts.setdefault(text, len(texts)) for text in table] + [-1], np.int32)

    def _session(self, parts: Sequence[Taken], order: IntArray) -> SessionTable:
        tables = [
            part.records.session.select(Picked.of(part.rows, len(part.records))) if part.records.session else None
            for part in parts
        ]
        joined = rec.join(tables, [len(part.key) for part in parts]) or rec.blank(len(order))
        ordered = joined.select(Picked.of(order, len(order)))
        columns = {**ordered.columns, "slice": self._places("slice", ordered.slices)[ordered.columns["slice"]]}
        return rec.freeze(columns, ordered.ragged, tuple(self._texts["slice"]))


class _Ranges:
    """How much each source weighs in each range of keys, ``2**shift`` keys each."""

    def __init__(self) -> None:
        self._shift = _FINEST
        self._found: list[tuple[IntArray, IntArray, IntArray]] = []
        self._n = 0

    def add(self, source: int, key: IntArray, weight: IntArray) -> None:
        """The rows of one more source."""
        number = key >> self._shift
        least, most = int(number.min()), int(number.max())
        if most - least < 4 * len(key) + 1024:
            rows = np.bincount(number - least)
            ranges = np.flatnonzero(rows)
            weights = np.bincount(number - least, weights=weight)[ranges]
            ranges += least
        else:
            ranges, at = np.unique(number, return_inverse=True)
            weights = np.bincount(at, weights=weight)
        self._found.append((ranges, np.full(len(ranges), source), weights.astype(np.int64)))
        self._n += len(ranges)
        while self._n > _MOST_RANGES and self._n > 2 * len(self._found) and self._shift < 48:
            self._widen()

    def _widen(self) -> None:
        """Ranges of four times as many keys."""
        ranges, source, weight = (np.concatenate(column) for column in zip(*self._found, strict=True))
        ranges >>= 2
        first = np.flatnonzero((np.diff(ranges, prepend=-1) != 0) | (np.diff(source, prepend=-1) != 0))
        self._shift += 2
        self._found = [(ranges[first], source[first], np.add.reduceat(weight, first))]
        self._n = len(first)

    def close(self) -> None:
        """All sources were added."""
        none = np.empty(0, np.int64)
        columns = zip(*self._found, strict=True) if self._found else ((none,), (none,), (none,))
        ranges, source, weight = (np.concatenate(column) for column in columns)
        self._found = []
        order = np.argsort(ranges)
        self._range, self._source, self._until = ranges[order], source[order], np.cumsum(weight[order])

    def end_of_block(self, begin: int) -> int:
        first = int(np.searchsorted(self._range, begin >> self._shift))
        if first == len(self._range):
            return END
        before = int(self._until[first - 1]) if first else 0
        last = int(np.searchsorted(self._until, before + BLOCK_CHUNKS, side="right"))
        if last == len(self._range):
            return END
        return max(int(self._range[last]), int(self._range[first]) + 1) << self._shift

    def sources(self, begin: int, end: int) -> list[int]:
        first = np.searchsorted(self._range, begin >> self._shift)
        last = np.searchsorted(self._range, (end - 1) >> self._shift, side="right")
        found: list[int] = np.unique(self._source[first:last]).tolist()
        return found


def _keys(records: Records, width: int) -> IntArray:
    """The key of every row."""
    found = keys(records["query_id"], records["sample_ix"], width)
    phase = records.columns["phase"]
    if constant(phase):
        return found if phase[0] == Phase.WARMUP else found + MEASURED
    return np.where(phase == Phase.WARMUP, found, found + MEASURED)


def _order(parts: Sequence[Taken]) -> IntArray:
    """Where the rows of these parts, one after another, are in the order of a run."""
    key = np.concatenate([part.key for part in parts] or [np.empty(0, np.int64)])
    n = len(key)
    if not n:
        return np.empty(0, np.int64)
    least = int(key.min())
    span = int(key.max()) - least + 1
    if span <= 4 * n + 1024:  # each has a place of its own: no need to sort
        place = np.full(span, -1, np.int64)
        place[key - least] = np.arange(n)
        found = place[place >= 0]
        if len(found) == n:
            return found
    names = ("sample_ix", "query_id")
    return np.asarray(np.lexsort((*(np.concatenate([part.column(name) for part in parts]) for name in names), key)))


def _lists(parts: Sequence[Taken]) -> tuple[IntArray, IntArray, IntArray]:
    """Where the chunks of each row begin, how many there are, and the chunks."""
    starts, lengths, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    at = 0
    for part in parts:
        offsets = part.records.chunk_offsets
        begins = offsets[:-1][part.rows]
        sizes = offsets[1:][part.rows] - begins
        first, last = int(begins[0]), int(begins[-1] + sizes[-1])
        chunks = part.records.chunk_ns[first:last]
        if last - first > 2 * int(sizes.sum()) + _PART:  # few rows of many
            chunks = _taken(part.records.chunk_ns, begins, sizes)
            begins, first = np.cumsum(sizes) - sizes, 0
        starts.append(begins - first + at)
        lengths.append(sizes)
        values.append(chunks)
        at += len(chunks)
    return np.concatenate(starts), np.concatenate(lengths), np.concatenate(values)


def _taken(values: IntArray, starts: IntArray, lengths: IntArray) -> IntArray:
    """The values of lists that begin at these places."""
    ends = np.cumsum(lengths)
    if not len(ends) or not ends[-1]:
        return values[:0]
    first = ends - lengths
    if bool((starts - first == starts[0]).all()):  # as they stand
        return values[starts[0] : starts[0] + ends[-1]]
    return np.asarray(values[np.arange(ends[-1]) + np.repeat(starts - first, lengths)])
