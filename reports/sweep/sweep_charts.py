"""The charts of a sweep: each figure over the load and over throughput, one colour per series.

A curve goes only through points that were measured and kept up; one that did not stands hollow at the top. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.reports.svg.load_curve import Dot, Plot, Trace, Upright, load_curve
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.sweep import sweep_words as say
from plimsoll.reports.sweep.sweep_curves import Reading, curve_of, of_metric, times_of
from plimsoll.reports.sweep.sweep_parts import SeriesPart, SweepPoint, SweepReport
from plimsoll.reports.wording import units

#: Colours that the style sheet has.
_COLOURS = 8
#: With more series than that only their p99 is drawn.
_FEW = 3
_HALF, _SMALL = Canvas(540, 320, right=72, bottom=44), Canvas(420, 290, left=54, right=66, bottom=44)
#: Several series are named in the legend and not beside their lines.
_HALF_MANY, _SMALL_MANY = Canvas(540, 320, right=22, bottom=44), Canvas(420, 290, left=54, right=20, bottom=44)


def classes(report: SweepReport) -> dict[str, str]:
    """The style class of each series by its label."""
    return {series.label: f"arm-{index % _COLOURS}" for index, series in enumerate(report.series)}


def against_throughput(report: SweepReport) -> list[Chart]:
    """The classic form: what is answered a second against what an answer takes, one chart per time that matters."""
    made = []
    for name in times_of(report.points)[:2]:
        traces = [t for q, style in _quantiles(report, name) for t in _by_throughput(report, name, q, style)]
        if not any(trace.pieces for trace in traces):
            continue
        plot = Plot(traces, "answered requests/s", "ns", limits=_limits(report, name))
        label = f"{say.metric(name)} against answered requests per second. {say.headline(report)}"
        made.append(
            _chart(
                report,
                say.metric(name),
                "Each point is one load; the curve follows the load upwards.",
                plot,
                label,
                name,
            )
        )
    return made


def over_load(report: SweepReport) -> list[Chart]:
    """Every time over the load, then what was answered and how much of it was good."""
    made = []
    for name in times_of(report.points):
        traces = [
            _trace(report, s, of_metric(name, q), q, style, _time)
            for q, style in _quantiles(report, name)
            for s in report.series
        ]
        plot = Plot(traces, say.axis(report.x), "ns", "load", _limits(report, name), _uprights(report))
        if any(trace.pieces for trace in traces):
            note = "A hollow point at the top did not keep up: it has no latency."
            made.append(
                _chart(report, say.metric(name), note, plot, f"{say.metric(name)} over {say.axis(report.x)}", name)
            )
    rates = [
        _trace(report, s, read, name, style, units.rate, keep=True)
        for read, name, style in ((_achieved, "answered", ""), (_goodput, "good", "mid"))
        for s in report.series
        if any(read(point) is not None for point in s.points)
    ]
    asked = report.x == "rate"
    told = ["Solid: answered. Dashed: good."] if len(rates) > len(report.series) else []
    told += ["Grey: what was offered."] if asked else []
    note = " ".join([*told, "Hollow: did not keep up."])
    plot = Plot(rates, say.axis(report.x), "1/s", "load", (), _uprights(report), diagonal=asked)
    made.append(
        _chart(report, "Answered and good requests per second", note, plot, "Requests per second over the load")
    )
    shares = [_trace(report, s, _share, "good", "", units.percent, keep=True) for s in report.series]
    if any(trace.pieces for trace in shares):
        plot = Plot(shares, say.axis(report.x), "ratio", "load", _share_limits(report), _uprights(report), top=1.0)
        made.append(
            _chart(
                report,
                "Good requests",
                "Share of the requests that meet every limit on a request.",
                plot,
                "Share of good requests over the load",
            )
        )
    return made


def _quantiles(report: SweepReport, name: str) -> list[tuple[str, str]]:
    """Which percentiles are drawn, and how: the promised one, else the p99, is the solid line."""
    promised = [p.statistic for point in report.points for p in point.objectives if p.indicator == name]
    main = next((q for q in promised if q in ("p50", "p90", "p99")), "p99")
    if len(report.series) == 1:
        others = [q for q in ("p99", "p90", "p50") if q != main]
        return [(main, ""), (others[0], "mid"), (others[1], "low")]
    beside = "p50" if main != "p50" else "p99"
    return [(main, ""), (beside, "mid")] if len(report.series) <= _FEW else [(main, "")]


def _chart(report: SweepReport, title: str, note: str, plot: Plot, label: str, drawn_of: str = "") -> Chart:
    if any(dot.void for trace in plot.traces for dot in trace.dots):
        note += " A cross on the axis: INVALID, it says nothing."
    drawn = classes(report)
    several = len(report.series) > 1
    legend = [Key(series.label, drawn[series.label]) for series in report.series] if several else []
    if several and drawn_of:
        quantiles = _quantiles(report, drawn_of)
        note = f"Solid: {quantiles[0][0]}. {f'Dashed: {quantiles[1][0]}. ' if len(quantiles) > 1 else ''}{note}"
    wide, narrow = (_HALF_MANY, _SMALL_MANY) if several else (_HALF, _SMALL)
    return chart(title, note, legend, lambda canvas: load_curve(plot, label, canvas), wide, narrow)


def _style(report: SweepReport, series: SeriesPart, style: str) -> str:
    return f"{classes(report)[series.label]} {style}".strip()


def _trace(
    report: SweepReport,
    series: SeriesPart,
    read: Reading,
    name: str,
    style: str,
    show: Callable[[float], str],
    keep: bool = False,
) -> Trace:
    """``keep``: a figure of an endpoint that did not keep up is a fact all the same (a rate, a share), shown hollow."""
    points = [point for point in series.points if point.measured or point.unstable]
    dots = []
    for point in points:
        value = read(point) if point.measured or keep else None
        said = f"{name} {show(value)}" if value is not None else f"{name}: {say.outcome(point)}"
        if value is not None or (point.unstable and not style):
            dots.append(Dot(point.x, value, f"{say.at(report.x, point.x)}: {said}", point.unstable))
    dots += [
        Dot(point.x, None, f"{say.at(report.x, point.x)}: INVALID, it says nothing", void=True)
        for point in series.points
        if point.outcome == "INVALID" and not style
    ]
    pieces = curve_of(points, read).drawn()
    return Trace("" if len(report.series) > 1 else name, _style(report, series, style), pieces, dots)


def _by_throughput(report: SweepReport, name: str, q: str, style: str) -> list[Trace]:
    made = []
    for series in report.series:
        points = [point for point in series.points if point.measured]
        latency, rate = curve_of(series.points, of_metric(name, q)), curve_of(series.points, _achieved)
        # Both are drawn at the same loads, so that the curve may turn back where throughput falls.
        pieces = []
        for piece in latency.drawn():
            rates = rate.sampled([x for x, _ in piece])
            pieces.append([(at, y) for at, (_, y) in zip(rates, piece, strict=True) if at is not None])
        dots = [
            Dot(
                point.achieved_per_s,
                value,
                f"{say.at(report.x, point.x)}: {q} {_time(value)} at {units.rate(point.achieved_per_s)}",
            )
            for point in points
            if point.achieved_per_s is not None and (value := of_metric(name, q)(point)) is not None
        ]
        label = "" if len(report.series) > 1 else q
        made.append(Trace(label, _style(report, series, style), pieces, dots))
    return made


def _achieved(point: SweepPoint) -> float | None:
    return point.achieved_per_s


def _goodput(point: SweepPoint) -> float | None:
    return None if point.good_fraction is None else point.goodput_per_s


def _share(point: SweepPoint) -> float | None:
    return point.good_fraction


def _time(value: float | None) -> str:
    return units.human(value, "ns")


def _limits(report: SweepReport, name: str) -> list[tuple[float, str]]:
    found = {
        promise.objective: float(promise.threshold)
        for point in report.points
        for promise in point.objectives
        if promise.indicator == name and promise.unit == "ns" and promise.threshold is not None
    }
    return [(value, text) for text, value in found.items()]


def _share_limits(report: SweepReport) -> list[tuple[float, str]]:
    found = {
        promise.objective: float(promise.threshold)
        for point in report.points
        for promise in point.objectives
        if (promise.statistic, promise.indicator) == ("ratio", "good") and promise.threshold is not None
    }
    return [(value, text) for text, value in found.items()]


def _uprights(report: SweepReport) -> Sequence[Upright]:
    """The knee, and the interval that holds the line: of one series, for those of several would hide each other."""
    if len(report.series) > 1:
        return ()
    series = report.series[0]
    made = []
    line = series.line
    if line is not None and line.low is not None and line.high is not None:
        made.append(Upright(line.low, "", "bracket", line.high))
        if line.interpolated is not None:
            made.append(Upright(line.interpolated, f"line {say.at(report.x, line.interpolated)}", "line"))
    if series.knee is not None:
        made.append(Upright(series.knee.x, f"knee {say.at(report.x, series.knee.x)}", "knee"))
    return made
