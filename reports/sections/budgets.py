"""The error budgets of a report: what each SLO's budget is, what the run spent of it, and which alerts would have
fired.

Where something was not to be seen, the value is null and a text beside it says why; nothing here extrapolates, judges
or formats.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal

from markupsafe import Markup
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Column,
    Drawings,
    Facts,
    Figures,
    Folded,
    Grid,
    Marked,
    Notes,
    On,
    Row,
    Section,
    Sentence,
    Table,
)
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.charts import BurnTimeline
from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.reports.svg.burn import ROW, Alarm, bad_share, burn_chart, spent
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import expression, sentence
from plimsoll.slo.metrics.indicator import ENTRIES
from plimsoll.slo.objectives.budget import Budgeted, Spending
from plimsoll.slo.objectives.ledger import DAY_NS, HOUR_NS, MINUTE_NS, window_text


class BurnWindow(BaseModel, frozen=True, extra="forbid"):
    """The worst of one look-back window, of all places where it lies inside the run."""

    window_ns: int
    observable: bool = Field(description="false: longer than the run, so nothing is said about it")
    max_burn: float | None = Field(default=None, description="the highest burn rate; null when not observable")
    max_at_ns: int | None = Field(default=None, description="end of the window that had it, after t0")


class AlertPart(BaseModel, frozen=True, extra="forbid"):
    """One alert: fires while the burn rates over both windows are on the wrong side of ``factor``.

    ``observable``: ``yes``: the run is as long as the long window; ``truncated``: as long as the short one, and the
    long one is cut at t0; ``no``: shorter than both, nothing was evaluated. ``fired``: true: it fires even if there
    were only good requests, as many per second as in the run, before t0; false (only where observable is ``yes``): it
    can't have fired while both windows were seen; null: not observable.
    """

    name: Text
    severity: Text
    factor: float
    operator: Literal[">", ">=", "<", "<="] = ">"
    long_ns: int
    short_ns: int = Field(description="equal to long_ns: a rule of one window")
    after_ns: int = Field(default=0, description="how long the condition must last before it fires")
    observable: Literal["yes", "truncated", "no"]
    reason: Text = Field(default="", description="why it is not observable, or what can be said nevertheless")
    fired: bool | None = None
    first_fired_at_ns: int | None = Field(default=None, description="after t0")
    resolved_at_ns: int | None = Field(default=None, description="null when it fired and did not end in the run")
    fired_alone_at_ns: int | None = Field(
        default=None, description="when it fires on a service that got no request before t0 (the long window cut there)"
    )
    held_back: bool = Field(
        default=False, description="the short window was seen whole and never crossed the factor: no alert since then"
    )
    max_burn_long: float | None = Field(default=None, description="cut at t0 where truncated")
    max_burn_short: float | None = Field(default=None, description="of whole short windows")
    detection_ns: int | None = Field(
        default=None, description="from the start of a constant error ratio like the run's to the alert; null: never"
    )


class BudgetPart(BaseModel, frozen=True, extra="forbid"):
    """The error budget of one SLO: ``allowed`` bad entries of all over ``period_ns``.

    ``burn`` 1 spends exactly the budget in the period. A number is null where there was no data, and ``reason`` says
    so.
    """

    name: Text
    objective: Text = Field(description="the text under which the verdict judges it")
    target: float = Field(description="the good share that is promised")
    allowed: float = Field(description="the bad share that is allowed: 1 - target")
    period_ns: int
    budget_ns: int = Field(description="the budget as time: allowed * period_ns")
    entry: Literal["request", "gap", "word", "frame", "interim", "query", "slice"] = Field(
        description="what one entry is"
    )
    n: int = Field(description="entries")
    bad: float = Field(description="bad entries; not whole where an entry can be bad in part")
    span_ns: int = Field(description="the run: from t0 to the last due or done")
    covered_ns: int = Field(description="from t0 to the last entry: how long windows could look back")
    confidence: float = Field(description="of each bound of the intervals alone, one-sided")
    interval_method: Literal["Clopper-Pearson", "Chernoff-Hoeffding", "as the verdict", "none"]
    sli: float | None = Field(default=None, description="the good share in the run")
    sli_interval: tuple[Number, Number] = (None, None)
    burn: float | None = None
    burn_interval: tuple[Number, Number] = (None, None)
    spent_by_time: float | None = Field(default=None, description="share of the budget: burn * span_ns / period_ns")
    spent_by_events: float | None = Field(
        default=None, description="share of the budget: bad / (allowed * events of production in the period)"
    )
    production_per_s: float | None = Field(default=None, description="events per second in production, as given")
    no_events_reason: Text = Field(default="", description="why spent_by_events is null")
    remaining: float | None = Field(default=None, description="1 - spent_by_time; negative when overspent")
    exhausted_in_ns: int | None = Field(
        default=None, description="from a full budget, were production like the run: period_ns / burn; null: never"
    )
    affordable_share: float | None = Field(
        default=None, description="share of the period that may be like the run if the rest, as busy, has no bad entry"
    )
    policy: Text = Field(default="", description="where the alerts come from: the SLO, or a policy by name")
    timeline: BurnTimeline = BurnTimeline()
    windows: list[BurnWindow] = Field(default_factory=list)
    alerts: list[AlertPart] = Field(default_factory=list)
    reason: Text = Field(default="", description="why there is no SLI and no burn rate")


def budgets_part(found: Sequence[Budgeted]) -> list[BudgetPart]:
    """The budget of every SLO, in order."""
    return [_budget(one) for one in found]


def _budget(one: Budgeted) -> BudgetPart:
    seen = one.budget
    return part(
        BudgetPart,
        one,
        seen,
        interval_method=seen.method,
        sli_interval=seen.sli_interval or (None, None),
        burn_interval=seen.burn_interval or (None, None),
        timeline=_timeline(one.spending),
        windows=[part(BurnWindow, window, observable=window.max_burn is not None) for window in one.alerts.windows],
        alerts=[part(AlertPart, alert, alert.rule) for alert in one.alerts.alerts],
    )


def _timeline(seen: Spending) -> BurnTimeline:
    return BurnTimeline(
        end_ns=seen.end_ns.tolist(),
        burn=[None if burn != burn else float(f"{burn:.6g}") for burn in seen.burn.tolist()],
        spent=[float(f"{spent:.6g}") for spent in seen.spent.tolist()],
    )


# -- in words -------------------------------------------------------------------------------------------------

_HEIGHT = 150.0
_ENTRIES = MappingProxyType({**ENTRIES, "gap": "gap between tokens", "slice": "time slice"})
NOT_OBSERVABLE = "not observable"
#: Budgets that are drawn; of the others the page has a row each.
MAX_PANELS = 6
#: Narrower than this, a terminal goes without intervals and the size of the budget.
_ROOM = 84
_MARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"fired": ("✕", "red"), "alone": ("?", "yellow"), "quiet": ("✓", "green"), "unseen": ("–", "dim")}
)


def blocks(budgets: Sequence[BudgetPart], _report: object) -> list[Block]:
    """The budgets of objectives that name their period: worth a place among few lines."""
    asked = [part for part in budgets if _names_its_period(part)]
    if not asked:
        return []
    return [*written(asked), Section("Error budgets", panels(asked), on=On.PAGE)]


def further(budgets: Sequence[BudgetPart]) -> list[Block]:
    """Budgets that nobody asked for: of a period that is the usual one and not the objective's own."""
    found = [part for part in budgets if not _names_its_period(part)]
    if not found:
        return []
    folded = Folded(units.many(len(found), "objective"), panels(found))
    return [Section("Error budgets over the usual 30 days", [folded], on=On.PAGE)]


