"""A sweep as a document: throughput-latency curves, curves over the load, fronts, and every point with its runs.

A curve goes only through points that were measured and kept up; one that did not stands hollow at the top. Decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Case,
    Cell,
    Column,
    Command,
    Document,
    Figures,
    Notes,
    On,
    Row,
    Section,
    Sentence,
    Suite,
    Table,
)
from plimsoll.reports.documents import on_server
from plimsoll.reports.documents.comparison import front_figure
from plimsoll.reports.format import Renderers
from plimsoll.reports.models.comparison_parts import FrontPart
from plimsoll.reports.models.sweep_parts import (
    RISING,
    LinePart,
    Reading,
    SeriesPart,
    Setting,
    SweepPoint,
    SweepReport,
    at,
    curve_of,
    good,
    kind_of,
    number,
    of_metric,
    times_of,
)
from plimsoll.reports.svg.load_curve import Dot, Plot, Trace, Upright, load_curve
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import short_of, title_of
from plimsoll.slo.server.beside import COLUMNS

_QUANTILES = ("p50", "p99")
_PLAIN = (
    "x", "outcome", "unstable", "offered_per_s", "achieved_per_s", "goodput_per_s", "good_fraction",
    "output_tokens_per_s", "completion", "requests",
)  # fmt: skip
_MOST_VALUES = 14
_AXES = MappingProxyType({"rate": "requests/s offered", "concurrency": "requests in flight"})
#: Colours that the style sheet has.
_COLOURS = 8
#: With more series than that only their p99 is drawn.
_FEW = 3
_HALF, _SMALL = Canvas(540, 320, right=72, bottom=44), Canvas(420, 290, left=54, right=66, bottom=44)
#: Several series are named in the legend and not beside their lines.
_HALF_MANY, _SMALL_MANY = Canvas(540, 320, right=22, bottom=44), Canvas(420, 290, left=54, right=20, bottom=44)


def document(report: SweepReport) -> Document:
    """The whole sweep."""
    promised = "; ".join(report.objectives) or "no objective was given"
    against, over = _against_throughput(report), _over_load(report)
    curves: list[Block] = (
        [Section("Latency against throughput", [Figures(against, paired=True)], on=On.PAGE)] if against else []
    )
    curves += [Section(f"Over {axis(report.x)}", [Figures(over, paired=True)], on=On.PAGE)] if over else []
    note = (
        "Filled: on the front, or not shown to be beaten. Hollow: beaten in both ways. Points that did not keep up are "
        "left out."
    )
    fronts = [front_figure(front, _classes(report), note) for front in report.fronts]
    command = [Command(report.command)] if report.command else []
    beyond = "curves: monotone piecewise cubics through the measured points, nothing beyond them"
    return Document(
        kind="sweep",
        word=report.outcome,
        name=report.name,
        headline=headline(report),
        meta=_meta(report),
        lines=[(report.name, "bold"), (headline(report), ""), (promised, "dim")],
        warnings=tuple(report.warnings),
        blocks=[
            _found(report),
            *curves,
            *fronts,
            Section(
                "The points",
                [Card([*(block for series in report.series for block in _points(series, report)), *command])],
            ),
            *on_server.table("point", _servers(report)),
            *(block for front in report.fronts for block in _front(front)),
        ],
        style="sweep",
        started_at=report.started_at,
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_} · {beyond}",
        sheet=_sheet(report),
        suites=[_suite(report)],
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document)


def _found(report: SweepReport) -> Section:
    """What the curves say, one row a series."""
    names = ("knee", "line lies in", "interpolated", "DistServe", "bend", "answered at the knee")
    columns = [Column("Series", right=False, names=True), *map(Column, names)]
    rows, x = [], report.x
    for series in report.series:
        knee, line = series.knee, series.line
        share = None if line is None else line.attainment
        rows.append(
            Row(
                [
                    series.label or report.name,
                    units.NOTHING if knee is None else at(x, knee.x),
                    line_range(line, x),
                    at(x, line.interpolated) if line is not None and line.interpolated else units.NOTHING,
                    units.NOTHING if share is None else f"{at(x, share.x)} at {units.percent(share.target)}",
                    units.NOTHING if series.bend is None else f"{at(x, series.bend.x)} ({series.bend.of})",
                    units.NOTHING if knee is None else units.rate(knee.achieved_per_s),
                ]
            )
        )
    fine = (
        "Knee: the greatest load that is answered (99 % of it), kept up with, and passes every objective. Line: it "
        "lies between the last load that passes and the first that fails; the interpolated figure is where the curve "
        "between them crosses the limit, and no measurement. DistServe: where the share of good requests falls to "
        "its target, by straight lines. Bend: the point furthest from the chord of the curve, for information only."
    )
    several = [f"{series.label}: {sentence(series, report)}" for series in report.series]
    return Section(
        "What the curves say",
        [Card([Table(columns, rows, notes=several if len(several) > 1 else (), fine=fine)])],
        on=On.PAGE,
    )


def _points(series: SeriesPart, report: SweepReport) -> list[Block]:
    """The table of a series, and what it says."""
    names = times_of(series.points)[:2]
    head = report.x.removeprefix("server.").removeprefix("option.")
    kept = [
        name
        for name in ("answered/s", "good/s", "tokens/s")
        if any(_rate(point, name) is not None for point in series.points)
    ]
    columns = [
        Column(head, on=On.TERMINAL),
        Column(head, names=True, on=On.PAGE | On.MARKDOWN),
        *(Column(name, least_width=0 if name == "answered/s" else 100) for name in kept),
        *(Column(f"{q} {short(name)}", folds=True) for name in names for q in _QUANTILES),
        Column("outcome", right=False),
        Column("offered", on=On.PAGE),
        Column("runs", right=False, on=On.PAGE),
        Column("why", right=False, words=True, on=On.PAGE),
    ]
    rows = []
    for point in series.points:
        knee = series.knee is not None and series.knee.x == point.x
        word = outcome(point)
        runs = [(f"{quote(run)}/report.html", run.rpartition("/")[2].partition("-")[0]) for run in point.runs]
        rows.append(
            Row(
                [
                    number(point.x),
                    at(report.x, point.x),
                    *(
                        units.NOTHING if (rate := _rate(point, name)) is None else units.compact(rate, 3)
                        for name in kept
                    ),
                    *(cell.replace(" ", "\u00a0") for cell in times(point, names)),
                    Cell(word, "UNSTABLE" if point.unstable else point.outcome, aside="← knee" if knee else ""),
                    units.rate(point.offered_per_s),
                    Cell("", links=runs),
                    objective(point),
                ],
                "knee" if knee else "",
            )
        )
    several = len(report.series) > 1
    blocks: list[Block] = [Sentence("", lead=series.label)] if series.label else []
    blocks.append(Sentence(sentence(series, report), on=On.MARKDOWN))
    blocks.append(Table(columns, rows))
    return [*blocks, Sentence(sentence(series, report), on=On.TERMINAL)] if several else blocks


def _servers(report: SweepReport) -> list[tuple[str, Mapping[str, float]]]:
    return [
        (", ".join(text for text in (series.label, at(report.x, point.x)) if text), point.server)
        for series in report.series
        for point in series.points
        if point.runs
    ]


def _suite(report: SweepReport) -> Suite:
    """The sweep as a whole, then each point: what was not run is skipped."""
    cases = [Case(report.name, report.outcome, headline(report))]
    for series in report.series:
        for point in series.points:
            name = ", ".join(text for text in (series.label, at(report.x, point.x)) if text)
            said = objective(point) or f"{name}: {outcome(point)}"
            cases.append(Case(name, "UNSTABLE" if point.unstable else point.outcome, said))
    return Suite(report.name, "plimsoll.sweep", cases)


def _rate(point: SweepPoint, column: str) -> float | None:
    found = {"answered/s": point.achieved_per_s, "good/s": good(point), "tokens/s": point.output_tokens_per_s}
    return found[column]


def _front(front: FrontPart) -> list[Block]:
    kept = "; ".join(point.name for point in front.points if not point.dominated_by)
    beaten = sum(bool(point.dominated_by) for point in front.points)
    text = f"on the front: {kept}" + (f" ({units.many(beaten, 'point')} beaten)" if beaten else "")
    return [
        Notes([text], front.title, on=On.TERMINAL),
        Sentence(f": on the front {kept}", lead=front.title, on=On.MARKDOWN),
    ]


def _sheet(report: SweepReport) -> list[Sequence[object]]:
    """One row a point: its settings, its rates, and the percentiles of every time in nanoseconds (``inf``: failed)."""
    names = list(dict.fromkeys(name for point in report.points for name in point.metrics))
    columns = [(name, q) for name in names for q in ("p50", "p90", "p99")]
    said = [name for name in COLUMNS if any(name in point.server for point in report.points)]
    times = [f"{name}_{q}_ns" for name, q in columns]
    rows: list[Sequence[object]] = [[*report.variables, *_PLAIN, *times, *said, "runs"]]
    for point in report.points:
        settings = [point.settings.get(name, "") for name in report.variables]
        plain = [getattr(point, name) for name in _PLAIN]
        figures = [_figure(point, name, q) for name, q in columns]
        rows.append([*settings, *plain, *figures, *(point.server.get(name) for name in said), " ".join(point.runs)])
    return rows


def _figure(point: SweepPoint, name: str, q: str) -> object:
    metric = point.metrics.get(name)
    if metric is None:
        return ""
    value = getattr(metric, q)
    return "inf" if value is None else value


def _meta(report: SweepReport) -> list[str]:
    varied = "; ".join(f"{name}: {values(found)}" for name, found in report.variables.items())
    runs = f"{units.many(report.repeats, 'run')} of each point"
    return [varied, f"{runs} · {'; '.join(report.objectives) or 'no objective was given'}"]


def values(found: Sequence[Setting]) -> str:
    """The values of a variable, a long list by its ends."""
    shown = [number(v) if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in found]
    if len(shown) > _MOST_VALUES:
        return f"{', '.join(shown[:3])} ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def axis(x: str) -> str:
    """What the x axis counts."""
    kind, brace, of_class = x.partition("{")
    return _AXES.get(kind, x.removeprefix("server.").removeprefix("option.")) + (f" {brace}{of_class}" * bool(brace))


def short(name: str) -> str:
    """An indicator as the head of a column."""
    known = short_of(name)
    return known if known.isupper() else name.replace("_", " ")


def time(value: float | None, there: bool) -> str:
    """A percentile: infinite when requests failed, a dash when nothing was measured."""
    return units.human(value, "ns") if there else units.NOTHING


def outcome(point: SweepPoint) -> str:
    """A point's outcome in one or two words."""
    if point.unstable:
        return "UNSTABLE"
    return {"SKIPPED": "not run", "PENDING": "not run yet"}.get(point.outcome, point.outcome)


