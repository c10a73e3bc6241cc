"""Turns that wait for others: when each was due once answers had ended, and which were never due.

A later turn's planned due time is the earliest that it could be; its real one is the end of the answer before it and
the difference of their planned times. A turn whose answer before it failed may never have been due: such a one has no
row and is counted. A closed loop takes sessions from a list, whose turns have consecutive numbers; one that an
interrupt cut has a row for the turn that was next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plimsoll.harness.sealing.planned import MEASURED, Samples, places
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.slo.records.records import Records, Status


class Chain:
    """The sessions of a plan, and what became of them so far. ``unreached``: turns that were never due."""

    def __init__(self, plan: Plan) -> None:
        self._query = plan.query_id
        waits = plan.after >= 0
        self._before = np.full(plan.n_queries, -1)
        self._before[waits] = np.searchsorted(self._query, plan.after[waits])
        self._wait = np.where(waits, plan.due_ns - plan.due_ns[self._before], 0)
        self._done = np.full(plan.n_queries, -1)
        self._ok = np.zeros(plan.n_queries, np.bool_)
        self.unreached = 0

    @classmethod
    def of(cls, plan: Blocks) -> Chain | None:
        """None: nothing in this plan waits. What waits is in one piece."""
        return cls(plan.head) if not plan.head.cyclic and bool((plan.head.after >= 0).any()) else None

    def settled(self, samples: Samples, rows: Records) -> Samples:
        """The next samples that were due, when they were, after the rows that there are of them."""
        here = np.flatnonzero(rows.planned)  # those cancelled on purpose are a phase of their own
        query, sample = rows["query_id"][here], rows["sample_ix"][here]
        if not len(samples):
            return samples
        at, known = places(query, sample, samples, 1)
        there = np.zeros(len(samples), np.bool_)
        there[at[known]] = True
        row = self._row(samples.query_id)
        mine = row[at[known]]
        self._done[mine] = rows["done_ns"][here][known]
        self._ok[mine] = rows["status"][here][known] == Status.OK
        before = self._before[row]
        ended = np.where(before >= 0, self._done[before], -1)
        never = (before >= 0) & ~there & ~self._ok[before]
        self.unreached += int(never.sum())
        due = np.where(ended >= 0, ended + self._wait[row], samples.due_ns)
        return replace(samples, due_ns=due).part(~never)

    def _row(self, query: IntArray) -> IntArray:
        return np.minimum(np.searchsorted(self._query, query), len(self._query) - 1)


class Listed:
    """Sessions of a closed loop: how many of the turns that followed a failed one were never due, ``unreached``."""

    def __init__(self, plan: Plan) -> None:
        begins = np.append(np.flatnonzero(plan.after < 0), plan.n_queries)
        self._left = np.repeat(begins[1:], np.diff(begins)) - np.arange(plan.n_queries) - 1
        self._last = self._owed = np.zeros(1, np.int64)  # the row before: its query, and the turns that it owes
        self._unreached = 0
        self._wait, self._payload = np.diff(plan.due_ns, prepend=0), plan.payload_ix
        self._coming = np.empty((3, 0), np.int64)

    @classmethod
    def of(cls, plan: Blocks) -> Listed | None:
        """None: these are no sessions of a closed loop."""
        return cls(plan.head) if plan.head.cyclic and bool((plan.head.after >= 0).any()) else None

    @property
    def unreached(self) -> int:
        return self._unreached + int(self._owed[0])

    def cut(self, rows: Records, end: int) -> tuple[Samples, IntArray]:
        """The turns before this key that were next in their sessions and have no row, and whose each was, after the
        rows before it.
        """
        here = np.flatnonzero(rows.planned & rows.ok)
        here = here[self._left[rows["query_id"][here] % len(self._left)] > 0]
        query = rows["query_id"][here] + 1
        due = rows["done_ns"][here] + self._wait[query % len(self._left)]
        coming = np.append(self._coming, np.stack([query, due, rows["worker"][here]]), axis=1)
        near = MEASURED + coming[0] < end  # whether it has a row, another block knows of the rest
        self._coming, coming = coming[:, ~near], coming[:, near]
        query, due, worker = coming[:, ~np.isin(coming[0], rows["query_id"][rows.planned])]
        none, payload = np.zeros(len(query), np.int64), self._payload[query % len(self._left)]
        return Samples({}, MEASURED + query, query, none, payload, due, none), worker

    def add(self, rows: Records) -> None:
        """The next rows, by rising queries. A failed one that the next turn follows owes nothing."""
        here = np.flatnonzero(rows.planned)
        query = rows["query_id"][here]
        owed = np.where(rows["status"][here] == Status.OK, 0, self._left[query % len(self._left)])
        query, owed = np.append(self._last, query), np.append(self._owed, owed)
        self._unreached += int(owed[:-1][np.diff(query) != 1].sum())
        self._last, self._owed = query[-1:], owed[-1:]
