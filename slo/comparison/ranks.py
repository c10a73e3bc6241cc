"""Rank tests and their intervals: Mann-Whitney and Wilcoxon, exact, and never kinder to a slower candidate.

The null distribution is that of values without ties; a tie, or a difference that can't be formed, counts against
whatever is to be shown, so that slowing a candidate down only moves both ends of its interval up. Samples of unequal
size may be asked to pass a second bound, for unequal spreads. docs/evidence/compare-statistics.md says why midranks and
the bootstrap don't do. Also Fisher's exact test and Benjamini-Hochberg's adjustment; nothing here knows of runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.distribution import exact

#: Up to this size of the null distribution it is counted out; beyond it the normal approximation is good to 4 digits.
_EXACT = 10_000


@dataclass(frozen=True, slots=True)
class Shift:
    """Second sample against first. ``statistic``: U or W, ties counted as half.

    ``p_up``: one-sided, that such large values come about by chance; ``p_down``: such small ones. ``low``, ``high``:
    the two-sided interval of the shift at the confidence asked for, -inf and +inf where there are too few values.
    """

    statistic: float
    p_up: float
    p_down: float
    low: float
    high: float

    @property
    def p(self) -> float:
        """Two-sided."""
        return min(1.0, 2 * min(self.p_up, self.p_down))


@lru_cache(maxsize=256)
def _cumulated_u(m: int, n: int) -> tuple[int, ...]:
    """How many of the C(m + n, n) orders have a Mann-Whitney U of at most 0, 1, ..., m n.

    Counted by the generating function prod (1 - x^(n + i)) / (1 - x^i), i = 1..m, in whole numbers.
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for k in range(m * n, n + i - 1, -1):
            counts[k] -= counts[k - n - i]
        for k in range(i, m * n + 1):
            counts[k] += counts[k - i]
    return tuple(int(c) for c in _running(counts))


@lru_cache(maxsize=256)
def _cumulated_w(n: int) -> tuple[int, ...]:
    """How many of the 2^n signs have a Wilcoxon W of at most 0, 1, ..., n (n + 1) / 2."""
    top = n * (n + 1) // 2
    counts = [1] + [0] * top
    for i in range(1, n + 1):
        for k in range(top, i - 1, -1):
            counts[k] += counts[k - i]
    return tuple(_running(counts))


def _running(counts: Sequence[int]) -> list[int]:
    total, sums = 0, []
    for count in counts:
        total += count
        sums.append(total)
    return sums


@dataclass(frozen=True, slots=True)
class _Null:
    """A statistic of 0..``top`` when all differences are chance: counted out where ``cumulated``, else normal.

    ``wide``: its standard deviation where the spreads differ, at worst; 0 where that makes no difference.
    """

    top: int
    cumulated: tuple[int, ...] | None
    spread: float
    wide: float = 0.0

    def at_most(self, k: int) -> float:
        """P[statistic <= k]; of unequal spreads half, for there twice the error is allowed."""
        if k < 0:
            return 0.0
        if k >= self.top:
            return 1.0
        alike = _tail(self.top, k, self.spread) if self.cumulated is None else self.cumulated[k] / self.cumulated[-1]
        return max(alike, _tail(self.top, k, self.wide) / 2 if self.wide else 0.0)

    def cut(self, alpha: Fraction) -> int:
        """The largest k with P[statistic <= k - 1] <= alpha; 0 when there is none."""
        if self.cumulated is not None and not self.wide:
            total = self.cumulated[-1]
            return sum(1 for count in self.cumulated if count * alpha.denominator <= alpha.numerator * total)
        k = 0
        while self.at_most(k) <= alpha:
            k += 1
        return k


def _tail(top: int, k: int, spread: float) -> float:
    return 0.5 * math.erfc((top / 2 - k - 0.5) / (spread * math.sqrt(2)))


def _of(differences: FloatArray, null: _Null, alpha: Fraction) -> Shift:
    """A test and its interval from all pairwise differences; NaN is one that can't be formed."""
    unknown = np.isnan(differences)
    low, high = np.where(unknown, -np.inf, differences), np.where(unknown, np.inf, differences)
    above, below = int(np.count_nonzero(low > 0)), int(np.count_nonzero(high < 0))
    cut = null.cut(alpha)
    bounds = (-math.inf, math.inf)
    if cut:
        bounds = (float(np.sort(low)[cut - 1]), float(np.sort(high)[len(high) - cut]))
    ties = len(differences) - above - below
    return Shift(above + ties / 2, null.at_most(null.top - above), null.at_most(null.top - below), *bounds)


