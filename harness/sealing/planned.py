"""The samples of a plan in the order in which a run's rows are sealed, and rows held against them.

A sample has a key: a number that rises with its query and its place in it. Plans and rows come in blocks of rising
keys, so that neither is ever in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from plimsoll.scenarios.plan.blocks import Blocks, goes_on
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.slo.records.records import BoolArray

#: Keys of the measured rows begin here; those of the warm-up come before.
MEASURED = 1 << 60
#: Beyond every key.
END = 1 << 62
#: Samples made at a time.
_STEP = 1 << 16
#: How rows differ from their plan, in the order in which it is said.
_STRANGE = "are not in the plan"
_PAYLOAD = "carry another payload than planned"
_DUE = "have another due time than planned"

#: What a plan decides of rows: query, sample, payload and due time, int64[n] each.
Columns = tuple[IntArray, IntArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class Samples:
    """Consecutive samples of a plan, int64[m] each. ``place``: their numbers in the whole plan; ``labels``: of their
    queries.
    """

    labels: Mapping[str, IntArray]
    key: IntArray
    query_id: IntArray
    sample_ix: IntArray
    payload_ix: IntArray
    due_ns: IntArray
    place: IntArray

    def __len__(self) -> int:
        return len(self.key)

    def part(self, rows: slice | BoolArray) -> Samples:
        """Some of them."""
        labels = {label: column[rows] for label, column in self.labels.items()}
        return Samples(labels, *(getattr(self, name)[rows] for name in _ARRAYS))


_ARRAYS = tuple(one.name for one in fields(Samples) if one.name != "labels")


class Cursor:
    """Takes the samples of a plan one after another. ``width``: more than any place of a sample in its query."""

    def __init__(self, plan: Blocks) -> None:
        self.width = max(1, plan.extent().widest)
        self._coming = self._expanded(plan)
        self._held: list[Samples] = []

    def until(self, key: int) -> Samples:
        """The samples before this key that were not taken yet."""
        while (not self._held or self._held[-1].key[-1] < key) and self._more():
            pass
        held = _joined(self._held)
        end = int(np.searchsorted(held.key, key))
        self._held = [held.part(slice(end, None))] if end < len(held) else []
        return held.part(slice(0, end))

    def ahead(self, most: int) -> int:
        """The key of the sample after so many more; ``END`` where there are no more than those."""
        n = sum(map(len, self._held))
        while n <= most and self._more():
            n += len(self._held[-1])
        for held in self._held:
            if most < len(held):
                return int(held.key[most])
            most -= len(held)
        return END

    def _more(self) -> bool:
        more = next(self._coming, None)
        if more is not None:
            self._held.append(more)
        return more is not None

    def _expanded(self, plan: Blocks) -> Iterator[Samples]:
        place, last = 0, None
        for piece in plan:
            begun, last = place if goes_on(last, piece) else 0, piece
            single = piece.n_samples == piece.n_queries
            for begin in range(0, piece.n_samples, _STEP):
                at = np.arange(begin, min(begin + _STEP, piece.n_samples))
                row = at if single else np.searchsorted(piece.offsets, at, side="right") - 1
                query = piece.query_id[row]
                # A plan has the samples of a query in order: place and number are one.
                key = MEASURED + keys(query, at - piece.offsets[row] + begun, self.width)
                columns = piece.sample_ix[at], piece.payload_ix[at], piece.due_ns[row], at + place
                labels = {} if piece.labels is None else piece.labels.select(row).columns
                yield Samples(labels, key, query, *columns)
            place += piece.n_samples


def keys(query: IntArray, sample: IntArray, width: int) -> IntArray:
    """int64[n], from 0 to below ``MEASURED``: never falls where query, and within it sample, rises.

    No two samples share one whose place is below ``width``, but for queries that no run reaches.
    """
    found = np.clip(query, 0, MEASURED // width - 1)
    return found if width == 1 else found * width + np.clip(sample, 0, width - 1)


def _joined(parts: list[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    none, named = np.empty(0, np.int64), parts[0].labels if parts else ()
    labels = {label: np.concatenate([part.labels[label] for part in parts]) for label in named}
    return Samples(labels, *(np.concatenate([getattr(part, name) for part in parts] or [none]) for name in _ARRAYS))


def places(query: IntArray, sample: IntArray, samples: Samples, width: int) -> tuple[IntArray, BoolArray]:
    """Where among these samples each row's is, and whether it is there at all."""
    if not len(samples):
        return np.zeros(len(query), np.int64), np.zeros(len(query), np.bool_)
    key = MEASURED + keys(query, sample, width)
    at = np.minimum(np.searchsorted(samples.key, key), len(samples) - 1)
    return at, np.asarray((samples.query_id[at] == query) & (samples.sample_ix[at] == sample))


