"""Steadiness: does the run begin with a warm-up that should be left out, and do its percentiles drift after it?

Everything here is a proposal or an observation: no row is left out of any number, and no verdict reads it.
docs/evidence/statistics.md says what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import FloatArray, IntArray, Phase, Records
from plimsoll.slo.statistics.distribution import median, quantile
from plimsoll.slo.statistics.order import by_time
from plimsoll.slo.statistics.warmup import BATCH, Incident, Warmup, detect

#: The first of these that the run has.
METRICS = ("ttft", "latency")
#: A curve of cuts has at most so many points.
MAX_POINTS = 200
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Proposal:
    """What MSER-5 says of the metric in order of issue; ``incident``: what went wrong in that stretch, so that it is no
    warm-up.

    ``drop`` requests lie before the cut, ``until_ns`` is when the first one after it was due, ``before_ns`` and
    ``after_ns`` the medians on both sides (None: infinite). ``distance``: standard errors between their ranks.
    ``suggested_warmup_ns`` has the warm-up that the run had. ``curve``: MSER at the cuts ``curve_at_ns``, relative to
    no cut at all.
    """

    proposed: bool
    incident: Incident | None
    too_short: bool
    drop: int
    until_ns: int
    before_ns: int | None
    after_ns: int | None
    distance: float
    suggested_warmup_ns: int | None
    curve_at_ns: list[int]
    curve: list[float]


@dataclass(frozen=True, slots=True)
class Drift:
    """One percentile over the windows: Mann-Kendall with Hamed and Rao's variance, and Pettitt's change point."""

    percentile: str
    direction: Literal["up", "down", "none"]
    p: float
    change: float | None
    shift_at_ns: int | None
    shift_p: float
    value_ns: list[int | None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The first stretch of windows on a plateau, at least half of the time; both times None when there is none."""

    verdict: Literal["steady", "drifting_up", "drifting_down", "anomaly", "not_found"]
    since_ns: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Warm-up, trend and steady stretch of ``n`` values of one metric.

    The last two look at what comes after a proposed warm-up.
    """

    metric: str
    n: int
    warmup: Proposal | None
    drift: tuple[Drift, ...]
    edges_ns: list[int]
    steady: Stretch | None


def steadiness(records: Records, constant_load: bool = True) -> Steadiness | None:
    """The steadiness of a run. ``constant_load``: the plan asks for one load from beginning to end; of a ramp or a
    spike nothing is said, because its percentiles are meant to move. None also when nothing succeeded or could be
    ordered (everything due at once). About half a second for a million rows.
    """
    found = _series(records) if constant_load else None
    if found is None:
        return None
    metric, values, due = found
    warmup = detect(values, due)
    kept = int(np.searchsorted(due, warmup.until_ns)) if warmup is not None and warmup.proposed else 0
    seen = windows(values[kept:], due[kept:])
    if warmup is None and seen is None:
        return None
    return Steadiness(
        metric=metric,
        n=len(values),
        warmup=None if warmup is None else _proposal(warmup, due, _had_ns(records)),
        drift=() if seen is None else tuple(_drift_of(seen, name) for name in seen.values),
        edges_ns=[] if seen is None else seen.edges_ns.tolist(),
        steady=None if seen is None else _stretch(seen),
    )


def _series(records: Records) -> tuple[str, FloatArray, IntArray] | None:
    """(metric, its values, when their requests were due), in order of due time."""
    for name in METRICS:
        measured = measure(catalogue()[name], records)
        values = measured.values
        if measured.n and np.isfinite(values).any():
            due = records["due_ns"] if measured.plain else records["due_ns"][measured.row]
            order = by_time(due)
            return (name, values, due) if order is None else (name, values[order], due[order])
    return None


def _had_ns(records: Records) -> int:
    """How long the warm-up of this run was: its rows were due before t0."""
    early = records["due_ns"][records["phase"] == Phase.WARMUP]
    return max(0, -int(early.min())) if len(early) else 0


def _proposal(found: Warmup, due_ns: IntArray, had_ns: int) -> Proposal:
    """``due_ns`` ascending."""
    statistic = found.cut.statistic
    tried = np.unique(np.linspace(0, len(statistic) - 1, min(len(statistic), MAX_POINTS - 1)).astype(np.int64))
    tried = np.unique(np.append(tried, found.cut.batches))  # the minimum is on the curve, whatever is left out of it
    drawn = tried if statistic[0] > 0 else tried[:0]
    start = max(0, int(due_ns[0]))
    return Proposal(
        proposed=found.proposed,
        incident=found.incident,
        too_short=found.too_short,
        drop=found.drop,
        until_ns=found.until_ns,
        before_ns=_whole(found.before),
        after_ns=_whole(found.after),
        distance=float(f"{found.distance:.4g}"),
        suggested_warmup_ns=_round_up(had_ns + found.until_ns - start) if found.proposed else None,
        curve_at_ns=due_ns[drawn * BATCH].tolist(),
        curve=[float(f"{value:.5g}") for value in (statistic[drawn] / (statistic[0] or 1.0)).tolist()],
    )


def _round_up(time_ns: int) -> int:
    """To a whole second up to 30 s, to 5 s up to two minutes, then to 30 s."""
    seconds = -(-time_ns // _SECOND_NS)
    step = 1 if seconds <= 30 else 5 if seconds <= 120 else 30
    return max(1, -(-seconds // step)) * step * _SECOND_NS


def _drift_of(seen: Windows, name: str) -> Drift:
    values = seen.values[name]
    trend, shift = mann_kendall(values), pettitt(values)
    level = median(values)
    change = trend.slope * (len(values) - 1) / level if math.isfinite(trend.slope) and level > 0 else None
    return Drift(
        percentile=name,
        direction=trend.direction,
        p=float(f"{trend.p:.4g}"),
        change=None if change is None else float(f"{change:.4g}"),
        shift_at_ns=int(seen.edges_ns[shift.at]) if shift.p <= 0.05 else None,
        shift_p=float(f"{shift.p:.4g}"),
        value_ns=[_whole(value) for value in values.tolist()],
    )


def _stretch(seen: Windows) -> Stretch:
    """A plateau of less than half of the time is no description of the run, and four windows show no slow drift."""
    found = steady_window(seen, int(seen.edges_ns[-1] - seen.edges_ns[0]) // 2)
    if found.last == found.first:
        return Stretch(verdict=found.verdict)
    since, until = int(seen.edges_ns[found.first]), int(seen.edges_ns[found.last])
    return Stretch(verdict=found.verdict, since_ns=since, until_ns=until)


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


# -- trend, change point, steady window --------------------------------------------------------------------------------

# Do percentiles drift while the run lasts? Trend, change point and steady window over per-window percentiles.
# Mann-Kendall with the variance of Hamed and Rao (1998), because neighbouring windows of a queue resemble each other;
# Pettitt (1979) for one change of level; and a detector in the manner of MLPerf Endpoints (SEMANTICS.md A.11): the
# first stretch of windows on a plateau. All of it works on ranks, so a window whose percentile is infinite simply ranks
# last. Nothing here is a verdict: a run that drifts is a run whose percentiles depend on when it ended.

ALPHA = 0.05
#: A plateau has at least so many windows (Endpoints' minimum too).
MIN_WINDOWS = 4
#: A series is cut into no fewer: of four windows in perfect order Mann-Kendall says p = 0.09, so it could never tell a
#: trend.
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

    ``edges_ns`` int64[m + 1]: when the first request of each was due, and the last of all; ``values``: by percentile
    name (``p50``), float64[m], nearest rank, +inf where failures reach.
    """

    edges_ns: IntArray
    values: Mapping[str, FloatArray]

    def __len__(self) -> int:
        return len(self.edges_ns) - 1


