"""How sure a run makes us of one component's bad share, and of a sum of several.

Of plain events it is ``plimsoll.slo.statistics.share``: exact binomial on what the run's memory leaves of them. A mean over slices weighs an event by 1 / (slices times
events of its slice). For independent events X in [0, 1] with weights w that add up to at most 1 and largest weight W,
Jensen's inequality twice (E[e^(t w X / W)] <= (1 - p + p e^t)^(w / W), and the logarithm is concave) gives Hoeffding's
bound with 1 / W events: P[sum w X <= y] <= exp(-KL(y || mean) / W). It holds at every size, and one more bad event
always weakens PASS. The memory of the slices' shares divides it, as everywhere.

A composite has a budget of burn: the sum of weight times bad share over allowed share is at most 1. Components share
requests, so nothing is assumed of how they depend: each of m has its bound at 1 - (1 - confidence) / m.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.memory import of_ranks, ranks

#: No p value is told below this.
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True)
class Events:
    """Plain events, and how far they are from their limit where that is a time;
    ``failed`` of the bad ones are of requests that failed.
    """

    seen: share.Counted
    far: Distance | None = None
    failed: int = 0

    @property
    def n(self) -> int:
        """Number of events."""
        return self.seen.n

    @property
    def loss(self) -> float:
        """Share of bad ones; 0 for none."""
        return self.seen.bad / self.seen.n if self.seen.n else 0.0

    def p_few(self, limit: Fraction) -> float:
        """p value of "the bad share is at most limit"."""
        return share.p_few(self.seen, limit, self.far)

    def p_many(self, limit: Fraction) -> float:
        """p value of "the bad share is above limit"."""
        return share.p_many(self.seen, limit, self.far)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the bad share, each wrong with probability ``alpha`` at most."""
        return share.interval(self.seen, 1 - Fraction(alpha), self.far)


@dataclass(frozen=True, slots=True)
class SliceMean:
    """The mean of slices' bad shares. ``n`` events; ``effective``: 1 / the largest weight of one, over the slices' memory."""

    n: int
    loss: float
    effective: float

    def p_few(self, limit: Fraction) -> float:
        """p value of "the mean bad share is at most limit"."""
        return self._p(float(limit), few=True)

    def p_many(self, limit: Fraction) -> float:
        """p value of "the mean bad share is above limit"."""
        return self._p(float(limit), few=False)

    def _p(self, limit: float, few: bool) -> float:
        if not self.n or (self.loss >= limit if few else self.loss <= limit):
            return 1.0
        return math.exp(-self.effective * relative_entropy(self.loss, limit))

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the mean bad share, each wrong with probability ``alpha`` at most."""
        if not self.n:
            return 0.0, 1.0
        high = _edge(self.loss, 1.0, lambda limit: self._p(limit, few=True) <= alpha)
        low = _edge(self.loss, 0.0, lambda limit: self._p(limit, few=False) <= alpha)
        return low, high


def relative_entropy(y: float, mean: float) -> float:
    """KL(y || mean) of two coins, in nats; infinite where ``mean`` rules ``y`` out."""
    total = 0.0
    for a, b in ((y, mean), (1 - y, 1 - mean)):
        if a > 0:
            if b <= 0:
                return math.inf
            total += a * math.log(a / b)
    return max(total, 0.0)


def _edge(inside: float, outside: float, rejected: Callable[[float], bool]) -> float:
    """The nearest limit between a share and the end of the scale that the data rule out; the end where none is."""
    if inside == outside:
        return outside
    for _ in range(50):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside


def slice_mean(used: BoolArray, loss: FloatArray, total: IntArray) -> SliceMean:
    """Evidence of the mean of ``loss`` float64[slices] over the used ones, of ``total`` events each."""
    count = int(np.count_nonzero(used))
    events = total[used]
    if not count or not events.any():
        return SliceMean(0, 0.0, 0.0)
    kept = loss[used]
    memory = of_ranks(ranks(kept))
    effective = count * float(events[events > 0].min()) / memory.design
    return SliceMean(int(events.sum()), float(kept.mean()), effective)


@dataclass(frozen=True, slots=True)
class Part:
    """One component of a sum: its evidence, its weight, and the bad share allowed."""

    evidence: Events | SliceMean
    weight: Fraction
    allowed: Fraction

    def burn(self, loss: float) -> float:
        """What a bad share of ``loss`` adds to the burn of the whole."""
        return loss * float(self.weight / self.allowed)


@dataclass(frozen=True, slots=True)
class Sum:
    """Evidence of the burn of several components: 1 is exactly on budget."""

    parts: Sequence[Part]

    @property
    def n(self) -> int:
        """Events of the component with the most."""
        return max(part.evidence.n for part in self.parts)

    @property
    def burn(self) -> float:
        """As observed."""
        return sum(part.burn(part.evidence.loss) for part in self.parts)

    @property
    def complete(self) -> bool:
        """Whether every component has an event."""
        return all(part.evidence.n for part in self.parts)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the burn, each wrong with probability ``alpha`` at most."""
        each = [(part, part.evidence.bounds(alpha / len(self.parts))) for part in self.parts]
        return sum(part.burn(low) for part, (low, _) in each), sum(part.burn(high) for part, (_, high) in each)

    def p_few(self) -> float:
        """p value of "the burn is at most 1"."""
        if len(self.parts) == 1:
            return self._one(few=True)
        return _smallest_alpha(lambda alpha: self.bounds(alpha)[1] <= 1)

    def p_many(self) -> float:
        """p value of "the burn is above 1"."""
        if len(self.parts) == 1:
            return self._one(few=False)
        return _smallest_alpha(lambda alpha: self.bounds(alpha)[0] > 1)

    def _one(self, few: bool) -> float:
        part = self.parts[0]
        limit = part.allowed / part.weight
        if limit >= 1:  # it can't burn more than its budget
            return (0.0 if part.evidence.n else 1.0) if few else 1.0
        return part.evidence.p_few(limit) if few else part.evidence.p_many(limit)

    def n_needed(self, alpha: float) -> int | None:
        """About how many events would decide if the burn held: bounds close in with the square root of their number."""
        low, high = self.bounds(alpha)
        gap, width = (1 - self.burn, high - self.burn) if self.burn < 1 else (self.burn - 1, self.burn - low)
        if gap <= 1e-9 or width / gap > 1e5:
            return None
        return max(math.ceil(self.n * (width / gap) ** 2), self.n + 1)


def _smallest_alpha(decides: Callable[[float], bool]) -> float:
    """The smallest chance of error at which the bounds decide; 1 when they don't at any."""
    high, low = math.log(0.5), math.log(_SMALLEST)
    if not decides(0.5):
        return 1.0
    for _ in range(40):
        middle = (high + low) / 2
        high, low = (middle, low) if decides(math.exp(middle)) else (high, middle)
    return math.exp(high)
