"""Is the share of bad entries at most what was promised, and how sure are we when neighbours share their fate?

Two tests must both agree. The exact binomial one (Clopper and Pearson 1934) holds for independent entries and any sample
size. The second holds when entries that were due near each other go bad together, as queued requests do: the run is cut
into BLOCKS of equal counts in order of due time, and only what varies from block to block counts.

Both are monotone: one more bad entry never turns FAIL into anything else, and never makes a PASS. That is why the second
uses no variance about the observed mean, which can fall when a good entry turns bad. It uses excess over the limit: to
show few bad, only blocks that are worse than the limit speak against it; to show many, only those that are better. Under a
share exactly at the limit a third of three times the sum of squared excesses is at least the half of the variance that
lies on that side, and the largest excess pays for skewness; size and power by simulation are in docs/statistics.md. With
no bad entry at all nothing can be known of how they cluster, so then the exact test stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from slo.distribution import exact
from slo.records import BoolArray, FloatArray, IntArray, Records
from slo.statistics import confidence as sure
from slo.statistics.confidence import Probability

BLOCKS = 30
#: Fewer entries a block tell nothing of how bad ones cluster.
MIN_BLOCK = 10
MIN_BLOCKS = 8
#: Weight of the squared excess on one side of the limit.
EXCESS_WEIGHT = 3.0

_SLAB = 4_000_000  # values taken at a time: bounds the memory, not the result

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True)
class ShareTest:
    """``p_pass``: how often a share at the limit would look at least as good as this; ``p_fail``: at least as bad.

    ``interval``: lower and upper bound of the bad share, each at the confidence alone. ``allowed``: as many bad of n
    would pass if they lay evenly (-1: n is too small for any). ``n_needed``: 0 when decided, else the total n that would
    decide if the observed share and clustering held, None when no n would. ``design_effect``: how many entries count as
    one, at least 1; n / design_effect is the effective sample size.
    """

    outcome: Outcome
    p_pass: float
    p_fail: float
    interval: tuple[float, float]
    n: int
    bad: int
    allowed: int
    n_needed: int | None
    design_effect: float


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


@dataclass(frozen=True, slots=True)
class Cut:
    """Which block each record belongs to: ``block`` int64[records] (-1: not measured), ``number`` of blocks."""

    block: IntArray
    number: int

    def count(self, bad: BoolArray, row: IntArray) -> Blocks:
        """Block counts of values: bad[m] of the records at row[m]."""
        size, worse = np.zeros(self.number, np.int64), np.zeros(self.number, np.int64)
        for first in range(0, len(row), _SLAB):
            where = self.block[row[first : first + _SLAB]]
            size += np.bincount(where, minlength=self.number)
            worse += np.bincount(where[bad[first : first + _SLAB]], minlength=self.number)
        return Blocks(worse.astype(np.float64), size.astype(np.float64))


def cut(records: Records, least: int = MIN_BLOCK) -> Cut:
    """Cut the measured records into blocks of nearly equal counts, at least ``least`` each, in order of due time.

    What a request does, and how many values it has, moves no other request to another block.
    """
    rows = np.flatnonzero(records.in_measure)
    number = max(1, min(BLOCKS, len(rows) // least))
    order = np.argsort(records["due_ns"][rows], kind="stable")
    block = np.full(len(records), -1, np.int64)
    block[rows[order]] = np.arange(len(rows)) * number // max(len(rows), 1)
    return Cut(block, number)


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


def p_few(seen: Blocks, limit: Probability) -> float:
    """p value of "the bad share is at most ``limit``": the worse of both tests."""
    p = sure.binomial_at_most(seen.n_bad, seen.n, limit)
    return max(p, clustered_p(seen, float(exact(limit)), "few")) if seen.dependent else p


def p_many(seen: Blocks, limit: Probability) -> float:
    """p value of "the bad share is above ``limit``": the worse of both tests."""
    p = sure.binomial_at_least(seen.n_bad, seen.n, limit)
    return max(p, clustered_p(seen, float(exact(limit)), "many")) if seen.dependent else p


def interval(seen: Blocks, confidence: Probability = "0.95") -> tuple[float, float]:
    """Bounds of the bad share, each alone at ``confidence``: the limits that neither test tells from the observed share.

    (0, 1) for no entries. Never narrower than Clopper and Pearson's.
    """
    n, bad = seen.n, seen.n_bad
    low, high = sure.clopper_pearson(bad, n, confidence, sides=1)
    if not seen.dependent:
        return low, high
    alpha = float(1 - exact(confidence))
    share = bad / n
    if clustered_p(seen, high, "few") > alpha:
        high = _edge(high, 1.0, lambda limit: clustered_p(seen, limit, "few") <= alpha)
    if low > 0 and clustered_p(seen, low, "many") > alpha:
        low = _edge(low, 0.0, lambda limit: clustered_p(seen, limit, "many") <= alpha)
    return min(low, share), max(high, share)


def _edge(inside: float, outside: float, holds: Callable[[float], bool]) -> float:
    """Between a limit that does not hold and the end of the scale: the nearest that does, to one part in 10^9."""
    if not holds(outside):
        return outside
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if holds(middle) else (middle, outside)
    return outside


def design_effect(seen: Blocks) -> float:
    """How much more block counts vary than independent entries would: at least 1. For display; no verdict uses it."""
    share = seen.n_bad / seen.n if seen.n else 0.0
    if not seen.dependent or not 0.0 < share < 1.0:
        return 1.0
    rest = seen.bad - share * seen.size
    expected = share * (1 - share) * float(seen.size.sum())
    b = len(seen.size)
    return max(1.0, float(np.square(rest).sum()) * b / (b - 1) / expected)


def share_test(bad: BoolArray, limit: Probability, confidence: Probability = "0.95") -> ShareTest:
    """Test bad[n], in order of due time, against a promised bad share ``limit`` strictly between 0 and 1.

    No entries: INCONCLUSIVE. Raises ValueError for a limit or confidence outside (0, 1).
    """
    return judge_blocks(blocks_of(np.asarray(bad)), limit, confidence)


def judge_blocks(seen: Blocks, limit: Probability, confidence: Probability = "0.95") -> ShareTest:
    """As ``share_test``, from block counts."""
    bound = exact(limit)
    if not 0 < bound < 1:
        raise ValueError(f"limit {limit}: lies strictly between 0 and 1")
    alpha = float(1 - exact(confidence))
    n, bad = seen.n, seen.n_bad
    few, many = (p_few(seen, bound), p_many(seen, bound)) if n else (1.0, 1.0)
    outcome: Outcome = "PASS" if few <= alpha else "FAIL" if many <= alpha else "INCONCLUSIVE"
    effect = design_effect(seen)
    return ShareTest(
        outcome=outcome,
        p_pass=few,
        p_fail=many,
        interval=interval(seen, confidence) if n else (0.0, 1.0),
        n=n,
        bad=bad,
        allowed=sure.most_bad_allowed(n, bound, confidence),
        n_needed=_needed(seen, bound, confidence, effect) if outcome == "INCONCLUSIVE" else 0,
        design_effect=effect,
    )


def _needed(seen: Blocks, limit: Fraction, confidence: Probability, effect: float) -> int | None:
    """What would decide: the exact count for independent entries, times what each counts for; more than there are."""
    n = seen.n
    needed = sure.n_needed(round(seen.n_bad / effect), math.ceil(n / effect), limit, confidence) if n else None
    if n == 0 or needed == 0:
        needed = sure.n_needed(0, 0, limit, confidence) if n == 0 else math.ceil(n / effect)
    if needed is None:
        return None
    return max(math.ceil(needed * effect), n + 1)
