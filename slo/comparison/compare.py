"""Is the candidate worse than the base? REGRESSION, IMPROVEMENT, INDISTINGUISHABLE, INCONCLUSIVE or INVALID.

A regression is an interval that lies wholly beyond the tolerance, an improvement one wholly beyond it on the other
side; the intervals hold together over all quantities (Bonferroni). Too few runs to decide anything are INCONCLUSIVE and
say how many are needed. No candidate gets a better outcome by being slower or failing more: each bound comes from
pairwise differences that only rise then. docs/evidence/compare-statistics.md has the reasons.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, nan
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.arms import Arm, OneRun, Reading, RunSample
from plimsoll.slo.comparison.effects import (
    Measured,
    Method,
    Terms,
    decidable,
    finding,
    measure,
    pairs,
    runs_needed,
    why,
)
from plimsoll.slo.comparison.quantity import Quantity, usual
from plimsoll.slo.comparison.ranks import benjamini_hochberg
from plimsoll.slo.statistics.confidence import clopper_pearson
from plimsoll.slo.statistics.distribution import exact, median

Outcome = Literal["IMPROVEMENT", "INDISTINGUISHABLE", "INCONCLUSIVE", "REGRESSION", "INVALID"]
#: From best to worst; the outcome of a whole is the worst of its parts.
RANK: tuple[Outcome, ...] = ("IMPROVEMENT", "INDISTINGUISHABLE", "INCONCLUSIVE", "REGRESSION", "INVALID")
#: A percentile that rests on fewer values than this beyond it is a matter of luck in each run.
_TAIL = 10


@dataclass(frozen=True, slots=True)
class Effect:
    """One quantity, candidate against base.

    ``base``, ``candidate``: the median of the runs' values (each run's in ``*_values``, in the order of the arm).
    ``effect``: candidate / base, or candidate - base of a share; ``interval`` of it, exact and two-sided, which holds
    together with those of the other quantities; ends may be infinite, NaN for no data. ``p``: two-sided, that the arms
    do not differ at all; ``adjusted_p`` by Bonferroni over the quantities; ``bh_p`` by Benjamini and Hochberg, for
    exploring. ``finding``: ``why`` without its numbers. ``runs_needed``: runs per arm with which it could be decided at
    all; 0 with enough.
    """

    quantity: Quantity
    base: float
    candidate: float
    base_values: tuple[float, ...]
    candidate_values: tuple[float, ...]
    effect: float
    interval: tuple[float, float]
    tolerance: float
    p: float
    adjusted_p: float
    bh_p: float
    outcome: Outcome
    why: str
    method: Method
    runs_needed: int = 0
    one_run: OneRun | None = None
    finding: str = ""


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate against the base.

    ``reasons``: why the outcome is what it is; ``family``: the intervals that hold together.
    """

    name: str
    outcome: Outcome
    effects: tuple[Effect, ...]
    reasons: tuple[str, ...]
    runs: int
    paired: bool
    family: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole: the worst outcome of any candidate."""

    base: str
    candidates: tuple[CandidateResult, ...]
    outcome: Outcome
    tolerance: float
    share_tolerance: float
    confidence: float
    single_run: bool
    proof: bool
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 for a REGRESSION, 3 INCONCLUSIVE, 4 INVALID, else 0."""
        return {"REGRESSION": 1, "INCONCLUSIVE": 3, "INVALID": 4}.get(self.outcome, 0)


@dataclass(frozen=True, slots=True)
class _Policy:
    tolerance: float
    share_tolerance: float
    confidence: Fraction
    single_run: bool
    proof: bool
    family: int

    @property
    def alpha(self) -> Fraction:
        """Of each direction."""
        return (1 - self.confidence) / 2

    def tolerated(self, quantity: Quantity) -> float:
        if quantity.tolerance is not None:
            return quantity.tolerance
        return self.share_tolerance if quantity.scale == "difference" else self.tolerance


