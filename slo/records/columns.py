"""Columns and lists of rows that are made when they are asked for: picking rows copies nothing.

A run of a hundred million rows has columns of hundreds of megabytes each. A part of its rows is therefore a view where
the rows stand one after another, and else a column is gathered when somebody reads it. A column that holds one value
in every row holds it once (an array whose stride is 0).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
_T = TypeVar("_T")

#: What is worked on at once, a row counting as eight entries of its list: it stays in the processor's cache.
BLOCK = 1 << 18
_ROW = 8


class Columns(Mapping[str, _T], Generic[_T]):
    """What ``make(name)`` gives for each of these names, made when it is first asked for, and kept."""

    def __init__(self, names: Collection[str], make: Callable[[str], _T]) -> None:
        self._names, self._make = tuple(names), make
        self._made: dict[str, _T] = {}

    def __getitem__(self, name: str) -> _T:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some of n rows: ``where`` is a slice of step 1, bool[n], or int64 positions; ``count`` of them."""

    where: Any
    count: int

    @classmethod
    def of(cls, rows: slice | npt.NDArray[Any], n: int) -> Rows:
        """``rows`` of n: a slice, bool[n], or positions in any order; negative ones count from the end.

        Rows one after another become a slice; other arrays are copied. Raises IndexError for rows that are not there.
        """
        if isinstance(rows, slice) and rows.step in (None, 1):
            begin, end, _ = rows.indices(n)
            return cls(slice(begin, max(begin, end)), max(0, end - begin))
        picked = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(rows)
        if picked.dtype == np.bool_:
            if len(picked) != n:
                raise IndexError(f"{len(picked)} marks for {n} rows; give one per row")
            count = int(np.count_nonzero(picked))
            first = int(picked.argmax()) if count else 0
            together = bool(picked[first : first + count].all())
            return cls(slice(first, first + count) if together else picked.copy(), count)
        if not len(picked):
            return cls(slice(0, 0), 0)
        least, most = int(picked.min()), int(picked.max())
        if not -n <= least <= most < n:
            raise IndexError(f"rows {least} to {most} are not all among {n} rows")
        picked = picked.astype(np.int64) if least >= 0 else np.where(picked < 0, picked + n, picked).astype(np.int64)
        first = int(picked[0])
        if int(picked[-1]) - first == len(picked) - 1 and bool((picked[1:] - picked[:-1] == 1).all()):
            return cls(slice(first, first + len(picked)), len(picked))
        return cls(picked, len(picked))

    def part(self, begin: int, end: int) -> slice | IntArray:
        """The positions of the rows from number ``begin`` to ``end`` of these, among the n."""
        if isinstance(self.where, slice):
            return slice(self.where.start + begin, self.where.start + end)
        if self.where.dtype != np.bool_:
            return np.asarray(self.where[begin:end])
        blocks = np.arange(0, len(self.where), BLOCK)
        before = np.concatenate([[0], np.cumsum([np.count_nonzero(self.where[at : at + BLOCK]) for at in blocks])])
        first = int(np.searchsorted(before, begin, side="right")) - 1
        last = int(np.searchsorted(before, end))
        found = np.flatnonzero(self.where[first * BLOCK : last * BLOCK]) + first * BLOCK
        return np.asarray(found[begin - before[first] : end - before[first]])

    def select(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of these rows, read-only: a view where it can be one."""
        if constant(values) and not isinstance(self.where, slice):
            return np.broadcast_to(values[:1], (self.count,))
        found = np.asarray(values[self.where])
        found.setflags(write=False)
        return found


def constant(values: npt.NDArray[Any]) -> bool:
    """One value, held once, stands in every row."""
    return len(values) > 0 and values.strides == (0,)


def as_type(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values as this type: themselves where they have it, and one value stays one."""
    if constant(values):
        return np.broadcast_to(values[:1].astype(dtype, copy=False), values.shape)
    return values.astype(dtype, copy=False)


def own(values: Any, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A read-only array of this type: the given one where nobody may write to it, else a copy."""
    array = np.asarray(values)
    if array.flags.writeable or array.dtype != np.dtype(dtype):
        array = as_type(array, dtype) if constant(array) else np.array(array, dtype)
        array.setflags(write=False)
    return array


def offsets_of(lengths: npt.NDArray[Any]) -> IntArray:
    """Where lists of these lengths begin and end when they stand one after another: int64[n + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def blocks(offsets: IntArray, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """(begin, end) of rows that are worked on at once: at least one row, at most ``size`` entries of their lists."""
    n, begin = len(offsets) - 1, 0
    rows = np.arange(1, size // _ROW + 1) * _ROW
    while begin < n:
        ends = offsets[begin + 1 : begin + 1 + len(rows)]
        weights = ends - offsets[begin] + rows[: len(ends)]
        end = begin + max(1, int(np.searchsorted(weights, size, side="right")))
        yield begin, end
        begin = end


class Lists:
    """One list of whole numbers a row: row i has ``values[offsets[i]:offsets[i + 1]]`` (int64[n + 1], int64[m])."""

    dropped = False

    def __init__(self, offsets: IntArray, values: IntArray, dropped: bool = False) -> None:
        """``dropped``: what all rows said was known once, and here are those that are left."""
        self._offsets, self._values, self.dropped = offsets, values, dropped

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def offsets(self) -> IntArray:
        """int64[n + 1]"""
        return self._offsets

    @property
    def values(self) -> IntArray:
        """int64[m]"""
        return self._values

    def part(self, begin: int, end: int) -> IntArray:
        """The values of the rows from ``begin`` to ``end``."""
        return self.values[self.offsets[begin] : self.offsets[end]]

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """(first, last) int64[n] of each list, -1 of an empty one.

        All values are copied, some at a time: to pick one a row would bring the pages of all into memory at once.
        """
        found = np.full((2, len(self)), -1)
        for begin, end in blocks(self.offsets) if self.offsets[-1] else ():
            values, at = self.part(begin, end).copy(), self.offsets[begin : end + 1] - self.offsets[begin]
            has = np.flatnonzero(at[1:] > at[:-1])
            found[0, begin + has], found[1, begin + has] = values[at[has]], values[at[has + 1] - 1]
        found.setflags(write=False)
        return found[0], found[1]

    def select(self, rows: Rows) -> Lists:
        return _Picked(self, rows)


class _Picked(Lists):
    """The lists of some rows of another."""

    def __init__(self, whole: Lists, rows: Rows) -> None:
        self._whole, self._rows, self.dropped = whole, rows, whole.dropped

    def __len__(self) -> int:
        return self._rows.count

    @cached_property
    def _offsets(self) -> IntArray:  # type: ignore[override]
        given = self._whole.offsets
        if isinstance(self._rows.where, slice):
            found = given[self._rows.where.start : self._rows.where.stop + 1]
            found = found - found[0] if found[0] else found
        else:
            found = offsets_of(self._rows.select(np.diff(given)))
        found.setflags(write=False)
        return found

    @cached_property
    def _values(self) -> IntArray:  # type: ignore[override]
        found = self._made(0, len(self))
        found.setflags(write=False)
        return found

    def part(self, begin: int, end: int) -> IntArray:
        return super().part(begin, end) if "_values" in self.__dict__ else self._made(begin, end)

    def _made(self, begin: int, end: int) -> IntArray:
        where = self._rows.part(begin, end)
        if isinstance(where, slice):
            return self._whole.part(where.start, where.stop)
        return _gathered(self._whole.offsets, self._whole.values, where)


def _gathered(offsets: IntArray, values: IntArray, rows: IntArray) -> IntArray:
    """The entries of these rows' lists, one list after another."""
    bounds = offsets_of(offsets[rows + 1] - offsets[rows])
    found = np.empty(bounds[-1], np.int64)
    for begin, end in blocks(bounds):
        starts = bounds[begin:end] - bounds[begin]
        # The position of an entry: its distance from the row's first one, plus where that row starts.
        lead = np.repeat(offsets[rows[begin:end]] - starts, np.diff(bounds[begin : end + 1]))
        found[bounds[begin] : bounds[end]] = values[np.arange(len(lead)) + lead]
    return found
