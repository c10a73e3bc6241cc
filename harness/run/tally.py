"""Objectives while the run goes on: how many measured requests are certainly over a limit, by the workers' status
lines.

The lines carry histograms whose bins are 2.2 % wide, and a value in the limit's own bin is not counted: ``bad`` is a
lower bound, enough to know a hopeless run and to show how fast a budget burns. No verdict is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from plimsoll.harness.generator.recorder import FRESH
from plimsoll.slo.objectives.objective import Objective

_BINS_AN_OCTAVE = 32
#: Of these every value is a success: failures come on top. Of the others a failed request may have one, and is not
#: counted twice.
_SUCCESSES_ONLY = ("latency",)


@dataclass(frozen=True, slots=True)
class Count:
    """Of ``n`` requests at least ``bad`` break the limit; ``limit`` is the share that may."""

    objective: Objective
    limit: Fraction
    n: int
    bad: int

    @property
    def burn(self) -> float:
        """Share of bad ones over the share allowed: 1 uses the budget up just so, by the end; 0 for no request."""
        allowed = float(self.limit) * self.n
        return self.bad / allowed if allowed else math.inf if self.bad else 0.0


class Tally:
    """Adds up what every worker's ``status`` lines say. Objectives that status lines tell nothing of are left out."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(one for one in objectives if _can_tell(one))
        self._requests = tuple(one for one in objectives if one.scope == "request" and _upper(one) and one.of_all)
        self._over = {
            (one.indicator, one.threshold): 0
            for one in (*self._objectives, *self._requests)
            if one.statistic != "ratio"
        }
        self._latest: dict[int, tuple[int, int]] = {}

    def add(self, worker: int, message: Mapping[str, Any]) -> None:
        """Take one status line."""
        self._latest[worker] = (int(message["measured"]), int(message["bad"]))
        for indicator, limit in self._over:
            self._over[indicator, limit] += over(message[indicator], limit)

    def counts(self) -> tuple[Count, ...]:
        """How each objective stands, in the order given."""
        n = sum(measured for measured, _ in self._latest.values())
        failed = sum(bad for _, bad in self._latest.values())
        found = []
        for one in self._objectives:
            limit = one.allowed
            assert limit is not None
            found.append(Count(one, limit, n, min(n, self._bad(one, failed))))
        return tuple(found)

    def answered_over(self, objective: Objective) -> int:
        """How many answered requests are certainly over a limit on a time; 0 where status lines don't tell."""
        beyond = self._over.get((objective.indicator, objective.threshold), 0)
        failed = 0 if objective.indicator in _SUCCESSES_ONLY else sum(bad for _, bad in self._latest.values())
        return max(0, beyond - failed)

    def _bad(self, objective: Objective, failed: int) -> int:
        if objective.indicator == "error":
            return failed
        if objective.indicator == "good":
            return max([failed, *(self._bad(one, failed) for one in self._requests)])
        beyond = self._over[objective.indicator, objective.threshold]
        return beyond + failed if objective.indicator in _SUCCESSES_ONLY else max(beyond, failed)


def over(histogram: Mapping[str, int], limit: float) -> int:
    """How many values of a live histogram (``recorder.spread``) are certainly greater than ``limit`` ns."""
    edge = math.log2(max(limit, 1.0)) * _BINS_AN_OCTAVE + 1e-6
    return sum(count for key, count in histogram.items() if int(key) > edge)


def _upper(objective: Objective) -> bool:
    return objective.indicator in FRESH and objective.operator in ("<=", "<")


def _can_tell(objective: Objective) -> bool:
    limit = objective.allowed
    if limit is None or limit <= 0 or not objective.of_all:
        return False
    if objective.statistic == "ratio":
        return objective.indicator in ("good", "error")
    return objective.quantile is not None and _upper(objective)