def _names_its_period(part: BudgetPart) -> bool:
    return " over " in part.objective or part.objective.startswith("slo(")


def written(budgets: Sequence[BudgetPart]) -> list[Block]:
    """What the run would have spent of each budget, and what its alerts would have done: in a terminal, and in
    Markdown.
    """
    columns = [
        Column("Error budget", right=False),
        *map(Column, ("SLI", "burn", "spent by time", "by events", "gone in")),
    ]
    said = [f"{part.name}: {text}" for part in budgets for _, text in sayings(part)]
    return [
        _amounts(budgets),
        _alerts(budgets),
        Table(columns, [Row(_cells(part)) for part in budgets], on=On.MARKDOWN),
        Notes(said, on=On.MARKDOWN),
    ]


def _cells(part: BudgetPart) -> list[str]:
    spent_by = [part.spent_by_time, part.spent_by_events]
    spent = [units.NOTHING if one is None else units.percent(one, 3) for one in spent_by]
    return [_title(part), _share(part.sli), _burn(part.burn), *spent, _gone(part) or units.NOTHING]


def _gone(part: BudgetPart) -> str:
    if part.burn is None:
        return ""
    return "never" if part.exhausted_in_ns is None else _span(part.exhausted_in_ns)


def _amounts(budgets: Sequence[BudgetPart]) -> Table:
    title = f"Error budgets: at a burn of 1 a full one is gone in its period; {units.bounds(budgets[0].confidence)}"
    columns = [Column("SLO", right=False, room=16), Column("SLI"), Column("burn"), Column("budget", least_width=_ROOM)]
    columns += [Column("spent"), Column("gone in")]
    return Table(columns, [Row(_amount(one)) for one in budgets], title=title, on=On.TERMINAL)


