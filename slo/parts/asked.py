"""The order of values that lie in parts: any rank and any count, exactly, by questions of a few kilobytes.

All parts count their values in buckets once; who asks for a rank or a limit has the buckets it lies in divided until
few values are left in one, and gets those. Where everything stays, a question costs what it asks about.
"""

import math
from collections.abc import Callable

import numpy as np

from plimsoll.slo.parts.part import BITS, INFINITE, UNDER
from plimsoll.slo.parts.wire import Digest, Of, Question
from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.order import begins_of, keys_of, values_of

Ask = Callable[[Question], Digest]

#: Of so many values in a range the range is not divided further: they are fetched.
FEW = 4096
#: Into so many ranges one is divided.
WAYS = 256


class Asked:
    """Stands for ``ordered`` float64[n], as ``plimsoll.slo.statistics.order.Folded`` does, by what ``ask`` answers.

    ``lows`` float64[m] and ``counts`` int64[m]: a histogram of the values. Ranges of keys (``keys_of``) that hold some
    begin at ``_low`` and end before ``_high``; ``_end`` values are before their ends.
    """

    def __init__(self, ask: Ask, of: Of, told: Digest) -> None:
        self._ask, self._of = ask, of
        cells, self.counts = told["#cells"]
        self._n, self._sum = int(self.counts.sum()), float(told["+sum"][0])
        self._low, self._high = _edges(cells), _edges(cells + 1)
        self.cells, self._end = cells, np.cumsum(self.counts)
        self.lows = np.where(cells == INFINITE, np.inf, begins_of(cells, BITS, UNDER))
        self._opened: dict[int, FloatArray] = {}

    def __len__(self) -> int:
        return self._n

    def mean(self) -> float:
        """As of ``Folded``: of whole numbers exact as long as their sum is below 2^53."""
        return self._sum / self._n

    def std(self, ddof: int = 0) -> float:
        """The standard deviation of finite values."""
        found = self._ask(Question("squares", self._of, {"centre": np.array([self.mean()])}))
        return math.sqrt(float(found["+squares"][0]) / (self._n - ddof))

    def __getitem__(self, rank: int | IntArray) -> FloatArray:
        """The values of these ranks, counted from 0 as in an array; of a single one a float64."""
        asked = np.atleast_1d(np.asarray(rank, np.int64))
        asked = np.where(asked < 0, asked + self._n, asked)
        if len(asked) and not (int(asked.min()) >= 0 and int(asked.max()) < self._n):
            raise IndexError(f"rank {rank} of {self._n} values")
        while True:
            place = np.searchsorted(self._end, asked, side="right")
            closed = [one for one in np.unique(place).tolist() if int(self._low[one]) not in self._opened]
            if not closed:
                break
            self._narrow(closed)
        before = np.append(0, self._end)[place]
        opened = (self._opened[int(self._low[one])] for one in place.tolist())
        found = np.array([values[at] for values, at in zip(opened, (asked - before).tolist(), strict=True)])
        return found if np.ndim(rank) else found[0]

    def searchsorted(self, limit: float | FloatArray, side: str = "left") -> IntArray:
        """How many values are below each limit (``right``: not above it), as numpy's."""
        keys = keys_of(np.atleast_1d(np.asarray(limit, np.float64))) + (side == "right")
        place = np.searchsorted(self._low, keys, side="right") - 1
        inside = [
            one >= 0 and self._low[one] < key < self._high[one] and int(self._low[one]) not in self._opened
            for key, one in zip(keys.tolist(), place.tolist(), strict=True)
        ]
        if any(inside):
            self._divide(np.unique(keys[inside]))
            place = np.searchsorted(self._low, keys, side="right") - 1
        found = np.zeros(len(keys), np.int64)
        for i, (key, one) in enumerate(zip(keys.tolist(), place.tolist(), strict=True)):
            if one < 0:
                continue
            values, before = self._opened.get(int(self._low[one])), int(self._end[one - 1]) if one else 0
            if key >= self._high[one]:
                found[i] = self._end[one]
            elif key == self._low[one] or values is None:
                found[i] = before
            else:
                found[i] = before + np.searchsorted(keys_of(values), key, "left")
        return found if np.ndim(limit) else found[0]

    def _narrow(self, ranges: list[int]) -> None:
        """Fetch what is in these ranges, or divide them where that is much."""
        size = np.diff(np.append(0, self._end))
        width = self._high - self._low
        for one in ranges:
            if width[one] == 1:
                self._opened[int(self._low[one])] = np.broadcast_to(values_of(self._low[[one]]), (int(size[one]),))
        few = [one for one in ranges if size[one] <= FEW and width[one] > 1]
        if few:
            spans = np.stack([self._low[few], self._high[few]])
            values = np.sort(self._ask(Question("inside", self._of, {"keys": spans}))["&values"])
            for one, part in zip(few, np.split(values, np.cumsum(size[few])[:-1]), strict=True):
                self._opened[int(self._low[one])] = part
        many = [one for one in ranges if size[one] > FEW and width[one] > 1]
        points: list[int] = []
        for low, high in zip(self._low[many].tolist(), self._high[many].tolist(), strict=True):
            points += range(low + max((high - low) // WAYS, 1), high, max((high - low) // WAYS, 1))
            points += (0, 1) if low < 0 < high - 1 else ()  # nothing is more often than a value of 0
        if points:
            self._divide(np.unique(points))

    def _divide(self, points: IntArray) -> None:
        """End a range, and begin another, at each of these keys."""
        below = self._ask(Question("below", self._of, {"keys": points}))["+below"]
        low = np.append(self._low, points)
        before = np.append(np.append(0, self._end[:-1]), below)
        order = np.argsort(low, kind="stable")
        low, before = low[order], before[order]
        owner = np.searchsorted(self._low, low, side="right") - 1
        last = np.append(owner[1:] != owner[:-1], True)
        self._high = np.where(last, self._high[owner], np.append(low[1:], 0))
        end = np.where(last, self._end[owner], np.append(before[1:], 0))
        kept = end > before
        self._low, self._high, self._end = low[kept], self._high[kept], end[kept]


def _edges(cells: IntArray) -> IntArray:
    """int64[n]: the least key of each bucket. Those of negative values end where their size is least."""
    begins = keys_of(begins_of(np.maximum(cells, 1), BITS, UNDER))
    found = np.where(cells > 0, begins, keys_of(-begins_of(np.maximum(1 - cells, 1), BITS, UNDER)) + 1)
    ends = keys_of(np.array([-np.inf, np.inf]))
    found[cells <= 1 - INFINITE] = ends[0]
    found[cells >= INFINITE] = ends[1] + (cells[cells >= INFINITE] > INFINITE)
    return found
