"""The error budget of one SLO: what it is, how fast the run spent it, and when it would be gone.

    allowed E = 1 - target                     the budget of a period P: E of its entries, or E * P of its time
    burn      = bad share / E
    spent     = burn * T / P                   by time: a run of length T in which traffic is as in production
              = bad / (E * production * P)     by events: where somebody said how many events production has
    exhausted after P / burn                   from a full budget, were production always like the run

The two kinds of spending are never mixed, and neither is a verdict: ``plimsoll.slo.verdict.verdict`` judges, ``plimsoll.slo.objectives.budgets.alerts`` says what would
have fired. The intervals are for independent entries; verdicts also count how bad ones cluster, so they can be less sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from plimsoll.slo.objectives.budgets.ledger import Account, Ledger
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import Probability, clopper_pearson
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.share import Counted
from plimsoll.slo.statistics.share import interval as share_interval

# -- burn rates over windows ------------------------------------------------------------------------------------------

#     burn(w) = bad share in w / allowed bad share        1: the budget lasts exactly the period
#     of several accounts: the sum of weight * burn
#
# Everything is prefix sums over distinct times, so fifty million gaps of a million requests cost what a million
# requests do. A window at t holds the entries in (t - w, t].


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


SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * SECOND_NS

#: Points of the burn timeline, whatever the length of the run.
PARTS: Final = 300
_LEAST_PART_NS = 10_000_000
_BEFORE_NS = -(2**62)  # before any entry

Method = Literal["Clopper-Pearson", "Chernoff-Hoeffding", "as the verdict", "none"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of one ledger. None where there was no data; ``reason`` says so.

    ``bad`` of ``n`` entries. ``sli`` the good share; of several accounts 1 - burn * (1 - target), at least 0. ``span_ns``
    is T, ``covered_ns`` the time of the last entry. ``remaining``: 1 - spent by time, negative when overspent.
    ``exhausted_in_ns``: None also for "never". ``affordable_share``: the share of the period that may be like the run if
    the rest is as busy and has no bad entry, at most 1.
    """

    n: int
    bad: float
    span_ns: int
    covered_ns: int
    budget_ns: int
    method: Method
    sli: float | None = None
    sli_interval: Interval | None = None
    burn: float | None = None
    burn_interval: Interval | None = None
    spent_by_time: float | None = None
    spent_by_events: float | None = None
    no_events_reason: str = ""
    remaining: float | None = None
    exhausted_in_ns: int | None = None
    affordable_share: float | None = None
    reason: str = ""


def run_span_ns(records: Records) -> int:
    """T: from t0 to the last due or done of a measured request, whichever is later.

    A stalled end makes T longer, so more is spent by time, never less. Giving up early does not make it shorter than the
    schedule.
    """
    measured = records.in_measure
    if not measured.any():
        return 0
    return max(0, int(records["due_ns"][measured].max()), int(records["done_ns"][measured].max()))


def budget(
    ledger: Ledger, span_ns: int, confidence: Probability = "0.95", accounts: Sequence[Tally] | None = None
) -> Budget:
    """The budget of a ledger after a run of ``span_ns``; ``confidence`` is of each bound alone, as in a verdict.

    ``accounts``: the ledger's ``tallies``, where they are at hand.
    """
    accounts = tallies(ledger) if accounts is None else accounts
    n = sum(int(account.n[-1]) for account in accounts)
    bad = math.fsum(float(account.bad[-1]) for account in accounts)
    allowed = 1 - ledger.target
    covered, total_ns = covered_ns(accounts), budget_ns(allowed, ledger.period_ns)
    burn = burn_rate(accounts)
    if burn is None:
        empty = sum(1 for account in accounts if not account.n[-1])
        part = "" if len(accounts) == 1 else f" in {empty} of its {len(accounts)} parts"
        reason = f"no {ledger.entry} was counted{part}"
        return Budget(n, bad, span_ns, covered, total_ns, "none", no_events_reason=reason, reason=reason)
    low, high = burn_interval(accounts, confidence)
    spent = spent_by_time(burn, span_ns, ledger.period_ns)
    by_events, no_events_reason = _spent_by_events(ledger, accounts)
    worst, best = (max(0.0, 1.0 - bound * float(allowed)) for bound in (high, low))
    return Budget(
        n=n,
        bad=bad,
        span_ns=span_ns,
        covered_ns=covered,
        budget_ns=total_ns,
        method=_method(accounts),
        sli=_sli(accounts, burn, allowed),
        sli_interval=(worst, best),
        burn=burn,
        burn_interval=(low, high),
        spent_by_time=spent,
        spent_by_events=by_events,
        no_events_reason=no_events_reason,
        remaining=1.0 - spent,
        exhausted_in_ns=exhausted_in_ns(burn, ledger.period_ns),
        affordable_share=min(1.0, 1.0 / burn) if burn else 1.0,
    )


def _sli(accounts: Sequence[Tally], burn: float, allowed: Fraction) -> float:
    if len(accounts) == 1 and accounts[0].share is not None:
        return float(1 - accounts[0].share)
    return max(0.0, 1.0 - burn * float(allowed))


def budget_ns(allowed: Fraction, period_ns: int) -> int:
    """The budget as time: 99.9 % over 30 days is 43.2 minutes."""
    return round(allowed * period_ns)


def spent_by_time(burn: float, span_ns: int, period_ns: int) -> float:
    """Share of the period's budget that ``span_ns`` at this burn rate spends, were traffic even."""
    return burn * span_ns / period_ns


