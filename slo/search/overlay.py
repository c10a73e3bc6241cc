"""Queueing theory over measured runs: does Little's law hold in the log, and how far from a textbook queue is the endpoint?

A sanity check and never a gate. The curves are pinned at the mean response of the lowest load and predict the rest, so that
they assume no more than that the model is right; an endpoint that batches breaks all of them (its rate grows with what it
holds), and lies below them at high load. Little's law assumes nothing: where it fails the stamps are wrong.
Sources: SEMANTICS E.1, E.2; the formulas are in ``plimsoll.slo.statistics.queueing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.slo.records.records import IntArray, Records, Status
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.statistics.queueing import (
    erlang_c,
    heavy_traffic_quantile,
    md1_mean,
    md1_quantile,
    mm1_mean,
    mm1_quantile,
    mmc_quantile,
    occupancy,
)

Model = Literal["M/M/1", "M/D/1", "M/M/c"]
View = Literal["response", "service"]
#: Beyond this utilisation the exact sum of M/D/1 gets long, and the exponential tail is within 2 % of it.
_EXACT_MD1 = 0.95
#: No curve is drawn beyond: it goes to infinity, and the chart with it.
_DRAWN = 0.97
#: Rounding of means over millions of rows.
_ROUNDING = 1e-9
#: A run with fewer answers has no p99 worth a ratio.
FEWEST = 50


@dataclass(frozen=True, slots=True)
class Little:
    """Little's law on one run. ``view``: due to done (in the system), or sent to done (in service).

    ``mean``: L; ``rate_per_s``, ``took_ns``: lambda and W; ``bound``: what the edges of the window can explain of
    L - lambda W. ``wrong``: why the log contradicts itself, "" when it does not.
    """

    view: View
    mean: float
    rate_per_s: float
    took_ns: float
    bound: float
    wrong: str = ""

    @property
    def product(self) -> float:
        """Lambda W."""
        return self.rate_per_s * self.took_ns / 1e9


def little(records: Records) -> tuple[Little, ...]:
    """Little's law from t0 to the last arrival, on response and on service times; () for a run without requests.

    Requests that never left count as in the system to the end; those that were never sent were never there.
    """
    rows = records.measured()
    rows = rows.select(rows["status"] != Status.UNSENT)
    found = []
    for view, since in (("response", "due_ns"), ("service", "sent_ns")):
        came = rows[since] >= 0
        arrived, left = rows[since][came], rows["done_ns"][came]
        lost = int(np.count_nonzero((left == -1) & rows.ok[came]))
        if len(arrived) and int(arrived.max()) > 0:
            found.append(_little(view, arrived, left, lost))  # type: ignore[arg-type]
    return tuple(found)


def _little(view: View, arrived: IntArray, left: IntArray, lost: int) -> Little:
    try:
        seen = occupancy(arrived, left, int(arrived.max()))
    except ValueError as error:
        return Little(view, 0.0, 0.0, 0.0, 0.0, str(error))
    wrong = ""
    if lost:
        wrong = f"{lost} requests were answered and have no time at which that was over"
    elif seen.by_sweep_ns != seen.by_overlap_ns:
        wrong = f"counted by events {seen.by_sweep_ns} request-nanoseconds were spent, counted by requests {seen.by_overlap_ns}"
    elif abs(seen.gap) > seen.bound + _ROUNDING * (1 + seen.mean):
        wrong = f"L and lambda W are {abs(seen.gap):.3g} apart, and the edges of the window explain {seen.bound:.3g}"
    return Little(view, seen.mean, seen.rate_per_ns * 1e9, seen.response_ns, seen.bound, wrong)


@dataclass(frozen=True, slots=True)
class Load:
    """One run as a point over the rate: ``n`` answers, ``failed`` others; latency due to done, infinite where failures reach."""

    run: str
    rate_per_s: float
    n: int
    failed: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    stable: bool = True

    @property
    def usable(self) -> bool:
        """Enough answers, and an endpoint that kept up: beyond that latencies are those of the run's length."""
        return self.stable and self.n >= FEWEST