def mann_whitney(
    first: FloatArray, second: FloatArray, confidence: Fraction | str | float = "0.95", spreads: float = 1.0
) -> Shift:
    """Two independent samples (Mann & Whitney 1947), the interval by Hodges & Lehmann (1963).

    ``first`` float64[m], ``second`` float64[n]; infinite values allowed, NaN not. [1..5] against [6..10]: p =
    0.0079365. ``spreads``: one sample may be so many times as wide as the other.
    """
    alpha = (1 - exact(confidence)) / 2
    with np.errstate(invalid="ignore"):  # infinite minus infinite is the NaN that is wanted
        differences = (second[:, None] - first[None, :]).ravel()
    return _of(differences, _null_u(len(first), len(second), spreads), alpha)


def _null_u(m: int, n: int, spreads: float) -> _Null:
    """Of U. Samples of equal size hold their level well enough by themselves when the spreads differ.

    Else the standard deviation of U for two centred normal samples, the smaller one ``spreads`` times as wide: two
    pairs that share a value are both in order with 1/4 + asin(r) / (2 pi), where r is that value's share of a pair's
    variance, and so Var(U / m n) = asin(r) / (2 pi n) + asin(1 - r) / (2 pi m), but for terms in 1 / (m n).
    """
    cumulated = _cumulated_u(m, n) if m * n <= _EXACT else None
    alike, wide = math.sqrt(m * n * (m + n + 1) / 12), 0.0
    if m != n and spreads > 1:
        r = spreads**2 / (1 + spreads**2)
        wide = m * n * math.sqrt((math.asin(r) / min(m, n) + math.asin(1 - r) / max(m, n)) / (2 * math.pi))
    return _Null(m * n, cumulated, alike, wide)


def signed_rank(differences: FloatArray, confidence: Fraction | str | float = "0.95") -> Shift:
    """Paired samples (Wilcoxon 1945) as the count of positive Walsh averages (Tukey), which also give the interval.

    ``differences`` float64[n]; NaN is a pair whose difference can't be formed. 5 pairs: p >= 0.0625; 6: 0.03125.
    """
    n = len(differences)
    i, j = np.triu_indices(n)
    with np.errstate(invalid="ignore"):
        walsh = np.asarray((differences[i] + differences[j]) / 2, np.float64)
    top = n * (n + 1) // 2
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    cumulated = _cumulated_w(n) if top <= _EXACT else None
    return _of(walsh, _Null(top, cumulated, spread), (1 - exact(confidence)) / 2)


def least_p_unpaired(m: int, n: int, spreads: float = 1.0) -> Fraction:
    """The least one-sided p that ``mann_whitney`` can reach: 1 / C(m + n, n), or what unequal spreads leave of it."""
    least = Fraction(1, math.comb(m + n, n))
    return max(least, Fraction(_null_u(m, n, spreads).at_most(0))) if spreads > 1 else least


def least_p_paired(n: int) -> Fraction:
    """The smallest one-sided p that ``signed_rank`` can reach: 2^-n."""
    return Fraction(1, 2**n)


def fisher(bad: int, n: int, more_bad: int, more_n: int) -> float:
    """One-sided p that ``more_bad`` of ``more_n`` is more than ``bad`` of ``n`` by chance (Fisher's exact test).

    Both counts are random in it. Counted above the k-th largest value of the first sample, with bad = k - 1, it is the
    exact exceedance test: drawing the limit from the base costs nothing. 100/10000 against 130/10000: 0.0271. 1 for no
    data.
    """
    from plimsoll.slo.statistics.special import gammaln

    for k, of in ((bad, n), (more_bad, more_n)):
        if not 0 <= k <= of:
            raise ValueError(f"{k} of {of}: a count lies in 0..n")
    marked, total = bad + more_bad, n + more_n
    if not n or not more_n or more_bad == 0:
        return 1.0
    # Fifty standard deviations from the middle no probability is left that a float could hold (10 M gaps: 2 s, not 28).
    middle = marked * more_n / total
    reach = 50 + 50 * math.sqrt(middle * (total - marked) / total * n / max(total - 1, 1))
    least = max(more_bad, math.floor(middle - reach))
    x = np.arange(least, min(marked, more_n, math.ceil(max(middle, more_bad) + reach)) + 1, dtype=np.float64)

    def log_choose(of: float | FloatArray, k: float | FloatArray) -> FloatArray:
        return np.asarray(gammaln(np.add(of, 1.0)) - gammaln(np.add(k, 1.0)) - gammaln(np.subtract(of, k) + 1.0))

    log_p = log_choose(more_n, x) + log_choose(n, marked - x) - log_choose(total, marked)
    return float(min(1.0, np.exp(log_p).sum()))


def benjamini_hochberg(p: Sequence[float]) -> tuple[float, ...]:
    """Benjamini & Hochberg's (1995) adjustment: the false ones' share among those at most alpha is alpha.

    For exploring.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, ceiling = [0.0] * len(p), 1.0
    for rank, i in reversed(list(enumerate(order, start=1))):
        ceiling = min(ceiling, len(p) / rank * p[i])
        adjusted[i] = ceiling
    return tuple(adjusted)
