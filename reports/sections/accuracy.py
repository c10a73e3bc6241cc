"""The ``accuracy`` part of a report: how many answers were right, by each metric that the references allow.

The objectives on it are judged with all others, in the verdict; this part has the numbers whether or not any was given.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import part
from plimsoll.slo.verdict.accuracy import Accuracy as Numbers


class AccuracyScore(BaseModel, frozen=True, extra="forbid"):
    """One metric over all samples. ``interval`` is exact, each bound at the report's confidence; null: a fact about this set."""

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
