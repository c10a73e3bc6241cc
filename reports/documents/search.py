"""A search: the parts of ``search.json``, schema ``plimsoll.search/1``, and what it says to people.

Times are integer nanoseconds, rates per second, shares 0..1. Null is infinite: as an observed value, failures reach it
(or ``n`` is 0); as the upper end of an interval, no load was shown to fail. In the picture each outcome has a shape of
its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal
from urllib.parse import quote

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
    Row,
    Section,
    Sentence,
    Suite,
    Table,
    table,
)
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Number, Outcome, Result, Text
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import FONT, Canvas, Chart, Key, Picture, chart, grid, svg
from plimsoll.reports.wording import units
from plimsoll.slo.search.probe import Found, Purpose, Variable

SCHEMA: Final = "plimsoll.search/1"

SearchOutcome = Literal["FOUND", "NONE", "OPEN", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "INTERRUPTED"]


class ObjectivePart(BaseModel, frozen=True, extra="forbid"):
    """One objective as a probe judged it."""

    objective: Text
    observed: Number
    threshold: Number
    outcome: Outcome
    unit: str = ""
    interval: tuple[Number, Number] = (None, None)
    n: int = 0


class ProbePart(BaseModel, frozen=True, extra="forbid"):
    """One run of the search.

    ``outcome``: what it says of the endpoint at this load; an endpoint that did not keep up has failed. ``cut``:
    stopped early, because nothing that was still to come could have changed that. ``took_ns``: from its preparation
    until its last answer; ``rest``: how the endpoint was left.
    """

    number: int
    purpose: Purpose
    load: float
    length: float = Field(description="in multiples of the shortest probe's")
    length_ns: int
    seed: int
    outcome: Found
    reasons: list[Text] = Field(default_factory=list)
    n: int = 0
    n_needed: int | None = None
    cut: bool = False
    run: Text
    objectives: list[ObjectivePart] = Field(default_factory=list)
    achieved_per_s: float | None = None
    requests_per_s: float | None = None
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    unstable: bool = False
    took_ns: int = 0
    rest: Text = ""


class RangePart(BaseModel, frozen=True, extra="forbid"):
    """The answer: it holds at ``best`` and fails at the upper end; null: no such load was found."""

    best: float | None = None
    interval: tuple[float | None, float | None] = (None, None)


class MlperfPart(BaseModel, frozen=True, extra="forbid"):
    """The answer in MLPerf's terms: Server's metric is the highest Poisson rate of a valid run."""

    valid: bool
    target_per_s: float
    completed_per_s: float | None = None
    tokens_per_s: float | None = None
    reasons: list[Text] = Field(default_factory=list)


class AnswerPart(BaseModel, frozen=True, extra="forbid"):
    """What the endpoint did at the answer, in the run that confirmed it (or the longest that passed there).

    ``best_rate_per_gpu`` is DistServe's per-GPU goodput where an objective is on the share of good requests.
    """

    run: Text
    confirmed: bool
    requests_per_s: float
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    output_tokens_per_s: float | None = None
    gpus: int | None = None
    goodput_per_s_per_gpu: float | None = None
    best_rate_per_gpu: float | None = None
    mlperf_server: MlperfPart | None = None


class SearchReport(Result, frozen=True):
    """The whole search. ``question`` must be the same for it to go on; ``spent_ns`` counts towards the budget."""

    schema_: Literal["plimsoll.search/1"] = Field(default=SCHEMA, alias="schema")
    name: Text
    variable: Variable
    outcome: SearchOutcome
    reasons: list[Text] = Field(default_factory=list)
    rate_per_s: RangePart | None = None
    concurrency: RangePart | None = None
    confidence: float = Field(default=0.95, description="of each verdict")
    interval_confidence: float | None = Field(
        default=None,
        description="that both ends are right together; null: an end rests on a run picked for its outcome",
    )
    objectives: list[Text] = Field(default_factory=list)
    answer: AnswerPart | None = None
    probes: list[ProbePart] = Field(default_factory=list)
    exit_code: int
    out_of_time: bool = Field(
        default=False, description="the budget ended the search: --resume with a longer one goes on"
    )
    hurried: bool = Field(
        default=False, description="time was short, so the search went to its fresh runs early: it is over all the same"
    )
    question: dict[str, Any] = Field(default_factory=dict)
    spent_ns: int = 0
    budget_ns: int | None = None
    started_at: Text = ""
    plimsoll: Text = ""
    command: Text = ""

    @property
    def found(self) -> RangePart:
        """The answer in the unit of ``variable``."""
        return (self.rate_per_s if self.variable == "rate" else self.concurrency) or RangePart()

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names; the range of the other variable is not in it."""
        whole = super().document()
        del whole["concurrency" if self.variable == "rate" else "rate_per_s"]
        return whole


