"""One quantity of a candidate against the base's: size, exact interval, p. Judged in ``slo.comparison.compare``, not here.

Everything is turned so that up is worse: the logarithm of a time, minus that of a rate, a share of errors as it is. A
difference of two such numbers is a ratio or a difference of shares, rises whenever the candidate gets slower, and may be
infinite: a request that failed is infinitely slow. Infinite against infinite is unknown, and counts against every claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from slo.comparison.arms import Arm
from slo.comparison.quantity import Quantity
from slo.comparison.ranks import Shift, fisher, least_p_paired, least_p_unpaired, mann_whitney, signed_rank
from slo.comparison.resample import ratio_interval
from slo.records import FloatArray
from slo.statistics.confidence import clopper_pearson

Method = Literal["mann-whitney", "signed-rank", "fisher", "none"]
Data = Literal["enough", "base", "candidate", "both"]


@dataclass(frozen=True, slots=True)
class OneRun:
    """What a single pair of runs says of itself: between-run variance is unknown, so it holds for these two runs only.

    ``interval``: of the ratio, by resampling within each run; of a difference of shares, from exact bounds of both; NaN
    where there is none. ``base_over`` of ``base_n`` and ``candidate_over`` of ``candidate_n``: requests beyond the base's
    value (failed ones, for a share). ``p``: Fisher's exact test, one-sided, that the candidate has more of them by chance.
    ``p_worse``, ``p_better``: the same beyond the tolerance, and the other way round; 1 where there is no such test.
    """

    interval: tuple[float, float]
    p: float
    p_worse: float
    p_better: float
    base_over: int
    base_n: int
    candidate_over: int
    candidate_n: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One quantity of two arms, not yet judged.

    Values are one per run, in the order of the arm. ``effect``: candidate / base, or candidate - base of a share. ``shift``:
    the test, up is worse. ``worse_limit``, ``better_limit``: the tolerance on that scale. ``data``: who has none.
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
    one_run: OneRun | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Of ``effect``; NaN when somebody has no data."""
        if self.data != "enough":
            return math.nan, math.nan
        return back(self.shift.low, self.shift.high, self.quantity)


def worse(values: FloatArray, quantity: Quantity) -> FloatArray:
    """``values`` turned and scaled so that a greater one is a worse one and differences are what is compared."""
    sign = 1.0 if quantity.better == "lower" else -1.0
    if quantity.scale == "difference":
        return sign * values
    with np.errstate(divide="ignore"):  # zero is minus infinity here, and means it
        return sign * np.log(values)


def back(low: float, high: float, quantity: Quantity) -> tuple[float, float]:
    """An interval of differences of ``worse`` as an interval of the effect."""
    if quantity.better == "higher":
        low, high = -high, -low
    if quantity.scale == "difference":
        return low + 0.0, high + 0.0
    return _exp(low), _exp(high)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def limits(quantity: Quantity, tolerance: float) -> tuple[float, float]:
    """Where worse and better begin: 1 + tolerance and 1 - tolerance of the base, whichever way is worse."""
    if quantity.scale == "difference":
        return tolerance, -tolerance
    up, down = math.log1p(tolerance), math.log1p(-tolerance)
    return (up, down) if quantity.better == "lower" else (-down, -up)


def pairs(base: Arm, candidate: Arm) -> list[int] | None:
    """For each run of the base the position of its partner in the candidate; None when not every run has exactly one."""
    partner = {run.pair: place for place, run in enumerate(candidate.runs)}
    numbers = [run.pair for run in base.runs]
    whole = None not in numbers and len(set(numbers)) == len(numbers) == len(candidate.runs) == len(partner)
    return [partner[number] for number in numbers] if whole and set(numbers) == set(partner) else None


