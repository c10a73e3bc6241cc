"""A stream of tokens against a moving deadline, for every request at once: the arithmetic under fluidity and reading.

Token k of a request is wanted at ``start + grace + k * pace``; whoever is kept waiting goes on from where he was kept,
so each wait moves every later deadline. With the lateness L of a chunk (its arrival less its wanted time) a chunk is
late exactly when L is above 0 and above every L before it, by ``L - max(0, earlier L)``. So running maxima replace the
recursion, and fifty million chunks need no loop over chunks.

Records hold the time of chunks and the number of tokens, not which chunk brought which: tokens are taken to be spread
evenly, chunk j after floor(j * tokens / chunks) of them, and a chunk to bring at least one. Integers in ns throughout.
Nothing is judged here, and no status is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.metrics.speech import sounds
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records

#: Chunks and rows looked at together: what fits in a processor's cache.
SLAB = 500_000
_ROWS = 1 << 13
#: So few rows are taken one by one, however many chunks they have.
_FEW = 16
#: A server may count as it likes; with more tokens than this in one answer the arithmetic would overflow.
MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Met:
    """Per record: ``tokens`` int64[n] of its answer, ``late`` of them that came after they were wanted, ``waited_ns``
    for them in all, ``missed``: deadlines that passed without a token, counting one each ``pace`` of a wait. All 0
    where ``valid`` bool[n] says that there is nothing to say.
    """

    tokens: IntArray
    late: IntArray
    waited_ns: IntArray
    missed: IntArray
    valid: BoolArray


def slabs(records: Records, most: int = SLAB) -> Iterator[tuple[int, int]]:
    """Ranges of rows [first, last) with at most so many chunks, or of one row; never of very many."""
    offsets = records.chunk_offsets
    first, n = 0, len(records)
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = min(max(last, first + 1), first + _ROWS, n)
        yield first, last
        first = last


def tokens_of(records: Records, per_chunk: bool = False) -> IntArray:
    """Tokens of each record: as counted, but at least one a chunk. ``per_chunk``: chunks, whatever was counted."""
    chunks = np.diff(records.chunk_offsets)
    counted = np.minimum(records["n_out"], MOST_TOKENS)
    return chunks if per_chunk else np.where(chunks > 0, np.maximum(counted, chunks), 0)


def against(
    records: Records, start_ns: IntArray, grace_ns: int, pace_ns: IntArray | int, tokens: IntArray, slab: int = SLAB
) -> Met:
    """Measure every record against its deadlines. ``start_ns`` int64[n] (-1: none, the record is not valid); ``tokens``
    as ``tokens_of`` gives them; ``pace_ns`` >= 1, one for all or int64[n].
    """
    n = len(records)
    pace = np.broadcast_to(np.asarray(pace_ns, np.int64), (n,))
    late, waited, missed = (np.zeros(n, np.int64) for _ in range(3))
    valid = (np.diff(records.chunk_offsets) > 0) & (start_ns != -1) & ~sounds(records)
    for first, last in slabs(records, slab):
        rows = np.flatnonzero(valid[first:last]) + first
        if len(rows):
            some = _Streams(records, rows, first, last)
            late[rows], waited[rows], missed[rows] = some.met(start_ns[rows] + grace_ns, pace[rows], tokens[rows])
    return Met(np.where(valid, tokens, 0), late, waited, missed, valid)


class _Streams:
    """The chunks of some rows that all have some, side by side: the k-th of every row that has so many is one array,
    the longest rows first. Where only ``_FEW`` rows go on, the rest of each is an array of its own.
    """

    __slots__ = ("columns", "lengths", "order", "rests")

    def __init__(self, records: Records, rows: IntArray, first: int, last: int) -> None:
        """``rows`` are some of those from ``first`` to ``last``."""
        chunks, offsets = records.chunks.part(first, last), records.chunk_offsets
        begin, lengths = offsets[rows] - offsets[first], offsets[rows + 1] - offsets[rows]
        even = bool((lengths == lengths[0]).all())
        self.order = None if even else np.argsort(-lengths, kind="stable")
        if self.order is not None:
            begin, lengths = begin[self.order], lengths[self.order]
        self.lengths = lengths
        self.columns: list[IntArray] = []
        going = len(rows)
        while going > _FEW:
            self.columns.append(chunks[begin[:going] + len(self.columns)])
            going = int(np.searchsorted(-lengths, -len(self.columns), side="left"))
        at, ends = begin[:going] + len(self.columns), begin[:going] + lengths[:going]
        self.rests = [chunks[i:j] for i, j in zip(at.tolist(), ends.tolist(), strict=True)]

    def met(
        self, wanted_ns: IntArray, pace_ns: IntArray, tokens: IntArray, in_time: int = 0
    ) -> tuple[IntArray, IntArray, IntArray]:
        """(late, waited, missed) of each row, whose first token is wanted at ``wanted_ns``.

        ``in_time``: so many chunks of each are known to be.
        """
        if self.order is not None:
            wanted_ns, pace_ns, tokens = wanted_ns[self.order], pace_ns[self.order], tokens[self.order]
        late, waited, missed = (np.zeros(len(self.lengths), np.int64) for _ in range(3))
        single = bool((tokens == self.lengths).all())
        for k in range(in_time, len(self.columns)):
            times = self.columns[k]
            n = len(times)
            before = k if single else k * tokens[:n] // self.lengths[:n]
            more = times - wanted_ns[:n]
            if k:
                more -= before * pace_ns[:n]
                more -= waited[:n]
            over = more > 0
            number_of = np.count_nonzero(over)
            if number_of * 4 > n:
                np.maximum(more, 0, out=more)
                late[:n] += over
                waited[:n] += more
                missed[:n] += more // pace_ns[:n]
            elif number_of:
                at = np.flatnonzero(over)
                by = more[at]
                late[at] += 1
                waited[at] += by
                missed[at] += by // pace_ns[at]
        for i, times in enumerate(self.rests):
            before = np.arange(self.lengths[i] - len(times), self.lengths[i]) * tokens[i] // self.lengths[i]
            level = np.append(waited[i], times - wanted_ns[i] - before * pace_ns[i])
            steps = np.diff(np.maximum.accumulate(level))
            steps = steps[steps > 0]
            late[i] += len(steps)
            waited[i] += steps.sum()
            missed[i] += (steps // pace_ns[i]).sum()
        missed += late
        if self.order is None:
            return late, waited, missed
        back = np.empty_like(self.order)
        back[self.order] = np.arange(len(back))
        return late[back], waited[back], missed[back]


# -- fluidity: each token has a deadline, and time saved early is spent later -----------------------------------------

# The first token is due ``prefill`` after the start, each other one ``decode`` after the one before, plus the slack
# that earlier tokens saved; a miss uses the slack up. By the documentation the index is the share of tokens on time. By
# the code a miss counts one deadline for each ``decode`` that passed, and the index is the share of deadlines that were
# met, so a long stall weighs more than a short one. The two agree when nothing is missed, and otherwise they don't.
#
# No longer wait raises either index as long as no other wait gets shorter. To hold back one token without those behind
# it shortens the next wait, and can raise both: that is a property of the index, and tests/unit/slo/test_fluidity.py
# shows it.

#: Deadlines where none were promised: the first token after half a second, ten tokens a second after it.
PREFILL_NS = 500_000_000
DECODE_NS = 100_000_000
#: Etalon's fluid token rate lets a tenth of the deadlines pass, and finds the pace to this precision.
MISS_RATE = (1, 10)
PRECISION_NS = 1_000
#: Requests are picked evenly until they hold this many chunks: the search reads each of them some twenty times.
SEARCHED_CHUNKS = 1_000_000


def share_on_time(met: Met) -> FloatArray:
    """Tokens on time per token, as Etalon's documentation has it; NaN where there is none."""
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
    """The tokens of every record against both deadlines; ``per_chunk``: each chunk is one token, as Etalon has it."""
    return against(records, start_ns, prefill_ns, decode_ns, tokens_of(records, per_chunk))


