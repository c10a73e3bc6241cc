"""A bake-off: endpoints in order of one quantity, in tiers that follow from what was shown of each pair of arms.

``plimsoll.slo.comparison.compare`` judges each pair once, and tiers are nothing but those judgements: the first tier
are the arms that nobody was shown to be better than, the next those that only arms of the first were, and so on. "Not
told apart" does not hand on, so ``last`` says how far down an arm could as well stand, and ``overlaps`` names each two
arms that stand in different tiers without being told apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Outcome, compare
from plimsoll.slo.comparison.quantity import Quantity, parse
from plimsoll.slo.comparison.ranks import benjamini_hochberg, mann_whitney, signed_rank
from plimsoll.slo.records.records import BoolArray, FloatArray
from plimsoll.slo.statistics.distribution import exact, median


@dataclass(frozen=True, slots=True)
class Place:
    """One arm's place. ``value``: the median of its runs; ``values``: each run's.

    ``tier``: one more than the longest row of arms each shown to be better than the next, with this one at its end;
    ``last``: the lowest tier that would contradict no pair.
    """

    name: str
    tier: int
    last: int
    value: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two arms, the second against the first: ``effect``, its interval, adjusted p and outcome as of any comparison."""

    first: str
    second: str
    effect: float
    interval: tuple[float, float]
    adjusted_p: float
    outcome: Outcome

    @property
    def apart(self) -> bool:
        """One of the two was shown to be better."""
        return self.outcome in ("REGRESSION", "IMPROVEMENT")


@dataclass(frozen=True, slots=True)
class Overlap:
    """``above`` and ``below`` are not told apart; ``below`` stands lower because ``because`` was shown to be better."""

    above: str
    below: str
    because: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Places from best to worst; ``excluded`` arms with the reason. ``runs_needed``: per arm, 0 when there are enough.

    ``circles``: pairs told apart that share a tier, because others between them were shown to be the other way round.
    """

    quantity: Quantity
    places: tuple[Place, ...]
    pairings: tuple[Pairing, ...]
    overlaps: tuple[Overlap, ...]
    circles: tuple[tuple[str, str], ...]
    excluded: tuple[tuple[str, str], ...]
    runs_needed: int

    @property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Names by tier, best first."""
        top = max((place.tier for place in self.places), default=0)
        return tuple(tuple(p.name for p in self.places if p.tier == tier) for tier in range(1, top + 1))


