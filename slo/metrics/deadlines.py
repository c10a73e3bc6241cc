"""A stream of tokens against a moving deadline, for every request at once: the arithmetic under fluidity and reading.

Token k of a request is wanted at ``start + grace + k * pace``; whoever is kept waiting goes on from where he was kept,
so each wait moves every later deadline. With the lateness L of a chunk (its arrival less its wanted time) a chunk is
late exactly when L is above 0 and above every L before it, by ``L - max(0, earlier L)``. So running maxima replace the
recursion, and fifty million chunks need no loop over chunks.

Records hold the time of chunks and the number of tokens, not which chunk brought which: tokens are taken to be spread
evenly, chunk j after floor(j * tokens / chunks) of them, and a chunk to bring at least one. Integers in ns throughout.
Nothing is judged here, and no status is looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.metrics.speech import sounds
from plimsoll.slo.records.records import BoolArray, Compute, FloatArray, IntArray, Records

#: Chunks and rows looked at together: what fits in a processor's cache several times over. A search takes more of them.
SLAB = 1 << 17
_SEARCHED = 1 << 19
_ROWS = 1 << 17
#: Where so many answers go on at a time, the search goes through them chunk by chunk, all at once.
_AT_ONCE = 200
#: So few answers are taken one by one, however many chunks they have.
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
    found = [np.zeros(n, np.int64) for _ in range(3)]
    valid = (np.diff(records.chunk_offsets) > 0) & (start_ns != -1) & ~sounds(records)
    for first, last in slabs(records, slab):
        rows = _maybe_late(records, valid, start_ns, grace_ns, pace, first, last)
        if len(rows):
            parts = _slab(records, rows, start_ns[rows] + grace_ns, pace[rows], tokens[rows])
            for column, part in zip(found, parts, strict=True):
                column[rows] = part
    late, waited, missed = found
    return Met(np.where(valid, tokens, 0), late, waited, missed, valid)


def _maybe_late(
    records: Records, valid: BoolArray, start_ns: IntArray, grace_ns: int, pace: IntArray, first: int, last: int
) -> IntArray:
    """The valid rows from ``first`` to ``last``, less those whose first chunk came in time and whose last one did so
    before the second token was wanted: none of theirs is late.
    """
    rows = np.flatnonzero(valid[first:last]) + first
    times, offsets = records.chunks.part(first, last), records.chunk_offsets
    wanted = start_ns[rows] + grace_ns
    late = times[offsets[rows] - offsets[first]] > wanted
    late |= times[offsets[rows + 1] - offsets[first] - 1] - wanted > pace[rows]
    found: IntArray = rows[late]
    return found


def _slab(
    records: Records, rows: IntArray, wanted_ns: IntArray, pace_ns: IntArray, tokens: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """(late, waited, missed) of some rows that all have chunks."""
    lengths = records.chunk_offsets[rows + 1] - records.chunk_offsets[rows]
    times, begin = _chunks(records, rows, lengths)
    lateness = tokens_before(lengths, begin, tokens)
    lateness *= -pace_ns[0] if bool((pace_ns == pace_ns[0]).all()) else -np.repeat(pace_ns, lengths)
    lateness += times
    lateness -= np.repeat(wanted_ns, lengths)
    np.maximum(lateness, 0, out=lateness)
    waited = np.maximum.reduceat(lateness, begin)
    late, missed = np.zeros_like(waited), np.zeros_like(waited)
    kept_waiting = waited > 0
    if kept_waiting.any():
        if not kept_waiting.all():
            lateness = lateness[np.repeat(kept_waiting, lengths)]
        parts = _late(lateness, lengths[kept_waiting], waited[kept_waiting], pace_ns[kept_waiting])
        late[kept_waiting], missed[kept_waiting] = parts
    return late, waited, missed


def _late(lateness: IntArray, lengths: IntArray, most: IntArray, pace_ns: IntArray) -> tuple[IntArray, IntArray]:
    """(late, missed) of rows, given their chunks' lateness, not below 0, and the ``most`` of each row."""
    begin = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    # Lift each row above all that came before it, so that one running maximum serves them all.
    lift = np.concatenate(([0], np.cumsum(most + 1)[:-1]))
    lateness += np.repeat(lift, lengths)
    before = np.empty_like(lateness)
    np.maximum.accumulate(lateness[:-1], out=before[1:])
    before[begin] = lift
    lateness -= before
    is_late = lateness > 0
    late = np.add.reduceat(is_late, begin, dtype=np.int64)
    row = np.repeat(np.arange(len(lengths)), late)
    missed = late.copy()
    np.add.at(missed, row, lateness[is_late] // pace_ns[row])
    return late, missed


def _chunks(records: Records, rows: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """The chunk times of these rows, one after another, and where each row begins in them."""
    offsets = records.chunk_offsets
    begin = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    whole = records.chunks.part(int(rows[0]), int(rows[-1]) + 1)
    if len(whole) == int(lengths.sum()):  # the usual case: rows between have no chunks
        return whole, begin
    places = np.repeat(offsets[rows] - offsets[rows[0]] - begin, lengths)
    places += np.arange(len(places))
    return whole[places], begin


def tokens_before(lengths: IntArray, begin: IntArray, tokens: IntArray) -> IntArray:
    """int64[chunks]: tokens of its row that came in earlier chunks than each, spread evenly."""
    places = np.arange(int(lengths.sum())) - np.repeat(begin, lengths)
    if bool((tokens == lengths).all()):
        return places
    places *= np.repeat(tokens, lengths)
    places //= np.repeat(lengths, lengths)
    return places


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
    found: FloatArray = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return found


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
    searches = [_Search(some, first, last) for first, last in slabs(some, _SEARCHED)]
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
        self._records, self._rows = records, np.arange(first, last)
        self._first, self._chunks = times[starts], np.diff(offsets)
        many = int(self._chunks.max()) * _AT_ONCE <= len(times)
        self._streams = _Streams(times, starts, self._chunks) if many else None
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
        if self._streams is not None:
            late, missed = self._streams.met(self._first, middle)
        else:
            late, _, missed = _slab(self._records, self._rows, self._first, middle, self._chunks)
        # The first token is never late here, and Etalon leaves it out.
        deadlines = self._chunks - 1
        deadlines -= late
        deadlines += missed
        kept = missed * MISS_RATE[1] <= deadlines * MISS_RATE[0]
        np.copyto(self.high, middle, where=kept)
        np.copyto(self.low, middle, where=~kept)
        self.halved += 1


class _Streams:
    """Answers side by side, a chunk a token: the k-th chunks of all that have so many are one array, the longest
    answers first. Where only ``_FEW`` go on, the rest of each is an array of its own. The first chunks are left out: a
    search counts from them.
    """

    def __init__(self, times: IntArray, begin: IntArray, lengths: IntArray) -> None:
        even = bool((lengths == lengths[0]).all())
        self._order = None if even else np.argsort(-lengths, kind="stable")
        if self._order is not None:
            begin, lengths = begin[self._order], lengths[self._order]
        self._n, longest_first, going = len(lengths), -lengths, len(lengths)
        self._columns: list[IntArray] = []
        while going > _FEW:
            going = int(longest_first.searchsorted(-len(self._columns) - 1))
            self._columns.append(times[begin[:going] + len(self._columns) + 1])
        at, ends = begin[:going] + len(self._columns) + 1, begin[:going] + lengths[:going]
        self._rests = [times[i:j] for i, j in zip(at.tolist(), ends.tolist(), strict=True)]

    def met(self, first_ns: IntArray, pace_ns: IntArray) -> tuple[IntArray, IntArray]:
        """(late, missed) of each answer, which is wanted at ``first_ns`` and then each ``pace_ns``."""
        if self._order is not None:
            first_ns, pace_ns = first_ns[self._order], pace_ns[self._order]
        late, waited, missed = (np.zeros(self._n, np.int64) for _ in range(3))
        wanted = np.array(first_ns)
        for times in self._columns:
            n = len(times)
            wanted = wanted[:n]
            wanted += pace_ns[:n]
            more = times - wanted
            more -= waited[:n]
            over = more > 0
            np.maximum(more, 0, out=more)
            late[:n] += over
            waited[:n] += more
            missed[:n] += more // pace_ns[:n]
        for i, times in enumerate(self._rests):
            steps = np.arange(len(self._columns) + 1, len(self._columns) + 1 + len(times))
            level = np.append(waited[i], times - first_ns[i] - steps * pace_ns[i])
            rises = np.diff(np.maximum.accumulate(level))
            rises = rises[rises > 0]
            late[i] += len(rises)
            missed[i] += (rises // pace_ns[i]).sum()
        missed += late
        if self._order is None:
            return late, missed
        found = np.empty((2, self._n), np.int64)
        found[0, self._order], found[1, self._order] = late, missed
        return found[0], found[1]


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


def read_along(value: Callable[[Met], FloatArray | IntArray]) -> Compute:
    """A metric's ``compute``, of what someone met who read the answer along."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        met = reading(records)
        return value(met).astype(np.float64), met.valid

    return compute


def first_chunk(records: Records) -> IntArray:
    """int64[n]: when the first chunk came; -1 without one."""
    return records.chunks.ends[0]
