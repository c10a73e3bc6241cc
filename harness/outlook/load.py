"""The load of a scenario before it is run: how many requests it sends as written, and how long n of them take.

In an open loop its own schedule says so, seed and all. In a closed loop nobody knows, and both are worked out for an
assumed latency. Sends nothing, encodes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from plimsoll.scenarios.discovery import kinds
from plimsoll.scenarios.plan.lengths import Fixed, Spread, Uniform
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.scenarios.plan.rates import profile
from plimsoll.scenarios.scenario import Scenario

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The scenario as written: ``requests`` in ``duration_ns``. ``latency_ns``: assumed, None where the schedule decides."""

    latency_ns: int | None
    requests: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a scenario would send. Made by ``load_of``.

    ``planned`` requests until ``planned_ns`` in an open loop; ``per_query`` requests in a query of a closed one, of which
    ``slots`` are in flight at a time. ``tokens``: asked for on average, None where the scenario does not say.
    """

    kind: str
    params: Any  # of any kind; what is asked of it below, its kind has
    stop: Stop
    planned: int
    planned_ns: int
    per_query: float
    slots: int
    tokens: float | None

    def pace(self, latency_ns: int | None) -> Pace:
        """The scenario as written, at this latency or by its schedule."""
        if latency_ns is not None:
            return self._closed(latency_ns)
        duration = self.duration_ns(self.planned, None) if self.kind == "offline" else self.planned_ns
        return Pace(None, self.planned, duration)

    def _closed(self, latency_ns: int) -> Pace:
        stop = self.stop
        queries = max(stop.min_queries, math.ceil(self.slots * stop.min_duration_ns / latency_ns))
        if stop.max_duration_ns is not None:
            queries = min(queries, math.ceil(self.slots * stop.max_duration_ns / latency_ns))
        if stop.max_queries is not None:
            queries = min(queries, stop.max_queries)
        n = round(queries * self.per_query)
        return Pace(latency_ns, n, self.duration_ns(n, latency_ns))

    def queries(self, n: int) -> int:
        """Queries that carry n requests."""
        return math.ceil(n / self.per_query)

    def duration_ns(self, n: int, latency_ns: int | None) -> int:
        """How long n requests take from the first to the last, about: by the schedule or at this latency."""
        if latency_ns is not None:
            return math.ceil(self.queries(n) / self.slots) * latency_ns
        if self.kind == "offline":
            return math.ceil(n / float(self.params.expected_rate) * _SECOND_NS)
        if not hasattr(self.params, "rate"):  # frames and recordings: as they are spaced on average
            return math.ceil(self.planned_ns * (self.queries(n) - 1) / max(self.queries(self.planned) - 1, 1))
        rate = profile(self.params.rate)
        low, high = 0, _SECOND_NS
        while rate.expected(high) < n - 1:  # query 0 is at t = 0
            low, high = high, 2 * high
        while high - low > 1000:
            middle = (low + high) // 2
            low, high = (low, middle) if rate.expected(middle) >= n - 1 else (middle, high)
        return high


def load_of(scenario: Scenario) -> Load:
    """The load of a scenario. Raises ScenarioError for one whose plan can't be built."""
    stop = scenario.stop.stop()
    plan = scenario.build(1)  # due times and counts depend on no payload
    within = plan.due_ns <= (1 << 62 if stop.max_duration_ns is None else stop.max_duration_ns)
    return Load(
        kind=scenario.kind,
        params=scenario.params,
        stop=stop,
        planned=int(np.diff(plan.offsets)[within].sum()),
        planned_ns=int(plan.due_ns[within][-1]) if within.any() else 0,
        per_query=1.0 if scenario.kind == "offline" else plan.n_samples / max(plan.n_queries, 1),
        slots=kinds()[scenario.kind].slots(scenario.params) or 1,
        tokens=_mean(getattr(scenario.source, "output_tokens", None)),
    )


def _mean(length: object) -> float | None:
    if isinstance(length, Uniform):
        return (length.min + length.max) / 2
    if isinstance(length, Spread):
        return length.mean
    if isinstance(length, Fixed):
        return float(length.value)
    return float(length) if isinstance(length, int) else None
