"""Values with the records they belong to, and their order: in memory where they fit, else folded over slabs.

Of values that don't fit ``Folded`` stands for the array of them in ascending order: it counts them in narrow buckets in
one pass over all slabs, and reads the slabs again for the few buckets in which somebody asks for a rank or a limit. So
every rank and every count is exact. Nothing here knows of metrics or requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray

#: So many values are held in memory; of more the slabs are made anew in each pass.
HELD = 4_000_000
#: Values taken at a time: what fits in a processor's cache. It bounds memory and changes no result.
SLAB = 1 << 17
#: Buckets to each doubling of a value are 2^BITS, so that those of an HdrHistogram are made of whole ones.
BITS = 15
#: Values below 1 in size share one bucket, and so do those from 2^54 on, infinity among them.
_TOP = 54 << BITS
_ONE = (1023 << BITS) - 1

#: One pass over values with their records: slabs of (values float64[k], rows int64[k], ascending).
Slabs = Callable[[], Iterator[tuple[FloatArray, IntArray]]]


def buckets(values: FloatArray) -> IntArray:
    """int64[n], -_TOP to _TOP: the bucket of each value; it never falls where values rise. No NaN."""
    bits = np.ascontiguousarray(values).view(np.int64)
    found: IntArray = bits >> (52 - BITS)
    if len(bits) and int(bits.min()) < 0:
        found &= (1 << (BITS + 11)) - 1
        found -= _ONE
        np.clip(found, 0, _TOP, out=found)
        return np.where(bits < 0, -found, found)
    found -= _ONE
    return np.clip(found, 0, _TOP, out=found)


class Folded:
    """Stands for ``ordered`` float64[n], ascending values that are in no memory: ``len``, ``[rank]``, ``searchsorted``.

    Ranks and limits are single or arrays, and each call takes one pass over the slabs at most, so ask for many at once.
    ``counts`` int64[m] and ``cells`` int64[m]: how many values the buckets (``buckets``) that have some hold.
    """

    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self._counts = np.zeros(2 * _TOP + 1, np.int64)
        self._sums: list[float] = []
        self._ends: IntArray | None = None
        self._opened: dict[int, tuple[FloatArray, IntArray]] = {}
        self._n, self._least, self._most = 0, math.inf, -math.inf

    def add(self, values: FloatArray) -> None:
        """Count some of the values; all of them before the first question."""
        if not len(values):
            return
        cells = buckets(values)
        first = int(cells.min())
        found = np.bincount(cells - first)
        self._counts[_TOP + first : _TOP + first + len(found)] += found
        self._n += len(values)
        self._sums.append(float(values.sum()))
        self._least, self._most = min(self._least, float(values.min())), max(self._most, float(values.max()))

    def add_equal(self, value: float, times: int) -> None:
        """Count a value that is there so many times."""
        if times:
            self.add(np.array([value]))
            self._counts[_TOP + int(buckets(np.array([value]))[0])] += times - 1
            self._sums.append(value * (times - 1))
            self._n += times - 1

    def __len__(self) -> int:
        return self._n

    @property
    def cells(self) -> IntArray:
        return np.flatnonzero(self._counts) - _TOP

    @property
    def counts(self) -> IntArray:
        return self._counts[self._counts > 0]

    def mean(self) -> float:
        """Of whole numbers the exact mean, as long as their sum is below 2^53; else to the last digit or so."""
        return math.fsum(self._sums) / self._n if math.isfinite(self._most) else self._most

    def std(self, ddof: int = 0) -> float:
        """The standard deviation of finite values, in one pass."""
        mean = self.mean()
        squares = math.fsum(float(np.square(values - mean).sum()) for values, _ in self._slabs())
        return math.sqrt(squares / (self._n - ddof))

    def __getitem__(self, rank: int | IntArray) -> FloatArray:
        """The values of these ranks, counted from 0 as in an array; of a single one a float64."""
        asked = np.atleast_1d(np.asarray(rank, np.int64))
        asked = np.where(asked < 0, asked + self._n, asked)
        if len(asked) and not (int(asked.min()) >= 0 and int(asked.max()) < self._n):
            raise IndexError(f"rank {rank} of {self._n} values")
        found = np.where(asked == 0, self._least, self._most)
        inner = np.flatnonzero((asked > 0) & (asked < self._n - 1))
        cells = np.searchsorted(self._before(), asked[inner], side="right") - 1
        self._open(cells)
        for place, cell, at in zip(inner.tolist(), cells.tolist(), asked[inner].tolist(), strict=True):
            values, ends = self._opened[cell]
            found[place] = values[np.searchsorted(ends, at - int(self._before()[cell]), side="right")]
        return found if np.ndim(rank) else found[0]

    def searchsorted(self, limit: float | FloatArray, side: str = "left") -> IntArray:
        """How many values are below each limit (``right``: not above it), as numpy's."""
        limits = np.atleast_1d(np.asarray(limit, np.float64))
        found = np.where((limits > self._most) | ((limits == self._most) & (side == "right")), self._n, 0)
        inner = np.flatnonzero((limits >= self._least) & (limits <= self._most) & (found == 0))
        cells = buckets(limits[inner]) + _TOP
        found[inner] = self._before()[cells]
        self._open(cells[self._counts[cells] > 0])
        for place, cell in zip(inner.tolist(), cells.tolist(), strict=True):
            if cell in self._opened:
                values, ends = self._opened[cell]
                below = int(np.searchsorted(values, limits[place], "right" if side == "right" else "left"))
                found[place] += ends[below - 1] if below else 0
        return found if np.ndim(limit) else found[0]

    def _before(self) -> IntArray:
        """int64[buckets + 1]: values in the buckets before each, and in all."""
        if self._ends is None:
            self._ends = np.concatenate([[0], np.cumsum(self._counts)])
        return self._ends

    def _open(self, cells: IntArray) -> None:
        """Read what is in these buckets: distinct values, ascending, and how many are not above each."""
        missing = np.array([cell for cell in dict.fromkeys(cells.tolist()) if cell not in self._opened], np.int64)
        if not len(missing):
            return
        wanted = np.zeros(len(self._counts), np.bool_)
        wanted[missing] = True
        known, times = np.empty(0), np.empty(0, np.int64)
        parts: list[FloatArray] = []
        waiting = 0

        def settled() -> tuple[FloatArray, IntArray]:
            return _distinct([known, *parts], [times, np.ones(waiting, np.int64)])

        for values, _ in self._slabs():
            parts.append(values[wanted[buckets(values) + _TOP]])
            waiting += len(parts[-1])
            if waiting > HELD:
                known, times = settled()
                parts, waiting = [], 0
        known, times = settled()
        own = buckets(known) + _TOP
        for cell in missing.tolist():
            inside = slice(*np.searchsorted(own, (cell, cell + 1)).tolist())
            self._opened[cell] = known[inside], np.cumsum(times[inside])


