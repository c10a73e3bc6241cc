"""Ends a probe that can only fail: once so many requests are certainly over a limit that the rest could all be good in vain.

Two things are certain while a run goes on. What is answered: ``plimsoll.harness.run.tally`` counts values that are over a limit for sure. What
is not: a worker of an open loop that has taken up its first m queries says so at or after the m-th was due, at s; of those only
``young`` ones were due after s - L, so with F in flight at least F - young have been waited for longer than L, and their
latency is over a limit of L whenever they end. (Of a TTFT that says nothing: the first token may be there.) Whether so many
are enough is ``plimsoll.slo.search.curtail``'s business. Far
beyond a limit, at multiples of it, fewer are enough: there only answers count. A worker reads its two counts an instant apart, so the sealed records have the
last word (``plimsoll.harness.series.search.probe``): a cut that they do not bear out is no FAIL.

Leaves alone what has no list of requests to be bad of (closed loops, which go on until the time is over) and runs in which
requests are dropped on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plimsoll.harness.run.crew import split_workers
from plimsoll.harness.run.tally import Tally
from plimsoll.harness.run.watcher import Beginning
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import IntArray
from plimsoll.slo.search.curtail import hopeless, hopeless_at, multiples
from plimsoll.slo.statistics.confidence import Probability

#: How a run that was ended here begins to say why.
PREFIX = "cut short: "


class Hopeless:
    """A ``plimsoll.harness.run.watcher.Watcher``. ``among``: how many objectives on shares are judged together, for Holm's correction."""

    def __init__(self, objectives: Sequence[Objective], confidence: Probability, among: int) -> None:
        self._objectives = tuple(objectives)
        self._confidence = confidence
        self._among = max(1, among)
        self._far = [(one, m, _times(one, m)) for one in objectives for m in multiples(one) if m > 1]
        self._tally = Tally([*objectives, *(scaled for _, _, scaled in self._far)])
        self._n = 0
        self._least: dict[Objective, int] = {}
        self._least_far: dict[Objective, int] = {}
        self._due: tuple[IntArray, ...] = ()
        self._waiting: dict[int, dict[int, int]] = {}

    async def open(self) -> None:
        """Nothing to prepare."""

    def begin(self, beginning: Beginning) -> None:
        """How many bad values of each objective are enough."""
        plan, scenario = beginning.plan, beginning.scenario
        if plan.cyclic or not plan.open_loop or scenario.cancel or not plan.n_samples:
            return
        self._n = plan.n_samples
        for one in self._objectives:
            least = hopeless_at(one, self._n, self._confidence, self._among)
            if least is not None:
                self._least[one] = least
        for one, multiple, scaled in self._far:
            least = hopeless_at(one, self._n, self._confidence, self._among, multiple)
            if least is not None:
                self._least_far[scaled] = least
        if not scenario.warmup_ns and plan.n_samples == plan.n_queries:
            self._due = _shards(plan, split_workers(plan, scenario.workers))

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """Add up one status line."""
        self._tally.add(worker, message)
        if worker < len(self._due):
            due, taken = self._due[worker], int(message["sent"])
            self._waiting[worker] = {
                limit: overdue(due, min(taken, len(due)), int(message["in_flight"]), limit) for limit in self._limits()
            }

    def _limits(self) -> set[int]:
        """Limits on the whole latency, in ns."""
        return {
            int(one.threshold) for one in self._objectives if one.indicator == "latency" and one.operator in ("<=", "<")
        }

    def enough(self) -> str | None:
        """Why the run can only fail; None while it can do something else."""
        for one, multiple, scaled in self._far:
            bad = self._tally.answered_over(scaled)
            if scaled in self._least_far and bad >= self._least_far[scaled]:
                why = hopeless(one, self._n, bad, self._confidence, self._among, multiple)
                return None if why is None else PREFIX + why
        for count in self._tally.counts():
            least = self._least.get(count.objective)
            bad = count.bad + self._not_answered(count.objective)
            if least is not None and bad >= least:
                why = hopeless(count.objective, self._n, bad, self._confidence, self._among)
                return None if why is None else PREFIX + why
        return None

    def _not_answered(self, objective: Objective) -> int:
        of_one = [
            int(one.threshold)
            for one in self._objectives
            if one.indicator == "latency" and one.scope == "request" and one.operator in ("<=", "<")
        ]
        limits = of_one if objective.indicator == "good" else []
        if objective.indicator == "latency" and objective.operator in ("<=", "<"):
            limits = [int(objective.threshold)]
        return max((sum(waits.get(limit, 0) for waits in self._waiting.values()) for limit in limits), default=0)

    def end(self) -> None:
        """Nothing to say: the coordinator keeps the reason."""

    async def close(self) -> None:
        """Nothing to put away."""


def _times(objective: Objective, multiple: float) -> Objective:
    text = f"{multiple:g} x {objective.threshold_text}"
    return replace(objective, threshold=objective.threshold * multiple, threshold_text=text)


def _shards(plan: Plan, n: int) -> tuple[IntArray, ...]:
    return tuple(plan.shard(i, n).due_ns for i in range(n))


def overdue(due_ns: IntArray, taken: int, in_flight: int, limit_ns: int) -> int:
    """Of ``in_flight`` queries, how many at least have been waited for longer than ``limit_ns``.

    ``due_ns`` ascending, of which the first ``taken`` have been taken up: it is the time of the last of them or later.
    """
    if taken < 1:
        return 0
    young = taken - int(np.searchsorted(due_ns[:taken], int(due_ns[taken - 1]) - limit_ns, side="left"))
    return max(0, in_flight - young)
