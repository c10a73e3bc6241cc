"""Queues in virtual time under a generator that stalls, beside the same queues under a perfect one.

A service time belongs to its request, so that nothing but the arrivals differs. First-come-first-served ones are
monotone: earlier arrivals make no departure later. The others are not, to see how far a bracket that assumes it errs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray, from_columns
from plimsoll.slo.validity import bracket, lateness

MS = 1_000_000
#: (arrivals, service) in ns, in order of due time, to departures.
Queue = Callable[[IntArray, IntArray], IntArray]


def first_come(servers: int) -> Queue:
    """``servers`` and one line."""

    def serve(at: IntArray, service: IntArray) -> IntArray:
        free, done = [0] * servers, np.empty_like(at)
        for i in np.argsort(at, kind="stable").tolist():
            done[i] = max(int(at[i]), free[0]) + int(service[i])
            heapq.heapreplace(free, int(done[i]))
        return done

    return serve


def endless(at: IntArray, service: IntArray) -> IntArray:
    """A server for everybody."""
    return at + service


def picked(key: Callable[[int, int], float]) -> Queue:
    """One server that takes up, of those who wait, the one of the smallest ``key(arrival, service)``; begun is
    finished.
    """

    def serve(at: IntArray, service: IntArray) -> IntArray:
        order, done, waiting = np.argsort(at, kind="stable").tolist(), np.empty_like(at), list[tuple[float, int, int]]()
        now, next_ = 0, 0
        while next_ < len(order) or waiting:
            if not waiting:
                now = max(now, int(at[order[next_]]))
            while next_ < len(order) and at[order[next_]] <= now:
                i = order[next_]
                heapq.heappush(waiting, (key(int(at[i]), int(service[i])), next_, i))
                next_ += 1
            i = heapq.heappop(waiting)[2]
            now += int(service[i])
            done[i] = now
        return done

    return serve


last_come = picked(lambda at, service: -at)
shortest = picked(lambda at, service: service)


def shared(at: IntArray, service: IntArray) -> IntArray:
    """Processor sharing: everybody in the house goes equally fast.

    In the time that everybody has had, each leaves at a fixed mark.
    """
    order, done = np.argsort(at, kind="stable").tolist(), np.empty_like(at)
    marks, had, now, next_ = list[tuple[float, int]](), 0.0, 0.0, 0
    while next_ < len(order) or marks:
        arrives = float(at[order[next_]]) if next_ < len(order) else np.inf
        leaves = now + (marks[0][0] - had) * len(marks) if marks else np.inf
        if arrives < leaves:
            had += (arrives - now) / len(marks) if marks else 0.0
            now = arrives
            heapq.heappush(marks, (had + float(service[order[next_]]), order[next_]))
            next_ += 1
        else:
            had, now = marks[0][0], leaves
            done[heapq.heappop(marks)[1]] = round(now)
    return done


def batches(base_ns: int, each_ns: int, most: int, window_ns: int = 0) -> Queue:
    """One server of batches, T(B) = base + each x B: whoever waits goes together, at most ``most``; with a ``window``
    the first of a batch is waited on for so long, unless the batch is full before. Services are the batch's.
    """

    def serve(at: IntArray, service: IntArray) -> IntArray:
        order, done = np.argsort(at, kind="stable"), np.empty_like(at)
        ordered, free, next_ = at[order], 0, 0
        while next_ < len(ordered):
            full = int(ordered[next_ + most - 1]) if next_ + most <= len(ordered) else 1 << 62
            begins = max(free, min(int(ordered[next_]) + window_ns, full))
            end = min(int(np.searchsorted(ordered, begins, side="right")), next_ + most)
            free = begins + base_ns + each_ns * (end - next_)
            done[order[next_:end]] = free
            next_ = end
        return done

    return serve


@dataclass(frozen=True, slots=True)
class Case:
    """What a late generator measured of each request (``measured``), what it would have been (``true``), and G
    (``reach``); ``lowest``: what a FAIL is judged by, L - G and nothing of those that left in a bunch; ns.
    """

    measured: IntArray
    true: IntArray
    reach: IntArray
    lowest: IntArray

    @property
    def above(self) -> FloatArray:
        """By how much the truth lies above L, in ns; 0 inside."""
        return np.maximum(self.true - self.measured, 0).astype(np.float64)

    @property
    def below(self) -> FloatArray:
        """By how much the truth lies below L - G, in ns; 0 inside."""
        return np.maximum(self.measured - self.reach - self.true, 0).astype(np.float64)


def stalled(due: IntArray, stalls: int, mean_ns: float, seed: int, overtaking: bool = False) -> IntArray:
    """When requests left: at once, but for stalls of exponential length at random places, after which all that was due
    leaves at once.

    ``overtaking``: only every other request is held up, as if one of two workers stalled.
    """
    random = np.random.default_rng(seed)
    left = due.copy()
    for _ in range(stalls):
        begin = int(random.integers(0, int(due[-1]) + 1))
        end = begin + int(random.exponential(mean_ns))
        held = (due >= begin) & (due < end) & (~overtaking | (np.arange(len(due)) % 2 == 0))
        left = np.where(held, np.maximum(left, end), left)
    return left


def case(queue: Queue, due: IntArray, left: IntArray, service: IntArray) -> Case:
    """Both runs of a queue, and the G of the late one."""
    done = queue(left, service)
    records = from_columns(len(due), due_ns=due, ready_ns=left, sent_ns=left, first_byte_ns=done, done_ns=done)
    own = lateness.own(records, False)
    reached = bracket.reach(records, own)
    lowest = np.where(bracket.bunched(records, own), 0, np.maximum(done - due - reached, 0))
    return Case(done - due, queue(due, service) - due, reached, lowest)


def drawn(n: int, per_s: float, service_ns: int, exponential: bool, seed: int) -> tuple[IntArray, IntArray]:
    """Poisson due times and the services of the requests."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1e9 / per_s, n)).astype(np.int64)
    took = random.exponential(service_ns, n) if exponential else np.full(n, service_ns)
    return due, np.maximum(took.astype(np.int64), 1)