def _distinct(values: list[FloatArray], times: list[IntArray]) -> tuple[FloatArray, IntArray]:
    """Distinct values, ascending, and how often each is there."""
    every, counts = np.concatenate(values), np.concatenate(times)
    if not len(every):
        return every, counts
    order = np.argsort(every)
    every = every[order]
    starts = np.flatnonzero(np.append(True, every[1:] != every[:-1]))
    return every[starts], np.add.reduceat(counts[order], starts)


def gathered(slabs: Iterable[tuple[FloatArray, IntArray]]) -> tuple[FloatArray, IntArray]:
    """Slabs in one array of values and one of records."""
    values, rows = zip(*slabs, strict=True)
    return (values[0], rows[0]) if len(values) == 1 else (np.concatenate(values), np.concatenate(rows))


#: Values in ascending order: an array, or what stands for one.
Ordered = FloatArray | Folded


class Entries:
    """``n`` values, each with the record (its position) that it belongs to, records ascending.

    ``held``: (values float64[n], rows int64[n]) in memory, rows None where value i belongs to record i; or ``again``,
    which begins a pass over slabs of them, and ``folded``, which stands for their order. ``sizes`` int64[records]: how
    many values each record has; None: one at most.
    """

    def __init__(
        self,
        held: tuple[FloatArray, IntArray | None] | None = None,
        again: Slabs | None = None,
        folded: Folded | None = None,
        sizes: IntArray | None = None,
    ) -> None:
        self._held, self._again, self._folded, self.sizes = held, again, folded, sizes
        self.n = len(held[0]) if held is not None else 0 if folded is None else len(folded)

    def slabs(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """One pass: (values float64[k], rows int64[k]) of consecutive ones, never many at once."""
        if self._again is not None:
            yield from self._again()
            return
        for first in range(0, self.n, SLAB):
            values, row = self.part(first, first + SLAB)
            yield values, row

    def part(self, first: int, last: int) -> tuple[FloatArray, IntArray]:
        """Those from ``first`` to ``last``, of values in memory."""
        assert self._held is not None
        values, row = self._held
        last = min(last, self.n)
        return values[first:last], np.arange(first, last) if row is None else row[first:last]

    @property
    def plain(self) -> bool:
        """Value i belongs to record i, and both are in memory."""
        return self._held is not None and self._held[1] is None

    @property
    def values(self) -> FloatArray:
        """float64[n]: all at once; of those that are not in memory made anew each time."""
        if self._held is not None:
            return self._held[0]
        return gathered(self.slabs())[0]

    @property
    def row(self) -> IntArray:
        """int64[n]: the record of each value, all at once; likewise."""
        if self._held is not None:
            return np.arange(self.n) if self._held[1] is None else self._held[1]
        return gathered(self.slabs())[1]

    @cached_property
    def ordered(self) -> Ordered:
        """The values, ascending: an array that is sorted once, or what stands for it. Nobody writes to it."""
        return np.sort(self.values) if self._folded is None else self._folded

    def mean(self) -> float:
        """The mean of the ascending values; +-inf where one of them is."""
        return float(self.ordered.mean())
