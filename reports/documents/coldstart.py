"""A cold start as a document: times over all repeats, the phases of each on one axis, every repeat's latencies in order of issue."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from markupsafe import Markup
from rich.console import RenderableType

from plimsoll.reports.document import (
    Block,
    Card,
    Cell,
    Column,
    Command,
    Document,
    Figures,
    On,
    Row,
    Section,
    Sentence,
    Table,
)
from plimsoll.reports.format import Renderers
from plimsoll.reports.formats.text import draw
from plimsoll.reports.models.coldstart_parts import QUANTITIES, ColdstartReport, RepeatPart, SpreadPart
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, path, text
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart, grid, hover, series, svg
from plimsoll.reports.wording import units

_WIDE, _NARROW = Canvas(1040, 390, bottom=42), Canvas(420, 310, left=54, bottom=42)
#: The style sheet has so many colours; further repeats take them again.
_COLOURS = 6
#: field of a repeat that ends a phase, its name, its class.
_PHASES = (
    ("port_ns", "until the port is open", "arm-5"),
    ("ready_ns", "until it is ready", "arm-1"),
    ("first_answer_ns", "until the first answer", "arm-2"),
    ("steady_ns", "until it is steady", "arm-4"),
)
_ROW = 26.0
_TITLES = MappingProxyType(
    {
        "port": "port open",
        "ready": "ready",
        "first_ttft": "first request, TTFT",
        "first_latency": "first request, latency",
        "first_answer": "spawn to first answer",
        "steady": "steady",
        "steady_level": "steady latency",
        "excess": "warm-up excess",
    }
)


def document(report: ColdstartReport) -> Document:
    """The whole measurement."""
    complete = units.many(sum(part.complete for part in report.repeats), "complete start")
    blocks = [_times(report)] if report.spreads else []
    blocks += [_goals(report)] if report.goals else []
    commands = [Command(text) for text in (report.start, report.command) if text]
    return Document(
        kind="cold start",
        word=report.outcome,
        name="cold start",
        title=f"Cold start: {report.url}",
        heading="Cold start",
        headline=_headline(report),
        meta=[f"{complete} of {report.wanted} asked for", report.url],
        lines=[(_headline(report), "bold"), (report.start, ""), (report.url, "dim")],
        warnings=tuple(report.warnings),
        blocks=[*blocks, Figures(_charts(report)), Section("Each start", [Card([_repeats(report), *commands])])],
        started_at=report.repeats[0].started_at if report.repeats else "",
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def render_terminal(report: ColdstartReport, width: int = 100) -> RenderableType:
    """The measurement for ``rich``."""
    return draw(document(report), width)


def _times(report: ColdstartReport) -> Section:
    columns = [
        Column("", right=False, titled="Time", names=True),
        *map(Column, ["median", "least", "greatest"]),
        *(Column(name, least_width=100) for name in ("interval", "first start", "the others")),
        Column("from, to", right=False, on=On.PAGE),
    ]
    rows = []
    for part in report.spreads:
        first, later = (_shown(value) for value in (part.first, part.later))
        spread = [units.human(value, "ns") for value in (part.median, part.least, part.greatest)]
        differs = Cell(first, strong=part.first_differs)
        rows.append(
            Row([_TITLES[part.quantity], *spread, _interval(part, report), differs, later, QUANTITIES[part.quantity]])
        )
    fine = "The first start is in every column but the last; bold where it is unlike them."
    sure: list[Block] = [Sentence(said, fine=True)] if (said := _certainty(report)) else []
    return Section("Over all starts", [Card([Table(columns, rows, fine=fine), *sure])])


def _goals(report: ColdstartReport) -> Section:
    columns = [
        Column("objective", right=False, names=True, code=True),
        Column("outcome", right=False),
        Column("kept in"),
        Column("worst"),
    ]
    rows = [
        Row(
            [
                goal.objective,
                Cell(goal.outcome, goal.outcome),
                f"{goal.kept} of {goal.of}",
                units.human(goal.worst, "ns"),
            ]
        )
        for goal in report.goals
    ]
    return Section("Objectives, to be kept by every start", [Card([Table(columns, rows, title="Objectives")])])


def _repeats(report: ColdstartReport) -> Table:
    page = On.PAGE
    columns = [
        Column("start", names=True),
        *(Column(name) for name in ("port", "ready")),
        Column("said by", right=False, on=page, code=True),
        *(Column(name) for name in ("first TTFT", "first latency")),
        Column("first answer", on=page),
        Column("steady"),
        Column("level"),
        Column("excess", on=page),
        Column("failed"),
        Column("idle", on=page),
        Column("stop", on=page),
        Column("runs", right=False, on=page, code=True),
    ]
    rows = []
    for part in report.repeats:
        killed = ", killed" if part.stop_forced else ""
        rows.append(
            Row(
                [
                    f"{part.number}" if part.complete else f"{part.number} (cut short)",
                    _shown(part.port_ns),
                    Cell(_shown(part.ready_ns), hint=_late(part)),
                    part.route or "port only",
                    _shown(part.first_ttft_ns),
                    _shown(part.first_latency_ns),
                    _shown(part.first_answer_ns),
                    _steady(part),
                    _shown(part.steady_level_ns),
                    _shown(part.excess_ns),
                    f"{part.failed} of {part.requests}",
                    _shown(part.idle_ns),
                    units.NOTHING if part.stop_ns is None else f"{units.duration(part.stop_ns)}{killed}",
                    part.folder,
                ]
            )
        )
    fine = "Idle: nothing was in flight while our runs were set up; it is in no other column."
    return Table(columns, rows, fine=fine, on=On.PAGE | On.TERMINAL)


def _shown(value: Number) -> str:
    return units.NOTHING if value is None else units.duration(value)


def _headline(report: ColdstartReport) -> str:
    """The result in a sentence."""
    by_name = {part.quantity: part for part in report.spreads}
    if "ready" not in by_name:
        return "No start was measured to its end."
    said = [f"Ready {_typical(by_name['ready'])} after it was spawned"]
    if "first_answer" in by_name:
        said.append(f"first answer after {_typical(by_name['first_answer'])}")
    if "steady" in by_name:
        at_once = all(part.steady_after == 0 for part in report.repeats if part.complete)
        said.append("steady from the first request on" if at_once else f"steady after {_typical(by_name['steady'])}")
    n = by_name["ready"].n
    return ", ".join(said) + (f" (median of {n} starts)." if n > 1 else " (one start).")


def _typical(part: SpreadPart) -> str:
    return units.human(part.median, "ns")


def _interval(part: SpreadPart, report: ColdstartReport) -> str:
    """Of the median, or why there is none."""
    if part.interval is None:
        return units.NOTHING
    return f"{units.human(part.interval[0], 'ns')} to {units.human(part.interval[1], 'ns')}"


def _certainty(report: ColdstartReport) -> str:
    """What an interval takes, where there are too few repeats for one."""
    n = max((part.n for part in report.spreads), default=0)
    if n == 0 or all(part.interval is not None for part in report.spreads):
        return ""
    needed = (
        f"an interval of the median at {units.percent(report.confidence)} takes {report.repeats_for_interval} repeats"
    )
    if n == 1:
        return f"One start says nothing about the next: {needed}."
    share = units.percent(max(part.range_confidence for part in report.spreads), 3)
    return f"Least to greatest of {n} holds the median of such starts with {share} confidence; {needed}."


def _steady(part: RepeatPart) -> str:
    """From which request on a repeat was steady."""
    if part.steady_after is None:
        return units.NOTHING
    return "from the first" if part.steady_after == 0 else f"from request {part.steady_after + 1}"


def _late(part: RepeatPart) -> str:
    """By how much ready may have been noticed too late."""
    return f"at most {units.duration(part.ready_late_ns)} late" if part.ready_late_ns else ""


def _charts(report: ColdstartReport) -> list[Chart]:
    started = [part for part in report.repeats if part.ready_ns is not None]
    charts = []
    if started:
        label = "; ".join(f"start {part.number} ready after {units.duration(part.ready_ns or 0)}" for part in started)
        legend = [Key(name, class_, "bar") for _, name, class_ in _PHASES]
        note = "From the instant at which the command was spawned. Time in which nothing was in flight is left out."
        wide, narrow = (_phases(started, label, canvas.width) for canvas in (_WIDE, _NARROW))
        charts.append(Chart("Each start", note, legend, wide, narrow))
    drawn = [part for part in report.repeats if part.curve and any(value for _, value in part.curve)]
    if drawn:
        label = "; ".join(f"start {part.number} steady {_steady(part)}" for part in drawn)
        charts.append(
            chart(
                "Latency by request, from the first one on",
                "Both axes are logarithmic. Circle: where the steady state begins. A gap: the request failed.",
                [Key(f"start {part.number}", _class_of(part.number)) for part in drawn],
                lambda canvas: _curves(drawn, label, canvas),
                _WIDE,
                _NARROW,
            )
        )
    return charts


def _class_of(number: int) -> str:
    """The style class of a repeat: the first one has a colour and a dash of its own."""
    return "arm-0" if number == 1 else f"arm-{(number - 2) % _COLOURS + 1}"


def _phases(repeats: Sequence[RepeatPart], label: str, width: float) -> Picture:
    """One bar per start, cut where its phases end."""
    canvas = Canvas(width, _ROW * len(repeats) + 40, left=64, right=84)
    ends = [value for part in repeats for field, _, _ in _PHASES if (value := getattr(part, field)) is not None]
    x = from_zero(float(max(ends, default=1)), *canvas.x_range, "ns", max(3, int(width // 170)))
    y = Axis(0.0, 1.0, *canvas.y_range)
    drawn = [grid(canvas, x, y)]
    for index, part in enumerate(repeats):
        drawn.append(_bar(part, x, canvas.top + index * _ROW, canvas))
    return Picture(svg(canvas, join(drawn), label))


def _bar(part: RepeatPart, x: Axis, top: float, canvas: Canvas) -> Markup:
    drawn = [text(canvas.left - 8, top + 17, f"start {part.number}", "tick", "end")]
    at = x.start
    for field, name, class_ in _PHASES:
        value = getattr(part, field)
        if value is None or x.at(value) < at:
            continue
        tip = element("title", f"start {part.number}, {name}: {units.duration(value)}")
        drawn.append(element("rect", tip, x=at, y=top + 4, width=max(x.at(value) - at, 0.6), height=_ROW - 9, class_=f"{class_} bar"))  # fmt: skip
        at = x.at(value)
    last = [value for field, _, _ in _PHASES if (value := getattr(part, field)) is not None]
    if last:
        drawn.append(text(at + 6, top + 17, units.duration(max(last)), "note halo"))
    return join(drawn)


def _curves(repeats: Sequence[RepeatPart], label: str, canvas: Canvas) -> Picture:
    """Latency by request number, both on logarithmic axes: what matters is in the first few."""
    drawn_ones = [part for part in repeats if part.curve]
    values = [value for part in drawn_ones for _, value in part.curve if value]
    last = max(part.curve[-1][0] for part in drawn_ones)
    x = logarithmic(1.0, float(max(last, 2)), *canvas.x_range, "count", 30)
    y = logarithmic(min(values, default=1) * 0.85, max(values, default=1) * 1.15, *canvas.y_range, "ns", 24)
    drawn = [grid(canvas, x, y), text(x.end, canvas.height - 2, "request", "tick", "end")]
    for part in reversed(drawn_ones):  # the first start on top
        points: list[Point | None] = [None if v is None else (x.at(n), y.at(v)) for n, v in part.curve]
        drawn.append(path(points, f"s {_class_of(part.number)}"))
        drawn.append(_mark(part, x, y))
    return Picture(svg(canvas, join(drawn), label), _hover(drawn_ones, x, y, canvas))


def _mark(part: RepeatPart, x: Axis, y: Axis) -> Markup:
    """Where the steady state begins."""
    if part.steady_after is None or part.steady_level_ns is None:
        return Markup("")
    at, height = x.at(part.steady_after + 1), y.at(part.steady_level_ns)
    tip = element("title", f"start {part.number}: steady from request {part.steady_after + 1}")
    circle = element("circle", tip, cx=at, cy=height, r=4.5)
    return element("g", circle, class_=f"point beaten {_class_of(part.number)}")


def _hover(repeats: Sequence[RepeatPart], x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    longest = max(repeats, key=lambda part: len(part.curve)).curve
    lines = []
    for part in repeats:
        known = dict(part.curve)
        heights = [None if not (value := known.get(n)) else y.at(value) for n, _ in longest]
        shown = [units.NOTHING if n not in known else units.human(known[n], "ns") for n, _ in longest]
        lines.append(series(f"start {part.number}", _class_of(part.number), heights, shown))
    return hover(canvas, [x.at(n) for n, _ in longest], [f"request {n}" for n, _ in longest], lines)
