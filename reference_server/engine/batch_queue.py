"""Which samples are computed together, and when: the decisions of dynamic batching. Pure: no clock, no thread, no I/O.

A batch takes the front of one line (priority, then arrival), and every fourth goes by age alone: a request with ``a``
samples of earlier arrivals before it has its ``n`` samples computed within ``4 * ceil((a + n) / max_batch)`` batches.
With ``synchronise=N``, MLPerf's MultiStream, a request of exactly N samples is a batch of its own.

The window says what a batch waits for: ``none`` for nothing, ``static`` for exactly ``max_batch`` samples, ``dynamic``
for them or ``max_wait``, ``adaptive`` for those that the arrivals lately promise within ``max_wait``, or nothing.
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

WINDOWS = ("none", "static", "dynamic", "adaptive")
FAIR_EVERY = 4
"""Every so many turns go by age alone."""


class QueueFull(Exception):
    """The samples of a request would wait beyond the limit."""


class WrongSize(Exception):
    """The request holds a number of samples that can never be served; the message says which can."""


@dataclass(slots=True, eq=False)
class Place:
    """One request's place in the line: ``n`` samples, of which the first ``n_taken`` are in batches already."""

    number: int
    n: int
    priority: int
    deadline_ns: int
    admitted_ns: int
    ready_ns: int = -1
    n_taken: int = 0

    @property
    def n_left(self) -> int:
        return self.n - self.n_taken


