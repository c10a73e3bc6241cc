"""Did the GENERATOR keep its promise? A run whose load was not the planned one is INVALID whatever it measured.

Its lateness makes no open loop INVALID that has objectives: they are judged at both ends of it
(``slo/validity/bracket.py``). What lateness may not do is found here: another rate, another process, requests that
never left. Waiting for a connection is in every latency, it is reported by its cause, and it makes no run invalid. This
module is pure and says nothing about how fast the endpoint was; whether it kept up at all is found here and judged in
``slo/verdict/verdict.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import IntArray, Records, Stamp, Status
from plimsoll.slo.records.tables import MERGED_SHARE, Merged, merged_chunks
from plimsoll.slo.statistics.distribution import ascending, at_most, median, u_errors
from plimsoll.slo.validity import accounts, bracket, lateness, strain
from plimsoll.slo.validity.generator import Cause, Check, GeneratorFacts, reasons
from plimsoll.slo.validity.lateness import LAG_FLOOR_NS, Lag, LagLimits, lag_limits

#: With more than this share of the requests held back before they left, the report says so.
WAITED_SHARE = 0.01
#: Agents' clocks must be known better than this: by so much their parts of the schedule may lie beside each other.
CLOCK_LIMIT_NS = 5_000_000
#: The same where the arrivals don't need it: the agents begin within half of the second that charts count by.
BEGIN_LIMIT_NS = 500_000_000
_NO_CHUNKS = Merged(0, 0, None)
#: So many faults of one sort are told in a reason, and the others counted.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict about the generator.

    ``reasons``: why it is INVALID, one for each cause, with the numbers, the limits and what to do next. ``lag_ns``:
    sent - due; ``generator_lag_ns``: ready - due. ``stamp``: ``kernel``, ``user``, ``mixed`` or ``none``, with the
    share of answers that the kernel stamped. Rates are samples per second. ``arrivals``: the sent times against the
    planned process, None when there are too few. ``backlog``: whether the endpoint kept up, None where that can't be
    said; ``merged_chunks``: those that share a read; ``live_audio``: of sessions of paced audio; ``unstable``: why not,
    in words. That is no fault of the generator and leaves ``outcome`` alone: ``plimsoll.slo.verdict.verdict.judge``
    says what it does to the run. ``paced``: every request had a due time of its own, so objectives are judged at both
    ends of the lateness; ``pooled``: some waited for one of ``max_connections``;
    ``classes``: of a mix, each of them.
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
    arrivals: lateness.Arrivals | None
    backlog: Backlog | None = None
    unstable: str | None = None
    merged_chunks: Merged = _NO_CHUNKS
    live_audio: lateness.LiveAudio | None = None
    paced: bool = False
    pooled: bool = False
    classes: Mapping[str, Validity] = field(default_factory=dict)


def assess(
    records: Records,
    facts: GeneratorFacts,
    objectives: Sequence[Objective] = (),
    *,
    judged: bool | None = None,
    strict: bool = False,
    merged: Merged | None = None,
) -> Validity:
    """Judge the generator. ``judged``: something is promised of the run as a whole, and judged at both ends of the
    lateness (None: as ``objectives`` say); ``strict``: nobody judges both ends, as in a comparison of values, so
    lateness has its limits; ``merged``: as they were counted before (None: they are counted now).
    """
    rows = cancelled.planned(records)
    sent = sent_of(rows, facts)
    stamp, share = stamp_of(rows)
    steady = kept_up(sent.queue)
    together = merged_chunks(rows) if merged is None else merged
    slots = None if strain.paced(facts) else strain.idle_slots(records.without_chunks(), facts)
    audio, over = lateness.live_audio(rows), _first_over(records, facts)
    limits = lag_limits(rows, objectives)
    checks = [
        *_whole(records, rows, facts),
        all_sent(len(rows), len(sent.issued), facts),
        *_enough(sent.issued, facts),
        *_late(records, sent, facts, limits, objectives, judged=judged, strict=strict),
        lateness.span(sent.first, limits, strain.paced(facts), over),
        *_shape(sent.shape, rows, facts),
        *lateness.audio_checks(audio),
        *_had_time(facts, limits, share, slots),
    ]
    return Validity(
        outcome="VALID" if all(check.ok for check in checks) else "INVALID",
        reasons=reasons(checks),
        warnings=(*_warnings(facts, sent, steady, limits, slots), *_merged(together), *lateness.audio_warnings(audio)),
        checks=(*checks, steady),
        planned=planned(len(rows), facts),
        sent=len(sent.issued),
        unsent=planned(len(rows), facts) - len(sent.issued),
        offered_per_s=_per_s(rows, "due_ns", over),
        achieved_per_s=_per_s(rows, "sent_ns", over),
        lag_ns=lateness.summary(sent.left["sent_ns"] - sent.left["due_ns"]),
        generator_lag_ns=lateness.summary(sent.first["ready_ns"] - sent.first["due_ns"]),
        stamp=stamp,
        kernel_share=share,
        arrivals=sent.shape,
        backlog=sent.queue,
        unstable=None if steady.ok else steady.reason,
        merged_chunks=together,
        live_audio=audio,
        paced=strain.paced(facts),
        pooled=facts.pool_waits > 0,
    )


def _first_over(records: Records, facts: GeneratorFacts) -> int | None:
    """Where requests wait for answers: when the first slot came free from t0 on. None: they don't wait, or none did."""
    done = records["done_ns"][records["done_ns"] > 0]
    return int(done.min()) if len(done) and not facts.open_loop else None


