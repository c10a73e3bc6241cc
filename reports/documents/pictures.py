"""A report's charts: which ones a run deserves, their titles, limits and legends. Drawing itself is in
``plimsoll.reports.svg``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from plimsoll.reports.parts.charts import Band, ByPrompt, Curve, Distribution, Heatmap, Timeline
from plimsoll.reports.parts.measures import HEARD, LIVE
from plimsoll.reports.parts.parts import MAX_BUCKETS, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sections import budgets, events, server
from plimsoll.reports.sections.sessions import Sessions
from plimsoll.reports.sections.steadiness import SteadinessPart
from plimsoll.reports.svg.curves import Limit, percentiles
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart
from plimsoll.reports.svg.spreads import ENOUGH_FOR_P99, LEVELS, Mark, heat, histogram, lengths
from plimsoll.reports.svg.strip import Layer, Strip, band_layers, bucket_bounds, strip
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import expression
from plimsoll.slo.metrics.indicator import lines_of, short_of
from plimsoll.slo.objectives.goodput import failing
from plimsoll.slo.objectives.objective import SPELLS, parse

#: Fewer measured requests than this make no picture.
ENOUGH = 5

_HALF = Canvas(520, 320, left=62, right=68, top=16)
_FULL = Canvas(1080, 340, left=66, right=72, top=16)
_NARROW = Canvas(420, 290, left=58, right=62, top=16)
_BARS = Canvas(520, 240, left=50, right=18, top=8)
_BARS_FULL = Canvas(1080, 250, left=60, right=18, top=8)
_BARS_NARROW = Canvas(420, 230, left=44, right=14, top=8)


_MARKS = MappingProxyType({"line": "line", "planned": "dash", "fill": "area", "bars": "cross", "dots": "dots"})


def cut_marks(part: SteadinessPart | None) -> list[tuple[int, str]]:
    """Where the proposed cut is marked on charts over the run's time."""
    if part is None or part.warmup is None or not part.warmup.proposed:
        return []
    return [(part.warmup.until_ns, "proposed end of warm-up")]


def curve_charts(report: Report) -> list[Chart]:
    """Latency by percentile: what is waited for in live speech, or whole answers; the first sound and the pace of
    tokens apart.
    """
    groups = [
        (
            "Live speech by percentile",
            "From true speech: first partial from its onset, a word from its end, finalization and voice to voice "
            "from the end.",
            lines_of("live"),
        ),
        (
            "First sound by percentile",
            "From the moment a request was due; the audible one without leading silence.",
            lines_of("sound"),
        ),
        (
            "Latency by percentile",
            "From the moment a request was due; service time from the moment it was sent.",
            [] if _is_live(report) else lines_of("answer"),
        ),
        ("Time between tokens by percentile", "TPOT is one mean gap per request; ITL is every gap.", lines_of("pace")),
    ]
    kept = [(title, note, _present(report.charts.curves, names)) for title, note, names in groups]
    kept = [group for group in kept if group[2]]
    canvas = _HALF if len(kept) > 1 else _FULL
    return [
        chart(
            title,
            note,
            [],
            partial(percentiles, curves, _limits(report, curves), _curve_label(title, curves)),
            canvas,
            _NARROW,
        )
        for title, note, curves in kept
    ]


def _is_live(report: Report) -> bool:
    """Whether somebody spoke: then a latency is mostly the time that it took to say it."""
    return any(name in report.charts.curves for name in LIVE)


def _present(curves: Mapping[str, Curve], names: Sequence[str]) -> dict[str, Curve]:
    return {
        name: curves[name]
        for name in names
        if name in curves
        and curves[name].unit == "ns"
        and curves[name].n >= ENOUGH
        and any(v is not None for v in curves[name].value)
    }


def _curve_label(title: str, curves: Mapping[str, Curve]) -> str:
    parts = []
    for name, curve in curves.items():
        middle = next((v for q, v in zip(curve.q, curve.value, strict=True) if q >= 0.5), None)
        high = next((v for q, v in zip(curve.q, curve.value, strict=True) if q >= 0.99), None)
        parts.append(f"{short_of(name)}: p50 {units.human(middle, 'ns')}, p99 {units.human(high, 'ns')}")
    return f"{title}. {'; '.join(parts)}"


def _limits(report: Report, curves: Mapping[str, Curve]) -> list[Limit]:
    limits = []
    for result in report.verdict.objectives:
        q = None if result.where else quantile_of(result.statistic)
        if result.indicator in curves and q is not None and result.threshold and result.unit == "ns":
            label = f"{result.statistic} {short_of(result.indicator)} ≤ {units.limit(result.threshold, 'ns')}"
            limits.append(Limit(result.indicator, q, result.threshold, label, result.outcome == "PASS"))
    for part in report.verdict.request_objectives:
        if part.indicator in curves and not part.where and part.threshold and part.unit == "ns":
            label = f"{short_of(part.indicator)} ≤ {units.limit(part.threshold, 'ns')}"
            limits.append(Limit(part.indicator, None, part.threshold, label))
    return limits


