"""What a shadow showed, or a run against the answers of another, as a document. Schema ``plimsoll.drift/1``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Cell, Column, Document, Row, Section, Sentence, Table, table
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Number, Outcome, Result, Text, part
from plimsoll.reports.wording import units
from plimsoll.slo.comparison.drift import Drift, Later
from plimsoll.slo.verdict.accuracy import Answer

SCHEMA: Final = "plimsoll.drift/1"
#: So much of an answer is shown, in characters.
_SHOWN = 160


Word = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "INTERRUPTED"]
Bounded = tuple[Number, Number, Number]


class ExamplePart(BaseModel, frozen=True, extra="forbid"):
    """A query whose answers differ, and how each begins. null: there is none; "...": it is no text."""

    query_id: int
    sample_ix: int
    reference: Text | None
    answer: Text | None


class DriftPart(BaseModel, frozen=True, extra="forbid"):
    """Answers in pairs. ``missing`` of the ``differing`` have none where the reference has one; ``unpaired``: queries
    without a reference that could be compared. ``interval``: of the share, each end alone at the confidence.
    """

    comparator: Text
    limit: float
    n: int
    differing: int
    missing: int
    unpaired: int
    observed: Number
    interval: tuple[float, float]
    outcome: Outcome
    n_needed: int | None = Field(description="null: no number of answers would decide; 0: it is decided")
    examples: list[ExamplePart]


class LaterPart(BaseModel, frozen=True, extra="forbid"):
    """How much later than the primary the shadow was, in ns, of the ``n`` queries that the primary answered: (value,
    lower bound, upper bound), null where it is infinite. ``failed`` of them the shadow did not answer.
    """

    indicator: str
    n: int
    failed: int
    unpaired: int
    p50: Bounded
    p90: Bounded
    p99: Bounded
    slower: tuple[float, float, float] = Field(description="the share of them, with its bounds")


class DriftReport(Result, frozen=True):
    """``drift.json``. ``primary``: the verdict on the run itself, which the shadow has no part in."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    name: Text
    kind: Literal["shadow", "reference"]
    outcome: Word
    reasons: list[Text]
    confidence: float
    primary: Outcome
    drift: DriftPart
    later: list[LaterPart] = Field(default=[])
    warnings: list[Text] = Field(default=[], description="what to know about the shadow's times, and its failures")
    run: Text
    reference: Text | None = Field(default=None, description="the run whose answers they are; null: the primary's")
    exit_code: int
    plimsoll: str = ""


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of ``drift.json``."""
    schema = DriftReport.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def shown(answer: Answer | None) -> str | None:
    """How an answer begins; None: there is none."""
    if answer is None or answer.text is None:
        return None if answer is None else "..."
    return answer.text if len(answer.text) <= _SHOWN else f"{answer.text[:_SHOWN]}..."


def _begins(text: str | None) -> str:
    """No answer and one without a word are two things."""
    return "no answer" if text is None else text if text.strip() else "(empty)"


def drift_part(found: Drift, comparator: str, limit: float, examples: Sequence[ExamplePart]) -> DriftPart:
    """The numbers of one test."""
    return part(
        DriftPart, found, found.test, comparator=comparator, limit=limit, examples=list(examples),
        observed=found.differing / found.n if found.n else None,
    )  # fmt: skip


def later_part(found: Later) -> LaterPart:
    """The numbers of one metric."""
    values = [[value if math.isfinite(value) else None for value in one] for one in found.quantiles]
    return part(LaterPart, found, **dict(zip(("p50", "p90", "p99"), values, strict=True)))


def said(drift: DriftPart) -> str:
    """How many differ, and what it shows."""
    if not drift.n:
        return "no two answers could be compared"
    low, high = drift.interval
    text = (
        f"{units.count(drift.differing)} of {units.count(drift.n)} answers differ, {units.percent(low, 3)} to "
        f"{units.percent(high, 3)}; {units.percent(drift.limit)} may"
    )
    if drift.outcome == "INCONCLUSIVE":
        text += (
            f". {units.count(drift.n_needed)} answers would decide" if drift.n_needed else ". No number would decide"
        )
    return text


def document(report: DriftReport) -> Document:
    """The whole comparison."""
    first, *rest = report.reasons
    return Document(
        kind=report.kind, word=report.outcome, as_of=report.outcome, name=report.name, headline=first,
        more=" ".join(rest), lines=[(first, "bold"), *((text, "") for text in rest)],
        blocks=[*_answers(report), *_later(report)], card_last=True, plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    )  # fmt: skip


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def _answers(report: DriftReport) -> Sequence[Block]:
    drift = report.drift
    heads = ("pairs", "differ", "share", f"each {100 * report.confidence:g} % sure", "allowed", "no pair")
    columns = [Column("answers", right=False, names=True), *map(Column, heads), Column("", right=False)]
    (low, high), word = drift.interval, drift.outcome
    cells: list[str | Cell] = [
        drift.comparator, units.count(drift.n), units.count(drift.differing),
        "—" if drift.observed is None else units.percent(float(drift.observed), 3),
        f"{units.percent(low, 3)} to {units.percent(high, 3)}", units.percent(drift.limit), units.count(drift.unpaired),
        Cell(word, "PENDING" if word == "INCONCLUSIVE" else word),
    ]  # fmt: skip
    of = "the primary" if report.kind == "shadow" else "the reference run"
    fine = f"No pair: {of} has no answer, or none that {drift.comparator} can read."
    if drift.missing:
        fine += f" {units.many(drift.missing, 'pair')} of those that differ lack the other answer."
    blocks: list[Block] = [Table(columns, [Row(cells)], title="Answers", notes=[fine])]
    if drift.examples:
        titled = ("the primary says", "the shadow says") if report.kind == "shadow" else ("the reference says", "now")
        head = [Column("query", names=True), *(Column(one, right=False) for one in titled)]
        rows = [Row([str(one.query_id), _begins(one.reference), _begins(one.answer)]) for one in drift.examples]
        blocks.append(Table(head, rows, title="Some that differ"))
    return [Section("Answers", blocks)]


def _later(report: DriftReport) -> Sequence[Block]:
    if report.kind != "shadow":
        return []
    shown = table(
        report.later,
        (Column("later by", right=False, names=True), lambda one: one.indicator),
        (Column("pairs"), lambda one: units.count(one.n)),
        (Column("p50"), lambda one: _ns(one.p50[0])),
        (Column("between"), lambda one: f"{_ns(one.p50[1], '−∞')} and {_ns(one.p50[2])}"),
        (Column("p90"), lambda one: _ns(one.p90[0])),
        (Column("p99"), lambda one: _ns(one.p99[0])),
        (Column("later"), lambda one: units.percent(one.slower[0], 3)),
        (Column("failed"), lambda one: units.count(one.failed)),
        (Column("no pair"), lambda one: units.count(one.unpaired)),
        title="Times",
        notes=["The shadow's time less the primary's, query by query; where the shadow failed: ∞."],
    )
    none = Sentence("No query was answered by the primary: nothing is paired.")
    return [Section("Times", [shown if report.later else none, *map(Sentence, report.warnings)])]


def _ns(value: Number, infinite: str = "∞") -> str:
    """A time with its sign."""
    if value is None:
        return infinite
    return "0" if not value else f"{'+' if value > 0 else '−'}{units.duration(abs(float(value)))}"
