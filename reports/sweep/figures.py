"""From the reports of a sweep's runs to its points: the few figures that curves are made of, medians where runs repeat.

A run whose generator was at fault is INVALID and gives no figure; one whose endpoint did not keep up is a FAIL of the
endpoint, whatever its verdict was called. Draws and interpolates nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll.reports.parts.parts import Number, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sweep.sweep_parts import MetricPart, PointOutcome, PromisePart, Setting, SweepPoint
from plimsoll.slo.search.curve import Standing, pace

#: The promise of a report that says whether the endpoint kept up.
_KEPT_UP = "steady"
#: Times that are no latency of the endpoint.
_OURS = ("lag", "generator_lag", "connect", "reader_idle", "audio_frame_lag")

State = Literal["done", "skipped", "unreachable", "pending"]
Judged = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says. Rates per second; ``completion``: share of the measured requests that were answered."""

    outcome: Judged
    reasons: tuple[str, ...]
    unstable: bool
    offered_per_s: float
    achieved_per_s: float
    goodput_per_s: float | None
    good_fraction: float | None
    output_tokens_per_s: float | None
    completion: float
    requests: int
    metrics: Mapping[str, MetricPart]
    objectives: tuple[ObjectiveResult, ...]
    started_at: str = ""
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of a point, made or not; ``error``: why not."""

    run: str
    state: State
    figures: Figures | None = None
    error: str = ""


def figures(report: Report) -> Figures:
    """The figures of one judged run."""
    steady = next((check for check in report.validity.checks if check.name == _KEPT_UP), None)
    unstable = steady is not None and not steady.ok
    outcome: Judged = report.verdict.outcome
    reasons = () if outcome == "PASS" else tuple(report.verdict.reasons)
    if report.validity.outcome == "INVALID":
        outcome, reasons = "INVALID", tuple(report.validity.reasons)
    elif unstable:
        outcome = "FAIL"
    measured = report.counts.ok + report.counts.failed
    return Figures(
        outcome=outcome,
        reasons=reasons,
        unstable=unstable,
        offered_per_s=report.validity.offered_per_s,
        achieved_per_s=report.throughput.requests_per_s,
        goodput_per_s=report.throughput.goodput_per_s,
        # Without a limit on a request every answer is good: a share of that is not what a reader takes it for.
        good_fraction=report.throughput.good_fraction if report.verdict.request_objectives else None,
        output_tokens_per_s=report.throughput.output_tokens_per_s,
        completion=report.counts.ok / measured if measured else 0.0,
        requests=measured,
        metrics={
            name: MetricPart(unit=metric.unit, p50=metric.p50, p90=metric.p90, p99=metric.p99)
            for name, metric in report.metrics.items()
            if metric.unit == "ns" and metric.n and name not in _OURS
        },
        objectives=tuple(report.verdict.objectives),
        started_at=report.run.started_at,
        pace=_pace(report),
    )


def _pace(report: Report) -> float:
    latency = report.metrics.get("latency")
    if not report.run.open_loop or latency is None or latency.p50 is None:
        return 1.0
    return pace(report.counts.ok, report.validity.offered_per_s, report.throughput.span_ns, float(latency.p50))


def standing(x: float, seen: Figures) -> Standing:
    """A run as what decides where a series is saturated takes it."""
    return Standing(x, seen.outcome, seen.completion, seen.unstable, seen.pace)


def point(settings: Mapping[str, Setting], x: float, runs: Sequence[Seen]) -> SweepPoint:
    """One point of its runs."""
    made = [seen.figures for seen in runs if seen.figures is not None]
    sound = [one for one in made if one.outcome != "INVALID"]
    outcome, reasons = _outcome(runs, made, sound)
    named = [seen.run for seen in runs if seen.state == "done"]
    if not sound:
        return SweepPoint(settings=dict(settings), x=x, outcome=outcome, reasons=reasons, runs=named)
    achieved = [one.achieved_per_s for one in sound]
    return SweepPoint(
        settings=dict(settings),
        x=x,
        outcome=outcome,
        reasons=reasons,
        unstable=any(one.unstable for one in sound),
        offered_per_s=_middle(sound, lambda one: one.offered_per_s),
        achieved_per_s=_middle(sound, lambda one: one.achieved_per_s),
        goodput_per_s=_middle(sound, lambda one: one.goodput_per_s),
        good_fraction=_middle(sound, lambda one: one.good_fraction),
        output_tokens_per_s=_middle(sound, lambda one: one.output_tokens_per_s),
        completion=_middle(sound, lambda one: one.completion),
        requests=sum(one.requests for one in sound),
        pace=_middle(sound, lambda one: one.pace),
        achieved_range=(min(achieved), max(achieved)) if len(achieved) > 1 else None,
        metrics=_metrics(sound),
        objectives=_promises(sound),
        runs=named,
    )


def _outcome(runs: Sequence[Seen], made: Sequence[Figures], sound: Sequence[Figures]) -> tuple[PointOutcome, list[str]]:
    if not made:
        state = next((s for s in ("unreachable", "skipped") if any(seen.state == s for seen in runs)), "pending")
        said = list(dict.fromkeys(seen.error for seen in runs if seen.error))
        outcomes: dict[str, PointOutcome] = {"unreachable": "UNREACHABLE", "skipped": "SKIPPED"}
        return outcomes.get(state, "PENDING"), said
    reasons = list(dict.fromkeys(text for one in made for text in one.reasons))
    if not sound:
        return "INVALID", reasons
    found = [one.outcome for one in sound]
    if len(set(found)) == 1:
        return found[0], reasons
    counts = ", ".join(f"{found.count(word)} {word}" for word in ("PASS", "FAIL", "INCONCLUSIVE") if word in found)
    return "INCONCLUSIVE", [f"the runs differ: {counts}", *reasons]


def _middle(sound: Sequence[Figures], of: Callable[[Figures], float | None]) -> float | None:
    values = [value for one in sound if (value := of(one)) is not None]
    return statistics.median(values) if values else None


def _median(values: Sequence[Number]) -> Number:
    """The median, with None as infinite."""
    found = statistics.median([math.inf if value is None else float(value) for value in values])
    return None if math.isinf(found) else found


def _metrics(sound: Sequence[Figures]) -> dict[str, MetricPart]:
    names = dict.fromkeys(name for one in sound for name in one.metrics)
    made = {}
    for name in names:
        parts = [one.metrics[name] for one in sound if name in one.metrics]
        made[name] = MetricPart(
            unit=parts[0].unit,
            p50=_median([part.p50 for part in parts]),
            p90=_median([part.p90 for part in parts]),
            p99=_median([part.p99 for part in parts]),
        )
    return made


def _promises(sound: Sequence[Figures]) -> list[PromisePart]:
    made = []
    for index, first in enumerate(sound[0].objectives):
        same = [one.objectives[index] for one in sound if len(one.objectives) > index]
        outcomes = {one.outcome for one in same}
        made.append(
            PromisePart(
                objective=first.objective,
                outcome=outcomes.pop() if len(outcomes) == 1 else "INCONCLUSIVE",
                observed=_median([one.observed for one in same]),
                threshold=first.threshold,
                unit=first.unit,
                indicator=first.indicator,
                statistic=first.statistic,
                operator=first.operator,
            )
        )
    return made
