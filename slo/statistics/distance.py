"""How far the bulk of the values stays from a limit, and how much that says where counting can't.

A limit that is the true percentile of a busy queue lies close above its bulk, so a run whose bulk stays far below it
could only be a calm stretch, which is the less probable the longer the run is. The factor that counts as far grows with
log(1 / allowed share) and shrinks with the length; its constants are fitted to simulated queues (``python -m
tests.bench.coverage``) and are no law of nature. Nothing here counts or judges: ``plimsoll.slo.statistics.share`` does.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from plimsoll.slo.statistics.memory import Memory
from plimsoll.slo.statistics.order import Ranked

#: Of the share that may be beyond the limit, what may be beyond the value that distance is measured from: (in a run
#: without memories, more for each one held, at most). Where many may be, as of a median, less of them: their upper half
#: knows the most of how busy a stretch was, and lies a smaller multiple below the limit.
BULK = (0.5, 0.04, 0.75)
MEDIAN = 1.4
#: (of no share at all, less for each share that may be beyond): how many times below a limit is far, in 1,000 requests
#: or so.
FAR = (1.6, 3.4)
#: A run with fewer memories than this says less by distance, in proportion.
HELD = 0.5
#: Beyond the limit is a run of this many values that lies so many times its own movement (from the 10th to the 90th
#: percentile) away.
ENOUGH, MOVED = 30, 3.0
#: A distance counted from what every request takes counts for so much less.
FROM_BASE = 3.0
#: Multiples of the limit at which too many values show that it is broken.
MULTIPLES = (2.0, 4.0, 8.0, 16.0, 32.0)
#: No nearer than this is far.
LEAST = 1.25
#: No run has more requests than this.
MOST = 10**9


@dataclass(frozen=True, slots=True)
class Distance:
    """``ordered`` float64[n], or what stands for it: values as multiples of the limit, larger is worse, ascending; of a
    run with this ``memory``.
    """

    ordered: Ranked
    memory: Memory

    def reach(self, allowed: float) -> float:
        """The distance of the bulk over the one required at 95 %, if the share ``allowed`` may be beyond the limit."""
        far = times_below(self.ordered, self.memory, allowed)
        return far / required(self.memory, allowed) if far >= LEAST else 0.0

    def needed(self, allowed: float, alpha: float) -> int | None:
        """How many requests would show it by distance if bulk and memory stay as they are; None: no number."""
        far, length = times_below(self.ordered, self.memory, allowed), self.memory.requests
        if far < LEAST:
            return None
        while length <= MOST:
            held = replace(self.memory, requests=length)
            if far >= max(LEAST, required(held, allowed) * reach_for(alpha)):
                return length
            length = math.ceil(1.1 * length)
        return None

    def many(self, allowed: float) -> float:
        """The least chance, by Markov's inequality, of so large a share beyond a multiple if ``allowed`` may be beyond
        1.

        Failures are no multiple of anything and don't count here.
        """
        finite, *upto = self.ordered.searchsorted(np.append(math.inf, np.nextafter(MULTIPLES, math.inf))).tolist()
        found = 1.0
        for multiple, least in zip(MULTIPLES, upto, strict=True):
            share = (finite - least) / len(self.ordered)
            if share > 0:
                found = min(found, tail(allowed, multiple) / share)
        return min(found, 0.05) if self.beyond() else found

    def beyond(self) -> bool:
        """Whether the whole run lies beyond the limit by several times what it moved: it could not have come from
        there.
        """
        return whole_beyond(self.ordered) >= 1


def whole_beyond(ordered: Ranked) -> float:
    """The largest limit that a whole run, ``ordered``, lies so far beyond; -inf where there is none."""
    low, middle, high = ordered[np.array([int(q * (len(ordered) - 1)) for q in (0.1, 0.5, 0.9)])].tolist()
    if len(ordered) < ENOUGH or math.isinf(middle) or math.isinf(high):
        return -math.inf
    return float(min(math.nextafter(low, -math.inf), middle - MOVED * (high - low)))


def least_of(ordered: Ranked) -> float:
    """What every request takes, queue or no queue. Nothing is below 0."""
    return max(float(ordered[int(0.01 * (len(ordered) - 1))]), 0.0)


def times_below(ordered: Ranked, memory: Memory, allowed: float) -> float:
    """How many times below the limit of 1 the bulk is; or, a third of it, from what every request takes, where that
    says more.
    """
    base, bulk = least_of(ordered), bulk_of(ordered, memory, allowed)
    if bulk <= 0:
        return math.inf
    from_base = (1 - base) / (bulk - base) / FROM_BASE if base < 1 and bulk > base else 0.0
    return max(1 / bulk, from_base)


def bulk_of(ordered: Ranked, memory: Memory, allowed: float) -> float:
    """The value that few enough of the allowed share exceed to measure distance from: ``BULK`` of it."""
    least, each, most = BULK
    share = (
        min(most - MEDIAN * min(allowed, 0.5) ** 2, least + each * memory.held * min(1.0, memory.requests / 1000))
        * allowed
    )
    return float(ordered[len(ordered) - 1 - int(share * len(ordered))])


def required(memory: Memory, allowed: float) -> float:
    """How many times below the limit the bulk has to be for a PASS at 95 %."""
    times = FAR[0] - math.log(allowed) - FAR[1] * min(allowed, 0.5) ** 2
    length = min(0.885 * (1000 / memory.requests) ** 0.6, 5.5 / math.sqrt(memory.held))
    return float(max(LEAST, times * max(0.6, length)) * max(1.0, HELD / memory.held))


def tail(allowed: float, multiple: float) -> float:
    """The share that may be beyond a multiple of a limit if ``allowed`` may be beyond it: a tail without a mean."""
    return allowed / multiple


def chance(reach: float) -> float:
    """How improbable a calm stretch so far away is: it falls with the square of the distance, 5 % at a reach of 1."""
    return float(0.05 ** min(reach * reach, 100.0)) if reach > 0 else 1.0


def reach_for(alpha: float) -> float:
    """The reach at which the chance is ``alpha``."""
    return math.sqrt(math.log(alpha) / math.log(0.05))
