"""The error budget of one SLO: what it is, how fast the run spent it, and when it would be gone.

    allowed E = 1 - target                     the budget of a period P: E of its entries, or E * P of its time
    burn      = bad share / E
    spent     = burn * T / P                   by time: a run of length T in which traffic is as in production
              = bad / (E * production * P)     by events: where somebody said how many events production has
    exhausted after P / burn                   from a full budget, were production always like the run

The two kinds of spending are never mixed, and neither is a verdict: ``plimsoll.slo.verdict.verdict`` judges,
and the alerts below say what would have fired. The intervals are for independent entries;
verdicts also count how bad ones cluster, so they can be less sure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Scope
from plimsoll.slo.objectives.ledger import Account, AlertRule, Ledger, policy, window_text
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import Probability, clopper_pearson, relative_entropy
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
    """An account by distinct times ``at_ns`` int64[m], ascending: ``bad`` float64[m + 1] and ``n`` int64[m + 1] are
    what lies before each, and in all. ``whole``: every entry is good or bad, none in between. ``seen``, ``far``: as of
    the account.
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
    start, sizes = np.flatnonzero(np.append(len(at) > 0, at[1:] != at[:-1])), account.sizes
    apart = len(start) == len(at)
    number = np.append(start, len(at)) if sizes is None else np.append(0, np.cumsum(sizes))[np.append(start, len(at))]
    sums = bad if apart else np.add.reduceat(bad, start)
    return Tally(
        at_ns=at if apart else at[start],
        bad=np.concatenate([[0.0], np.cumsum(sums)]),
        n=number,
        allowed=account.allowed,
        weight=account.weight,
        whole=sizes is not None or bool(((bad == 0) | (bad == 1)).all()),
        seen=account.seen,
        far=account.far,
    )


def tallies(ledger: Ledger) -> tuple[Tally, ...]:
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
    """Burn of each stretch ``since < at <= until``; NaN without any entry. An account without one burns nothing."""
    total = np.zeros(len(until_ns))
    seen: BoolArray = np.zeros(len(until_ns), np.bool_)
    for account in accounts:
        bad, n = account.inside(since_ns, until_ns)
        total += _burn(account, bad, n)
        seen |= n > 0
    return np.where(seen, total, np.nan)


