"""Contradictions inside records: what no honest recorder can have written. Plimsoll's check of itself.

Only the measured rows are looked at: warm-up rows came before t0, where -1 and a time can't be told apart.
This module judges the bookkeeping, never the endpoint.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from plimsoll.slo.records.records import BoolArray, Phase, Records, Stamp, Status

#: Kernel arrival stamps come from another clock than user stamps; comparing the two is good to this.
CLOCK_TOLERANCE_NS = 20_000

#: (earlier, later, compares a user stamp with an arrival): where both happened, the later may not come first.
_ORDER = (
    ("due_ns", "ready_ns", False),
    ("ready_ns", "sent_ns", False),
    ("sent_ns", "first_byte_ns", True),
    ("first_byte_ns", "headers_ns", False),
    ("first_byte_ns", "first_token_ns", False),
    ("first_token_ns", "first_answer_ns", False),
    ("first_token_ns", "last_token_ns", False),
    ("first_answer_ns", "last_token_ns", False),
    ("first_byte_ns", "done_ns", True),
    ("last_token_ns", "done_ns", True),
    ("sent_ns", "done_ns", True),
)

_TIMES = tuple(dict.fromkeys(name for early, late, _ in _ORDER for name in (early, late)))


def find(records: Records) -> list[str]:
    """One text per kind of contradiction, with the number of rows and the first of them; empty: none."""
    lengths = np.diff(records.chunk_offsets)
    if records.chunk_offsets[0] != 0 or records.chunk_offsets[-1] != len(records.chunk_ns) or (lengths < 0).any():
        return ["the offsets of chunk_ns do not partition it"]
    rows = records.in_measure
    found: list[str] = []

    def report(bad: BoolArray, what: str) -> None:
        at = np.flatnonzero(bad & rows)
        if len(at):
            first = int(at[0])
            where = f"query {records['query_id'][first]} sample {records['sample_ix'][first]}"
            found.append(f"{len(at)} rows: {what} (first: {where})")

    slack = np.where(records["stamp"] == Stamp.KERNEL, CLOCK_TOLERANCE_NS, 0)
    for early, late, clocks_differ in _ORDER:
        before, after = records[early], records[late]
        both = (before != -1) & (after != -1)
        report(both & (after + (slack if clocks_differ else 0) < before), f"{late} is earlier than {early}")
    for name in _TIMES:
        report(records[name] < -1, f"{name} is before t0 in a measured row")
    _statuses(records, report)
    report(records["n_chunks"] != lengths, "n_chunks is not the number of chunk_ns")
    falls = np.zeros(len(records), bool)
    down = np.flatnonzero(np.diff(records.chunk_ns) < 0) + 1
    owner = np.searchsorted(records.chunk_offsets, down, side="right") - 1
    falls[owner[records.chunk_offsets[owner] != down]] = True
    report(falls, "chunk_ns goes back in time")
    for name, table in (("error", records.errors), ("server_timing", records.timings)):
        report((records[name] < -1) | (records[name] >= len(table)), f"{name} points outside its table")
    report(_repeated(records), "the same query and sample has more than one row")
    return found


def _statuses(records: Records, report: Callable[[BoolArray, str], None]) -> None:
    """What a status says must have happened, or not."""
    status = records["status"]
    sent, done = records["sent_ns"] != -1, records["done_ns"] != -1
    report((status < 0) | (status >= len(Status)), "status is not a known one")
    report((status == Status.OK) & ~sent, "status is OK but nothing was sent")
    report((status == Status.OK) & ~done, "status is OK but there is no done_ns")
    report((status == Status.UNSENT) & sent, "status is UNSENT but sent_ns is set")
    report(~sent & (records["first_byte_ns"] != -1), "an answer arrived but nothing was sent")
    report((records["attempts"] > 0) != sent, "attempts and sent_ns disagree on whether it was sent")
    report(records["due_ns"] == -1, "due_ns is missing")


def _repeated(records: Records) -> BoolArray:
    """bool[n]: an earlier measured row has this row's query_id and sample_ix."""
    again = np.zeros(len(records), bool)
    rows = np.flatnonzero(records["phase"] == Phase.MEASURE)
    query, sample = records["query_id"][rows], records["sample_ix"][rows]
    order = np.lexsort((sample, query))
    same = (np.diff(query[order]) == 0) & (np.diff(sample[order]) == 0)
    again[rows[order[1:][same]]] = True
    return again
