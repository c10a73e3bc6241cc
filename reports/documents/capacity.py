"""A capacity plan: the parts of its JSON, schema ``plimsoll.capacity/1``, and what it says to people.

Times are nanoseconds, rates per second, shares 0..1, money in the currency of the price. Null is infinite, or what
nobody knows.
"""

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from markupsafe import Markup
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Column,
    Command,
    Document,
    Facts,
    Figures,
    Folded,
    Notes,
    On,
    Section,
    Sentence,
    table,
)
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Number, Result, Text
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, line, path, text
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart, grid, hover, series, svg
from plimsoll.reports.wording import units

SCHEMA: Final = "plimsoll.capacity/1"


class CapacityPart(BaseModel, frozen=True, extra="forbid"):
    """Requests per second of one replica within its objectives: shown to hold at ``low``, to fail at ``high``."""

    low: float
    best: float
    high: Number = None


class SizedPart(BaseModel, frozen=True, extra="forbid"):
    """A fleet at one capacity; the rule that wants more decides."""

    capacity_per_s: float
    replicas: int
    by_headroom: int
    by_one_down: int
    binding: Literal["headroom", "one down", "both"]
    utilisation: float
    one_down: Number
    per_hour: Number = None


class RowPart(BaseModel, frozen=True, extra="forbid"):
    """One number of replicas, at the lower end of the capacity."""

    replicas: int
    utilisation: float
    one_down: Number
    headroom_kept: bool
    one_down_kept: bool
    per_hour: Number = None


class SafePart(BaseModel, frozen=True, extra="forbid"):
    """What one replica is to be given: ``per_s`` = headroom x the lower end of the capacity."""

    per_s: float
    saturation_per_s: Number = Field(default=None, description="the most that it answered while it did not keep up")
    slo_of_saturation: Number = Field(default=None, description="lower end of the capacity over saturation")
    of_saturation: Number = Field(default=None, description="per_s over saturation: the share of the machine in use")
    per_gpu_per_s: Number = None


class CostPart(BaseModel, frozen=True, extra="forbid"):
    """Of a million. ``full``: every replica at its headroom; ``target``: the whole fleet at the target rate."""

    per: Literal["requests", "good_requests", "output_tokens", "input_tokens"]
    full: float
    full_range: tuple[float, float] | None
    target: float
    target_range: tuple[float, float] | None


class LittlePart(BaseModel, frozen=True, extra="forbid"):
    """Little's law on one run: L against lambda W, and what the edges of the window explain."""

    run: Text
    view: Literal["response", "service"]
    mean: float
    product: float
    bound: float
    wrong: Text = ""


class QueuePart(BaseModel, frozen=True, extra="forbid"):
    """A textbook queue, pinned at the lowest load; ``curve``: rate, p50, p99."""

    model: str
    servers: int
    service_ns: float
    limit_per_s: float
    curve: list[tuple[float, float, float]]


class AgainstPart(BaseModel, frozen=True, extra="forbid"):
    """One run against one queue: measured over predicted; null where the queue has no steady state or the run no
    figure.
    """

    model: str
    utilisation: float
    p50: Number
    p99: Number


class LoadPart(BaseModel, frozen=True, extra="forbid"):
    """One run as a point of the chart. ``pin``: the curves go through its mean."""

    run: Text
    rate_per_s: float
    n: int
    failed: int
    stable: bool
    pin: bool
    p50_ns: Number
    p99_ns: Number
    in_flight: Number = Field(
        default=None, description="L by service times, sent to done: a queue inside the server is in it"
    )
    against: list[AgainstPart] = Field(default_factory=list)


