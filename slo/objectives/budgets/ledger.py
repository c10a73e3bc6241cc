"""What an SLO's error budget is drawn from: entries with a time, each good, bad or in between.

Every kind of SLO comes down to this: an objective on a share of requests has one entry a request, a time-slice SLO one a
slice, a composite several accounts. ``plimsoll.slo.objectives.budgets.budget`` turns a ledger into burn rates, budgets and alerts; nothing is judged
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Scope
from plimsoll.slo.records.records import FloatArray, IntArray
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.share import Counted


@dataclass(frozen=True, slots=True)
class Account:
    """One part of a budget. ``at_ns`` int64[n], ascending: when each entry was due (a slice: when it ended), relative to
    t0. ``bad`` float64[n]: 0 good, 1 bad, a share of bad in between. ``allowed``: the bad share that is promised, 0 to 1
    exclusive. ``weight``: how much this account's burn counts in the whole. ``seen``, ``far``: the evidence that the verdict rests
    on, which knows how entries cluster; None: they count as independent.
    """

    at_ns: IntArray
    bad: FloatArray
    allowed: Fraction
    weight: Fraction = Fraction(1)
    seen: Counted | None = None
    far: Distance | None = None

    def between(self, since_ns: int, until_ns: int) -> tuple[float, int]:
        """(sum of bad, number) of the entries in ``since_ns < at <= until_ns``."""
        first, last = np.searchsorted(self.at_ns, (since_ns, until_ns), side="right")
        return float(self.bad[first:last].sum()), int(last - first)


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
