"""The part of a report on overload: each step's goodput, whom it turned away and how fast, and what became of the
endpoint when the load had gone. Report key ``overload``, of a run that was asked what it ``retained``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Section, Sentence, table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.reports.sections.events import phases_part
from plimsoll.reports.wording import units
from plimsoll.slo.verdict import overload

TITLE = "Overload"


class StepPart(BaseModel, frozen=True, extra="forbid"):
    """A phase. Rates are per second of the time in which its requests were due."""

    name: Text
    offered_per_s: float
    good_per_s: float
    retained: float | None = Field(description="of the good requests per second of the best phase")
    refused: float = Field(description="share of its requests")
    admitted: float | None = Field(description="good share of the others; null: all were turned away")
    refusal_ns: Number = Field(description="p99 of the time to turn one away; null: none was")
    classes: dict[Text, float] = Field(description="good share of each class of a mix")


class AfterPart(BaseModel, frozen=True, extra="forbid"):
    """When the load had gone: ``draining`` still broken with ever less that waits, ``metastable`` with as much."""

    state: Literal["recovered", "draining", "metastable", "unclear"]
    objective: Text
    back_ns: Number = Field(description="until it was kept again; null: it was not")
    bounds_ns: tuple[Number, Number]
    since_ns: int
    until_ns: int = Field(description="the last request was due")
    waiting: tuple[int, int] = Field(description="requests in flight halfway and then")


class OverloadPart(BaseModel, frozen=True, extra="forbid"):
    """``after``: null where nothing was promised of the time after a phase."""

    steps: list[StepPart]
    after: AfterPart | None


def overload_part(run: JudgedRun) -> OverloadPart | None:
    """None: nobody asked what it retained."""
    judged = run.judged.verdict.objectives
    if not any(one.objective.statistic == "retained" for one in judged) or not run.records.in_measure.any():
        return None
    found = overload.steps(run.records, run.judged.objectives)
    ended = {one.name: one.to_ns for one in phases_part(run) or () if one.to_ns is not None}
    after = None
    for one in judged:
        since_ns = ended.get(getattr(one.objective, "after", ""))
        if one.objective.statistic == "recovered" and since_ns is not None and one.n:
            seen = overload.aftermath(run.records, one, since_ns)
            ends = tuple(number(end, "ns") for end in seen.bounds_ns)
            after = part(AfterPart, seen, objective=one.text, bounds_ns=ends)
    return part(OverloadPart, steps=[part(StepPart, one) for one in found], after=after)


def sentence(after: AfterPart) -> str:
    """What became of it."""
    seen, (halfway, end) = units.duration(after.until_ns - after.since_ns, 2), after.waiting
    if after.state == "recovered":
        back = units.human(after.back_ns, "ns")
        back = "at once" if not after.back_ns else f"{back} later"
        low, high = (units.human(one, "ns") for one in after.bounds_ns)
        return f"When the load had gone, it was within its objective {back} (shown: {low} to {high})."
    if after.state == "unclear":
        return f"Whether it came back in the {seen} after the load is not shown. Send for longer after it."
    still = f"still broken {seen} after the load had gone"
    if after.state == "metastable":
        return f"METASTABLE: {still}, and what waits got no less ({halfway} requests halfway, {end} then)."
    left = units.duration(end / max(halfway - end, 1) * (after.until_ns - after.since_ns) / 2, 2)
    return (
        f"It was {still}, but what waits gets less ({halfway} requests halfway, {end} then): at this pace for {left} "
        "more. Send for longer after it."
    )


def blocks(found: OverloadPart, report: Any) -> list[Block]:
    """A row for each step, and what came after."""
    columns: list[tuple[Column, Callable[[StepPart], str]]] = [
        (Column("step", right=False, names=True), lambda one: one.name),
        (Column("offered/s"), lambda one: units.human(one.offered_per_s, "1")),
        (Column("good/s"), lambda one: units.human(one.good_per_s, "1")),
        (Column("retained"), lambda one: _share(one.retained)),
        (Column("turned away"), lambda one: units.percent(one.refused, 3)),
        (Column("in (p99)", titled="Turned away in (p99)"), lambda one: _time(one.refusal_ns)),
        (Column("good of\nadmitted", folds=True), lambda one: _share(one.admitted)),
    ]
    names = dict.fromkeys(name for step in found.steps for name in step.classes)
    columns += [(Column(f"{name} good"), partial(_of_class, name)) for name in names]
    shown: list[Block] = [table(found.steps, *columns, title=TITLE)]
    shown += [Sentence(sentence(found.after))] if found.after is not None else []
    return [Section(TITLE, [Card(shown)])]


def _of_class(name: str, step: StepPart) -> str:
    return _share(step.classes.get(name))


def _share(value: float | None) -> str:
    return units.NOTHING if value is None else units.percent(value, 3)


def _time(value: Number) -> str:
    return units.NOTHING if value is None else units.human(value, "ns")


SECTION = ReportSection("overload", 12, overload_part, blocks)
