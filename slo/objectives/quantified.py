"""Several verdicts as one family: Holm's correction, and promises for each value of a label.

PASS needs every one to pass, so a family makes a wrong PASS no likelier. FAIL needs one, so p values go through Holm's
step-down first (1979): the chance that any kept promise is called broken stays below 1 - confidence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import BY_DISTANCE, ObjectiveVerdict, Outcome, no_data
from plimsoll.slo.objectives.selector import NONE, Split, rows_of, split
from plimsoll.slo.objectives.sentence import decisive
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.distribution import exact

_RANK: tuple[Outcome, ...] = ("PASS", "INCONCLUSIVE", "FAIL", "INVALID")


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """INVALID before FAIL before INCONCLUSIVE before PASS; PASS for none."""
    return max(outcomes, key=_RANK.index, default="PASS")


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
    needed_ns = round(needed / one.n * span_ns) if span_ns and one.n else None
    return replace(
        one, outcome="INCONCLUSIVE", n_needed=needed, needed_ns=needed_ns, detail=detail, by="", among=objectives
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


def singles(objective: Objective, records: Records) -> tuple[Objective, ...]:
    """The promises, each about some rows, that one ``each`` of a label is; itself, if it is no such one."""
    if objective.each is None:
        return (objective,)
    return tuple(one for _, one in _values(objective, split(objective.each[1], records), records))


def _values(objective: Objective, found: Split, records: Records) -> list[tuple[str, Objective]]:
    """Each value of its label and the promise about it. Rows without one are none where the rest of its selector leaves
    none of them: what was refused has no label that answers have, and ``{admitted}`` is not about it.
    """
    pairs = [(value, objective.narrowed(where)) for value, where in zip(found.values, found.conditions, strict=True)]
    if len(pairs) > 1 and pairs[-1][0] == NONE and objective.where:
        rows = rows_of(pairs[-1][1].where, records)
        if not (rows & records.in_measure).any():
            pairs.pop()
    return pairs


def quantified(
    objective: Objective,
    records: Records,
    judged: Callable[[Objective], ObjectiveVerdict],
    confidence: sure.Probability,
) -> list[ObjectiveVerdict]:
    """``each`` value of a label with a verdict of its own, or one for the ``worst`` of them, which is PASS if all are,
    and FAIL if one is after Holm's correction for their number.
    """
    assert objective.each is not None
    how, label = objective.each
    seen = split(label, records)
    if seen.problem:
        p = 1.0 if objective.allowed is not None else None
        return [no_data(objective, f"{seen.problem}; nothing to judge one by one", p_pass=p, p_fail=p)]
    values = _values(objective, seen, records)
    found = [judged(one) for _, one in values]
    if how == "each":
        return found
    family = holm(found, confidence)
    outcome = "FAIL" if any(one.outcome == "FAIL" for one in family) else worst([one.outcome for one in family])
    up = 1 if objective.operator in ("<=", "<") else -1
    # Of those that use up as much of the promise, as all without a bad value do, the one with the worst observed.
    by_value = sorted(family, key=lambda one: (one.observed == one.observed, up * one.observed), reverse=True)
    deciding = decisive(by_value, outcome)
    assert deciding is not None
    value = values[[one is deciding for one in family].index(True)][0]
    sure_of = [one.p_fail for one in found if one.p_fail is not None]
    least = min(1.0, min(sure_of) * len(sure_of)) if sure_of else None
    detail = f"of {len(found)} values of {label} {value} decides: {deciding.detail}"
    return [replace(deciding, objective=objective, detail=detail, p_fail=least, among_values=(value, len(found)))]