@dataclass(frozen=True, slots=True)
class FluidPace:
    """``pace_ns`` float64[requests looked at]: the shortest decode deadline of which at most a tenth was missed."""

    pace_ns: FloatArray
    looked_at: int
    of: int


def fluid_pace(records: Records, rows: BoolArray) -> FluidPace:
    """Etalon's search for each of the rows (bool[n]) with two chunks or more, the first token left out.

    Bisection between 0 and the longest gap, as Etalon does it, though the miss rate need not fall evenly. On long runs
    an even pick of the requests is searched, and the result says how many.
    """
    usable = np.flatnonzero(rows & (np.diff(records.chunk_offsets) > 1))
    lengths = np.diff(records.chunk_offsets)[usable]
    total = int(lengths.sum())
    picked = usable[:: max(-(-total // SEARCHED_CHUNKS), 1)]
    if not len(picked):
        return FluidPace(np.empty(0), 0, len(usable))
    some = records.select(picked)
    # Each part of the requests halves as often as it must, and then all as often as the one that had to most often.
    searches = [_Search(some, first, last) for first, last in slabs(some)]
    most = max(search.until_precise() for search in searches)
    for search in searches:
        while search.halved < most:
            search.halve()
    return FluidPace(np.concatenate([search.high for search in searches]).astype(np.float64), len(picked), len(usable))


class _Search:
    """Some requests between two decode deadlines, of which the higher one is kept."""

    def __init__(self, records: Records, first: int, last: int) -> None:
        offsets = records.chunk_offsets[first : last + 1]
        times, starts = records.chunks.part(first, last), offsets[:-1] - offsets[0]
        self._streams = _Streams(records, np.arange(first, last), first, last)
        self._first, self._chunks = times[starts], np.diff(offsets)
        gaps = np.diff(times, prepend=0)
        gaps[starts] = 0  # the step into a request's first chunk is no gap
        self.low, self.high = np.zeros(last - first, np.int64), np.maximum.reduceat(gaps, starts)
        self.halved = 0

    def until_precise(self) -> int:
        """Halve until every deadline is known to ``PRECISION_NS``; how often that was."""
        while bool((self.high - self.low > PRECISION_NS).any()):
            self.halve()
        return self.halved

    def halve(self) -> None:
        middle = self.low + self.high
        middle >>= 1
        np.maximum(middle, 1, out=middle)
        late, _, missed = self._streams.met(self._first, middle, self._chunks, in_time=1)
        # The first token is never late here, and Etalon leaves it out.
        deadlines = self._chunks - 1
        deadlines -= late
        deadlines += missed
        kept = missed * MISS_RATE[1] <= deadlines * MISS_RATE[0]
        np.copyto(self.high, middle, where=kept)
        np.copyto(self.low, middle, where=~kept)
        self.halved += 1


# -- a reader who reads along: does he ever wait? ---------------------------------------------------------------------

# With a_i the arrival of token i and r_i the moment it has been read: r_0 = a_0 + pace, and then idle += max(0, a_i -
# r_{i-1}), r_i = max(a_i, r_{i-1}) + pace. Tokens that came early are a store to live on, so a long gap behind a fast
# beginning costs nothing, and one that empties the store is a stall. Reported: the time he waited in all, how often he
# had to, and the share of tokens that were there when he wanted them. The wait for the first token is ``ttft``, not
# this.
#
# Needs no promise about the server, only how fast one reads. The idea of judging a stream by its reader is that of
# smooth goodput (arXiv 2410.14257); the names and the numbers here are Plimsoll's own.

#: 0.1 s a token, about 450 English words a minute: faster than nearly everybody reads.
PACE_NS = 100_000_000


def reading(records: Records, pace_ns: int = PACE_NS) -> Met:
    """A reader of every record: ``waited_ns`` is his idle time, ``late`` his stalls."""
    return against(records, first_chunk(records), 0, pace_ns, tokens_of(records))


def first_chunk(records: Records) -> IntArray:
    """int64[n]: when the first chunk came; -1 without one."""
    has = np.diff(records.chunk_offsets) > 0
    first = np.full(len(records), -1, np.int64)
    first[has] = records.chunk_ns[records.chunk_offsets[:-1][has]]
    return first
