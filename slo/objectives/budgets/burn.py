"""Burn rates over windows: how fast each stretch of a run spends an SLO's error budget.

    burn(w) = bad share in w / allowed bad share        1: the budget lasts exactly the period
    of several accounts: the sum of weight * burn

Everything is prefix sums over distinct times, so fifty million gaps of a million requests cost what a million requests do.
A window at t holds the entries in (t - w, t]. Nothing here compares with a limit or looks at a period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.objectives.budgets.ledger import Account, Ledger
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.share import Counted


@dataclass(frozen=True, slots=True)
class Tally:
    """An account by distinct times ``at_ns`` int64[m], ascending: ``bad`` float64[m + 1] and ``n`` int64[m + 1] are what
    lies before each, and in all. ``whole``: every entry is good or bad, none in between. ``seen``, ``far``: as of the account.
    """

    at_ns: IntArray
    bad: FloatArray
    n: IntArray
    allowed: Fraction
    weight: Fraction
    whole: bool
    seen: Counted | None = None
    far: Distance | None = None

    @property
    def share(self) -> Fraction | None:
        """The bad share, exact for whole entries; None for no entries."""
        total = int(self.n[-1])
        return Fraction(float(self.bad[-1])) / total if total else None

    def inside(self, since_ns: IntArray, until_ns: IntArray) -> tuple[FloatArray, FloatArray]:
        """(sum of bad, number) of the entries in each ``since < at <= until``."""
        first = np.searchsorted(self.at_ns, since_ns, side="right")
        last = np.searchsorted(self.at_ns, until_ns, side="right")
        return self.bad[last] - self.bad[first], (self.n[last] - self.n[first]).astype(np.float64)


def tally(account: Account) -> Tally:
    """The account with entries of one time put together. Raises ValueError for an account that is not in order."""
    at, bad = account.at_ns, account.bad
    if len(at) != len(bad):
        raise ValueError(f"{len(at)} times and {len(bad)} entries: give every entry its time")
    if (at[1:] < at[:-1]).any():
        raise ValueError("the times of an account must ascend; sort its entries by due time")
    start = np.concatenate([np.zeros(min(len(at), 1), np.int64), np.flatnonzero(at[1:] != at[:-1]) + 1])
    sums = np.add.reduceat(bad, start) if len(at) else np.empty(0)
    return Tally(
        at_ns=at[start],
        bad=np.concatenate([[0.0], np.cumsum(sums)]),
        n=np.append(start, len(at)),
        allowed=account.allowed,
        weight=account.weight,
        whole=bool(((bad == 0) | (bad == 1)).all()),
        seen=account.seen,
        far=account.far,
    )


def tallies(ledger: Ledger) -> tuple[Tally, ...]:
    """Every account of the ledger."""
    return tuple(tally(account) for account in ledger.accounts)


def covered_ns(accounts: Sequence[Tally]) -> int:
    """From t0 to the last entry: how long any window can look back. An answer that comes late covers nothing."""
    return max((int(a.at_ns[-1]) for a in accounts if len(a.at_ns)), default=0)


def times_ns(accounts: Sequence[Tally]) -> IntArray:
    """The distinct times of entries of any account, ascending: when a burn rate is looked at."""
    if len(accounts) == 1:
        return accounts[0].at_ns
    return np.unique(np.concatenate([a.at_ns for a in accounts])) if accounts else np.empty(0, np.int64)


def burn_rate(accounts: Sequence[Tally]) -> float | None:
    """Burn of the whole run; None if an account has no entry, for then nothing is known of it."""
    total = Fraction(0)
    for account in accounts:
        share = account.share
        if share is None:
            return None
        total += account.weight * share / account.allowed
    return float(total) if accounts else None


def burn_between(accounts: Sequence[Tally], since_ns: IntArray, until_ns: IntArray) -> FloatArray:
    """Burn of each stretch ``since < at <= until``; NaN where there is no entry at all. An account without one there has
    nothing to burn.
    """
    total = np.zeros(len(until_ns))
    seen: BoolArray = np.zeros(len(until_ns), np.bool_)
    for account in accounts:
        bad, n = account.inside(since_ns, until_ns)
        total += _burn(account, bad, n)
        seen |= n > 0
    return np.where(seen, total, np.nan)


@dataclass(frozen=True, slots=True)
class WindowBurn:
    """Burn over one window at each time. ``cut``: of the entries of the run alone, so before ``window_ns`` the window is
    cut off at t0. ``least``: with the missing part filled by good entries, as many per second as in the run; a worse past
    can only make it higher. The two agree where the whole window lies in the run.
    """

    window_ns: int
    cut: FloatArray
    least: FloatArray


def window_burn(accounts: Sequence[Tally], at_ns: IntArray, window_ns: int) -> WindowBurn:
    """Burn over the window that ends at each of ``at_ns``."""
    covered = covered_ns(accounts)
    cut, least = np.zeros(len(at_ns)), np.zeros(len(at_ns))
    seen: BoolArray = np.zeros(len(at_ns), np.bool_)
    since = at_ns - window_ns
    before_ns = np.maximum(-since, 0)
    for account in accounts:
        bad, n = account.inside(since, at_ns)
        rate = float(account.n[-1]) / covered if covered else 0.0
        cut += _burn(account, bad, n)
        least += _burn(account, bad, n + rate * before_ns)
        seen |= n > 0
    return WindowBurn(window_ns, np.where(seen, cut, np.nan), np.where(seen, least, np.nan))


def _burn(account: Tally, bad: FloatArray, n: FloatArray) -> FloatArray:
    """weight * share / allowed; the exact factor first, so that 480 of 240,000 at 0.1 % is 2 and not 1.9999."""
    factor = account.weight / account.allowed
    return np.asarray(bad * float(factor.numerator) / (np.maximum(n, 1e-300) * float(factor.denominator)))
