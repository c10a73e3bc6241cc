"""An OpenSLO promise in plain words: what is counted, over which period, how much may go wrong, who is told.

Texts for ``plimsoll slo check``; nothing is read or judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.slo.metrics.indicator import entries
from plimsoll.slo.objectives.budgets.ledger import AlertRule
from plimsoll.slo.objectives.objective import show
from plimsoll.slo.objectives.openslo.counting import Component, Terms, Values
from plimsoll.slo.objectives.openslo.duration import span
from plimsoll.slo.objectives.openslo.promise import Slo, percent

_BURN = {">": "above", ">=": "at or above", "<": "below", "<=": "at or below"}


def good(part: Component, sliced: bool = False) -> str:
    """What a good event of a component does."""
    events = part.events
    if isinstance(events, Values) and not sliced:
        failed = "a failed request adds a bad one" if events.entry != "request" else "a failed one is bad"
        return f"have {events.limit}; {failed}"
    return "succeed" + (" with " + " and ".join(map(str, events.limits)) if events.limits else "")


def meaning(slo: Slo) -> str:
    """The promise as one sentence."""
    terms = slo.terms
    if len(terms.components) > 1:
        return _composite(terms)
    part, width = terms.components[0], span(terms.slice_ns)
    if terms.method == "Occurrences":
        return f"{percent(slo.target)} of all {entries(part.events.entry)} {good(part)}"
    if terms.method == "Timeslices":
        inside = f"{percent(part.slice_target)} or more of their requests {good(part, sliced=True)}"
        return f"{percent(slo.target)} of all slices of {width} are good: {inside}"
    inside = f"{percent(slo.target)} of requests {good(part, sliced=True)}"
    return f"on the mean of all slices of {width}, each with the same weight, {inside}"


def _composite(terms: Terms) -> str:
    sliced = terms.method != "Occurrences"
    said = []
    for part in terms.components:
        share = part.slice_target if terms.method == "Timeslices" else part.target
        what = "requests" if sliced else entries(part.events.entry)
        weight = f" (weight {float(part.weight):g})" if part.weight != 1 else ""
        said.append(f"{part.title}: {percent(share)} of {what} {good(part, sliced)}{weight}")
    parts, width, target = "; ".join(said), span(terms.slice_ns), percent(1 - terms.allowed)
    if terms.method == "Timeslices":
        return f"{target} of all slices of {width} are good, and a good one keeps every part: {parts}"
    if sliced:
        return f"parts share one budget, and their mean losses over slices of {width} add up: {parts}"
    return f"parts share one budget, and their burn rates add up: {parts}"


def budget(slo: Slo) -> str:
    """How much may go wrong: as a share and as time."""
    time = span(slo.budget_ns)
    if slo.terms.method == "Timeslices":
        count = int(slo.budget_ns // slo.terms.slice_ns)
        time = f"{count} bad slice{'s' * (count != 1)}, {time},"
    else:
        time = f"{time} of total failure"
    return f"{percent(1 - slo.target)}: {time} in {slo.period}"


def alert(rule: AlertRule) -> str:
    """One alert rule."""
    held = f" for {span(rule.after_ns)}" if rule.after_ns else ""
    return f"{rule.name} ({rule.severity}): burn rate over {span(rule.long_ns)} {_BURN[rule.operator]} {rule.factor:g}{held}"


def lines(slo: Slo) -> list[tuple[str, str]]:
    """(what, text) lines about an SLO."""
    found = [("promise", meaning(slo)), ("budget", budget(slo))]
    if slo.terms.slice_ns:
        how = {"exclude": "left out", "good": "counted as good", "bad": "counted as bad"}[slo.terms.empty]
        found.append(("empty slices", how))
    if slo.production_per_s is not None:
        found.append(("production", f"{slo.production_per_s:g} events/s"))
    return found + [("alert", alert(rule)) for rule in slo.rules]


def as_json(slo: Slo) -> Mapping[str, Any]:
    """The same for programs; times are nanoseconds."""
    return {
        "name": slo.name,
        "title": slo.title,
        "service": slo.service,
        "objective": str(slo.promise),
        "meaning": meaning(slo),
        "method": slo.terms.method,
        "target": float(slo.target),
        "target_text": show(float(slo.target), "ratio"),
        "period_ns": slo.period_ns,
        "period": slo.period,
        "budget_ns": float(slo.budget_ns),
        "slice_ns": slo.terms.slice_ns or None,
        "limits": [str(limit) for limit in slo.limits],
        "production_per_s": slo.production_per_s,
        "alerts": [
            {
                "name": rule.name,
                "severity": rule.severity,
                "window_ns": rule.long_ns,
                "operator": rule.operator,
                "factor": rule.factor,
                "after_ns": rule.after_ns,
            }
            for rule in slo.rules
        ],
    }