def headline(report: SweepReport) -> str:
    """The whole in one or two sentences."""
    counts = f"{units.many(len(report.points), 'point')} in {len(report.series)} series"
    if len(report.series) == 1:
        return sentence(report.series[0], report)
    if report.outcome in ("INVALID", "UNREACHABLE"):
        return "Nothing could be judged."
    invalid = sum(point.outcome == "INVALID" for point in report.points)
    spoiled = f" {invalid} of {len(report.points)} points are INVALID and say nothing." if invalid else ""
    highest = max((series.knee.x for series in report.series if series.knee is not None), default=None)
    if highest is None:
        return f"{counts}: no load holds in any of them.{spoiled}"
    best = [series for series in report.series if series.knee is not None and series.knee.x == highest]
    less = "".join(f" {more}" for series in best if (more := more_gives_less(series, report.x)))
    with_ = " and ".join(series.label for series in best)
    return f"{counts}: the highest load that holds is {at(report.x, highest)}, with {with_}.{less}{spoiled}"


def more_gives_less(series: SeriesPart, x: str, named: bool = True) -> str:
    """A sentence where the load that holds is answered more slowly than a lower one; else empty. ``named``: with the
    series.
    """
    knee = series.knee
    if knee is None or knee.most_x is None or knee.most_per_s is None or knee.achieved_per_s is None:
        return ""
    of = f" ({series.label})" if named and series.label else ""
    return (
        f"More load gives less: {units.rate(knee.most_per_s)} answered at {at(x, knee.most_x)}, "
        f"{units.rate(knee.achieved_per_s)} at {at(x, knee.x)}{of}."
    )


