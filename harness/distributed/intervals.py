"""Interval histograms: for each second of a run and each metric, HDR counts that add up over workers, agents and time.
Pure.

The values are the finite ones of the indicator of that name, exactly those of the report: adding up all intervals gives
the histogram of the run's records. A value belongs to the second in which its request was done. Counts travel sparse (a
histogram of the default layout has 33,792 counts, a second of a run fills some hundred of them) and become
HdrHistogram's own encoding in ``intervals.hlog``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.harness.distributed.fleet_messages import batches
from plimsoll.harness.generator.segments import read_segment
from plimsoll.harness.process.writing import whole
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.metrics.indicator import Indicator, catalogue, measure
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import distribution
from plimsoll.slo.statistics.distribution import DEFAULT_HDR, IntArray

METRICS = ("latency", "ttft", "tpot", "itl")
SECOND_NS = 1_000_000_000
_COUNTS = DEFAULT_HDR.counts_len
#: Increments of one second are kept apart until they have so many buckets, and half as many as their sum: adding up
#: then costs each bucket a constant, and what is held is one and a half times the buckets in use, however many agents
#: there are.
_LOOSE = 256

#: (second after t0, metric) -> index of the count -> count.
Key = tuple[int, str]
Row = tuple[int, str, list[int], list[int]]
#: Indices and counts, six bytes a bucket: an hour has 14,400 histograms of some thousand.
_Part = tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]


@cache
def _indicators() -> Mapping[str, Indicator]:
    known = catalogue()
    return {name: known[name] for name in METRICS}


def rows_of(records: Records) -> list[Row]:
    """The increments that these records are: one row for each second and metric that has a value."""
    found: list[Row] = []
    if not len(records):
        return found
    seconds = records["done_ns"] // SECOND_NS
    for name, indicator in _indicators().items():
        measured = measure(indicator, records)
        finite = np.isfinite(measured.values) & (measured.values >= 0)
        if not bool(finite.any()):
            continue
        values = np.minimum(measured.values[finite], DEFAULT_HDR.highest).astype(np.int64)
        found += _counted(name, seconds[measured.row[finite]], DEFAULT_HDR.index(values))
    return found


def _counted(name: str, seconds: IntArray, index: IntArray) -> Iterator[Row]:
    width = _COUNTS
    keys, counts = np.unique(seconds * width + index, return_counts=True)
    of_second = keys // width
    starts = np.flatnonzero(np.diff(of_second, prepend=of_second[0] - 1))
    for first, last in zip(starts, [*starts[1:], len(keys)], strict=True):
        at = (keys[first:last] % width).tolist()
        yield max(0, int(of_second[first])), name, at, counts[first:last].tolist()


class Merged:
    """The sum of many increments, sparse: memory is that of the buckets in use."""

    def __init__(self) -> None:
        self._parts: dict[Key, list[_Part]] = {}  # the sum so far, and what came since

    @property
    def held(self) -> int:
        """Buckets in memory."""
        return sum(len(index) for parts in self._parts.values() for index, _ in parts)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add increments. Raises ValueError for what is none."""
        for second, metric, at, counts in rows:
            index, number = np.asarray(at, np.int64), np.asarray(counts, np.int64)
            if metric not in METRICS or index.shape != number.shape or index.ndim != 1 or second < 0:
                raise ValueError(f"no increment of a histogram: {metric!r}, second {second!r}")
            if len(index) and not (
                index.min() >= 0 and index.max() < _COUNTS and 0 <= number.min() <= number.max() < 1 << 32
            ):
                raise ValueError(f"no counts of this layout: {metric!r}, second {second!r}")
            parts = self._parts.setdefault((int(second), str(metric)), [])
            parts.append((index.astype(np.uint16), number.astype(np.uint32)))
            loose = sum(len(part) for part, _ in parts[1:])
            if loose > max(_LOOSE, len(parts[0][0]) // 2):
                parts[:] = [_added(parts)]

    def __len__(self) -> int:
        return len(self._parts)

    def take(self) -> list[Row]:
        """Everything as increments, and nothing is left here."""
        held, self._parts = self._parts, {}
        sums = ((key, _added(parts)) for key, parts in sorted(held.items()))
        return [(second, name, index.tolist(), counts.tolist()) for (second, name), (index, counts) in sums]

    def log(self, t0_wall_ns: int) -> str:
        """``intervals.hlog``: one line for each second and metric, in order of time; printed maxima are in ms."""
        return "".join(distribution.lines(t0_wall_ns / 1e9, self._intervals()))

    def _intervals(self) -> Iterator[distribution.Interval]:
        for (second, metric), parts in sorted(self._parts.items()):
            index, number = _added(parts)
            counts: IntArray = np.zeros(_COUNTS, np.int64)
            counts[index] = number
            yield distribution.Interval(float(second), 1.0, counts, tag=metric)


def _added(parts: Sequence[_Part]) -> _Part:
    """(indices in order, counts) of the sum."""
    if len(parts) == 1:
        return parts[0]
    index, place = np.unique(np.concatenate([at for at, _ in parts]), return_inverse=True)
    total: IntArray = np.zeros(len(index), np.int64)
    np.add.at(total, place, np.concatenate([counts for _, counts in parts]))
    return index, total.astype(np.uint32)


def split(rows: Iterable[Row], room: int) -> Iterator[list[Row]]:
    """The rows in lists whose JSON stays below ``room`` bytes (16 for a count with its index, 64 for a row)."""
    most = max(1, (room - 64) // 16)
    parts = (
        (second, name, at[first : first + most], counts[first : first + most])
        for second, name, at, counts in rows
        for first in range(0, len(at), most)
    )
    return batches(((part, 64 + 16 * len(part[2])) for part in parts), room)


# -- intervals.hlog ------------------------------------------------------------------------------------------------

FILE = "intervals.hlog"


def marking(scenario: Scenario, plan: Extent) -> Callable[[Records], Records]:
    """How queries that the scenario cancels on purpose are set apart."""
    if not scenario.cancel:
        return lambda records: records
    section = scenario.cancels
    return lambda records: cancelled.marked(
        records, cancellation.chosen(section, scenario.seed, plan, records["query_id"])
    )


def counted(folder: Path, kept: Iterable[Records], marked: Callable[[Records], Records]) -> Merged:
    """The intervals of every readable segment in ``folder``, one after the other, and of rows ``kept`` in memory.

    The file is of the records: of an agent that was lost midway the increments may differ from them.
    """
    merged = Merged()
    for path in sorted(folder.glob("w*.seg")):
        try:
            records = read_segment(path)
        except (OSError, ValueError, KeyError):
            continue  # sealing says so
        merged.add(rows_of(marked(records)))
    for records in kept:
        merged.add(rows_of(marked(records)))
    return merged


def write(merged: Merged, t0_wall_ns: int, run: Path) -> None:
    """The file in the run directory, if there is an interval. Raises OSError."""
    if len(merged):
        whole(run / FILE, merged.log(t0_wall_ns).encode("ascii"))