def decidable(base_runs: int, candidate_runs: int, paired: bool, family: int, alpha: Fraction) -> tuple[bool, bool]:
    """Whether Mann-Whitney and the signed-rank test can reach ``alpha``, one-sided, as one of ``family`` quantities."""
    unpaired = base_runs > 0 < candidate_runs and family * least_p_unpaired(base_runs, candidate_runs) <= alpha
    return unpaired, paired and family * least_p_paired(base_runs) <= alpha


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
        return Measured(quantity, tolerance, first, second, math.nan, nothing, "none", data, up, down)
    order = pairs(base, candidate)
    alpha = (1 - confidence) / 2
    _, by_pairs = decidable(len(first), len(second), order is not None, family, alpha)
    x, y = worse(first, quantity), worse(second, quantity)
    if order is not None and by_pairs:
        with np.errstate(invalid="ignore"):
            steps = y[order] - x
            middle = float(np.median(steps))
        shift, method = signed_rank(steps, confidence), "signed-rank"
        effect = math.nan if math.isnan(middle) else back(middle, middle, quantity)[0]
    else:
        shift, method = mann_whitney(x, y, confidence), "mann-whitney"
        effect = _of_medians(float(np.median(first)), float(np.median(second)), quantity)
    one = _one_run(quantity, base, candidate, (up, down), float(confidence))
    return Measured(quantity, tolerance, first, second, effect, shift, method, "enough", up, down, one)  # type: ignore[arg-type]


def _of_medians(base: float, candidate: float, quantity: Quantity) -> float:
    if quantity.scale == "difference":
        return candidate - base
    if base == 0 or math.isinf(candidate):
        return math.nan if base == candidate else math.inf
    return candidate / base


def _one_run(
    quantity: Quantity, base: Arm, candidate: Arm, beyond: tuple[float, float], confidence: float
) -> OneRun | None:
    if len(base.runs) != 1 or len(candidate.runs) != 1:
        return None
    first, second = (arm.runs[0].readings.get(str(quantity)) for arm in (base, candidate))
    if first is None or second is None or first.within is None or second.within is None:
        return None
    a, b = first.within, second.within
    # Requests depend on each other, so counts weigh less. By the base's design effect alone: the candidate's would grow with
    # its own slowness and excuse it.
    weigh = _Weighing(a.design_effect)
    if quantity.scale == "difference":
        low_a, high_a = clopper_pearson(a.bad, a.of, confidence)
        low_b, high_b = clopper_pearson(b.bad, b.of, confidence)
        low, high = low_b - high_a, high_b - low_a
        step = (b.bad / b.of if b.of else 0.0) - (a.bad / a.of if a.of else 0.0)
        p, p_less = weigh.more(a.bad, a.of, b.bad, b.of), weigh.more(b.bad, b.of, a.bad, a.of)
        interval = (low, high) if quantity.better == "lower" else (-high, -low)
        by_tolerance = p if step > beyond[0] else 1.0, p_less if step < beyond[1] else 1.0
        return OneRun(interval, p, *by_tolerance, a.bad, a.of, b.bad, b.of)
    assert quantity.quantile is not None
    x, y = worse(a.ordered, quantity), worse(b.ordered, quantity)
    limit = float(worse(np.array([first.value]), quantity)[0])
    n, more_n = len(x), len(y)
    over, more, above, below = (
        int(np.count_nonzero(v > bound))
        for v, bound in ((x, limit), (y, limit), (y, limit + beyond[0]), (y, limit + beyond[1]))
    )
    effects = (a.design_effect, b.design_effect)
    return OneRun(
        ratio_interval(a.ordered, b.ordered, quantity.quantile, effects, confidence),
        weigh.more(over, n, more, more_n),
        weigh.more(over, n, above, more_n),
        weigh.more(below, more_n, over, n),
        over,
        n,
        more,
        more_n,
    )


@dataclass(frozen=True, slots=True)
class _Weighing:
    """Counts as if only every ``by``-th request were worth counting."""

    by: float

    def more(self, bad: int, n: int, more_bad: int, more_n: int) -> float:
        """Fisher's one-sided p of the weighed counts, rounded against what is to be shown."""
        if self.by <= 1:
            return fisher(bad, n, more_bad, more_n)
        few, many = math.ceil(n / self.by), math.ceil(more_n / self.by)
        return fisher(min(math.ceil(bad / self.by), few), few, math.floor(more_bad / self.by), many)