def quantile_of(statistic: str) -> float | None:
    """``p99.9`` is 0.999; None for every other statistic."""
    if not statistic.startswith("p"):
        return None
    try:
        return float(statistic[1:]) / 100
    except ValueError:
        return None


def distribution_charts(report: Report) -> list[Chart]:
    """How speech is waited for, or the first token and the pace (or, without any, the latency), is distributed."""
    data = report.charts.distributions
    usual = (*LIVE, *HEARD, "ttft", "tpot")
    names = [name for name in usual if name in data] or ["latency"] * ("latency" in data)
    names += [name for name in data if name not in (*usual, "latency")]
    names = [name for name in names if data[name].counts and data[name].n >= ENOUGH]
    return [_distribution(report, name, data[name], _BARS if len(names) > 1 else _BARS_FULL) for name in names]


def _distribution(report: Report, name: str, data: Distribution, canvas: Canvas) -> Chart:
    metric = report.metrics.get(name)
    marks = []
    if metric is not None:
        found = (("p50", metric.p50), ("p99", metric.p99))
        marks = [Mark(float(v), f"{q} {units.human(v, data.unit)}", "quantile") for q, v in found if v is not None]
    curves = {name: report.charts.curves[name]} if name in report.charts.curves else {}
    seen = {limit.value: limit for limit in reversed(_limits(report, curves))}
    marks += [Mark(value, f"limit {units.limit(value, data.unit)}", "limit") for value in sorted(seen)]
    title = f"{metric.title if metric and metric.title else short_of(name)}: distribution"
    note = "Bins of equal ratio."
    if data.infinite:
        note = f"{without_value(report, data.infinite)}, and no bar. {note}"
    label = f"{title}. " + ", ".join(mark.label for mark in marks)
    return chart(title, note, [], partial(histogram, name, data, marks, label), canvas, _BARS_NARROW)


def without_value(report: Report, lost: int) -> str:
    """So many requests without a finite value: they failed, or succeeded without what they were to bring."""
    failed = report.counts.failed
    if lost <= failed:
        return f"{units.many(lost, 'failed request')} without a finite value"
    why = f"{units.count(failed)} failed, {units.count(lost - failed)} never brought one"
    return f"{units.many(lost, 'request')} without a finite value ({why})"


def timeline_charts(report: Report) -> list[Chart]:
    """Rate, requests in flight, sessions alive, latency percentiles, tokens and what the server said of itself over the
    run, one above the other.
    """
    timeline = report.charts.timeline
    if timeline is None or sum(timeline.due) < ENOUGH:
        return []
    strips = [_rates(timeline), _in_flight(timeline)]
    if report.sessions is not None:
        strips.append(_alive(timeline, report.sessions))
    strips += [_band(report, timeline, name, band) for name, band in timeline.bands.items() if any(band.p50)]
    if timeline.output_tokens_per_s is not None:
        layer = Layer("output tokens/s", "s-tokens", timeline.output_tokens_per_s)
        strips.append(Strip("Output tokens per second", "per_s", [layer]))
    if report.server is not None:
        strips += server.strips({name: one.by_bucket for name, one in report.server.names.items()})
    marks = [*cut_marks(report.steadiness), *events.marks(report)]
    # The mark goes through all strips, its name stands in the first.
    marked = [
        replace(data, marks=[(at, name if i == 0 else "") for at, name in marks]) for i, data in enumerate(strips)
    ]
    return [_strip_chart(data, timeline, last=index == len(strips) - 1) for index, data in enumerate(marked)]


def lag_chart(report: Report) -> list[Chart]:
    """How late the generator itself was, over the run."""
    timeline = report.charts.timeline
    if timeline is None or sum(timeline.due) < ENOUGH or not any(v is not None for v in timeline.lag.max):
        return []
    layers = [
        Layer("p50 to p99", "s-lag", timeline.lag.p99, "fill", lower=timeline.lag.p50),
        Layer("p99", "s-lag", timeline.lag.p99),
        Layer("p50", "s-lag", timeline.lag.p50, "planned"),
        Layer("max", "s-max", timeline.lag.max, "dots"),
    ]
    marks = cut_marks(report.steadiness)
    return [_strip_chart(Strip("Schedule lag", "ns", layers, marks=marks), timeline, last=True)]


def _strip_chart(data: Strip, timeline: Timeline, last: bool, height: float = 112) -> Chart:
    label = f"{data.title} over the run, in at most {MAX_BUCKETS} buckets of {units.seconds(timeline.bucket_ns)}"
    return strip_chart(data, timeline, label, last, height)


