"""Steadiness: does the run begin with a warm-up that should be left out, and do its percentiles drift after it?

Part classes and their builder. Everything here is a proposal or an observation: no row is left out of any number, and
no verdict reads it. docs/statistics.md says what is computed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import MAX_CURVE_POINTS, Number, Text
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import FloatArray, IntArray, Phase, Records
from plimsoll.slo.statistics.trend import Windows, mann_kendall, pettitt, steady_window, windows
from plimsoll.slo.statistics.warmup import BATCH, Warmup, detect

#: The first of these that the run has.
METRICS = ("ttft", "latency")
#: A trend over the whole run of less than this share of the level is not worth a sentence.
MATERIAL = 0.10
_SECOND_NS = 1_000_000_000


class Proposal(BaseModel, frozen=True, extra="forbid"):
    """What MSER-5 says of the metric in order of issue. ``drop`` is 0 where it would leave nothing out."""

    proposed: bool = Field(description="more than chance, enough to matter, and its end was seen")
    incident: Text = Field("", description="what went wrong in that stretch, so that it is no warm-up; empty: nothing")
    too_short: bool = Field(False, description="it may be longer than half of the run")
    drop: int = Field(0, description="requests before the cut")
    until_ns: int = Field(0, description="when the first request after the cut was due")
    before_ns: Number = Field(None, description="median before the cut; null: infinite, or no cut")
    after_ns: Number = Field(None, description="median after the cut; likewise")
    distance: float = Field(0.0, description="standard errors between the ranks on both sides")
    suggested_warmup_ns: int | None = Field(None, description="for --warmup, the warm-up that the run had included")
    curve_at_ns: list[int] = Field(default_factory=list, description="cuts, by the due time of what would be left")
    curve: list[float] = Field(default_factory=list, description="MSER there, relative to no cut at all")


class Drift(BaseModel, frozen=True, extra="forbid"):
    """One percentile over the windows: Mann-Kendall with Hamed and Rao's variance, and Pettitt's change point."""

    percentile: str
    direction: Literal["up", "down", "none"]
    p: float
    change: float | None = Field(None, description="Sen's slope over the run, relative to the median window")
    shift_at_ns: int | None = Field(None, description="the most likely change of level, where it is more than chance")
    shift_p: float = 1.0
    value_ns: list[Number] = Field(default_factory=list, description="by window; null is infinite")


class SteadyStretch(BaseModel, frozen=True, extra="forbid"):
    """The first stretch of windows on a plateau, at least half of the time; both times null when there is none."""

    verdict: Literal["steady", "drifting_up", "drifting_down", "anomaly", "not_found"]
    since_ns: int | None = None
    until_ns: int | None = None


class SteadinessPart(BaseModel, frozen=True, extra="forbid"):
    """Warm-up, trend and steady stretch of one metric. The last two look at what comes after a proposed warm-up."""

    metric: str
    n: int
    warmup: Proposal | None = Field(None, description="null: fewer than 100 values")
    drift: list[Drift] = Field(default_factory=list, description="empty: fewer than 200 values")
    edges_ns: list[int] = Field(default_factory=list, description="when the windows of drift begin; last: their end")
    steady: SteadyStretch | None = None
    notes: list[Text] = Field(default_factory=list, description="what is worth a sentence; often nothing")


def steadiness(records: Records, constant_load: bool = True) -> SteadinessPart | None:
    """The part for a run. ``constant_load``: the plan asks for one load from beginning to end; of a ramp or a spike
    nothing is said, because its percentiles are meant to move. None also when nothing succeeded or could be ordered
    (everything due at once). About half a second for a million rows.
    """
    if not constant_load:
        return None
    found = _series(records)
    if found is None:
        return None
    metric, values, due = found
    warmup = detect(values, due)
    kept = due >= warmup.until_ns if warmup is not None and warmup.proposed else np.ones(len(due), np.bool_)
    seen = windows(values[kept], due[kept])
    if warmup is None and seen is None:
        return None
    proposal = None if warmup is None else _proposal(warmup, due, _had_ns(records))
    drift = [] if seen is None else [_drift(seen, name) for name in seen.values]
    return SteadinessPart(
        metric=metric,
        n=len(values),
        warmup=proposal,
        drift=drift,
        edges_ns=[] if seen is None else seen.edges_ns.tolist(),
        steady=None if seen is None else _stretch(seen),
        notes=[*_warmup_notes(metric, proposal), *_drift_notes(metric, drift)],
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
    tried = np.unique(np.linspace(0, len(statistic) - 1, min(len(statistic), MAX_CURVE_POINTS - 1)).astype(np.int64))
    tried = np.unique(np.append(tried, found.cut.batches))  # the minimum is on the curve, whatever is left out of it
    drawn = tried if statistic[0] > 0 else tried[:0]
    start = max(0, int(order[0]))
    return Proposal(
        proposed=found.proposed,
        incident=_incident(found),
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


def _incident(found: Warmup) -> str:
    if found.incident is None:
        return ""
    seen = found.incident
    said = [f"{units.many(seen.failed, 'request')} failed there"] if seen.failed else []
    if seen.stall is not None:
        since, until = (units.duration(at, 3) if at else "0 s" for at in seen.stall)
        said.append(f"nothing was answered from {since} to {until}")
    return " and ".join(said)


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


def _stretch(seen: Windows) -> SteadyStretch:
    """A plateau of less than half of the time is no description of the run, and four windows show no slow drift."""
    found = steady_window(seen, int(seen.edges_ns[-1] - seen.edges_ns[0]) // 2)
    if found.last == found.first:
        return SteadyStretch(verdict=found.verdict)
    since, until = int(seen.edges_ns[found.first]), int(seen.edges_ns[found.last])
    return SteadyStretch(verdict=found.verdict, since_ns=since, until_ns=until)


def _whole(value: float) -> Number:
    return round(value) if math.isfinite(value) else None


def _warmup_notes(metric: str, found: Proposal | None) -> list[str]:
    if found is None or not (found.proposed or found.too_short or found.incident):
        return []
    medians = (
        f"median {metric} {units.duration(found.before_ns or math.nan)}" if found.before_ns else "half of it failed"
    )
    levels = f"{medians}, then {units.duration(found.after_ns)}" if found.after_ns else medians
    if found.incident:
        how = "slower" if found.distance > 0 else "faster"
        return [
            f"the first {units.duration(found.until_ns, 2)} ({units.many(found.drop, 'request')}) are {how} than the rest ({levels}), but "
            f"{found.incident}: that is no warm-up to leave out. Find out what happened then"
        ]
    if found.too_short:
        falls = "it may be warm-up to the end. Run for longer"
        rises = "the endpoint still fills up, or does not keep up. Run for longer, or lower the load"
        way, then = ("falls", falls) if found.distance > 0 else ("rises", rises)
        return [f"{metric} still {way} at the half of the run ({levels}): {then}"]
    seconds = (found.suggested_warmup_ns or 0) // _SECOND_NS
    return [
        f"the first {units.duration(found.until_ns, 2)} ({units.many(found.drop, 'request')}) look like warm-up "
        f"({levels}): run again with --warmup {seconds}s"
    ]


def _drift_notes(metric: str, drift: list[Drift]) -> list[str]:
    """The percentile with the strongest trend, if it is enough to matter."""
    told = [d for d in drift if d.direction != "none" and (d.change is None or abs(d.change) >= MATERIAL)]
    if not told:
        return []
    worst = min(told, key=lambda d: d.p)
    how = "rises" if worst.direction == "up" else "falls"
    by = "" if worst.change is None else f" by {units.percent(abs(worst.change), 2)}"
    return [
        f"{worst.percentile} of {metric} {how}{by} from window to window of the run (Mann-Kendall p = {worst.p:.2g}): "
        "it depends on how long the run was"
    ]
