"""The ``accuracy`` part of a report: how many answers were right, by each metric that the references allow.

The objectives on it are judged with all others, in the verdict; this part has the numbers whether or not any was given.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from plimsoll.slo.objectives.objective import ACCURACY_SHARES
from plimsoll.slo.statistics.confidence import Probability, clopper_pearson
from plimsoll.slo.verdict.accuracy import Scores


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


def accuracy_part(scores: Scores | None, confidence: Probability) -> Accuracy | None:
    """The part, or None for a run that kept no answers or had no references."""
    if scores is None:
        return None
    return Accuracy(
        samples=len(scores),
        answered=int(scores.answered.sum()),
        scores={metric: _score(scores, metric, confidence) for metric in scores.metrics},
    )


def _score(scores: Scores, metric: str, confidence: Probability) -> AccuracyScore:
    observed = scores.observed(metric)
    value = observed if abs(observed) != float("inf") and observed == observed else None
    if metric in ACCURACY_SHARES:
        right, n = int(scores.right[metric].sum()), len(scores)
        interval = clopper_pearson(right, n, confidence, sides=1)
        return AccuracyScore(value=value, right=right, of=n, interval=interval)
    if metric == "token_match":
        return AccuracyScore(value=value, right=int(scores.matched.sum()), of=int(scores.places.sum()))
    return AccuracyScore(value=value, of=int(scores.words.sum()), errors=int(scores.errors.sum()))
