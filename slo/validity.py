"""Did the GENERATOR keep its promise? A run whose load was not the planned one is INVALID whatever it
measured.

Judged is the generator's own lateness, ready - due. Waiting for a connection, sent - ready, is the
endpoint's back-pressure: it is in every latency, it is reported, and it makes no run invalid. This module
is pure and says nothing about how fast the endpoint was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np

from slo import arrivals, contradictions
from slo.distribution import quantile
from slo.indicator import catalogue
from slo.objective import Objective, show
from slo.records import IntArray, Records, Stamp, Status

LAG_FLOOR_NS = 1_000_000
LAG_MAX_FLOOR_NS = 50_000_000
UNTOUCHED_FLOOR_NS = 5_000_000
#: With fewer values the p99 is the maximum, and is judged as one.
P99_NEEDS = 100
RATE_TOLERANCE = 0.01
CPU_LIMIT = 0.9
STALL_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class GeneratorFacts:
    """What the generator knows about itself that the records don't.

    ``planned`` samples and ``planned_queries`` (0 in a closed loop, which has no list to work off);
    ``process``: the intended arrival process, such as ``poisson`` or ``constant``; ``elapsed_ns``: t0 to
    the last issue (of a single query, to its last completion); ``loop_stall_count``: stalls of the event
    loop longer than 10 ms; ``worker_cpu``: share of one core that each worker used, 0..1; ``clock_steps``:
    jumps of the wall clock, which kernel receive stamps are on and are mapped around; ``disk_faults``: rows that
    could not be read back; ``disk_notes``: rows that had to be written elsewhere, none of them lost; ``retried``:
    requests sent a second time, because a kept-alive connection turned out to be closed as they were written.
    """

    open_loop: bool
    planned: int
    planned_queries: int = 0
    process: str | None = None
    min_queries: int = 0
    min_duration_ns: int = 0
    elapsed_ns: int = 0
    loop_stall_p99_ns: int = 0
    loop_stall_max_ns: int = 0
    loop_stall_count: int = 0
    worker_cpu: tuple[float, ...] = ()
    aborted: str | None = None
    worker_faults: tuple[str, ...] = ()
    interrupted: bool = False
    max_duration_hit: bool = False
    clock_steps: int = 0
    disk_faults: tuple[str, ...] = ()
    disk_notes: tuple[str, ...] = ()
    retried: int = 0
    n_workers: int = 1

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` gives the same facts back."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> GeneratorFacts:
        """Facts from ``to_json``'s object. Unknown keys are ignored, so that a file may hold more."""
        known = {f.name for f in fields(GeneratorFacts)} & document.keys()
        given: dict[str, Any] = {}
        for name in known:
            value = document[name]
            given[name] = tuple(value) if isinstance(value, list) else value
        return GeneratorFacts(**given)