def _amount(part: BudgetPart) -> list[str | Cell]:
    size = Cell(_span(part.budget_ns), under=f"in {_span(part.period_ns)}")
    if part.burn is None:
        return [Cell(_title(part), under=part.reason), units.NOTHING, units.NOTHING, size, units.NOTHING, ""]
    by_time = "" if part.spent_by_time is None else f"{units.percent(part.spent_by_time, 3)} by time"
    by_events = "" if part.spent_by_events is None else f"{units.percent(part.spent_by_events, 3)} by events"
    return [
        Cell(_title(part), under=_tally(part)),
        Cell(_share(part.sli), under=_range(part.sli_interval, _share), under_least_width=_ROOM),
        Cell(_burn(part.burn), under=_range(part.burn_interval, _burn), under_least_width=_ROOM),
        size,
        Cell(by_time, under=by_events),
        _gone(part),
    ]


def _range(interval: tuple[Number, Number], show: Callable[[Number], str]) -> str:
    low, high = (show(bound) for bound in interval)
    return f"{low.removesuffix(' %')} to {high}"


def _alerts(budgets: Sequence[BudgetPart]) -> Marked:
    """One line for each thing to say, with the SLOs that it is true of where that is not all of them."""
    of: dict[tuple[str, str], list[str]] = {}
    for one in budgets:
        for line in sayings(one):
            of.setdefault(line, []).append(expression(one.name))
    lines = []
    for kind, (sign, style) in _MARKS.items():
        for (said, text), names in of.items():
            if said == kind:
                whose = "" if len(names) == len(budgets) else f"{', '.join(names)}: "
                lines.append((sign, style, whose + text))
    return Marked(lines, close=True)


def _title(part: BudgetPart) -> str:
    """What the budget is of."""
    text = expression(part.objective)
    known = part.name == part.objective or part.objective.startswith(f"slo({part.name})")
    return text if known else f"{part.name}: {text}"


def _tally(part: BudgetPart) -> str:
    """``480 of 240,000 bad``."""
    bad = units.count(part.bad) if part.bad == round(part.bad) else units.significant(part.bad)
    of = units.count(part.n) if part.entry == "request" else units.many(part.n, part.entry)
    return f"{bad} of {of} bad"


def _share(share: Number) -> str:
    """A good share, exactly enough to tell 99.99 % from 100 %."""
    return units.NOTHING if share is None else units.percent(share, 5)


def _burn(burn: Number) -> str:
    return units.NOTHING if burn is None else units.significant(burn)


def _span(value_ns: int) -> str:
    """A long time in one unit: ``43.2 min``, ``1.5 h``, ``15 d``."""
    for size, name in ((DAY_NS, "d"), (HOUR_NS, "h"), (MINUTE_NS, "min")):
        if value_ns >= size:
            value = value_ns / size
            return f"{units.count(value) if value >= 100 else f'{value:.3g}'} {name}"
    return units.duration(value_ns)


