"""Intervals of equal width over a run of unknown length: when there are ``MOST``, neighbours are put together two by two.

Every count survives that: totals stay the same, percentiles are of the bins added up. No clock, no drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.reports.dashboard.percentiles import percentiles

#: A picture has a pixel or four for each of so many; memory is bounded by it.
MOST = 240
FIRST_NS = 1_000_000_000

#: n, and then p50, p90, p99 in ns; None is infinite, or nothing where n is 0.
Found = tuple[int, tuple[int | None, int | None, int | None]]


class Interval:
    """What happened in one stretch of time.

    ``sent``, ``done``: requests, fractions of one where a status line spans a boundary. ``failed``: of all, ``lost``: of the
    measured ones. ``in_flight``: the most seen, None when nobody looked. ``spreads``: by name, bin -> count. ``counts``: by
    objective, n and how many were bad.
    """

    __slots__ = ("_found", "counts", "done", "failed", "in_flight", "lost", "sent", "spreads")

    def __init__(self, objectives: int) -> None:
        self.sent = 0.0
        self.done = 0.0
        self.failed = 0
        self.lost = 0
        self.in_flight: int | None = None
        self.spreads: dict[str, dict[int, int]] = {}
        self.counts = [(0, 0)] * objectives
        self._found: dict[str, Found] = {}

    def add(self, name: str, histogram: Mapping[str, int] | Mapping[int, int]) -> None:
        """Values of one kind by bin."""
        if not histogram:
            return
        bins = self.spreads.setdefault(name, {})
        for key, count in histogram.items():
            bins[int(key)] = bins.get(int(key), 0) + count
        self._found.clear()

    def flying(self, number: int) -> None:
        """So many were in flight at one look."""
        self.in_flight = number if self.in_flight is None else max(self.in_flight, number)
        self._found.clear()

    def judged(self, index: int, n: int, bad: int) -> None:
        """Of the objective at ``index``, ``n`` more ended and ``bad`` of them broke the limit."""
        n_before, bad_before = self.counts[index]
        self.counts[index] = (n_before + n, bad_before + bad)

    def merge(self, other: Interval) -> None:
        """Take up the interval after this one."""
        self.sent += other.sent
        self.done += other.done
        self.failed += other.failed
        self.lost += other.lost
        if other.in_flight is not None:
            self.flying(other.in_flight)
        for name, bins in other.spreads.items():
            self.add(name, bins)
        for index, (n, bad) in enumerate(other.counts):
            self.judged(index, n, bad)
        self._found.clear()

    def percentiles(self, name: str) -> Found:
        """Of the values of this kind; measured failures are infinite, as in the report."""
        found = self._found.get(name)
        if found is None:
            bins = self.spreads.get(name, {})
            found = self._found[name] = (sum(bins.values()) + self.lost, percentiles(bins, self.lost))
        return found


class Intervals:
    """All intervals from ``start_ns`` (the beginning of the warm-up, or t0) on."""

    def __init__(self, start_ns: int, objectives: int) -> None:
        self.start_ns = start_ns
        self.width_ns = FIRST_NS
        self._objectives = objectives
        self._all: list[Interval] = []

    def __len__(self) -> int:
        return len(self._all)

    def at(self, time_ns: int) -> Interval:
        """The interval that holds a time; what came before the first one is counted to it."""
        index = max(0, (time_ns - self.start_ns) // self.width_ns)
        while index >= MOST:
            self._fold()
            index = max(0, (time_ns - self.start_ns) // self.width_ns)
        while index >= len(self._all):
            self._all.append(Interval(self._objectives))
        return self._all[index]

    def spread(self, from_ns: int, to_ns: int, sent: int, done: int) -> None:
        """Requests sent and done at some time between the two, taken as evenly spread."""
        span = to_ns - from_ns
        if span <= 0:
            here = self.at(to_ns)
            here.sent += sent
            here.done += done
            return
        self.at(to_ns)  # fold first: the width stays the same below
        begin = from_ns
        while begin < to_ns:
            edge = max(self.start_ns, begin + self.width_ns - (begin - self.start_ns) % self.width_ns)
            end = min(edge, to_ns)
            here = self.at(begin)
            here.sent += sent * (end - begin) / span
            here.done += done * (end - begin) / span
            begin = end

    def shown(self, settled_ns: int | None, now_ns: int) -> Sequence[Interval]:
        """Those that are over by ``settled_ns``; all up to ``now_ns`` when that is None.

        All of them: less than half an interval at the end is put to the one before, so that its rates say something.
        """
        if settled_ns is None:
            self.at(max(now_ns - 1, self.start_ns))
            left_ns = now_ns - self.start_ns - (len(self._all) - 1) * self.width_ns
            if len(self._all) < 2 or 2 * left_ns >= self.width_ns:
                return tuple(self._all)
            last = Interval(self._objectives)
            for part in self._all[-2:]:
                last.merge(part)
            return (*self._all[:-2], last)
        return tuple(self._all[: max(0, (settled_ns - self.start_ns) // self.width_ns)])

    def _fold(self) -> None:
        if len(self._all) % 2:
            self._all.append(Interval(self._objectives))
        for left, right in zip(self._all[::2], self._all[1::2], strict=True):
            left.merge(right)
        self._all = self._all[::2]
        self.width_ns *= 2