def strip_chart(data: Strip, timeline: Timeline, label: str, last: bool, height: float = 112) -> Chart:
    """One of the charts over the run that stand one above the other; the last one has the axis."""
    legend = [Key(one.label, one.class_, _MARKS[one.kind]) for one in data.layers if one.label and one.kind != "read"]
    if any(any(layer.infinite) for layer in data.layers):
        legend.append(Key("p99 is a failure", "s-error", "bar"))
    tail = 26 if last else 8
    wide = Canvas(1080, height + tail, left=66, right=16, top=12, bottom=tail)
    narrow = Canvas(420, height + tail, left=58, right=10, top=12, bottom=tail)

    def draw(canvas: Canvas) -> Picture:
        return strip(data, timeline, label, canvas, last)

    return chart(data.title, "", legend, draw, wide, narrow)


def _rates(timeline: Timeline) -> Strip:
    layers = [
        Layer("errors", "s-error", timeline.errors_per_s, "bars"),
        Layer("planned", "s-planned", timeline.planned_per_s, "planned"),
        Layer("sent", "s-sent", timeline.sent_per_s),
        Layer("completed", "s-completed", timeline.completed_per_s),
        *([Layer("good", "s-good", timeline.good_per_s)] if timeline.good_per_s is not None else []),
    ]
    if not any(timeline.errors_per_s):
        layers = layers[1:]
    return Strip("Requests per second", "per_s", layers)


def _in_flight(timeline: Timeline) -> Strip:
    layers = [
        Layer("mean", "s-flight", timeline.in_flight_mean, "fill"),
        *([Layer("max", "s-flight", timeline.in_flight_max)] if timeline.in_flight_max else []),
    ]
    return Strip("Requests in flight", "count", layers)


