"""Queues with a known answer, in virtual time: real records and generator facts, so that the full verdict judges them.

A perfect generator and a first-come-first-served queue, nothing else: arrivals are Poisson, service takes a constant or
an exponential time. Tests of the search run it here thousands of times faster than any server would.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.search import sizing
from plimsoll.slo.search.probe import Answer, Next, Probe, Settings
from plimsoll.slo.search.search import decide
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict import verdict as verdicts

SERVICE_NS = 1_000_000
Service = Literal["constant", "exponential"]


@dataclass(frozen=True, slots=True)
class Queue:
    """``servers`` that take ``service_ns`` on average, and one line for all of them."""

    service: Service
    servers: int = 1
    service_ns: int = SERVICE_NS

    @property
    def capacity_per_s(self) -> float:
        return self.servers * 1e9 / self.service_ns

    def line_per_s(self, q: float, within: float) -> float:
        """The closed form: the highest rate at which the q-quantile is within so many service times."""
        if self.service == "exponential" and self.servers == 1:
            return max(0.0, 1 + math.log1p(-q) / within) * self.capacity_per_s
        return _invert(self._quantile_at, q, within) * self.capacity_per_s

    def _quantile_at(self, rho: float, q: float) -> float:
        if self.service == "constant":
            if self.servers > 1:
                raise ValueError("no closed form of M/D/c here")
            return sizing.md1_quantile(rho, q)
        return sizing.mmc_quantile(self.servers, rho, q)


def _invert(quantile: object, q: float, within: float) -> float:
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        rho = (low + high) / 2
        low, high = (rho, high) if quantile(rho, q) <= within else (low, rho)  # type: ignore[operator]
    return low


def promise(q: str, within: float, queue: Queue, of: str = "latency") -> Objective:
    """``pQ(latency) <= within x service``."""
    return parse(f"p{q}({of}) <= {round(within * queue.service_ns / 1000)}us")


def run(queue: Queue, rate_per_s: float, n: int, seed: int) -> tuple[Records, GeneratorFacts]:
    """n Poisson arrivals at that rate, through a queue that starts empty."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1e9 / rate_per_s, n))
    took = (
        np.full(n, float(queue.service_ns)) if queue.service == "constant" else random.exponential(queue.service_ns, n)
    )
    done = _one_server(due, took) if queue.servers == 1 else _many(due, took, queue.servers)
    due_ns, done_ns = np.rint(due).astype(np.int64), np.rint(done).astype(np.int64)
    stamps = dict.fromkeys(("headers_ns", "first_byte_ns", "done_ns"), done_ns)
    sent = dict.fromkeys(("due_ns", "ready_ns", "sent_ns"), due_ns)
    records = from_columns(n, **stamps, **sent, payload_ix=0, code=200, bytes_in=100, bytes_out=100)
    facts = GeneratorFacts(
        open_loop=True,
        planned=n,
        planned_queries=n,
        process="poisson",
        elapsed_ns=int(due_ns[-1]),
        kernel_reads=n,
        watched_ns=int(done_ns.max()),
    )
    return records, facts


def _one_server(due: npt.NDArray[np.float64], took: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Lindley's recursion without a loop: done_i = C_i + max over k <= i of (due_k - C_(k-1)), C being the sum of
    service.
    """
    served = np.cumsum(took)
    return np.asarray(served + np.maximum.accumulate(due - (served - took)))


def _many(due: npt.NDArray[np.float64], took: npt.NDArray[np.float64], servers: int) -> npt.NDArray[np.float64]:
    free = [0.0] * servers
    done = np.empty(len(due))
    for i, (arrived, service) in enumerate(zip(due.tolist(), took.tolist(), strict=True)):
        done[i] = end = max(arrived, free[0]) + service
        heapq.heapreplace(free, end)
    return done


def judged(queue: Queue, asked: Next, objectives: list[Objective], n: int) -> Probe:
    """A probe of n requests, under the whole verdict. An endpoint that does not keep up fails."""
    records, facts = run(queue, asked.load, n, asked.seed)
    validity = assess(records, facts, objectives)
    verdict = verdicts.judge(records, objectives, validity)
    outcome, reasons = verdict.outcome, verdict.reasons
    if validity.outcome == "VALID" and validity.unstable is not None:
        outcome, reasons = "FAIL", (validity.unstable,)
    needed = [one.n_needed for one in verdict.objectives if one.outcome == "INCONCLUSIVE"]
    return Probe(
        asked.number,
        asked.purpose,
        asked.load,
        asked.length,
        asked.seed,
        outcome,
        reasons,
        n,
        None if None in needed else max((m for m in needed if m is not None), default=0),
    )


def search(queue: Queue, settings: Settings, objectives: list[Objective], base: int) -> tuple[Answer, list[Probe]]:
    """A whole search in virtual time, of probes of ``base`` x length requests, however long it takes."""
    probes: list[Probe] = []
    while not isinstance(step := decide(settings, probes), Answer):
        probes.append(judged(queue, step, objectives, math.ceil(base * step.length)))
    return step, probes


@dataclass(frozen=True, slots=True)
class Clock:
    """How long the shortest probe sends, what comes around each one (to start, to judge, to cool down), and the budget
    of all.
    """

    probe_s: float = 20.0
    around_s: float = 6.0
    budget_s: float = 1800.0

    def lasts(self, length: float) -> float:
        """Seconds that a probe of this length takes."""
        return self.probe_s * length + self.around_s


def timed_search(
    queue: Queue, settings: Settings, objectives: list[Objective], clock: Clock
) -> tuple[Answer, list[Probe]]:
    """A whole search as the command makes it: probes last so many seconds, and there is a budget."""
    probes: list[Probe] = []

    def fits(asked: Next) -> bool:
        spent = sum(clock.lasts(probe.length) for probe in probes)
        return spent + sum(map(clock.lasts, (asked.length, *asked.then))) <= clock.budget_s

    while not isinstance(step := decide(settings, probes, fits=fits), Answer):
        arrivals = np.random.default_rng([step.seed, 1]).poisson(step.load * clock.probe_s * step.length)
        probes.append(judged(queue, step, objectives, max(1, int(arrivals))))
    return step, probes
