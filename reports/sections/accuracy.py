"""The ``accuracy`` part of a report: how many answers were right, by each metric that the references allow.

The objectives on it are judged with all others, in the verdict; this part has the numbers whether or not any was given.
"""

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, On, Row, Section, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import part
from plimsoll.reports.wording import units
from plimsoll.slo.verdict.accuracy import Accuracy as Numbers


class AccuracyScore(BaseModel, frozen=True, extra="forbid"):
    """One metric over all samples. ``interval`` is exact, each bound at the report's confidence; null: a fact about
    this set.
    """

    value: float | None = Field(default=None, description="0 to 1; null: infinite, because an answer is missing")
    right: int | None = Field(default=None, description="samples, or words of token_match; of wer: null")
    of: int = Field(default=0, description="samples, or words")
    errors: int | None = Field(default=None, description="of wer: words substituted, left out or added")
    interval: tuple[float, float] | None = None


class Accuracy(BaseModel, frozen=True, extra="forbid"):
    """Answers against references. A sample that failed or has no answer is wrong by every metric."""

    samples: int = 0
    answered: int = 0
    scores: dict[str, AccuracyScore] = Field(default_factory=dict)


def accuracy_part(found: Numbers | None) -> Accuracy | None:
    """The part, or None for a run that kept no answers or had no references."""
    return None if found is None else part(Accuracy, found)


def blocks(part: Accuracy, _report: object) -> list[Block]:
    """A row for each metric of the answers."""
    answered = f"{units.count(part.answered)} of {units.many(part.samples, 'sample')} answered"
    rows = [Row(_cells(name, score)) for name, score in part.scores.items()]
    brief = [Column("metric", right=False, titled=f"Answers ({answered})"), Column(""), Column("", right=False)]
    full = [Column("Metric", right=False, names=True, code=True), Column("value"), Column("counted")]
    return [
        Table(brief, rows, title=f"Answers: {answered}", on=On.WRITTEN),
        Section(f"Answers against their references: {answered}", [Card([Table(full, rows)])], on=On.PAGE),
    ]


def _cells(name: str, score: AccuracyScore) -> list[str]:
    value = units.INFINITE if score.value is None else units.percent(score.value)
    if score.errors is not None:
        return [name, value, f"{units.many(score.errors, 'error')} in {units.many(score.of, 'word')}"]
    noun = "word" if score.interval is None else "sample"
    return [name, value, f"{units.count(score.right or 0)} of {units.many(score.of, noun)} right"]


SECTION = ReportSection("accuracy", 40, lambda run: accuracy_part(run.judged.accuracy), blocks)
