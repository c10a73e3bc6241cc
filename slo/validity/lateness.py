"""How late the generator was, and how late it may be where lateness can't be bracketed.

Late is ready - due, of the first sample of each query, and what the client then held the request back for without opening
a connection or waiting for a free one. In an open loop it makes a bracket of every time (``slo/validity/bracket.py``) and no run INVALID;
limits relative to the tightest objective are for closed loops, for a single query, and for comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.records.queries import deadlines
from plimsoll.slo.records.records import IntArray, Records
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.validity import arrivals
from plimsoll.slo.validity.generator import Check

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


def own(records: Records, pooled: bool) -> IntArray:
    """int64[n]: by how much each request left late through the generator alone, 0 for what was never taken up.

    Its query's lateness, and sent - ready without what is the endpoint's or the scenario's: the set-up of a connection, and (in a
    run whose pool was ever full: ``pooled``) the wait until one was free, which ends as another request of that worker does.
    """
    ready, sent = records["ready_ns"], records["sent_ns"]
    late = np.where(ready != -1, ready - records["due_ns"], 0)
    if bool((records["sample_ix"] > 0).any()):
        key = records["phase"] * (int(records["query_id"].max(initial=0)) + 1) + records["query_id"]
        _, query = np.unique(key, return_inverse=True)
        first = np.full(int(query.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, query[ready != -1], late[ready != -1])
        late = np.where(ready != -1, first[query], 0)
    held = np.where((sent != -1) & (ready != -1), sent - ready - np.maximum(records["connect_ns"], 0), 0)
    if pooled:
        held = np.minimum(held, _since_one_was_free(records))
    return np.asarray(np.maximum(late, 0) + np.maximum(held, 0))


def _since_one_was_free(records: Records) -> IntArray:
    """int64[n]: from the last end of another request of the same worker between ready and sent, to sent; else very long."""
    ready, sent, done, worker = (records[name] for name in ("ready_ns", "sent_ns", "done_ns", "worker"))
    since = np.full(len(records), np.iinfo(np.int64).max)
    for one in np.unique(worker):
        rows = np.flatnonzero((worker == one) & (sent != -1))
        over = np.sort(done[(worker == one) & (done != -1)])
        place = np.searchsorted(over, sent[rows], side="right") - 1
        last = np.where(place >= 0, over[np.maximum(place, 0)] if len(over) else -1, -1)
        freed = last > ready[rows]
        since[rows[freed]] = (sent[rows] - last)[freed]
    return since


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
    # Of few requests the p99 is the maximum, which one hiccup makes; that most of them are late is none.
    word, late_ns = ("p99", seen.p99) if len(lag) >= P99_NEEDS else ("p50", seen.p50 or 0)
    late, most, lowest = (show(value, "ns") for value in (late_ns, seen.max, limits.max_floor_ns))
    fix = "Lower the rate, add workers, or free the host"
    detail = f"generator lag {word} {late}, limit {show(limits.p99_ns, 'ns')} (1 % {limits.source}, at least {show(limits.p99_floor_ns, 'ns')})"
    checks = [Check("lag p99", late_ns <= limits.p99_ns, detail, fix)]
    detail = f"generator lag max {most}, limit {show(limits.max_ns, 'ns')} (10 % {limits.source}, at least {lowest})"
    checks.append(Check("lag max", seen.max <= limits.max_ns, detail, fix))
    tight = tightest(objectives)
    if tight is not None:
        beyond = int(np.count_nonzero(lag > tight.threshold))
        detail = f"generator lag above the whole of {tight}: {beyond} of {len(lag)} requests, limit 0.1 %"
        checks.append(Check("lag below objective", beyond <= 0.001 * len(lag), detail, fix))
    return checks


def seen(lag: IntArray) -> str:
    """The p99 and the maximum of a lateness, for people."""
    found = summary(lag)
    return f"generator lag p99 {show(found.p99 or 0, 'ns')}, max {show(found.max or 0, 'ns')}"


def span(taken: Records, limits: LagLimits, paced: bool, over_ns: int | None = None) -> Check:
    """The issue span is the planned one, give or take 1 %, or the lateness that is allowed anyway in a tiny
    run.

    ``paced``: every query has a due time of its own; then one late request at either end is no other rate, and the slope of
    issue times over due times may be within 1 % of 1 instead: it weighs all requests, and a load that falls behind changes it.
    ``over_ns``: as ``arrivals.at_once`` takes it.
    """
    if len(taken) < 2:
        return Check("rate", True, "too few requests for a rate")
    due, ready = taken["due_ns"], taken["ready_ns"]
    planned, actual = int(np.ptp(due)), int(np.ptp(ready))
    allowed = max(RATE_TOLERANCE * planned, limits.max_ns)
    first = arrivals.at_once(due, over_ns)
    rates = f"issued at {arrivals.rate_per_s(ready, first):.4g}/s, planned {arrivals.rate_per_s(due, first):.4g}/s"
    detail = f"{rates}, limit 1 % or {show(allowed, 'ns')} over the run"
    kept = abs(actual - planned) <= allowed
    if paced and planned:
        off = arrivals.slope(due, ready) - 1
        kept = kept or abs(off) <= RATE_TOLERANCE
        detail = f"{detail}; over all requests {off:+.2%}, limit 1 %"
    return Check("rate", kept, detail, "Lower the rate or add workers")
