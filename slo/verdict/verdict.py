"""PASS, FAIL, INCONCLUSIVE or INVALID: what all objectives, and the generator's own health, say of the run.

PASS needs every objective to pass, so several of them make a wrong PASS no likelier (an intersection-union test, Berger
1982). FAIL needs one, so their p values go through Holm's step-down first (1979): the chance that any kept promise is
called broken stays below 1 - confidence however many there are.

In an open loop each objective is judged at both ends of the generator's lateness (``slo/validity/bracket.py``); what is
certain of one objective is said, whatever is not certain of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np

from plimsoll.slo.objectives.goodput import Goodput, goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import BY_DISTANCE, ObjectiveVerdict, Outcome, judge_objective
from plimsoll.slo.objectives.sentence import decisive, named
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.share import Course, course
from plimsoll.slo.validity import bracket
from plimsoll.slo.validity.bracket import both_ends, lower_end, names_of
from plimsoll.slo.validity.validity import Validity
from plimsoll.slo.verdict.counts import texts_of

_RANK: tuple[Outcome, ...] = ("PASS", "INCONCLUSIVE", "FAIL", "INVALID")


class WholePromise(Protocol):
    """A promise that judges itself, such as an OpenSLO document's: one result for each of its objectives."""

    @property
    def limits(self) -> Sequence[Objective]:
        """The limits on times in it; empty where lateness adds nothing to it."""
        ...

    def judge(
        self, records: Records, confidence: sure.Probability, along: Course | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """Judge the measured rows, whose course may be known; the generator's health is not its business."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole: the worst outcome of any objective, or INVALID. ``objectives`` holds those over the run.

    ``by_lateness``: INVALID only because the generator's lateness decides an objective; the others stand.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    objectives: tuple[ObjectiveVerdict, ...]
    confidence: float
    by_lateness: bool = False

    @property
    def decides(self) -> ObjectiveVerdict | None:
        """The objective that decides the outcome; None where none does, as in a run that is INVALID."""
        return decisive(self.objectives, self.outcome)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """INVALID before FAIL before INCONCLUSIVE before PASS; PASS for none."""
    return max(outcomes, key=_RANK.index, default="PASS")


def judge(
    records: Records,
    objectives: Sequence[Objective],
    validity: Validity,
    confidence: sure.Probability = "0.95",
    slos: Sequence[WholePromise] = (),
    good: Goodput | None = None,
    along: Course | None = None,
) -> Verdict:
    """Judge the measured rows, whose goodput and course may be known.

    ``confidence`` is of each bound alone (one-sided), between 0 and 1.
    """
    along = course_of(records, validity) if along is None else along
    judged = holm(both(records, objectives, validity, confidence, slos, good, along), confidence, along.span_ns)

    def on_others(others: Records) -> tuple[ObjectiveVerdict, ...]:
        return holm(both(others, objectives, validity, confidence, slos), confidence, along.span_ns)

    judged = bracket.with_repeats_failed(judged, records, on_others)
    return concluded(judged, validity, confidence, partial(_without_objectives, records))


def concluded(
    judged: tuple[ObjectiveVerdict, ...],
    validity: Validity,
    confidence: sure.Probability,
    nothing: Callable[[], tuple[Outcome, tuple[str, ...]]],
) -> Verdict:
    """The whole, of the objectives at both ends and the generator; ``nothing``: what it is where none was given."""
    if validity.outcome == "INVALID":
        return Verdict("INVALID", validity.reasons, judged, float(exact(confidence)))
    outcomes = [v.outcome for v in judged]
    # What is certain is said: the FAIL of one objective, before the lateness that decides another.
    outcome = "FAIL" if "FAIL" in outcomes else worst(outcomes)
    told = ("INVALID",) if outcome == "INVALID" else ("FAIL", "INCONCLUSIVE", "INVALID")
    reasons = tuple(named(v) for v in judged if v.outcome in told)
    if not judged:
        outcome, reasons = nothing()
    by_lateness = outcome == "INVALID" and validity.unstable is None
    outcome, reasons = _unless_unstable(outcome, reasons, validity.unstable)
    return Verdict(outcome, reasons, judged, float(exact(confidence)), by_lateness)


def course_of(records: Records, validity: Validity) -> Course:
    """The course of a run, at either end of lateness: on a schedule or not, with a backlog that grew or not."""
    offered = validity.offered_per_s if validity.paced else 0.0
    return course(records, validity.arrivals is not None, validity.unstable is not None, offered)


def both(
    records: Records,
    objectives: Sequence[Objective],
    validity: Validity,
    confidence: sure.Probability,
    slos: Sequence[WholePromise] = (),
    good: Goodput | None = None,
    along: Course | None = None,
) -> list[ObjectiveVerdict]:
    """Every objective over the run at both ends of the generator's lateness, before ``holm``."""
    low = lower_end(records, validity.pooled) if validity.paced else None
    along = course_of(records, validity) if along is None else along
    others: list[tuple[Records, Course, Goodput]] = []
    limits = [one for one in objectives if one.scope == "request"]
    found = []
    known = goodput(records, objectives) if good is None else good

    def end(rows: Records) -> tuple[Course, Goodput]:
        if not others or others[0][0] is not rows:
            others[:] = [(rows, course_of(rows, validity), goodput(rows, objectives))]
        return replace(others[0][1]), others[0][2]  # without what the course keeps for one objective

    def judged(objective: Objective, rows: Records) -> ObjectiveVerdict:
        course, goods = (along, known) if rows is records else end(rows)
        return judge_objective(objective, rows, goods, confidence, course)

    for one in objectives:
        if one.scope == "run":
            names = names_of(one, limits)
            found.append(both_ends(names, judged(one, records), low, partial(judged, one)))
    other = partial(_one_of, confidence=confidence, laid=lambda rows: end(rows)[0])
    for slo in slos:
        names = frozenset(limit.indicator for limit in slo.limits)
        for place, upper in enumerate(slo.judge(records, confidence, along)):
            found.append(both_ends(names, upper, low, partial(other, slo, place)))
    return found


def _one_of(
    slo: WholePromise, place: int, records: Records, *, confidence: sure.Probability, laid: Callable[[Records], Course]
) -> ObjectiveVerdict:
    return slo.judge(records, confidence, laid(records))[place]


def holm(
    found: Sequence[ObjectiveVerdict], confidence: sure.Probability, span_ns: int = 0
) -> tuple[ObjectiveVerdict, ...]:
    """The same verdicts, but a FAIL stands only where it does after Holm's correction for the number of objectives.

    Facts about the run have no p value and stand as they are. ``span_ns``: how long the run took.
    """
    alpha = float(1 - exact(confidence))
    ordered = sorted((one.p_fail, place) for place, one in enumerate(found) if one.p_fail is not None)
    result = list(found)
    stands = True
    for step, (p, place) in enumerate(ordered):
        times = len(ordered) - step
        stands = stands and p * times <= alpha
        if found[place].outcome == "FAIL" and not stands:
            result[place] = _undecided(found[place], len(ordered), times, alpha, span_ns)
    return tuple(result)


def _undecided(one: ObjectiveVerdict, objectives: int, times: int, alpha: float, span_ns: int) -> ObjectiveVerdict:
    detail = (
        f"{one.detail.partition(BY_DISTANCE)[0]}; broken by its own bound (p = {one.p_fail:.2g}), but among "
        f"{objectives} objectives one in {objectives} looks so more often (Holm: p = "
        f"{min(1.0, (one.p_fail or 0.0) * times):.2g}): let the run go on"
    )
    needed = _needed(one, times, alpha)
    return replace(
        one,
        outcome="INCONCLUSIVE",
        n_needed=needed,
        needed_ns=round(needed / one.n * span_ns) if span_ns and one.n else None,
        detail=detail,
        by="",
        among=objectives,
    )


def _needed(one: ObjectiveVerdict, times: int, alpha: float) -> int:
    """How many would fail at a ``times`` smaller alpha, if share and memory hold."""
    limit = one.objective.allowed
    if one.bad is not None and limit is not None and one.bad > limit * one.n:
        worth = sure.deciding(Fraction(one.bad, one.n), limit, 1 - exact(repr(alpha / times)))
        if worth is not None:
            return max(math.ceil(worth * one.design_effect), one.n + 1)
    # Evidence grows with n: log p falls in proportion, and must fall by log(times) more.
    more = 1 + math.log(times) / -math.log(max(one.p_fail or 0.0, 1e-300))
    return math.ceil(one.n * more) + 1


def _unless_unstable(
    outcome: Outcome, reasons: tuple[str, ...], unstable: str | None
) -> tuple[Outcome, tuple[str, ...]]:
    """A FAIL stands: with a growing backlog a longer run only fails by more. Nothing else does.

    A PASS was kept by stopping in time, more requests would decide nothing, and percentiles without objectives are
    those of this length of run alone.
    """
    if unstable is None:
        return outcome, reasons
    return ("FAIL", (*reasons, unstable)) if outcome == "FAIL" else ("INVALID", (unstable,))


def _without_objectives(records: Records) -> tuple[Outcome, tuple[str, ...]]:
    """Nobody promised anything, but an endpoint that answered nothing at all has not passed."""
    measured = records.in_measure
    n = int(np.count_nonzero(measured))
    if n and not (records.ok & measured).any():
        texts = [(text, number) for text, number in texts_of(records, "error", measured) if text]
        return none_succeeded(n, max(texts, key=lambda one: one[1])[0] if texts else None)
    return NO_OBJECTIVE


#: The verdict where nobody promised anything and something succeeded.
NO_OBJECTIVE: tuple[Outcome, tuple[str, ...]] = ("PASS", ("no objective given",))


def none_succeeded(n: int, common: str | None) -> tuple[Outcome, tuple[str, ...]]:
    """The verdict where nobody promised anything and none of ``n`` succeeded; ``common``: their most common error."""
    return "FAIL", (f"not one of {n} requests succeeded; most often: {common or 'no error text'}",)
