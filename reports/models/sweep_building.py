"""From the reports of a sweep's runs to its document: points, series, knees, lines, fronts, the outcome and the exit
code.

A run whose generator was at fault is INVALID and gives no figure; one whose endpoint did not keep up is a FAIL of the
endpoint, whatever its verdict was called. FOUND: in some series a load passes and a higher one fails; HOLDS: loads pass
and none fails; MEASURED: nothing was promised.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from plimsoll.reports.models.comparison_parts import FrontPart, front_part
from plimsoll.reports.models.sweep_parts import (
    RISING,
    MetricPart,
    Outcome,
    PointOutcome,
    PromisePart,
    SeriesPart,
    Setting,
    SweepPoint,
    SweepReport,
    at,
    bend_of,
    good,
    kind_of,
    knee_of,
    line_of,
    setting,
    standings,
    times_of,
)
from plimsoll.reports.parts.parts import Number, ObjectiveResult, part
from plimsoll.reports.report import Report
from plimsoll.slo.comparison.tiers import Point, front
from plimsoll.slo.search.curve import Standing, pace, saturated
from plimsoll.slo.server.beside import medians, of_names

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
    server: Mapping[str, float] = field(default_factory=dict)


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
            name: part(MetricPart, metric)
            for name, metric in report.metrics.items()
            if metric.unit == "ns" and metric.n and name not in _OURS
        },
        objectives=tuple(report.verdict.objectives),
        started_at=report.run.started_at,
        pace=_pace(report),
        server=_server(report),
    )


def _server(report: Report) -> dict[str, float]:
    if report.server is None:
        return {}
    used = report.server.energy
    names = {name: one.model_dump() for name, one in report.server.names.items()}
    return of_names(names, None if used is None else used.per_token_j)


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
        requests=sum(one.requests for one in sound),
        **{name: _middle(sound, name) for name in _MIDDLES},
        achieved_range=(min(achieved), max(achieved)) if len(achieved) > 1 else None,
        metrics=_metrics(sound),
        objectives=_promises(sound),
        server=medians([one.server for one in sound]),
        runs=named,
    )


#: Figures of a point that are the median of its runs.
_MIDDLES = (
    *("offered_per_s", "achieved_per_s", "goodput_per_s", "good_fraction", "output_tokens_per_s"),
    *("completion", "pace"),
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


def _middle(sound: Sequence[Figures], name: str) -> Any:
    values = [value for one in sound if (value := getattr(one, name)) is not None]
    return statistics.median(values) if values else None


def _median(values: Sequence[Number]) -> Number:
    """The median, with None as infinite."""
    found = statistics.median([math.inf if value is None else float(value) for value in values])
    return None if math.isinf(found) else found


def _metrics(sound: Sequence[Figures]) -> dict[str, MetricPart]:
    names = dict.fromkeys(name for one in sound for name in one.metrics)
    made = {}
    for name in names:
        found = [one.metrics[name] for one in sound if name in one.metrics]
        middle = {key: _median([getattr(one, key) for one in found]) for key in ("p50", "p90", "p99")}
        made[name] = MetricPart(unit=found[0].unit, **middle)
    return made


def _promises(sound: Sequence[Figures]) -> list[PromisePart]:
    made = []
    for index, first in enumerate(sound[0].objectives):
        same = [one.objectives[index] for one in sound if len(one.objectives) > index]
        outcomes = {one.outcome for one in same}
        outcome = outcomes.pop() if len(outcomes) == 1 else "INCONCLUSIVE"
        made.append(part(PromisePart, first, outcome=outcome, observed=_median([one.observed for one in same])))
    return made


_JUDGED = ("PASS", "FAIL", "INCONCLUSIVE")
_MS = 1e6
#: With more points than that a front is drawn of its edge alone.
_MOST_COMPARED = 200


@dataclass(frozen=True, slots=True)
class Place:
    """One point of the grid and its runs."""

    settings: Mapping[str, Setting]
    x: float
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """One series of the grid: what is fixed along it, and its points with x ascending."""

    settings: Mapping[str, Setting]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class About:
    """What the document says besides. ``promised``: whether there is any objective; ``objectives``: as text."""

    name: str
    variables: Mapping[str, Sequence[Setting]]
    x: str
    promised: bool
    objectives: Sequence[str] = ()
    repeats: int = 1
    plimsoll: str = ""
    command: str = ""


def build(about: About, courses: Sequence[Course]) -> SweepReport:
    """The whole sweep, judged."""
    constant = {name for name, values in about.variables.items() if len(values) < 2}
    series = [_series(about, course, constant) for course in courses]
    points = [p for one in series for p in one.points]
    outcome = _whole_outcome(points, about.promised)
    started = [s.figures.started_at for c in courses for p in c.places for s in p.seen if s.figures is not None]
    return part(
        SweepReport,
        about,
        outcome=outcome,
        series=series,
        fronts=_fronts(about, series, courses),
        warnings=_warnings(points, about),
        exit_code=_exit_code(outcome, points),
        started_at=min((text for text in started if text), default=""),
    )


def _series(about: About, course: Course, constant: set[str]) -> SeriesPart:
    points = [point(place.settings, place.x, place.seen) for place in course.places]
    told = {name: value for name, value in course.settings.items() if name not in constant}
    rising = kind_of(about.x) in RISING
    return SeriesPart(
        label=", ".join(setting(name, value) for name, value in told.items()),
        settings=dict(course.settings),
        points=points,
        knee=knee_of(points) if rising else None,
        line=line_of(points, about.promised) if rising else None,
        bend=bend_of(points, about.x),
        saturated_at=saturated(standings(points)) if rising else None,
    )


def _whole_outcome(points: Sequence[SweepPoint], promised: bool) -> Outcome:
    there = [point.outcome for point in points]
    judged = [outcome for outcome in there if outcome in _JUDGED]
    if "PASS" in judged:
        return ("FOUND" if "FAIL" in judged else "HOLDS") if promised else "MEASURED"
    if "INCONCLUSIVE" in judged:
        return "INCONCLUSIVE"
    if judged:
        return "FAIL"
    found: tuple[Outcome, ...] = ("INVALID", "UNREACHABLE")
    return next((word for word in found if word in there), "INCONCLUSIVE")  # stopped before the first run


def _exit_code(outcome: Outcome, points: Sequence[SweepPoint]) -> int:
    """0 some point holds (or nothing was promised and some was carried), 1 none, 3 can't tell, 4 a point is INVALID, 5
    no endpoint.

    With a point that says nothing the grid that was asked for is not there: whoever reads only the code must not take
    it for whole.
    """
    if any(point.outcome == "INVALID" for point in points):
        return 4
    return {"FAIL": 1, "INCONCLUSIVE": 3, "UNREACHABLE": 5}.get(outcome, 0)


def _warnings(points: Sequence[SweepPoint], about: About) -> list[str]:
    said = []
    for outcome, what in (
        (
            "INVALID",
            "INVALID: the generator was at fault there, and they say nothing. With --retries 2 such a run is sent "
            "again",
        ),
        ("UNREACHABLE", "not measured, because the endpoint could not be reached"),
        ("PENDING", "not run: the sweep was stopped. Go on with --resume"),
    ):
        there = [p for p in points if p.outcome == outcome]
        if there:
            one = there[0].reasons[0] if there[0].reasons else ""
            said.append(f"{len(there)} of {len(points)} points are {what}{f' ({one})' if one else ''}")
    if kind_of(about.x) == "concurrency":
        said.append(
            "closed loops: a slow endpoint is asked less, so their latencies are too good near saturation. Sweep a "
            "rate to judge"
        )
    return said


def _fronts(about: About, series: Sequence[SeriesPart], courses: Sequence[Course]) -> list[FrontPart]:
    """Throughput against what one user sees, over every setting that kept up."""
    kept = [
        (one, point, place)
        for one, course in zip(series, courses, strict=True)
        for point, place in zip(one.points, course.places, strict=True)
        if point.measured
    ]
    speed, late = [], []
    wait = next((name for name in times_of([p for _, p, _ in kept]) if name in ("ttft", "latency")), None)
    promised = all(good(p) is not None for _, p, _ in kept)
    for one, reached, place in kept:
        runs = [s.figures for s in place.seen if s.figures is not None and s.figures.outcome != "INVALID"]
        name = ", ".join(part for part in (one.label, at(about.x, reached.x)) if part)
        tpot = [run.metrics["tpot"].p90 for run in runs if "tpot" in run.metrics]
        tokens = [run.output_tokens_per_s for run in runs if run.output_tokens_per_s is not None]
        if len(tpot) == len(tokens) == len(runs) and all(value for value in tpot):
            user = tuple(1e9 / float(value) for value in tpot if value)
            speed.append(Point(name, user, tuple(tokens), one.label))
        waits = [run.metrics[wait].p99 for run in runs if wait is not None and wait in run.metrics]
        done = [run.goodput_per_s if promised else run.achieved_per_s for run in runs]
        if waits and len(waits) == len(runs) and all(value is not None for value in (*waits, *done)):
            waited = tuple(float(value) / _MS for value in waits if value is not None)
            late.append(Point(name, waited, tuple(value for value in done if value is not None), one.label))
    what = ("Goodput", "good requests/s") if promised else ("Throughput", "answered requests/s")
    pace_of_one = "tokens/s of one user (1 / p90 of TPOT)"
    made = [
        _front("Throughput against interactivity", pace_of_one, "output tokens/s", speed, "higher"),
        _front(f"{what[0]} against p99({wait})", f"p99({wait}), ms", what[1], late, "lower"),
    ]
    return [one for one in made if one is not None and one.points]


def _front(title: str, x: str, y: str, points: Sequence[Point], better: Literal["lower", "higher"]) -> FrontPart | None:
    """A front of two or more points. Of very many only the edge: every pair of them would be compared."""
    if len(points) < 2:
        return None
    if len(points) > _MOST_COMPARED:
        points, title = _edge(points, better), f"{title}: the edge of {len(points):,} points"
    return front_part(title, x, y, front(points, x_better=better), x_better=better)


def _edge(points: Sequence[Point], better: Literal["lower", "higher"]) -> list[Point]:
    """The points that no other one beats by its medians."""
    sign = -1.0 if better == "higher" else 1.0
    placed = sorted(points, key=lambda p: (sign * statistics.median(p.x), -statistics.median(p.y)))
    kept: list[Point] = []
    for one in placed:
        if not kept or statistics.median(one.y) > statistics.median(kept[-1].y):
            kept.append(one)
    return kept
