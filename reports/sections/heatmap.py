"""Records to a heat map: how one latency was distributed in each stretch of the run, in a bounded number of cells.

A percentile line says that something moved; the map says whether everybody moved or a few, in one cluster or two. Failed
requests have a row of their own above all values: they are infinitely slow, never absent. Nothing is smoothed.
"""

from __future__ import annotations

import numpy as np

from plimsoll.reports.parts.chart_parts import Heatmap, Timeline
from plimsoll.reports.sections.chart_data import band
from plimsoll.slo.records.records import FloatArray, IntArray

#: Cells: at most so many columns of time and rows of values.
MAX_COLUMNS = 120
MAX_ROWS = 36
#: Requests that a column should hold, so that its colours mean something.
_PER_COLUMN = 12


def heatmap(name: str, values: FloatArray, due_ns: IntArray, unit: str, timeline: Timeline) -> Heatmap | None:
    """The map of ``values`` (+inf for failures) by when each was due, its columns whole buckets of ``timeline``.

    None where there is no finite value.
    """
    finite = np.isfinite(values)
    if not finite.any():
        return None
    together = _buckets_a_column(len(values), len(timeline.due))
    width, columns = timeline.bucket_ns * together, -(-len(timeline.due) // together)
    column = np.clip((due_ns - timeline.start_ns) // width, 0, columns - 1)
    edges = _edges(values[finite], unit)
    rows = len(edges) - 1
    row = np.clip(np.searchsorted(edges, values[finite], side="right") - 1, 0, rows - 1)
    counts = np.bincount(row * columns + column[finite], minlength=rows * columns).reshape(rows, columns)
    p50, p99 = band(values, column, columns, unit)
    return Heatmap(
        metric=name,
        unit=unit,
        column_ns=width,
        start_ns=timeline.start_ns,
        end_ns=timeline.end_ns,
        n=len(values),
        edges=[float(f"{edge:.6g}") for edge in edges],
        counts=counts.tolist(),
        failed=np.bincount(column[~finite], minlength=columns).tolist(),
        p50=p50,
        p99=p99,
    )


def _buckets_a_column(n: int, buckets: int) -> int:
    """How many buckets of the timeline make a column that holds enough requests, of at most ``MAX_COLUMNS``."""
    columns = min(MAX_COLUMNS, max(8, n // _PER_COLUMN), buckets)
    return -(-buckets // max(columns, 1))


def _edges(finite: FloatArray, unit: str) -> FloatArray:
    """Edges of equal ratio from the least to the greatest value; fewer rows for few values or a narrow range."""
    floor = 1.0 if unit == "ns" else 1e-9
    low, high = max(float(finite.min()), floor), max(float(finite.max()), floor)
    if high < low * 1.1:
        low, high = low * 0.95, high * 1.05
    rows = int(min(MAX_ROWS, max(8, np.sqrt(len(finite)) * 1.5)))
    edges = np.geomspace(low, high, rows + 1)
    # Rounded outwards, because what is written are six digits and no value may lie outside of them.
    edges[0], edges[-1] = edges[0] * (1 - 1e-5), edges[-1] * (1 + 1e-5)
    return np.asarray(edges)
