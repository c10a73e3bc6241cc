"""What an SLO's error budget is drawn from: entries with a time, each good, bad or in between.

Every kind of SLO comes down to this: an objective on a share of requests has one entry a request, a time-slice SLO one
a slice, a composite several accounts. ``plimsoll.slo.objectives.budget`` turns a ledger into burn rates,
budgets and alerts; nothing is judged here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Scope, catalogue
from plimsoll.slo.objectives.goodput import against, goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import Evidence, beyond, evidence_of, of_entries
from plimsoll.slo.records.records import FloatArray, IntArray, Records
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.share import Counted, Course, course


@dataclass(frozen=True, slots=True)
class Account:
    """One part of a budget. ``at_ns`` int64[n], ascending: when each entry was due (a slice: when it ended), relative
    to t0. ``bad`` float64[n]: 0 good, 1 bad, a share of bad in between. ``allowed``: the bad share that is promised, 0
    to 1 exclusive. ``weight``: how much this account's burn counts in the whole. ``seen``, ``far``: the evidence that
    the verdict rests on, which knows how entries cluster; None: they count as independent. ``sizes`` int64[n]: each
    stands for so many, of which ``bad`` are bad; None: for itself.
    """

    at_ns: IntArray
    bad: FloatArray
    allowed: Fraction
    weight: Fraction = Fraction(1)
    seen: Counted | None = None
    far: Distance | None = None
    sizes: IntArray | None = None

    def between(self, since_ns: int, until_ns: int) -> tuple[float, int]:
        """(sum of bad, number) of the entries in ``since_ns < at <= until_ns``."""
        first, last = np.searchsorted(self.at_ns, (since_ns, until_ns), side="right")
        number = last - first if self.sizes is None else self.sizes[first:last].sum()
        return float(self.bad[first:last].sum()), int(number)


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Fires while the burn rate over ``long_ns`` *and* over ``short_ns`` stands on the wrong side of ``factor``, after
    it has done so for ``after_ns``. ``short_ns`` = ``long_ns``: a rule of one window.
    """

    name: str
    severity: str
    long_ns: int
    short_ns: int
    factor: float
    operator: Literal[">", ">=", "<", "<="] = ">"
    after_ns: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """The budget of one SLO over ``period_ns``.

    ``objective``: the text under which the verdict judges it. ``target``: the good share promised. ``entry``: what one
    entry is. ``rules``: its own alerts; empty for the usual ones. ``production_per_s``: events per second that the
    service gets in production, where somebody said so.
    """

    name: str
    objective: str
    target: Fraction
    period_ns: int
    entry: Scope | Literal["slice"]
    accounts: tuple[Account, ...]
    rules: tuple[AlertRule, ...] = ()
    production_per_s: float | None = None


# -- the usual alerts by name -----------------------------------------------------------------------------------------

# ``sre-workbook``: The Site Reliability Workbook, chapter 5, with the third pair that Sloth and others add. Each rule
# spends a share of the budget before it fires, so its factor follows from the period: B = share * P / long window.
# ``pyrra``: fixed factors, windows that stretch with the period from 28 days, and a wait of half the short window.
# ``slo-generator``: one window a rule, fixed, whatever the period.
#
# Left out are rules that look back further than the period, and rules that would fire at a burn well below 1, which a
# short period makes of the workbook's: they would page for a service that keeps its promise.

MINUTE_NS: Final = 60_000_000_000
HOUR_NS: Final = 60 * MINUTE_NS
DAY_NS: Final = 24 * HOUR_NS

#: The workbook's last rule has 0.93 for 28 days; below this it is no alarm.
LEAST_FACTOR: Final = 0.9

#: name, severity, long window, share of the budget in percent; the short window is a twelfth of the long one.
_WORKBOOK = (
    ("page quick", "page", HOUR_NS, 2),
    ("page slow", "page", 6 * HOUR_NS, 5),
    ("ticket quick", "ticket", DAY_NS, 10),
    ("ticket slow", "ticket", 3 * DAY_NS, 10),
)
#: severity, factor, long and short window for a period of 28 days.
_PYRRA = (
    ("critical", 14.0, HOUR_NS, 5 * MINUTE_NS),
    ("critical", 7.0, 6 * HOUR_NS, 30 * MINUTE_NS),
    ("warning", 2.0, DAY_NS, 2 * HOUR_NS),
    ("warning", 1.0, 4 * DAY_NS, 6 * HOUR_NS),
)
_SLO_GENERATOR = (
    ("page", 9.0, HOUR_NS),
    ("page", 3.0, 12 * HOUR_NS),
    ("ticket", 1.5, 7 * DAY_NS),
    ("ticket", 1.0, 28 * DAY_NS),
)