def compare(
    base: Arm,
    candidates: Sequence[Arm],
    quantities: Sequence[Quantity] | None = None,
    tolerance: float = 0.05,
    confidence: Fraction | str | float = "0.95",
    *,
    share_tolerance: float = 0.01,
    single_run: bool = False,
    proof: bool = False,
    family: int = 1,
) -> Comparison:
    """Compare each candidate with the base, each as if it were the only one.

    ``quantities``: None for the usual ones that the base has data for. ``tolerance``: a change up to this fraction of
    the base is of no interest; ``share_tolerance`` the same for shares, in points. ``confidence``: two-sided, of all
    intervals of a candidate together and of "no false alarm"; ``family``: together with so many at least, where more is
    said on one page. ``single_run``: judge one run against one run by Fisher's test within them, blind to what differs
    between runs. ``proof``: INDISTINGUISHABLE must be shown, too, of each quantity by itself (all of them must be, so
    that nothing is gained by asking of many), else INCONCLUSIVE. Raises ValueError for tolerances outside 0..1 or a
    confidence outside (0, 1).
    """
    level = exact(confidence)
    if not 0 < level < 1 or not 0 <= tolerance < 1 or not 0 <= share_tolerance < 1:
        raise ValueError(
            f"tolerance {tolerance}, share_tolerance {share_tolerance}, confidence {confidence}: "
            "tolerances are at least 0 and below 1, a confidence lies strictly between 0 and 1"
        )
    policy = _Policy(tolerance, share_tolerance, level, single_run, proof, family)
    results = tuple(_candidate(base, arm, quantities, policy) for arm in candidates)
    return Comparison(
        base=base.name,
        candidates=results,
        outcome=worst([result.outcome for result in results]),
        tolerance=tolerance,
        share_tolerance=share_tolerance,
        confidence=float(level),
        single_run=single_run,
        proof=proof,
        warnings=_warnings(base, candidates, results),
    )


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """INVALID before REGRESSION before INCONCLUSIVE before INDISTINGUISHABLE before IMPROVEMENT.

    No outcome at all is INCONCLUSIVE: nothing was compared.
    """
    return max(outcomes, key=RANK.index, default="INCONCLUSIVE")


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Of one candidate's quantities: the worst, but better in one and worse in none is an IMPROVEMENT."""
    found = worst(outcomes)
    return "IMPROVEMENT" if found == "INDISTINGUISHABLE" and "IMPROVEMENT" in outcomes else found


def _asked(base: Arm, quantities: Sequence[Quantity] | None, policy: _Policy) -> list[Quantity]:
    """By the base alone: what the candidate failed to measure must not change how the rest is judged."""
    if quantities is not None:
        return list(quantities)
    found = []
    for quantity in usual(lambda key: any(key in run.readings and run.readings[key].n for run in base.runs)):
        known = not np.isnan(base.values(quantity)).all()
        testable = quantity.quantile is not None or quantity.statistic == "ratio"
        if known and (testable or not policy.single_run):
            found.append(quantity)
    return found


def _candidate(base: Arm, candidate: Arm, quantities: Sequence[Quantity] | None, policy: _Policy) -> CandidateResult:
    asked = _asked(base, quantities, policy)
    family = max(len(asked), policy.family)
    seen = [measure(q, base, candidate, policy.tolerated(q), family, policy.confidence) for q in asked]
    alone = policy.single_run and len(base.runs) == len(candidate.runs) == 1
    paired = pairs(base, candidate) is not None
    enough = alone or any(decidable(len(base.runs), len(candidate.runs), paired, family, policy.alpha))
    needed = 0 if enough else runs_needed(family, policy.alpha)
    raw = [_p(m, alone) for m in seen]
    effects = [
        _effect(m, p, bh, Terms(needed, alone, policy.proof, float(policy.confidence)))
        for m, p, bh in zip(seen, raw, benjamini_hochberg(raw), strict=True)
    ]
    outcome, reasons = _whole(base, candidate, together([effect.outcome for effect in effects]), effects)
    return CandidateResult(candidate.name, outcome, tuple(effects), reasons, len(candidate.runs), paired, family)


def _p(m: Measured, alone: bool) -> float:
    if not alone:
        return m.shift.p
    return 1.0 if m.one_run is None else min(1.0, 2 * min(m.one_run.p, m.one_run.p_less))