class Differences:
    """What in the rows of the planned load is not of this plan: one text for each kind, with the first row.

    Of an open loop everything planned must be there, once and as planned. A closed loop decides when a query is due,
    and how many there are: what a query carries was planned. ``plan``: its pieces, of which one is held at a time.
    """

    def __init__(self, plan: Blocks, width: int) -> None:
        self._pieces, self._plan, self._width = plan, plan.head, width
        self._queries = plan.extent().n_queries if self._plan.cyclic else 0
        # Of sessions this bounds the turns that are sent: their numbers may be higher.
        self._most = None if bool((self._plan.after >= 0).any()) else self._plan.stop.max_queries
        self._coming, self._piece, self._begin = iter(plan), self._plan, 0
        self._end = 0
        self._found: dict[str, tuple[int, str]] = {}
        self._rows = self._planned = self._again = self._missing = 0

    def add(self, rows: Columns, samples: Samples | None) -> None:
        """The next rows, warm-up left out, and of an open loop all samples that were planned among them."""
        query, sample, payload, due = rows
        if samples is None:
            self._add_closed(query, sample, payload)
            return
        self._rows, self._planned = self._rows + len(query), self._planned + len(samples)
        pairs = (query, "query_id"), (sample, "sample_ix"), (payload, "payload_ix"), (due, "due_ns")
        if all(np.array_equal(column, getattr(samples, name)) for column, name in pairs):
            return
        at, known = places(query, sample, samples, self._width)
        self._report(~known, _STRANGE, query, sample)
        if not len(samples):
            return
        self._report(known & (payload != samples.payload_ix[at]), _PAYLOAD, query, sample)
        self._report(known & (due != samples.due_ns[at]), _DUE, query, sample)
        times = np.bincount(at[known], minlength=len(samples))
        self._again += int((times > 1).sum())
        self._missing += int((times == 0).sum())

    def _add_closed(self, query: IntArray, sample: IntArray, payload: IntArray) -> None:
        known = (query >= 0) & (sample >= 0)
        known &= True if self._most is None else query < self._most
        planned = np.full(len(query), -1)
        rows = np.flatnonzero(known)
        while len(rows):
            piece, begin = self._piece_of(int(query[rows[0]]) % self._queries)
            row = query[rows] % self._queries - begin
            beyond = np.flatnonzero((row < 0) | (row >= piece.n_queries))
            n = int(beyond[0]) if len(beyond) else len(rows)
            here, row, rows = rows[:n], row[:n], rows[n:]
            known[here] = sample[here] < piece.offsets[row + 1] - piece.offsets[row]
            at = np.where(known[here], piece.offsets[row] + sample[here], 0)
            known[here] &= piece.sample_ix[at] == sample[here]
            planned[here] = piece.payload_ix[at]
        self._report(~known, _STRANGE, query, sample)
        # Users of Locust make their own payloads: -1.
        self._report(known & (payload != planned) & (payload != -1), _PAYLOAD, query, sample)

    def _piece_of(self, row: int) -> tuple[Plan, int]:
        """The piece that has this row of a closed loop's list, and its first. Rows mostly rise."""
        if row < self._begin:
            self._coming, self._begin, self._end = iter(self._pieces), 0, 0
        while row >= self._end:
            self._piece = next(self._coming)
            self._begin, self._end = self._end, self._end + self._piece.n_queries
        return self._piece, self._begin

    def _report(self, bad: BoolArray, what: str, query: IntArray, sample: IntArray) -> None:
        at = np.flatnonzero(bad)
        if len(at):
            count, first = self._found.get(what, (0, f"query {query[at[0]]} sample {sample[at[0]]}"))
            self._found[what] = (count + len(at), first)

    def texts(self) -> list[str]:
        """Of all rows so far."""
        if not self._plan.cyclic and not self._planned and self._rows:
            return [f"{self._rows} rows are not in the plan, which is empty"]
        kinds = [what for what in (_STRANGE, _PAYLOAD, _DUE) if what in self._found]
        found = [f"{self._found[what][0]} rows {what} (first: {self._found[what][1]})" for what in kinds]
        if self._again:
            found.append(f"{self._again} planned samples have more than one row")
        if self._missing:
            found.append(f"{self._missing} planned samples have no row")
        return found