def sentence(series: SeriesPart, report: SweepReport) -> str:
    """One series: the line, its bracket and its knee; where x is no load, where it holds and where it fails."""
    if kind_of(report.x) not in RISING:
        return _where(series, report)
    if all(point.outcome == "PENDING" for point in series.points):
        return "Nothing was measured: the sweep was stopped before its first run ended."
    if not any(point.outcome in ("PASS", "FAIL", "INCONCLUSIVE") for point in series.points):
        return "Nothing could be judged."
    promised = bool(report.objectives)
    said = [_line(series.line, report.x)] if series.line is not None and promised else []
    if series.knee is None:
        said.append("There is no knee." if said else "No load is carried.")
    elif not promised:
        said.append(f"Carried up to {at(report.x, series.knee.x)} (nothing was promised).")
    else:
        said.append(f"Knee: {at(report.x, series.knee.x)}.")
    if less := more_gives_less(series, report.x, named=False):
        said.append(less)
    if series.knee is not None and series.knee.failed_below:
        below = ", ".join(at(report.x, x) for x in series.knee.failed_below)
        said.append(f"Below it {below} fails all the same: run more repeats.")
    if series.line is not None and (share := series.line.attainment) is not None:
        good = f"{units.percent(share.target)} of the requests are good up to {at(report.x, share.x)}"
        said.append(f"{good}, as DistServe interpolates.")
    if series.saturated_at is not None:
        said.append(f"It does not keep up from {at(report.x, series.saturated_at)} on.")
    return " ".join(said)


