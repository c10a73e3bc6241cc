"""PASS, FAIL, INCONCLUSIVE or INVALID: what all objectives, and the generator's own health, say of the run.

PASS needs every objective to pass, so several of them make a wrong PASS no likelier (an intersection-union test, Berger
1982). FAIL needs one, so their p values go through Holm's step-down first (1979): the chance that any kept promise is
called broken stays below 1 - confidence however many there are.

In an open loop each objective is judged at both ends of the generator's lateness (``slo/validity/bracket.py``); what is
certain of one objective is said, whatever is not certain of another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.goodput import Goodput, goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, judge_objective, no_data
from plimsoll.slo.objectives.quantified import holm, quantified, worst
from plimsoll.slo.objectives.selector import selected, split
from plimsoll.slo.objectives.sentence import decisive, named
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.share import Course, course
from plimsoll.slo.validity import bracket
from plimsoll.slo.validity.bracket import both_ends, lower_end, names_of
from plimsoll.slo.validity.mixed import of_rows
from plimsoll.slo.validity.validity import Validity
from plimsoll.slo.verdict.counts import MOST_ERRORS, alike, errors_of


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


def course_of(records: Records, validity: Validity, share: float = 1.0) -> Course:
    """The course of a run, at either end of lateness: on a schedule or not, with a backlog that grew or not.

    ``share`` of the run's requests are these records.
    """
    offered = validity.offered_per_s * share if validity.paced else 0.0
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
        if objective.where:
            part = selected(rows, objective.where)
            return judge_part(objective, part, rows, *of_part(part, rows, objectives, validity), confidence)
        course, goods = (along, known) if rows is records else end(rows)
        return judge_objective(objective, rows, goods, confidence, course)

    def ends(one: Objective) -> ObjectiveVerdict:
        return both_ends(names_of(one, limits), judged(one, records), low, partial(judged, one))

    for one in objectives:
        if one.scope == "run":
            found += quantified(one, records, ends, confidence) if one.each else [ends(one)]
    other = partial(_one_of, confidence=confidence, laid=lambda rows: end(rows)[0])
    for slo in slos:
        names = frozenset(limit.indicator for limit in slo.limits)
        for place, upper in enumerate(slo.judge(records, confidence, along)):
            found.append(both_ends(names, upper, low, partial(other, slo, place)))
    return found


def of_part(
    part: Records, records: Records, objectives: Sequence[Objective], validity: Validity
) -> tuple[Course, Goodput]:
    """The course and the goodput of some rows of records, found once. They come at their share of the rate."""
    if "of part" not in part.kept:
        records, validity = of_rows(part, records, validity)
        share = float(part.in_measure.sum()) / max(1, int(records.in_measure.sum()))
        part.kept["of part"] = course_of(part, validity, share), goodput(part, objectives)
    found: tuple[Course, Goodput] = part.kept["of part"]
    return found


def judge_part(
    objective: Objective,
    part: Records,
    records: Records,
    along: Course,
    good: Goodput,
    confidence: sure.Probability,
) -> ObjectiveVerdict:
    """One objective on the rows that it is about; without any, no data, which is never a pass."""
    if good.n:
        return judge_objective(objective, part, good, confidence, along)
    known = []
    for label in objective.labels:
        seen = split(label, records)
        shown = ", ".join(seen.values[:10]) + (f" and {len(seen.values) - 10} more" if len(seen.values) > 10 else "")
        known.append(seen.problem or f"{label} is {shown}")
    p = 1.0 if objective.allowed is not None else None
    why = "; ".join(known) or "no request was turned away"
    return no_data(
        objective, f"no measured request is {selector.text(objective.where)}: {why}. Change the selector, or measure "
        "requests that it is about", p_pass=p, p_fail=p,
    )  # fmt: skip


def _one_of(
    slo: WholePromise, place: int, records: Records, *, confidence: sure.Probability, laid: Callable[[Records], Course]
) -> ObjectiveVerdict:
    return slo.judge(records, confidence, laid(records))[place]


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
        common = alike(errors_of(records, MOST_ERRORS))
        return none_succeeded(n, common[0].text if common else None)
    return NO_OBJECTIVE


#: The verdict where nobody promised anything and something succeeded.
NO_OBJECTIVE: tuple[Outcome, tuple[str, ...]] = ("PASS", ("no objective given",))


def none_succeeded(n: int, common: str | None) -> tuple[Outcome, tuple[str, ...]]:
    """The verdict where nobody promised anything and none of ``n`` succeeded; ``common``: their most common error."""
    return "FAIL", (f"not one of {n} requests succeeded; most often: {common or 'no error text'}",)
