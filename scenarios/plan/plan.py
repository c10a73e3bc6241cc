"""The plan: every query of a run as data, computed before the run from a seed.

A plan says when each query is due and which samples it carries. It never says how to send them, reads
no clock and knows no protocol. The same scenario and seed give the same arrays on one process or forty;
a local run is shard 0 of 1 of the same plan.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from plimsoll.scenarios.plan.seeds import mixed

IntArray = npt.NDArray[np.int64]

#: How an open loop's queries are dealt. ``turns``: query j to shard ``j % n``, which evens the load out, for processes
#: that share a clock. ``lots``: by a fixed mix of j, for hosts that don't: a part of a Poisson plan drawn by lot is
#: Poisson by itself, and Poisson parts add up to Poisson however their clocks are shifted; every n-th query is nearly
#: even, and shifted parts add up to too even a load.
Dealing = Literal["turns", "lots"]

#: Queries made at a time: what a block needs stays in the processor's cache.
BLOCK = 1 << 14

ARRAYS = ("due_ns", "query_id", "offsets", "sample_ix", "payload_ix", "after")


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop issuing (the rules of MLPerf LoadGen). Queries in flight are always waited for, never cut.

    A closed loop stops when ``issued >= min_queries`` and ``elapsed >= min_duration_ns``; an open loop when
    its list is exhausted (the list is built so that both minima hold). ``max_queries`` ends a closed loop
    exactly there, whatever the minima say; passing ``max_duration_ns`` stops issuing and the run says so.

    In a shard of a closed loop the two counts are the shard's own share.
    """

    min_queries: int = 100
    min_duration_ns: int = 10_000_000_000
    max_duration_ns: int | None = None
    max_queries: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_queries", "min_duration_ns", "max_duration_ns", "max_queries"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"stop.{name} is {value}. Give a number that is not negative.")