@dataclass(frozen=True, slots=True)
class WindowBurn:
    """Burn over one window at each time. ``cut``: of the entries of the run alone, so before ``window_ns`` the window
    is cut off at t0. ``least``: with the missing part filled by good entries, as many per second as in the run; a worse
    past can only make it higher. The two agree where the whole window lies in the run.
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

#: Points of the burn timeline, whatever the length of the run.
PARTS: Final = 300
_LEAST_PART_NS = 10_000_000
_BEFORE_NS = -(2**62)  # before any entry

Method = Literal["Clopper-Pearson", "Chernoff-Hoeffding", "as the verdict", "none"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of one ledger. None where there was no data; ``reason`` says so.

    ``bad`` of ``n`` entries. ``sli`` the good share; of several accounts 1 - burn * (1 - target), at least 0.
    ``span_ns`` is T, ``covered_ns`` the time of the last entry. ``remaining``: 1 - spent by time, negative when
    overspent. ``exhausted_in_ns``: None also for "never". ``affordable_share``: the share of the period that may be
    like the run if the rest is as busy and has no bad entry, at most 1.
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

    A stalled end makes T longer, so more is spent by time, never less. Giving up early does not make it shorter than
    the schedule.
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

    ``*_per_s`` are rates of entries, ``*_bad`` bad shares; a busy time weighs more. Raises ValueError for a share
    outside 0..1, a negative rate, or no traffic at all.
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

    Of accounts with evidence those of the verdict, which know how entries cluster; else Clopper and Pearson's for whole
    entries. For shares in between, the bound of Chernoff and Hoeffding, which holds for independent values in 0..1 of
    any shape. Of k accounts each gets a k-th of the error, so each sum keeps the confidence.
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

    def edge(outside: float) -> float:
        inside = mean
        for _ in range(60):
            middle = (inside + outside) / 2
            if middle in (0.0, 1.0) or relative_entropy(mean, middle) > most:
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


# -- alerts ------------------------------------------------------------------------------------------------------------

# Which burn-rate alerts would a run have set off, and when; and of which can nothing be said. An alert fires while
# burn(long) and burn(short) both stand on the wrong side of a factor: the long window keeps a blip from waking anybody,
# the short one ends the alert when it is over. A load test is mostly shorter than the long window. What lay in the
# window before t0 was not seen, so three things are kept apart:
#
# - it fires for certain if it does so even with that part filled by good requests, as many per second as in the run;
# - it can't fire while a window that was seen whole has not crossed the factor;
# - anything in between, and any window longer than the run, is not observable: neither fired nor silent.
#
# One more bad entry never takes an alert back. Operators below (``<``, which OpenSLO's own example has) are taken
# literally and looked at in whole windows only. Looked at whenever an entry is due.

#: A window that the run covers to this part counts as inside it: the last request of 5 minutes is due before 300 s.
WHOLE = 0.99
#: Burn rates nearer to the factor than this (relative) are on it, not above: 1.44 % of 0.1 % is exactly 14.4.
ON_FACTOR = 1e-9

Observable = Literal["yes", "truncated", "no"]


@dataclass(frozen=True, slots=True)
class Window:
    """The highest burn rate of any whole window of this length, and when it ended; None: longer than the run."""

    window_ns: int
    max_burn: float | None
    max_at_ns: int | None


@dataclass(frozen=True, slots=True)
class Alert:
    """What became of one rule. ``fired`` None: not observable; ``reason`` says why, or what can be said nevertheless.

    ``fired_alone_at_ns``: when it fires on a service that got nothing before t0. ``held_back``: the short window was
    seen whole and never crossed. ``max_burn_long`` (cut at t0 if need be) and ``max_burn_short`` are over the times at
    which the short window was whole. ``detection_ns``: see ``detection_ns``.
    """

    rule: AlertRule
    observable: Observable
    reason: str
    fired: bool | None = None
    first_fired_at_ns: int | None = None
    resolved_at_ns: int | None = None
    fired_alone_at_ns: int | None = None
    held_back: bool = False
    max_burn_long: float | None = None
    max_burn_short: float | None = None
    detection_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Alerts:
    """Every rule, and every window that a rule looks at."""

    alerts: tuple[Alert, ...]
    windows: tuple[Window, ...]


def alerts(ledger: Ledger, rules: Sequence[AlertRule] | None = None, accounts: Sequence[Tally] | None = None) -> Alerts:
    """What the rules would have done: the given ones, else the ledger's own, else the SRE workbook's.

    ``accounts``: the ledger's ``tallies``, where they are at hand.
    """
    accounts = tallies(ledger) if accounts is None else accounts
    asked = tuple(rules if rules is not None else ledger.rules or policy("sre-workbook", ledger.period_ns))
    times, covered = times_ns(accounts), covered_ns(accounts)
    lengths = sorted({length for rule in asked for length in (rule.short_ns, rule.long_ns)})
    # Of the windows longer than the run only those that stand beside a short one inside it are of any use.
    used = {rule.long_ns for rule in asked if _whole_from(covered, rule.short_ns) is not None}
    burns = {
        length: window_burn(accounts, times, length)
        for length in lengths
        if length in used or _whole_from(covered, length) is not None
    }
    rate = burn_rate(accounts)
    return Alerts(
        tuple(_one(rule, rate, times, covered, burns) for rule in asked),
        tuple(_window(length, times, covered, burns) for length in lengths),
    )


@dataclass(frozen=True, slots=True)
class Budgeted:
    """One SLO's budget after a run, how it was spent, and what its alerts would have done, by the fields of its
    ``Ledger``.

    ``allowed``: the bad share that is allowed; ``confidence`` of each bound alone; ``policy``: where the alerts come
    from.
    """

    name: str
    objective: str
    target: float
    allowed: float
    period_ns: int
    entry: Scope | Literal["slice"]
    confidence: float
    production_per_s: float | None
    policy: str
    budget: Budget
    spending: Spending
    alerts: Alerts


def budgeted(
    ledger: Ledger, span_ns: int, policy_name: str = "sre-workbook", confidence: Probability = "0.95"
) -> Budgeted:
    """What a run of ``span_ns`` did to the budget of a ledger.

    ``policy_name`` names the alerts of one that brings none.
    """
    accounts = tallies(ledger)
    return Budgeted(
        name=ledger.name,
        objective=ledger.objective,
        target=float(ledger.target),
        allowed=float(1 - ledger.target),
        period_ns=ledger.period_ns,
        entry=ledger.entry,
        confidence=float(exact(confidence)),
        production_per_s=ledger.production_per_s,
        policy="the SLO's own" if ledger.rules else policy_name,
        budget=budget(ledger, span_ns, confidence, accounts),
        spending=spending(ledger, span_ns, accounts),
        alerts=alerts(ledger, ledger.rules or policy(policy_name, ledger.period_ns), accounts),
    )


def detection_ns(rule: AlertRule, burn: float | None) -> int | None:
    """How long an error ratio of this burn rate must last, after none and at even traffic, until the long window
    crosses the factor: (E / e) * W * B, plus ``after_ns``. None when it never does.
    """
    if burn is None or rule.operator in ("<", "<=") or burn <= 0 or burn < rule.factor * (1 - ON_FACTOR):
        return None
    return min(rule.long_ns, round(rule.long_ns * rule.factor / burn)) + rule.after_ns


def crosses(burn: FloatArray, rule: AlertRule) -> BoolArray:
    """Where a burn rate stands on the wrong side of the factor. No data (NaN) does not."""
    above, below = rule.factor * (1 + ON_FACTOR), rule.factor * (1 - ON_FACTOR)
    if rule.operator == ">":
        return np.asarray(burn > above)
    if rule.operator == ">=":
        return np.asarray(burn >= below)
    return np.asarray(burn < below if rule.operator == "<" else burn <= above)


def _whole_from(covered: int, window_ns: int) -> int | None:
    """From when on a window that ends there lies in the run; None: never, the run covers less."""
    return min(window_ns, covered) if covered > 0 and covered >= WHOLE * window_ns else None


def _window(length: int, times: IntArray, covered: int, burns: Mapping[int, WindowBurn]) -> Window:
    since = _whole_from(covered, length)
    if since is None:
        return Window(length, None, None)
    burn = np.where(times >= since, burns[length].cut, -np.inf)
    worst = int(np.argmax(burn))
    return Window(length, float(burn[worst]), int(times[worst]))


def _one(rule: AlertRule, rate: float | None, times: IntArray, covered: int, burns: Mapping[int, WindowBurn]) -> Alert:
    detection = detection_ns(rule, rate)
    short_from, long_from = _whole_from(covered, rule.short_ns), _whole_from(covered, rule.long_ns)
    if rate is None or short_from is None:
        why = "nothing was measured" if rate is None else f"the run covers {window_text(covered)}"
        return Alert(
            rule, "no", f"its shortest window needs {window_text(rule.short_ns)}; {why}", detection_ns=detection
        )
    long, short = burns[rule.long_ns], burns[rule.short_ns]
    short_whole = times >= short_from
    long_whole = times >= long_from if long_from is not None else np.zeros(len(times), np.bool_)
    both = crosses(long.cut, rule) & crosses(short.cut, rule)
    if rule.operator in (">", ">="):
        certain = crosses(long.least, rule) & crosses(short.least, rule)
    else:
        certain = both & long_whole & short_whole
    impossible = (short_whole & ~crosses(short.cut, rule)) | (long_whole & ~crosses(long.cut, rule))
    fired_at = _first(times, certain, rule.after_ns)
    silent = _first(times, short_whole & ~impossible, rule.after_ns) is None
    observable: Observable = "yes" if long_from is not None else "truncated"
    held_back = not bool((short_whole & crosses(short.cut, rule)).any())
    alone = _first(times, both & short_whole, rule.after_ns)
    fired = True if fired_at is not None else (False if silent and observable == "yes" else None)
    over = times[impossible & (times > fired_at)] if fired_at is not None else times[:0]
    return Alert(
        rule=rule,
        observable=observable,
        reason=_reason(rule, observable, fired, held_back, alone),
        fired=fired,
        first_fired_at_ns=fired_at,
        resolved_at_ns=int(over[0]) if len(over) else None,
        fired_alone_at_ns=alone,
        held_back=held_back,
        max_burn_long=_highest(long.cut[short_whole]),
        max_burn_short=_highest(short.cut[short_whole]),
        detection_ns=detection,
    )


def _highest(burn: FloatArray) -> float | None:
    return float(burn.max()) if len(burn) else None


def _first(times: IntArray, holds: BoolArray, after_ns: int) -> int | None:
    """When ``holds`` has first lasted for ``after_ns`` without a break; None: never."""
    if after_ns <= 0:
        where = int(np.argmax(holds)) if len(holds) else 0
        return int(times[where]) if len(holds) and holds[where] else None
    edges = np.diff(np.concatenate([[0], holds.astype(np.int8), [0]]))
    start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    long_enough = np.flatnonzero(times[end] - times[start] >= after_ns)
    return int(times[start[long_enough[0]]]) + after_ns if len(long_enough) else None


def _reason(rule: AlertRule, observable: Observable, fired: bool | None, held_back: bool, alone: int | None) -> str:
    """What may be said of a rule that was not, or not wholly, observable."""
    short, long = window_text(rule.short_ns), window_text(rule.long_ns)
    if observable == "yes" and fired is not None:
        return ""
    if fired:
        return f"its {long} window is cut at t0; fires even if all before was good"
    if held_back:
        return f"its {long} window is cut at t0; its {short} window never crossed {rule.factor:.4g}, which held it back"
    if alone is not None:
        return f"its {long} window reaches before t0; fires on a service that got nothing before"
    return f"its {long} window reaches before t0, and what was there was not seen"