def sayings(part: BudgetPart) -> list[tuple[str, str]]:
    """(kind, text) of what is to be said of a budget's alerts; nothing without data."""
    if part.burn is None:
        return []
    if not part.alerts:
        return [("unseen", f"no usual alert fits a period of {window_text(part.period_ns)}")]
    said: list[tuple[str, str]] = []
    for alert in part.alerts:
        if alert.fired:
            said.append(("fired", _said_fired(alert)))
        elif alert.fired is None and alert.fired_alone_at_ns is not None:
            said.append(("alone", _said_alone(alert)))
    quiet = [alert.name for alert in part.alerts if alert.fired is False]
    if quiet:
        said.append(("quiet", f"did not fire: {', '.join(quiet)}"))
    said += [("quiet", _said_held_back(alert)) for alert in part.alerts if alert.fired is None and alert.held_back]
    unseen = [a for a in part.alerts if a.fired is None and not a.held_back and a.fired_alone_at_ns is None]
    if unseen:
        needs = ", ".join(f"{alert.name} needs {window_text(_needed_ns(alert))}" for alert in unseen)
        said.append(("unseen", f"not observable in {window_text(part.covered_ns)}: {needs}"))
    return said


def _needed_ns(alert: AlertPart) -> int:
    """How long a run must be for more to be said."""
    return alert.short_ns if alert.observable == "no" else alert.long_ns


def _windows(alert: AlertPart) -> str:
    long, short = window_text(alert.long_ns), window_text(alert.short_ns)
    return long if long == short else f"{long} and {short}"


def _rule(alert: AlertPart) -> str:
    return f"{alert.name} (burn {alert.operator} {alert.factor:.4g} over {_windows(alert)})"


def _said_fired(alert: AlertPart) -> str:
    at = units.NOTHING if alert.first_fired_at_ns is None else units.duration(alert.first_fired_at_ns)
    end = "to the end" if alert.resolved_at_ns is None else f"until {units.duration(alert.resolved_at_ns)}"
    return f"{_rule(alert)} would have fired at {at}, {end}"


def _said_alone(alert: AlertPart) -> str:
    at = units.NOTHING if alert.fired_alone_at_ns is None else units.duration(alert.fired_alone_at_ns)
    return f"{_rule(alert)}: not observable; fires at {at} on a service that got nothing before the run"


def _said_held_back(alert: AlertPart) -> str:
    short, long = window_text(alert.short_ns), window_text(alert.long_ns)
    return f"{alert.name} held back by its {short} window; its {long} window is not observable"


# -- on a page --------------------------------------------------------------------------------------------------


def panels(budgets: Sequence[BudgetPart]) -> list[Block]:
    """A panel for each of the budgets that burn fastest, and a row for each other: a page can hold so many pictures and
    no more.
    """
    order = sorted(range(len(budgets)), key=lambda i: -(budgets[i].burn or 0.0))
    drawn = set(order[:MAX_PANELS])
    found: list[Block] = [_panel(part) for index, part in enumerate(budgets) if index in drawn]
    others = [_row(part) for index, part in enumerate(budgets) if index not in drawn]
    if others:
        columns = [Column("SLO", right=False, names=True, code=True)]
        columns += [
            *map(Column, ("allowed", "bad", "burn rate", "spent by time")),
            Column("alerts that fired", right=False),
        ]
        found.append(Card([Sentence("", lead="Others, which burn no faster"), Table(columns, others)]))
    return found


def _row(part: BudgetPart) -> Row:
    return Row(
        [
            expression(part.name),
            units.percent(part.allowed, 3),
            units.NOTHING if part.sli is None else units.percent(1 - part.sli, 3),
            units.NOTHING if part.burn is None else _rate(part.burn),
            units.NOTHING if part.spent_by_time is None else units.percent(part.spent_by_time, 3),
            ", ".join(alert.name for alert in part.alerts if alert.fired) or units.NOTHING,
        ]
    )


def _panel(part: BudgetPart) -> Card:
    facts = _facts(part)
    drawn: Block = Sentence(sentence(part.reason) or "No data, so no budget can be drawn.")
    if facts:
        drawn = Grid([Drawings(_gauges(part)), Facts(facts)], look="gauges")
    alerts: list[Block] = [_alert_table(part)] if part.alerts else []
    if part.windows:
        alerts.append(Sentence("", lead="Highest burn rate by window"))
        alerts.append(Facts([(units.seconds(one.window_ns), _window(one)) for one in part.windows]))
    if part.policy:
        text = f"Alerts: {part.policy}. A window longer than the run is not observable, and nothing is said about it."
        alerts.append(Sentence(text, fine=True))
    unseen = _unseen(part)
    of = f"{expression(part.objective)}: " if part.objective != part.name else ""
    promise = (
        f"{of}{units.percent(part.allowed, 3)} of {_ENTRIES[part.entry]}s in {_period(part.period_ns)} may be bad: "
        f"as time {units.duration(part.budget_ns)}"
    )
    return Card(
        [
            drawn,
            Figures(partial(charts, part), bare=True, group="time"),
            *([Folded(unseen, alerts)] if unseen else alerts),
        ],
        code=expression(part.name),
        aside=promise,
        look="budget bad" if part.burn is not None and part.burn > 1 else "budget",
    )