def _alive(timeline: Timeline, sessions: Sessions) -> Strip:
    middles = [(begin + end) // 2 for begin, end in bucket_bounds(timeline)]
    values = [sessions.live[max(0, bisect_right(sessions.at_ns, at) - 1)] for at in middles]
    return Strip("Sessions alive", "count", [Layer("alive", "s-flight", values)])


#: How high the chart of what was broken is: the first screen has room for it.
_BROKEN = 170


def broken_chart(report: Report) -> tuple[list[Chart], str]:
    """Where the run broke the limit that decides its FAIL: what it is about, over the run, by percentile, or how its
    error budget burnt; and the group of charts whose axis it has.
    """
    told, timeline = report.verdict, report.charts.timeline
    decides = next((one for one in told.objectives if one.objective == told.decides), None)
    if told.outcome != "FAIL" or decides is None or timeline is None or sum(timeline.due) < ENOUGH:
        return [], ""
    title = f"Where {expression(decides.objective)} was broken"
    data = _broken(report, decides, timeline)
    if data is not None:
        return [_strip_chart(replace(data, title=title), timeline, last=True, height=_BROKEN)], "time"
    curves = {} if decides.where else _present(report.charts.curves, [decides.indicator])
    draw = partial(percentiles, curves, _limits(report, curves), _curve_label(title, curves))
    if curves:
        return [chart(title, "", [], draw, Canvas(1080, _BROKEN + 26, left=66, right=72, top=16), _NARROW)], ""
    burnt = [one for one in report.budgets if one.objective == decides.objective]
    return [replace(one, title=title) for budget in burnt for one in budgets.charts(budget)], ""


def _broken(report: Report, decides: ObjectiveResult, timeline: Timeline) -> Strip | None:
    """What the objective is about over the run, with its limit."""
    name, told = decides.indicator, report.verdict
    of = (
        parse(decides.objective).of if decides.statistic in SPELLS else None
    )  # a spell is one of breaking the inner limit
    limit = decides.threshold if of is None else of.threshold
    limits = [] if limit is None else [(limit, f"limit {units.limit(limit, decides.unit)}")]
    if not decides.where:
        if decides.statistic == "ratio" and name == "good" and told.request_objectives:
            name = min(told.request_objectives, key=lambda one: one.met / max(one.n, 1)).indicator
        if name in timeline.bands:
            data = _band(report, timeline, name, timeline.bands[name])
            return replace(data, limits=limits, marks=events.marks(report)) if decides.unit == "ns" and limits else data
        if (decides.statistic == "ratio" and name == "error") or decides.statistic == "rate":
            return _rates(timeline)
        if report.server is not None and name in report.server.names:
            found = server.strips({name: report.server.names[name].by_bucket})
            return replace(found[0], limits=limits) if found else None
    course = None if report.window is None else report.window.course(decides.objective)
    if course is None:
        return None
    number, values = course
    if isinstance(values, Band):
        return replace(_band(report, timeline, name, values, number), limits=limits)
    if decides.operator in (">", ">="):
        kept = [None if one is None else 1 - one for one in values]
        return Strip("", "ratio", [Layer(f"share that is {name}", "s-completed", kept)], limits)
    return Strip("", "ratio", [Layer(f"share: {failing(name)}", "s-error", values)], limits)


def _band(report: Report, timeline: Timeline, name: str, band: Band, due: Sequence[int] = ()) -> Strip:
    metric = report.metrics.get(name)
    unit = metric.unit if metric is not None else "ns"
    layers = band_layers(name, band, due or timeline.due)
    title = metric.title if metric is not None and metric.title else short_of(name)
    curves = {name: report.charts.curves[name]} if name in report.charts.curves else {}
    limits = [(limit.value, limit.label) for limit in _limits(report, curves) if limit.q is None or limit.q >= 0.9]
    return Strip(title, unit, layers, limits[:1])


#: Fewer requests than this make no map.
_ENOUGH = 40
_MAP = Canvas(1080, 300, left=66, right=16, top=12)
_MAP_NARROW = Canvas(420, 280, left=58, right=10, top=12)
_CLOUD = Canvas(1080, 300, left=66, right=24, top=14, bottom=38)
_CLOUD_NARROW = Canvas(420, 280, left=58, right=16, top=14, bottom=38)


def heat_chart(report: Report) -> list[Chart]:
    """Latency by time: which share of the requests of each moment had which value."""
    data = report.charts.heatmap
    if data is None or data.n < _ENOUGH or len(data.failed) < 2:
        return []
    title = f"{_title(report, data.metric)}: every request by when it was due"
    note = (
        "Each column is one stretch of the run, deeper where a larger share of its requests "
        f"lies{_failed_note(report, data)}. Lines: p99 and p50 of the column; a line breaks where a failure is that "
        "percentile."
    )
    shares = [(f"heat-{depth}", units.percent(least, 2)) for depth, least in enumerate(LEVELS, start=1)]
    legend = [Key("p99", "heat-p99"), Key("p50", "heat-p50")]
    legend += [Key(f"{least} of a column and more", class_, "bar") for class_, least in shares[1::2]]
    return [chart(title, note, legend, partial(heat, data, _heat_label(title, data)), _MAP, _MAP_NARROW)]


def _failed_note(report: Report, data: Heatmap) -> str:
    lost = sum(data.failed)
    if not lost:
        return ""
    return f"; {without_value(report, lost)} {'is' if lost == 1 else 'are'} the row at the top"


def _heat_label(title: str, data: Heatmap) -> str:
    low, high = units.human(data.edges[0], data.unit), units.human(data.edges[-1], data.unit)
    return f"{title}. {units.many(data.n, 'request')} from {low} to {high}, {units.count(sum(data.failed))} failed"


def prompt_chart(report: Report) -> list[Chart]:
    """A metric by the length of the prompt."""
    data = report.charts.by_prompt
    if data is None or data.n < _ENOUGH or not data.points:
        return []
    name = short_of(data.metric) if data.metric in ("ttft", "latency") else _title(report, data.metric)
    title = f"{name[0].upper()}{name[1:]} by prompt length"
    keys = [Key("p50", "s-p50"), Key("p90", "s-p90")]
    if any(part.n >= ENOUGH_FOR_P99 and part.p99 is not None for part in data.bins):
        keys.append(Key("p99", "s-p99"))
    keys.append(Key("some requests", "cloud-key", "dots"))
    if any(part.failed for part in data.bins):
        keys.append(Key("failures", "s-error", "cross"))
    draw = partial(lengths, data, _prompt_label(title, data))
    return [chart(title, _prompt_note(data), keys, draw, _CLOUD, _CLOUD_NARROW)]


def _prompt_note(data: ByPrompt) -> str:
    who = "as planned, because the server counted none" if data.planned else "as the server counted them"
    note = (
        f"Input tokens {who}, in groups of equal ratio; p99 where a group has {ENOUGH_FOR_P99} requests. "
        f"{units.many(len(data.points), 'request')} of {units.count(data.n)} drawn, among them the slowest of each "
        "group."
    )
    if data.unknown:
        note += f" {units.many(data.unknown, 'request')} of unknown length are left out."
    return note


def _prompt_label(title: str, data: ByPrompt) -> str:
    parts = [
        f"{units.count(part.low)} to {units.count(part.high)} tokens: p50 {units.human(part.p50, data.unit)} "
        f"of {units.many(part.n, 'request')}"
        for part in data.bins
    ]
    return f"{title}. {'; '.join(parts)}"


def _title(report: Report, name: str) -> str:
    metric = report.metrics.get(name)
    return metric.title if metric is not None and metric.title else short_of(name)