def _where(series: SeriesPart, report: SweepReport) -> str:
    told = []
    for word, what in (
        ("PASS", "Passes" if report.objectives else "Carried"),
        ("FAIL", "Fails"),
        ("INCONCLUSIVE", "Can't be told"),
    ):
        there = [at(report.x, point.x) for point in series.points if point.outcome == word]
        if there:
            told.append(f"{what} at {', '.join(there)}.")
    return " ".join(told) or "No point could be judged."


def _line(line: LinePart, x: str) -> str:
    if line.low is None and line.high is None:
        return "No point passes or fails for sure."
    if line.high is None:
        return f"Every objective holds up to {at(x, line.low or 0.0)}, the greatest load that passes; none fails."
    if line.low is None:
        return f"It fails from {at(x, line.high)} on: the line lies below the grid."
    text = f"The line lies between {at(x, line.low)} (passes) and {at(x, line.high)} (fails)"
    if line.interpolated is not None:
        text += f"; the curve of {line.by} crosses the limit at {at(x, line.interpolated)}, interpolated"
    if line.undecided:
        text += f"; {', '.join(at(x, value) for value in line.undecided)} between them can't be told"
    if line.interpolated is None and line.crossings:
        text += f"; no crossing can be read off, {line.crossings[0].why}"
    if line.passes_above:
        text += f"; {', '.join(at(x, value) for value in line.passes_above)} beyond them passes all the same"
    return f"{text}."


def line_range(line: LinePart | None, x: str) -> str:
    """The measured interval of the line for a table."""
    if line is None or (line.low is None and line.high is None):
        return units.NOTHING
    if line.high is None:
        return f"above {at(x, line.low or 0.0)}"
    return f"below {at(x, line.high)}" if line.low is None else f"{at(x, line.low)} to {at(x, line.high)}"


def objective(point: SweepPoint) -> str:
    """Why a point has its outcome, in a line."""
    return "; ".join(point.reasons[:2])


def times(point: SweepPoint, names: Sequence[str]) -> list[str]:
    """p50 and p99 of each indicator at a point, as cells of a table."""
    return [
        time(None if metric is None else value, metric is not None and point.measured)
        for metric in (point.metrics.get(name) for name in names)
        for value in ((None, None) if metric is None else (metric.p50, metric.p99))
    ]


def _classes(report: SweepReport) -> dict[str, str]:
    """The style class of each series by its label."""
    return {series.label: f"arm-{index % _COLOURS}" for index, series in enumerate(report.series)}


def _against_throughput(report: SweepReport) -> list[Chart]:
    """The classic form: what is answered a second against what an answer takes, one chart per time that matters."""
    made = []
    for name in times_of(report.points)[:2]:
        traces = [t for q, style in _quantiles(report, name) for t in _by_throughput(report, name, q, style)]
        if not any(trace.pieces for trace in traces):
            continue
        plot = Plot(traces, "answered requests/s", "ns", limits=_limits(report, name))
        label = f"{title_of(name)} against answered requests per second. {headline(report)}"
        note = "Each point is one load; the curve follows the load upwards."
        made.append(_chart(report, title_of(name), note, plot, label, name))
    return made