def load(run: str, rate_per_s: float, records: Records, stable: bool) -> Load:
    """A run's latencies. ``rate_per_s``: what was offered. Failures are infinitely slow; the mean is that of the answers."""
    rows = records.measured()
    took = np.where(rows.ok, (rows["done_ns"] - rows["due_ns"]).astype(np.float64), np.inf)
    good = took[np.isfinite(took)]
    ordered = np.sort(took)
    p50, p99 = (quantile(ordered, q) if len(ordered) else float("nan") for q in ("0.5", "0.99"))
    mean = float(good.mean()) if len(good) else float("nan")
    return Load(run, rate_per_s, len(good), len(took) - len(good), mean, p50, p99, stable)


@dataclass(frozen=True, slots=True)
class Queue:
    """A textbook queue with its service time. ``limit_per_s``: the rate at which its utilisation is 1."""

    model: Model
    servers: int
    service_ns: float

    @property
    def limit_per_s(self) -> float:
        """c / S."""
        return self.servers * 1e9 / self.service_ns

    def utilisation(self, rate_per_s: float) -> float:
        """The utilisation law: X S / c. At 1 and beyond the model has no steady state."""
        return rate_per_s / self.limit_per_s

    def quantile_ns(self, rate_per_s: float, q: float) -> float | None:
        """Response time that the model predicts, or None where it has none."""
        rho = self.utilisation(rate_per_s)
        if rho >= 1:
            return None
        if self.model == "M/M/1":
            units = mm1_quantile(rho, q)
        elif self.model == "M/M/c":
            units = mmc_quantile(self.servers, rho, q)
        else:
            units = md1_quantile(rho, q) if rho <= _EXACT_MD1 else heavy_traffic_quantile(rho, 0.0, q)
        return units * self.service_ns


def pinned(model: Model, servers: int, rate_per_s: float, mean_ns: float) -> Queue:
    """The queue whose mean response at a rate is the measured one. Raises ValueError for a rate or mean not above 0.

    The mean grows with the service time, so bisection finds it: 0 < S <= mean, and S below c / rate.
    """
    if not rate_per_s > 0 or not mean_ns > 0:
        raise ValueError("a queue is pinned at a rate and a mean response above 0")
    low, high = 0.0, min(mean_ns, servers * 1e9 / rate_per_s)
    for _ in range(200):
        middle = (low + high) / 2
        rho = rate_per_s * middle / (servers * 1e9)
        if rho < 1 and _mean(model, servers, rho) * middle <= mean_ns:
            low = middle
        else:
            high = middle
    return Queue(model, servers, low or high)


def _mean(model: Model, servers: int, rho: float) -> float:
    """Mean response in service times."""
    if model == "M/D/1":
        return md1_mean(rho)
    if model == "M/M/1":
        return mm1_mean(rho)
    return 1 + erlang_c(servers, rho) / (servers * (1 - rho))


@dataclass(frozen=True, slots=True)
class Overlay:
    """Measured loads in order, the queues pinned at the lowest usable one, and each one's curve as (rate, p50, p99)."""

    loads: tuple[Load, ...]
    pin: Load
    queues: tuple[Queue, ...]
    curves: tuple[tuple[tuple[float, float, float], ...], ...]


def overlay(loads: Sequence[Load], servers: int = 1, points: int = 40) -> Overlay | None:
    """Curves over measured loads. None: no load is usable."""
    ordered = tuple(sorted(loads, key=lambda one: (one.rate_per_s, one.run)))
    usable = [one for one in ordered if one.usable and one.rate_per_s > 0 and one.mean_ns > 0]
    if not usable:
        return None
    pin = usable[0]
    models: tuple[Model, ...] = ("M/M/1", "M/D/1") if servers == 1 else ("M/M/1", "M/D/1", "M/M/c")
    queues = tuple(pinned(model, servers if model == "M/M/c" else 1, pin.rate_per_s, pin.mean_ns) for model in models)
    most = ordered[-1].rate_per_s
    return Overlay(ordered, pin, queues, tuple(_curve(queue, pin.rate_per_s, most, points) for queue in queues))


def _curve(queue: Queue, least: float, most: float, points: int) -> tuple[tuple[float, float, float], ...]:
    """From the pin to the highest load, or to where the model explodes."""
    end = max(min(most, queue.limit_per_s * _DRAWN), least)
    found = []
    for rate in np.linspace(least, end, points if end > least else 1).tolist():
        p50, p99 = queue.quantile_ns(rate, 0.5), queue.quantile_ns(rate, 0.99)
        if p50 is not None and p99 is not None:
            found.append((rate, p50, p99))
    return tuple(found)
