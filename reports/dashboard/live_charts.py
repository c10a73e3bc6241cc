"""A live look's charts: the strips and burn rates of the report, drawn by the same code, from intervals instead of records."""

from __future__ import annotations

from itertools import accumulate
from types import MappingProxyType

from markupsafe import Markup

from plimsoll.reports.dashboard.live_parts import Band, BurnPart, Intervals, LiveReport
from plimsoll.reports.parts.chart_parts import LagBand, Timeline
from plimsoll.reports.sections.budgets import BudgetPart, BurnTimeline
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.burn import burn_chart
from plimsoll.reports.svg.gauge import bad_share
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart
from plimsoll.reports.svg.strip import Layer, Strip, strip
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import in_order, title_of

#: Of more objectives than these only the fastest burning ones are drawn; all of them have a row.
MAX_BURNS = 4
_MARKS = MappingProxyType({"line": "line", "planned": "dash", "fill": "area", "bars": "cross"})
_WIDE, _NARROW = 1080.0, 420.0
_BURN, _BURN_NARROW = Canvas(_WIDE, 128, left=66, right=16, top=10), Canvas(_NARROW, 128, left=58, right=10, top=10)


def strips(report: LiveReport) -> list[Chart]:
    """Rates, requests in flight, errors and percentiles over the run so far, one above the other; none before the first interval."""
    found = report.intervals
    if found is None or not found.sent_per_s:
        return []
    timeline = _timeline(found)
    data = [_rates(found), _in_flight(found)]
    if any(found.failed):
        data.append(_errors(found))
    names = in_order(found.bands)
    data += [_band(name, found.bands[name], report) for name in names]
    return [_draw(one, timeline, last=index == len(data) - 1) for index, one in enumerate(data)]


def burns(report: LiveReport) -> list[tuple[BurnPart, Markup | None, Chart | None]]:
    """The objectives that burn fastest, each with the gauge of its bad share and its burn rate over the run."""
    drawn = sorted(report.objectives, key=lambda part: -(part.burn or 0.0))[:MAX_BURNS]
    return [(part, _gauge(part), _burn(part, report)) for part in report.objectives if part in drawn]


def _timeline(found: Intervals) -> Timeline:
    """The same intervals as the report's buckets, for the axis; what is drawn is in the layers."""
    n = len(found.sent_per_s)
    empty: list[int | None] = [None] * n
    return Timeline(
        bucket_ns=found.interval_ns,
        start_ns=found.start_ns,
        end_ns=max(found.end_ns, found.start_ns + 1),
        due=[0] * n,
        planned_per_s=found.planned_per_s or [],
        sent_per_s=found.sent_per_s,
        completed_per_s=found.done_per_s,
        errors_per_s=[],
        in_flight_max=[],
        in_flight_mean=[],
        lag=LagBand(p50=empty, p99=empty, max=empty),
    )


def _rates(found: Intervals) -> Strip:
    errors = [number / seconds for number, seconds in zip(found.failed, found.seconds(), strict=True)]
    layers = [Layer("errors", "s-error", errors, "bars")] * any(errors)
    if found.planned_per_s is not None:
        layers.append(Layer("planned", "s-planned", found.planned_per_s, "planned"))
    layers.append(Layer("sent", "s-sent", found.sent_per_s))
    layers.append(Layer("completed", "s-completed", found.done_per_s))
    return Strip("Requests per second", "per_s", layers)


def _in_flight(found: Intervals) -> Strip:
    layers = [
        Layer("", "s-flight", found.in_flight_max, "fill"),
        Layer("most seen", "s-flight", found.in_flight_max),
    ]
    return Strip("Requests in flight", "count", layers)


def _errors(found: Intervals) -> Strip:
    total = list(accumulate(found.failed))
    return Strip("Errors so far", "count", [Layer("", "s-error", total, "fill"), Layer("errors", "s-error", total)])


def _band(name: str, band: Band, report: LiveReport) -> Strip:
    lost = [value is None and n > 0 for value, n in zip(band.p99, band.n, strict=True)]
    layers = [
        Layer("", f"s-{name}", band.p99, "fill", lower=band.p50, infinite=lost),
        Layer("p99", f"s-{name}", band.p99, infinite=lost),
        Layer("p90", f"s-{name} p90", band.p90),
        Layer("p50", f"s-{name}", band.p50, "planned"),
    ]
    limits = [
        (float(part.threshold_ns), words.expression(part.objective))
        for part in report.objectives
        if part.indicator == name and part.threshold_ns is not None and part.allowed <= 0.1
    ]
    return Strip(title_of(name), "ns", layers, limits[:1])


def _draw(data: Strip, timeline: Timeline, last: bool) -> Chart:
    tail = 26 if last else 8
    wide = Canvas(_WIDE, 112 + tail, left=66, right=16, top=12, bottom=tail)
    narrow = Canvas(_NARROW, 112 + tail, left=58, right=10, top=12, bottom=tail)
    label = f"{data.title} so far, in intervals of {units.seconds(timeline.bucket_ns)}"
    legend = [Key(layer.label, layer.class_, _MARKS[layer.kind]) for layer in data.layers if layer.label]

    def draw(canvas: Canvas) -> Picture:
        return strip(data, timeline, label, canvas, last)

    return chart(data.title, "", legend, draw, wide, narrow)


def _burn(part: BurnPart, report: LiveReport) -> Chart | None:
    found = report.intervals
    if found is None or not any(part.interval_bad):
        return None
    ends = [found.start_ns + (index + 1) * found.interval_ns for index in range(len(part.interval_n))]
    ends[-1] = max(found.end_ns, found.start_ns + 1)
    data = BurnTimeline(start_ns=found.start_ns, end_ns=ends, burn=part.burns(), spent=_spent(part, report.planned))
    label = f"Burn rate of {part.objective} by interval, at least; 1 uses exactly this run's budget"

    def draw(canvas: Canvas) -> Picture:
        return burn_chart(data, (), label, canvas)

    legend = [Key("at least, by interval", "s-burn", "bar")]
    return chart(f"Burn rate of {words.expression(part.objective)}", "", legend, draw, _BURN, _BURN_NARROW)


def _spent(part: BurnPart, planned: int | None) -> list[float]:
    """Of the whole run's budget, or, when nobody knows how long the run is, of the budget of the requests so far."""
    bad = list(accumulate(part.interval_bad))
    if planned:
        return [number / (part.allowed * planned) for number in bad]
    return [
        number / (part.allowed * n) if n else 0.0 for number, n in zip(bad, accumulate(part.interval_n), strict=True)
    ]


def _gauge(part: BurnPart) -> Markup | None:
    """The report's picture of a bad share; what it holds besides that share is of the report's period and not drawn."""
    if not part.n:
        return None
    return bad_share(
        BudgetPart(
            name=part.objective, objective=part.objective, target=1 - part.allowed, allowed=part.allowed, period_ns=0,
            budget_ns=0, entry="request", n=part.n, bad=part.bad, span_ns=0, covered_ns=0, confidence=0.0,
            interval_method="none", sli=1 - part.bad / part.n,
        )
    )  # fmt: skip
