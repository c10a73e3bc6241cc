"""A run while it goes on: the document behind ``/state.json`` and ``/metrics``, and the live page as blocks.

Times in ns, rates per second. Percentiles come from bins of equal ratio, ``BINS_AN_OCTAVE`` to the octave, 2.2 % wide;
null is infinite. No verdict rests on any of these numbers: that word comes from the sealed run.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainSerializer

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Column,
    Drawings,
    Figures,
    Grid,
    Quantity,
    Reading,
    Row,
    Section,
    Sentence,
    Table,
    Tiles,
)
from plimsoll.reports.documents.pictures import strip_chart
from plimsoll.reports.parts.charts import BurnTimeline, LagBand, Timeline
from plimsoll.reports.sections import server
from plimsoll.reports.svg.burn import bad_share, burn_chart
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart
from plimsoll.reports.svg.strip import Layer, Strip
from plimsoll.reports.wording import signs, units
from plimsoll.reports.wording.phrases import expression, sentence
from plimsoll.slo.metrics.indicator import in_order, short_of, title_of

SCHEMA = "plimsoll.live/1"
#: Of the workers' coarse histograms: bin b holds values from 2 ** (b / 32) ns to 2 ** ((b + 1) / 32) ns.
BINS_AN_OCTAVE = 32

#: Of one kind of value: bin -> how many.
Bins = Mapping[int, int]
Stage = Literal["preparing", "warm-up", "running", "draining", "over"]
Rate = Annotated[float, PlainSerializer(lambda value: float(f"{value:.6g}"), return_type=float)]


class RunPart(BaseModel, frozen=True, extra="forbid"):
    """Which run. ``url`` has neither user nor password nor query in it."""

    id: str = ""
    plimsoll: str = ""
    scenario: str = ""
    kind: str = ""
    url: str = ""
    protocol: str = ""
    workers: int = 0


class Percentiles(BaseModel, frozen=True, extra="forbid"):
    """Of ``n`` values and ``failed`` requests without one, over the run so far; null is infinite."""

    n: int
    failed: int
    p50: int | None
    p90: int | None
    p99: int | None


class Band(BaseModel, frozen=True, extra="forbid"):
    """The same for each interval: ``n[i]`` is 0 and the percentiles null where there was nothing."""

    n: list[int]
    p50: list[int | None]
    p90: list[int | None]
    p99: list[int | None]


class BurnPart(BaseModel, frozen=True, extra="forbid"):
    """The error budget of one objective in this run.

    ``allowed``: the share that may be bad. ``bad``: how many of ``n`` certainly are so far; a few more may be, so
    everything from it is a lower bound. ``burn``: that share over the allowed one, 1 spends exactly the budget.
    ``spent``: of what the whole planned run may have; null where its size isn't known. ``interval_n``,
    ``interval_bad``: the same by interval.
    """

    objective: str
    indicator: str
    threshold_ns: int | None
    allowed: float
    n: int
    bad: int
    burn: float | None
    spent: float | None
    interval_n: list[int]
    interval_bad: list[int]

    def burns(self) -> list[float | None]:
        """The burn rate of each interval; None where nothing ended."""
        return [
            bad / n / self.allowed if n else None for n, bad in zip(self.interval_n, self.interval_bad, strict=True)
        ]


class Intervals(BaseModel, frozen=True, extra="forbid"):
    """Equal stretches of ``interval_ns`` from ``start_ns`` after t0; only those that are over. The last ends at
    ``end_ns``: after the run it takes the remainder.

    ``planned_per_s``: null of a closed loop, which has no plan in time. ``in_flight_max``: the most that was seen, by
    looks a quarter of a second apart; null where nobody looked. ``failed``: requests, not a rate. ``served``: by name,
    what the server said of itself; null where it is not known.
    """

    interval_ns: int
    start_ns: int
    end_ns: int
    planned_per_s: list[Rate] | None
    sent_per_s: list[Rate]
    done_per_s: list[Rate]
    failed: list[int]
    in_flight_max: list[int | None]
    bands: dict[str, Band] = Field(default_factory=dict)
    served: dict[str, list[Rate | None]] = Field(default_factory=dict)

    def seconds(self) -> list[float]:
        """How long each is: the last one of a run that is over may be half to one and a half as long as the others."""
        n = len(self.sent_per_s)
        last = self.end_ns - self.start_ns - (n - 1) * self.interval_ns
        return [self.interval_ns / 1e9] * (n - 1) + [last / 1e9] * bool(n)


class VerdictPart(BaseModel, frozen=True, extra="forbid"):
    """What the sealed run was found to be, and where the report lies on the host that ran it."""

    outcome: str
    reasons: list[str] = Field(default_factory=list)
    report: str = ""


class LiveReport(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """One look at the run.

    ``elapsed_ns``: since t0, negative in warm-up. ``left_ns``, ``fraction``: null when the end can't be foreseen.
    ``sent``, ``done``, ``failed``: requests so far, with those of the warm-up. ``planned``: requests of the whole plan,
    null of a closed loop; ``planned_so_far``: of them, those due by now. ``spreads`` are the bins of ``metrics``.
    """

    schema_: str = Field(default=SCHEMA, alias="schema")
    run: RunPart
    stage: Stage = "preparing"
    elapsed_ns: int = 0
    left_ns: int | None = None
    fraction: float | None = None
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    planned: int | None = None
    planned_so_far: int | None = None
    planned_per_s: Rate | None = None
    sent_per_s: Rate | None = None
    metrics: dict[str, Percentiles] = Field(default_factory=dict)
    objectives: list[BurnPart] = Field(default_factory=list)
    unfollowed: list[str] = Field(default_factory=list)
    intervals: Intervals | None = None
    verdict: VerdictPart | None = None
    events: dict[str, int] = Field(default_factory=dict, description="when each event began, in ns from t0")
    spreads: dict[str, dict[int, int]] = Field(default_factory=dict, exclude=True)


SHARES = (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))


def percentiles(bins: Bins, infinite: int = 0) -> tuple[int | None, int | None, int | None]:
    """p50, p90 and p99 in ns of the values in ``bins`` and ``infinite`` more; None is infinite, or no value at all."""
    total = sum(bins.values()) + infinite
    wanted = [-(-share * total // 1) for share in SHARES]
    found: list[int | None] = []
    seen = 0
    for key in sorted(bins):
        seen += bins[key]
        while len(found) < len(wanted) and seen >= wanted[len(found)]:
            found.append(round(middle(key)))
    found += [None] * (len(wanted) - len(found))
    return found[0], found[1], found[2]


def middle(key: int) -> float:
    """The geometric middle of a bin, in ns: at most 1.1 % from every value in it."""
    return float(2.0 ** ((key + 0.5) / BINS_AN_OCTAVE))


_TILES = ("ttft", "first_partial", "finalization", "voice_to_voice", "first_audio", "tpot", "latency")
#: Metrics that get a tile.
_MOST_TILES = 3
_WORDS = MappingProxyType(
    {"preparing": "GETTING READY", "warm-up": "WARM-UP", "running": "RUNNING", "draining": "DRAINING", "over": "OVER"}
)


def content(report: LiveReport) -> dict[str, Any]:
    """What the templates name: the head, and the blocks of each part that the script puts in place of the old one."""
    verdict = report.verdict
    budgets, charts, numbers = _budgets(report), _charts(report), _numbers(report)
    return {
        "run": report.run,
        "word": verdict.outcome if verdict is not None else _WORDS[report.stage],
        "tone": signs.tone(verdict.outcome) if verdict is not None else "measured",
        "seal": _seal(report),
        "title": report.run.scenario or "Load test",
        "headline": _headline(report),
        "meta": _meta(report),
        "reasons": [sentence(text) for text in (verdict.reasons if verdict else [])],
        "report_path": verdict.report if verdict is not None else "",
        "fraction": None if report.stage == "over" else report.fraction,
        "final": verdict is not None,
        "tiles": _tiles(report),
        "parts": [
            ("budgets", "Error budgets", budgets),
            ("charts", "Over the run", charts),
            ("numbers", "The numbers", numbers),
        ],
    }


_PRECISION = (
    "Live percentiles come from bins that are 2.2 % wide and are at most 1.1 % off; measured requests that failed "
    "count as infinite. The verdict and the report never use them: they are made of the exact records."
)


def _seal(report: LiveReport) -> str:
    if report.verdict is not None:
        return signs.mark(report.verdict.outcome)
    if report.stage in ("running", "draining") and report.fraction is not None:
        return f"{int(report.fraction * 100)}%"
    return {"over": "■", "preparing": "…", "warm-up": "…"}.get(report.stage, "▶")


def _headline(report: LiveReport) -> str:
    elapsed = units.duration(max(report.elapsed_ns, 0))
    if report.verdict is not None:
        return f"The run is over after {elapsed}. This is the last live picture; the verdict is of the exact records."
    if report.stage == "over":
        return f"The run is over after {elapsed}. It is being judged; this is the last live picture."
    if report.stage == "preparing":
        return "The load generator is getting ready: nothing has been sent yet."
    if report.stage == "warm-up":
        return f"Warm-up: the measured run begins in {_clock(-report.elapsed_ns)}."
    if report.stage == "draining":
        return f"{_clock(report.elapsed_ns)} in. Everything is sent; answers in flight are waited for."
    if report.left_ns:
        return f"{_clock(report.elapsed_ns)} in, {_clock(report.left_ns)} left."
    return f"{_clock(report.elapsed_ns)} in."


def _clock(value_ns: int) -> str:
    """Whole seconds: more would only flicker."""
    seconds = max(0, round(value_ns / 1e9))
    if seconds >= 3600:
        return units.duration(seconds * 1e9)
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 120 else f"{seconds} s"


def _meta(report: LiveReport) -> list[str]:
    run = report.run
    parts = (run.kind, units.many(run.workers, "worker") if run.workers else "")
    target = " · ".join(part for part in (run.url, run.protocol) if part)
    return [text for text in (" · ".join(part for part in parts if part), target) if text]


def _tiles(report: LiveReport) -> list[Block]:
    if report.stage == "preparing" or report.intervals is None:
        return []
    warmed = report.intervals.start_ns < 0
    behind = (
        "" if report.planned is None else f"of {units.count(report.planned)} planned" + ", and the warm-up" * warmed
    )
    planned = "a closed loop" if report.planned is None else f"{units.rate(report.planned_per_s)} planned"
    if report.planned is not None and report.planned_per_s is None:
        planned = ""
    share = (
        f"{units.percent(report.failed / report.done, 3)} of those that ended" if report.failed and report.done else ""
    )
    tiles = [
        Quantity("Sent per second", _number(report.sent_per_s), planned),
        Quantity("In flight", units.count(report.in_flight), "at the last look"),
    ] * (report.stage != "over")
    tiles += [
        Quantity("Sent", units.count(report.sent), behind),
        Quantity("Errors", units.count(report.failed), share, bad=report.failed > 0),
    ]
    for name in [name for name in _TILES if name in report.metrics][:_MOST_TILES]:
        found = report.metrics[name]
        tiles.append(Quantity(f"{_short(name)} p99", _value(found.p99, found), "of the run so far"))
    return [Tiles(tiles)]


def _short(name: str) -> str:
    known = short_of(name)
    return known if known.isupper() else title_of(name)


def _number(rate: float | None) -> str:
    if rate is None:
        return units.NOTHING
    return units.count(rate) if rate >= 1000 else units.significant(rate)


def _value(value: int | None, of: Percentiles) -> str:
    return units.human(value, "ns") if of.n + of.failed else units.NOTHING


def _budgets(report: LiveReport) -> list[Block]:
    """A card for each objective that burns fastest, a row for every one, and what can't be told before the end."""
    found: list[Block] = []
    drawn = _fastest(report)
    if drawn:
        note = (
            "A value in the bin of the limit itself isn't counted as bad, so these are lower bounds. 1 uses the "
            "budget up just so."
        )
        found += [Grid([_card(part, report) for part in drawn], min(len(drawn), 2)), Sentence(note, fine=True)]
    if len(report.objectives) > len(drawn):
        heads = ("at least bad", "of", "share", "allowed", "burn rate", "spent of the run's")
        columns = [Column("Objective", right=False, names=True, code=True), *map(Column, heads)]
        found.append(Card([Table(columns, [_row(part) for part in report.objectives])]))
    if report.unfollowed:
        names = ", ".join(f"`{name}`" for name in report.unfollowed)
        found.append(Sentence(f"Judged at the end only, because live figures can't tell: {names}.", fine=True))
    return [Section("Error budgets of this run", found)] if found else []


