"""A sweep as one self-contained page: throughput-latency curves, curves over the load, fronts, and every point with its runs.

Places what the document holds and draws the curves between its points; decides and fetches nothing.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from plimsoll.reports.comparison.comparison_parts import FrontPart
from plimsoll.reports.comparison.scatter import scatter
from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.sweep import sweep_charts as charts
from plimsoll.reports.sweep import sweep_words as say
from plimsoll.reports.sweep.sweep_curves import times_of
from plimsoll.reports.sweep.sweep_parts import SeriesPart, SweepPoint, SweepReport
from plimsoll.reports.wording import units

_FRONT, _FRONT_SMALL = Canvas(1040, 430, top=30, bottom=44, right=24), Canvas(420, 320, top=26, bottom=44, left=52)
_MOST_BEATEN = 12


def render(report: SweepReport) -> bytes:
    """The page, UTF-8."""
    return render_page("sweep.html.j2", content(report))


def content(report: SweepReport) -> dict[str, Any]:
    """Everything the template names."""
    classes = charts.classes(report)
    times = times_of(report.points)[:2]
    return {
        "more_css": Markup(files("plimsoll.reports.formats").joinpath("assets/sweep.css").read_text(encoding="utf-8")),
        "signs": lambda word: say.SYMBOLS.get(word, "•"),
        "report": report,
        "headline": say.headline(report),
        "meta": _meta(report),
        "series": [_series(series, report, times) for series in report.series],
        "x_name": say.axis(report.x),
        "x_head": report.x.removeprefix("server.").removeprefix("option."),
        "times": [f"{q} {say.short(name)}" for name in times for q in ("p50", "p99")],
        "curves": charts.against_throughput(report),
        "over_load": charts.over_load(report),
        "fronts": [(_front(front, classes), _beaten(front)) for front in report.fronts],
        "footer": f"Plimsoll {report.plimsoll}".strip()
        + f" · {report.schema_} · curves: monotone piecewise cubics through the measured points, nothing beyond them",
    }


def _meta(report: SweepReport) -> list[str]:
    varied = "; ".join(f"{name}: {say.values(values)}" for name, values in report.variables.items())
    runs = f"{units.many(report.repeats, 'run')} of each point"
    return [varied, f"{runs} · {'; '.join(report.objectives) or 'no objective was given'}"]


def _series(series: SeriesPart, report: SweepReport, times: list[str]) -> dict[str, Any]:
    knee, line, x = series.knee, series.line, report.x
    share = None if line is None else line.attainment
    return {
        "name": series.label or report.name,
        "sentence": say.sentence(series, report),
        "knee": units.NOTHING if knee is None else say.at(x, knee.x),
        "range": say.line_range(line, x),
        "interpolated": say.at(x, line.interpolated) if line is not None and line.interpolated else units.NOTHING,
        "attainment": units.NOTHING if share is None else f"{say.at(x, share.x)} at {units.percent(share.target)}",
        "bend": units.NOTHING if series.bend is None else f"{say.at(x, series.bend.x)} ({series.bend.of})",
        "answered": units.NOTHING if knee is None else units.rate(knee.achieved_per_s),
        "points": [_point(point, series, report, times) for point in series.points],
    }


def _point(point: SweepPoint, series: SeriesPart, report: SweepReport, times: list[str]) -> dict[str, Any]:
    word = say.outcome(point)
    return {
        "x": say.at(report.x, point.x),
        "knee": series.knee is not None and series.knee.x == point.x,
        "outcome": word,
        "class": "none" if word.startswith("not ") else word.lower(),
        "sign": say.SYMBOLS[point.outcome],
        "offered": units.rate(point.offered_per_s),
        "answered": units.rate(point.achieved_per_s),
        "good": units.rate(say.good(point)),
        "times": say.times(point, times),
        "runs": [(f"{quote(run)}/report.html", run.rpartition("/")[2].partition("-")[0]) for run in point.runs],
        "why": say.objective(point),
    }


def _front(front: FrontPart, classes: dict[str, str]) -> Chart:
    label = "; ".join(
        f"{p.name}: {units.significant(p.x)} {front.x_name}, {units.significant(p.y)} {front.y_name}"
        + (f", beaten by {p.dominated_by}" if p.dominated_by else "")
        for p in front.points
    )
    arms = dict.fromkeys(p.arm for p in front.points if p.arm)
    legend = [Key(arm, classes.get(arm, "arm-0"), "dots") for arm in arms] if len(arms) > 1 else []
    note = "Filled: on the front, or not shown to be beaten. Hollow: beaten in both ways. Points that did not keep up are left out."
    return chart(front.title, note, legend, lambda canvas: scatter(front, classes, label, canvas), _FRONT, _FRONT_SMALL)


def _beaten(front: FrontPart) -> list[str]:
    said = [
        f"{p.name} is beaten by {p.dominated_by}"
        + ("." if p.shown else " in a single run of each, which proves nothing.")
        for p in front.points
        if p.dominated_by
    ]
    more = len(said) - _MOST_BEATEN
    return said if more <= 0 else [*said[:_MOST_BEATEN], f"So are {more} more."]