def _per_s(rows: Records, stamp: str, over: int | None) -> float:
    known = rows[stamp] != -1
    return lateness.rate_per_s(rows[stamp][known], lateness.at_once(rows["due_ns"][known], over))


class Sent(NamedTuple):
    """Rows issued, taken up, sent; the first taken up of each query; the lateness, shape and backlog of those."""

    issued: Records
    taken: Records
    left: Records
    first: Records
    own: IntArray
    shape: lateness.Arrivals | None
    queue: Backlog | None


def sent_of(rows: Records, facts: GeneratorFacts) -> Sent:
    """Of planned rows, those that left."""
    bare = rows.without_chunks()
    issued = bare.select(bare["status"] != Status.UNSENT)
    taken = issued.select(issued["ready_ns"] != -1)
    left = issued.select(issued["sent_ns"] != -1)
    own = lateness.own(taken, facts.pool_waits > 0)
    shape = None
    came, gone_out, began = (lateness.scheduled(some) for some in (taken, left, issued))
    if facts.open_loop and len(came) >= lateness.MIN_SAMPLES:
        held = own if came is taken else lateness.own(came, facts.pool_waits > 0)
        # In a paced loop what the client held back counts as well, connections aside.
        gone = came["due_ns"] + held if strain.paced(facts) else came["ready_ns"]
        shape = lateness.compare(came["due_ns"], came["ready_ns"], gone_out["sent_ns"], facts.process, gone)
    queue = backlog(began["due_ns"], began["done_ns"]) if facts.open_loop and facts.process else None
    return Sent(issued, taken, left, lateness.first_of_each_query(taken), own, shape, queue)


def _late(
    records: Records,
    sent: Sent,
    facts: GeneratorFacts,
    limits: LagLimits,
    objectives: Sequence[Objective],
    *,
    judged: bool | None,
    strict: bool,
) -> list[Check]:
    """What lateness does: in a paced loop it makes a bracket, elsewhere (and if it is ``strict``) it has its limits."""
    if not strain.paced(facts):
        return lateness.lateness(sent.first["ready_ns"] - sent.first["due_ns"], limits, objectives)
    if strict:
        return lateness.lateness(sent.own, limits, objectives)
    if judged is None:
        judged = any(one.scope == "run" for one in objectives)
    return bracket.checks(records, sent.own, facts.pool_waits > 0, judged)


def stamp_of(rows: Records) -> tuple[Literal["kernel", "user", "mixed", "none"], float]:
    """Who stamped the answers, and the share of the kernel."""
    stamps = rows["stamp"][rows["first_byte_ns"] != -1]
    if len(stamps) == 0:
        return "none", 0.0
    share = float(np.mean(stamps == Stamp.KERNEL))
    return ("kernel" if share == 1.0 else "user" if share == 0.0 else "mixed"), share