def _charts(report: LiveReport) -> list[Block]:
    found = strips(report)
    if not found:
        silence = Card([Sentence("Charts begin when the first second is over.")], look="silence")
        return [] if report.stage == "over" else [silence]
    found += [chart for part in _fastest(report) if (chart := _burn(part, report)) is not None]
    card = Card([Figures(found, bare=True, group="time"), Sentence(_strips_note(report), fine=True)])
    return [Section("Over the run, so far", [card])]


def _numbers(report: LiveReport) -> list[Block]:
    if not report.metrics:
        return []
    columns = [Column("Metric", right=False, names=True), *map(Column, ("n", "p50", "p90", "p99"))]
    rows = [_metric(name, report.metrics[name]) for name in in_order(report.metrics)]
    table = Table(columns, rows, look="metrics")
    return [Section("The numbers, so far", [Card([table, Sentence(_PRECISION, fine=True)])])]


def _card(part: BurnPart, report: LiveReport) -> Card:
    burn = units.NOTHING if part.burn is None else units.significant(part.burn)
    against = "times the share that is allowed" if part.burn is not None else "nothing has ended yet"
    shown: list[Block] = [Reading(burn, against, before="at least")]
    if part.n:
        gauge = partial(bad_share, part.objective, 1 - part.bad / part.n, part.allowed)
        shown += [Drawings([("", gauge)]), Sentence(_spoken(part, report), fine=True)]
    look = "objective over" if (part.burn or 0) > 1 else "objective within"
    return Card(shown, code=expression(part.objective), look=look)


