"""Fluidity: does each token come before its deadline, with time saved early spent later? Two definitions, as Etalon's
documentation and as its code have it.

The first token is due ``prefill`` after the start, each other one ``decode`` after the one before, plus the slack that
earlier tokens saved; a miss uses the slack up. By the documentation the index is the share of tokens on time. By the code
a miss counts one deadline for each ``decode`` that passed, and the index is the share of deadlines that were met, so a
long stall weighs more than a short one. The two agree when nothing is missed, and otherwise they don't.

No longer wait raises either index as long as no other wait gets shorter. To hold back one token without those behind it
shortens the next wait, and can raise both: that is a property of the index, and tests/unit/slo/test_fluidity.py shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.metrics.deadlines import Met, against, tokens_of
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records

#: Deadlines where none were promised: the first token after half a second, ten tokens a second after it.
PREFILL_NS = 500_000_000
DECODE_NS = 100_000_000
#: Etalon's fluid token rate lets a tenth of the deadlines pass, and finds the pace to this precision.
MISS_RATE = (1, 10)
PRECISION_NS = 1_000
#: Requests are picked evenly until they hold this many chunks: the search reads each of them some twenty times.
SEARCHED_CHUNKS = 1_000_000


def share_on_time(met: Met) -> FloatArray:
    """Etalon's documentation: tokens on time per token; NaN where there is none."""
    return _share(met.tokens - met.late, met.tokens)


def share_of_deadlines(met: Met) -> FloatArray:
    """Etalon's code: 1 - missed deadlines / deadlines; NaN where there is none."""
    on_time = met.tokens - met.late
    return _share(on_time, on_time + met.missed)


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def measure(
    records: Records,
    start_ns: IntArray,
    prefill_ns: int = PREFILL_NS,
    decode_ns: int = DECODE_NS,
    per_chunk: bool = False,
) -> Met:
    """The tokens of every record against both deadlines; ``per_chunk`` takes each chunk for one token, as Etalon does."""
    return against(records, start_ns, prefill_ns, decode_ns, tokens_of(records, per_chunk))


@dataclass(frozen=True, slots=True)
class FluidPace:
    """``pace_ns`` float64[requests looked at]: the shortest decode deadline of which at most a tenth was missed."""

    pace_ns: FloatArray
    looked_at: int
    of: int


def fluid_pace(records: Records, rows: BoolArray) -> FluidPace:
    """Etalon's search for each of the rows (bool[n]) with two chunks or more, the first token left out.

    Bisection between 0 and the longest gap, as Etalon does it, though the miss rate need not fall evenly. On long runs an
    even pick of the requests is searched, and the result says how many.
    """
    usable = np.flatnonzero(rows & (np.diff(records.chunk_offsets) > 1))
    lengths = np.diff(records.chunk_offsets)[usable]
    total = int(lengths.sum())
    picked = usable[:: max(-(-total // SEARCHED_CHUNKS), 1)]
    if not len(picked):
        return FluidPace(np.empty(0), 0, len(usable))
    some = records.select(picked)
    first = some.chunk_ns[some.chunk_offsets[:-1]]
    chunks = np.diff(some.chunk_offsets)
    low = np.zeros(len(picked), np.int64)
    gaps = np.diff(some.chunk_ns, prepend=0)
    gaps[some.chunk_offsets[:-1]] = 0  # the step into a request's first chunk is no gap
    high = np.maximum.reduceat(gaps, some.chunk_offsets[:-1])
    while bool((high - low > PRECISION_NS).any()):
        middle = np.maximum((low + high) // 2, 1)
        met = against(some, first, 0, middle, chunks)
        # The first token is never late here, and Etalon leaves it out.
        deadlines = chunks - 1 - met.late + met.missed
        kept = met.missed * MISS_RATE[1] <= deadlines * MISS_RATE[0]
        high = np.where(kept, middle, high)
        low = np.where(kept, low, middle)
    return FluidPace(high.astype(np.float64), len(picked), len(usable))
