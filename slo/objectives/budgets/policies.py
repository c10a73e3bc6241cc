"""The usual burn-rate alerts by name, for SLOs that bring none of their own.

``sre-workbook``: The Site Reliability Workbook, chapter 5, with the third pair that Sloth and others add. Each rule spends a
share of the budget before it fires, so its factor follows from the period: B = share * P / long window.
``pyrra``: fixed factors, windows that stretch with the period from 28 days, and a wait of half the short window.
``slo-generator``: one window a rule, fixed, whatever the period.

Left out are rules that look back further than the period, and rules that would fire at a burn well below 1, which a short
period makes of the workbook's: they would page for a service that keeps its promise. Nothing is evaluated here, and no
rounding of theirs is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from plimsoll.slo.objectives.budgets.ledger import AlertRule

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
    """A window for people, in its largest whole unit: ``5 min``, ``1 h``, ``3 d``, ``64 min``; else with three digits."""
    units = ((DAY_NS, "d"), (HOUR_NS, "h"), (MINUTE_NS, "min"), (1_000_000_000, "s"))
    for size, name in units:
        if window_ns >= size and window_ns % size == 0:
            return f"{window_ns // size} {name}"
    for size, name in units:
        if window_ns >= 2 * size:
            return f"{window_ns / size:.3g} {name}"
    return f"{window_ns / 1e9:.3g} s"
