"""How late the generator was, and how late it may be: limits relative to the tightest objective, and their checks.

Late is ready - due, of the first sample of each query. Waiting for a connection comes after it and is not judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slo import arrivals
from slo.distribution import quantile
from slo.generator import Check
from slo.indicator import catalogue
from slo.objective import Objective, show
from slo.queries import deadlines
from slo.records import IntArray, Records

LAG_FLOOR_NS = 1_000_000
LAG_MAX_FLOOR_NS = 50_000_000
UNTOUCHED_FLOOR_NS = 5_000_000
#: With fewer values the p99 is the maximum, and is judged as one.
P99_NEEDS = 100
RATE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Lag:
    """Nearest-rank percentiles of a lateness in ns; None when nothing was measured."""

    p50: int | None
    p99: int | None
    max: int | None


def first_of_each_query(taken: Records) -> Records:
    """The sample of each query that was taken up first.

    A query is issued when its first sample is: the others wait for it, and in an offline run for a turn on the wire. That
    is the scenario's doing and part of their latency, not the generator's lateness.
    """
    order = np.lexsort((taken["ready_ns"], taken["query_id"]))
    query = taken["query_id"][order]
    return taken.select(np.sort(order[np.append(True, np.diff(query) != 0)[: len(order)]]))


def summary(values: IntArray) -> Lag:
    """Percentiles of a lateness."""
    if len(values) == 0:
        return Lag(None, None, None)
    ordered = np.sort(values).astype(np.float64)
    return Lag(int(quantile(ordered, "0.5")), int(quantile(ordered, "0.99")), int(ordered[-1]))


def tightest(objectives: Sequence[Objective]) -> Objective | None:
    """The smallest threshold among objectives that lateness adds to: times counted from due."""
    known = catalogue()
    times = [
        o
        for o in objectives
        if o.unit == "ns" and "due_ns" in known[o.indicator].needs and o.indicator not in ("lag", "generator_lag")
    ]
    return min(times, key=lambda o: o.threshold, default=None)


class LagLimits(NamedTuple):
    """How late the generator may be, in ns: for the p99 and the maximum the limit and its floor; ``source`` in words."""

    p99_ns: float
    p99_floor_ns: int
    max_ns: float
    max_floor_ns: int
    source: str


def lag_limits(rows: Records, objectives: Sequence[Objective]) -> LagLimits:
    """Largest allowed p99 and maximum of the generator's lag in ns, the maximum's floor, and their source
    in words.

    With latency objectives: 1 % and 10 % of the tightest. Without: 1 % and 10 % of the median latency, the
    maximum then never below 50 ms, since one hiccup of the host says little about an endpoint nobody
    promised anything for. Neither is below 1 ms, which is as good as a timer in a busy process gets; with
    objectives that lateness adds nothing to (tpot, ratio(error)), the p99 is not below 5 ms. A promise on missed frames is one
    of latency: its threshold is the frame deadline.
    """
    tight = tightest(objectives)
    if tight is not None:
        scale, floor, source = tight.threshold, LAG_FLOOR_NS, f"of {tight}"
    else:
        took = (rows["done_ns"] - rows["due_ns"])[rows.ok]
        scale = quantile(np.sort(took).astype(np.float64), "0.5") if len(took) else 0.0
        floor, source = LAG_MAX_FLOOR_NS, "of the median latency"
    frame = int(deadlines(rows).max(initial=0)) if any(o.indicator == "frame_missed" for o in objectives) else 0
    if frame > 0 and (tight is None or frame < tight.threshold):
        return LagLimits(
            max(LAG_FLOOR_NS, 0.01 * frame),
            LAG_FLOOR_NS,
            max(LAG_FLOOR_NS, 0.1 * frame),
            LAG_FLOOR_NS,
            "of the frame deadline",
        )
    lowest = UNTOUCHED_FLOOR_NS if objectives and tight is None else LAG_FLOOR_NS
    return LagLimits(max(lowest, 0.01 * scale), lowest, max(floor, 0.1 * scale), floor, source)


def lateness(lag: IntArray, limits: LagLimits, objectives: Sequence[Objective]) -> list[Check]:
    """The generator's own lag: its p99, its maximum, and how often it alone was more than an objective allows."""
    if len(lag) == 0:
        return []
    seen = summary(lag)
    assert seen.p99 is not None
    assert seen.max is not None
    p99, most, lowest = (show(value, "ns") for value in (seen.p99, seen.max, limits.max_floor_ns))
    fix = "Lower the rate, add workers, or free the host"
    detail = f"generator lag p99 {p99}, limit {show(limits.p99_ns, 'ns')} (1 % {limits.source}, at least {show(limits.p99_floor_ns, 'ns')})"
    checks = [Check("lag p99", len(lag) < P99_NEEDS or seen.p99 <= limits.p99_ns, detail, fix)]
    detail = f"generator lag max {most}, limit {show(limits.max_ns, 'ns')} (10 % {limits.source}, at least {lowest})"
    checks.append(Check("lag max", seen.max <= limits.max_ns, detail, fix))
    tight = tightest(objectives)
    if tight is not None:
        late = int(np.count_nonzero(lag > tight.threshold))
        detail = f"generator lag above the whole of {tight}: {late} of {len(lag)} requests, limit 0.1 %"
        checks.append(Check("lag below objective", late <= 0.001 * len(lag), detail, fix))
    return checks


def span(taken: Records, limits: LagLimits) -> Check:
    """The issue span is the planned one, give or take 1 %, or the lateness that is allowed anyway in a tiny
    run.
    """
    if len(taken) < 2:
        return Check("rate", True, "too few requests for a rate")
    due, ready = taken["due_ns"], taken["ready_ns"]
    planned, actual = int(np.ptp(due)), int(np.ptp(ready))
    allowed = max(RATE_TOLERANCE * planned, limits.max_ns)
    rates = f"issued at {arrivals.rate_per_s(ready):.4g}/s, planned {arrivals.rate_per_s(due):.4g}/s"
    detail = f"{rates}, limit 1 % or {show(allowed, 'ns')} over the run"
    return Check("rate", abs(actual - planned) <= allowed, detail, "Lower the rate or add workers")