def _whole(records: Records, rows: Records, facts: GeneratorFacts) -> list[Check]:
    """The run came to its own end, and its records are whole."""
    agree = _agree(accounts.contradictions(rows), facts)
    return [*_told(facts), agree, accounts.check(records, facts), *_clocks(facts)]


def of_facts(queries: int, rows: int, issued: int, facts: GeneratorFacts) -> list[Check]:
    """What is judged of a run as a whole by what its generator tells: of so many queries issued, and of the samples
    that have rows, and were issued.
    """
    return [*_told(facts), *_clocks(facts), all_sent(rows, issued, facts), *_lasted(queries, facts.elapsed_ns, facts)]


_EVENT = "Then this is not the experiment that was asked for: repair the event and run again"


def _told(facts: GeneratorFacts) -> list[Check]:
    again, hit = "Correct that and measure again", facts.max_duration_hit
    stopped = f"stopped by max_duration: {'yes' if hit else 'no'}"

    def none(name: str, what: str, faults: Sequence[str], fix: str, cause: Cause = "generator") -> Check:
        rest = [f"and {len(faults) - _NAMED} more (generator.json has them)"] if len(faults) > _NAMED else []
        return Check(name, not faults, f"{what}: {'; '.join([*faults[:_NAMED], *rest]) or 'none'}", fix, cause)

    return [
        _finished(facts),
        none("not aborted", "aborted", [facts.aborted] if facts.aborted is not None else [], again, "endpoint"),
        Check("within max_duration", not hit, stopped, "Raise max_duration, or ask for fewer queries", "user"),
        none("workers", "worker faults", facts.worker_faults, again),
        none("disk", "records not written", facts.disk_faults, "Make room on the disk and measure again"),
        *([none("events", "events that failed", facts.event_faults, _EVENT, "user")] if facts.event_faults else []),
    ]


def _finished(facts: GeneratorFacts) -> Check:
    if facts.cut_off is not None:
        return Check("finished", False, facts.cut_off, "Measure again: what is there shows how far it came, no more")
    detail = "the run was interrupted before its end" if facts.interrupted else "nobody interrupted the run"
    fix = "What was measured until then is kept, and decides nothing: let the next run come to its end"
    return Check("finished", not facts.interrupted, detail, fix, "user")


def _agree(found: Sequence[str], facts: GeneratorFacts) -> Check:
    """The records agree with each other and with their plan.

    Nobody but who changed them repairs that: another attempt would not.
    """
    if facts.plan_faults:
        detail = f"the run directory does not agree with its own plan: {'; '.join((*facts.plan_faults, *found))}"
        fix = "Restore its files if they were changed after the run, else report this defect with the run directory"
        return Check("records agree", False, detail, fix, "user")
    detail = f"contradictions in the records: {'; '.join(found) if found else 'none'}"
    return Check("records agree", not found, detail, "Report this defect with the run directory")


def _clocks(facts: GeneratorFacts) -> list[Check]:
    """Of a distributed run: every agent began when the others did. Poisson arrivals that are dealt by lot
    (``plimsoll.scenarios.plan.plan.Dealing``) stay Poisson whatever the clocks do.
    """
    if not facts.agents:
        return []
    limit_ns = CLOCK_LIMIT_NS if facts.aligned else BEGIN_LIMIT_NS
    known, limit = show(facts.clock_error_ns, "ns"), show(limit_ns, "ns")
    detail = f"{facts.agents} agents, the clock of each known to within {known} at t0, limit {limit}"
    fix = "Use a quieter network between master and agents, or a quieter host for the master"
    return [Check("clocks", facts.clock_error_ns <= limit_ns, detail, fix)]


def _ended_by(facts: GeneratorFacts) -> Cause | None:
    """Who ended the run before its plan was done; None: nobody."""
    if facts.interrupted or facts.max_duration_hit:
        return "user"
    if facts.aborted is not None:
        return "endpoint"  # it fell behind, or could only fail (harness/series/search/probe.py)
    return "generator" if facts.worker_faults or facts.disk_faults or facts.cut_off is not None else None


def planned(rows: int, facts: GeneratorFacts) -> int:
    """Samples of the plan: whoever says most of what the generator counted, plan.npz holds and the records have."""
    return max(facts.planned, facts.plan_samples, rows)