@dataclass(frozen=True, slots=True)
class Trend:
    """Mann-Kendall: ``s``; ``tau`` = s over the number of pairs; ``z`` and two-sided ``p``; ``correction``: n / n* of
    Hamed and Rao, by which the variance was multiplied; ``slope``: Sen's, per window, NaN where infinite values take
    part.
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

    ``status``: whether there was enough to look for one. ``verdict``: ``not_found`` when no stretch qualifies because
    values scatter, ``drifting_up`` or ``drifting_down`` when they have a trend as a whole, ``anomaly`` when there is a
    plateau and then a change of level that lasts to the end.
    """

    status: Literal["windowable", "insufficient_duration", "insufficient_windows"]
    verdict: Literal["steady", "drifting_up", "drifting_down", "anomaly", "not_found"]
    first: int
    last: int


def windows(values: FloatArray, due_ns: IntArray, percentiles: Sequence[str] = ("p50", "p90")) -> Windows | None:
    """Percentiles of ``values`` in 5 to 20 windows of equal size, at least 40 requests each; None for fewer than 200,
    or when all were due at once. The last window takes what is left over.
    """
    n = len(values)
    m = min(n // PER_WINDOW, MAX_WINDOWS)
    if m < LEAST_WINDOWS or int(np.ptp(due_ns)) == 0:
        return None
    order = by_time(due_ns)
    series, due = (values, due_ns) if order is None else (values[order], due_ns[order])
    starts = np.arange(m) * (n // m)
    parts = [np.sort(part) for part in np.split(series, starts[1:])]
    found = {name: np.array([quantile(part, Fraction(name[1:]) / 100) for part in parts]) for name in percentiles}
    return Windows(np.append(due[starts], due[-1]).astype(np.int64), found)


def mann_kendall(values: FloatArray) -> Trend:
    """The test on a series in order; no trend (p = 1) for fewer than three values or equal ones.

    O(n^2): for windows.
    """
    n = len(values)
    i, j = np.triu_indices(n, 1)
    with np.errstate(invalid="ignore"):  # inf - inf: equal, and so no sign either way
        difference = values[j] - values[i]
    sign = np.sign(np.nan_to_num(difference, nan=0.0))
    s = int(sign.sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    finite = bool(np.isfinite(values).all())
    slope = median(difference / (j - i)) if n > 1 and finite else math.nan
    if n < 3 or variance <= 0:
        return Trend(s, 0.0 if n < 2 else 2 * s / (n * (n - 1)), 0.0, 1.0, 1.0, slope)
    correction = hamed_rao(values, slope if finite else 0.0)
    z = (s - np.sign(s)) / math.sqrt(variance * correction)  # continuity: S moves in steps of two
    return Trend(s, 2 * s / (n * (n - 1)), float(z), math.erfc(abs(z) / math.sqrt(2)), correction, slope)


def hamed_rao(values: FloatArray, slope: float) -> float:
    """n / n*: 1 + 2 / (n (n-1) (n-2)) sum of (n-i)(n-i-1)(n-i-2) rho(i) over the lags whose rho is significant at 5 %.

    ``rho`` is of the ranks of the series less its trend. Never below 1: windows that alternate are no reason to see a
    trend in less.
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
    """Coefficient of variation: sample standard deviation over mean; infinite for a mean of 0 or an infinite value."""
    if not np.isfinite(values).all() or float(values.mean()) == 0.0:
        return math.inf
    return float(values.std(ddof=1) / abs(values.mean())) if len(values) > 1 else 0.0


def steady_window(seen: Windows, min_duration_ns: int = 0) -> Steady:
    """The earliest stretch of at least four windows on which no series has a trend or varies more than its bound, the
    longest from there; of those, the first that lasts ``min_duration_ns``.

    Bounds on the coefficient of variation: 0.03 for p50, 0.05 for p90, 0.08 for other percentiles (our reading of a
    draft that gives the three numbers).
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
        rest, level = values[last:], median(values[first:last])
        off = np.abs(rest / level - 1) > 2 * COV_LIMITS.get(name, COV_LIMIT) if level > 0 else rest > 0
        if pettitt(values[first:]).p <= ALPHA or bool(off.all()):
            return "anomaly"
    return "steady"


def _drift(seen: Windows) -> Literal["drifting_up", "drifting_down", "not_found"]:
    directions = {mann_kendall(values).direction for values in seen.values.values()} - {"none"}
    if len(directions) != 1:
        return "not_found"
    return "drifting_up" if "up" in directions else "drifting_down"