def _over_load(report: SweepReport) -> list[Chart]:
    """Every time over the load, then what was answered and how much of it was good."""
    made = []
    for name in times_of(report.points):
        traces = [
            _trace(report, s, of_metric(name, q), q, style, _time)
            for q, style in _quantiles(report, name)
            for s in report.series
        ]
        plot = Plot(traces, axis(report.x), "ns", "load", _limits(report, name), _uprights(report))
        if any(trace.pieces for trace in traces):
            note = "A hollow point at the top did not keep up: it has no latency."
            made.append(_chart(report, title_of(name), note, plot, f"{title_of(name)} over {axis(report.x)}", name))
    rates = [
        _trace(report, s, read, name, style, units.rate, keep=True)
        for read, name, style in ((_achieved, "answered", ""), (good, "good", "mid"))
        for s in report.series
        if any(read(point) is not None for point in s.points)
    ]
    asked = report.x == "rate"
    told = ["Solid: answered. Dashed: good."] if len(rates) > len(report.series) else []
    told += ["Grey: what was offered."] if asked else []
    note = " ".join([*told, "Hollow: did not keep up."])
    plot = Plot(rates, axis(report.x), "1/s", "load", (), _uprights(report), diagonal=asked)
    made.append(
        _chart(report, "Answered and good requests per second", note, plot, "Requests per second over the load")
    )
    shares = [_trace(report, s, _share, "good", "", units.percent, keep=True) for s in report.series]
    if any(trace.pieces for trace in shares):
        plot = Plot(shares, axis(report.x), "ratio", "load", _share_limits(report), _uprights(report), top=1.0)
        note = "Share of the requests that meet every limit on a request."
        made.append(_chart(report, "Good requests", note, plot, "Share of good requests over the load"))
    return made


def _quantiles(report: SweepReport, name: str) -> list[tuple[str, str]]:
    """Which percentiles are drawn, and how: the promised one, else the p99, is the solid line."""
    promised = [p.statistic for point in report.points for p in point.objectives if p.indicator == name and p.of_all]
    main = next((q for q in promised if q in ("p50", "p90", "p99")), "p99")
    if len(report.series) == 1:
        others = [q for q in ("p99", "p90", "p50") if q != main]
        return [(main, ""), (others[0], "mid"), (others[1], "low")]
    beside = "p50" if main != "p50" else "p99"
    return [(main, ""), (beside, "mid")] if len(report.series) <= _FEW else [(main, "")]


def _chart(report: SweepReport, title: str, note: str, plot: Plot, label: str, drawn_of: str = "") -> Chart:
    if any(dot.void for trace in plot.traces for dot in trace.dots):
        note += " A cross on the axis: INVALID, it says nothing."
    drawn = _classes(report)
    several = len(report.series) > 1
    legend = [Key(series.label, drawn[series.label]) for series in report.series] if several else []
    if several and drawn_of:
        quantiles = _quantiles(report, drawn_of)
        note = f"Solid: {quantiles[0][0]}. {f'Dashed: {quantiles[1][0]}. ' if len(quantiles) > 1 else ''}{note}"
    wide, narrow = (_HALF_MANY, _SMALL_MANY) if several else (_HALF, _SMALL)
    return chart(title, note, legend, lambda canvas: load_curve(plot, label, canvas), wide, narrow)


def _style(report: SweepReport, series: SeriesPart, style: str) -> str:
    return f"{_classes(report)[series.label]} {style}".strip()


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
        said = f"{name} {show(value)}" if value is not None else f"{name}: {outcome(point)}"
        if value is not None or (point.unstable and not style):
            dots.append(Dot(point.x, value, f"{at(report.x, point.x)}: {said}", point.unstable))
    dots += [
        Dot(point.x, None, f"{at(report.x, point.x)}: INVALID, it says nothing", void=True)
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
        dots = []
        for point in points:
            if point.achieved_per_s is not None and (value := of_metric(name, q)(point)) is not None:
                tip = f"{at(report.x, point.x)}: {q} {_time(value)} at {units.rate(point.achieved_per_s)}"
                dots.append(Dot(point.achieved_per_s, value, tip))
        label = "" if len(report.series) > 1 else q
        made.append(Trace(label, _style(report, series, style), pieces, dots))
    return made


def _achieved(point: SweepPoint) -> float | None:
    return point.achieved_per_s


def _share(point: SweepPoint) -> float | None:
    return point.good_fraction


def _time(value: float | None) -> str:
    return units.human(value, "ns")


def _limits(report: SweepReport, name: str) -> list[tuple[float, str]]:
    found = {
        promise.objective: float(promise.threshold)
        for point in report.points
        for promise in point.objectives
        if promise.indicator == name and promise.of_all and promise.unit == "ns" and promise.threshold is not None
    }
    return [(value, text) for text, value in found.items()]


def _share_limits(report: SweepReport) -> list[tuple[float, str]]:
    found = {
        promise.objective: float(promise.threshold)
        for point in report.points
        for promise in point.objectives
        if (promise.statistic, promise.indicator) == ("ratio", "good")
        and promise.of_all
        and promise.threshold is not None
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
            made.append(Upright(line.interpolated, f"line {at(report.x, line.interpolated)}", "line"))
    if series.knee is not None:
        made.append(Upright(series.knee.x, f"knee {at(report.x, series.knee.x)}", "knee"))
    return made
