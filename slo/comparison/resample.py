"""The spread of a quantile within one run, for the case of one run on each side.

Requests of one run depend on each other: a queue that is long stays long for a while. So a run's n values weigh as many
as n / d independent ones, with d, the design effect, from the counts beyond the quantile in blocks of successive requests.
The interval of a ratio of quantiles then draws ranks instead of values (Schultzberg & Ankargren): the rank of a
resampled q-quantile is binomial, so that 4,000 resamples of a million values take milliseconds.

It says nothing of other runs: between-run variance is not in it, and nothing here judges.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from slo.records import BoolArray, FloatArray

#: Fewer blocks estimate no variance worth the name; more make blocks shorter than a busy period.
_BLOCKS = 30
_DRAWS = 4_000


def design_effect(beyond: BoolArray) -> float:
    """How many values, in the order in which they were due, weigh as much as one independent value; at least 1.

    The variance of the counts in equal blocks over the binomial one. 1 when there are too few values to tell.
    """
    n = len(beyond)
    if n < 4 * _BLOCKS:
        return 1.0
    share = float(np.count_nonzero(beyond)) / n
    if share in (0.0, 1.0):
        return 1.0
    size = n // _BLOCKS
    counts = beyond[: size * _BLOCKS].reshape(_BLOCKS, size).sum(axis=1)
    return max(1.0, float(counts.var(ddof=1)) / (size * share * (1 - share)))


def ranks(n: int, q: Fraction, effect: float, rng: np.random.Generator, draws: int = _DRAWS) -> FloatArray:
    """int-valued float64[draws]: positions in n sorted values of resampled q-quantiles."""
    independent = max(int(n / effect), 1)
    drawn = rng.binomial(independent + 1, float(q), draws) / (independent + 1)
    return np.asarray(np.clip(np.ceil(drawn * n) - 1, 0, n - 1), np.float64)


def ratio_interval(
    base: FloatArray,
    candidate: FloatArray,
    q: Fraction,
    effects: tuple[float, float] = (1.0, 1.0),
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of candidate's q-quantile over base's; both float64, ascending.

    Ratios that can't be formed (infinite over infinite, zero over zero) widen it on both sides.
    """
    if not len(base) or not len(candidate):
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    below = base[ranks(len(base), q, effects[0], rng).astype(np.int64)]
    above = candidate[ranks(len(candidate), q, effects[1], rng).astype(np.int64)]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = above / below
    unknown = np.isnan(ratios)
    alpha = (1 - confidence) / 2
    low, high = np.sort(np.where(unknown, 0.0, ratios)), np.sort(np.where(unknown, np.inf, ratios))
    cut = int(alpha * len(ratios))
    return float(low[cut]), float(high[len(high) - 1 - cut])