class CapacityReport(Result, frozen=True):
    """The whole plan."""

    schema_: Literal["plimsoll.capacity/1"] = Field(default=SCHEMA, alias="schema")
    outcome: Literal["SIZED", "NONE"]
    exit_code: int
    reasons: list[Text] = Field(default_factory=list)
    folder: Text
    kind: Literal["search", "sweep", "run"]
    name: Text
    objectives: list[Text] = Field(default_factory=list)
    confidence: float | None = Field(default=None, description="of each verdict that the capacity rests on")
    capacity: CapacityPart | None = None
    target_per_s: float = Field(description="growth included")
    growth: float = 0.0
    headroom: float
    one_down: float
    safe: SafePart | None = None
    sized: SizedPart | None = Field(default=None, description="at the lower end of the capacity")
    sized_high: SizedPart | None = Field(default=None, description="at the upper end: what the uncertainty costs")
    rows: list[RowPart] = Field(default_factory=list)
    price_per_hour: float | None = Field(default=None, description="of one replica")
    currency: Text = ""
    costs: list[CostPart] = Field(default_factory=list)
    gpus: int | None = Field(default=None, description="of one replica")
    gpus_in_all: int | None = None
    price_per_gpu_hour: float | None = None
    laws: list[LittlePart] = Field(default_factory=list)
    loads: list[LoadPart] = Field(default_factory=list)
    queues: list[QueuePart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    plimsoll: Text = ""
    command: Text = ""
    started_at: Text = Field(default="", description="when what it rests on was begun; empty: nobody knows")


_Which = Literal["p50", "p99"]
#: Of the measured points, and of each queue in turn.
_MEASURED, _QUEUES = "arm-1", ("arm-2", "arm-3", "arm-4")
#: A curve that goes to infinity may not flatten what was measured.
_ABOVE = 4.0
_WIDE, _NARROW = Canvas(540, 330, bottom=42), Canvas(420, 300, left=54, bottom=42)
_PER = MappingProxyType(
    {
        "requests": "requests",
        "good_requests": "good requests",
        "output_tokens": "output tokens",
        "input_tokens": "input tokens",
    }
)
#: The lowest load may have a hundred answers, and their mean is a tenth off then.
_OFF = 1.1
_BATCHING = (
    "A sanity check and no gate: servers that batch violate all of these, for their rate grows with what they hold. "
    "A run far below a curve at high load is what batching looks like, or was too short for its queue to grow, which "
    "takes long near saturation; far above it, something else is shared."
)


def document(report: CapacityReport) -> Document:
    about = f"{report.kind} {report.name}"
    wrong = tuple(
        f"Little's law is violated: {law.run}, {law.view} times: {law.wrong}" for law in report.laws if law.wrong
    )
    return Document(
        kind="capacity",
        word=report.outcome,
        as_of="" if report.outcome == "SIZED" else "INCONCLUSIVE",  # it may hold, and nobody has shown it
        name=report.name,
        title=f"Capacity: {report.name}",
        heading="Capacity and cost",
        headline=headline(report),
        meta=[about, *report.objectives],
        lines=[(headline(report), "bold"), (f"{about}: {', '.join(report.objectives)}", "")],
        page_notes=wrong,
        warnings=tuple(report.warnings),
        blocks=[*_fleet(report), *_costs(report), _check(report)],
        started_at=report.started_at,
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def _fleet(report: CapacityReport) -> list[Block]:
    if report.sized is None:
        return []
    priced = On.PAGE | On.MARKDOWN if report.price_per_hour is not None else On.MARKDOWN
    chosen = report.sized.replicas
    fleet = table(
        report.rows,
        (
            Column("Replicas", names=True),
            lambda row: Cell(f"{row.replicas}{' ◂' * (row.replicas == chosen)}", strong=row.replicas == chosen),
        ),
        (Column("utilisation"), lambda row: units.percent(row.utilisation, 3)),
        (Column("with one down"), lambda row: _one_down(row.one_down)),
        (Column("rules", right=False), lambda row: _rules(row.headroom_kept, row.one_down_kept)),
        (Column("an hour", on=priced), lambda row: money_of(row.per_hour, report)),
        set_off=lambda row: "tier" if row.replicas == chosen else "",
        fine="At the lower end of the capacity: at its middle these would be wrong half of the time.",
        on=On.PAGE | On.MARKDOWN,
    )
    return [Section("The fleet", [Card([Facts(_facts(report, report.sized))]), Card([fleet])])]


def _facts(report: CapacityReport, sized: SizedPart) -> list[tuple[str, str]]:
    facts = [("capacity of one", capacity(report))]
    safe = report.safe
    if safe is not None:
        given = f"{units.rate(safe.per_s)} a replica"
        if safe.of_saturation is not None:
            given += (
                f": {units.percent(safe.of_saturation, 3)} of the {units.rate(safe.saturation_per_s)} at which it "
                f"saturates (the objectives permit {units.percent(safe.slo_of_saturation or 0, 3)})"
            )
        facts.append(("safe to give", given))
    if report.growth:
        facts.append(
            ("target", f"{units.rate(report.target_per_s)}, {units.percent(report.growth, 3)} growth included")
        )
    facts.append(("replicas", f"{sized.replicas} ({binding(sized, report)})"))
    down = _one_down(sized.one_down)
    facts.append(("utilisation", f"{units.percent(sized.utilisation, 3)} with all, {down} with one down"))
    facts.append(("uncertainty", sensitivity(report)))
    if sized.per_hour is not None:
        facts.append(("fleet", f"{money_of(sized.per_hour, report)} an hour"))
    if report.gpus is not None and safe is not None:
        gpu = f"{report.gpus} a replica, {report.gpus_in_all} in all; {units.rate(safe.per_gpu_per_s)} each"
        if report.price_per_gpu_hour is not None:
            gpu += f"; {money_of(report.price_per_gpu_hour, report)} an hour each"
        facts.append(("GPUs", gpu))
    return facts


def _costs(report: CapacityReport) -> list[Block]:
    if not report.costs:
        return []
    what = f"what it costs, {report.currency}" if report.currency else "what it costs"
    # On a narrow terminal words wrap; a number that lost its end would be another number.
    costs = table(
        report.costs,
        (Column(what, right=False, names=True), lambda cost: f"a million {_PER[cost.per]}"),
        (Column("fully\nused"), lambda cost: amount(cost.full)),
        (Column("range"), lambda cost: cost_range(cost.full_range)),
        (Column("at the\ntarget"), lambda cost: amount(cost.target)),
        (Column("range"), lambda cost: cost_range(cost.target_range)),
        fine="Fully used: every replica at its headroom, all day. At the target rate: the whole fleet, what idles "
        "included. Range: from the upper end of the capacity to the lower.",
    )
    return [Section("What it costs", [Card([costs])])]


def _check(report: CapacityReport) -> Section:
    """Queueing theory, which decides nothing."""
    said = [laws(report), *(f"{law.run}, {law.view} times: {law.wrong}" for law in report.laws if law.wrong)]
    if report.queues:
        said += [*_at_the_highest_load(report), *beyond(report.loads, report.queues), _BATCHING]
    blocks: list[Block] = [Figures(charts, paired=True)] if (charts := _charts(report)) else []
    notes = Notes(said, "Queueing, as a sanity check", on=On.TERMINAL)
    return Section(
        "Queueing, as a sanity check",
        [
            *blocks,
            notes,
            Card(_over_the_curves(report), on=On.PAGE),
            Card(_little(report), on=On.PAGE),
            Sentence(laws(report), on=On.MARKDOWN),
        ],
    )


def _at_the_highest_load(report: CapacityReport) -> list[str]:
    last = [load for load in report.loads if load.against and not load.pin][-1:]
    if not last:
        return ["Only one load can be compared, and the curves are pinned there: they predict nothing yet."]
    ratios = ", ".join(
        f"{one.model} {units.significant(one.p99, 2)} x" if one.p99 is not None else f"{one.model} has no steady state"
        for one in last[0].against
    )
    return [f"p99 at {units.rate(last[0].rate_per_s)} over the curves pinned at the lowest load: {ratios}"]


def _over_the_curves(report: CapacityReport) -> list[Block]:
    if not report.loads:
        return [Sentence("No open-loop run has records here, so there is nothing to lay curves over.")]
    blocks: list[Block] = []
    if report.queues:
        blocks.append(Notes([*map(fitted, report.queues), *beyond(report.loads, report.queues)]))
        blocks.append(Sentence(_BATCHING, fine=True))
    measured = table(
        report.loads,
        (Column("offered"), lambda load: units.rate(load.rate_per_s)),
        (Column("answers"), lambda load: units.count(load.n)),
        (Column("p50"), lambda load: units.human(load.p50_ns, "ns")),
        (Column("p99"), lambda load: units.human(load.p99_ns, "ns")),
        (Column("in flight"), lambda load: _times(load.in_flight)),
        *(
            (Column(f"{queue.model}: p50, p99 over it"), partial(_against, place))
            for place, queue in enumerate(report.queues)
        ),
        (Column("run", right=False), _run),
        fine="In flight: requests at a time by Little's law, sent to done, a queue inside the server included. "
        "ρ: the model's utilisation, rate × service time / c.",
    )
    return [*blocks, measured]


def _run(load: LoadPart) -> str:
    return load.run + " (the curves' mean)" * load.pin + ("" if load.stable else ": did not keep up")


def _little(report: CapacityReport) -> list[Block]:
    blocks: list[Block] = [Sentence(laws(report))]
    if report.laws:
        each = table(
            report.laws,
            (Column("Run", right=False, names=True), lambda law: law.run),
            (Column("times", right=False), lambda law: law.view),
            (Column("L"), lambda law: units.significant(law.mean, 4)),
            (Column("λ W"), lambda law: units.significant(law.product, 4)),
            (Column("apart"), lambda law: units.significant(abs(law.mean - law.product), 2)),
            (Column("edges explain"), lambda law: units.significant(law.bound, 2)),
            (Column("", right=False), lambda law: law.wrong or "holds"),
        )
        blocks.append(Folded("Each run", [each]))
    return [*blocks, Command(report.command)] if report.command else blocks


def _one_down(utilisation: Number) -> str:
    return units.INFINITE if utilisation is None else units.percent(utilisation, 3)


def _rules(headroom: bool, one_down: bool) -> str:
    if headroom and one_down:
        return "both kept"
    broken = [name for name, kept in (("headroom", headroom), ("one down", one_down)) if not kept]
    return f"too few by {' and '.join(broken)}"


def _against(place: int, load: LoadPart) -> str:
    """One run against the queue in this place."""
    if place >= len(load.against):
        return units.NOTHING
    one = load.against[place]
    if one.p50 is None and one.p99 is None:
        return f"ρ {_times(one.utilisation)}: full" if one.utilisation >= 1 else units.NOTHING
    return f"ρ {_times(one.utilisation)}: {_times(one.p50)}, {_times(one.p99)}"


def _times(ratio: Number) -> str:
    return units.NOTHING if ratio is None else units.significant(float(ratio), 3)


def headline(report: CapacityReport) -> str:
    """The answer in a sentence or two."""
    if report.sized is None or report.capacity is None:
        return f"No validated capacity: {'; '.join(report.reasons) or 'nothing was shown to hold'}."
    sized = report.sized
    what = f"{units.many(sized.replicas, 'replica')} for {units.rate(report.target_per_s)}"
    each = f"each carries {units.rate(report.capacity.low)} within its objectives"
    return f"{what}: {each}, and is used to {units.percent(sized.utilisation, 3)} of it."


def capacity(report: CapacityReport) -> str:
    """The interval, and which end is used."""
    found = report.capacity
    if found is None:
        return units.NOTHING
    if found.high is None:
        return f"{units.rate(found.low)} (used); nobody has seen where it fails"
    return f"{units.rate(found.low)} (used) to {units.rate(found.high)}"


def binding(sized: SizedPart, report: CapacityReport) -> str:
    shares = units.percent(report.headroom, 3), units.percent(report.one_down, 3)
    rules = (
        f"at most {shares[0]} full: {sized.by_headroom}",
        f"at most {shares[1]} full with one down: {sized.by_one_down}",
    )
    decides = {"headroom": "the first decides", "one down": "the second decides", "both": "they agree"}[sized.binding]
    return f"{rules[0]}; {rules[1]}; {decides}"


def sensitivity(report: CapacityReport) -> str:
    """What the width of the interval costs."""
    low, high = report.sized, report.sized_high
    if low is None:
        return ""
    if high is None:
        return "The upper end of the capacity is not known, so what the uncertainty costs is not known either."
    if low.replicas == high.replicas:
        return f"At the upper end of the capacity it would be {high.replicas} as well: the uncertainty costs nothing."
    extra = low.replicas - high.replicas
    money = ""
    if low.per_hour is not None and high.per_hour is not None:
        money = f", {money_of(low.per_hour - high.per_hour, report)} an hour"
    return (
        f"At the upper end of the capacity it would be {high.replicas}: the uncertainty costs up to "
        f"{units.many(extra, 'replica')}{money}. A longer search narrows it."
    )


def amount(value: float | int | None) -> str:
    """An amount of money, without its currency."""
    if value is None:
        return units.NOTHING
    return f"{value:,.2f}" if abs(value) >= 1 else units.significant(value, 3)


def money_of(value: float | int | None, report: CapacityReport) -> str:
    return units.NOTHING if value is None else f"{amount(value)} {report.currency}".strip()


def cost_range(values: tuple[float, float] | None) -> str:
    """From the upper end of the capacity to the lower."""
    return units.NOTHING if values is None else f"{amount(values[0])} to {amount(values[1])}"


def fitted(queue: QueuePart) -> str:
    """A queue and its service time."""
    servers = f", c = {queue.servers}" if queue.servers > 1 else ""
    full = units.rate(queue.limit_per_s)
    return f"{queue.model}{servers}: service time {units.duration(queue.service_ns)}, full at {full}"


def beyond(loads: Sequence[LoadPart], queues: Sequence[QueuePart]) -> list[str]:
    """Loads that the endpoint carried and the model could not, by more than its service time may well be off."""
    said = []
    for queue in queues:
        carried = [load.rate_per_s for load in loads if load.stable and load.rate_per_s > _OFF * queue.limit_per_s]
        if carried:
            said.append(
                f"{queue.model} is full at {units.rate(queue.limit_per_s)}, and the endpoint kept up with "
                f"{units.rate(max(carried))}: it is no such queue. It batches, serves several at a time, or its times "
                "are spread otherwise"
            )
    return said


def laws(report: CapacityReport) -> str:
    wrong = [law for law in report.laws if law.wrong]
    runs = len({law.run for law in report.laws})
    if not report.laws:
        return "Little's law was not checked: there is no valid run whose records can be read."
    if wrong:
        count = units.many(len({law.run for law in wrong}), "run")
        return f"Little's law is violated in {count} of {runs}: do not trust these logs."
    return f"Little's law holds in {units.many(runs, 'run')}, by response and by service times."


def _charts(report: CapacityReport) -> list[Chart]:
    charts = []
    which: _Which
    for which in ("p50", "p99"):
        values = [_value(load, which) for load in report.loads]
        if not report.queues or not any(value is not None for value in values):
            continue
        label = f"{which} of the latency by rate: " + "; ".join(
            f"{units.rate(load.rate_per_s)} {units.human(value, 'ns')}"
            for load, value in zip(report.loads, values, strict=True)
        )
        legend = [Key("measured", _MEASURED, "dots")]
        legend += [Key(queue.model, class_) for queue, class_ in zip(report.queues, _QUEUES, strict=False)]
        note = "Dots: runs; hollow: it did not keep up. Lines: queues with the mean of the lowest load."
        charts.append(chart(f"Latency, {which}", note, legend, partial(_overlay, report, which, label), _WIDE, _NARROW))
    return charts


def _overlay(report: CapacityReport, which: _Which, label: str, canvas: Canvas) -> Picture:
    """One quantile: a dot per run, hollow where the endpoint did not keep up, and a line per queue."""
    index = 1 if which == "p50" else 2
    shown = [(load, value) for load in report.loads if (value := _value(load, which)) is not None]
    high = max(float(value) for _, value in shown)
    low = min(float(value) for _, value in shown)
    drawn_curves = [
        [(point[0], point[index]) for point in queue.curve if point[index] <= _ABOVE * high] for queue in report.queues
    ]
    tops = [value for curve in drawn_curves for _, value in curve]
    rates = [load.rate_per_s for load, _ in shown] + (
        [report.capacity.high] if report.capacity and report.capacity.high else []
    )
    x = from_zero(float(max(rates)), *canvas.x_range, "1", max(3, int(canvas.width // 130)))
    least = min([low, *tops])
    y = logarithmic(max(least, 1.0) * 0.8, max([high, *tops]) * 1.15, *canvas.y_range, "ns", 24)
    drawn = [grid(canvas, x, y), text(x.end, canvas.height - 2, "requests/s offered", "tick", "end")]
    drawn += _uprights(report, x, canvas)
    for queue_class, curve in zip(_QUEUES, drawn_curves, strict=False):
        points: list[Point | None] = [(x.at(rate), y.at(value)) for rate, value in curve]
        drawn.append(path(points, f"s {queue_class}"))
    drawn += [_dot(load, float(value), x, y) for load, value in shown]
    return Picture(svg(canvas, join(drawn), label), _hover(report.queues, shown, which, x, y, canvas))


def _value(load: LoadPart, which: _Which) -> Number:
    return load.p50_ns if which == "p50" else load.p99_ns


def _uprights(report: CapacityReport, x: Axis, canvas: Canvas) -> list[Markup]:
    """The lower end of the capacity, and the part of it that is safe to use."""
    if report.capacity is None or report.safe is None:
        return []
    base, top = canvas.y_range
    drawn = []
    for rate, name in ((report.safe.per_s, "safe"), (report.capacity.low, "capacity")):
        if rate <= x.high:
            drawn.append(line(x.at(rate), base, x.at(rate), top, "limit"))
            drawn.append(text(x.at(rate) - 5, top + 11, name, "limit note halo", "end"))
    return drawn


def _dot(load: LoadPart, value: float, x: Axis, y: Axis) -> Markup:
    tip = element("title", f"{load.run}: {units.rate(load.rate_per_s)}, {units.duration(value)}")
    circle = element("circle", tip, cx=x.at(load.rate_per_s), cy=y.at(value), r=4.0)
    return element("g", circle, class_=f"point {'front' if load.stable else 'beaten'} {_MEASURED}")


def _hover(
    queues: Sequence[QueuePart],
    shown: Sequence[tuple[LoadPart, Number]],
    which: _Which,
    x: Axis,
    y: Axis,
    canvas: Canvas,
) -> dict[str, object]:
    """At each run: what was measured, and how many times each curve that is."""
    values = [float(value or 0) for _, value in shown]
    lines = [
        series("measured", _MEASURED, [y.at(value) for value in values], [units.duration(value) for value in values])
    ]
    for queue, class_ in zip(queues, _QUEUES, strict=False):
        ratios = []
        for load, _ in shown:
            one = next((against for against in load.against if against.model == queue.model), None)
            ratio = None if one is None else one.p50 if which == "p50" else one.p99
            ratios.append(units.NOTHING if ratio is None else f"{units.significant(ratio, 3)} x the curve")
        lines.append(series(queue.model, class_, [None] * len(shown), ratios))
    heads = [f"{units.rate(load.rate_per_s)} ({load.run})" for load, _ in shown]
    return hover(canvas, [x.at(load.rate_per_s) for load, _ in shown], heads, lines)
