"""Do percentiles drift while the run lasts? Trend, change point and steady window over per-window percentiles.

Mann-Kendall with the variance of Hamed and Rao (1998), because neighbouring windows of a queue resemble each other;
Pettitt (1979) for one change of level; and a detector in the manner of MLPerf Endpoints (SEMANTICS.md A.11): the first
stretch of windows on a plateau. All of it works on ranks, so a window whose percentile is infinite simply ranks last.
Nothing here is a verdict: a run that drifts is a run whose percentiles depend on when it ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.distribution import quantile

ALPHA = 0.05
#: A plateau has at least so many windows (Endpoints' minimum too).
MIN_WINDOWS = 4
#: A series is cut into no fewer: of four windows in perfect order Mann-Kendall says p = 0.09, so it could never tell a trend.
LEAST_WINDOWS = 5
MAX_WINDOWS = 20
#: Requests per window that make a p90 worth looking at.
PER_WINDOW = 40
#: Of Endpoints' bounds on the coefficient of variation (0.03, 0.05, 0.08), the one that we take for each percentile.
COV_LIMITS: Mapping[str, float] = {"p50": 0.03, "p90": 0.05}
COV_LIMIT = 0.08


@dataclass(frozen=True, slots=True)
class Windows:
    """A series cut into windows of an equal number of requests, in order of issue.

    ``edges_ns`` int64[m + 1]: when the first request of each was due, and the last of all; ``values``: by percentile name
    (``p50``), float64[m], nearest rank, +inf where failures reach.
    """

    edges_ns: IntArray
    values: Mapping[str, FloatArray]

    def __len__(self) -> int:
        return len(self.edges_ns) - 1


@dataclass(frozen=True, slots=True)
class Trend:
    """Mann-Kendall: ``s``; ``tau`` = s over the number of pairs; ``z`` and two-sided ``p``; ``correction``: n / n* of Hamed
    and Rao, by which the variance was multiplied; ``slope``: Sen's, per window, NaN where infinite values take part.
    """

    s: int
    tau: float
    z: float
    p: float
    correction: float
    slope: float

    @property
    def direction(self) -> Literal["up", "down", "none"]:
        """Where it goes, at the 5 % level."""
        return "none" if self.p > ALPHA or self.s == 0 else "up" if self.s > 0 else "down"


@dataclass(frozen=True, slots=True)
class Change:
    """Pettitt: the largest |U_t| = ``k``, after the first ``at`` values; ``p``, approximate and at most 1."""

    at: int
    k: int
    p: float


@dataclass(frozen=True, slots=True)
class Steady:
    """Where every series is on a plateau: windows ``first`` up to, not including, ``last``.

    ``status``: whether there was enough to look for one. ``verdict``: ``not_found`` when no stretch qualifies because values
    scatter, ``drifting_up`` or ``drifting_down`` when they have a trend as a whole, ``anomaly`` when there is a plateau and
    then a change of level that lasts to the end.
    """

    status: Literal["windowable", "insufficient_duration", "insufficient_windows"]
    verdict: Literal["steady", "drifting_up", "drifting_down", "anomaly", "not_found"]
    first: int
    last: int


def windows(values: FloatArray, due_ns: IntArray, percentiles: Sequence[str] = ("p50", "p90")) -> Windows | None:
    """Percentiles of ``values`` in 5 to 20 windows of equal size, at least 40 requests each; None for fewer than 200, or
    when all were due at once. The last window takes what is left over.
    """
    n = len(values)
    m = min(n // PER_WINDOW, MAX_WINDOWS)
    if m < LEAST_WINDOWS or int(np.ptp(due_ns)) == 0:
        return None
    order = np.argsort(due_ns, kind="stable")
    series, due = values[order], due_ns[order]
    starts = np.arange(m) * (n // m)
    parts = [np.sort(part) for part in np.split(series, starts[1:])]
    found = {name: np.array([quantile(part, Fraction(name[1:]) / 100) for part in parts]) for name in percentiles}
    return Windows(np.append(due[starts], due[-1]).astype(np.int64), found)


def mann_kendall(values: FloatArray) -> Trend:
    """The test on a series in order; no trend (p = 1) for fewer than three values or equal ones. O(n^2): for windows."""
    n = len(values)
    i, j = np.triu_indices(n, 1)
    with np.errstate(invalid="ignore"):  # inf - inf: equal, and so no sign either way
        difference = values[j] - values[i]
    sign = np.sign(np.nan_to_num(difference, nan=0.0))
    s = int(sign.sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    finite = bool(np.isfinite(values).all())
    slope = float(np.median(difference / (j - i))) if n > 1 and finite else math.nan
    if n < 3 or variance <= 0:
        return Trend(s, 0.0 if n < 2 else 2 * s / (n * (n - 1)), 0.0, 1.0, 1.0, slope)
    correction = hamed_rao(values, slope if finite else 0.0)
    z = (s - np.sign(s)) / math.sqrt(variance * correction)  # continuity: S moves in steps of two
    return Trend(s, 2 * s / (n * (n - 1)), float(z), math.erfc(abs(z) / math.sqrt(2)), correction, slope)


def hamed_rao(values: FloatArray, slope: float) -> float:
    """n / n*: 1 + 2 / (n (n-1) (n-2)) sum of (n-i)(n-i-1)(n-i-2) rho(i) over the lags whose rho is significant at 5 %.

    ``rho`` is of the ranks of the series less its trend. Never below 1: windows that alternate are no reason to see a trend
    in less.
    """
    n = len(values)
    ranks = _ranks(values - slope * np.arange(n)) - (n + 1) / 2
    total = float((ranks**2).sum())
    if n < 4 or total == 0.0:
        return 1.0
    lags = np.arange(1, n - 1)
    rho = np.array([float((ranks[lag:] * ranks[:-lag]).sum()) for lag in lags]) / total
    weights = (n - lags) * (n - lags - 1.0) * (n - lags - 2.0)
    significant = np.abs(rho) > 1.96 / math.sqrt(n)
    return max(1.0, 1 + 2 / (n * (n - 1.0) * (n - 2.0)) * float((weights * rho)[significant].sum()))


def _ranks(values: FloatArray) -> FloatArray:
    """1-based ranks, the mean of them for equal values."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place], np.float64)


