"""``Slo``: one promise of an OpenSLO document, ready to be held against the records of a run.

It knows what counts, over which period, and which alerts watch it. It reads no file and draws nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from plimsoll.slo.metrics.indicator import entries
from plimsoll.slo.objectives.ledger import Account, AlertRule, Ledger
from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.openslo.counting import (
    Component,
    Terms,
    Values,
    by_slice,
    grid,
    slice_losses,
    slice_states,
    tally,
)
from plimsoll.slo.objectives.openslo.judging import evidence_of, judge
from plimsoll.slo.objectives.openslo.place import span
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.share import Course, course


@dataclass(frozen=True, slots=True)
class Promised:
    """What a verdict on an SLO is about; ``str()`` is ``slo(chat-ttft) >= 99.5%``."""

    indicator: str
    target: Fraction
    text: str
    statistic: str = "ratio"
    operator: Literal[">="] = ">="
    unit: str = "ratio"

    def __str__(self) -> str:
        return self.text

    @property
    def threshold(self) -> float:
        return float(self.target)

    @property
    def allowed(self) -> Fraction:
        """The bad share that the target leaves."""
        return 1 - self.target


def percent(share: Fraction) -> str:
    """A share exactly: ``99.95%``."""
    return f"{float(share * 100):.12g}%"


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective of an SLO document, or a whole composite.

    ``name``: the document's, with ``[i]`` where it has several objectives. ``period``: in words; ``period_ns``: its
    length, a month taken as 30 days. ``source``: file and object.
    """

    name: str
    title: str
    service: str
    source: str
    terms: Terms
    period: str
    period_ns: int
    rules: tuple[AlertRule, ...] = ()
    production_per_s: float | None = None
    description: str = ""

    @property
    def target(self) -> Fraction:
        """The good share promised: of a composite the strictest component's, which its burn is told against."""
        return 1 - self.terms.allowed

    @property
    def promise(self) -> Promised:
        return Promised(self.name, self.target, f"slo({self.name}) >= {percent(self.target)}")

    @property
    def limits(self) -> tuple[Objective, ...]:
        """The limits on single values or requests in it, each once."""
        return tuple(dict.fromkeys(limit for part in self.terms.components for limit in part.events.limits))

    @property
    def budget_ns(self) -> Fraction:
        """The budget as time: how long everything may be bad in one period."""
        return self.terms.allowed * self.period_ns

    def judge(
        self, records: Records, confidence: Probability = "0.95", along: Course | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """Judge the measured rows, whose course may be known: one verdict."""
        return (judge(self.terms, self.promise, records, confidence, along),)

    def ledger(self, records: Records, along: Course | None = None) -> Ledger:
        """What its budget is drawn from in this run, whose course may be known."""
        sliced = self.terms.method != "Occurrences"
        listed = [part.events.entry for part in self.terms.components if part.events.entry != "request"]
        return Ledger(
            name=self.name,
            objective=str(self.promise),
            target=self.target,
            period_ns=self.period_ns,
            entry="slice" if sliced else listed[0] if listed else "request",
            accounts=tuple(_accounts(self.terms, records, course(records) if along is None else along)),
            rules=self.rules,
            production_per_s=self.production_per_s,
        )


def _accounts(terms: Terms, records: Records, along: Course) -> Sequence[Account]:
    if terms.method == "Occurrences":
        found = []
        for part in terms.components:
            counted = tally(part.events, records)
            order = np.argsort(counted.at_ns, kind="stable")
            bad = counted.bad[order].astype(np.float64)
            shown = evidence_of(part, counted, along, records) if len(bad) else None
            seen, far = (None, None) if shown is None else (shown.seen, shown.far)
            found.append(Account(counted.at_ns[order], bad, part.allowed, part.weight, seen, far))
        return found
    slices = grid(records, terms.slice_ns)
    counts = tuple(by_slice(tally(part.events, records, sliced=True), slices) for part in terms.components)
    if terms.method == "Timeslices":
        used, worse = slice_states(terms, counts)
        return [Account(slices.end_ns[used], worse[used].astype(np.float64), terms.allowed)]
    found = []
    for part, one in zip(terms.components, counts, strict=True):
        used, loss = slice_losses(one, terms.empty)
        found.append(Account(slices.end_ns[used], loss[used], part.allowed, part.weight))
    return found


# -- in plain words, for `plimsoll slo check` -------------------------------------------------------------------------

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
    held = f" for {span(rule.after_ns)}" if rule.after_ns else ""
    burn = f"burn rate over {span(rule.long_ns)} {_BURN[rule.operator]} {rule.factor:g}{held}"
    return f"{rule.name} ({rule.severity}): {burn}"


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