def _spoken(part: BurnPart, report: LiveReport) -> str:
    text = (
        f"At least {units.count(part.bad)} of {units.count(part.n)} are bad ({units.percent(part.bad / part.n, 3)}); "
        f"{units.percent(part.allowed, 3)} may be."
    )
    if part.spent is not None and report.stage != "over":
        text += f" Of the whole run's budget at least {units.percent(part.spent, 3)} is used."
    return text


def _row(part: BurnPart) -> Row:
    cells = [
        expression(part.objective),
        units.count(part.bad),
        units.count(part.n),
        units.percent(part.bad / part.n, 3) if part.n else units.NOTHING,
        units.percent(part.allowed, 3),
        units.NOTHING if part.burn is None else units.significant(part.burn),
        units.NOTHING if part.spent is None else units.percent(part.spent, 3),
    ]
    return Row(cells, "bad" if (part.burn or 0) > 1 else "")


def _strips_note(report: LiveReport) -> str:
    if report.intervals is None:
        return ""
    return (
        f"Intervals of {units.seconds(report.intervals.interval_ns)}. Rates and percentiles are by when requests "
        "ended, as the workers said it four times a second; the report puts them where they were due. A mark at the "
        "top is a percentile that is a failed request."
    )


def _metric(name: str, found: Percentiles) -> Row:
    values = [_value(value, found) for value in (found.p50, found.p90, found.p99)]
    return Row([Cell(title_of(name), code=name), units.count(found.n), *values])


