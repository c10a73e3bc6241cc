"""A canary as a document: what was decided, by which look, and each step's quantities. Schema ``plimsoll.canary/1``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Cell, Column, Document, Row, Section, Sentence, Table
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Number, Result, Text, part
from plimsoll.reports.wording import units
from plimsoll.slo.comparison.canary import LOOKS, Canary, Look, Weighed
from plimsoll.slo.comparison.effects import signed

SCHEMA: Final = "plimsoll.canary/1"
Decided = Literal["PROMOTE", "ABORT", "INCONCLUSIVE", "INVALID", "INTERRUPTED"]
_SIGNS: Mapping[str, str] = {"PROMOTE": "PASS", "ABORT": "FAIL", "worse": "FAIL", "fine": "PASS", "open": "PENDING"}
_WORDS: Mapping[str, str] = {"worse": "worse", "fine": "no worse", "open": "can't tell"}


class QuantityPart(BaseModel, frozen=True, extra="forbid"):
    """One quantity at the last look of a step. ``interval``: of canary / base, or canary - base of a share; each end at
    the error that this look may spend. An infinite end is null.
    """

    quantity: str
    unit: str
    scale: Literal["ratio", "difference"]
    tolerance: float
    base: Number
    canary: Number
    interval: tuple[Number, Number]
    outcome: Literal["worse", "fine", "open"]


class StepPart(BaseModel, frozen=True, extra="forbid"):
    """One step; of one that was not begun there are no looks. Times in ns from t0; requests of base and canary."""

    share: float
    begin_ns: int
    end_ns: int
    looks: int
    requests: tuple[int, int]
    quantities: list[QuantityPart]


class CommandPart(BaseModel, frozen=True, extra="forbid"):
    """The user's command that the outcome ran: its exit code, and the end of what it said."""

    exit: int
    output: Text


class NeedsPart(BaseModel, frozen=True, extra="forbid"):
    """What more it would take to decide at the last step's split, if all goes on alike."""

    requests: int
    duration_ns: int


class CanaryReport(Result, frozen=True):
    """``canary.json``."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    name: Text
    outcome: Decided
    reasons: list[Text]
    confidence: float
    steps: list[StepPart]
    needs: NeedsPart | None = Field(default=None, description="null: it is decided, or nobody can say")
    command: CommandPart | None = None
    run: Text
    exit_code: int
    plimsoll: str = ""


def steps_of(found: Canary) -> list[StepPart]:
    """What was found in each step, as far as the run came."""
    looks: dict[int, Look] = {look.step: look for look in found.last}
    parts = []
    for number, step in enumerate(found.question.steps):
        look = looks.get(number)
        weighed = look.weighed if look is not None else ()
        counts = next(((len(one.pair.base), len(one.pair.canary)) for one in weighed), (0, 0))
        taken, quantities = 0 if look is None else look.look + 1, [_quantity(one) for one in weighed]
        parts.append(part(StepPart, step, looks=taken, requests=counts, quantities=quantities))
    return parts


def needs_of(found: Canary) -> NeedsPart | None:
    """Of an undecided run: what its slowest quantity would take at the last step's split."""
    if found.outcome != "INCONCLUSIVE":
        return None
    look = found.last[-1]
    times = [one.more for one in look.weighed if one.outcome == "open"]
    if not times or None in times:
        return None
    step = found.question.compared[look.step]
    more = max(time for time in times if time is not None) - 1
    pair = look.weighed[0].pair
    requests = math.ceil(more * (len(pair.base) + len(pair.canary)))
    return NeedsPart(requests=requests, duration_ns=math.ceil(more * (step.end_ns - step.begin_ns)))


def _quantity(one: Weighed) -> QuantityPart:
    base, canary, low, high = (value if math.isfinite(value) else None for value in (*one.values, *one.interval))
    told = {"quantity": str(one.quantity), "base": base, "canary": canary, "interval": (low, high)}
    return part(QuantityPart, one, one.quantity, **told)


def headline(report: CanaryReport) -> str:
    """What was decided, and by what."""
    told = report.reasons[0] if report.reasons else ""
    if report.needs is not None:
        told += (
            f". It needs about {units.count(report.needs.requests)} more requests, "
            f"{units.duration(report.needs.duration_ns, 2)} at this split"
        )
    return told


def document(report: CanaryReport) -> Document:
    """The whole decision."""
    said, command = headline(report), report.command
    lines = [(said, "bold"), *((text, "") for text in report.reasons[1:])]
    if command is not None:
        lines.append((f"the command of this outcome ended with exit code {command.exit}", ""))
    return Document(
        kind="canary",
        word=report.outcome,
        as_of=_SIGNS.get(report.outcome, report.outcome),
        name=report.name,
        headline=said,
        more=" ".join(report.reasons[1:]),
        lines=lines,
        blocks=_steps(report),
        card_last=True,
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def _steps(report: CanaryReport) -> Sequence[Block]:
    columns = [
        Column("canary", right=False, titled="Step", names=True),
        Column("quantity", right=False, titled="Quantity", names=True),
        *(Column(head) for head in ("base", "canary", "tolerated")),
        Column("canary against base", titled="Canary against base"),
        Column("", right=False),
    ]
    rows = [
        Row(
            [
                f"{units.percent(step.share)}, look {step.looks}" if place == 0 else "",
                one.quantity,
                *(units.human(value, one.unit) for value in (one.base, one.canary)),
                f"{100 * one.tolerance:g} {'pt' if one.scale == 'difference' else '%'}",
                f"{_effect(one.interval[0], one.scale, '−∞')} to {_effect(one.interval[1], one.scale, '∞')}",
                Cell(_WORDS[one.outcome], _SIGNS[one.outcome]),
            ]
        )
        for step in report.steps
        for place, one in enumerate(step.quantities)
    ]
    if not rows:
        return [Sentence("No look was taken: the run ended before.")]
    title = f"Each step at its last look of {LOOKS}"
    fine = "Each end of an interval is wrong in at most what this look may spend of the error."
    return [Section(title, [Table(columns, rows, title=title, fine=fine)])]


def _effect(value: Number, scale: Literal["ratio", "difference"], bound: str) -> str:
    return bound if value is None else signed(scale, float(value))