def _judged(m: Measured, terms: Terms) -> Outcome:
    found = m.one_run if terms.alone else m.shift
    if m.data != "enough" or terms.needed or found is None:
        return "INCONCLUSIVE"
    if found.low > m.worse_limit:
        return "REGRESSION"
    # Failures reach the candidate's value in so many runs that there is no limit to how much worse it may be.
    if found.high == math.inf or (terms.alone and (math.isinf(m.candidate[0]) or math.isinf(m.base[0]))):
        return "INCONCLUSIVE"
    if terms.proof and (terms.alone or m.most > m.worse_limit):
        return "INCONCLUSIVE"
    return "IMPROVEMENT" if found.high < m.better_limit else "INDISTINGUISHABLE"


def _effect(m: Measured, p: float, bh: float, terms: Terms) -> Effect:
    outcome = _judged(m, terms)
    adjusted = min(1.0, m.family * p)
    return Effect(
        quantity=m.quantity,
        base=median(m.base),
        candidate=median(m.candidate),
        base_values=tuple(m.base.tolist()),
        candidate_values=tuple(m.candidate.tolist()),
        effect=m.effect,
        interval=m.interval,
        tolerance=m.tolerance,
        p=p,
        adjusted_p=adjusted,
        bh_p=bh,
        outcome=outcome,
        why=why(m, outcome, adjusted, terms),
        method="fisher" if terms.alone and m.one_run else m.method,
        runs_needed=terms.needed,
        one_run=m.one_run,
        finding=finding(m, outcome, adjusted, terms),
    )


def _whole(base: Arm, candidate: Arm, outcome: Outcome, effects: Sequence[Effect]) -> tuple[Outcome, tuple[str, ...]]:
    """A generator that broke its promise spoils everything; an endpoint that did not keep up excuses no regression."""
    broken = [(arm.name, run) for arm in (base, candidate) for run in arm.runs if not run.valid]
    if broken:
        return "INVALID", tuple(f"run {_folder(run)} of {name} is invalid: {run.reasons[0]}" for name, run in broken)
    drowned = [(arm.name, run) for arm in (base, candidate) for run in arm.runs if run.unstable]
    if drowned and (outcome != "REGRESSION" or any(run.unstable for run in base.runs)):
        return "INVALID", tuple(f"run {_folder(run)} of {name}: {run.unstable}" for name, run in drowned)
    decisive = [effect for effect in effects if effect.outcome == outcome]
    if effects and effects[0].runs_needed and outcome == "INCONCLUSIVE":
        return outcome, (_too_few(base, candidate, effects),)
    if not effects:
        return outcome, ("nothing was measured in either arm, so nothing was compared",)
    return outcome, tuple(f"{effect.quantity}: {effect.why}" for effect in decisive)


def _folder(run: RunSample) -> str:
    """What to look at: where the run is, else its id."""
    return run.directory or run.run or "?"


def _too_few(base: Arm, candidate: Arm, effects: Sequence[Effect]) -> str:
    runs = f"{len(base.runs)} and {len(candidate.runs)} runs"
    of = "one quantity" if len(effects) == 1 else f"{len(effects)} quantities together"
    hint = "" if len(effects) == 1 else ", or compare fewer quantities"
    if len(base.runs) == len(candidate.runs) == 1:
        return (
            f"one run of each says nothing about how runs differ. Run at least {effects[0].runs_needed} of each{hint}"
        )
    return f"{runs} can't show any difference in {of}. Run at least {effects[0].runs_needed} of each{hint}"


def _warnings(base: Arm, candidates: Sequence[Arm], results: Sequence[CandidateResult]) -> tuple[str, ...]:
    said = []
    thin: dict[str, list[str]] = {}
    plans = {run.plan for run in base.runs if run.plan}
    for arm, result in zip(candidates, results, strict=True):
        other = {run.plan for run in arm.runs if run.plan}
        if _other_plans(plans, other, all(run.plan for a in (base, arm) for run in a.runs)):
            said.append(
                f"{arm.name} and {base.name} did not run the same schedules: a difference may come from the load. "
                "Run both with one scenario and one seed, or interleaved"
            )
        few = ", ".join(str(effect.quantity) for effect in result.effects if _thin(effect.quantity, base, arm))
        if few:
            thin.setdefault(few, []).append(arm.name)
    said += [
        f"{', '.join(names)}: {few}: fewer than {_TAIL} values lie beyond in some run, so that runs differ more. "
        "Longer runs give more power here than more runs do"
        for few, names in thin.items()
    ]
    return tuple(said)


