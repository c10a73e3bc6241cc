"""A cold start: the parts of ``coldstart.json``, schema ``plimsoll.coldstart/1``, and what it says to people.

Times are integer nanoseconds from the instant at which the command was spawned, where no other beginning is named;
null: it did not happen. ``--resume`` goes on from the file. Nothing is judged here.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter, not_
from statistics import median
from types import MappingProxyType
from typing import Final, Literal

from markupsafe import Markup
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Case,
    Cell,
    Column,
    Command,
    Document,
    Facts,
    Figures,
    Folded,
    On,
    Section,
    Sentence,
    Suite,
    Table,
    table,
)
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Number, Result, Text
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, path, text
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart, grid, hover, series, svg
from plimsoll.reports.wording import units

SCHEMA: Final = "plimsoll.coldstart/1"

#: name -> what it is, in the order in which they happen.
QUANTITIES: Mapping[str, str] = MappingProxyType(
    {
        "port": "spawn to the first accepted connection",
        "ready": "spawn to ready",
        "first_ttft": "first request: due to its first token",
        "first_latency": "first request: due to done",
        "first_answer": "spawn to the first token of an answer asked for when ready",
        "steady": "spawn to the first request at the steady level",
        "steady_level": "latency at the steady level (median)",
        "excess": "what the requests before took more than that, in sum",
    }
)
#: STOPPED: something other than the server ended it (--between failed, or something still answered after a stop).
Outcome = Literal["MEASURED", "PASS", "FAIL", "INVALID", "INTERRUPTED", "UNREACHABLE", "STOPPED"]


class RepeatPart(BaseModel, frozen=True, extra="forbid"):
    """One start."""

    number: int
    complete: bool = Field(description="false: it was cut short, and counts nowhere")
    notes: list[Text] = Field(default_factory=list)
    started_at: Text = ""
    port_ns: int | None = None
    port_late_ns: int = Field(default=0, description="port_ns may be that much too late")
    ready_ns: int | None = None
    ready_late_ns: int = 0
    route: Text = Field(
        default="", description="the health route that said so; empty: the port was all there was to ask"
    )
    first_status: Text = ""
    first_ttft_ns: int | None = None
    first_latency_ns: int | None = None
    first_answer_ns: int | None = None
    steady_ns: int | None = None
    steady_after: int | None = Field(
        default=None, description="requests before the steady level, the first one included"
    )
    steady_level_ns: int | None = None
    excess_ns: int | None = None
    unsettled: Text = Field(default="", description="why there is no steady state")
    idle_ns: int = Field(
        default=0, description="ready to first request, and first answer to curve: nothing was in flight"
    )
    requests: int = 0
    failed: int = 0
    invalid: list[Text] = Field(default_factory=list, description="why the generator's part of the curve is INVALID")
    curve: list[tuple[int, Number]] = Field(
        default_factory=list, description="request number from 1, and latency (ns; null: failed); thinned out when long"
    )
    phases: dict[Text, int] = Field(
        default_factory=dict,
        description="its start as the server itself tells of it, in ns; absent: it does not",
        exclude_if=not_,
    )
    stop_forced: bool | None = Field(default=None, description="SIGKILL was needed to stop it")
    stop_ns: int | None = None
    folder: Text = ""


class SpreadPart(BaseModel, frozen=True, extra="forbid"):
    """One quantity over the complete repeats that have it."""

    quantity: str
    n: int
    median: Number
    least: Number
    greatest: Number
    first: Number = Field(description="of the first repeat")
    later: Number = Field(description="median of the others")
    first_differs: bool
    interval: tuple[Number, Number] | None = Field(description="of the median at the confidence; null: too few repeats")
    range_confidence: float = Field(description="with which least to greatest holds the median")


class GoalPart(BaseModel, frozen=True, extra="forbid"):
    """One ``--slo``: every complete repeat must keep it."""

    objective: Text
    outcome: Literal["PASS", "FAIL"]
    worst: Number
    kept: int
    of: int


class ColdstartReport(Result, frozen=True):
    """The whole measurement."""

    schema_: Literal["plimsoll.coldstart/1"] = Field(default=SCHEMA, alias="schema")
    outcome: Outcome
    exit_code: int
    start: Text = Field(description="the command, without secrets")
    url: Text
    settings: dict[str, Text] = Field(default_factory=dict, description="what must be the same to go on (--resume)")
    wanted: int = Field(description="repeats asked for")
    confidence: float = 0.95
    repeats_for_interval: int = 6
    repeats: list[RepeatPart]
    spreads: list[SpreadPart]
    goals: list[GoalPart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    plimsoll: Text = ""
    command: Text = ""


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
    complete = units.many(sum(part.complete for part in report.repeats), "complete start")
    blocks = [_times(report)] if report.spreads else []
    blocks += _inside(report)
    blocks += [_goals(report)] if report.goals else []
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
        blocks=[*blocks, Figures(_charts(report)), *_each(report)],
        started_at=report.repeats[0].started_at if report.repeats else "",
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
        suites=[_suite(report)],
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def _times(report: ColdstartReport) -> Section:
    times = table(
        report.spreads,
        (Column("", right=False, titled="Time", names=True), lambda part: _TITLES[part.quantity]),
        (Column("median"), lambda part: units.human(part.median, "ns")),
        (Column("least"), lambda part: units.human(part.least, "ns")),
        (Column("greatest"), lambda part: units.human(part.greatest, "ns")),
        (Column("interval", least_width=100), _interval),
        (Column("first start", least_width=100), lambda part: Cell(_shown(part.first), strong=part.first_differs)),
        (Column("the others", least_width=100), lambda part: _shown(part.later)),
        (Column("from, to", right=False, on=On.PAGE), lambda part: QUANTITIES[part.quantity]),
        fine="The first start is in every column but the last; bold where it is unlike them.",
    )
    sure: list[Block] = [Sentence(said, fine=True)] if (said := _certainty(report)) else []
    return Section("Over all starts", [Card([times, *sure])])


def _inside(report: ColdstartReport) -> list[Section]:
    """What the server says of its own start, over the complete starts of which it said it."""
    told = [part for part in report.repeats if part.complete and part.phases]
    rows = []
    for name in dict.fromkeys(name for part in told for name in part.phases):
        took = [(part.phases[name], part.ready_ns) for part in told if name in part.phases]
        shares = [ns / ready for ns, ready in took if ready]
        spread = [units.duration(of(ns for ns, _ in took)) for of in (median, min, max)]
        rows.append([name, *spread, units.percent(median(shares), 2) if shares else units.NOTHING])
    heads = ("median", "least", "greatest", "of the time to ready")
    phases = table(
        rows,
        (Column("phase", right=False, titled="Phase", names=True), itemgetter(0)),
        *((Column(head), itemgetter(at)) for at, head in enumerate(heads, 1)),
        title="Inside the server",
        fine="As the server tells of it; phases of some servers lie within each other.",
    )
    return [Section("Inside the server", [Card([phases])])] if rows else []


def _goals(report: ColdstartReport) -> Section:
    goals = table(
        report.goals,
        (Column("objective", right=False, names=True, code=True), lambda goal: goal.objective),
        (Column("outcome", right=False), lambda goal: Cell(goal.outcome, goal.outcome)),
        (Column("kept in"), lambda goal: f"{goal.kept} of {goal.of}"),
        (Column("worst"), lambda goal: units.human(goal.worst, "ns")),
        title="Objectives",
    )
    return Section("Objectives, to be kept by every start", [Card([goals])])


def _each(report: ColdstartReport) -> list[Block]:
    """Every start, and what was started and asked."""
    starts, typed = _repeats(report), [("started with", report.start), ("asked by", report.command)]
    commands = [Command(text) for _, text in typed if text]
    facts = Facts([("url", report.url), *((name, Command(text)) for name, text in typed if text)])
    return [
        Section("Each start", [Card([starts, *commands])], on=On.PAGE | On.TERMINAL),
        Folded("Each start", [starts, facts], on=On.MARKDOWN),
    ]


def _suite(report: ColdstartReport) -> Suite:
    """Each objective a case; before them the whole, where there is none or none of them is what the outcome says."""
    cases = []
    if not report.goals or report.outcome not in ("PASS", "FAIL"):
        cases.append(Case("cold start", report.outcome, _headline(report)))
    cases += [Case(goal.objective, goal.outcome, _kept(goal)) for goal in report.goals]
    return Suite("cold start", "plimsoll.coldstart", cases)


def _kept(goal: GoalPart) -> str:
    return f"kept in {goal.kept} of {units.many(goal.of, 'start')}, worst {units.human(goal.worst, 'ns')}"


def _repeats(report: ColdstartReport) -> Table:
    page = On.PAGE
    return table(
        report.repeats,
        (Column("start", names=True), lambda part: f"{part.number}{'' if part.complete else ' (cut short)'}"),
        (Column("port"), lambda part: _shown(part.port_ns)),
        (Column("ready"), lambda part: Cell(_shown(part.ready_ns), hint=_late(part))),
        (Column("said by", right=False, on=page, code=True), lambda part: part.route or "port only"),
        (Column("first TTFT"), lambda part: _shown(part.first_ttft_ns)),
        (Column("first latency"), lambda part: _shown(part.first_latency_ns)),
        (Column("first answer", on=page), lambda part: _shown(part.first_answer_ns)),
        (Column("steady"), _steady),
        (Column("level"), lambda part: _shown(part.steady_level_ns)),
        (Column("excess", on=page), lambda part: _shown(part.excess_ns)),
        (Column("failed"), lambda part: f"{part.failed} of {part.requests}"),
        (Column("idle", on=page), lambda part: _shown(part.idle_ns)),
        (Column("stop", on=page), lambda part: _shown(part.stop_ns) + ", killed" * bool(part.stop_forced)),
        (Column("runs", right=False, on=page, code=True), lambda part: part.folder),
        fine="Idle: nothing was in flight while our runs were set up; it is in no other column.",
    )


def _shown(value: Number) -> str:
    return units.NOTHING if value is None else units.duration(value)


def _headline(report: ColdstartReport) -> str:
    by_name = {part.quantity: part for part in report.spreads}
    if "ready" not in by_name:
        return "No start was measured to its end."
    broken = "".join(f"{goal.objective}: {_kept(goal)}. " for goal in report.goals if goal.outcome == "FAIL")
    said = [f"{broken}Ready {_typical(by_name['ready'])} after it was spawned"]
    if "first_answer" in by_name:
        said.append(f"first answer after {_typical(by_name['first_answer'])}")
    if "steady" in by_name:
        at_once = all(part.steady_after == 0 for part in report.repeats if part.complete)
        said.append("steady from the first request on" if at_once else f"steady after {_typical(by_name['steady'])}")
    n = by_name["ready"].n
    return ", ".join(said) + (f" (median of {n} starts)." if n > 1 else " (one start).")


def _typical(part: SpreadPart) -> str:
    return units.human(part.median, "ns")


def _interval(part: SpreadPart) -> str:
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
        title = "Latency by request, from the first one on"
        note = "Both axes are logarithmic. Circle: where the steady state begins. A gap: the request failed."
        legend = [Key(f"start {part.number}", _class_of(part.number)) for part in drawn]
        charts.append(chart(title, note, legend, partial(_curves, drawn, label), _WIDE, _NARROW))
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
        width = max(x.at(value) - at, 0.6)
        drawn.append(element("rect", tip, x=at, y=top + 4, width=width, height=_ROW - 9, class_=f"{class_} bar"))
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
