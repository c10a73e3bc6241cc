"""Queries of several samples: their rows brought together, and what each query as a whole did.

A query is done when its last sample is. It failed when one of its samples did: then every time of it is infinite, for
the answer to a query is all of its samples. The rows of a query are those of one id in one phase; queries of one
``frame_set`` are one, which is due with its first. This module aggregates nothing over a run; the indicators of scope
``query`` are made of it.
"""

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from plimsoll.slo.records.columns import BLOCK
from plimsoll.slo.records.labels import SET
from plimsoll.slo.records.records import (
    BoolArray,
    Compute,
    FloatArray,
    IntArray,
    Records,
    SessionTable,
    blank,
    span_of,
)

_NEVER = np.inf


@dataclass(frozen=True, slots=True)
class Queries:
    """One entry per query, in order of due time within each phase (then by id).

    ``of`` int64[rows]: the query that each row of the records belongs to; ``first`` int64[m]: its row of the lowest
    sample; ``phase``, ``due_ns``, ``deadline_ns`` (-1: none) int64[m]; ``first_done``, ``last_done`` float64[m]: when
    its first and its last sample were done, +inf where a sample failed; ``over`` float64[m]: when its last sample was
    over, failed ones included, +inf where one has no end; ``known`` bool[m]: every sample that succeeded has an end.
    """

    of: IntArray
    first: IntArray
    phase: IntArray
    due_ns: IntArray
    deadline_ns: IntArray
    first_done: FloatArray
    last_done: FloatArray
    over: FloatArray
    known: BoolArray

    @property
    def frames(self) -> BoolArray:
        """bool[m]: the query had a deadline."""
        return np.asarray(self.deadline_ns >= 0)

    @property
    def latency(self) -> FloatArray:
        """float64[m]: from due to the last sample's end."""
        return self.last_done - self.due_ns

    def whole(self, marked: BoolArray) -> BoolArray:
        """bool[rows]: every sample of the row's query is ``marked`` bool[rows]."""
        without = np.zeros(len(self.first), np.bool_)
        without[self.of[~marked]] = True
        return ~without[self.of]


def deadlines(records: Records) -> IntArray:
    """int64[n]: how long after due each row's query was to be done, -1 for no such promise."""
    session = records.session
    return (blank(len(records)) if session is None else session).columns["deadline_ns"]


def with_deadline(records: Records, deadline_ns: int) -> Records:
    """The same rows, each query given ``deadline_ns`` from its due time; 0: as they are."""
    if deadline_ns <= 0:
        return records
    session = records.session if records.session is not None else blank(len(records))
    deadline = {"deadline_ns": np.broadcast_to(np.int64(deadline_ns), (len(records),))}
    columns = MappingProxyType(ChainMap(deadline, session.columns))  # type: ignore[arg-type]
    return replace(records, session=SessionTable(columns, session.ragged, session.slices))


def framed(records: Records) -> bool:
    """Whether any query is a frame, with a deadline."""
    return bool((deadlines(records) >= 0).any())


def applies(records: Records) -> bool:
    """Whether queries differ from samples here: some query has several samples, or frames have deadlines.

    A run of one single query (``offline``) is told by its samples.
    """
    if framed(records):
        return True
    if span_of(records.columns["sample_ix"])[1] <= 0:
        return False
    least, most = span_of(records.measured().columns["query_id"])
    return least < most


def representatives(records: Records) -> IntArray:
    """int64[m]: one row of each query, in the order of ``Queries``."""
    return together(records).first


