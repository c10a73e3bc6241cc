"""Did the generator's process have the time that its promise takes: stalls, collector pauses, its core, its stamps.

Where every request has a due time of its own, lateness shows as lag (``slo/validity/lateness.py``) and what is here
only explains it. Where requests wait for answers (closed loops, the offline scenario) due is whenever the loop came
round to it and lag is 0 by definition, so a stalled or saturated generator is found here or nowhere. The same holds for
userland arrival stamps, which a stalled loop takes late. Nothing here looks at the endpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.objectives.objective import show
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, Status
from plimsoll.slo.statistics.distribution import ascending, median
from plimsoll.slo.validity import lateness
from plimsoll.slo.validity.generator import Check, GeneratorFacts
from plimsoll.slo.validity.lateness import LagLimits

#: Shorter stalls are not counted: the monitor looks every 10 ms.
STALL_NS = 10_000_000
#: The largest share of the run that stalls (or pauses) may take.
STALL_SHARE = 0.01
CPU_LIMIT = 0.9
#: In a shorter run the share of a core says little: its start and its end are most of it.
CPU_NEEDS_NS = 1_000_000_000
#: The largest share of reads that may lose their kernel stamp.
REFUSED_SHARE = 0.01
#: The largest share of answers with userland stamps that still counts as stamped by the kernel.
USER_SHARE = 0.01


def paced(facts: GeneratorFacts) -> bool:
    """Every query has a due time of its own, so that lateness is seen as lag."""
    return facts.open_loop and facts.planned_queries != 1


def checks(facts: GeneratorFacts, limits: LagLimits, kernel_share: float) -> list[Check]:
    """The promises about the generator's own process. ``kernel_share``: of the answers, stamped by the kernel."""
    counts = not facts.no_endpoint and (not paced(facts) or kernel_share < 1 - USER_SHARE)
    stalls = (facts.loop_stall_count, facts.loop_stall_max_ns, facts.loop_stall_total_ns)
    pauses = (facts.gc_pause_count, facts.gc_pause_max_ns, facts.gc_pause_total_ns)
    return [
        _stops("loop stalls", "the event loop stalled", stalls, facts, limits, counts),
        _stops("gc pauses", "the garbage collector ran", pauses, facts, limits, counts),
        _core(facts),
        _stamps(facts),
    ]


def _stops(
    name: str, what: str, seen: tuple[int, int, int], facts: GeneratorFacts, limits: LagLimits, counts: bool
) -> Check:
    count, longest, total = seen
    most = max(limits.max_ns, STALL_NS)
    in_all = max(STALL_SHARE * facts.watched_ns, most)
    detail = (
        f"{what} {_times(count)}, at most {show(longest, 'ns')}, limit {show(most, 'ns')} (as for lag max); "
        f"{show(total, 'ns')} in all, limit {show(in_all, 'ns')} (1 % of the run)"
    )
    fix = "Free the host, or add workers" if name == "loop stalls" else "Keep plug-ins from making garbage cycles"
    return Check(name, not counts or (longest <= most and total <= in_all), detail, fix)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def shares(facts: GeneratorFacts) -> tuple[float, ...]:
    """How busy each worker was: its engine's thread where there is one, else the process; or the wait for a core."""
    used = facts.engine_cpu or facts.worker_cpu
    wanted = facts.core_wanted if len(facts.core_wanted) == len(used) else used
    return tuple(max(pair) for pair in zip(used, wanted, strict=True))


def _core(facts: GeneratorFacts) -> Check:
    most = max(shares(facts), default=0.0)
    judged = not paced(facts) and not facts.no_endpoint and facts.watched_ns >= CPU_NEEDS_NS
    limit = f"limit {CPU_LIMIT:.0%} where requests wait for answers"
    detail = f"the busiest worker used or waited for {most:.0%} of a core, {limit}"
    fix = "Add workers (--workers) on cores of their own; `plimsoll calibrate` tells what this machine can do"
    meaning = "what was measured is the generator, not the endpoint"
    return Check("generator CPU", not judged or most <= CPU_LIMIT, detail, fix, meaning=meaning)


def _stamps(facts: GeneratorFacts) -> Check:
    reads = facts.kernel_reads + facts.user_reads
    share = facts.stamps_refused / reads if reads else 0.0
    detail = (
        f"{facts.stamps_refused} of {reads} reads lost their kernel stamp, because it fitted neither side of a step "
        f"of the wall clock, limit {REFUSED_SHARE:.0%}"
    )
    # With no kernel stamp at all every answer is stamped alike, and the report says "user".
    ok = share <= REFUSED_SHARE or not facts.kernel_reads
    fix, meaning = (
        "Keep the clock from being set while you measure (let NTP slew it)",
        "the others are userland stamps, and the two can't be compared",
    )
    return Check("stamps", ok, detail, fix, meaning=meaning)


def warnings(facts: GeneratorFacts) -> list[str]:
    """What did not break a promise, and a reader should know."""
    found = []
    if facts.loop_stall_count:
        p99 = show(facts.loop_stall_p99_ns, "ns")
        found.append(
            f"the event loop stalled {_times(facts.loop_stall_count)} for more than {show(STALL_NS, 'ns')}, at "
            f"most {show(facts.loop_stall_max_ns, 'ns')} (p99 {p99}). Free the host"
        )
    if facts.gc_pause_count:
        found.append(
            f"the garbage collector ran {_times(facts.gc_pause_count)} while requests were timed, for at most "
            f"{show(facts.gc_pause_max_ns, 'ns')} and {show(facts.gc_pause_total_ns, 'ns')} in all. Workers switch it "
            "off: look for a plug-in that calls it"
        )
    busy = [share for share in shares(facts) if share > CPU_LIMIT]
    if busy:
        found.append(
            f"{len(busy)} of {len(shares(facts))} workers used or waited for more than {CPU_LIMIT:.0%} of a core "
            f"(most: {max(busy):.0%}). Add workers before raising the rate"
        )
    found += facts.disk_notes
    if facts.clock_steps:
        found.append(
            f"the wall clock jumped {facts.clock_steps} times; kernel stamps were mapped around it, and those that "
            "could not be were taken in userland"
        )
    return found


