"""Values with the records they belong to, and their order: in memory where they fit, else folded over slabs.

Of values that don't fit ``Folded`` stands for the array of them in ascending order: it counts them in narrow buckets in
one pass over all slabs, and reads the slabs again for the few buckets in which somebody asks for a rank or a limit. So
every rank and every count is exact. Nothing here knows of metrics or requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray

#: So many values are held in memory; of more the slabs are made anew in each pass.
HELD = 4_000_000
#: Values taken at a time: what fits in a processor's cache. It bounds memory and changes no result.
SLAB = 1 << 17
#: Buckets to each doubling of a value are 2^BITS, so that those of an HdrHistogram are made of whole ones. Of values in
#: memory the first number does up to so many of them: a table that the cache holds takes half of the time.
BITS = 15
_FEWER_BITS, _FEWER, _SOME_BITS = 10, 1 << 24, 13
#: Values below 2^-UNDER in size share one bucket, and so do those from 2^54 on, infinity among them. Rates and shares
#: need small ones to be told apart.
_TOP, _UNDER = 54, 20

#: So many bands are kept: at the levels of ``share``, of a limit and of a percentile.
_BANDS = 5
_NO_ROWS = np.empty(0, np.int64)
#: One pass over values with their records: slabs of (values float64[k], rows int64[k], ascending).
Slabs = Callable[[], Iterator[tuple[FloatArray, IntArray]]]


def buckets(values: FloatArray, bits: int = BITS, under: int = 0) -> IntArray:
    """int64[n]: the bucket of each value, negative for negative ones; it never falls where values rise. No NaN."""
    whole = np.ascontiguousarray(values).view(np.int64)
    found: IntArray = whole >> (52 - bits)
    one, top = _one(bits, under), (_TOP + under) << bits
    if len(whole) and int(whole.min()) < 0:
        found &= (1 << (bits + 11)) - 1
        found -= one
        np.clip(found, 0, top, out=found)
        return np.where(whole < 0, -found, found)
    found -= one
    return np.clip(found, 0, top, out=found)


def _one(bits: int, under: int) -> int:
    """What a value's leading bits are above its bucket."""
    return ((1023 - under) << bits) - 1


def begins_of(cells: IntArray, bits: int, under: int) -> FloatArray:
    """float64[n]: where these buckets begin (0: the smallest in size; a negative one where it ends)."""
    begin = ((np.abs(cells) + _one(bits, under)) << (52 - bits)).view(np.float64)
    return np.copysign(np.where(cells == 0, 0.0, begin), cells)