_WIDE, _NARROW = Canvas(1040, 330, left=64, top=34, bottom=44), Canvas(420, 280, left=58, top=34, bottom=44)
#: An axis of values whose ends differ by more than this factor is logarithmic.
_LOG_ABOVE = 6.0
#: A search halves by geometric means: on such an axis its steps are even.
_GEOMETRIC = 2.0
_R = 5.0
#: What says most lies on top.
_LAYERS = ("UNREACHABLE", "INVALID", "INCONCLUSIVE", "PASS", "FAIL")
#: Room above and below the data.
_AIR = 1.12


def document(report: SearchReport) -> Document:
    said, reasons, step = headline(report), unsaid(report), next_step(report)
    return Document(
        kind="search",
        word=report.outcome,
        name=report.name,
        headline=said,
        meta=_meta(report),
        lines=[
            (said, ""),
            *((f"{name}: {value}", "") for name, value in facts(report)),
            *((text, "dim") for text in reasons),
            *([(step, "bold")] if step else []),
        ],
        page_notes=(*reasons, *([step] if step else [])),
        warning_title="What to do next" if step else "Read this with care",
        blocks=[
            *_worth(report),
            *(Sentence(text, on=On.MARKDOWN) for text in (*reasons, step) if text),
            Figures(charts(report)),
            _probes(report),
        ],
        card_last=True,
        style="search",
        started_at=report.started_at,
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
        suites=[_suite(report)],
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def line_of(probe: ProbePart, report: SearchReport) -> str:
    """One probe in a line, for stderr as it ends."""
    cut = ", cut short" if probe.cut else ""
    return (
        f"[{probe.number}] {load(report, probe.load)} {probe.purpose}: {probe.outcome}{cut} after "
        f"{probe.took_ns / 1e9:.0f} s ({why(probe)})"
    )


def _meta(report: SearchReport) -> list[str]:
    cooldown = report.question.get("cooldown")
    budget = "" if report.budget_ns is None else f", budget {units.duration(report.budget_ns)}"
    return [
        f"over the {report.variable} · {units.many(len(report.probes), 'probe')} in "
        f"{units.duration(report.spent_ns)}{budget} · {sure(report)} in each"
        + (f" · {cooldown} of silence between two" if cooldown else ""),
        "; ".join(report.objectives),
    ]


def _worth(report: SearchReport) -> list[Block]:
    """What the answer is worth, and which run says so."""
    if report.answer is None:
        return []
    title = "At the answer" if report.outcome == "FOUND" else "At the highest load that held"
    fresh, run = "a run of its own with a fresh seed, made after the search", report.answer.run
    measured = Row(
        [Cell("", links=[(_address(run), run)]), fresh if report.answer.confirmed else "no run confirmed it"]
    )
    by = Table([Column("Measured by", right=False), Column("", right=False)], [measured], on=On.PAGE)
    return [Section(title, [Card([Facts(facts(report), on=On.PAGE | On.MARKDOWN), by])])]


def _address(run: str) -> str:
    return quote(f"{run}/report.html")


def _probes(report: SearchReport) -> Section:
    if not report.probes:
        return Section("The probes", [Card([Sentence("No probe was made."), *_command(report)], on=On.PAGE)])
    # Limits on single requests only say what "good" means.
    judged = list(dict.fromkeys(part.objective for probe in report.probes for part in probe.objectives))
    page = On.PAGE
    probes = table(
        report.probes,
        (Column(""), lambda probe: str(probe.number)),
        (Column("load", names=True), lambda probe: load(report, probe.load)),
        (Column("probe", right=False), lambda probe: probe.purpose),
        (
            Column("outcome", right=False),
            lambda probe: Cell(probe.outcome, probe.outcome, aside="(cut)" if probe.cut else ""),
        ),
        *((Column(name, on=On.TERMINAL, folds=True), partial(_seen, name)) for name in judged),
        (
            Column("why", right=False, words=True, on=On.PAGE | On.MARKDOWN),
            lambda probe: Cell(why(probe), aside=probe.rest),
        ),
        (Column("requests", on=page), lambda probe: units.count(probe.n)),
        (Column("sent", on=page), lambda probe: units.rate(probe.achieved_per_s)),
        (Column("goodput", on=page), lambda probe: units.rate(probe.goodput_per_s)),
        (Column("seconds"), lambda probe: f"{probe.took_ns / 1e9:.0f}"),
        (Column("run", right=False, on=page), lambda probe: Cell("", links=[(_address(probe.run), probe.run)])),
    )
    folded = Folded(units.many(len(report.probes), "probe"), [probes], on=On.MARKDOWN)
    return Section("The probes", [Card([probes, *_command(report)], on=On.PAGE | On.TERMINAL), folded])


def _seen(name: str, probe: ProbePart) -> str:
    """What a probe saw of an objective."""
    return next((observed(part) for part in reversed(probe.objectives) if part.objective == name), units.NOTHING)


def _command(report: SearchReport) -> list[Block]:
    return [Command(report.command)] if report.command else []


def _suite(report: SearchReport) -> Suite:
    """One case: FOUND succeeds, and nothing else does. What each probe said goes to its output."""
    said = [f"{report.outcome}: {headline(report)}", *(line_of(probe, report) for probe in report.probes)]
    case = Case(report.name, report.outcome, headline(report), "\n".join(said))
    return Suite(report.name, "plimsoll.search", [case], report.spent_ns / 1e9)


def load(report: SearchReport, value: float | None) -> str:
    """``412/s``, or ``32 in flight``."""
    if value is None:
        return units.NOTHING
    # Enough digits to tell the two ends of a fine interval apart, and none that nobody asked for.
    number = f"{value:,.2f}".rstrip("0").rstrip(".") if value >= 10 else units.significant(value, 4)
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}/s" if report.variable == "rate" else f"{number} in flight"


