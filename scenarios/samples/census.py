"""What there is in a recording, counted in one pass: how fast, how bursty, how long, how much alike.

Memory does not grow with the recording: counts of windows are folded as they end, lengths are counted by length, and
which blocks of prompts were there before is told by bits in a file without a name. Of ids that are small numbers, as
Mooncake's, this is exact; of hashes a block in ten thousand may be taken for one that was seen.
"""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from plimsoll.scenarios.plan.plan import BLOCK, IntArray
from plimsoll.scenarios.plan.seeds import mixed
from plimsoll.scenarios.samples.recording import Recording, Trace
from plimsoll.scenarios.samples.reshaping import Placed, Shape, as_recorded, placed
from plimsoll.scenarios.text.document import ScenarioError

S_NS = 1_000_000_000
#: Windows in which requests are counted.
WINDOWS_S = (1, 30, 300)
#: Longer prompts and answers count as this long in percentiles.
_LONGEST = 1 << 20
#: Bits for each block that may come, and bits that are looked at for one with a large id.
_BITS, _PROBES = 64, 4


@dataclass(frozen=True, slots=True)
class Lengths:
    """In tokens, nearest rank; ``unknown``: requests that don't say theirs."""

    p50: int
    p90: int
    p99: int
    max: int
    total: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Census:
    """``dispersion``: variance over mean of the requests in windows of so many seconds (1: a Poisson process), None:
    two windows are not over; ``peak``: requests in the busiest second; ``hit_share``: of the prompts' tokens a cache
    without limits had known, None: nobody knows their blocks; ``sessions``: 0: nobody knows.
    """

    requests: int
    duration_ns: int
    rate_per_s: float | None
    dispersion: dict[str, float | None]
    peak: int
    n_in: Lengths | None
    n_out: Lengths | None
    hit_share: float | None
    sessions: int


def census(recording: Recording, shape: Shape | None = None, parts: Iterable[Placed] | None = None) -> Census:
    """Of a recording as it is or in this shape, or of its requests in ``parts``, at the times that they have there."""
    parts = (as_recorded(recording) if shape is None else placed(recording, shape)) if parts is None else parts
    shape = shape or Shape()
    windows, lengths = [_Windows(s * S_NS) for s in WINDOWS_S], (_Lengths(), _Lengths())
    sessions, prefixes = _Seen(recording.n_sessions * shape.copies), _Prefixes(recording, shape)
    first_ns = last_ns = n = 0
    for part in parts:
        first_ns, last_ns = first_ns if n else int(part.at_ns[0]), int(part.at_ns[-1])
        n += len(part.row)
        for window in windows:
            window.add(part.at_ns - first_ns)
        base = int(part.row.min())
        rows, at = recording.rows(base, int(part.row.max()) + 1), part.row - base
        for one, column in zip(lengths, (rows.n_in, rows.n_out), strict=True):
            one.add(column[at])
        if rows.session is not None:
            told = rows.session[at]
            sessions.add((told * shape.copies + part.copy)[told >= 0])
        prefixes.add(rows, at, part.copy)
    lasts_ns = last_ns - first_ns
    return Census(
        requests=n,
        duration_ns=lasts_ns,
        rate_per_s=(n - 1) / (lasts_ns / S_NS) if lasts_ns else None,
        dispersion={f"{s}s": one.dispersion(lasts_ns) for s, one in zip(WINDOWS_S, windows, strict=True)},
        peak=windows[0].most,
        n_in=lengths[0].made(),
        n_out=lengths[1].made(),
        hit_share=prefixes.share(),
        sessions=sessions.count,
    )