def _gauges(part: BudgetPart) -> list[tuple[str, Callable[[], Markup | None]]]:
    assert part.sli is not None
    found: list[tuple[str, Callable[[], Markup | None]]] = [
        ("Bad share of this run", partial(bad_share, part.name, part.sli, part.allowed, part.sli_interval))
    ]
    if part.spent_by_time is not None:
        name = f"Budget of {_period(part.period_ns)}, spent by time"
        found.append((name, partial(spent, part.name, part.spent_by_time)))
    return found


def _alert_table(part: BudgetPart) -> Table:
    columns = [Column("Alert", right=False, names=True), Column("fires when the burn rate is", right=False)]
    columns += [Column("in this run", right=False), Column("highest seen"), Column("such a run is noticed after")]
    return Table(columns, [_alert(alert) for alert in part.alerts], look="alerts")


def _alert(alert: AlertPart) -> Row:
    span = units.seconds(alert.long_ns)
    if alert.short_ns != alert.long_ns:
        span += f" and {units.seconds(alert.short_ns)}"
    lasting = f" for {units.seconds(alert.after_ns)}" if alert.after_ns else ""
    return Row(
        [
            Cell(alert.name, aside=alert.severity),
            f"{expression(alert.operator)} {alert.factor:.4g} over {span}{lasting}",
            Cell(_fired(alert), aside=sentence(alert.reason)),
            _seen(alert),
            "never" if alert.detection_ns is None else units.duration(alert.detection_ns),
        ],
        "bad" if alert.fired else "perhaps" if alert.fired_alone_at_ns is not None else "",
    )


def _window(window: BurnWindow) -> str:
    if not window.observable:
        return NOT_OBSERVABLE
    at = "" if window.max_at_ns is None else f" until {units.duration(window.max_at_ns)}"
    return ("no data" if window.max_burn is None else _rate(window.max_burn)) + at


def _period(period_ns: int) -> str:
    """A period in the largest unit that divides it: ``28 days``, ``12 h``."""
    for name, size in (("day", 86_400_000_000_000), ("h", 3_600_000_000_000), ("min", 60_000_000_000)):
        if period_ns >= size and period_ns % size == 0:
            number = period_ns // size
            return units.many(number, "day") if name == "day" else f"{units.count(number)} {name}"
    return units.duration(period_ns)


def _facts(part: BudgetPart) -> list[tuple[str, str]]:
    if part.sli is None:
        return []
    bad = units.count(part.bad) if part.bad == round(part.bad) else units.significant(part.bad)
    facts = [
        ("Bad in this run", f"{bad} of {units.count(part.n)} ({units.percent(1 - part.sli, 3)})"),
        ("Good share", units.percent(part.sli) + _interval(part)),
    ]
    if part.burn is not None:
        facts.append(("Burn rate", f"{_rate(part.burn)} {_burn_interval(part)}".strip()))
    if part.spent_by_time is not None:
        facts.append((f"Spent of {_period(part.period_ns)}, by time", units.percent(part.spent_by_time, 3)))
    if part.spent_by_events is not None:
        facts.append(("Spent, by events", units.percent(part.spent_by_events, 3)))
    elif part.no_events_reason:
        facts.append(("Spent, by events", f"unknown: {part.no_events_reason}"))
    if part.burn is not None:
        left = "never" if part.exhausted_in_ns is None else f"in {_long(part.exhausted_in_ns)}"
        facts.append(("A full budget would be gone", left))
    if part.affordable_share is not None and part.affordable_share < 1:
        facts.append(("Like this for at most", f"{units.percent(part.affordable_share, 3)} of the period"))
    return facts