@dataclass(frozen=True, slots=True)
class QueryLabels:
    """Labels of a plan's queries, as ``class``, ``session`` and ``turn``. ``columns[label]`` int64[n]: a place in
    ``texts[label]``, or the number itself of a label without texts; -1: the query has none.

    All pieces of a plan have the same labels and texts.
    """

    columns: Mapping[str, IntArray]
    texts: Mapping[str, tuple[str, ...]]

    def select(self, rows: Any) -> QueryLabels:
        """Those of the queries at these places."""
        return QueryLabels({label: column[rows] for label, column in self.columns.items()}, self.texts)

    @staticmethod
    def joined(parts: Sequence[QueryLabels | None]) -> QueryLabels | None:
        """Of pieces in order. Raises ValueError for pieces that are not of one plan."""
        held = [part for part in parts if part is not None]
        if not held:
            return None
        first = held[0]
        names = list(first.columns)
        if any(part is None or [*part.columns] != names or part.texts != first.texts for part in parts):
            raise ValueError("pieces of a plan have other labels, or other texts, than the first. Give all the same")
        return QueryLabels(
            {label: np.concatenate([part.columns[label] for part in held]) for label in names}, first.texts
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Due times, samples and limits of one run, or of one shard of it.

    Row ``r`` is a query of ``offsets[r+1] - offsets[r]`` samples. In an open loop (``cyclic`` false) row r is
    query ``query_id[r]``, due at ``due_ns[r]`` after t0. In a closed loop (``cyclic`` true) the rows are an
    endless list: query ``k`` uses row ``k % len(due_ns)``, and this shard issues the ids
    ``first_id, first_id + id_step, ...`` each when a slot comes free, never before ``due_ns``.

    Fields: ``due_ns`` int64[n], sorted, ns relative to t0 (negative: warm-up); ``query_id`` int64[n], global
    ids; ``offsets`` int64[n+1]; ``sample_ix`` int64[m], position of the sample inside its query;
    ``payload_ix`` int64[m], index into the payload source; ``after`` int64[n], the query this one waits for
    or -1. ``max_in_flight`` is the number of slots of a closed loop; in an open loop it bounds how many
    samples may be on the wire at once, and their due times do not move. ``labels``: what rows of its queries are told
    apart by; None: nothing.

    Raises ``ValueError`` when the fields contradict each other; ``check`` false: they are parts of a plan that was
    looked at.
    """

    due_ns: IntArray
    query_id: IntArray
    offsets: IntArray
    sample_ix: IntArray
    payload_ix: IntArray
    after: IntArray
    stop: Stop
    seed: int
    open_loop: bool
    cyclic: bool = False
    max_in_flight: int | None = None
    first_id: int = 0
    id_step: int = 1
    labels: QueryLabels | None = None
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            if array.flags.writeable:
                # A view of our own: the caller's array stays as writeable as it was.
                array = array.view()
                array.setflags(write=False)
            object.__setattr__(self, name, array)
        if check:
            _check_arrays(self)
            _check_scalars(self)

    @property
    def n_queries(self) -> int:
        """Queries in the list (for a cyclic plan: rows before it repeats)."""
        return len(self.due_ns)

    @property
    def n_samples(self) -> int:
        """Samples in the list."""
        return int(self.offsets[-1])

    @property
    def hurried(self) -> bool:
        """Nobody thinks: each query that waits is due when the answer before it has ended."""
        later = np.flatnonzero(self.after >= 0)
        before = np.searchsorted(self.query_id, self.after[later])
        return bool(len(later)) and np.array_equal(self.due_ns[later], self.due_ns[before])

    def shard(self, i: int, n: int, dealing: Dealing = "turns") -> Plan:
        """Part ``i`` of ``n``; the parts together are this plan, each query or sample in exactly one of them.

        Open loop: as ``owners`` says. Closed loop, whatever the ``dealing``: every shard keeps all rows, issues
        every n-th id and gets its share of the slots and of the stop counts.
        Raises ``ValueError`` for a shard that cannot be, or more shards than slots.
        """
        if n < 1 or not 0 <= i < n:
            raise ValueError(f"there is no shard {i} of {n}. Give 0 <= i < n.")
        if n == 1:
            return self
        slots = shared(self.max_in_flight, i, n)
        if self.cyclic:
            return self._shard_closed(i, n, slots)
        mine = self.owners(n, dealing) == i
        if self.n_queries == 1:
            return self._shard_samples(mine, slots)
        return self.select(np.flatnonzero(mine if len(mine) == self.n_queries else mine[self.offsets[:-1]]), slots)

    def owners(self, n: int, dealing: Dealing = "turns") -> IntArray:
        """int64[m], of each sample of an open loop: which of ``n`` shards sends it.

        A query goes whole, and one that waits for another goes where that one goes; a plan of one query has its samples
        dealt in turns. The shard by ``lots`` is output number ``query_id`` of SplitMix64 started at 0, modulo n. Raises
        ``ValueError`` for a closed loop, whose ids nobody knows beforehand.
        """
        if self.cyclic:
            raise ValueError("a closed loop has no list of queries to be dealt.")
        if self.n_queries == 1:
            return self.sample_ix % n
        first = first_of_session(self)
        rows = dealt(first if dealing == "turns" else self.query_id[first], n, dealing)
        return rows if self.n_samples == self.n_queries else np.repeat(rows, np.diff(self.offsets))

    def fingerprint(self) -> str:
        """SHA-256 in hex over everything that the plan says; equal plans have equal fingerprints on any machine."""
        made = Fingerprint()
        made.add(self)
        return made.hex()

    def _shard_closed(self, i: int, n: int, slots: int | None) -> Plan:
        stop = self.stop
        most = None if stop.max_queries is None else _share(stop.max_queries, i, n)
        return replace(
            self,
            stop=replace(stop, min_queries=_share(stop.min_queries, i, n), max_queries=most),
            max_in_flight=slots,
            first_id=self.first_id + i * self.id_step,
            id_step=self.id_step * n,
        )

    def _shard_samples(self, mine: npt.NDArray[np.bool_], slots: int | None) -> Plan:
        count = int(mine.sum())
        rows = slice(0, 1 if count else 0)  # a query without samples is no query
        return replace(
            self,
            due_ns=self.due_ns[rows],
            query_id=self.query_id[rows],
            after=self.after[rows],
            labels=self.labels and self.labels.select(rows),
            offsets=np.asarray([0, count] if count else [0], dtype=np.int64),
            sample_ix=self.sample_ix[mine],
            payload_ix=self.payload_ix[mine],
            max_in_flight=slots,
        )

    def select(self, rows: IntArray, slots: int | None) -> Plan:
        """The rows at these places, ascending, and so many slots."""
        begins = self.offsets[rows]
        lengths = self.offsets[rows + 1] - begins
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        # Position of each kept sample in the whole plan: its row's start plus its place inside the row.
        samples = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        return replace(
            self,
            due_ns=self.due_ns[rows],
            query_id=self.query_id[rows],
            after=self.after[rows],
            labels=self.labels and self.labels.select(rows),
            offsets=offsets,
            sample_ix=self.sample_ix[samples],
            payload_ix=self.payload_ix[samples],
            max_in_flight=slots,
            check=False,
        )


def dealt(number: IntArray, n: int, dealing: Dealing) -> IntArray:
    """Which of ``n`` shards gets each of these queries."""
    drawn = number if dealing == "turns" else mixed(0, number)
    whole = drawn // drawn.dtype.type(n)  # numpy divides by one number fast, and has no such remainder
    whole *= drawn.dtype.type(n)
    found: IntArray = np.subtract(drawn, whole, out=whole).astype(np.int64, copy=False)
    return found


def shared(slots: int | None, i: int, n: int) -> int | None:
    """Shard i's part of the slots. Raises ``ValueError`` for more shards than slots."""
    if slots is not None and slots < n:
        raise ValueError(
            f"{slots} slots cannot be dealt to {n} workers. "
            f"Use at most {slots} workers, or raise the concurrency to {n}."
        )
    return None if slots is None else _share(slots, i, n)


def _share(count: int, i: int, n: int) -> int:
    """How many of 0..count-1 are i modulo n."""
    return (count - i + n - 1) // n if count > i else 0


def first_of_session(plan: Plan) -> IntArray:
    """The row that decides a row's shard: itself, or that of the query it (in the end) waits for."""
    key = np.arange(plan.n_queries)
    waits = plan.after >= 0
    if not waits.any():
        return key
    # Every query waits for an earlier one, so doubling the pointers ends at the first of each session.
    key[waits] = np.searchsorted(plan.query_id, plan.after[waits])
    while not np.array_equal(key[key], key):
        key = key[key]
    return key


def _check_arrays(plan: Plan) -> None:
    n = len(plan.due_ns)
    for name in ARRAYS:
        if getattr(plan, name).ndim != 1:
            raise ValueError(f"plan.{name} has {getattr(plan, name).ndim} dimensions, not one.")
    for name, expected in (("query_id", n), ("after", n), ("offsets", n + 1)):
        if len(getattr(plan, name)) != expected:
            raise ValueError(f"plan.{name} has {len(getattr(plan, name))} entries; {n} due times need {expected}.")
    if plan.offsets[0] != 0 or (np.diff(plan.offsets) < 1).any():
        raise ValueError("plan.offsets must start at 0 and rise: every query has at least one sample.")
    for name in ("sample_ix", "payload_ix"):
        array = getattr(plan, name)
        if len(array) != plan.offsets[-1]:
            raise ValueError(f"plan.{name} has {len(array)} entries; plan.offsets ends at {plan.offsets[-1]}.")
        if len(array) and array.min() < 0:
            raise ValueError(f"plan.{name} holds {array.min()}; indices are not negative.")
    if (np.diff(plan.due_ns) < 0).any():
        row = int(np.argmax(np.diff(plan.due_ns) < 0)) + 1
        raise ValueError(f"plan.due_ns is not sorted: row {row} is due before row {row - 1}.")
    if n and (plan.query_id[0] < 0 or (np.diff(plan.query_id) < 1).any()):
        raise ValueError("plan.query_id must rise from row to row and not be negative.")
    waits = plan.after >= 0
    if (plan.after < -1).any() or (plan.after[waits] >= plan.query_id[waits]).any():
        raise ValueError("plan.after must be -1 or the id of an earlier query.")
    if not np.isin(plan.after[waits], plan.query_id).all():
        raise ValueError("plan.after names a query that is not in the plan.")
    labels = plan.labels or QueryLabels({}, {})
    for label, column in labels.columns.items():
        most = len(labels.texts[label]) if label in labels.texts else 1 << 62
        if len(column) != n or (n and not -1 <= column.min() <= column.max() < most):
            raise ValueError(f"plan.labels[{label}] has another length than due_ns, or a place without a text.")


def _check_scalars(plan: Plan) -> None:
    if not 0 <= plan.seed < 1 << 64:
        raise ValueError(f"plan.seed is {plan.seed}. Give a number from 0 to 2^64 - 1.")
    if plan.max_in_flight is not None and plan.max_in_flight < 1:
        raise ValueError(f"plan.max_in_flight is {plan.max_in_flight}. Give at least 1, or None for no limit.")
    if plan.cyclic == plan.open_loop:
        raise ValueError("a plan is either an open loop (a list) or a closed loop (cyclic), not both or neither.")
    if plan.cyclic and plan.max_in_flight is None:
        raise ValueError("a closed loop needs plan.max_in_flight: the number of its slots.")
    if plan.cyclic and not plan.n_queries:
        raise ValueError("a closed loop needs at least one row to repeat.")
    if plan.id_step < 1 or not 0 <= plan.first_id < plan.id_step:
        raise ValueError(f"plan.first_id {plan.first_id} must be at least 0 and below plan.id_step {plan.id_step}.")


class Fingerprint:
    """The same digest whatever the pieces. Of each column only what can't be foretold is hashed: most plans count their
    queries from 0, give each as many samples as the one before, number these from 0, and let none wait.
    """

    SCHEMA = "plimsoll.plan/2"

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in (*ARRAYS, "scalars")}
        self._query, self._sample, self._next, self._length = 0, 0, 0, 1
        self._foretold: tuple[IntArray, ...] = ()

    def add(self, piece: Plan) -> None:
        """The next rows."""
        if not self._query:
            scalars = {f.name: getattr(piece, f.name) for f in fields(piece) if f.name not in (*ARRAYS, "labels")}
            if piece.labels is not None:
                scalars["labels"] = [(label, piece.labels.texts.get(label)) for label in piece.labels.columns]
            self._columns["scalars"].update(repr({**scalars, "stop": asdict(piece.stop)}).encode())
        for label, column in piece.labels.columns.items() if piece.labels is not None else ():
            self._columns.setdefault(f"label {label}", hashlib.sha256()).update(_bytes(column))
        n, m = piece.n_queries, piece.n_samples
        self._columns["payload_ix"].update(_bytes(piece.payload_ix))
        if self._query == n == 1 and int(piece.query_id[0]) == self._next - 1:  # the only query goes on
            self._columns["offsets"] = hashlib.sha256()
            self._length += m
            self._odd("offsets", 0, np.array([self._length]), np.ones(1, np.int64))
            self._odd("sample_ix", self._sample, piece.sample_ix, np.arange(self._sample, self._sample + m))
            self._sample += m
            return
        self._columns["due_ns"].update(_bytes(piece.due_ns))
        if not n:
            return
        if int(piece.query_id[0]) != self._next or (piece.query_id[1:] != piece.query_id[:-1] + 1).any():
            self._odd("query_id", self._query, piece.query_id, np.append(self._next, piece.query_id[:-1] + 1))
        rest = piece.offsets, piece.after, piece.sample_ix
        if not (self._foretold and all(map(operator.is_, rest, self._foretold))):  # pieces may share what is alike
            lengths = np.diff(piece.offsets)
            odd = self._odd("offsets", self._query, lengths, np.append(self._length, lengths[:-1]))
            odd |= self._odd("after", self._query, piece.after, np.broadcast_to(np.int64(-1), n))
            places = np.zeros(m, np.int64) if m == n else np.arange(m) - np.repeat(piece.offsets[:-1], lengths)
            odd |= self._odd("sample_ix", self._sample, piece.sample_ix, places)
            self._foretold = () if odd or lengths[0] != lengths[-1] else rest
            self._length = int(lengths[-1])
        self._query, self._sample = self._query + n, self._sample + m
        self._next = int(piece.query_id[-1]) + 1

    def _odd(self, name: str, begin: int, values: IntArray, foretold: IntArray) -> bool:
        """Whether there was anything that is not as foretold."""
        at = np.flatnonzero(values != foretold)
        if len(at):
            self._columns[name].update(_bytes(np.stack((at + begin, values[at]), axis=1)))
        return bool(len(at))

    def hex(self) -> str:
        """Of all rows so far."""
        digest = hashlib.sha256(f"{self.SCHEMA}\0{self._query}\0{self._sample}".encode())
        for name, column in self._columns.items():
            digest.update(name.encode() + column.digest())
        return digest.hexdigest()


def _bytes(values: IntArray) -> memoryview:
    return np.ascontiguousarray(values, "<i8").data
