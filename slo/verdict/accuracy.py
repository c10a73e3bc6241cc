"""Were the answers right? Outputs against references, sample by sample, and objectives on them.

``exact_match``: the same text but for white space around it; of a tensor, the same numbers. ``token_match``: the share
of places, word by word, at which output and reference have the same word; the longer one has that many places. ``wer``:
word errors (substituted, left out, added) over the words of all references; words are split at white space and nothing
is folded. ``top1``: the place of a tensor's largest number, or the one whole number that it holds, or the text, is the
expected label.

A sample that failed or has no output is wrong; with one, the word error rate is infinite. Nothing about requests or
files is known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.metrics.word_errors import fewest_edits
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import ACCURACY_SHARES, Objective, show
from plimsoll.slo.objectives.objective_verdict import (
    ObjectiveVerdict,
    as_observed,
    by_test,
    judge_words,
    no_data,
    not_compared,
)
from plimsoll.slo.objectives.quantified import quantified
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.share import Course, share_test


@dataclass(frozen=True, slots=True)
class Answer:
    """One output: a text, or a tensor's numbers (flat, row by row, with its shape)."""

    text: str | None = None
    numbers: npt.NDArray[Any] | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """Of each sample: ``answered``, and by metric whether it is ``right`` (``exact_match``, ``top1``).

    ``matched`` of ``places`` tokens, and word ``errors`` against ``words`` of the reference, of texts only (0
    elsewhere; of an answer that is missing every place is wrong). ``metrics``: those that the references allow.
    ``keys`` int64[samples, 2]: the query and the place in it of each, where they are known. ``parts``: those that it
    was joined of.
    """

    metrics: tuple[str, ...]
    answered: BoolArray
    right: dict[str, BoolArray]
    matched: IntArray
    places: IntArray
    errors: IntArray
    words: IntArray
    keys: IntArray | None = None
    parts: tuple[Scores, ...] = ()

    def __len__(self) -> int:
        return len(self.answered)

    def of_rows(self, records: Records) -> Scores:
        """Those of the samples of these records; of none where nobody knows which they are."""
        if theirs := [part for one in self.parts if len(part := one.of_rows(records))]:
            return joined(theirs)
        rows = np.stack([records["query_id"], records["sample_ix"]], axis=1)
        keys = np.full((len(self), 2), -1) if self.keys is None else self.keys
        places = int(max(keys[:, 1].max(initial=0), rows[:, 1].max(initial=0))) + 2
        among = np.isin(keys @ [places, 1], rows @ [places, 1])
        right = {name: right[among] for name, right in self.right.items()}
        columns = {name: getattr(self, name)[among] for name in ("matched", "places", "errors", "words")}
        return Scores(self.metrics, self.answered[among], right, **columns, keys=keys[among])

    def observed(self, metric: str) -> float:
        """The metric over all samples; NaN where there is nothing, +inf for a word error rate that lacks an output."""
        if metric not in self.metrics or not len(self):
            return float("nan")
        if metric in ACCURACY_SHARES:
            return float(self.right[metric].mean())
        if metric == "token_match":
            return float(self.matched.sum() / self.places.sum()) if self.places.sum() else float("nan")
        if not self.answered.all():
            return float("inf")
        return float(self.errors.sum() / self.words.sum()) if self.words.sum() else float("nan")


def joined(parts: Sequence[Scores]) -> Scores:
    """All samples of several sources, by the metrics that the references of all of them allow."""
    if len(parts) == 1:
        return parts[0]
    metrics = tuple(name for name in parts[0].metrics if all(name in one.metrics for one in parts))
    right = {name: np.concatenate([one.right[name] for one in parts]) for name in parts[0].right}
    names = ("matched", "places", "errors", "words", "keys")
    columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    return Scores(metrics, np.concatenate([one.answered for one in parts]), right, **columns, parts=tuple(parts))


def score(answers: Sequence[Answer | None], expected: Sequence[Any], keys: IntArray | None = None) -> Scores:
    """Compare each answer (None: it failed or is missing) with what is expected: a text, a label, or numbers."""
    n = len(expected)
    texts = [isinstance(one, str) for one in expected]
    labels = [isinstance(one, int | float) and not isinstance(one, bool) for one in expected]
    counts = np.zeros((4, n), np.int64)
    exact, top = np.zeros(n, bool), np.zeros(n, bool)
    for i, (answer, want) in enumerate(zip(answers, expected, strict=True)):
        if texts[i]:
            counts[:, i] = _words(None if answer is None else answer.text, want)
        if answer is not None:
            exact[i] = _exact(answer, want)
            top[i] = _label(answer, want) if labels[i] or texts[i] else False
    metrics = ["exact_match"] if n else []
    metrics += ["top1"] if n and all(labels) else []
    metrics += ["token_match", "wer"] if n and all(texts) else []
    matched, places, errors, words = counts
    answered = np.array([answer is not None for answer in answers], bool)
    return Scores(tuple(metrics), answered, {"exact_match": exact, "top1": top}, matched, places, errors, words, keys)