# -- idle slots of a closed loop --------------------------------------------------------------------------------------

# A part of it is what taking an answer up and writing a request costs, and on an endpoint of microseconds that part is
# large: it is told, and lowers the throughput that any client of this speed would see. Another part comes of a
# generator that stood still, in pieces too short to be seen as a stall: what is beyond ``ORDINARY_NS`` a time is that,
# and it has a limit.
#
# Nobody notes which slot sent what. Slots of a worker are alike, so its k-th release and the k-th start after the first
# ones are taken together: the sum is the same however they are paired.

#: As long as a slot may be idle each time: more than any turn-around of a generator that runs (p99 0.1 to 2.5 ms,
#: median below 0.6 ms).
ORDINARY_NS = 1_000_000
#: The largest share of slot time that what is beyond it may take.
IDLE_SHARE = 0.15
#: With more than this share idle in all, a reader should know.
IDLE_WARN_SHARE = 0.1
#: In a shorter run one hiccup is most of it, and the limits of stalls see that.
IDLE_NEEDS_NS = 1_000_000_000
_NOBODY = np.empty(0, np.int64)
#: What a slot rests on purpose after a connection that could not be made (``harness/generator/issuer.py``).
BACKOFF_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Idle:
    """Shares of slot time: idle, and idle ``beyond`` the ordinary; ``median_ns`` of a gap; how long it was watched."""

    share: float
    beyond: float
    median_ns: int
    span_ns: int


def idle_slots(records: Records, facts: GeneratorFacts) -> Idle | None:
    """Of a loop with ``facts.slots``; None: it has none, or no slot came free and was used again."""
    gaps, slot_time, longest = [], 0, 0
    rows = lateness.by_worker(records)
    for worker, slots in enumerate(facts.slots):
        found = _gaps(records.select(rows.get(worker, _NOBODY)), slots, facts.open_loop)
        if found is not None:
            gaps.append(found[0])
            slot_time += slots * found[1]
            longest = max(longest, found[1])
    every = np.concatenate(gaps) if gaps else np.empty(0, np.int64)
    if not len(every) or slot_time <= 0:
        return None
    beyond = np.maximum(every - ORDINARY_NS, 0)
    return Idle(float(every.sum()) / slot_time, float(beyond.sum()) / slot_time, int(median(every)), longest)


def idle_checks(seen: Idle | None, facts: GeneratorFacts, full: bool = False) -> Iterator[Check]:
    """The promise of a closed loop: a slot that comes free is used at once.

    ``full``: a full core has broken its own already.
    """
    if seen is None or facts.no_endpoint:
        return
    detail = (
        f"slots were idle for {seen.share:.1%} of their time between an answer and the next request (median "
        f"{show(seen.median_ns, 'ns')}), and for {seen.beyond:.1%} of it beyond {show(ORDINARY_NS, 'ns')} a time, "
        f"limit {IDLE_SHARE:.0%}"
    )
    fix = "So much throughput is missing. Free the host, or add workers (--workers) on cores of their own"
    yield Check("idle slots", full or seen.beyond <= IDLE_SHARE or seen.span_ns < IDLE_NEEDS_NS, detail, fix)


def idle_warnings(seen: Idle | None, facts: GeneratorFacts) -> list[str]:
    """What the generator's own cost does to the throughput of a fast endpoint."""
    if seen is None or facts.no_endpoint or seen.share <= IDLE_WARN_SHARE:
        return []
    return [
        f"slots were idle for {seen.share:.0%} of their time, a median of {show(seen.median_ns, 'ns')} between an "
        "answer and the next request: that is what this generator takes to turn round, it is in no latency, and "
        "throughput is lower by as much. Use more slots, or an open loop, to find what the endpoint can do"
    ]


def _gaps(rows: Records, slots: int, by_sample: bool) -> tuple[IntArray, int] | None:
    """(idle times in ns, from the first start to the last) of one worker; ``by_sample``: each sample has a slot."""
    used = (rows["done_ns"] != -1) & (rows["ready_ns"] != -1)
    mine = used & rows.planned
    if not mine.any():
        return None
    starts, ends = _flights(rows, mine, by_sample)
    # A warm-up in flight at t0 holds a slot until it is over: the first query of that slot comes after it.
    _, before = _flights(rows, used & (rows["phase"] == Phase.WARMUP) & (rows["done_ns"] > 0), by_sample)
    free = max(0, slots - len(before))
    ends = ascending(np.concatenate([ends, before]))
    starts = ascending(starts)
    n = max(0, len(starts) - free)
    return np.maximum(starts[free:] - ends[:n], 0), int(starts[-1] - starts[0])


def _flights(rows: Records, mask: BoolArray, by_sample: bool) -> tuple[IntArray, IntArray]:
    """When each query (or sample) was taken up, and when its slot came free."""
    ready, done = rows["ready_ns"][mask], rows["done_ns"][mask]
    if by_sample or not len(ready):
        return ready, done
    done = done + np.where(rows["status"][mask] == Status.CONNECT, BACKOFF_NS, 0)
    query = rows["query_id"][mask]
    if bool((np.diff(query) < 0).any()):
        order = np.argsort(query, kind="stable")
        query, ready, done = query[order], ready[order], done[order]
    starts = lateness.firsts(query)
    return np.minimum.reduceat(ready, starts), np.maximum.reduceat(done, starts)