def _long(time_ns: int) -> str:
    days = time_ns / 86_400_000_000_000
    return f"{units.significant(days, 3)} days" if days >= 2 else units.duration(time_ns)


def _interval(part: BudgetPart) -> str:
    low, high = part.sli_interval
    if low is None or high is None:
        return ""
    return f", bounds {units.percent(low)} to {units.percent(high)}"


def _burn_interval(part: BudgetPart) -> str:
    low, high = part.burn_interval
    return "" if low is None or high is None else f"({_rate(low)} to {_rate(high)})"


def _rate(burn: float) -> str:
    return units.significant(burn) if abs(burn) < 1000 else units.count(burn)


def charts(part: BudgetPart) -> list[Chart]:
    data = part.timeline
    if len(data.end_ns) < 2 or not any(data.burn):  # a rate of 0 throughout needs no picture
        return []
    alarms = [alarm for alarm in map(_alarm, part.alerts) if alarm is not None]
    known = [value for value in data.burn if value is not None]
    fired = ", ".join(f"{alarm.label} at {units.duration(alarm.at_ns)}" for alarm in alarms) or "no alert fired"
    label = f"Burn rate of {part.name} over the run, at most {_rate(max(known))}; {fired}"
    extra = ROW * len(alarms)
    wide = Canvas(1080, _HEIGHT + extra, left=66, right=16, top=12)
    narrow = Canvas(420, _HEIGHT + extra, left=58, right=10, top=12)
    legend = [Key("burn rate", "s-burn", "bar"), Key("above 1", "s-burn over", "bar")]
    if any(alarm.sure for alarm in alarms):
        legend.append(Key("alert fires", "alarm-key"))
    if not all(alarm.sure for alarm in alarms):
        legend.append(Key("might fire", "alarm-key", "dash"))
    note = "The dashed line is 1: there the budget lasts exactly its period."
    return [chart("Burn rate over the run", note, legend, partial(burn_chart, data, alarms, label), wide, narrow)]


def _alarm(alert: AlertPart) -> Alarm | None:
    """Where the alert is marked: it fires, or it does if the service had got nothing before the run."""
    name = f"{alert.name} ({alert.severity})"
    if alert.fired and alert.first_fired_at_ns is not None:
        return Alarm(alert.first_fired_at_ns, alert.resolved_at_ns, name)
    if alert.fired is None and alert.fired_alone_at_ns is not None:
        return Alarm(alert.fired_alone_at_ns, alert.fired_alone_at_ns, f"{name}?", sure=False)
    return None


def _fired(alert: AlertPart) -> str:
    if alert.fired and alert.first_fired_at_ns is not None:
        until = "" if alert.resolved_at_ns is None else f" to {units.duration(alert.resolved_at_ns)}"
        return f"fired at {units.duration(alert.first_fired_at_ns)}{until}"
    if alert.fired:
        return "fired"
    if alert.fired is None and alert.fired_alone_at_ns is not None:
        return f"{NOT_OBSERVABLE}; might have fired at {units.duration(alert.fired_alone_at_ns)}"
    if alert.fired is None and alert.held_back:
        return f"held back by its {units.seconds(alert.short_ns)} window"
    if alert.fired is None or alert.observable == "no":
        return NOT_OBSERVABLE
    return "did not fire"


def _seen(alert: AlertPart) -> str:
    def shown(value: float | None) -> str:
        return units.NOTHING if value is None else _rate(value)

    if alert.short_ns == alert.long_ns or (alert.max_burn_long is None and alert.max_burn_short is None):
        return shown(alert.max_burn_long)
    return f"{shown(alert.max_burn_long)} and {shown(alert.max_burn_short)}"


def _unseen(part: BudgetPart) -> str:
    """One sentence in place of a table that would say "not observable" in each of its rows; else empty."""
    if not part.alerts or any(
        a.fired is not None or a.fired_alone_at_ns is not None or a.held_back for a in part.alerts
    ):
        return ""
    least = min(min(alert.long_ns, alert.short_ns) for alert in part.alerts)
    return (
        f"{units.many(len(part.alerts), 'alert')}, {NOT_OBSERVABLE}: the shortest window is {units.seconds(least)}, "
        f"the run covers {units.duration(part.covered_ns)}"
    )


SECTION = ReportSection("budgets", 30, lambda run: budgets_part(run.judged.budgets), blocks)