def _workbook(period_ns: int) -> tuple[AlertRule, ...]:
    return tuple(
        AlertRule(name, severity, long, long // 12, float(Fraction(percent * period_ns, 100 * long)))
        for name, severity, long, percent in _WORKBOOK
    )


def _pyrra(period_ns: int) -> tuple[AlertRule, ...]:
    def stretched(window_ns: int) -> int:
        minutes = round(Fraction(window_ns * period_ns, 28 * DAY_NS * MINUTE_NS))
        return max(1, minutes) * MINUTE_NS

    rules = []
    for severity, factor, long, short in _PYRRA:
        long_ns, short_ns = stretched(long), stretched(short)
        name = f"{severity} {factor:g}"
        rules.append(AlertRule(name, severity, long_ns, short_ns, factor, after_ns=short_ns // 2))
    return tuple(rules)


def _slo_generator(period_ns: int) -> tuple[AlertRule, ...]:
    return tuple(
        AlertRule(f"{severity} {window_text(window)}", severity, window, window, factor)
        for severity, factor, window in _SLO_GENERATOR
    )


POLICIES: Mapping[str, Callable[[int], tuple[AlertRule, ...]]] = MappingProxyType(
    {"sre-workbook": _workbook, "pyrra": _pyrra, "slo-generator": _slo_generator}
)


def policy(name: str, period_ns: int) -> tuple[AlertRule, ...]:
    """The rules of a policy for an SLO of this period, most urgent first; none for a period that is too short for any.

    Raises ValueError for an unknown name or a period that is not above 0.
    """
    if name not in POLICIES:
        raise ValueError(f"policy {name!r} is not known; choose one of {', '.join(POLICIES)}")
    if period_ns <= 0:
        raise ValueError(f"a period of {period_ns} ns: give one above 0")
    return tuple(
        rule for rule in POLICIES[name](period_ns) if rule.long_ns <= period_ns and rule.factor >= LEAST_FACTOR
    )


def window_text(window_ns: int) -> str:
    """A window for people, in its largest whole unit:

    ``5 min``, ``1 h``, ``3 d``, ``64 min``; else with three digits.
    """
    units = ((DAY_NS, "d"), (HOUR_NS, "h"), (MINUTE_NS, "min"), (1_000_000_000, "s"))
    for size, name in units:
        if window_ns >= size and window_ns % size == 0:
            return f"{window_ns // size} {name}"
    for size, name in units:
        if window_ns >= 2 * size:
            return f"{window_ns / size:.3g} {name}"
    return f"{window_ns / 1e9:.3g} s"


# -- objectives of the short grammar as ledgers -----------------------------------------------------------------------

#     p99(ttft) <= 200ms        one entry a value of the indicator, bad when it breaks the limit; 1 % may be bad
#     p5(output_rate) >= 20/s   the same; 5 % may be bad
#     ratio(good) >= 99.5%      one entry a request, bad unless it succeeds and meets every limit on a request
#     ratio(error) <= 1%        one entry a request, bad unless it succeeds
#
# Failures are bad, and warm-up is not counted. A mean, an extreme or a rate has no entries that are good or bad, so it
# has no budget; nothing is invented for one.

#: The period of an objective that names none.
PERIOD_NS: Final = 30 * DAY_NS


def has_budget(objective: Objective) -> bool:
    """Whether the objective promises a share of entries."""
    return objective.statistic == "ratio" or objective.quantile is not None


def ledger_of(
    objective: Objective,
    records: Records,
    period_ns: int | None = None,
    limits: Sequence[Objective] = (),
    production_per_s: float | None = None,
    along: Course | None = None,
) -> Ledger | None:
    """The ledger of an objective over these records, whose course may be known; None for one without a budget.

    ``period_ns``: else the one that the objective names, else 30 days. ``limits`` are the objectives on single
    requests, which say what good means. An indicator that nothing has a value of gives an account without entries.
    """
    allowed = objective.allowed
    if allowed is None or not has_budget(objective):
        return None
    account = _account(objective, records, limits, course(records) if along is None else along, allowed)
    counted = objective.quantile is not None or objective.indicator == "frame_missed"
    kind: Scope = catalogue()[objective.indicator].scope if counted else "request"
    return Ledger(
        name=str(objective),
        objective=str(objective),
        target=1 - allowed,
        period_ns=period_ns or objective.period_ns or PERIOD_NS,
        entry=kind,
        accounts=(account,),
        production_per_s=production_per_s,
    )


def _account(
    objective: Objective, records: Records, limits: Sequence[Objective], along: Course, allowed: Fraction
) -> Account:
    """Entries in order of the due time of their request, with the evidence of the verdict on them.

    A request of a closed loop that was never sent has no due time: it counts from t0 on.
    """
    if objective.quantile is None:
        good = goodput(records, limits)
        bad, row = against(objective.indicator, records, good.good)
        due = np.maximum(along.in_order(records["due_ns"][row], row), 0)
        marked = along.in_order(bad, row).astype(np.float64)
        known = of_entries(objective, bad, row, good, along) if len(bad) else (None, None)
        return Account(due, marked, allowed, Fraction(1), *known)
    found = evidence_of(objective, records, along)
    if not isinstance(found, Evidence):
        return Account(np.empty(0, np.int64), np.empty(0), allowed)
    due = np.maximum(found.laid.in_order(records["due_ns"]), 0)
    counts = found.laid.by_request([beyond(objective)])[0]
    sizes = found.laid.size if found.laid.nested else None
    return Account(due, counts, allowed, Fraction(1), found.seen, found.far, sizes)