#: Of more objectives than these only the fastest burning ones are drawn; all of them have a row.
MAX_BURNS = 4
_WIDE, _NARROW = 1080.0, 420.0
_BURN, _BURN_NARROW = Canvas(_WIDE, 128, left=66, right=16, top=10), Canvas(_NARROW, 128, left=58, right=10, top=10)


def strips(report: LiveReport) -> list[Chart]:
    """Rates, requests in flight, errors and percentiles over the run so far, one above the other; none before the first
    interval.
    """
    found = report.intervals
    if found is None or not found.sent_per_s:
        return []
    timeline = _timeline(found)
    data = [_rates(found), _in_flight(found)]
    if any(found.failed):
        data.append(_errors(found))
    names = in_order(found.bands)
    data += [*(_band(name, found.bands[name], report) for name in names), *server.strips(found.served)]
    marks = [(at, name) for name, at in report.events.items()]
    data = [replace(one, marks=[(at, name * (not i)) for at, name in marks]) for i, one in enumerate(data)]
    return [_draw(one, timeline, last=index == len(data) - 1) for index, one in enumerate(data)]


def _fastest(report: LiveReport) -> list[BurnPart]:
    """The objectives that burn fastest, in the run's order."""
    drawn = sorted(report.objectives, key=lambda part: -(part.burn or 0.0))[:MAX_BURNS]
    return [part for part in report.objectives if part in drawn]


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
    layers = [Layer("", "s-flight", found.in_flight_max, "fill"), Layer("most seen", "s-flight", found.in_flight_max)]
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
        (float(part.threshold_ns), expression(part.objective))
        for part in report.objectives
        if part.indicator == name and part.threshold_ns is not None and part.allowed <= 0.1
    ]
    return Strip(title_of(name), "ns", layers, limits[:1])


def _draw(data: Strip, timeline: Timeline, last: bool) -> Chart:
    label = f"{data.title} so far, in intervals of {units.seconds(timeline.bucket_ns)}"
    return strip_chart(data, timeline, label, last)


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
    return chart(f"Burn rate of {expression(part.objective)}", "", legend, draw, _BURN, _BURN_NARROW)


def _spent(part: BurnPart, planned: int | None) -> list[float]:
    """Of the whole run's budget, or, when nobody knows how long the run is, of the budget of the requests so far."""
    bad = list(accumulate(part.interval_bad))
    if planned:
        return [number / (part.allowed * planned) for number in bad]
    return [
        number / (part.allowed * n) if n else 0.0 for number, n in zip(bad, accumulate(part.interval_n), strict=True)
    ]