def observed(part: ObjectivePart) -> str:
    """What was seen, or "no data"."""
    return "no data" if part.n == 0 and part.observed is None else units.human(part.observed, part.unit, 4)


def against(part: ObjectivePart) -> str:
    """``p99(ttft) 187 ms of 200 ms``."""
    name = part.objective.partition(" ")[0]
    return f"{name} {observed(part)}, limit {units.limit(part.threshold, part.unit)}"


def why(probe: ProbePart) -> str:
    """Why a probe ended as it did: what failed, what is undecided, or what comes nearest to its limit."""
    failed = [part for part in probe.objectives if part.outcome == "FAIL"]
    if probe.outcome == "FAIL" and failed:
        return "; ".join(map(against, failed)) + (" (past hope before its end)" if probe.cut else "")
    if probe.outcome == "FAIL" and probe.unstable:
        return "it does not keep up: the backlog grew to the end"
    if probe.outcome in ("FAIL", "INVALID") and probe.reasons:
        return probe.reasons[0]
    if probe.outcome == "INCONCLUSIVE":
        open_ = [part for part in probe.objectives if part.outcome == "INCONCLUSIVE"]
        more = f"; about {units.count(probe.n_needed)} values would decide" if probe.n_needed else ""
        return "; ".join(map(against, open_)) + more
    return "; ".join(map(against, probe.objectives))


def at(report: SearchReport, value: float | None, outcome: str) -> ProbePart | None:
    """The last probe at a load that ended so."""
    found = [p for p in report.probes if value is not None and abs(p.load - value) < 1e-9 and p.outcome == outcome]
    return found[-1] if found else None


def sure(report: SearchReport) -> str:
    return f"{units.percent(report.confidence)} confidence"