def rank(
    arms: Sequence[Arm],
    quantity: Quantity,
    confidence: Fraction | str | float = "0.95",
    tolerance: float = 0.0,
    *,
    share_tolerance: float = 0.0,
    family: int = 1,
) -> Ranking:
    """Rank arms by ``quantity``. Names must differ (else ValueError). An arm with an invalid run has no place.

    ``family``: intervals that hold together, at least; all pairs of arms do. An arm that gets slower never rises: it
    can only be shown to be worse than more arms, and better than fewer.
    """
    if len({arm.name for arm in arms}) != len(arms):
        raise ValueError("two arms have one name; give each its own")
    excluded = tuple((arm.name, why) for arm in arms if (why := _unfit(arm, quantity)))
    fit = [arm for arm in arms if not _unfit(arm, quantity)]
    together = max(family, len(arms) * (len(arms) - 1) // 2)
    pairings, needed = [], 0
    for first, second in combinations(fit, 2):
        found = compare(
            first, [second], [quantity], tolerance, confidence, share_tolerance=share_tolerance, family=together
        )
        [seen] = found.candidates[0].effects
        pairings.append(Pairing(first.name, second.name, seen.effect, seen.interval, seen.adjusted_p, seen.outcome))
        needed = max(needed, seen.runs_needed)
    return _placed(quantity, sorted(fit, key=lambda arm: _key(arm, quantity)), pairings, excluded, needed)


def _placed(
    quantity: Quantity,
    fit: Sequence[Arm],
    pairings: Sequence[Pairing],
    excluded: tuple[tuple[str, str], ...],
    needed: int,
) -> Ranking:
    """The ranking that follows from the pairs; ``fit``: by their medians, which order the arms of one tier."""
    names = [arm.name for arm in fit]
    better = np.zeros((len(fit), len(fit)), np.bool_)
    for pair in pairings:
        i, j = names.index(pair.first), names.index(pair.second)
        better[i, j], better[j, i] = pair.outcome == "REGRESSION", pair.outcome == "IMPROVEMENT"
    chain = _closed(better)
    circle = chain & chain.T
    ahead = chain & ~circle
    above, below = _depth(ahead), _depth(ahead.T)
    order = sorted(range(len(fit)), key=lambda i: above[i])
    places = []
    for i in order:
        values = fit[i].values(quantity)
        last = max(above) + 1 - below[i]
        places.append(Place(names[i], above[i], last, median(values), tuple(values.tolist())))
    overlaps = tuple(
        Overlap(names[i], names[j], names[max(np.flatnonzero(ahead[:, j]), key=lambda k: (above[k], better[k, j]))])
        for i in order
        for j in order
        if above[i] < above[j] and not better[i, j]
    )
    circles = tuple(
        (pair.first, pair.second)
        for pair in pairings
        if pair.apart and circle[names.index(pair.first), names.index(pair.second)]
    )
    return Ranking(quantity, tuple(places), tuple(pairings), overlaps, circles, excluded, needed)


def _closed(better: BoolArray) -> BoolArray:
    """Who is better by way of others, too: a was shown to be better than b, and b than c."""
    chain = better.copy()
    for k in range(len(chain)):
        chain |= np.outer(chain[:, k], chain[k])
    return chain


def _depth(ahead: BoolArray) -> list[int]:
    """Of each arm the length of the longest row that ends with it; ``ahead`` has no circles."""
    depth = np.ones(len(ahead), np.int64)
    for _ in range(len(ahead)):
        depth = np.maximum(depth, 1 + np.max(np.where(ahead, depth[:, None], 0), axis=0, initial=0))
    return depth.tolist()


def _unfit(arm: Arm, quantity: Quantity) -> str:
    for run in arm.runs:
        if not run.valid:
            return f"run {run.directory or run.run or '?'} is invalid: {run.reasons[0]}"
    if not arm.runs or np.isnan(arm.values(quantity)).any():
        return f"no {quantity} in every run"
    return ""


def _key(arm: Arm, quantity: Quantity) -> tuple[float, str]:
    value = median(arm.values(quantity))
    return (value if quantity.better == "lower" else -value), arm.name


# -- Pareto fronts -----------------------------------------------------------------------------------------------------

# Pareto fronts: throughput against interactivity, goodput against rate. Which settings are beaten on both counts? A
# point is dominated when another is better in one way and at least as good in the other, and the data show it: the runs
# of the two must be told apart in one and not be worse in the other. Points that are not told apart stay on the front.
# With one run a point nothing is shown, and domination is by value alone and says so.

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: a value per run on each axis, runs in one order."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    arm: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A point of the chart. ``x``, ``y``: medians. ``dominated_by``: who beats it, "" on the front.

    ``shown``: told by runs, not only by value.
    """

    name: str
    arm: str
    x: float
    y: float
    x_values: tuple[float, ...]
    y_values: tuple[float, ...]
    dominated_by: str
    shown: bool


def interactivity(tpot_ns: FloatArray) -> FloatArray:
    """Tokens per second that one user sees, 1 / TPOT (give the p90 of TPOT for nearly all users); 0 for failures.

    A TPOT of 0 (the whole answer in one chunk) is no speed: NaN.
    """
    with np.errstate(divide="ignore"):
        return np.where(tpot_ns > 0, 1e9 / np.where(tpot_ns > 0, tpot_ns, 1.0), np.nan)


def front(
    points: Sequence[Point],
    x_better: Better = "higher",
    y_better: Better = "higher",
    confidence: Fraction | str | float = "0.95",
) -> tuple[Placed, ...]:
    """Every point with who dominates it, in the order given.

    Points with no or unknown values are dominated by nobody.
    """
    turned = [(_turn(p.x, x_better), _turn(p.y, y_better)) for p in points]
    alpha = float(1 - exact(confidence))
    pairs = [(i, j) for i in range(len(points)) for j in range(len(points)) if i != j and _ahead(turned[i], turned[j])]
    # Told apart in the way in which it is ahead most clearly. A chart explores: of the points struck out a share is
    # wrong.
    adjusted = benjamini_hochberg([min(_p(turned[i][axis], turned[j][axis]) for axis in (0, 1)) * 2 for i, j in pairs])
    several = all(len(p.x) > 1 for p in points)
    beaten: dict[int, int] = {}
    for (i, j), p in zip(pairs, adjusted, strict=True):
        # Of several that beat it the one furthest ahead is named.
        if (not several or p <= alpha) and (j not in beaten or _ahead(turned[i], turned[beaten[j]])):
            beaten[j] = i
    return tuple(
        Placed(
            name=point.name,
            arm=point.arm,
            x=median(point.x),
            y=median(point.y),
            x_values=point.x,
            y_values=point.y,
            dominated_by=points[beaten[i]].name if i in beaten else "",
            shown=several and i in beaten,
        )
        for i, point in enumerate(points)
    )


def _turn(values: Sequence[float], better: Better) -> FloatArray:
    return np.asarray(values, np.float64) * (1.0 if better == "higher" else -1.0)


def _ahead(a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]) -> bool:
    """At least as good in both ways by medians, and better in one; never with unknown values."""
    steps = [median(first.tolist()) - median(second.tolist()) for first, second in zip(a, b, strict=True)]
    return all(step >= 0 for step in steps) and any(step > 0 for step in steps)


def _p(ahead: FloatArray, behind: FloatArray) -> float:
    """One-sided p that ``ahead`` is greater."""
    return mann_whitney(behind, ahead).p_up if len(ahead) and len(behind) else 1.0


# -- cost --------------------------------------------------------------------------------------------------------------

# What a million tokens or requests cost, from the price of an hour. A cost is a price over a throughput, so it is as
# uncertain as the throughput is between runs; a lower throughput is a higher cost, and no throughput an infinite one.
# Failed requests cost as much as good ones: only what was delivered divides the price. Nothing here knows which price
# is right.

Per = Literal["output_tokens", "requests", "good_requests"]
_RATES = {"output_tokens": "rate(output_tokens)", "requests": "rate(ok)", "good_requests": "rate(good)"}
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a million of ``per``, in the price's currency. ``value``: at the median run's throughput ``per_s``.

    ``interval``: of the typical run's cost at the confidence, (0, inf) where there are too few runs (fewer than 6 at 95
    %); ``values``: each run's.
    """

    name: str
    per: Per
    price_per_hour: float
    per_s: float
    value: float
    interval: tuple[float, float]
    values: tuple[float, ...]


def needs(per: Per) -> Quantity:
    """The quantity that a cost of ``per`` divides by: sample the runs with it."""
    return parse(_RATES[per])


def million(price_per_hour: float, per_s: float) -> float:
    """Price of a million at ``per_s``: 3.60 an hour at 1,000/s is 1.00; infinite at 0."""
    return price_per_hour / 3600 * _MILLION / per_s if per_s > 0 else math.inf


def cost(
    arm: Arm, price_per_hour: float, per: Per = "output_tokens", confidence: Fraction | str | float = "0.95"
) -> Cost | None:
    """Of a million of ``per``; None when a run has no such rate. Raises ValueError for a price below 0 or infinite."""
    if not 0 <= price_per_hour < math.inf:
        raise ValueError(f"a price of {price_per_hour} an hour: write what an hour costs, a number of at least 0")
    rates = arm.values(needs(per))
    if len(rates) == 0 or np.isnan(rates).any():
        return None
    middle = median(rates)
    low, high = _typical(rates, confidence)
    return Cost(
        name=arm.name,
        per=per,
        price_per_hour=price_per_hour,
        per_s=middle,
        value=million(price_per_hour, middle),
        interval=(million(price_per_hour, high), million(price_per_hour, low)),
        values=tuple(million(price_per_hour, float(rate)) for rate in rates),
    )


def _typical(rates: FloatArray, confidence: Fraction | str | float) -> tuple[float, float]:
    """Interval of the typical rate: exact, from the Walsh averages of its logarithm."""
    with np.errstate(divide="ignore"):
        shift = signed_rank(np.log(rates), confidence)
    return math.exp(shift.low), math.inf if shift.high == math.inf else math.exp(shift.high)