def _other_plans(base: set[str], candidate: set[str], known: bool) -> bool:
    """A run that was never made has no schedule, and so none that differs."""
    if not base or not candidate:
        return False
    return base != candidate if known else not (base <= candidate or candidate <= base)


def _thin(quantity: Quantity, base: Arm, candidate: Arm) -> bool:
    if quantity.quantile is None:
        return False
    tail = float(min(quantity.quantile, 1 - quantity.quantile))
    nothing = Reading(math.nan, 0)
    sizes = [run.readings.get(str(quantity), nothing).n for arm in (base, candidate) for run in arm.runs]
    return bool(sizes) and 0 < min(sizes) * tail < _TAIL


# -- A/A ---------------------------------------------------------------------------------------------------------------

# A/A: how often does the gate cry regression when nothing changed? Runs of one endpoint are split into two arms at
# random, or in every way if those are few, and each split is compared as base and candidate. Random splits show what
# the gate does with spread like this host's. They can't show drift, because they spread it evenly; so the first half is
# also compared with the second, as a baseline from last week is with today's runs, and the runs in turn, as interleaved
# ones are. When the first of these cries and the second doesn't, interleave.


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """``alarms`` of ``splits`` were a false REGRESSION: ``rate``, NaN for no split; ``undecided`` could decide nothing.

    ``interval``: exact (Clopper-Pearson), of the rate over all splits of these runs; other runs may give another.
    ``every``: all splits were tried, so there is nothing to estimate. ``expected``: the most that the design allows.
    ``in_order``: the outcome of the first half against the second; ``in_turn``: of every other run against the rest.
    """

    runs: int
    per_arm: int
    splits: int
    alarms: int
    undecided: int
    rate: float
    interval: tuple[float, float]
    every: bool
    expected: float
    in_order: Outcome
    in_turn: Outcome


def false_alarm_rate(
    arm: Arm,
    quantities: Sequence[Quantity] | None = None,
    tolerance: float = 0.05,
    confidence: Fraction | str | float = "0.95",
    *,
    share_tolerance: float = 0.01,
    most: int = 1000,
    seed: int = 0,
) -> FalseAlarms:
    """Split the arm's runs, which are in the order of time, in halves; an odd one is left out.

    At most ``most`` splits, drawn with ``seed`` when there are more. Fewer than two runs give no rate.
    """
    n, half = len(arm.runs), len(arm.runs) // 2
    expected = float((1 - exact(confidence)) / 2)
    if half == 0:
        return FalseAlarms(n, 0, 0, 0, 0, nan, (0.0, 1.0), True, expected, "INCONCLUSIVE", "INCONCLUSIVE")

    def outcome(first: Sequence[int], second: Sequence[int]) -> Outcome:
        base, other = (Arm(name, tuple(arm.runs[i] for i in rows)) for name, rows in (("A", first), ("A'", second)))
        return compare(base, [other], quantities, tolerance, confidence, share_tolerance=share_tolerance).outcome

    every = comb(n, half) * comb(n - half, half) <= most
    found = [outcome(*split) for split in (_all(n, half) if every else _some(n, half, most, seed))]
    alarms = found.count("REGRESSION")
    return FalseAlarms(
        runs=n,
        per_arm=half,
        splits=len(found),
        alarms=alarms,
        undecided=found.count("INCONCLUSIVE") + found.count("INVALID"),
        rate=alarms / len(found),
        interval=clopper_pearson(alarms, len(found), confidence),
        every=every,
        expected=expected,
        in_order=outcome(range(half), range(n - half, n)),
        in_turn=outcome(range(0, 2 * half, 2), range(1, 2 * half, 2)),
    )


def _all(n: int, half: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for first in combinations(range(n), half):
        rest = [i for i in range(n) if i not in first]
        for second in combinations(rest, half):
            yield first, second


def _some(n: int, half: int, most: int, seed: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    rng = np.random.default_rng(seed)
    for _ in range(most):
        order = rng.permutation(n).tolist()
        yield tuple(order[:half]), tuple(order[half : 2 * half])
