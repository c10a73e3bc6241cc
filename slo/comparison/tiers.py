"""A bake-off: endpoints in order of one quantity, in tiers that follow from what was shown of each pair of arms.

Each pair is judged once, as ``plimsoll.slo.comparison.compare`` judges a candidate against a base (same tolerance, same intervals), and
tiers are nothing but those judgements: the first tier are the arms that nobody was shown to be better than, the next those
that only arms of the first were, and so on. So arms of one tier are never told apart, and of two that are told apart the better
one stands higher. "Not told apart" does not hand on (a and b, b and c, but not a and c): where an arm could as well stand
lower ``last`` says how far, and ``overlaps`` names each two arms that stand in different tiers without being told apart, with
the arm that is why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Outcome, compare
from plimsoll.slo.comparison.quantity import Quantity
from plimsoll.slo.records.records import BoolArray


@dataclass(frozen=True, slots=True)
class Place:
    """One arm's place. ``value``: the median of its runs; ``values``: each run's.

    ``tier``: one more than the longest row of arms each shown to be better than the next, with this one at its end; ``last``:
    the lowest tier that would contradict no pair.
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
    """``above`` and ``below`` are not told apart; ``below`` stands lower because ``because`` was shown to be better than it."""

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

    ``family``: intervals that hold together, at least; all pairs of arms do. An arm that gets slower never rises: it can only
    be shown to be worse than more arms, and better than fewer.
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
        places.append(Place(names[i], above[i], last, float(np.median(values)), tuple(values.tolist())))
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
    value = float(np.median(arm.values(quantity)))
    return (value if quantity.better == "lower" else -value), arm.name
