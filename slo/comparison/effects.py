"""One quantity of a candidate against the base: size, exact interval, p. ``plimsoll.slo.comparison.compare`` judges it.

A request that failed is infinitely slow, so a value may be infinite; infinite against infinite is unknown, and counts
against every claim. All quantities that are tested together share out the error, so that their intervals hold together.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.arms import Arm, OneRun, of_percentiles, of_shares
from plimsoll.slo.comparison.quantity import Quantity, back, limits, worse
from plimsoll.slo.comparison.ranks import Shift, least_p_paired, least_p_unpaired, mann_whitney, signed_rank
from plimsoll.slo.objectives.objective import show
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.distribution import median

Method = Literal["mann-whitney", "signed-rank", "fisher", "none"]
Data = Literal["enough", "base", "candidate", "both"]
#: How many times as wide one arm's spread between runs may be as the other's before the gate errs more than twice as
#: often.
SPREADS = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One quantity of two arms, not yet judged.

    Values are one per run, in the order of the arm. ``effect``: candidate / base, or candidate - base of a share.
    ``shift``: the test, up is worse, with the interval that holds together with those of the whole ``family``;
    ``most``: the upper end of this quantity's by itself. ``worse_limit``, ``better_limit``: the tolerance on that
    scale. ``data``: who has none.
    """

    quantity: Quantity
    tolerance: float
    base: FloatArray
    candidate: FloatArray
    effect: float
    shift: Shift
    method: Method
    data: Data
    worse_limit: float
    better_limit: float
    family: int
    most: float = math.inf
    one_run: OneRun | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Of ``effect``; NaN when somebody has no data."""
        if self.data != "enough":
            return math.nan, math.nan
        return back(self.shift.low, self.shift.high, self.quantity)


def pairs(base: Arm, candidate: Arm) -> list[int] | None:
    """For each run of the base the place of its partner in the candidate; None when not every run has exactly one."""
    partner = {run.pair: place for place, run in enumerate(candidate.runs)}
    numbers = [run.pair for run in base.runs]
    whole = None not in numbers and len(set(numbers)) == len(numbers) == len(candidate.runs) == len(partner)
    return [partner[number] for number in numbers] if whole and set(numbers) == set(partner) else None


def decidable(base_runs: int, candidate_runs: int, paired: bool, family: int, alpha: Fraction) -> tuple[bool, bool]:
    """Whether Mann-Whitney and the signed-rank test can reach ``alpha``, one-sided, as one of ``family`` quantities."""
    least = least_p_unpaired(base_runs, candidate_runs, SPREADS) if base_runs > 0 < candidate_runs else 1
    return family * least <= alpha, paired and family * least_p_paired(base_runs) <= alpha


def runs_needed(family: int, alpha: Fraction) -> int:
    """Runs per arm from which on a difference can be significant as one of ``family`` quantities."""
    runs = 2
    while family * least_p_unpaired(runs, runs) > alpha:
        runs += 1
    return runs


def measure(
    quantity: Quantity, base: Arm, candidate: Arm, tolerance: float, family: int, confidence: Fraction
) -> Measured:
    """The effect of one quantity; ``family``: how many are tested together."""
    first, second = base.values(quantity), candidate.values(quantity)
    if not np.isnan(first).any() and len(first):
        # A run that failed so early that nothing could be measured has not thereby lost its failures.
        lost = np.isnan(second) & np.array([run.failed > 0 for run in candidate.runs], np.bool_)
        second = np.where(lost, np.inf if quantity.better == "lower" else 0.0, second)
    gone = [name for name, v in (("base", first), ("candidate", second)) if len(v) == 0 or np.isnan(v).any()]
    up, down = limits(quantity, tolerance)
    if gone:
        nothing = Shift(0.0, 1.0, 1.0, -math.inf, math.inf)
        data: Data = "both" if len(gone) == 2 else "base" if gone[0] == "base" else "candidate"
        return Measured(quantity, tolerance, first, second, math.nan, nothing, "none", data, up, down, family)
    order = pairs(base, candidate)
    alpha = (1 - confidence) / 2
    _, by_pairs = decidable(len(first), len(second), order is not None, family, alpha)
    x, y = worse(first, quantity), worse(second, quantity)
    together = 1 - 2 * alpha / family
    method: Method = "mann-whitney"
    if order is not None and by_pairs:
        with np.errstate(invalid="ignore"):
            steps = y[order] - x
            middle = median(steps)
        method = "signed-rank"
        shift, alone = (signed_rank(steps, level) for level in (together, confidence))
        effect = math.nan if math.isnan(middle) else back(middle, middle, quantity)[0]
    else:
        shift, alone = (mann_whitney(x, y, level, SPREADS) for level in (together, confidence))
        effect = _of_medians(median(first), median(second), quantity)
    one = _one_run(quantity, base, candidate, alpha / family)
    return Measured(
        quantity, tolerance, first, second, effect, shift, method, "enough", up, down, family, alone.high, one
    )


def _one_run(quantity: Quantity, base: Arm, candidate: Arm, alpha: Fraction) -> OneRun | None:
    if len(base.runs) != 1 or len(candidate.runs) != 1:
        return None
    first, second = (arm.runs[0].readings.get(str(quantity)) for arm in (base, candidate))
    if first is None or second is None or first.within is None or second.within is None:
        return None
    if quantity.scale == "difference":
        return of_shares(quantity, first.within, second.within, alpha)
    return of_percentiles(quantity, first.value, first.within, second.within, alpha)


def _of_medians(base: float, candidate: float, quantity: Quantity) -> float:
    if quantity.scale == "difference":
        return candidate - base
    if base == 0 or math.isinf(candidate):
        return math.nan if base == candidate else math.inf
    return candidate / base


# -- in a sentence ----------------------------------------------------------------------------------------------------

_TESTS = {"mann-whitney": "Mann-Whitney", "signed-rank": "Wilcoxon signed-rank"}


@dataclass(frozen=True, slots=True)
class Terms:
    """How a quantity is judged. ``needed``: runs per arm that would do, 0 with enough; ``alone``: within one pair of
    runs; ``proof``: no difference must be shown, too.
    """

    needed: int
    alone: bool
    proof: bool
    confidence: float


def why(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    found = finding(m, outcome, adjusted_p, terms)
    if m.data != "enough":
        return found
    seen = f"{_value(m, m.base)} in the base, {_value(m, m.candidate)} in the candidate"
    if terms.alone or terms.needed:
        return f"{seen}; {found}"
    over = f" over all {m.family} together" if m.family > 1 else ""
    sure = f"{terms.confidence * 100:.4g} % interval{over} {size(m, *m.interval)}"
    test = f"{_TESTS[m.method]} over {_runs(m)}, adjusted p = {adjusted_p:.2g}"
    return f"{seen}: {found} ({sure}; {test})"


def finding(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    """The same without the numbers that stand beside it in a table."""
    if m.data != "enough":
        who = {"base": "the base has", "candidate": "the candidate has", "both": "both arms have"}[m.data]
        return f"{who} no value of it in some run. Compare what both measured"
    if terms.alone:
        return _of_two_runs(m, outcome)
    if terms.needed:
        one = min(len(m.base), len(m.candidate)) == 1
        what = "too few runs for any difference to be significant"
        return f"{'one run says nothing about how runs differ' if one else what}. Run at least {terms.needed} of each"
    return _of_runs(m, outcome, adjusted_p, terms)


def _of_runs(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    by, tolerance = change(m.effect, m), _tolerance(m)
    if outcome in ("REGRESSION", "IMPROVEMENT"):
        return f"{by}, beyond the tolerance of {tolerance}"
    if outcome == "INCONCLUSIVE" and m.shift.high == math.inf:
        return "failed requests reach it in too many runs for any limit on how much worse it got"
    if outcome == "INCONCLUSIVE":
        return f"not shown to stay within the tolerance of {tolerance}; {_most(m, m.most)} is possible"
    if adjusted_p <= 1 - terms.confidence and not m.better_limit <= m.shift.low <= m.shift.high <= m.worse_limit:
        return f"{by}, a difference not shown to be beyond the tolerance of {tolerance}"
    if m.shift.high <= m.worse_limit:
        return f"{by}, and within the tolerance of {tolerance}"
    if terms.proof:
        return f"{by}, and by itself within the tolerance of {tolerance}: {_most(m, m.most)} at most"
    return f"no difference shown; {_most(m, m.shift.high)} is possible"


def _most(m: Measured, worst: float) -> str:
    low, high = back(worst, worst, m.quantity)
    return f"{change(high if m.quantity.better == 'lower' else low, m)}"


def _of_two_runs(m: Measured, outcome: str) -> str:
    one = m.one_run
    if one is None:
        return "there is no test of it within a single run. Run at least 5 of each"
    counts = f"{one.base_over} of {one.base_n} and {one.candidate_over} of {one.candidate_n} values"
    where = "fail it" if m.quantity.scale == "difference" else "lie beyond the base's"
    verdict = {
        "REGRESSION": f"worse beyond the tolerance of {_tolerance(m)}",
        "IMPROVEMENT": f"better beyond the tolerance of {_tolerance(m)}",
        "INDISTINGUISHABLE": "no difference beyond the tolerance shown",
        "INCONCLUSIVE": "not decided",
    }[outcome]
    return f"{counts} {where}, p = {one.p:.2g}: {verdict} within this pair of runs, blind to how runs differ"


def change(effect: float, m: Measured) -> str:
    """``12 % more``, ``0.3 points less``, ``no change``."""
    if math.isnan(effect):
        return "a change that can't be put in a number"
    if m.quantity.scale == "difference":
        if effect == 0:
            return "no change"
        return f"{abs(effect) * 100:.3g} points {'more' if effect > 0 else 'less'}"
    if math.isinf(effect):
        return "an increase without limit"
    if effect == 1:
        return "no change"
    # Ten times is easier to read than 900 % more.
    if effect >= 3:
        return f"{effect:.3g} times as much"
    return f"{abs(effect - 1) * 100:.3g} % {'more' if effect > 1 else 'less'}"


def size(m: Measured, low: float, high: float) -> str:
    """An interval of the effect: ``−2.00 % to +4.00 %``, ``−0.10 pt to +0.40 pt``."""
    scale = m.quantity.scale
    if scale == "ratio" and math.isinf(low):
        return "infinite"
    return f"{signed(scale, low)} to {'infinite' if math.isinf(high) else signed(scale, high)}"


def signed(scale: str, effect: float) -> str:
    """A ratio, or a difference of shares, as a change with its sign: ``+12.3 %``, ``× 3.2``, ``−0.40 pt``."""
    if scale == "ratio" and effect >= 3:
        decimals = max(0, 2 - math.floor(math.log10(float(f"{effect:.3g}"))))
        return f"× {effect:.{decimals}f}"
    amount, unit = (effect * 100, "pt") if scale == "difference" else ((effect - 1) * 100, "%")
    text = f"{amount:+.2f}" if abs(amount) < 10 else f"{amount:+.1f}"
    return f"{'0.00' if float(text) == 0 else text.replace('-', '−')} {unit}"


def _tolerance(m: Measured) -> str:
    amount = f"{m.tolerance * 100:.4g}"
    if m.quantity.scale == "ratio":
        return f"{amount} %"
    return f"{amount} point" + ("" if amount == "1" else "s")


def _runs(m: Measured) -> str:
    return f"{len(m.base)} pairs of runs" if m.method == "signed-rank" else f"{len(m.base)} and {len(m.candidate)} runs"


def _value(m: Measured, values: FloatArray) -> str:
    return show(median(values), m.quantity.unit)