def pettitt(values: FloatArray) -> Change:
    """The most likely single change of level of a series; p = 2 exp(-6 K^2 / (n^3 + n^2))."""
    n = len(values)
    if n < 2:
        return Change(0, 0, 1.0)
    t = np.arange(1, n)
    u = 2 * np.cumsum(_ranks(values))[:-1] - t * (n + 1)
    best = int(np.argmax(np.abs(u)))
    k = round(abs(float(u[best])))
    return Change(best + 1, k, min(1.0, 2 * math.exp(-6 * k * k / (n**3 + n**2))))


def variation(values: FloatArray) -> float:
    """Coefficient of variation, sample standard deviation over mean; infinite where the mean is 0 or a value infinite."""
    if not np.isfinite(values).all() or float(values.mean()) == 0.0:
        return math.inf
    return float(values.std(ddof=1) / abs(values.mean())) if len(values) > 1 else 0.0


def steady_window(seen: Windows, min_duration_ns: int = 0) -> Steady:
    """The earliest stretch of at least four windows on which no series has a trend or varies more than its bound, the
    longest from there; of those, the first that lasts ``min_duration_ns``.

    Bounds on the coefficient of variation: 0.03 for p50, 0.05 for p90, 0.08 for other percentiles (our reading of a draft
    that gives the three numbers).
    """
    m = len(seen)
    if m < MIN_WINDOWS:
        return Steady("insufficient_windows", "not_found", 0, 0)
    if int(seen.edges_ns[-1] - seen.edges_ns[0]) < min_duration_ns:
        return Steady("insufficient_duration", "not_found", 0, 0)
    for first in range(m - MIN_WINDOWS + 1):
        for last in range(m, first + MIN_WINDOWS - 1, -1):
            long_enough = int(seen.edges_ns[last] - seen.edges_ns[first]) >= min_duration_ns
            if long_enough and _plateau(seen, first, last):
                return Steady("windowable", _after(seen, first, last), first, last)
    return Steady("windowable", _drift(seen), 0, 0)


def _plateau(seen: Windows, first: int, last: int) -> bool:
    return all(
        variation(values[first:last]) <= COV_LIMITS.get(name, COV_LIMIT)
        and mann_kendall(values[first:last]).direction == "none"
        for name, values in seen.values.items()
    )


def _after(seen: Windows, first: int, last: int) -> Literal["steady", "anomaly"]:
    """Does the level of any series change after the plateau, and stay changed?"""
    if last == len(seen):
        return "steady"
    for name, values in seen.values.items():
        rest, level = values[last:], float(np.median(values[first:last]))
        off = np.abs(rest / level - 1) > 2 * COV_LIMITS.get(name, COV_LIMIT) if level > 0 else rest > 0
        if pettitt(values[first:]).p <= ALPHA or bool(off.all()):
            return "anomaly"
    return "steady"


def _drift(seen: Windows) -> Literal["drifting_up", "drifting_down", "not_found"]:
    directions = {mann_kendall(values).direction for values in seen.values.values()} - {"none"}
    if len(directions) != 1:
        return "not_found"
    return "drifting_up" if "up" in directions else "drifting_down"
