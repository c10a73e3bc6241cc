"""The part of a report on overload: each step's goodput, whom it turned away and how fast, and what became of the
endpoint when the load had gone. Report key ``overload``, of a run that was asked what it ``retained``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Section, Sentence, table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number, Text
from plimsoll.reports.sections.events import phases_part
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.selector import PHASE, Condition, rows_of, selected
from plimsoll.slo.records.records import BoolArray, Records, Status
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.verdict import overload

TITLE = "Overload"


class StepPart(BaseModel, frozen=True, extra="forbid"):
    """A phase. Rates are per second of the time in which its requests were due."""

    name: Text
    offered_per_s: float
    good_per_s: float
    retained: float | None = Field(
        description="of the good requests per second of the best phase; null: too few came for a rate"
    )
    refused: float = Field(description="share of its requests")
    admitted: float | None = Field(description="good share of the others; null: all were turned away")
    refusal_ns: Number = Field(description="p99 of the time to turn one away; null: none was")
    classes: dict[Text, float] = Field(description="good share of each class of a mix")


class AfterPart(BaseModel, frozen=True, extra="forbid"):
    """When the load had gone: ``draining`` still broken with ever less that waits, ``metastable`` with as much."""

    state: Literal["recovered", "draining", "metastable", "unclear"]
    back_ns: Number = Field(description="until the objective was kept again; null: it was not")
    since_ns: int
    until_ns: int = Field(description="when the last request was due")
    waiting: tuple[int, int] = Field(description="requests in flight halfway and then")


class OverloadPart(BaseModel, frozen=True, extra="forbid"):
    """``after``: null where nothing was promised of the time after a phase."""

    steps: list[StepPart]
    after: AfterPart | None


def overload_part(run: JudgedRun) -> OverloadPart | None:
    """None: nobody asked what it retained."""
    judged, rows, after = run.judged.verdict.objectives, run.records.measured(), None
    if not any(one.objective.statistic == "retained" for one in judged) or not len(rows):
        return None
    ended = {one.name: one.to_ns for one in phases_part(run) or ()}
    for one in judged:
        if (since_ns := ended.get(getattr(one.objective, "after", ""))) is not None:
            state, until_ns, waiting = overload.aftermath(rows, one, since_ns)
            back_ns = number(one.observed, "ns")
            after = AfterPart(state=state, back_ns=back_ns, since_ns=since_ns, until_ns=until_ns, waiting=waiting)
    good = goodput(rows, run.judged.objectives).good
    found = overload.lots(PHASE, rows, good, np.ones(len(rows), np.bool_))
    best = max((lot.good_per_s for lot in found if lot.rated), default=0.0)
    return OverloadPart(steps=[_step(lot, best, rows, good) for lot in found], after=after)


def _step(lot: overload.Lot, best: float, records: Records, good: BoolArray) -> StepPart:
    rows = rows_of((Condition(PHASE, "=", (lot.name,)),), records)
    refused = rows & (records["status"] == Status.REFUSED)
    taken = int(rows.sum() - refused.sum())
    took = measure(catalogue()["latency"], selected(records.select(refused), (Condition("refused"),))).ordered
    return StepPart(
        name=lot.name,
        offered_per_s=lot.per_s,
        good_per_s=lot.good_per_s,
        retained=lot.good_per_s / best if best and lot.rated else None,
        refused=float(refused.sum() / rows.sum()),
        admitted=float(good[rows].sum() / taken) if taken else None,
        refusal_ns=number(quantile(took, "0.99"), "ns") if len(took) else None,
        classes={one.name: one.good_per_s for one in overload.lots("class", records, good, rows)},
    )


def sentence(after: AfterPart) -> str:
    """What became of it."""
    seen_ns, (halfway, end) = after.until_ns - after.since_ns, after.waiting
    still = f"still broken {units.duration(seen_ns, 2)} after the load had gone"
    if after.state == "recovered":
        back = f"{units.human(after.back_ns, 'ns')} later" if after.back_ns else "at once"
        return f"When the load had gone, it was within its objective {back}."
    if after.state == "unclear":
        return "Whether it came back when the load had gone is not shown. Send for longer then."
    if after.state == "metastable":
        return f"METASTABLE: {still}, and what waits got no less ({halfway} requests halfway, {end} then)."
    left = units.duration(end / max(halfway - end, 1) * seen_ns / 2, 2)
    return (
        f"It was {still}, with ever less that waits ({halfway} requests halfway, {end} then): {left} more at this pace."
    )


def blocks(found: OverloadPart, report: Any) -> list[Block]:
    """A row for each step, and what came after."""
    columns: list[tuple[Column, Callable[[StepPart], str]]] = [
        (Column("step", right=False, names=True), lambda one: one.name),
        (Column("offered/s"), lambda one: units.human(one.offered_per_s, "1")),
        (Column("good/s"), lambda one: units.human(one.good_per_s, "1")),
        (Column("retained"), lambda one: _share(one.retained)),
        (Column("turned away"), lambda one: _share(one.refused)),
        (
            Column("in (p99)", titled="Turned away in (p99)"),
            lambda one: units.human(one.refusal_ns, "ns") if one.refused else units.NOTHING,
        ),
        (Column("good of\nadmitted", folds=True), lambda one: _share(one.admitted)),
    ]
    names = dict.fromkeys(name for step in found.steps for name in step.classes)
    columns += [(Column(f"{name} good"), partial(_of_class, name)) for name in names]
    shown: list[Block] = [table(found.steps, *columns, title=TITLE)]
    shown += [] if found.after is None else [Sentence(sentence(found.after))]
    return [Section(TITLE, [Card(shown)])]


def _of_class(name: str, step: StepPart) -> str:
    return _share(step.classes.get(name))


def _share(value: float | None) -> str:
    return units.NOTHING if value is None else units.percent(value, 3)


SECTION = ReportSection("overload", 12, overload_part, blocks)
