"""A bake-off: endpoints in order of one quantity, in tiers that the data can tell apart.

A tier's members can't be told from its best one: each pair of arms is tested, corrected by Bonferroni over all pairs. Who
is best inside a tier is not said, for it is not known. "Not told apart" does not hand on (a and b, b and c, but not a and
c), so a tier is what is indistinguishable from its own leader, and ``overlaps`` names those pairs across tiers that can't
be told apart either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from slo.comparison.arms import Arm
from slo.comparison.effects import Measured, decidable, measure, pairs, runs_needed
from slo.comparison.quantity import Quantity
from slo.distribution import exact


@dataclass(frozen=True, slots=True)
class Place:
    """One arm's place. ``value``: the median of its runs; ``values``: each run's; ``best``: it leads its tier."""

    name: str
    tier: int
    value: float
    values: tuple[float, ...]
    best: bool


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two arms: ``effect`` (second / first, or second - first), its interval, and p adjusted over all pairs."""

    first: str
    second: str
    effect: float
    interval: tuple[float, float]
    adjusted_p: float
    apart: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Places from best to worst; ``excluded`` arms with the reason. ``runs_needed``: per arm, 0 when there are enough."""

    quantity: Quantity
    places: tuple[Place, ...]
    pairings: tuple[Pairing, ...]
    overlaps: tuple[tuple[str, str], ...]
    excluded: tuple[tuple[str, str], ...]
    runs_needed: int

    @property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Names by tier, best first."""
        top = max((place.tier for place in self.places), default=0)
        return tuple(tuple(p.name for p in self.places if p.tier == tier) for tier in range(1, top + 1))

    @property
    def decided(self) -> bool:
        """The first tier has one member."""
        return bool(self.tiers) and len(self.tiers[0]) == 1


def rank(arms: Sequence[Arm], quantity: Quantity, confidence: Fraction | str | float = "0.95") -> Ranking:
    """Rank arms by ``quantity``. Names must differ (else ValueError). An arm with an invalid run has no place."""
    if len({arm.name for arm in arms}) != len(arms):
        raise ValueError("two arms have one name; give each its own")
    excluded = [(arm.name, why) for arm in arms if (why := _unfit(arm, quantity))]
    fit = sorted((arm for arm in arms if not _unfit(arm, quantity)), key=lambda arm: _key(arm, quantity))
    level = exact(confidence)
    both = list(combinations(range(len(fit)), 2))
    seen = [measure(quantity, fit[i], fit[j], 0.0, max(len(both), 1), level) for i, j in both]
    # Each arm against one with a better median, by Bonferroni: by Holm's steps an arm that gets too slow to be told from a
    # slower one would raise what it takes to tell it from the best, and so rise into the first tier.
    adjusted = [min(1.0, 2 * m.shift.p_up * len(seen)) for m in seen]
    alpha = float(1 - level)
    apart = {pair: p <= alpha for pair, p in zip(both, adjusted, strict=True)}
    places: list[Place] = []
    leader, tier = 0, 1
    for i, arm in enumerate(fit):
        # The arms come in order, so the first that is told from the leader opens the next tier.
        if i and apart[leader, i]:
            leader, tier = i, tier + 1
        values = arm.values(quantity)
        places.append(Place(arm.name, tier, float(np.median(values)), tuple(values.tolist()), i == leader))
    overlaps = [(fit[i].name, fit[j].name) for i, j in both if places[i].tier != places[j].tier and not apart[i, j]]
    pairings = tuple(
        Pairing(fit[i].name, fit[j].name, m.effect, m.interval, p, apart[i, j])
        for (i, j), m, p in zip(both, seen, adjusted, strict=True)
    )
    return Ranking(
        quantity, tuple(places), pairings, tuple(overlaps), tuple(excluded), _needed(fit, seen, (1 - level) / 2)
    )


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


def _needed(fit: Sequence[Arm], seen: Sequence[Measured], alpha: Fraction) -> int:
    if not seen:
        return 0
    for first, second in combinations(fit, 2):
        joined = pairs(first, second) is not None
        if not any(decidable(len(first.runs), len(second.runs), joined, len(seen), alpha)):
            return runs_needed(len(seen), alpha)
    return 0


def separable(ranking: Ranking, first: str, second: str) -> bool:
    """The two arms were told apart."""
    return any(p.apart for p in ranking.pairings if {p.first, p.second} == {first, second})


__all__ = ["Pairing", "Place", "Ranking", "rank", "separable"]
