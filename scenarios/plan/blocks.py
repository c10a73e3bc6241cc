"""A plan of any length as consecutive pieces, made one at a time and forgotten.

Iterating makes the pieces anew, the same ones each time. A run of 600 million queries needs the memory of one piece,
and of what a shard keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from plimsoll.scenarios.plan.plan import (
    ARRAYS,
    BLOCK,
    Dealing,
    Fingerprint,
    IntArray,
    Plan,
    QueryLabels,
    Stop,
    dealt,
    shared,
)
from plimsoll.scenarios.text.fields import MAX_NS

#: Of a plan of at most so many queries a timeline has each.
MARKS = 1 << 19


@dataclass(frozen=True, slots=True)
class Timeline:
    """When samples are due, by marks: row ``k * step`` of the plan is due at ``due_ns[k]``, ``before[k]`` samples come
    before it, and ``before[-1]`` are all. Exact where ``step`` is 1; between marks further apart they count as even.
    """

    due_ns: IntArray
    before: IntArray
    step: int
    last_ns: int

    def until(self, times_ns: Any) -> IntArray:
        """How many samples are due before each of these times."""
        times = np.asarray(times_ns, np.int64)
        mark = np.searchsorted(self.due_ns, times, side="left")
        found = self.before[mark]
        if self.step == 1:
            return np.asarray(found)
        ends = np.append(self.due_ns, self.last_ns + 1)
        back = np.maximum(mark - 1, 0)
        share = np.clip((times - ends[back]) / np.maximum(ends[mark] - ends[back], 1), 0.0, 1.0)
        return np.asarray(self.before[back] + np.rint((found - self.before[back]) * share).astype(np.int64))

    def busiest(self, window_ns: int) -> int:
        """The most samples that are due in a window of this length."""
        return int((self.until(self.due_ns + window_ns) - self.before[:-1]).max(initial=0))


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a plan, or a shard of it, holds: what can be said without its rows.

    ``first_ns``, ``last_ns``: first and last due time, ns from t0 (0, 0 if empty); ``widest``: the most samples in one
    query; the rest as in ``Plan``.
    """

    n_queries: int
    n_samples: int
    first_ns: int
    last_ns: int
    widest: int
    timeline: Timeline
    stop: Stop
    open_loop: bool
    cyclic: bool
    max_in_flight: int | None
    hurried: bool


@dataclass(frozen=True, slots=True)
class Survey(Extent):
    """A whole plan after one pass over its pieces."""

    fingerprint: str
    pieces: Blocks


