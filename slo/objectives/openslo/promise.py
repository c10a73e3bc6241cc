"""``Slo``: one promise of an OpenSLO document, ready to be held against the records of a run.

It knows what counts, over which period, and which alerts watch it. It reads no file and draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.objectives.budgets.ledger import Account, AlertRule, Ledger
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.openslo.counting import Terms, by_slice, grid, slice_losses, slice_states, tally
from plimsoll.slo.objectives.openslo.judging import evidence_of, judge
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.share import Course, course


@dataclass(frozen=True, slots=True)
class Promised:
    """What a verdict on an SLO is about; ``str()`` is ``slo(chat-ttft) >= 99.5%``."""

    indicator: str
    target: Fraction
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def statistic(self) -> str:
        """A share."""
        return "ratio"

    @property
    def operator(self) -> Literal[">="]:
        """Of the good share more is better."""
        return ">="

    @property
    def threshold(self) -> float:
        """The target, 0..1."""
        return float(self.target)

    @property
    def unit(self) -> str:
        """``ratio``."""
        return "ratio"

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
        """What the verdict is about."""
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
