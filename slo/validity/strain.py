"""Did the generator's process have the time that its promise takes: stalls, collector pauses, its core, its stamps.

Where every request has a due time of its own, lateness shows as lag (``slo/validity/lateness.py``) and what is here only explains
it. Where requests wait for answers (closed loops, the offline scenario) due is whenever the loop came round to it and lag
is 0 by definition, so a stalled or saturated generator is found here or nowhere. The same holds for userland arrival
stamps, which a stalled loop takes late. Nothing here looks at the endpoint.
"""

from __future__ import annotations

from plimsoll.slo.objectives.objective import show
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
    """How busy each worker was: its native engine's thread where there is one, else the process; or the wait for a core."""
    used = facts.engine_cpu or facts.worker_cpu
    wanted = facts.core_wanted if len(facts.core_wanted) == len(used) else used
    return tuple(max(pair) for pair in zip(used, wanted, strict=True))


def _core(facts: GeneratorFacts) -> Check:
    most = max(shares(facts), default=0.0)
    judged = not paced(facts) and not facts.no_endpoint and facts.watched_ns >= CPU_NEEDS_NS
    detail = (
        f"the busiest worker used or waited for {most:.0%} of a core, limit {CPU_LIMIT:.0%} where requests wait for answers: "
        "what was measured is the generator, not the endpoint"
    )
    fix = "Add workers (--workers) on cores of their own; `plimsoll calibrate` tells what this machine can do"
    return Check("generator CPU", not judged or most <= CPU_LIMIT, detail, fix)


def _stamps(facts: GeneratorFacts) -> Check:
    reads = facts.kernel_reads + facts.user_reads
    share = facts.stamps_refused / reads if reads else 0.0
    detail = (
        f"{facts.stamps_refused} of {reads} reads lost their kernel stamp, because it fitted neither side of a step of the wall "
        f"clock, limit {REFUSED_SHARE:.0%}: the others are userland stamps, and the two can't be compared"
    )
    # With no kernel stamp at all every answer is stamped alike, and the report says "user".
    ok = share <= REFUSED_SHARE or not facts.kernel_reads
    return Check("stamps", ok, detail, "Keep the clock from being set while you measure (let NTP slew it)")


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
            f"{show(facts.gc_pause_max_ns, 'ns')} and {show(facts.gc_pause_total_ns, 'ns')} in all. Workers switch it off: "
            "look for a plug-in that calls it"
        )
    busy = [share for share in shares(facts) if share > CPU_LIMIT]
    if busy:
        found.append(
            f"{len(busy)} of {len(shares(facts))} workers used or waited for more than {CPU_LIMIT:.0%} of a core (most: "
            f"{max(busy):.0%}). Add workers before raising the rate"
        )
    found += facts.disk_notes
    if facts.clock_steps:
        found.append(
            f"the wall clock jumped {facts.clock_steps} times; kernel stamps were mapped around it, and those that could "
            "not be were taken in userland"
        )
    return found
