"""Idle slots: of a closed loop, the time from an answer to the next request of its slot. A perfect generator has none.

A part of it is what taking an answer up and writing a request costs, and on an endpoint of microseconds that part is large: it is told,
and lowers the throughput that any client of this speed would see. Another part comes of a generator that stood still, in pieces too short
to be seen as a stall: what is beyond ``ORDINARY_NS`` a time is that, and it has a limit.

Nobody notes which slot sent what. Slots of a worker are alike, so its k-th release and the k-th start after the first ones are taken
together: the sum is the same however they are paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.objectives.objective import show
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, Status
from plimsoll.slo.validity.generator import Check, GeneratorFacts

#: As long as a slot may be idle each time: more than any turn-around of a generator that runs (p99 0.1 to 2.5 ms, median below 0.6 ms).
ORDINARY_NS = 1_000_000
#: The largest share of slot time that what is beyond it may take.
SHARE = 0.15
#: With more than this share idle in all, a reader should know.
WARN_SHARE = 0.1
#: In a shorter run one hiccup is most of it, and the limits of stalls see that.
NEEDS_NS = 1_000_000_000
#: What a slot rests on purpose after a connection that could not be made (``harness/generator/issuer.py``).
BACKOFF_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Idle:
    """Shares of slot time: idle in all, and ``beyond`` the ordinary; ``median_ns`` of one gap, and over how long it was watched."""

    share: float
    beyond: float
    median_ns: int
    span_ns: int


def measure(records: Records, facts: GeneratorFacts) -> Idle | None:
    """Of a loop with ``facts.slots``; None: it has none, or no slot came free and was used again."""
    gaps, slot_time, longest = [], 0, 0
    for worker, slots in enumerate(facts.slots):
        found = _gaps(records.select(records["worker"] == worker), slots, facts.open_loop)
        if found is not None:
            gaps.append(found[0])
            slot_time += slots * found[1]
            longest = max(longest, found[1])
    every = np.concatenate(gaps) if gaps else np.empty(0, np.int64)
    if not len(every) or slot_time <= 0:
        return None
    beyond = np.maximum(every - ORDINARY_NS, 0)
    return Idle(float(every.sum()) / slot_time, float(beyond.sum()) / slot_time, int(np.median(every)), longest)


def checks(seen: Idle | None, facts: GeneratorFacts, full: bool = False) -> Iterator[Check]:
    """The promise of a closed loop: a slot that comes free is used at once. ``full``: a full core has broken its own already."""
    if seen is None or facts.no_endpoint:
        return
    detail = (
        f"slots were idle for {seen.share:.1%} of their time between an answer and the next request (median {show(seen.median_ns, 'ns')}), "
        f"and for {seen.beyond:.1%} of it beyond {show(ORDINARY_NS, 'ns')} a time, limit {SHARE:.0%}"
    )
    fix = "So much throughput is missing. Free the host, or add workers (--workers) on cores of their own"
    yield Check("idle slots", full or seen.beyond <= SHARE or seen.span_ns < NEEDS_NS, detail, fix)


def warnings(seen: Idle | None, facts: GeneratorFacts) -> list[str]:
    """What the generator's own cost does to the throughput of a fast endpoint."""
    if seen is None or facts.no_endpoint or seen.share <= WARN_SHARE:
        return []
    return [
        f"slots were idle for {seen.share:.0%} of their time, a median of {show(seen.median_ns, 'ns')} between an answer and the next request: "
        "that is what this generator takes to turn round, it is in no latency, and throughput is lower by as much. Use more slots, or an "
        "open loop, to find what the endpoint can do"
    ]


def _gaps(rows: Records, slots: int, by_sample: bool) -> tuple[IntArray, int] | None:
    """(idle times in ns, from the first start to the last) of one worker; ``by_sample``: each sample has a slot (offline)."""
    used = (rows["done_ns"] != -1) & (rows["ready_ns"] != -1)
    mine = used & (rows["phase"] != Phase.WARMUP)
    if not mine.any():
        return None
    starts, ends = _flights(rows, mine, by_sample)
    # A warm-up in flight at t0 holds a slot until it is over: the first query of that slot comes after it.
    _, before = _flights(rows, used & ~mine & (rows["done_ns"] > 0), by_sample)
    free = max(0, slots - len(before))
    ends = np.sort(np.concatenate([ends, before]))
    starts = np.sort(starts)
    n = max(0, len(starts) - free)
    return np.maximum(starts[free:] - ends[:n], 0), int(starts[-1] - starts[0])


def _flights(rows: Records, mask: BoolArray, by_sample: bool) -> tuple[IntArray, IntArray]:
    """When each query (or sample) was taken up, and when its slot came free."""
    ready, done = rows["ready_ns"][mask], rows["done_ns"][mask]
    if by_sample or not len(ready):
        return ready, done
    done = done + np.where(rows["status"][mask] == Status.CONNECT, BACKOFF_NS, 0)
    _, at = np.unique(rows["query_id"][mask], return_inverse=True)
    starts = np.full(int(at.max()) + 1, np.iinfo(np.int64).max)
    ends = np.full(len(starts), np.iinfo(np.int64).min)
    np.minimum.at(starts, at, ready)
    np.maximum.at(ends, at, done)
    return starts, ends
