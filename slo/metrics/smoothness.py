"""Does a reader who reads along ever wait? He begins at the first token and takes ``pace`` for each.

With a_i the arrival of token i and r_i the moment it has been read: r_0 = a_0 + pace, and then idle += max(0, a_i -
r_{i-1}), r_i = max(a_i, r_{i-1}) + pace. Tokens that came early are a store to live on, so a long gap behind a fast
beginning costs nothing, and one that empties the store is a stall. Reported: the time he waited in all, how often he had
to, and the share of tokens that were there when he wanted them. The wait for the first token is ``ttft``, not this.

Needs no promise about the server, only how fast one reads. The idea of judging a stream by its reader is that of smooth
goodput (arXiv 2410.14257); the names and the numbers here are Plimsoll's own.
"""

from __future__ import annotations

import numpy as np

from plimsoll.slo.metrics.deadlines import Met, against, tokens_of
from plimsoll.slo.records.records import FloatArray, IntArray, Records

#: 0.1 s a token, about 450 English words a minute: faster than nearly everybody reads.
PACE_NS = 100_000_000


def reading(records: Records, pace_ns: int = PACE_NS) -> Met:
    """A reader of every record: ``waited_ns`` is his idle time, ``late`` his stalls."""
    return against(records, first_chunk(records), 0, pace_ns, tokens_of(records))


def share_in_time(met: Met) -> FloatArray:
    """Tokens that were there when wanted, per token; NaN where there is none."""
    return np.where(met.tokens > 0, (met.tokens - met.late) / np.maximum(met.tokens, 1), np.nan)


def first_chunk(records: Records) -> IntArray:
    """int64[n]: when the first chunk came; -1 without one."""
    has = np.diff(records.chunk_offsets) > 0
    first = np.full(len(records), -1, np.int64)
    first[has] = records.chunk_ns[records.chunk_offsets[:-1][has]]
    return first