def all_sent(rows: int, issued: int, facts: GeneratorFacts) -> Check:
    """So many samples have rows, and were issued."""
    wanted = planned(rows, facts)
    unsent = wanted - issued
    detail = f"{issued} of {wanted} planned requests were sent"
    cause = _ended_by(facts) or "generator"
    if facts.plan_samples and facts.planned != facts.plan_samples:
        said = f"generator.json says that {facts.planned} samples were planned"
        detail = f"{said}, plan.npz holds {facts.plan_samples}; {detail}"
        return Check("all sent", False, detail, "The run directory was changed: measure again", "user")
    if issued == 0:
        return Check("all sent", False, detail, "See the errors of the run, then measure again", cause)
    # A closed loop may leave planned samples unsent, but each has a row: a run that lost rows proves nothing.
    ok = unsent == 0 or (not facts.open_loop and rows == wanted)
    stopped = facts.interrupted or facts.max_duration_hit or facts.cut_off is not None
    fix = "The rest was not due before the run was stopped" if stopped else "Lower the rate, add workers"
    return Check("all sent", ok, detail, fix, cause)


def _enough(issued: Records, facts: GeneratorFacts) -> list[Check]:
    queries = len(lateness.firsts(issued["query_id"]))
    elapsed = facts.elapsed_ns
    if queries == 1 and len(issued):
        # One query is issued at once: what counts is how long its samples kept the endpoint busy.
        elapsed = max(elapsed, int(issued["done_ns"].max()))
    return _lasted(queries, elapsed, facts)


def _lasted(queries: int, elapsed: int, facts: GeneratorFacts) -> list[Check]:
    cause = _ended_by(facts) or "user"  # a plan that was carried out and is too short was made too short
    issued = f"{queries} queries issued, min_queries {facts.min_queries}"
    lasted = f"lasted {show(elapsed, 'ns')}, min_duration {show(facts.min_duration_ns, 'ns')}"
    return [
        Check(name, kept, seen, f"Let the run go on, or lower {name}", cause)
        for name, kept, seen in (
            ("min_queries", queries >= facts.min_queries, issued),
            ("min_duration", elapsed >= facts.min_duration_ns, lasted),
        )
    ]


def _shape(shape: lateness.Arrivals | None, rows: Records, facts: GeneratorFacts) -> list[Check]:
    """What left is as irregular as what was planned, and the plan is of the process that its scenario names."""
    if shape is None:
        return _claim(rows, facts)
    detail = (
        f"index of dispersion of the issue times {shape.dispersion_ready:.2f}, planned "
        f"{shape.dispersion_planned:.2f}, without stalls {shape.moved:+.2f}, limit ±{lateness.DISPERSION_TOLERANCE:.0%}"
    )
    if shape.leaned is not None:
        limit = f"limit ±{lateness.DEPENDENCE_TOLERANCE:g}"
        detail += f"; correlation of successive counts {shape.leaned:+.2f} off the plan's, {limit}"
    return [Check("arrival process", shape.kept, detail, "Lower the rate or add workers"), *_claim(rows, facts)]


def _claim(rows: Records, facts: GeneratorFacts) -> list[Check]:
    if not facts.open_loop or facts.process not in ("poisson", "constant"):
        return []
    first = lateness.scheduled(rows)
    broken = lateness.claimed(ascending(first["due_ns"][lateness.firsts(first["query_id"])]), facts.process)
    said = f" {facts.process}, as claimed" if broken is None else f" not {facts.process}: {broken}"
    fix = "Report this defect with the run directory, or name the process that it is"
    return [Check("planned process", broken is None, f"the planned times are{said}", fix)]


def kept_up(queue: Backlog | None) -> Check:
    """The endpoint's part: it answered as fast as requests came."""
    if queue is None:
        return Check("steady", True, "not judged: too few requests, or no constant rate", cause="endpoint")
    before, after = queue.in_flight
    if not queue.growing:
        seen = (
            f"{before} requests in flight after a third of the run, {after} at its end, t = {queue.statistic:.1f} "
            f"(what grows and is above {T_LIMIT:g} is a backlog)"
        )
        return Check("steady", True, seen, cause="endpoint")
    took = " and ".join(show(value, "ns") for value in queue.latency_ns)
    detail = (
        f"unstable: the backlog grew to the end, from {before} to {after} requests in flight while {queue.arrivals} "
        f"came (t = {queue.statistic:.1f}, limit {T_LIMIT:g}; median latency in the halves {took}). The "
        "endpoint does not keep up with this rate, so every latency depends on how long the run lasted"
    )
    return Check("steady", False, detail, "Lower the rate", "endpoint")


