"""Build the document of a sweep from its runs: series, knees, lines, fronts, the outcome and the exit code.

The outcome of the whole: FOUND when in some series a load passes and a higher one fails, HOLDS when loads pass and none
fails, FAIL when every load that could be judged fails, MEASURED when nothing was promised. Sends and reads nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll.reports.comparison.comparison_document import front_part
from plimsoll.reports.comparison.comparison_parts import FrontPart
from plimsoll.reports.sweep import sweep_words as say
from plimsoll.reports.sweep.figures import Seen, point
from plimsoll.reports.sweep.sweep_curves import RISING, bend_of, knee_of, line_of, standings, times_of
from plimsoll.reports.sweep.sweep_parts import Outcome, SeriesPart, Setting, SweepPoint, SweepReport
from plimsoll.slo.comparison.pareto import Point, front
from plimsoll.slo.search.curve import saturated

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
    outcome = _outcome(points, about.promised)
    started = [s.figures.started_at for c in courses for p in c.places for s in p.seen if s.figures is not None]
    return SweepReport(
        name=about.name,
        outcome=outcome,
        variables={name: list(values) for name, values in about.variables.items()},
        x=about.x,
        objectives=list(about.objectives),
        repeats=about.repeats,
        series=series,
        fronts=_fronts(about, series, courses),
        warnings=_warnings(points, about),
        exit_code=_exit_code(outcome, points),
        plimsoll=about.plimsoll,
        command=about.command,
        started_at=min((text for text in started if text), default=""),
    )


def _series(about: About, course: Course, constant: set[str]) -> SeriesPart:
    points = [point(place.settings, place.x, place.seen) for place in course.places]
    told = {name: value for name, value in course.settings.items() if name not in constant}
    rising = about.x in RISING
    return SeriesPart(
        label=", ".join(say.setting(name, value) for name, value in told.items()),
        settings=dict(course.settings),
        points=points,
        knee=knee_of(points) if rising else None,
        line=line_of(points, about.promised) if rising else None,
        bend=bend_of(points, about.x),
        saturated_at=saturated(standings(points)) if rising else None,
    )


def _outcome(points: Sequence[SweepPoint], promised: bool) -> Outcome:
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
    """0 some point holds (or nothing was promised and some was carried), 1 none, 3 can't tell, 4 a point is INVALID, 5 no endpoint.

    With a point that says nothing the grid that was asked for is not there: whoever reads only the code must not take it for whole.
    """
    if any(point.outcome == "INVALID" for point in points):
        return 4
    return {"FAIL": 1, "INCONCLUSIVE": 3, "UNREACHABLE": 5}.get(outcome, 0)


def _warnings(points: Sequence[SweepPoint], about: About) -> list[str]:
    said = []
    for outcome, what in (
        (
            "INVALID",
            "INVALID: the generator was at fault there, and they say nothing. With --retries 2 such a run is sent again",
        ),
        ("UNREACHABLE", "not measured, because the endpoint could not be reached"),
        ("PENDING", "not run: the sweep was stopped. Go on with --resume"),
    ):
        at = [p for p in points if p.outcome == outcome]
        if at:
            one = at[0].reasons[0] if at[0].reasons else ""
            said.append(f"{len(at)} of {len(points)} points are {what}{f' ({one})' if one else ''}")
    if about.x == "concurrency":
        said.append(
            "closed loops: a slow endpoint is asked less, so their latencies are too good near saturation. Sweep a rate to judge"
        )
    return said


def _fronts(about: About, series: Sequence[SeriesPart], courses: Sequence[Course]) -> list[FrontPart]:
    """Throughput against what one user sees, over every setting that kept up."""
    kept = [(one, point, place) for one, course in zip(series, courses, strict=True) for point, place in zip(one.points, course.places, strict=True) if point.measured]  # fmt: skip
    speed, late = [], []
    wait = next((name for name in times_of([p for _, p, _ in kept]) if name in ("ttft", "latency")), None)
    good = all(say.good(p) is not None for _, p, _ in kept)
    for one, at, place in kept:
        runs = [s.figures for s in place.seen if s.figures is not None and s.figures.outcome != "INVALID"]
        name = ", ".join(part for part in (one.label, say.at(about.x, at.x)) if part)
        tpot = [run.metrics["tpot"].p90 for run in runs if "tpot" in run.metrics]
        tokens = [run.output_tokens_per_s for run in runs if run.output_tokens_per_s is not None]
        if len(tpot) == len(tokens) == len(runs) and all(value for value in tpot):
            user = tuple(1e9 / float(value) for value in tpot if value)
            speed.append(Point(name, user, tuple(tokens), one.label))
        waits = [run.metrics[wait].p99 for run in runs if wait is not None and wait in run.metrics]
        done = [run.goodput_per_s if good else run.achieved_per_s for run in runs]
        if waits and len(waits) == len(runs) and all(value is not None for value in (*waits, *done)):
            late.append(Point(name, tuple(float(v) / _MS for v in waits if v is not None), tuple(v for v in done if v is not None), one.label))  # fmt: skip
    what = ("Goodput", "good requests/s") if good else ("Throughput", "answered requests/s")
    made = [
        _front("Throughput against interactivity", "tokens/s of one user (1 / p90 of TPOT)", "output tokens/s", speed, "higher"),
        _front(f"{what[0]} against p99({wait})", f"p99({wait}), ms", what[1], late, "lower"),
    ]  # fmt: skip
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