class Folded:
    """Stands for ``ordered`` float64[n], ascending values that are in no memory: ``len``, ``[rank]``, ``searchsorted``.

    Ranks and limits are single or arrays, and each call takes one pass over the slabs at most, so ask for many at once.
    ``counts`` int64[m] and ``lows`` float64[m]: how many values the buckets (``buckets``) that have some hold, and
    where each begins (0: the smallest in size; a negative one where it ends).
    """

    def __init__(self, slabs: Slabs, bits: int = BITS, under: int = 0) -> None:
        self._slabs, self._bits, self._under = slabs, bits, under
        self._top = (_TOP + under) << bits
        self._infinite = 2 * self._top
        self._counts = np.zeros(2 * self._top + 1, np.int64)
        self._sums: list[float] = []
        self._ends: IntArray | None = None
        self._opened: dict[int, tuple[FloatArray, IntArray]] = {}
        self._asked: dict[int, None] | None = None
        self._bands: list[Band] = []
        self._n, self._least, self._most = 0, math.inf, -math.inf

    def add(self, values: FloatArray) -> None:
        """Count some of the values; all of them before the first question."""
        if not len(values):
            return
        cells = self._cells(values)
        first = int(cells.min())
        cells -= first
        found = np.bincount(cells)
        self._counts[first : first + len(found)] += found
        self._n += len(values)
        self._sums.append(float(values.sum()))
        self._least, self._most = min(self._least, float(values.min())), max(self._most, float(values.max()))

    def add_equal(self, value: float, times: int) -> None:
        """Count a value that is there so many times."""
        if times:
            self.add(np.array([value]))
            self._counts[self._cells(np.array([value]))[0]] += times - 1
            self._sums.append(value * (times - 1))
            self._n += times - 1

    def __len__(self) -> int:
        return self._n

    def _cells(self, values: FloatArray) -> IntArray:
        found = buckets(values, self._bits, self._under)
        found += self._top
        return found

    @property
    def lows(self) -> FloatArray:
        return self._begins(np.flatnonzero(self._counts))

    def _begins(self, cells: IntArray) -> FloatArray:
        return begins_of(cells - self._top, self._bits, self._under)

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
        order = np.argsort(cells, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1) if len(order) else ():
            values, ends = self._inside(int(cells[mine[0]]))
            before = self._before()[cells[mine[0]]]
            found[inner[mine]] = values[np.searchsorted(ends, asked[inner[mine]] - before, side="right")]
        return found if np.ndim(rank) else found[0]

    def searchsorted(self, limit: float | FloatArray, side: str = "left") -> IntArray:
        """How many values are below each limit (``right``: not above it), as numpy's."""
        limits, before = np.atleast_1d(np.asarray(limit, np.float64)), self._before()
        found = np.where((limits > self._most) | ((limits == self._most) & (side == "right")), self._n, 0)
        inner = np.flatnonzero((limits >= self._least) & (limits <= self._most) & (found == 0))
        cells = self._cells(limits[inner])
        found[inner] = before[cells]
        self._open(cells[self._counts[cells] > 0])
        for place, cell in zip(inner.tolist(), cells.tolist(), strict=True):
            if self._counts[cell]:
                values, ends = self._inside(cell)
                below = int(np.searchsorted(values, limits[place], "right" if side == "right" else "left"))
                found[place] += ends[below - 1] if below else 0
        return found if np.ndim(limit) else found[0]

    def _before(self) -> IntArray:
        """int64[buckets + 1]: values in the buckets before each, and in all. Unused ones at the ends are dropped."""
        if self._ends is None:
            used = np.flatnonzero(self._counts)
            first, last = (int(used[0]), int(used[-1])) if len(used) else (0, -1)
            self._counts = self._counts[first : last + 1].copy()
            self._top, self._infinite = self._top - first, self._infinite - first
            self._ends = np.concatenate([[0], np.cumsum(self._counts)])
        return self._ends

    def ahead(self, ask: Callable[[], object]) -> None:
        """Read in one pass what ``ask`` will look up: it is tried with the begin of each bucket for its values."""
        self._asked = {}
        try:
            ask()
        finally:
            asked, self._asked = np.fromiter(self._asked, np.int64), None
        near = (asked[:, None] + np.arange(-1, 2)).ravel()
        near = near[(near >= 0) & (near < len(self._counts))]
        self._open(near[self._counts[near] > 0])

    def bands(self, limits: Sequence[float], records: int) -> list[Band | None]:
        """Of each limit a band that holds it, of so many records; those that are not known are read in one pass. None:
        too many values are as large as the limit.
        """
        missing: list[Band] = []
        found = [self._band(limit, missing, records) for limit in limits]
        if missing:
            self._bands = [*self._bands, *missing][-_BANDS:]
            parts: list[list[tuple[FloatArray, IntArray]]] = [[] for _ in missing]
            for values, row in self._slabs():
                for one, mine in zip(missing, parts, strict=True):
                    mine.append(one.take(values, row))
            for one, mine in zip(missing, parts, strict=True):
                one.settle(*gathered(mine))
        return found

    def _band(self, limit: float, missing: list[Band], records: int) -> Band | None:
        """One that is known or becomes known with the missing ones."""
        if limit > self._most:
            return Band(limit, math.inf, records)
        limit, before = max(limit, self._least), self._before()
        for one in (*self._bands, *missing):
            if one.low <= limit < one.high:
                return one
        cell = int(self._cells(np.array([limit]))[0])
        if not self._top < cell < self._infinite or self._counts[cell] > HELD // 16:
            return None
        first = int(np.searchsorted(before, before[cell] - HELD // 64))
        last = int(np.searchsorted(before, before[cell + 1] + HELD // 64, side="right")) - 1
        first, last = min(max(first, self._top + 1), cell), max(min(last, self._infinite), cell + 1)
        low, high = self._begins(np.array([first, last])).tolist()
        missing.append(Band(low, high, records))
        return missing[-1]

    def _inside(self, cell: int) -> tuple[FloatArray, IntArray]:
        """What is in a bucket, or what ``ahead`` takes for it."""
        if cell in self._opened:
            return self._opened[cell]
        return self._begins(np.array([cell])), self._counts[cell : cell + 1]

    def _open(self, cells: IntArray) -> None:
        """Read what is in these buckets: distinct values, ascending, and how many are not above each."""
        unknown = [cell for cell in dict.fromkeys(cells.tolist()) if cell not in self._opened]
        if self._asked is not None:
            self._asked.update(dict.fromkeys(unknown))
            return
        for band in self._bands:
            here = self._cells(band.values)
            for cell in unknown:
                begin, end = np.searchsorted(here, (cell, cell + 1)).tolist()
                if end - begin == self._counts[cell]:
                    values, times = _distinct([band.values[begin:end]], [np.ones(end - begin, np.int64)])
                    self._opened[cell] = values, np.cumsum(times)
            unknown = [cell for cell in unknown if cell not in self._opened]
        missing = np.array(unknown, np.int64)
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
            parts.append(values[wanted[self._cells(values)]])
            waiting += len(parts[-1])
            if waiting > HELD:
                known, times = settled()
                parts, waiting = [], 0
        known, times = settled()
        own = self._cells(known)
        for cell in missing.tolist():
            inside = slice(*np.searchsorted(own, (cell, cell + 1)).tolist())
            self._opened[cell] = known[inside], np.cumsum(times[inside])


class Band:
    """The values from ``low`` to below ``high``, ascending, and the record of each; ``above`` float64[records]: how
    many values each record has from ``high`` on.
    """

    def __init__(self, low: float, high: float, records: int) -> None:
        self.low, self.high, self.above = low, high, np.zeros(records)
        self.values, self.row = np.empty(0), _NO_ROWS

    def take(self, values: FloatArray, row: IntArray) -> tuple[FloatArray, IntArray]:
        """Count those of a slab that are above; returns those that are inside."""
        least = np.flatnonzero(values >= self.low)
        values, row = values[least], row[least]
        inside = values < self.high
        add(self.above, row[~inside])
        return values[inside], row[inside]

    def settle(self, values: FloatArray, row: IntArray) -> None:
        """All that were taken."""
        order = np.argsort(values)
        self.values, self.row = values[order], row[order]

    def beyond(self, limit: float, side: Literal["left", "right"]) -> FloatArray:
        """float64[records]: how many values of each are above the limit, or (``left``) not below it."""
        rest = self.row[np.searchsorted(self.values, limit, side) :]
        return self.above + np.bincount(rest, minlength=len(self.above))


def add(totals: FloatArray, row: IntArray, weights: IntArray | None = None) -> None:
    """Add the weights of one slab, or 1 each, to those of their records."""
    if len(row):
        first = int(row[0])
        found = np.bincount(row - first, weights)
        totals[first : first + len(found)] += found


def _distinct(values: list[FloatArray], times: list[IntArray]) -> tuple[FloatArray, IntArray]:
    """Distinct values, ascending, and how often each is there."""
    every, counts = np.concatenate(values), np.concatenate(times)
    if not len(every):
        return every, counts
    if not len(times[0]):  # each is there once so far
        every.sort()
    else:
        order = np.argsort(every)
        every, counts = every[order], counts[order]
    starts = np.flatnonzero(np.append(True, every[1:] != every[:-1]))
    return every[starts], np.add.reduceat(counts, starts)


def by_time(times: IntArray, lot: Callable[[], IntArray] | None = None) -> IntArray | None:
    """int64[n]: the positions of times in ascending order; None: as they stand.

    Those of equal times are in the order of ``lot()`` int64[n], else in their own.
    """
    order = np.argsort(times) if bool((times[1:] < times[:-1]).any()) else None
    if order is None and lot is None:
        return None
    times = times if order is None else times[order]
    equal = times[1:] == times[:-1]
    if not equal.any():
        return order
    tied = np.flatnonzero(np.append(False, equal) | np.append(equal, False))
    group = np.cumsum(np.append(False, ~equal))[tied]
    order = np.arange(len(times)) if order is None else order
    mine = order[tied] if lot is None else lot()[order[tied]]
    order[tied] = order[tied][np.argsort(group * len(times) + mine)]
    return order


def gathered(slabs: Iterable[tuple[FloatArray, IntArray]]) -> tuple[FloatArray, IntArray]:
    """Slabs in one array of values and one of records."""
    values, rows = zip(*slabs, strict=True)
    return (values[0], rows[0]) if len(values) == 1 else (np.concatenate(values), np.concatenate(rows))


class Mapped:
    """Stands for ``of(ordered)``, ascending, of a function that never falls, or (``falls``) never rises, between the
    least and the greatest of the ordered values. Ranks and counts are those of the mapped array, to the last bit.
    """

    def __init__(self, ordered: Standing, of: Callable[[FloatArray], FloatArray], falls: bool) -> None:
        self._ordered, self._of, self._falls = ordered, of, falls
        self._edges = keys_of(np.asarray(ordered[np.array([0, -1])])) if len(ordered) else np.zeros(2, np.int64)

    def __len__(self) -> int:
        return len(self._ordered)

    def __getitem__(self, rank: int | IntArray) -> FloatArray:
        """As of ``Folded``."""
        asked = np.atleast_1d(np.asarray(rank, np.int64))
        asked = np.where(asked < 0, asked + len(self), asked)
        found = self._of(np.asarray(self._ordered[len(self) - 1 - asked if self._falls else asked]))
        return found if np.ndim(rank) else found[0]

    def searchsorted(self, limit: float | FloatArray, side: str = "left") -> IntArray:
        """As of ``Folded``: the function is turned round by bisection over all floats between the extremes."""
        limits = np.atleast_1d(np.asarray(limit, np.float64))

        def counts(values: FloatArray) -> BoolArray:  # whether these values are among those to count
            with np.errstate(all="ignore"):
                made = self._of(values)
            return np.asarray(made <= limits if side == "right" else made < limits)

        # Between ``low`` and ``high`` lies the first value that is not counted, or (falls) the first one that is.
        low, high = np.full(len(limits), self._edges[0]), np.full(len(limits), self._edges[1] + 1)
        while bool((low < high).any()):
            middle = (low >> 1) + (high >> 1) + (low & high & 1)  # their difference may have no place in 64 bits
            before = counts(values_of(np.minimum(middle, self._edges[1]))) != self._falls
            low, high = np.where((low < high) & before, middle + 1, low), np.where(before, high, middle)
        inside = low <= self._edges[1]
        below = np.full(len(limits), len(self))
        below[inside] = self._ordered.searchsorted(values_of(low[inside]), "left")
        found = len(self) - below if self._falls else below
        return found if np.ndim(limit) else found[0]


def keys_of(values: FloatArray) -> IntArray:
    """Whole numbers in the order of the values, neighbours for neighbours."""
    bits = np.ascontiguousarray(values + 0.0).view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def values_of(keys: IntArray) -> FloatArray:
    return np.where(keys < 0, np.iinfo(np.int64).min - keys, keys).view(np.float64)


class Standing(Protocol):
    """Stands for values in ascending order that are in no memory, as ``Folded`` does."""

    def __len__(self) -> int: ...
    def __getitem__(self, rank: Any) -> Any: ...
    def searchsorted(self, limit: float | FloatArray, side: str = "left") -> Any: ...
    def mean(self) -> float: ...
    def std(self, ddof: int = 0) -> float: ...


#: Values in ascending order: an array, or what stands for one.
Ordered = FloatArray | Standing
#: Or a function of them.
Ranked = Ordered | Mapped


def mapped(ordered: Ordered, of: Callable[[FloatArray], FloatArray], falls: bool = False) -> Ranked:
    """``of`` the values, ascending; the function never falls, or (``falls``) never rises."""
    if isinstance(ordered, np.ndarray):
        return of(ordered)[::-1] if falls else of(ordered)
    return Mapped(ordered, of, falls)


def ranked(values: FloatArray, bits: int | None = None) -> Ordered:
    """The values in ascending order, for who asks for some ranks and limits: to count many takes a third of sorting.

    ``bits``: of the buckets (``buckets``), for who looks at more than ranks.
    """
    if len(values) <= SLAB:
        return np.sort(values)

    def slabs() -> Iterator[tuple[FloatArray, IntArray]]:
        for first in range(0, len(values), SLAB):
            yield values[first : first + SLAB], _NO_ROWS

    found = Folded(slabs, bits or (_FEWER_BITS if len(values) <= _FEWER else _SOME_BITS), _UNDER)
    for part, _ in slabs():
        found.add(part)
    return found


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
        folded: Standing | None = None,
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
    def remade(self) -> bool:
        """They are in no memory, but made anew in each pass."""
        return self._folded is not None

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

    @property
    def ranked(self) -> Ordered:
        """``ordered``, or what stands for it where nobody has sorted yet: for who asks for some ranks and limits."""
        return self.ordered if self._folded is not None or "ordered" in self.__dict__ else ranked(self.values)

    def mean(self) -> float:
        """The mean of the ascending values; +-inf where one of them is."""
        return float(self.ordered.mean())
