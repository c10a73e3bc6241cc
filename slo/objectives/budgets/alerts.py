"""Which burn-rate alerts would a run have set off, and when; and of which can nothing be said.

An alert fires while burn(long) and burn(short) both stand on the wrong side of a factor: the long window keeps a blip from
waking anybody, the short one ends the alert when it is over. A load test is mostly shorter than the long window. What lay
in the window before t0 was not seen, so three things are kept apart:

- it fires for certain if it does so even with that part filled by good requests, as many per second as in the run;
- it can't fire while a window that was seen whole has not crossed the factor;
- anything in between, and any window longer than the run, is not observable: neither fired nor silent.

One more bad entry never takes an alert back. Operators below (``<``, which OpenSLO's own example has) are taken literally
and looked at in whole windows only. Looked at whenever an entry is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Scope
from plimsoll.slo.objectives.budgets.budget import (
    Budget,
    Spending,
    Tally,
    WindowBurn,
    budget,
    burn_rate,
    covered_ns,
    spending,
    tallies,
    times_ns,
    window_burn,
)
from plimsoll.slo.objectives.budgets.ledger import AlertRule, Ledger, policy, window_text
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact

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

    ``fired_alone_at_ns``: when it fires on a service that got nothing before t0. ``held_back``: the short window was seen
    whole and never crossed. ``max_burn_long`` (cut at t0 if need be) and ``max_burn_short`` are over the times at which
    the short window was whole. ``detection_ns``: see ``detection_ns``.
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
    """One SLO's budget after a run, how it was spent, and what its alerts would have done, by the fields of its ``Ledger``.

    ``allowed``: the bad share that is allowed; ``confidence`` of each bound alone; ``policy``: where the alerts come from.
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
    """What a run of ``span_ns`` did to the budget of a ledger. ``policy_name`` names the alerts of one that brings none."""
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
    """How long an error ratio of this burn rate must last, after none and at even traffic, until the long window crosses
    the factor: (E / e) * W * B, plus ``after_ns``. None when it never does.
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
