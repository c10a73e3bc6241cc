"""The page's error budgets: gauges, burn rate over the run, and a table of alerts and windows.

Says "not observable" where the run was too short to see something; draws nothing that the report does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from plimsoll.reports.sections.budgets import AlertPart, BudgetPart, BurnWindow
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.burn import ROW, Alarm, burn_chart
from plimsoll.reports.svg.gauge import bad_share, spent
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import ENTRIES

_WIDE_HEIGHT, _NARROW_HEIGHT = 150.0, 150.0
_ENTRIES = MappingProxyType({**ENTRIES, "gap": "gap between tokens", "slice": "time slice"})
NOT_OBSERVABLE = "not observable"
#: Budgets that are drawn; of the others the page has a row each.
MAX_PANELS = 6


def budget_panels(budgets: Sequence[BudgetPart]) -> list[dict[str, Any]]:
    """What the template places for each budget that is drawn, in the report's order."""
    drawn = _drawn(budgets)
    return [_panel(part) for index, part in enumerate(budgets) if index in drawn]


def budget_rows(budgets: Sequence[BudgetPart]) -> list[dict[str, str]]:
    """One row for each budget beyond those: a page can hold so many pictures and no more."""
    drawn = _drawn(budgets)
    return [_row(part) for index, part in enumerate(budgets) if index not in drawn]


def _drawn(budgets: Sequence[BudgetPart]) -> set[int]:
    """Positions of the budgets that burn fastest."""
    order = sorted(range(len(budgets)), key=lambda i: -(budgets[i].burn or 0.0))
    return set(order[:MAX_PANELS])


def _row(part: BudgetPart) -> dict[str, str]:
    return {
        "name": words.expression(part.name),
        "allowed": units.percent(part.allowed, 3),
        "bad": units.NOTHING if part.sli is None else units.percent(1 - part.sli, 3),
        "burn": units.NOTHING if part.burn is None else _rate(part.burn),
        "spent": units.NOTHING if part.spent_by_time is None else units.percent(part.spent_by_time, 3),
        "alerts": ", ".join(alert.name for alert in part.alerts if alert.fired) or units.NOTHING,
    }


def _panel(part: BudgetPart) -> dict[str, Any]:
    return {
        "name": words.expression(part.name),
        "objective": words.expression(part.objective) if part.objective != part.name else "",
        "promise": (
            f"{units.percent(part.allowed, 3)} of {_ENTRIES[part.entry]}s in {_span(part.period_ns)} may be bad: "
            f"as time {units.duration(part.budget_ns)}"
        ),
        "reason": words.sentence(part.reason),
        "gauge": bad_share(part),
        "tank": spent(part),
        "tank_name": f"Budget of {_span(part.period_ns)}, spent by time",
        "facts": _facts(part),
        "chart": _chart(part),
        "policy": part.policy,
        "alerts": [_alert(alert) for alert in part.alerts],
        "windows": [_window(window) for window in part.windows],
        "unseen": _unseen(part),
        "class": "bad" if part.burn is not None and part.burn > 1 else "",
    }


def _unseen(part: BudgetPart) -> str:
    """One sentence in place of a table that would say "not observable" in each of its rows; else empty."""
    if not part.alerts or any(
        a.fired is not None or a.fired_alone_at_ns is not None or a.held_back for a in part.alerts
    ):
        return ""
    least = min(min(alert.long_ns, alert.short_ns) for alert in part.alerts)
    return (
        f"{units.many(len(part.alerts), 'alert')}, {NOT_OBSERVABLE}: the shortest window is {units.seconds(least)}, the run "
        f"covers {units.duration(part.covered_ns)}"
    )


def _span(period_ns: int) -> str:
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
        facts.append((f"Spent of {_span(part.period_ns)}, by time", units.percent(part.spent_by_time, 3)))
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


def _chart(part: BudgetPart) -> Chart | None:
    data = part.timeline
    if len(data.end_ns) < 2 or not any(data.burn):  # a rate of 0 throughout needs no picture
        return None
    alarms = [alarm for alarm in map(_alarm, part.alerts) if alarm is not None]
    known = [value for value in data.burn if value is not None]
    fired = ", ".join(f"{alarm.label} at {units.duration(alarm.at_ns)}" for alarm in alarms) or "no alert fired"
    label = f"Burn rate of {part.name} over the run, at most {_rate(max(known))}; {fired}"
    extra = ROW * len(alarms)
    wide = Canvas(1080, _WIDE_HEIGHT + extra, left=66, right=16, top=12)
    narrow = Canvas(420, _NARROW_HEIGHT + extra, left=58, right=10, top=12)
    legend = [Key("burn rate", "s-burn", "bar"), Key("above 1", "s-burn over", "bar")]
    if any(alarm.sure for alarm in alarms):
        legend.append(Key("alert fires", "alarm-key"))
    if not all(alarm.sure for alarm in alarms):
        legend.append(Key("might fire", "alarm-key", "dash"))
    note = "The dashed line is 1: there the budget lasts exactly its period."
    return chart("Burn rate over the run", note, legend, partial(burn_chart, data, alarms, label), wide, narrow)


def _alarm(alert: AlertPart) -> Alarm | None:
    """Where the alert is marked: it fires, or it does if the service had got nothing before the run."""
    name = f"{alert.name} ({alert.severity})"
    if alert.fired and alert.first_fired_at_ns is not None:
        return Alarm(alert.first_fired_at_ns, alert.resolved_at_ns, name)
    if alert.fired is None and alert.fired_alone_at_ns is not None:
        return Alarm(alert.fired_alone_at_ns, alert.fired_alone_at_ns, f"{name}?", sure=False)
    return None


def _alert(alert: AlertPart) -> dict[str, str]:
    span = units.seconds(alert.long_ns)
    if alert.short_ns != alert.long_ns:
        span += f" and {units.seconds(alert.short_ns)}"
    lasting = f" for {units.seconds(alert.after_ns)}" if alert.after_ns else ""
    return {
        "name": alert.name,
        "severity": alert.severity,
        "rule": f"{words.expression(alert.operator)} {alert.factor:.4g} over {span}{lasting}",
        "outcome": _fired(alert),
        "class": "bad" if alert.fired else "perhaps" if alert.fired_alone_at_ns is not None else "",
        "seen": _seen(alert),
        "detection": "never" if alert.detection_ns is None else units.duration(alert.detection_ns),
        "reason": words.sentence(alert.reason),
    }


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


def _window(window: BurnWindow) -> dict[str, str]:
    at = "" if window.max_at_ns is None else f" until {units.duration(window.max_at_ns)}"
    seen = NOT_OBSERVABLE if not window.observable else "no data" if window.max_burn is None else _rate(window.max_burn)
    return {"span": units.seconds(window.window_ns), "seen": seen, "at": at if window.observable else ""}
