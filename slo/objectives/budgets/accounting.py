"""Objectives of the short grammar as ledgers: which promises have an error budget, and what its entries are.

    p99(ttft) <= 200ms        one entry a value of the indicator, bad when it breaks the limit; 1 % may be bad
    p5(output_rate) >= 20/s   the same; 5 % may be bad
    ratio(good) >= 99.5%      one entry a request, bad unless it succeeds and meets every limit on a request
    ratio(error) <= 1%        one entry a request, bad unless it succeeds

Failures are bad, and warm-up is not counted. A mean, an extreme or a rate has no entries that are good or bad, so it has no
budget; nothing is invented for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from plimsoll.slo.metrics.indicator import Scope, catalogue, measure
from plimsoll.slo.metrics.ratios import against
from plimsoll.slo.objectives.budgets.ledger import Account, Ledger
from plimsoll.slo.objectives.budgets.policies import DAY_NS
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import of_entries, of_values
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.share import Counted, Course, course, series

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

    ``period_ns``: else the one that the objective names, else 30 days. ``limits`` are the objectives on single requests,
    which say what good means. An indicator that nothing has a value of gives an account without entries.
    """
    allowed = objective.allowed
    if allowed is None or not has_budget(objective):
        return None
    bad, row, seen, far = _entries(objective, records, limits, course(records) if along is None else along)
    counted = objective.quantile is not None or objective.indicator == "frame_missed"
    kind: Scope = catalogue()[objective.indicator].scope if counted else "request"
    account = replace(_in_order(bad, row, records["due_ns"], allowed), seen=seen, far=far)
    return Ledger(
        name=str(objective),
        objective=str(objective),
        target=1 - allowed,
        period_ns=period_ns or objective.period_ns or PERIOD_NS,
        entry=kind,
        accounts=(account,),
        production_per_s=production_per_s,
    )


def ledgers_of(
    objectives: Sequence[Objective],
    records: Records,
    period_ns: int | None = None,
    production_per_s: float | None = None,
) -> tuple[Ledger, ...]:
    """The ledgers of all objectives that have a budget, in order."""
    limits = [objective for objective in objectives if objective.scope == "request"]
    found = (ledger_of(objective, records, period_ns, limits, production_per_s) for objective in objectives)
    return tuple(ledger for ledger in found if ledger is not None)


def _entries(
    objective: Objective, records: Records, limits: Sequence[Objective], along: Course
) -> tuple[BoolArray, IntArray, Counted | None, Distance | None]:
    """Whether each entry is bad, the record it belongs to, ascending, and the evidence of the verdict on them."""
    if objective.quantile is not None:
        measured = measure(catalogue()[objective.indicator], records, judged=True)
        bad = ~np.asarray(objective.met_by(measured.values))
        if not len(bad):
            return bad, measured.row, None, None
        laid = series(measured.values, measured.row, along)
        return bad, measured.row, *of_values(objective, measured, bad, laid)
    good = goodput(records, limits)
    bad, row = against(objective.indicator, records, good.good)
    return bad, row, *(of_entries(objective, bad, row, good, along) if len(bad) else (None, None))


def _in_order(bad: BoolArray, row: IntArray, due_ns: IntArray, allowed: Fraction) -> Account:
    """Entries in order of the due time of their request; those of one request keep their order.

    A request of a closed loop that was never sent has no due time: it counts from t0 on.
    """
    due = np.maximum(due_ns, 0)
    first = np.concatenate([np.zeros(min(len(row), 1), np.int64), np.flatnonzero(row[1:] != row[:-1]) + 1])
    have = row[first]
    if (due[have][1:] < due[have][:-1]).any():
        length = np.diff(np.append(first, len(row)))
        order = np.argsort(due[have], kind="stable")
        start = np.concatenate([[0], np.cumsum(length[order])[:-1]])
        source = np.repeat(first[order] - start, length[order])
        source += np.arange(len(row))
        bad, row = bad[source], row[source]
    return Account(due[row], bad.astype(np.float64), allowed)
