"""How long a run remembers, by sums of its parts: ranks added up in cells of due time, and windows in full.

Cells have nearly equal counts, as those of ``plimsoll.slo.statistics.memory`` have, and sums add up over parts, however
requests were dealt to them. What neighbours share needs neighbours: requests due in some windows of all parts, in
order. docs/evidence/statistics.md has how often such a verdict is wrong.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.parts.part import cells_of
from plimsoll.slo.parts.wire import Digest
from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics import memory as remembered
from plimsoll.slo.statistics.memory import LAGS, LEAST, Memory
from plimsoll.slo.statistics.share import LEVELS, crowded

#: Cells at most, and parts of a schedule with changing rates, which are of whole cells.
CELLS, PARTS = 4096, 16
#: So many requests at most are looked at in full, in windows of so many.
SAMPLE, WINDOW = 1 << 16, 128
#: Values are ranked among so many of them.
KNOTS = 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """``edges`` int64[cells + 1]: due times between which nearly equal numbers of requests lie. ``windows`` int64[2, k]
    (begins, ends) of those to look at in full; ``whole``: they are all. ``cut`` int64[cells]: the part of a schedule
    with changing rates that each cell is in; None: its rate is constant.
    """

    edges: IntArray
    windows: IntArray
    whole: bool
    cut: IntArray | None

    def some(self, each: float) -> IntArray:
        """As many of the windows as ``SAMPLE`` values are in, where a request has ``each``."""
        return self.windows[:, :: max(math.ceil(each), 1)]


def frame_of(first: int, last: int, rows: IntArray, planned: bool) -> Frame:
    """``rows`` int64[bins]: requests due in equal stretches from ``first`` to ``last``; ``planned``: due times are a
    schedule's.
    """
    before = np.append(0, np.cumsum(rows))
    n, cells = int(before[-1]), len(rows)

    def due(places: FloatArray) -> IntArray:
        """When so many requests were due, about."""
        at = first + (last + 1 - first) * np.arange(cells + 1) / cells
        return np.asarray(np.interp(places, before, at)).astype(np.int64)

    edges = due(np.linspace(0, n, cells + 1))
    whole = n <= SAMPLE
    pieces = math.ceil(n / WINDOW) if whole else SAMPLE // WINDOW
    ends = np.linspace(0, n, pieces + 1)
    begins, ends = ends[:-1], ends[1:]
    if not whole:
        begins = begins + np.random.default_rng(1).random(pieces) * (n / pieces - WINDOW)
        ends = begins + WINDOW
    windows = np.stack([due(begins), due(ends)])
    if whole:
        windows[0, 0], windows[1, -1] = first, last + 1
    return Frame(edges, windows, whole, _cut(edges, n) if planned else None)


def _cut(edges: IntArray, n: int) -> IntArray | None:
    """The cells in parts of equal counts, if these take times that a constant rate would not give them."""
    cells = len(edges) - 1
    if n // PARTS < LEAST:
        return None
    took = np.diff(edges[:: cells // PARTS]).astype(np.float64)
    if float(np.abs(took / took.mean() - 1).max()) <= 6 / math.sqrt(n // PARTS):
        return None
    return np.repeat(np.arange(PARTS), cells // PARTS)


def knots_of(values: FloatArray) -> FloatArray:
    """Some of the values, ascending, that others are ranked among."""
    ordered = np.sort(values)
    return ordered[np.arange(KNOTS) * len(ordered) // KNOTS] if len(ordered) > KNOTS else ordered


def memory_of(told: Digest, knots: int, frame: Frame, in_flight: float) -> Memory:
    """The memory of values by what all parts say of their ranks; of requests with several, of the sums of theirs."""
    rows, sizes, twice = told["+bins"].astype(np.float64)
    n, entries, scale = int(rows.sum()), float(sizes.sum()), 2.0 * knots
    if n < LEAST:
        return remembered.independent(n)
    mean = float(twice.sum()) / scale / entries
    each, summed, across, pairs = told["+squares"].tolist()
    cells, taken = twice / scale - mean * sizes, 0.0
    squares = summed / scale**2 - 2 * mean * across / scale + mean * mean * pairs
    order = np.random.default_rng(2).permutation(len(told["&due"]))
    order = order[np.argsort(told["&due"][order], kind="stable")]
    due, score = told["&due"][order], told["&twice"][order] / scale - mean * told["&sizes"][order]
    if frame.cut is not None:
        held = np.maximum(np.bincount(frame.cut, rows), 1)
        level = (np.bincount(frame.cut, cells) / held)[frame.cut]
        taken = float((np.square(level) * rows).sum())
        cells = cells - level * rows
        score = score - level[cells_of(due, frame.edges)]
    variance = (squares - taken) / n
    if variance <= 1e-12:
        return remembered.independent(n)
    lagged, seen = _lagged(due, score, frame)
    lowest = 1 if frame.cut is None else int(frame.cut[-1]) + 1
    found = remembered.of_cells(cells, n, variance, lagged / variance, seen, in_flight, lowest)
    if entries == n:
        return found
    square = each / entries / scale**2 - mean * mean
    within = max(1.0, squares / n / max(square * entries / n, 1e-300))
    for (k, squared, crossed), _ in zip(told["+crowds"].tolist(), LEVELS, strict=True):
        share = k / entries
        if 0 < share < 1:
            event = (squared - 2 * share * crossed + share * share * pairs) / n
            within = max(within, crowded(event, entries / n, share))
    return Memory(n, found.time, found.own, found.doubt, within)


def _lagged(due: IntArray, score: FloatArray, frame: Frame) -> tuple[FloatArray, int]:
    """(mean products of scores some places apart in one window, float64[lags]; how many scores those are of)."""
    sums, pairs = np.zeros(LAGS[-1]), np.zeros(LAGS[-1])
    begins = [0] if frame.whole else np.searchsorted(due, frame.windows[0]).tolist()
    for begin, end in itertools.pairwise([*begins, len(due)]):
        part = score[begin:end]
        for lag in range(1, min(LAGS[-1], len(part) - 1) + 1):
            sums[lag - 1] += float(part[lag:] @ part[:-lag])
            pairs[lag - 1] += len(part) if frame.whole else len(part) - lag
    return sums / np.maximum(pairs, 1), max(len(score), 1)