def spent_by_events(bad: float, allowed: Fraction, production_per_s: float, period_ns: int) -> float:
    """Share of the period's budget that these bad events are, of all that production would have in the period."""
    return bad / (float(allowed) * production_per_s * (period_ns / SECOND_NS))


def _spent_by_events(ledger: Ledger, accounts: Sequence[Tally]) -> tuple[float | None, str]:
    if ledger.entry != "request":
        return None, f"the budget is drawn from {ledger.entry}s, and production is known in requests"
    if not ledger.production_per_s:
        return None, "nobody said how many requests per second production has"
    parts = [
        float(a.weight) * spent_by_events(float(a.bad[-1]), a.allowed, ledger.production_per_s, ledger.period_ns)
        for a in accounts
    ]
    return math.fsum(parts), ""


def exhausted_in_ns(burn: float, period_ns: int) -> int | None:
    """How long a full budget lasts at this burn rate; None: for ever."""
    return round(Fraction(period_ns) / Fraction(burn)) if burn > 0 else None


def projected_sli(
    fraction: float, *, test_per_s: float, test_bad: float, base_per_s: float, base_bad: float = 0.0
) -> float:
    """The SLI were production like the run for ``fraction`` of the time, and like the baseline otherwise.

    ``*_per_s`` are rates of entries, ``*_bad`` bad shares; a busy time weighs more. Raises ValueError for a share outside
    0..1, a negative rate, or no traffic at all.
    """
    for name, share in (("fraction", fraction), ("test_bad", test_bad), ("base_bad", base_bad)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} {share}: a share lies in 0..1")
    if test_per_s < 0 or base_per_s < 0:
        raise ValueError(f"rates {test_per_s} and {base_per_s}: a rate is at least 0")
    test, base = fraction * test_per_s, (1 - fraction) * base_per_s
    if not test + base:
        raise ValueError("no traffic in either part: there is no SLI without entries")
    return 1.0 - (test * test_bad + base * base_bad) / (test + base)


def _method(accounts: Sequence[Tally]) -> Method:
    if all(account.seen is not None for account in accounts):
        return "as the verdict"
    return "Clopper-Pearson" if all(account.whole for account in accounts) else "Chernoff-Hoeffding"


def burn_interval(accounts: Sequence[Tally], confidence: Probability = "0.95") -> Interval:
    """A lower and an upper bound of the burn rate of accounts that all have entries, each alone at the confidence.

    Of accounts with evidence those of the verdict, which know how entries cluster; else Clopper and Pearson's for whole entries. For shares in between, the bound of Chernoff and Hoeffding, which holds for
    independent values in 0..1 of any shape. Of k accounts each gets a k-th of the error, so each sum keeps the confidence.
    """
    each = 1 - (1 - exact(confidence)) / max(len(accounts), 1)
    low = high = 0.0
    for account in accounts:
        n, bad = int(account.n[-1]), float(account.bad[-1])
        if account.seen is not None:
            below, above = share_interval(account.seen, each, account.far)
        elif account.whole:
            below, above = clopper_pearson(round(bad), n, each, sides=1)
        else:
            below, above = _chernoff_hoeffding(bad / n, n, float(1 - each))
        factor = float(account.weight / account.allowed)
        low, high = low + factor * below, high + factor * above
    return low, high


def _chernoff_hoeffding(mean: float, n: int, alpha: float) -> Interval:
    """All true means m for which n * KL(mean || m) <= ln(1 / alpha): each end alone is wrong with at most ``alpha``."""
    most = math.log(1 / alpha) / n

    def far(true: float) -> bool:
        left = mean * math.log(mean / true) if mean > 0 else 0.0
        right = (1 - mean) * math.log((1 - mean) / (1 - true)) if mean < 1 else 0.0
        return left + right > most

    def edge(outside: float) -> float:
        inside = mean
        for _ in range(60):
            middle = (inside + outside) / 2
            if middle in (0.0, 1.0) or far(middle):
                outside = middle
            else:
                inside = middle
        return outside

    return (edge(0.0) if mean > 0 else 0.0), (edge(1.0) if mean < 1 else 1.0)


@dataclass(frozen=True, slots=True)
class Spending:
    """The run in equal parts. ``burn`` of the entries in the part that ends at ``end_ns`` (NaN: none), and the share of
    the period's budget ``spent`` by then, by time: it never falls, and its last value is the whole run's.
    """

    end_ns: IntArray
    burn: FloatArray
    spent: FloatArray


def spending(ledger: Ledger, span_ns: int, accounts: Sequence[Tally] | None = None, parts: int = PARTS) -> Spending:
    """Burn over the run in at most ``parts`` equal parts, none shorter than 10 ms. No data: no parts."""
    accounts = tallies(ledger) if accounts is None else accounts
    whole = burn_rate(accounts)
    end = max(span_ns, covered_ns(accounts))
    if whole is None or end <= 0:
        return Spending(np.empty(0, np.int64), np.empty(0), np.empty(0))
    number = max(1, min(parts, end // _LEAST_PART_NS))
    edges = np.array([end * i // number for i in range(number + 1)], np.int64)
    since = edges[:-1].copy()
    since[0] = _BEFORE_NS  # what is due at t0 belongs to the first part
    spent = np.zeros(number)
    for account in accounts:
        bad, _ = account.inside(np.full(number, _BEFORE_NS, np.int64), edges[1:])
        spent += bad * float(account.weight / account.allowed / int(account.n[-1]))
    return Spending(edges[1:], burn_between(accounts, since, edges[1:]), spent * (span_ns / ledger.period_ns))