def cut(recording: Recording, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """Recorded sessions that a window from then to before then cuts: begun before it, and going on after it."""
    before, inside, after = (_Seen(recording.n_sessions) for _ in range(3))
    begun = 0
    for row in range(0, len(recording) if recording.n_sessions else 0, BLOCK):
        rows = recording.rows(row, row + BLOCK)
        assert rows.session is not None
        begin, end = np.searchsorted(rows.at_ns, (begin_ns, end_ns))
        parts = [some[some >= 0] for some in np.split(rows.session, (begin, max(begin, end)))]
        before.add(parts[0])
        new = inside.add(parts[1])
        begun += int(before.has(new).sum())
        after.add(parts[2][inside.has(parts[2])])
    return begun, after.count


class _Windows:
    """Counts in windows of one length, of times that never fall. ``most``: the largest count."""

    def __init__(self, width_ns: int) -> None:
        self._width = width_ns
        self._at = self._held = self._sum = self._squares = self.most = 0

    def add(self, at_ns: IntArray) -> None:
        which, counts = np.unique(at_ns // self._width, return_counts=True)
        if which[0] == self._at:
            counts[0] += self._held
        else:
            self._fold(np.array([self._held]))
        self._fold(counts[:-1])
        self._at, self._held = int(which[-1]), int(counts[-1])
        self.most = max(self.most, int(counts.max()))

    def _fold(self, counts: IntArray) -> None:
        self._sum, self._squares = self._sum + int(counts.sum()), self._squares + int((counts**2).sum())

    def dispersion(self, last_ns: int) -> float | None:
        """Of the windows that were over by then."""
        n = last_ns // self._width
        if n < 2 or not self._sum:
            return None
        return (self._squares - self._sum**2 / n) / (n - 1) / (self._sum / n)


class _Lengths:
    def __init__(self) -> None:
        self._counts = np.zeros(1, np.int64)
        self._max, self._total, self._unknown = -1, 0, 0

    def add(self, lengths: IntArray) -> None:
        known = lengths[lengths >= 0]
        self._unknown += len(lengths) - len(known)
        if len(known):
            self._max, self._total = max(self._max, int(known.max())), self._total + int(known.sum())
            counts = np.bincount(np.minimum(known, _LONGEST), minlength=len(self._counts))
            counts[: len(self._counts)] += self._counts
            self._counts = counts

    def made(self) -> Lengths | None:
        if self._max < 0:
            return None
        upto = np.cumsum(self._counts)
        ranks = [-(-int(upto[-1]) * percent // 100) for percent in (50, 90, 99)]
        p50, p90, p99 = np.searchsorted(upto, ranks).tolist()
        return Lengths(p50, p90, p99, self._max, self._total, self._unknown)


class _Seen:
    """Which numbers were there, of about so many: ``count`` different ones."""

    def __init__(self, expected: int) -> None:
        self._size = 1 << min(33, max(20, (max(expected, 1) * _BITS).bit_length()))
        with tempfile.TemporaryFile(prefix="plimsoll-") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, self._size // 8)  # a full disk would end the process later
            except OSError as error:
                where = f"{tempfile.gettempdir()} has no room for {self._size // 8:,} bytes ({error.strerror})"
                raise ScenarioError([f"{where}. Make room there, or set TMPDIR."]) from None
            self._bits: npt.NDArray[np.uint8] = np.memmap(file, np.uint8, "r+", shape=(self._size // 8,))
        self.count = 0

    def _places(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Small numbers have a bit each in the first half, others some in the second: [probe, number]."""
        half = np.uint64(self._size // 2)
        drawn = [mixed(probe, numbers.view(np.int64)) % half + half for probe in range(_PROBES)]
        return np.where(numbers < half, numbers, np.stack(drawn))

    def has(self, numbers: IntArray) -> npt.NDArray[np.bool_]:
        places = self._places(numbers.view(np.uint64))
        found = self._bits[places >> np.uint64(3)] >> (places & np.uint64(7)).astype(np.uint8) & 1
        return np.asarray(found.all(axis=0))

    def add(self, numbers: IntArray) -> IntArray:
        """The new ones among them, each once."""
        new = np.unique(numbers)
        new = new[~self.has(new)]
        places = self._places(new.view(np.uint64)).ravel()
        bits = np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))
        np.bitwise_or.at(self._bits, places >> np.uint64(3), bits)
        self.count += len(new)
        return new


class _Prefixes:
    """How much of each prompt came before, as a cache without limits would know."""

    def __init__(self, recording: Recording, shape: Shape) -> None:
        self._recording, self._shape = recording, shape
        self._seen: _Seen | None = None
        self._known = self._tokens = 0

    def add(self, rows: Trace, at: IntArray, copy: IntArray) -> None:
        """The rows at these places, in order of time."""
        self._tokens += int(rows.n_in[at][rows.n_in[at] >= 0].sum())
        if rows.blocks is None or not len(at):
            return
        ids = [rows.blocks[one] for one in at.tolist()]
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(sizes.sum()))
        bounds = np.append(0, np.cumsum(sizes))
        if self._shape.copies > 1:
            place, of = np.arange(len(flat)) - np.repeat(bounds[:-1], sizes), np.repeat(copy, sizes)
            own = place >= self._shape.share_tokens // self._recording.block_tokens
            for one in range(1, self._shape.copies):
                new = (of == one) & own
                flat[new] = mixed(one, flat[new]).view(np.int64)
        if self._seen is None:
            self._seen = _Seen(len(flat) * -(-len(self._recording) * self._shape.copies // len(at)))
        which, first, place = np.unique(flat, return_index=True, return_inverse=True)
        known = self._seen.has(which)[place] | (first[place] != np.arange(len(flat)))
        self._seen.add(which)
        ends = np.append(np.flatnonzero(~known), len(flat))
        hit = np.minimum(ends[np.searchsorted(ends, bounds[:-1])], bounds[1:]) - bounds[:-1]
        self._known += int(np.minimum(hit * self._recording.block_tokens, np.maximum(rows.n_in[at], 0)).sum())

    def share(self) -> float | None:
        return None if self._seen is None or not self._tokens else self._known / self._tokens
