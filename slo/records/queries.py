"""Queries of several samples: their rows brought together, and what each query as a whole did.

A query is done when its last sample is. It failed when one of its samples did: then every time of it is infinite, for
the answer to a query is all of its samples. The rows of a query are those of one id in one phase. This module
aggregates nothing over a run; the indicators of scope ``query`` are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records, blank, freeze

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
    return np.full(len(records), -1) if session is None else session.columns["deadline_ns"]


def with_deadline(records: Records, deadline_ns: int) -> Records:
    """The same rows, each query given ``deadline_ns`` from its due time; 0: as they are."""
    if deadline_ns <= 0:
        return records
    session = records.session if records.session is not None else blank(len(records))
    columns = {**session.columns, "deadline_ns": np.full(len(records), deadline_ns)}
    return replace(records, session=freeze(columns, session.ragged, session.slices))


def applies(records: Records) -> bool:
    """Whether queries differ from samples here: some query has several samples, or frames have deadlines.

    A run of one single query (``offline``) is told by its samples.
    """
    if bool((deadlines(records) >= 0).any()):
        return True
    several = records["sample_ix"] > 0
    return bool(several.any()) and len(np.unique(records["query_id"][records.in_measure])) > 1


def representatives(records: Records) -> IntArray:
    """int64[m]: one row of each query, in the order of ``Queries``."""
    return together(records).first


def together(records: Records) -> Queries:
    """The queries of these records."""
    query, phase, due = records["query_id"], records["phase"], records["due_ns"]
    order = np.lexsort((records["sample_ix"], query, due, phase))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(query[order]) != 0) | (np.diff(phase[order]) != 0)
    starts = np.flatnonzero(new)
    of = np.empty(len(order), np.int64)
    of[order] = np.cumsum(new) - 1
    done = np.where(records["done_ns"] != -1, records["done_ns"].astype(np.float64), _NEVER)
    good = np.where(records.ok, done, _NEVER)[order]
    first = order[starts]
    if not len(starts):
        nothing = np.empty(0)
        return Queries(of, first, phase, due, deadlines(records), nothing, nothing, nothing, np.empty(0, np.bool_))
    last_done = np.maximum.reduceat(good, starts)
    first_done = np.where(np.isfinite(last_done), np.minimum.reduceat(good, starts), _NEVER)
    over = np.maximum.reduceat(done[order], starts)
    known = ~np.logical_or.reduceat((records.ok & np.isinf(done))[order], starts)
    return Queries(of, first, phase[first], due[first], deadlines(records)[first], first_done, last_done, over, known)


def each(found: Queries, values: FloatArray, valid: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Values of queries as values of rows: every row has its query's."""
    return values[found.of], (valid & found.known)[found.of]


def none(records: Records) -> tuple[FloatArray, BoolArray]:
    """No row has a value."""
    return np.full(len(records), np.nan), np.zeros(len(records), np.bool_)