def together(plans: Sequence[Survey]) -> Survey:
    """What several plans that begin at once hold, as far as one extent can say it. One plan is itself.

    Samples of open loops are counted; only where there are none the whole is a closed loop.
    """
    if len(plans) == 1:
        return plans[0]
    listed = [plan for plan in plans if not plan.cyclic]
    if not listed:  # one without an end lasts as long as the others
        return max(plans, key=lambda plan: plan.stop.min_duration_ns % MAX_NS)
    due = np.sort(np.concatenate([plan.timeline.due_ns for plan in listed]))
    n_samples = sum(plan.n_samples for plan in listed)
    before = np.append(sum(plan.timeline.until(due) for plan in listed), n_samples).astype(np.int64)
    last_ns = max(plan.last_ns for plan in listed)
    return replace(
        plans[0],
        n_queries=sum(plan.n_queries for plan in listed),
        n_samples=n_samples,
        first_ns=min(plan.first_ns for plan in plans),
        last_ns=last_ns,
        widest=max(plan.widest for plan in plans),
        timeline=Timeline(due, before, max(plan.timeline.step for plan in listed), last_ns),
        open_loop=all(plan.open_loop for plan in plans),
        cyclic=False,
        max_in_flight=None,
        fingerprint=hashlib.sha256("".join(plan.fingerprint for plan in plans).encode()).hexdigest(),
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """The pieces of one plan, or of one shard of it: each a ``Plan`` of consecutive rows with the whole's scalars.

    There is at least one piece. The ids of a whole plan are the numbers of its rows. A plan's only query may go on from
    piece to piece, each with one row of it. ``known``: its extent, where somebody has looked already.
    """

    make: Callable[[], Iterator[Plan]]
    known: Extent | None = None

    def __iter__(self) -> Iterator[Plan]:
        return self.make()

    @property
    def head(self) -> Plan:
        """The first piece: what it says of the whole plan is the whole's."""
        return next(self.make())

    def shard(self, i: int, n: int, dealing: Dealing = "turns") -> Blocks:
        """The pieces of ``Plan.shard``; a piece of which nothing is left is left out. Raises ValueError as it does."""
        if n < 1 or not 0 <= i < n:
            raise ValueError(f"there is no shard {i} of {n}. Give 0 <= i < n.")
        return self if n == 1 else Blocks(partial(_sharded, self.make, i, n, dealing))

    def held(self, most: int = 1 << 18) -> Blocks:
        """The same, made once and kept where it is one piece or has no more samples than this."""
        kept: list[Plan] = []
        n = 0
        for piece in self:
            kept.append(piece)
            n += piece.n_samples
            if n > most and len(kept) > 1:
                return self
        return Blocks(partial(iter, kept), self.known)

    def whole(self) -> Plan:
        """All of it in memory."""
        return joined(self)

    def extent(self) -> Extent:
        """One pass over the pieces, unless it is known."""
        if self.known is not None:
            return self.known
        measure = Measure()
        for piece in self:
            measure.add(piece)
        return measure.extent()

    def survey(self) -> Survey:
        """Extent and fingerprint of a whole plan, in one pass."""
        measure, made = Measure(), Fingerprint()
        for piece in self:
            measure.add(piece)
            made.add(piece)
        extent = measure.extent()
        found = {item.name: getattr(extent, item.name) for item in fields(Extent)}
        return Survey(**found, fingerprint=made.hex(), pieces=replace(self, known=extent))

    def fingerprint(self) -> str:
        """``Plan.fingerprint`` of the whole."""
        made = Fingerprint()
        for piece in self:
            made.add(piece)
        return made.hex()


class Measure:
    """Takes the extent of the pieces that it is given one after another."""

    def __init__(self) -> None:
        self._head: Plan | None = None
        self._last: Plan | None = None
        self._queries = self._samples = self._first_ns = self._last_ns = self._widest = 0
        self._step, self._marks = 1, 0
        self._due: list[IntArray] = []
        self._before: list[IntArray] = []

    def add(self, piece: Plan) -> None:
        """The next rows."""
        self._head = self._head or piece
        if not piece.n_queries:
            return
        if self._queries == 1 and goes_on(self._last, piece):
            self._widest = self._samples = self._samples + piece.n_samples
            return
        self._last = piece
        if not self._queries:
            self._first_ns = int(piece.due_ns[0])
        self._last_ns = int(piece.due_ns[-1])
        single = piece.n_samples == piece.n_queries
        self._widest = max(self._widest, 1 if single else int(np.diff(piece.offsets).max()))
        begin = -self._queries % self._step
        self._due.append(piece.due_ns[begin :: self._step].copy())
        self._before.append(piece.offsets[:-1][begin :: self._step] + self._samples)
        self._queries, self._samples = self._queries + piece.n_queries, self._samples + piece.n_samples
        self._marks += len(self._due[-1])
        while self._marks > MARKS:
            self._due, self._before = [np.concatenate(self._due)[::2]], [np.concatenate(self._before)[::2]]
            self._step, self._marks = 2 * self._step, len(self._due[0])

    def extent(self) -> Extent:
        """Of all pieces so far. Raises ValueError for none."""
        head = self._head
        if head is None:
            raise ValueError("no pieces of a plan: give at least one")
        before = np.concatenate([*self._before, [self._samples]]).astype(np.int64)
        due = np.concatenate([*self._due, np.empty(0, np.int64)])
        return Extent(
            n_queries=self._queries,
            n_samples=self._samples,
            first_ns=self._first_ns,
            last_ns=self._last_ns,
            widest=self._widest,
            timeline=Timeline(due, before, self._step, self._last_ns),
            stop=head.stop,
            open_loop=head.open_loop,
            cyclic=head.cyclic,
            max_in_flight=head.max_in_flight,
            hurried=head.hurried,
        )


def goes_on(before: Plan | None, piece: Plan) -> bool:
    """Whether a piece's first row is more of the last query of the piece before it."""
    return before is not None and before.query_id[-1:].tolist() == piece.query_id[:1].tolist() != []


def cut(plan: Plan) -> Blocks:
    """A plan that is in memory, in pieces; one whose queries wait for others stays in one."""
    return Blocks(partial(_cut, plan))


def _cut(plan: Plan) -> Iterator[Plan]:
    if plan.n_queries <= BLOCK or bool((plan.after >= 0).any()):
        yield plan
        return
    for row in range(0, plan.n_queries, BLOCK):
        rows = slice(row, min(row + BLOCK, plan.n_queries))
        bounds = plan.offsets[row : rows.stop + 1]
        samples = slice(int(bounds[0]), int(bounds[-1]))
        yield replace(
            plan,
            due_ns=plan.due_ns[rows],
            query_id=plan.query_id[rows],
            after=plan.after[rows],
            labels=plan.labels and plan.labels.select(rows),
            offsets=bounds - bounds[0],
            sample_ix=plan.sample_ix[samples],
            payload_ix=plan.payload_ix[samples],
            check=False,
        )


def joined(pieces: Iterable[Plan]) -> Plan:
    """The plan of which these are the pieces, in order. One piece is the plan. Raises ValueError for none.

    Beside the whole there is never more than one column in pieces.
    """
    first, n = None, 0
    columns: dict[str, list[IntArray]] = {name: [] for name in ARRAYS}
    labels: list[QueryLabels | None] = []
    for piece in pieces:
        first, n = first or piece, n + 1
        labels.append(piece.labels)
        for name, parts in columns.items():
            parts.append(np.diff(piece.offsets) if name == "offsets" else getattr(piece, name))
    if first is None:
        raise ValueError("no pieces of a plan: give at least one")
    if n == 1:
        return first
    arrays: dict[str, Any] = {name: np.concatenate(columns.pop(name)) for name in ARRAYS}
    if len(arrays["query_id"]) == n and arrays["query_id"][0] == arrays["query_id"][-1]:  # of one query that goes on
        arrays |= {name: arrays[name][:1] for name in ("due_ns", "query_id", "after")}
        arrays["offsets"] = [len(arrays["sample_ix"])]
    arrays["offsets"] = np.concatenate(([0], np.cumsum(arrays["offsets"])))
    return replace(first, **arrays, labels=QueryLabels.joined(labels), check=False)


def _sharded(make: Callable[[], Iterator[Plan]], i: int, n: int, dealing: Dealing) -> Iterator[Plan]:
    pieces = make()
    begun = [*islice(pieces, 2)]
    # One piece knows all there is, a closed loop keeps all its rows, and each piece of one query is dealt.
    whole = len(begun) == 1 or begun[0].cyclic or goes_on(*begun)
    kept = False
    for piece in chain(begun, pieces):
        if whole:
            yield piece.shard(i, n, dealing)
            continue
        rows = np.flatnonzero(dealt(piece.query_id, n, dealing) == i)
        if len(rows):
            kept = True
            yield piece.select(rows, shared(piece.max_in_flight, i, n))
    if not (whole or kept):
        yield begun[0].select(np.empty(0, np.int64), shared(begun[0].max_in_flight, i, n))
