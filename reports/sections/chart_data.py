"""Arrays to chart data: quantile curves and log-spaced histograms of bounded size, exact and vectorised.

Values come in as float64 with +inf for failed requests. Nothing here is drawn, and nothing is fitted or
smoothed: each number can be recomputed from the records.
"""

from __future__ import annotations

import numpy as np

from plimsoll.reports.parts.chart_parts import Curve, Distribution
from plimsoll.reports.parts.parts import MAX_CURVE_POINTS, Number
from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.distribution import exact, quantile

_BINS = 48
_USUAL = ("0.25", "0.5", "0.75", "0.9", "0.95", "0.99", "0.999", "0.9999", "0.99999", "0.999999")


def number(value: float, unit: str) -> Number:
    """A float as ``report.json`` writes it: None for an infinity or NaN, an int for nanoseconds."""
    if not np.isfinite(value):
        return None
    return round(value) if unit == "ns" else float(value)


def curve(ordered: FloatArray, unit: str) -> Curve:
    """Quantiles of ``ordered`` (ascending, +inf last), evenly spread over log(1/(1-q)) as tails are read.

    Point i is the exact nearest-rank quantile: ``q = rank / n``, ``value = ordered[rank - 1]``. At most
    ``MAX_CURVE_POINTS`` points, always with the first, the last, the usual percentiles and the last finite
    one.
    """
    n = len(ordered)
    if n == 0:
        return Curve(unit=unit, n=0, q=[], value=[])
    finite = int(np.searchsorted(ordered, np.inf, side="left"))
    room = MAX_CURVE_POINTS - len(_USUAL) - 3
    spread = 1.0 - np.power(10.0, -np.linspace(0.0, np.log10(n), room)) if n > 1 else np.zeros(1)
    usual = [-(-(exact(p) * n) // 1) for p in _USUAL]
    ranks = np.unique(np.clip(np.concatenate((np.ceil(spread * n), usual, [1, n, finite])).astype(np.int64), 1, n))
    return Curve(
        unit=unit,
        n=n,
        failed=n - finite,
        q=[int(rank) / n for rank in ranks],
        value=[number(v, unit) for v in ordered[ranks - 1].tolist()],
    )


#: Of the median: less than that has no bin of its own.
_LEAST_SHOWN = 1e-3


def distribution(ordered: FloatArray, unit: str) -> Distribution:
    """A histogram of the finite part of ``ordered`` (ascending) in bins of equal ratio from least to greatest.

    A few values near nothing (two tokens of one chunk have a gap of 0) would stretch it over decades without a bar: what lies below
    a thousandth of the median is in the first bin.
    """
    finite = ordered[: int(np.searchsorted(ordered, np.inf, side="left"))]
    n, infinite = len(ordered), len(ordered) - len(finite)
    if len(finite) == 0:
        return Distribution(unit=unit, n=n, edges=[], counts=[], infinite=infinite)
    floor = 1.0 if unit == "ns" else 1e-9
    floor = max(floor, float(finite[len(finite) // 2]) * _LEAST_SHOWN)
    low, high = max(float(finite[0]), floor), max(float(finite[-1]), floor)
    if high <= low * 1.02:
        low, high = low * 0.99, high * 1.01
    bins = min(_BINS, max(8, int(np.sqrt(len(finite)) * 1.5)))
    edges = np.geomspace(low, high, bins + 1)
    # Positions of the edges in sorted data give the counts without a second pass over the values.
    places = np.searchsorted(finite, edges, side="left")
    places[0], places[-1] = 0, len(finite)
    return Distribution(
        unit=unit,
        n=n,
        edges=[float(f"{edge:.9g}") for edge in edges],
        counts=np.diff(places).tolist(),
        infinite=infinite,
    )


def band(values: FloatArray, group: IntArray, groups: int, unit: str) -> tuple[list[Number], list[Number]]:
    """Nearest-rank p50 and p99 of ``values`` per ``group`` (0..groups-1); None where a group is empty."""
    columns = grouped(values, group, groups, ("0.5", "0.99"))
    low, high = ([number(v, unit) for v in column.tolist()] for column in columns)
    return low, high


def grouped(values: FloatArray, group: IntArray, groups: int, q: tuple[str, ...]) -> list[FloatArray]:
    """Nearest-rank quantiles per group, NaN where empty. Loops over groups (at most some hundreds), never
    rows.
    """
    order = np.argsort(group.astype(np.int16), kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=groups))
    result = [np.full(groups, np.nan) for _ in q]
    begin = 0
    for index, end in enumerate(ends.tolist()):
        if end > begin:
            part = np.sort(values[order[begin:end]])
            for column, fraction in zip(result, q, strict=True):
                column[index] = quantile(part, fraction)
        begin = end
    return result