def headline(report: SearchReport) -> str:
    """The answer in one sentence, or why there is none."""
    best, (low, high) = report.found.best, report.found.interval
    fails = at(report, high, "FAIL")
    because = f": {why(fails)}" if fails is not None else ""
    if report.outcome == "FOUND" and best is not None:
        end = f"fails at {load(report, high)}{because}" if high is not None else "and no higher load was to be tried"
        return f"Holds at {load(report, best)} ({sure(report)}), {end}.{_together(report)}"
    if report.outcome == "NONE":
        return f"It does not hold even at the lowest load tried, {load(report, high)}{because}."
    if report.outcome == "OPEN" and best is not None:
        return f"Holds at {load(report, best)} ({sure(report)}), and no load at which it fails was reached."
    said = f" {_sentence(report.reasons[0])}" if report.reasons else ""
    if best is None and high is None:
        return f"No answer yet.{said}"
    known = [f"holds at {load(report, low if low is not None else best)}"] if best is not None else []
    known += [f"fails at {load(report, high)}{because}"] if high is not None else []
    return f"No answer yet: it {', '.join(known)}.{said}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def unsaid(report: SearchReport) -> list[str]:
    """The reasons that the headline does not give."""
    said = headline(report)
    return [text for text in report.reasons if text[1:] not in said]


def _together(report: SearchReport) -> str:
    sure_of = report.interval_confidence
    if sure_of is None:
        return " No fresh run confirmed it."
    return (
        f" Both ends are right with at least {units.percent(sure_of)} confidence." if report.found.interval[1] else ""
    )


def next_step(report: SearchReport) -> str:
    """What to do now; empty where the answer needs nothing."""
    if report.out_of_time:
        return "Give the same command with --resume and a longer --budget: what was measured is kept."
    best = report.found.best
    higher = "" if best is None else f" --start {best:g}"
    if report.hurried and report.outcome in ("OPEN", "INCONCLUSIVE"):
        near = "" if best is None else f" and{higher}"
        return f"Search into a new folder with a longer --budget{near}: time was short."
    return {
        "FOUND": "",
        "NONE": "Lower --lowest, loosen the objective, or ask why so little load is too much: the probe's report "
        "says where time went.",
        "OPEN": f"Search into a new folder with{higher} and a higher --highest, or with longer probes (--longest) "
        "where some decided nothing.",
        "INCONCLUSIVE": "Search into a new folder with longer probes: raise --longest or --probe.",
        "INVALID": "Put right what the reason names (more --workers, a quieter machine), then give the same command "
        "with --resume.",
        "UNREACHABLE": "Start the endpoint again, then give the same command with --resume: what was measured is kept.",
        "INTERRUPTED": "The same command with --resume goes on; finished probes are not repeated.",
    }[report.outcome]


def facts(report: SearchReport) -> list[tuple[str, str]]:
    """What the answer is worth, by name: throughput, goodput, per GPU, MLPerf."""
    answer = report.answer
    if answer is None:
        return []
    found = [("answered", units.rate(answer.requests_per_s))]
    if answer.goodput_per_s is not None:
        share = "" if answer.good_fraction is None else f" ({units.percent(answer.good_fraction)} good)"
        found.append(("goodput", f"{units.rate(answer.goodput_per_s)}{share}"))
    if answer.output_tokens_per_s is not None:
        found.append(("output tokens", units.rate(answer.output_tokens_per_s)))
    if answer.gpus:
        found += _per_gpu(answer, answer.gpus)
    if answer.mlperf_server is not None:
        found.append(("MLPerf Server", mlperf(answer)))
    return found


def _per_gpu(answer: AnswerPart, gpus: int) -> list[tuple[str, str]]:
    found = []
    if answer.best_rate_per_gpu is not None:
        found.append((f"rate per GPU (of {gpus})", units.rate(answer.best_rate_per_gpu)))
    if answer.goodput_per_s_per_gpu is not None:
        found.append((f"goodput per GPU (of {gpus})", units.rate(answer.goodput_per_s_per_gpu)))
    return found


def mlperf(answer: AnswerPart) -> str:
    """LoadGen's own answer at this rate."""
    part = answer.mlperf_server
    if part is None:
        return ""
    done = "" if part.completed_per_s is None else f", {units.rate(part.completed_per_s)} completed"
    tokens = "" if part.tokens_per_s is None else f", {units.rate(part.tokens_per_s)} tokens"
    short = f"; {'; '.join(part.reasons)}" if part.reasons else ""
    if part.valid:
        return f"VALID at a target of {units.rate(part.target_per_s)}{done}{tokens}{short}"
    return f"INVALID{done}{short}"


