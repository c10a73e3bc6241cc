"""Events of which nothing is known but which are bad: errors, slices of time. How they cluster shows in blocks of them.

They are cut in order of due time, and only what varies from block to block counts: to show few bad, only blocks worse than the
limit speak against it; to show many, only those that are better. Under a share exactly at the limit a third of three times
the sum of squared excesses is at least the half of the variance on that side, and the largest excess pays for skewness.
Bursts that are rarer than a run is long can't be seen by this, or by any other test: docs/statistics.md has the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact

#: Blocks of entries of which only the bad ones are known; fewer entries a block tell nothing of how they cluster.
BLOCKS = 30
MIN_BLOCK = 10
MIN_BLOCKS = 8
#: Weight of the squared excess on one side of the limit.
EXCESS_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Blocks:
    """``bad`` float64[b] and ``size`` float64[b] of contiguous blocks of entries in order of due time."""

    bad: FloatArray
    size: FloatArray

    @property
    def n(self) -> int:
        """Number of entries."""
        return int(self.size.sum())

    @property
    def n_bad(self) -> int:
        """Number of bad ones."""
        return int(self.bad.sum())

    @property
    def dependent(self) -> bool:
        """Whether there are enough entries to see how bad ones cluster."""
        return len(self.size) >= MIN_BLOCKS


def blocks_of(bad: BoolArray) -> Blocks:
    """Cut bad[n] into blocks of nearly equal counts."""
    n = len(bad)
    number = max(1, min(BLOCKS, n // MIN_BLOCK))
    edges = np.linspace(0, n, number + 1).astype(np.int64)
    counts = np.add.reduceat(bad, edges[:-1], dtype=np.int64) if n else np.zeros(1, np.int64)
    return Blocks(counts.astype(np.float64), np.diff(edges).astype(np.float64))


def p_of_blocks(seen: Blocks, limit: Probability, side: Literal["few", "many"]) -> float:
    """p value of events of which only the bad ones are known: the worse of both tests."""
    exactly = sure.binomial_at_most if side == "few" else sure.binomial_at_least
    bare = exactly(seen.n_bad, seen.n, limit)
    return max(bare, clustered_p(seen, float(exact(limit)), side)) if seen.dependent else bare


def clustered_p(seen: Blocks, limit: float, side: Literal["few", "many"]) -> float:
    """How often bad entries that cluster as these do would, at a share of ``limit``, look as ``few`` or as ``many``.

    1 when the observed share lies on the wrong side of the limit, 0 when no block does.
    """
    from scipy.special import stdtr

    excess = seen.bad - limit * seen.size
    if side == "many":
        excess = -excess
    against = np.maximum(excess, 0.0)
    gap = -float(excess.sum()) - float(against.max())
    if gap <= 0:
        return 1.0
    spread = math.sqrt(EXCESS_WEIGHT * float(np.square(against).sum()))
    return float(stdtr(len(seen.size) - 1, -gap / spread)) if spread else 0.0


def design_effect(seen: Blocks) -> float:
    """How much more block counts vary than independent entries would: at least 1. For display; no verdict uses it."""
    share = seen.n_bad / seen.n if seen.n else 0.0
    if not seen.dependent or not 0.0 < share < 1.0:
        return 1.0
    rest = seen.bad - share * seen.size
    expected = share * (1 - share) * float(seen.size.sum())
    b = len(seen.size)
    return max(1.0, float(np.square(rest).sum()) * b / (b - 1) / expected)
