"""Chunks that one read brought together: only the last of them has a time of its own.

The kernel keeps one arrival time a read, that of the last segment in it (it joins segments that wait in the socket, so
that shorter reads would not tell more). Two chunks with the same time therefore came in one read: either the server wrote
them together, or the generator came late to a socket that already held both. The earlier one arrived somewhere between the
read before and the time it carries. This module finds them and bounds that error; it corrects nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import BoolArray, IntArray, Records

#: With a larger share of such chunks the report says so beside the gaps.
WARN_SHARE = 0.01


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


def marks(records: Records) -> BoolArray:
    """bool[number of chunks]: the chunk carries the time of the next chunk of its row."""
    times = records.chunk_ns
    same = np.zeros(len(times), np.bool_)
    if len(times) > 1:
        same[:-1] = times[1:] == times[:-1]
        ends = records.chunk_offsets[1:] - 1
        same[ends[np.diff(records.chunk_offsets) > 0]] = False  # the next chunk is another row's
    return same


def measure(records: Records) -> Merged:
    """Count the merged chunks and bound their error by the read before, or by the time the request was sent."""
    same = marks(records)
    which = np.flatnonzero(same)
    if len(which) == 0:
        return Merged(len(same), 0, None)
    wait = np.sort(records.chunk_ns[which] - _earliest(records, which))
    return Merged(len(same), len(which), int(wait[-(-99 * len(wait) // 100) - 1]))


def _earliest(records: Records, which: IntArray) -> IntArray:
    """For each of these chunks the last time known to be before it: an earlier chunk with another time, or sent_ns."""
    # Chunks of one read are neighbours, and the marks of a row's last chunk keep rows apart: runs of `which` are the reads.
    first = np.append(True, np.diff(which) != 1)
    begin = which[np.maximum.accumulate(np.where(first, np.arange(len(which)), 0))]
    row = np.searchsorted(records.chunk_offsets, which, side="right") - 1
    opens = records.chunk_offsets[row] == begin
    return np.asarray(np.where(opens, records["sent_ns"][row], records.chunk_ns[begin - 1]))