@dataclass(frozen=True, slots=True)
class Mark:
    """One probe on a picture; ``y`` None: infinite, or nothing was observed."""

    x: float
    y: float | None
    probe: ProbePart


def charts(report: SearchReport) -> list[Chart]:
    """One picture an objective, then the probes in order; nothing where there are no probes."""
    if not report.probes:
        return []
    seen: dict[str, list[ObjectivePart]] = {}
    for probe in report.probes:
        for part in probe.objectives:
            seen.setdefault(part.objective, []).append(part)
    # One that said the same at every load, such as no errors at all, has no picture.
    telling = [name for name, parts in seen.items() if len(parts) == 1 or len({part.observed for part in parts}) > 1]
    return [*(_observed(report, name) for name in telling), _order(report)]


def _legend(report: SearchReport) -> list[Key]:
    seen = {probe.outcome for probe in report.probes}
    marks = {"PASS": "dots", "FAIL": "cross", "INCONCLUSIVE": "dots", "INVALID": "bar"}
    found = [Key(name, f"probe-{name.lower()}", mark) for name, mark in marks.items() if name in seen]
    low, high = report.found.interval
    return [*found, *([Key("the line is here", "probe-line", "bar")] if low is not None and high is not None else [])]


def _observed(report: SearchReport, name: str) -> Chart:
    parts = [(probe, part) for probe in report.probes for part in probe.objectives if part.objective == name]
    unit, limit = parts[0][1].unit, parts[0][1].threshold
    marks = [Mark(probe.load, None if part.observed is None else float(part.observed), probe) for probe, part in parts]
    title = f"{name} at each load"
    label = f"{title}: " + "; ".join(
        f"{load(report, probe.load)} {observed(part)} ({probe.outcome})" for probe, part in parts
    )

    def draw(canvas: Canvas) -> Picture:
        x = _loads(report, canvas)
        values = [m.y for m in marks if m.y is not None and m.y > 0] + ([float(limit)] if limit else [])
        y = _values(values, unit, canvas)
        drawn = [_band(report, x, canvas), grid(canvas, x, y), _captions(report, name.partition(" ")[0], x, canvas)]
        if limit is not None:
            at = y.at(float(limit))
            drawn.append(line(canvas.left, at, x.end, at, "limit"))
            drawn.append(text(canvas.left + 6, at - 5, f"limit {units.limit(limit, unit)}", "note halo limit"))
        drawn.append(_marks(marks, x, y, canvas))
        return Picture(svg(canvas, join(drawn), label))

    note = (
        "Numbers: the order of the probes. At the upper edge: failed requests reach it. An outcome is that of all "
        "objectives."
    )
    return chart(title, note, _legend(report), draw, _WIDE, _NARROW)


def _order(report: SearchReport) -> Chart:
    label = "the probes in order: " + "; ".join(
        f"{p.number} {p.purpose} at {load(report, p.load)}: {p.outcome}" for p in report.probes
    )

    def draw(canvas: Canvas) -> Picture:
        rows = len(report.probes)
        tall = Canvas(canvas.width, canvas.top + canvas.bottom + 22.0 * rows, left=40, top=14, bottom=44)
        x = _loads(report, tall)
        y = Axis(0.5, rows + 0.5, tall.y_range[1], tall.y_range[0])
        drawn = [_band(report, x, tall), grid(tall, x, y), _captions(report, "", x, tall)]
        places = [(x.at(p.load), y.at(float(i))) for i, p in enumerate(report.probes, 1)]
        for (x1, y1), (x2, y2) in pairwise(places):
            drawn.append(line(x1, y1, x2, y2, "probe-path"))
        for (at, height), probe in zip(places, report.probes, strict=True):
            drawn.append(_mark(at, height, probe.outcome))
            drawn.append(text(tall.left - 8, height + 4, str(probe.number), "tick", "end"))
            said = f"{probe.purpose}, {probe.took_ns / 1e9:.0f} s" + (", cut" if probe.cut else "")
            wide = len(said) * FONT * 0.6
            right = at + 10 + wide < tall.width
            drawn.append(text(at + (10 if right else -10), height + 4, said, "note halo", None if right else "end"))
        return Picture(svg(tall, join(drawn), label))

    return chart("The probes in order", "From the first at the top to the last.", (), draw, _WIDE, _NARROW)