def together(records: Records) -> Queries:
    query, phase, due = records["query_id"], records["phase"], records["due_ns"]
    if (sets := None if records.labels is None else records.labels.columns.get(SET)) is None:
        order = _order(records)
    else:
        query = np.where(sets >= 0, sets, query)
        order = _by_set(query, phase, due)
    ordered, phases = (query, phase) if order is None else (query[order], phase[order])
    new = np.ones(len(query), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]) | (phases[1:] != phases[:-1])
    starts = np.flatnonzero(new)
    of = np.cumsum(new) - 1
    first = starts
    done = records["done_ns"].astype(np.float64)
    done[records["done_ns"] == -1] = _NEVER
    good = np.where(records.ok, done, _NEVER)
    endless = records.ok & np.isinf(done)
    if order is not None:
        of[order], first = of.copy(), order[starts]
        good, done, endless = good[order], done[order], endless[order]
    last_done, first_done, over = good, good, done
    if 0 < len(starts) < len(of):  # else each sample is a query
        last_done = np.maximum.reduceat(good, starts)
        first_done = np.where(np.isfinite(last_done), np.minimum.reduceat(good, starts), _NEVER)
        over, endless = np.maximum.reduceat(done, starts), np.logical_or.reduceat(endless, starts)
    return Queries(
        of, first, phase[first], due[first], deadlines(records)[first], first_done, last_done, over, ~endless
    )


def _by_set(query: IntArray, phase: IntArray, due: IntArray) -> IntArray:
    """int64[n]: the rows by phase, due time of the set, set, and due time."""
    order = np.lexsort((due, query, phase))
    new = np.append(True, (np.diff(query[order]) != 0) | (np.diff(phase[order]) != 0))[: len(query)]
    begun = np.empty(len(query), np.int64)
    begun[order] = due[order][new][np.cumsum(new) - 1]
    return np.lexsort((due, query, begun, phase))


def _order(records: Records) -> IntArray | None:
    """int64[n]: the rows by phase, due time, query and sample; None: as they are."""
    names = ("phase", "due_ns", "query_id", "sample_ix")
    columns = [records[name] for name in names]
    if _rising(columns):
        return None
    due = columns[1]
    if not _rising([columns[0], *columns[2:]]) or span_of(columns[0])[0] != span_of(columns[0])[1]:
        return np.lexsort(columns[::-1])
    # Rows of one phase by query and sample, as a closed loop has them: by due time, and of the same one as they are.
    order = np.argsort(due)
    ties = np.zeros(len(due) + 1, np.bool_)
    ties[1:-1] = due[order[1:]] == due[order[:-1]]
    tied = np.flatnonzero(ties[1:] | ties[:-1])
    keys = np.cumsum(~ties[tied]) * len(due) + order[tied]
    keys.sort()
    order[tied] = keys % len(due)
    return order


def _rising(columns: Sequence[IntArray]) -> bool:
    """No row comes before the one above it: by the first of these columns, then by the next."""
    n = len(columns[0])
    for begin in range(0, n, BLOCK):
        equal = np.ones(min(begin + BLOCK, n - 1) - begin, np.bool_)
        for column in columns:
            some = column[begin : begin + BLOCK + 1]
            if bool((equal & (some[1:] < some[:-1])).any()):
                return False
            equal &= some[1:] == some[:-1]
    return True


def each(found: Queries, values: FloatArray, valid: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Values of queries as values of rows: every row has its query's."""
    return values[found.of], (valid & found.known)[found.of]


def of_queries(value: Callable[[Queries], FloatArray]) -> Compute:
    """A metric's ``compute``, of a value that every query has; nothing where no query differs from its samples."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        if not applies(records):
            return none(records)
        found = together(records)
        return each(found, value(found), np.ones(len(found.first), np.bool_))

    return compute


def of_frames(value: Callable[[Queries], FloatArray | BoolArray]) -> Compute:
    """A metric's ``compute``, of a value that every frame has; nothing in a run without frames."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        if not framed(records):
            return none(records)
        found = together(records)
        return each(found, value(found).astype(np.float64), found.frames)

    return compute


def none(records: Records) -> tuple[FloatArray, BoolArray]:
    """No row has a value."""
    return np.full(len(records), np.nan), np.zeros(len(records), np.bool_)