def _had_time(facts: GeneratorFacts, limits: LagLimits, share: float, slots: strain.Idle | None) -> list[Check]:
    found = strain.checks(facts, limits, share)
    full = any(check.name == "generator CPU" and not check.ok for check in found)
    return [*found, *strain.idle_checks(slots, facts, full)]


def _warnings(
    facts: GeneratorFacts, sent: Sent, steady: Check, limits: LagLimits, slots: strain.Idle | None
) -> tuple[str, ...]:
    found = [] if steady.ok else [steady.reason]
    if not facts.open_loop:
        found.append(
            "closed loop: a stalled endpoint is asked less while it stalls, so percentiles hide the stall "
            "(coordinated omission). Read the maximum, and use an open loop to judge latency"
        )
    told = (*strain.warnings(facts), *bracket.repeat_warnings(sent.left, facts), *strain.idle_warnings(slots, facts))
    return (*found, *told, *_waits(facts, sent.left, limits))


def _merged(seen: Merged) -> list[str]:
    """Gaps between chunks are blurred where reads brought several."""
    if seen.share <= MERGED_SHARE or seen.uncertainty_p99_ns is None:
        return []
    return [
        f"{seen.share:.1%} of the chunks came in one read with a later one and carry its time, at most "
        f"{show(seen.uncertainty_p99_ns, 'ns')} too late (p99): those gaps read 0. Either the server writes several "
        "at once, or a proxy before it gathers them, or this host read late (see lag and stalls)"
    ]


def _waits(facts: GeneratorFacts, left: Records, limits: LagLimits) -> list[str]:
    """Between ready and sent: what held requests back here, by its cause. None of it is the endpoint's answering time.

    Few are told too where one of them was held back for longer than lag may be: then the highest percentiles are ours.
    """
    found = []
    wait = left["sent_ns"] - left["ready_ns"]
    opened = (left["connect_ns"] != -1) & (left["open_ns"] == -1)  # a session's own connection is part of it
    for rows, ours, what in (
        (opened, False, "requests opened a connection of their own before they left"),
        (left["connect_ns"] == -1, True, "requests were held back by the client"),
    ):
        slow = wait[rows & (wait > LAG_FLOOR_NS)]
        if ours and facts.pool_waits:
            continue  # their connection was not free: told below, by those who counted it
        far = ours and bool((slow > limits.max_ns).any())
        if len(slow) > WAITED_SHARE * len(left) or far:
            p99 = lateness.summary(slow).p99
            assert p99 is not None
            found.append(
                f"{len(slow)} {what} (sent - ready has p99 {show(p99, 'ns')} among them). It is in their latency, and "
                "is not the endpoint's time to answer, which counts from sent"
                + (": read no percentile above their share" if far else "")
            )
    for n, what, whose, remedy in (
        (
            facts.pool_waits - facts.stream_waits,
            "one of max_connections connections",
            "the limit of this scenario, not the endpoint's accept queue",
            "raise target.options.max_connections",
        ),
        (
            facts.stream_waits,
            "a place on a connection",
            "the server's own limit of calls at once on one (MAX_CONCURRENT_STREAMS)",
            "raise target.options.channels, or that limit,",
        ),
    ):
        if n:
            found.append(
                f"{n} requests waited for {what}, p99 {show(facts.pool_wait_p99_ns, 'ns')}: {whose}. It is in their "
                f"latency; {remedy} to hand the load on to the endpoint"
            )
    return found


# -- a backlog that grows ----------------------------------------------------------------------------------------------