@dataclass(frozen=True, slots=True)
class Lag:
    """Nearest-rank percentiles of a lateness in ns; None when nothing was measured."""

    p50: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the generator: whether it was kept, what was seen and is allowed, and what to do if
    not.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""

    @property
    def reason(self) -> str:
        """The detail with the next step."""
        return f"{self.detail}. {self.fix}" if self.fix else self.detail


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict about the generator.

    ``reasons``: why it is INVALID, each with the number, the limit and what to do next. ``lag_ns``: sent -
    due; ``generator_lag_ns``: ready - due. ``stamp``: ``kernel``, ``user``, ``mixed`` or ``none``, with the
    share of answers that the kernel stamped. Rates are samples per second. ``arrivals``: the sent times
    against the planned process, None when there are too few.
    """

    outcome: Literal["VALID", "INVALID"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    checks: tuple[Check, ...]
    planned: int
    sent: int
    unsent: int
    offered_per_s: float
    achieved_per_s: float
    lag_ns: Lag
    generator_lag_ns: Lag
    stamp: Literal["kernel", "user", "mixed", "none"]
    kernel_share: float
    arrivals: arrivals.Arrivals | None


def assess(records: Records, facts: GeneratorFacts, objectives: Sequence[Objective] = ()) -> Validity:
    """Judge the generator by the measured rows, its own facts, and the objectives it must not blur."""
    rows = records.measured()
    issued = rows.select(rows["status"] != Status.UNSENT)
    taken = issued.select(issued["ready_ns"] != -1)
    left = issued.select(issued["sent_ns"] != -1)
    total = left["sent_ns"] - left["due_ns"]
    first = _first_of_each_query(taken)
    generator = first["ready_ns"] - first["due_ns"]
    stamp, share = _stamp(rows)
    shape = None
    if facts.open_loop and len(taken) >= arrivals.MIN_SAMPLES:
        shape = arrivals.compare(taken["due_ns"], taken["ready_ns"], left["sent_ns"], facts.process)
    checks = [
        *_whole(rows, facts),
        _all_sent(rows, issued, facts),
        *_enough(issued, facts),
        *_lateness(generator, rows, objectives),
        _rate(first, objectives, rows),
        *_shape(shape),
    ]
    return Validity(
        outcome="VALID" if all(check.ok for check in checks) else "INVALID",
        reasons=tuple(check.reason for check in checks if not check.ok),
        warnings=_warnings(facts, stamp, issued, first["sent_ns"] - first["due_ns"], generator),
        checks=tuple(checks),
        planned=max(facts.planned, len(rows)),
        sent=len(issued),
        unsent=max(facts.planned, len(rows)) - len(issued),
        offered_per_s=arrivals.rate_per_s(rows["due_ns"]),
        achieved_per_s=arrivals.rate_per_s(taken["ready_ns"]),
        lag_ns=_lag(total),
        generator_lag_ns=_lag(generator),
        stamp=stamp,
        kernel_share=share,
        arrivals=shape,
    )


def _first_of_each_query(taken: Records) -> Records:
    """The sample of each query that was taken up first.

    A query is issued when its first sample is: the others wait for it, and in an offline run for a turn on the wire. That
    is the scenario's doing and part of their latency, not the generator's lateness.
    """
    order = np.lexsort((taken["ready_ns"], taken["query_id"]))
    query = taken["query_id"][order]
    return taken.select(np.sort(order[np.append(True, np.diff(query) != 0)[: len(order)]]))


def _lag(values: IntArray) -> Lag:
    if len(values) == 0:
        return Lag(None, None, None)
    ordered = np.sort(values).astype(np.float64)
    return Lag(int(quantile(ordered, "0.5")), int(quantile(ordered, "0.99")), int(ordered[-1]))


def _stamp(rows: Records) -> tuple[Literal["kernel", "user", "mixed", "none"], float]:
    stamps = rows["stamp"][rows["first_byte_ns"] != -1]
    if len(stamps) == 0:
        return "none", 0.0
    share = float(np.mean(stamps == Stamp.KERNEL))
    return ("kernel" if share == 1.0 else "user" if share == 0.0 else "mixed"), share


def _whole(rows: Records, facts: GeneratorFacts) -> list[Check]:
    """The run came to its own end, and its records are whole."""
    found = contradictions.find(rows)
    again = "Correct that and measure again"

    def none(name: str, what: str, faults: Sequence[str], fix: str) -> Check:
        return Check(name, not faults, f"{what}: {'; '.join(faults) if faults else 'none'}", fix)

    return [
        Check("finished", not facts.interrupted, f"interrupted: {_yes(facts.interrupted)}", "Let the run finish"),
        none("not aborted", "aborted", [facts.aborted] if facts.aborted is not None else [], again),
        Check(
            "within max_duration",
            not facts.max_duration_hit,
            f"stopped by max_duration: {_yes(facts.max_duration_hit)}",
            "Raise max_duration, or ask for fewer queries",
        ),
        none("workers", "worker faults", facts.worker_faults, again),
        none("disk", "records not written", facts.disk_faults, "Make room on the disk and measure again"),
        none(
            "records agree",
            "contradictions in the records",
            found,
            "Report this defect with the run directory",
        ),
    ]


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _all_sent(rows: Records, issued: Records, facts: GeneratorFacts) -> Check:
    planned = max(facts.planned, len(rows))
    unsent = planned - len(issued)
    detail = f"{len(issued)} of {planned} planned requests were sent"
    if len(issued) == 0:
        return Check("all sent", False, detail, "See the errors of the run, then measure again")
    ok = unsent == 0 or not facts.open_loop
    stopped = facts.interrupted or facts.max_duration_hit
    fix = "The rest was not due before the run was stopped" if stopped else "Lower the rate, add workers"
    return Check("all sent", ok, detail, fix)


def _enough(issued: Records, facts: GeneratorFacts) -> list[Check]:
    queries = len(np.unique(issued["query_id"]))
    elapsed = facts.elapsed_ns
    if queries == 1 and len(issued):
        # One query is issued at once: what counts is how long its samples kept the endpoint busy.
        elapsed = max(elapsed, int(issued["done_ns"].max()))
    lasted, wanted = show(elapsed, "ns"), show(facts.min_duration_ns, "ns")
    return [
        Check(
            "min_queries",
            queries >= facts.min_queries,
            f"{queries} queries issued, min_queries {facts.min_queries}",
            "Let the run go on, or lower min_queries",
        ),
        Check(
            "min_duration",
            elapsed >= facts.min_duration_ns,
            f"lasted {lasted}, min_duration {wanted}",
            "Let the run go on, or lower min_duration",
        ),
    ]


def _tightest(objectives: Sequence[Objective]) -> Objective | None:
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
    objectives that lateness adds nothing to (tpot, ratio(error)), the p99 is not below 5 ms.
    """
    tight = _tightest(objectives)
    if tight is not None:
        scale, floor, source = tight.threshold, LAG_FLOOR_NS, f"of {tight}"
    else:
        took = (rows["done_ns"] - rows["due_ns"])[rows.ok]
        scale = quantile(np.sort(took).astype(np.float64), "0.5") if len(took) else 0.0
        floor, source = LAG_MAX_FLOOR_NS, "of the median latency"
    lowest = UNTOUCHED_FLOOR_NS if objectives and tight is None else LAG_FLOOR_NS
    return LagLimits(max(lowest, 0.01 * scale), lowest, max(floor, 0.1 * scale), floor, source)