@dataclass(frozen=True, slots=True)
class Score:
    """One metric over all samples: ``value`` 0 to 1, None where an answer is missing or nothing is known; ``right``
    ``of`` so many samples, or words of token_match; of wer ``errors`` instead. ``interval`` is exact; None: a fact
    about this set.
    """

    value: float | None
    of: int
    right: int | None = None
    errors: int | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Answers against references, by each metric that the references allow."""

    samples: int
    answered: int
    scores: dict[str, Score]


def accuracy(scores: Scores | None, confidence: sure.Probability) -> Accuracy | None:
    """The numbers, whether or not an objective is on them; None for a run that kept no answers or had no references."""
    if scores is None:
        return None
    found = {metric: _of_metric(scores, metric, confidence) for metric in scores.metrics}
    return Accuracy(len(scores), int(scores.answered.sum()), found)


def _of_metric(scores: Scores, metric: str, confidence: sure.Probability) -> Score:
    observed = scores.observed(metric)
    value = observed if math.isfinite(observed) else None
    if metric in ACCURACY_SHARES:
        right, n = int(scores.right[metric].sum()), len(scores)
        return Score(value, n, right, interval=sure.clopper_pearson(right, n, confidence, sides=1))
    if metric == "token_match":
        return Score(value, int(scores.places.sum()), int(scores.matched.sum()))
    return Score(value, int(scores.words.sum()), errors=int(scores.errors.sum()))


def _exact(answer: Answer, want: Any) -> bool:
    if answer.numbers is None:
        return answer.text is not None and answer.text.strip() == str(want).strip()
    if isinstance(want, str):
        return False
    wanted = np.asarray(want).ravel()
    return len(wanted) == len(answer.numbers) and bool((answer.numbers == wanted).all())


def _label(answer: Answer, want: Any) -> bool:
    """The predicted class: of several rows the first row's."""
    if answer.numbers is None:
        return answer.text is not None and answer.text.strip() == str(want).strip()
    numbers = answer.numbers
    if not len(numbers) or isinstance(want, str):
        return False
    row = numbers[: answer.shape[-1]] if len(answer.shape) > 1 else numbers
    if len(row) == 1:
        return bool(row[0] == want)
    return bool(np.isfinite(row.astype(np.float64)).all()) and int(np.argmax(row)) == want


def _words(text: str | None, want: str) -> tuple[int, int, int, int]:
    """(matching places, places, word errors, words of the reference)."""
    reference = want.split()
    if text is None:
        return 0, len(reference), len(reference), len(reference)
    output = text.split()
    same = sum(a == b for a, b in zip(output, reference, strict=False))
    return same, max(len(output), len(reference)), fewest_edits(reference, output), len(reference)


@dataclass(frozen=True, slots=True)
class Compared:
    """Objectives on accuracy and the scores that they are judged by; None: no answers were kept."""

    objectives: tuple[Objective, ...]
    scores: Scores | None

    @property
    def limits(self) -> tuple[Objective, ...]:
        """None on times: when an answer came does not make it right."""
        return ()

    def judge(
        self, records: Records, confidence: sure.Probability, along: Course | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """One verdict for each objective, and each value of its label. Where there are no scores, a run of speech has
        counted words.
        """

        def judged(one: Objective) -> ObjectiveVerdict:
            part = selected(records, one.where)
            if self.scores is None:
                return judge_words(one, part, confidence)
            return judge_accuracy(one, self.scores.of_rows(part) if one.where else self.scores, confidence)

        return tuple(
            found
            for one in self.objectives
            for found in (quantified(one, records, judged, confidence) if one.each else [judged(one)])
        )


def split(objectives: Sequence[Objective], scores: Scores | None) -> tuple[tuple[Objective, ...], tuple[Compared, ...]]:
    """The objectives on time and success, and those on accuracy with what they are judged by."""
    compared = tuple(one for one in objectives if one.statistic == "accuracy")
    rest = tuple(one for one in objectives if one.statistic != "accuracy")
    return rest, (Compared(compared, scores),) if compared else ()


def judge_accuracy(objective: Objective, scores: Scores | None, confidence: sure.Probability) -> ObjectiveVerdict:
    """A share of right answers by its exact bounds; token match and word errors as observed in this set."""
    if scores is None or not (len(scores) or objective.where):
        return not_compared(objective)
    if not len(scores):
        return no_data(
            objective, f"no sample is {selector.text(objective.where)}. Change the selector, or measure some"
        )
    metric = objective.indicator
    observed = scores.observed(metric)
    n, missing = len(scores), int((~scores.answered).sum())
    if observed != observed:
        allowed = f"the references allow {', '.join(scores.metrics)} and not {metric}"
        return no_data(objective, f"{allowed}. Give texts for token_match and wer, labels for top1")
    lacking = f", {missing} of them without an output" if missing else ""
    if metric not in ACCURACY_SHARES:
        detail = f"{show(observed, 'ratio')} over {n} samples{lacking}; judged as observed"
        return as_observed(objective, observed, (observed, observed), n, detail, failed=missing)
    test = share_test(~scores.right[metric], 1 - objective.exact_threshold, confidence)
    low, high = 1 - test.interval[1], 1 - test.interval[0]
    detail = f"{n - test.bad} of {n} samples are right{lacking}; {show(low, 'ratio')} to {show(high, 'ratio')}"
    if test.outcome == "INCONCLUSIVE":
        detail += f"; {test.n_needed} samples would decide" if test.n_needed else "; no number of samples would decide"
    return by_test(objective, test, observed, (low, high), detail, failed=missing)
