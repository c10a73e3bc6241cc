"""``judge_parts(ask, facts, promises)``: what ``plimsoll.slo.judge`` decides, of a run whose rows stay where they are.

``ask`` carries a question to every part (``plimsoll.slo.parts.part.Part.answer``) and brings back what each answers, as
bytes both ways. The judge is the same; only its evidence is asked for instead of read. docs/decisions/distributed.md
says what is exact and what is estimated. Raises ValueError for what can't be judged without rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.goodput import Goodput, Throughput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import (
    Evidence,
    ObjectiveVerdict,
    Outcome,
    beyond,
    fact_of,
    percentile_of,
    rate_of,
    ratio_of,
    statistic,
)
from plimsoll.slo.objectives.quantified import holm
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.health import health
from plimsoll.slo.parts.wire import Digest, Of, Question, merge
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import exact, quantile
from plimsoll.slo.statistics.share import bounds
from plimsoll.slo.validity import bracket
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity
from plimsoll.slo.verdict.counts import Counts
from plimsoll.slo.verdict.verdict import NO_OBJECTIVE, Verdict, concluded, none_succeeded

#: Stretches of time in which the generator's lateness is told.
STRETCHES = 4096

Send = Callable[[bytes], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Percentile:
    """Of one metric, with its bounds, each alone at the confidence; ``design``: so many values count as one."""

    value: float
    low: float
    high: float
    design: float


@dataclass(frozen=True, slots=True)
class JudgedParts:
    """A run in parts, judged, as ``plimsoll.slo.judge.Judged``; ``rows`` answers what else is asked."""

    validity: Validity
    verdict: Verdict
    goodput: Goodput
    throughput: Throughput
    counts: Counts
    rows: Rows

    def percentile(self, metric: str, p: str) -> Percentile | None:
        """A percentile of a metric over the whole run; None: it has no value."""
        measured = self.rows.measured(metric, judged=False)
        if not measured.n:
            return None
        indicator, laid = catalogue()[metric], self.rows.series(metric)
        low, high = bounds(
            laid,
            exact(p),
            repr(self.verdict.confidence),
            upward=indicator.better == "lower",
            scaled=indicator.unit in ("ns", "per_s"),
            floor=-math.inf if indicator.signed else 0.0,
        )
        return Percentile(quantile(measured.ordered, p), low, high, laid.memory.design)

    def histogram(self, metric: str) -> tuple[FloatArray, IntArray]:
        """(where each bucket begins, how many values are in it), ascending; a bucket is 0.1 % of a value wide."""
        _, ordered = self.rows.order(self.rows.of_name(metric))
        return ordered.lows, ordered.counts


def judge_parts(send: Send, facts: GeneratorFacts, promises: Promises | None = None) -> JudgedParts:
    """Judge a run by its parts. ``facts``: of its generator as a whole."""
    promises = Promises() if promises is None else promises

    def ask(question: Question) -> Digest:
        return merge([Digest.from_bytes(answer) for answer in send(question.to_bytes())])

    objectives = promises.objectives
    run = Rows(ask, Of(), objectives)
    _refuse(run.tally, promises)
    promised = any(one.scope == "run" for one in objectives)
    validity = health(run, facts, promised)
    offered = validity.offered_per_s if validity.paced else 0.0
    rows = partial(Rows, limits=objectives, planned=validity.arrivals is not None)
    rows = partial(rows, growing=validity.unstable is not None, offered_per_s=offered)
    judge = _Judge(ask, rows, promises)
    run = rows(ask, Of())
    verdict = concluded(judge.whole(run, validity), validity, promises.confidence, lambda: _nothing(run.counts))
    return JudgedParts(validity, verdict, run.goodput, run.throughput, run.counts, run)


def unjudgeable(promises: Promises) -> list[str]:
    """Which promises need rows."""
    found = ["OpenSLO documents"] if promises.slos else []
    whole = [one for one in promises.objectives if one.of_all and one.statistic != "accuracy"]
    judged = [one for one in whole if judgeable(one.indicator)]
    return [*found, *(str(one) for one in promises.objectives if one not in judged)]


def _refuse(told: Digest, promises: Promises) -> None:
    """What only rows can tell, all at once."""
    found = unjudgeable(promises)
    found += ["sessions of speech"] if told.whole("+live") else []
    found += ["queries of several samples"] if told.whole("+together") else []
    if found:
        raise ValueError(f"not judged where rows stay with the agents: {'; '.join(found)}. Bring the rows home")


def judgeable(name: str) -> bool:
    """Parts can tell of this metric."""
    indicator = catalogue().get(name)
    return name != "frame_missed" and (indicator is None or indicator.scope in ("request", "gap"))


def _nothing(counts: Counts) -> tuple[Outcome, tuple[str, ...]]:
    if counts.measured and not counts.ok:
        return none_succeeded(counts.measured, counts.errors[0].text if counts.errors else None)
    return NO_OBJECTIVE


@dataclass(frozen=True, slots=True)
class _Low:
    """The lower end of lateness: whether failures are doubtful, and how much any measured request may have from it."""

    doubtful: bool
    reach_ns: int


class _Judge:
    """Judges objectives on rows of all parts, at both ends of the generator's lateness."""

    def __init__(self, ask: Callable[[Question], Digest], rows: Callable[..., Rows], promises: Promises) -> None:
        self._ask, self._rows = ask, rows
        self._confidence = promises.confidence
        self._limits = [one for one in promises.objectives if one.scope == "request"]
        self._over_run = [one for one in promises.objectives if one.scope == "run"]
        self._made: dict[Of, Rows] = {}

    def whole(self, run: Rows, validity: Validity) -> tuple[ObjectiveVerdict, ...]:
        """Every objective over the run, after Holm's correction, and what it were if repeats had failed."""
        self._made[run.of] = run
        span = run.course.span_ns
        found = holm(self._both(validity, again=False), self._confidence, span)
        repeated = run.tally.whole("+repeated")
        if not repeated:
            return found
        return bracket.said_of_repeats(found, holm(self._both(validity, again=True), self._confidence, span), repeated)

    def _both(self, validity: Validity, again: bool) -> list[ObjectiveVerdict]:
        if not self._over_run:
            return []
        upper = self._of(Of(again=again))
        low = self._low(again) if validity.paced else None
        found = []
        for one in self._over_run:
            high = self._judged(one, upper)
            end = bracket.touched(bracket.names_of(one, self._limits))
            if low is None or (end == "failures" and not low.doubtful):
                found.append(high)
            elif end == "unordered":
                found.append(bracket.unordered(high, low.reach_ns))
            else:
                lower = self._judged(one, self._of(Of(end=end, again=again)))
                found.append(bracket.combined(high, lower, low.reach_ns))
        return found

    def _of(self, of: Of) -> Rows:
        if of not in self._made:
            self._made[of] = self._rows(self._ask, of)
        return self._made[of]

    def _low(self, again: bool) -> _Low | None:
        """Tell every part how late the generator was as a whole, and when; None: it never was."""
        told = self._ask(Question("late", Of(again=again)))
        if not told.whole(">own"):
            return None
        edges = np.array([told["<first"][0], told[">last"][0], STRETCHES])
        heard = self._ask(Question("late", Of(again=again), {"edges": edges}))
        stretch = np.cumsum(heard[">busy"] == 0)
        upto, most = np.zeros(STRETCHES, np.int64), 0
        for i, (own, mine) in enumerate(zip(heard[">own"].tolist(), stretch.tolist(), strict=True)):
            most = own if i and mine != stretch[i - 1] else max(most, own)
            upto[i] = most
        during = np.zeros(int(stretch[-1]) + 1, np.int64)
        np.maximum.at(during, stretch, heard[">own"])
        late = np.stack([upto, during[stretch]])
        ends = self._ask(Question("end", Of(again=again), {"edges": edges, "late": late}))
        return _Low(bool(ends.whole("+doubtful")), int(ends[">reach"][0]))

    def _judged(self, objective: Objective, rows: Rows) -> ObjectiveVerdict:
        """As ``plimsoll.slo.objectives.objective_verdict.judge_objective``."""
        told, confidence = rows.tally, self._confidence
        if objective.statistic == "ratio":
            return self._ratio(objective, rows)
        if objective.statistic == "rate":
            counting = bool(told.whole("+counting"))
            return rate_of(objective, rows.throughput, rows.goodput, counting, told.whole("+failed"))
        if objective.quantile is None:
            measured = rows.measured(objective.indicator)
            found = fact_of(objective, measured, confidence)
        else:
            known = rows.evidence(objective)
            measured = known.measured if isinstance(known, Evidence) else known
            found = percentile_of(objective, known, objective.quantile, confidence, rows.course)
        if not measured.n:
            return found
        alone = rows.alone(measured, objective.indicator)
        if alone is None:
            return replace(found, failed=0)
        failed = rows.failing(objective.indicator, beyond(objective) if objective.quantile is not None else None)
        return replace(found, failed=failed, observed_ok=statistic(objective, alone) if alone.n else None)

    def _ratio(self, objective: Objective, rows: Rows) -> ObjectiveVerdict:
        good, far = rows.goodput, None
        if objective.indicator != "good" or not good.attainment or not good.n:
            seen = rows.shares(objective.indicator)
        else:
            laid, failed = rows.severity()
            seen = laid.counted(good.n - int(rows.tally["+good"][0]), None, failed)
            if all(one.objective.unit in ("ns", "per_s") for one in good.attainment):
                far = Distance(laid.entries.ordered, laid.memory)
        return ratio_of(objective, seen, far, rows.tally.whole("+failed"), self._confidence, rows.course)