# Did the endpoint keep up, or did a backlog grow for as long as the run lasted? With a growing backlog every latency
# depends on the length of the run: the numbers are those of a queue and no property of the endpoint, and a promise that
# they keep was kept by stopping in time. That is no fault of the generator: it is only found here, and
# ``slo/verdict/verdict.py`` says what it means. It looks for no other trend.
#
# In flight at t: requests due by t and not over by t. Its growth over a window is arrivals minus completions, and the
# sum of the growth in BLOCKS equal parts. While an endpoint is saturated the parts are nearly independent, so the sum
# divided by its standard error, estimated from the parts, is a t statistic. While it keeps up, its queue comes back to
# where it was: the parts cancel, and the statistic is far smaller than by chance (so the noise of a busy but stable
# queue, which is strongly autocorrelated and defeats a regression of the queue length, does not trip it).
# docs/reference/validity.md has the numbers.

#: With fewer arrivals in the window nothing can be said.
MIN_ARRIVALS = 150
BLOCKS = 20
#: One-sided 99 % of Student's t with 19 degrees of freedom is 2.54.
T_LIMIT = 2.6
#: Growth of less than this share of the arrivals is not worth a word (completions at 0.99 of the arrivals or more).
MATERIAL = 0.01
#: Standard errors by which latencies must have grown too.
Z_LIMIT = 3.0
#: By Little's law a queue that grew by G raises latencies by G / rate, and the median of one half over the other's by
#: half of that. Latencies that grew by less than a tenth of it drift for some other reason, while the endpoint still
#: fills up.
EXPLAINED = 0.1


@dataclass(frozen=True, slots=True)
class Backlog:
    """What happened between ``since_ns`` and ``until_ns``.

    ``in_flight`` at both ends; ``arrivals`` between them; ``statistic``: t of the growth; ``latency_ns``: median
    latency of the requests due in the first and in the second half, infinite for what was never over. ``growing``: the
    growth is more than 1 % of the arrivals, more than chance, and requests take longer by what such a queue means.
    """

    since_ns: int
    until_ns: int
    in_flight: tuple[int, int]
    arrivals: int
    statistic: float
    latency_ns: tuple[float, float]
    growing: bool


def backlog(due_ns: IntArray, done_ns: IntArray) -> Backlog | None:
    """Judge an open loop of constant rate by when requests were due and when they were over (-1: never).

    The window is the last two thirds of the schedule: during the first an endpoint fills up. Where answers take longer
    than that, requests in flight still grow in the window, and only latencies that grow as well tell a queue from
    filling up. None: too few requests to say.
    """
    if len(due_ns) < MIN_ARRIVALS:
        return None
    since, until = int(due_ns.min() + np.ptp(due_ns) // 3), int(due_ns.max())
    edges = np.linspace(since, until, BLOCKS + 1)
    arrived = at_most(due_ns, edges)
    flying = arrived - at_most(np.where(done_ns == -1, np.iinfo(np.int64).max, done_ns), edges)
    took = np.where(done_ns == -1, np.inf, (done_ns - due_ns).astype(np.float64))
    middle = (since + until) // 2
    early, late = took[(due_ns > since) & (due_ns <= middle)], took[due_ns > middle]
    return queue((since, until), arrived, flying, (median(early), median(late)), lambda: u_errors(late, early))


def queue(
    window: tuple[int, int],
    arrived: IntArray,
    flying: IntArray,
    medians: tuple[float, float],
    slower_by: Callable[[], float],
) -> Backlog | None:
    """The same by counts at the edges of the blocks of the window: ``arrived`` by each, ``flying`` at each.

    ``medians``: of the latencies of both halves; ``slower_by``: Mann-Whitney's standard errors of the second's.
    """
    (since, until), arrivals = window, int(arrived[-1] - arrived[0])
    if arrivals < MIN_ARRIVALS:
        return None
    parts = np.diff(flying).astype(np.float64)
    growth = float(parts.sum())
    error = float(parts.std(ddof=1)) * math.sqrt(BLOCKS)
    statistic = growth / error if error else math.inf * growth if growth else 0.0
    slower = medians[1] - medians[0] if math.isfinite(medians[1]) else math.inf
    explained = slower * arrivals / (until - since) > EXPLAINED * growth / 2
    growing = growth > MATERIAL * arrivals and statistic > T_LIMIT and slower_by() > Z_LIMIT and explained
    return Backlog(since, until, (int(flying[0]), int(flying[-1])), arrivals, statistic, medians, growing)
