"""Steadiness: does the run begin with a warm-up that should be left out, and do its percentiles drift after it?

Everything here is a proposal or an observation: no row is left out of any number, and no verdict reads it. docs/evidence/statistics.md
says what is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import FloatArray, IntArray, Phase, Records
from plimsoll.slo.statistics.trend import Windows, mann_kendall, pettitt, steady_window, windows
from plimsoll.slo.statistics.warmup import BATCH, Incident, Warmup, detect

#: The first of these that the run has.
METRICS = ("ttft", "latency")
#: A curve of cuts has at most so many points.
MAX_POINTS = 200
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Proposal:
    """What MSER-5 says of the metric in order of issue; ``incident``: what went wrong in that stretch, so that it is no warm-up.

    ``drop`` requests lie before the cut, ``until_ns`` is when the first one after it was due, ``before_ns`` and ``after_ns`` the
    medians on both sides (None: infinite). ``distance``: standard errors between their ranks. ``suggested_warmup_ns`` has the
    warm-up that the run had. ``curve``: MSER at the cuts ``curve_at_ns``, relative to no cut at all.
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
    """Warm-up, trend and steady stretch of ``n`` values of one metric. The last two look at what comes after a proposed warm-up."""

    metric: str
    n: int
    warmup: Proposal | None
    drift: tuple[Drift, ...]
    edges_ns: list[int]
    steady: Stretch | None


def steadiness(records: Records, constant_load: bool = True) -> Steadiness | None:
    """The steadiness of a run. ``constant_load``: the plan asks for one load from beginning to end; of a ramp or a spike
    nothing is said, because its percentiles are meant to move. None also when nothing succeeded or could be ordered
    (everything due at once). About half a second for a million rows.
    """
    found = _series(records) if constant_load else None
    if found is None:
        return None
    metric, values, due = found
    warmup = detect(values, due)
    kept = due >= warmup.until_ns if warmup is not None and warmup.proposed else np.ones(len(due), np.bool_)
    seen = windows(values[kept], due[kept])
    if warmup is None and seen is None:
        return None
    return Steadiness(
        metric=metric,
        n=len(values),
        warmup=None if warmup is None else _proposal(warmup, due, _had_ns(records)),
        drift=() if seen is None else tuple(_drift(seen, name) for name in seen.values),
        edges_ns=[] if seen is None else seen.edges_ns.tolist(),
        steady=None if seen is None else _stretch(seen),
    )


def _series(records: Records) -> tuple[str, FloatArray, IntArray] | None:
    for name in METRICS:
        measured = measure(catalogue()[name], records)
        if measured.n and np.isfinite(measured.values).any():
            return name, measured.values, records["due_ns"][measured.row]
    return None


def _had_ns(records: Records) -> int:
    """How long the warm-up of this run was: its rows were due before t0."""
    early = records["due_ns"][records["phase"] == Phase.WARMUP]
    return max(0, -int(early.min())) if len(early) else 0


def _proposal(found: Warmup, due_ns: IntArray, had_ns: int) -> Proposal:
    order = np.sort(due_ns)
    statistic = found.cut.statistic
    tried = np.unique(np.linspace(0, len(statistic) - 1, min(len(statistic), MAX_POINTS - 1)).astype(np.int64))
    tried = np.unique(np.append(tried, found.cut.batches))  # the minimum is on the curve, whatever is left out of it
    drawn = tried if statistic[0] > 0 else tried[:0]
    start = max(0, int(order[0]))
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
        curve_at_ns=order[drawn * BATCH].tolist(),
        curve=[float(f"{value:.5g}") for value in (statistic[drawn] / (statistic[0] or 1.0)).tolist()],
    )


def _round_up(time_ns: int) -> int:
    """To a whole second up to 30 s, to 5 s up to two minutes, then to 30 s."""
    seconds = -(-time_ns // _SECOND_NS)
    step = 1 if seconds <= 30 else 5 if seconds <= 120 else 30
    return max(1, -(-seconds // step)) * step * _SECOND_NS


def _drift(seen: Windows, name: str) -> Drift:
    values = seen.values[name]
    trend, shift = mann_kendall(values), pettitt(values)
    level = float(np.median(values))
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
