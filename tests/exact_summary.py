"""Mean, extremes and nearest-rank percentiles of values: the reference that reports are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.statistics.distribution import FloatArray, quantile


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, extremes and nearest-rank percentiles of n values, in their unit; +inf where failures reach, NaN if n =
    0.
    """

    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    max: float
    n: int


def summary(values: FloatArray) -> Summary:
    """Summary of values in any order. Summed in sorted order, so that permuting them changes no bit of it."""
    if len(values) == 0:
        nan = float("nan")
        return Summary(nan, nan, nan, nan, nan, nan, nan, nan, 0)
    ordered = np.sort(np.asarray(values, np.float64))
    p50, p90, p95, p99, p99_9 = (quantile(ordered, p) for p in ("0.5", "0.9", "0.95", "0.99", "0.999"))
    first, last = float(ordered[0]), float(ordered[-1])
    return Summary(float(ordered.mean()), first, p50, p90, p95, p99, p99_9, last, len(ordered))