def _loads(report: SearchReport, canvas: Canvas) -> Axis:
    loads = [probe.load for probe in report.probes]
    low, high = min(loads), max(loads)
    count = max(3, int(canvas.width // 130))
    if low > 0 and high / low > _GEOMETRIC:
        return logarithmic(low / _AIR, high * _AIR, *canvas.x_range, "1", 56)
    if high > low:  # a narrow bracket: beginning at 0 would push all of it together
        air = (high - low) * 0.12
        return _linear(low - air, high + air, canvas, count)
    return from_zero(high * 1.02, *canvas.x_range, "1", count)


def _linear(low: float, high: float, canvas: Canvas, count: int) -> Axis:
    whole = from_zero(high - low, *canvas.x_range, "1", count)
    step = whole.ticks[1][0] - whole.ticks[0][0] if len(whole.ticks) > 1 else high - low
    first = -(-low // step)
    ticks = [(k * step, f"{k * step:g}") for k in range(int(first), int(high // step) + 1)]
    return Axis(low, high, *canvas.x_range, ticks=ticks)


def _values(values: Sequence[float], unit: str, canvas: Canvas) -> Axis:
    high, low = max(values, default=1.0), min(values, default=1.0)
    if unit == "ratio" or high / low <= _LOG_ABOVE:
        top = min(high * _AIR, 1.0) if unit == "ratio" else high * _AIR
        return from_zero(top, *canvas.y_range, unit, 4)
    return logarithmic(low / _AIR, high * _AIR, *canvas.y_range, unit, 24)


def _band(report: SearchReport, x: Axis, canvas: Canvas) -> Markup:
    low, high = report.found.interval
    if low is None or high is None or high <= low:
        return Markup("")
    base, top = canvas.y_range
    left, right = x.at(low), x.at(high)
    wide = max(right - left, 2.0)  # a fine interval is still to be seen
    return element("rect", x=left, y=top, width=wide, height=base - top, class_="probe-line bar")


def _captions(report: SearchReport, value: str, x: Axis, canvas: Canvas) -> Markup:
    what = "offered requests/s" if report.variable == "rate" else "requests in flight"
    return text(canvas.left, canvas.top - 16, value, "tick", "start") + text(
        x.end, canvas.height - 4, what, "tick", "end"
    )


def _marks(marks: Sequence[Mark], x: Axis, y: Axis, canvas: Canvas) -> Markup:
    """The marks, and a number beside each; one that would lie on another is moved, or left out."""
    drawn: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for mark in sorted(marks, key=lambda mark: _LAYERS.index(mark.probe.outcome)):
        at = x.at(mark.x)
        height = canvas.y_range[1] if mark.y is None else min(max(y.at(mark.y), canvas.y_range[1]), canvas.y_range[0])
        drawn.append(_mark(at, height, mark.probe.outcome))
        number = str(mark.probe.number)
        for dx, dy in ((0.0, -10.0), (0.0, 20.0), (13.0, 4.0), (-13.0, 4.0)):
            place = (at + dx, height + dy)
            if all(abs(place[0] - a) > 12 or abs(place[1] - b) > FONT for a, b in taken):
                taken.append(place)
                drawn.append(text(*place, number, "note halo", "middle"))
                break
    return join(drawn)


def _mark(at: float, height: float, outcome: str) -> Markup:
    class_ = f"probe probe-{outcome.lower()}"
    if outcome == "FAIL":
        strokes = line(at - _R, height - _R, at + _R, height + _R, "") + line(
            at - _R, height + _R, at + _R, height - _R, ""
        )
        return element("g", strokes, class_=class_)
    if outcome in ("INVALID", "UNREACHABLE"):
        return element("rect", x=at - _R, y=height - _R, width=2 * _R, height=2 * _R, class_=class_)
    return element("circle", cx=at, cy=height, r=_R, class_=class_)
