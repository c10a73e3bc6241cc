"""Error budgets in words: what each is, what was spent, and what its alerts would have done. Shared by the formats for people.

Shows what ``plimsoll.reports.sections.budgets`` holds and computes nothing.
"""

from __future__ import annotations

from plimsoll.reports.parts.parts import Number
from plimsoll.reports.sections.budgets import AlertPart, BudgetPart
from plimsoll.reports.sentences import words
from plimsoll.reports.wording import units
from plimsoll.slo.objectives.budgets.ledger import DAY_NS, HOUR_NS, MINUTE_NS, window_text


def title(part: BudgetPart) -> str:
    """What the budget is of."""
    text = words.expression(part.objective)
    known = part.name == part.objective or part.objective.startswith(f"slo({part.name})")
    return text if known else f"{part.name}: {text}"


def tally(part: BudgetPart) -> str:
    """``480 of 240,000 bad``."""
    bad = units.count(part.bad) if part.bad == round(part.bad) else units.significant(part.bad)
    of = units.count(part.n) if part.entry == "request" else units.many(part.n, part.entry)
    return f"{bad} of {of} bad"


def share(share: Number) -> str:
    """A good share, exactly enough to tell 99.99 % from 100 %."""
    return units.NOTHING if share is None else units.percent(share, 5)


def burn(burn: Number) -> str:
    """A burn rate."""
    return units.NOTHING if burn is None else units.significant(burn)


def span(value_ns: int) -> str:
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
            said.append(("fired", _fired(alert)))
        elif alert.fired is None and alert.fired_alone_at_ns is not None:
            said.append(("alone", _alone(alert)))
    quiet = [alert.name for alert in part.alerts if alert.fired is False]
    if quiet:
        said.append(("quiet", f"did not fire: {', '.join(quiet)}"))
    said += [("quiet", _held_back(alert)) for alert in part.alerts if alert.fired is None and alert.held_back]
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


def _fired(alert: AlertPart) -> str:
    at = units.NOTHING if alert.first_fired_at_ns is None else units.duration(alert.first_fired_at_ns)
    end = "to the end" if alert.resolved_at_ns is None else f"until {units.duration(alert.resolved_at_ns)}"
    return f"{_rule(alert)} would have fired at {at}, {end}"


def _alone(alert: AlertPart) -> str:
    at = units.NOTHING if alert.fired_alone_at_ns is None else units.duration(alert.fired_alone_at_ns)
    return f"{_rule(alert)}: not observable; fires at {at} on a service that got nothing before the run"


def _held_back(alert: AlertPart) -> str:
    short, long = window_text(alert.short_ns), window_text(alert.long_ns)
    return f"{alert.name} held back by its {short} window; its {long} window is not observable"