def _lateness(lag: IntArray, rows: Records, objectives: Sequence[Objective]) -> list[Check]:
    if len(lag) == 0:
        return []
    limits = lag_limits(rows, objectives)
    seen = _lag(lag)
    assert seen.p99 is not None
    assert seen.max is not None
    p99, most, lowest = (show(value, "ns") for value in (seen.p99, seen.max, limits.max_floor_ns))
    fix = "Lower the rate, add workers, or free the host"
    detail = f"generator lag p99 {p99}, limit {show(limits.p99_ns, 'ns')} (1 % {limits.source}, at least {show(limits.p99_floor_ns, 'ns')})"
    checks = [Check("lag p99", len(lag) < P99_NEEDS or seen.p99 <= limits.p99_ns, detail, fix)]
    detail = f"generator lag max {most}, limit {show(limits.max_ns, 'ns')} (10 % {limits.source}, at least {lowest})"
    checks.append(Check("lag max", seen.max <= limits.max_ns, detail, fix))
    tight = _tightest(objectives)
    if tight is not None:
        late = int(np.count_nonzero(lag > tight.threshold))
        detail = f"generator lag above the whole of {tight}: {late} of {len(lag)} requests, limit 0.1 %"
        checks.append(Check("lag below objective", late <= 0.001 * len(lag), detail, fix))
    return checks


def _rate(taken: Records, objectives: Sequence[Objective], rows: Records) -> Check:
    """The issue span is the planned one, give or take 1 %, or the lateness that is allowed anyway in a tiny
    run.
    """
    if len(taken) < 2:
        return Check("rate", True, "too few requests for a rate")
    due, ready = taken["due_ns"], taken["ready_ns"]
    planned, actual = int(np.ptp(due)), int(np.ptp(ready))
    allowed = max(RATE_TOLERANCE * planned, lag_limits(rows, objectives).max_ns)
    rates = f"issued at {arrivals.rate_per_s(ready):.4g}/s, planned {arrivals.rate_per_s(due):.4g}/s"
    detail = f"{rates}, limit 1 % or {show(allowed, 'ns')} over the run"
    return Check("rate", abs(actual - planned) <= allowed, detail, "Lower the rate or add workers")


def _shape(shape: arrivals.Arrivals | None) -> list[Check]:
    if shape is None:
        return []
    detail = (
        f"index of dispersion of the issue times {shape.dispersion_ready:.2f}, planned "
        f"{shape.dispersion_planned:.2f}, limit ±{arrivals.DISPERSION_TOLERANCE:.0%}"
    )
    return [Check("arrival process", shape.kept, detail, "Lower the rate or add workers")]


def _warnings(
    facts: GeneratorFacts, stamp: str, issued: Records, total: IntArray, generator: IntArray
) -> tuple[str, ...]:
    found = []
    if not facts.open_loop:
        found.append(
            "closed loop: a stalled endpoint is asked less while it stalls, so percentiles hide the stall "
            "(coordinated omission). Read the maximum, and use an open loop to judge latency"
        )
    if facts.loop_stall_count:
        p99 = show(facts.loop_stall_p99_ns, "ns")
        found.append(
            f"the event loop stalled {facts.loop_stall_count} times for more than {show(STALL_NS, 'ns')}, at "
            f"most {show(facts.loop_stall_max_ns, 'ns')} (p99 {p99}). Free the host"
        )
    busy = [cpu for cpu in facts.worker_cpu if cpu > CPU_LIMIT]
    if busy:
        found.append(
            f"{len(busy)} of {len(facts.worker_cpu)} workers used more than {CPU_LIMIT:.0%} of a core (most: "
            f"{max(busy):.0%}). Add workers before raising the rate"
        )
    found += facts.disk_notes
    if facts.retried:
        found.append(
            f"{facts.retried} requests met a kept-alive connection that the server had just closed and were sent again on a "
            "fresh one; their latency includes it. A longer keep-alive time-out on the server avoids it"
        )
    if facts.clock_steps:
        found.append(
            f"the wall clock jumped {facts.clock_steps} times; kernel stamps were mapped around it, and those that could "
            "not be were taken in userland"
        )
    seen, own = _lag(total), _lag(generator)
    if seen.p99 is not None and own.p99 is not None and seen.p99 > 2 * own.p99 + LAG_FLOOR_NS:
        found.append(
            f"requests waited for a connection: sent - due has p99 {show(seen.p99, 'ns')}, of which the "
            f"generator {show(own.p99, 'ns')}. That is back-pressure, and part of every latency; more "
            "connections would hand it on to the endpoint"
        )
    return tuple(found)