@dataclass(frozen=True, slots=True)
class Share:
    """The samples ``first`` to ``first + n`` of a request, as part of a batch."""

    place: Place
    first: int
    n: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is computed next, in order, and whose deadline passed while they stood in line (they are out of it)."""

    shares: Sequence[Share] = ()
    expired: Sequence[Place] = ()

    @property
    def n(self) -> int:
        return sum(share.n for share in self.shares)


@dataclass(slots=True, eq=False)
class Line:
    """Who waits, by rank (priority, then arrival) and by age; every fourth turn belongs to the oldest."""

    by_rank: list[Place] = field(default_factory=list)
    by_age: list[Place] = field(default_factory=list)
    n_turns: int = 0

    def join(self, place: Place) -> None:
        bisect.insort(self.by_rank, place, key=_rank)
        bisect.insort(self.by_age, place, key=_age)

    def leave(self, place: Place) -> bool:
        """Step out of the line; False when it was not in it."""
        at = bisect.bisect_left(self.by_age, place.number, key=_age)
        if at == len(self.by_age) or self.by_age[at] is not place:
            return False
        del self.by_age[at]
        del self.by_rank[bisect.bisect_left(self.by_rank, _rank(place), key=_rank)]
        return True

    def turn(self) -> list[Place]:
        """The line as the next turn sees it, and count the turn."""
        self.n_turns += 1
        return list(self.by_age if self.n_turns % FAIR_EVERY == 0 else self.by_rank)


class BatchQueue:
    """Requests from their admission until their last sample is in a batch. Not thread-safe."""

    def __init__(
        self, *, max_batch: int, max_wait_ns: int, queue_limit: int, synchronise: int = 1, window: str = "dynamic"
    ) -> None:
        if min(max_batch, synchronise) < 1 or min(max_wait_ns, queue_limit) < 0:
            raise ValueError("max_batch and synchronise must be at least 1, max_wait_ns and queue_limit at least 0")
        self.synchronise = synchronise
        self.max_batch = synchronise if synchronise > 1 else max_batch
        self.max_wait_ns = max_wait_ns
        self.queue_limit = queue_limit
        self.window = window
        self.n_waiting = 0
        """Samples admitted and not yet in a batch, ready or not."""
        self.n_running = 0
        """Samples of the batch that is being computed."""
        self._n_admitted = 0
        self._n_ready = 0
        self._gap_ns = 0.0
        """Between samples lately: a mean whose memory is about eight requests."""
        self._last_ns = -1
        self._line = Line()
        self._admitted: OrderedDict[Place, None] = OrderedDict()
        self._ready: OrderedDict[Place, None] = OrderedDict()

    def admit(self, n: int, now_ns: int, *, priority: int = 0, deadline_ns: int = -1) -> Place:
        """A place for a request of ``n`` samples, which are not ready yet. Raises QueueFull or WrongSize."""
        if self.synchronise > 1 and n != self.synchronise:
            raise WrongSize(f"batches are synchronised: a request must hold exactly {self.synchronise} samples")
        if n < 1 or n > self.queue_limit + self.max_batch:
            raise WrongSize(f"a request may hold 1 to {self.queue_limit + self.max_batch} samples")
        room = 0 if self.n_running else self.max_batch
        if self.n_waiting + n - room > self.queue_limit:
            raise QueueFull
        self._n_admitted += 1
        place = Place(self._n_admitted, n, priority, deadline_ns, now_ns)
        self._admitted[place] = None
        self.n_waiting += n
        return place

    def ready(self, place: Place, now_ns: int) -> None:
        """The samples of an admitted request can be computed; from now on it waits for a batch."""
        if place in self._admitted and place.ready_ns < 0:
            place.ready_ns = now_ns
            self._ready[place] = None
            self._line.join(place)
            self._n_ready += place.n
            if self._last_ns >= 0:
                self._gap_ns += ((now_ns - self._last_ns) / place.n - self._gap_ns) / 8
            self._last_ns = now_ns

    def leave(self, place: Place) -> None:
        """Give up what still waits of a request, at once; harmless when nothing does."""
        if place in self._admitted:
            del self._admitted[place]
            self.n_waiting -= place.n_left
            if self._line.leave(place):
                del self._ready[place]
                self._n_ready -= place.n_left

    def due_ns(self) -> int | None:
        """The instant at which a batch is to start if nothing else happens; None while nobody is ready."""
        if not self._ready:
            return None
        longest_ns = next(iter(self._ready)).ready_ns
        if self.full or self.window == "none":
            return longest_ns
        if self.window == "static":
            return None
        if self.window == "adaptive" and self._gap_ns > self.max_wait_ns:
            return longest_ns
        missing_ns = round(self._gap_ns * (self.max_batch - 1)) if self.window == "adaptive" else self.max_wait_ns
        return longest_ns + min(self.max_wait_ns, missing_ns)

    @property
    def full(self) -> bool:
        """Is a whole batch ready?"""
        return self._n_ready >= self.max_batch

    def take(self, now_ns: int) -> Batch:
        """The batch to compute now; empty when none is due. ``done`` must follow before the next one."""
        due_ns = self.due_ns()
        if due_ns is None or now_ns < due_ns:
            return Batch()
        shares: list[Share] = []
        expired: list[Place] = []
        room = self.max_batch
        for place in self._line.turn():
            if room == 0:
                break
            if place.ready_ns > now_ns:
                continue  # it came after the instant that is decided about
            if 0 <= place.deadline_ns <= now_ns:
                self.leave(place)
                expired.append(place)
                continue
            n = min(place.n_left, room)
            shares.append(Share(place, place.n_taken, n))
            self._take(place, n)
            room -= n
        self.n_running = self.max_batch - room
        return Batch(shares, expired)

    def done(self) -> None:
        """The batch taken last has been computed."""
        self.n_running = 0

    def oldest_ns(self) -> int | None:
        """When the request waiting longest was admitted; None when nobody waits."""
        return next(iter(self._admitted)).admitted_ns if self._admitted else None

    def _take(self, place: Place, n: int) -> None:
        place.n_taken += n
        self.n_waiting -= n
        self._n_ready -= n
        if place.n_left == 0:
            self._line.leave(place)
            del self._ready[place]
            del self._admitted[place]


@dataclass(slots=True)
class DrainRate:
    """How fast samples leave the queue, from the batches computed lately (an exponential mean over about eight)."""

    ns_per_sample: float = -1.0

    def add(self, n: int, ns: int) -> None:
        seen = ns / n
        self.ns_per_sample = seen if self.ns_per_sample < 0 else self.ns_per_sample + (seen - self.ns_per_sample) / 8

    def retry_after_s(self, n_waiting: int) -> int:
        """Whole seconds after which what waits now will have been computed: 1 to 60, and 1 while nothing is known."""
        return min(60, max(1, math.ceil(n_waiting * self.ns_per_sample / 1e9)))


def _rank(place: Place) -> tuple[int, int]:
    return place.priority, place.number


def _age(place: Place) -> int:
    return place.number
