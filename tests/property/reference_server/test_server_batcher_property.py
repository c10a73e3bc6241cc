"""The decisions of dynamic batching over random histories, against plain models of what was promised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.batch_queue import (
    FAIR_EVERY,
    Batch,
    BatchQueue,
    DrainRate,
    Place,
    QueueFull,
    WrongSize,
)

WAIT_NS = 50
ADMIT, READY, LEAVE, TAKE, LATER = "admit", "ready", "leave", "take", "later"


@dataclass
class History:
    """A queue, what happened to it, and what must be true of it at every moment."""

    queue: BatchQueue
    now_ns: int = 0
    waiting: dict[Place, int] = field(default_factory=dict)
    computed: dict[Place, list[int]] = field(default_factory=dict)
    bound: dict[Place, int] = field(default_factory=dict)
    n_batches: int = 0

    def admit(self, n: int, priority: int, deadline_ns: int) -> None:
        room = 0 if self.queue.n_running else self.queue.max_batch
        fits = sum(self.waiting.values()) + n - room <= self.queue.queue_limit
        try:
            place = self.queue.admit(n, self.now_ns, priority=priority, deadline_ns=deadline_ns)
        except QueueFull:
            assert not fits
            return
        assert fits
        self.waiting[place], self.computed[place] = n, []

    def ready(self, place: Place) -> None:
        if place.ready_ns < 0:
            ahead = sum(left for other, left in self.waiting.items() if other.number <= place.number)
            self.bound[place] = self.n_batches + FAIR_EVERY * math.ceil(ahead / self.queue.max_batch)
        self.queue.ready(place, self.now_ns)

    def leave(self, place: Place) -> None:
        self.queue.leave(place)
        self.waiting.pop(place, None)

    def take(self) -> Batch:
        ready = [place for place in self.waiting if place.ready_ns >= 0]
        due_ns = self.queue.due_ns()
        batch = self.queue.take(self.now_ns)
        full = sum(self.waiting[place] for place in ready) >= self.queue.max_batch
        old = any(self.now_ns - place.ready_ns >= self.queue.max_wait_ns for place in ready)
        assert bool(batch.shares or batch.expired) == (bool(ready) and (full or old))
        assert (due_ns is not None and due_ns <= self.now_ns) == bool(batch.shares or batch.expired)
        for place in batch.expired:
            assert 0 <= place.deadline_ns <= self.now_ns
            del self.waiting[place]
        self.note(batch)
        self.queue.done()
        return batch

    def note(self, batch: Batch) -> None:
        self.n_batches += bool(batch.shares)
        left = sum(n for place, n in self.waiting.items() if place.ready_ns >= 0)
        assert batch.n == min(left, self.queue.max_batch) or not batch.shares
        for share in batch.shares:
            assert share.n > 0
            assert not 0 <= share.place.deadline_ns <= self.now_ns
            self.computed[share.place] += range(share.first, share.first + share.n)
            self.waiting[share.place] -= share.n
            if self.waiting[share.place] == 0:
                del self.waiting[share.place]
                assert self.n_batches <= self.bound[share.place]

    def check(self) -> None:
        assert self.queue.n_waiting == sum(self.waiting.values())
        for place, seen in self.computed.items():
            assert seen == list(range(len(seen)))  # each sample once, in order
            assert place not in self.waiting or place.n_left == self.waiting[place] == place.n - len(seen)


steps = st.lists(
    st.tuples(
        st.sampled_from([ADMIT, ADMIT, READY, READY, LEAVE, TAKE, TAKE, LATER]),
        st.integers(1, 9),
        st.integers(0, 3),
        st.sampled_from([-1, -1, -1, 0, 30]),
    ),
    max_size=120,
)


@given(steps, st.integers(1, 6), st.integers(0, 12))
def test_every_sample_is_computed_once_in_order_within_the_bound_and_the_counts_are_true(
    history: list[tuple[str, int, int, int]], max_batch: int, limit: int
) -> None:
    told = History(BatchQueue(max_batch=max_batch, max_wait_ns=WAIT_NS, queue_limit=limit))
    for what, number, priority, deadline in history:
        places = list(told.waiting)
        if what == ADMIT and number <= limit + max_batch:
            told.admit(number, priority, told.now_ns + deadline if deadline >= 0 else -1)
        elif what == LATER:
            told.now_ns += 7 * number
        elif what == TAKE:
            told.take()
        elif what == READY and places:
            told.ready(places[number % len(places)])
        elif what == LEAVE and places:
            told.leave(places[number % len(places)])
        told.check()
    for place in list(told.waiting):
        told.ready(place)
    while told.waiting:  # whoever stays is served, or told that it is too late
        told.now_ns += WAIT_NS
        batch = told.take()
        assert batch.shares or batch.expired
        told.check()
    assert told.queue.n_waiting == 0
    assert told.queue.due_ns() is None
    assert told.queue.oldest_ns() is None


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=40), st.integers(1, 6))
def test_between_the_fair_turns_lower_priority_numbers_go_first_and_equals_in_order_of_arrival(
    asked: list[tuple[int, int]], max_batch: int
) -> None:
    queue = BatchQueue(max_batch=max_batch, max_wait_ns=0, queue_limit=1000)
    for n, priority in asked:
        queue.ready(queue.admit(n, 0, priority=priority), 0)
    turn = 0
    left = [(place, place.n) for place in queue._line.by_age]
    while left:
        turn += 1
        key = (
            (lambda pair: pair[0].number) if turn % FAIR_EVERY == 0 else lambda pair: (pair[0].priority, pair[0].number)
        )
        expected, room = [], max_batch
        for place, n in sorted(left, key=key):
            if room > 0:
                expected.append((place, min(n, room)))
                room -= min(n, room)
        batch = queue.take(0)
        assert [(share.place, share.n) for share in batch.shares] == expected
        served = dict(expected)
        left = [(place, n - served.get(place, 0)) for place, n in left if n > served.get(place, 0)]


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 50))
def test_a_request_of_low_priority_is_served_under_a_flood_within_the_stated_number_of_batches(
    max_batch: int, n: int, n_ahead: int
) -> None:
    queue = BatchQueue(max_batch=max_batch, max_wait_ns=0, queue_limit=10_000)
    if n_ahead:
        queue.ready(queue.admit(n_ahead, 0), 0)
    humble = queue.admit(n, 0, priority=9)
    queue.ready(humble, 0)
    n_batches = 0
    while humble.n_left > 0:
        queue.ready(queue.admit(max_batch, 0, priority=0), 0)  # the flood refills every batch
        queue.take(0)
        n_batches += 1
        assert n_batches <= FAIR_EVERY * math.ceil((n_ahead + n) / max_batch)


@given(st.integers(2, 9), st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_a_synchronised_batch_is_exactly_one_request_and_waits_for_nobody(n: int, sizes: list[int]) -> None:
    queue = BatchQueue(max_batch=4, max_wait_ns=WAIT_NS, queue_limit=1000, synchronise=n)
    places = []
    for size in sizes:
        if size != n:
            with pytest.raises(WrongSize, match=f"exactly {n} samples"):
                queue.admit(size, 0)
        else:
            places.append(queue.admit(size, 0))
            queue.ready(places[-1], 0)
    for place in places:
        (share,) = queue.take(0).shares
        assert (share.place, share.first, share.n) == (place, 0, n)
    assert queue.take(10**9).shares == ()


def test_what_the_next_batch_takes_at_once_does_not_count_as_waiting() -> None:
    queue = BatchQueue(max_batch=4, max_wait_ns=0, queue_limit=0)
    first = queue.admit(4, 0)
    with pytest.raises(QueueFull):
        queue.admit(1, 0)
    queue.ready(first, 0)
    assert queue.take(0).n == 4
    with pytest.raises(QueueFull):
        queue.admit(1, 0)  # a batch is being computed: this one would wait
    queue.done()
    queue.admit(4, 0)
    with pytest.raises(WrongSize, match="1 to 4 samples"):
        queue.admit(5, 0)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 10**9)), min_size=1, max_size=50), st.integers(0, 10_000))
def test_retry_after_is_the_measured_time_to_drain_within_one_and_sixty_seconds(
    batches: list[tuple[int, int]], n_waiting: int
) -> None:
    rate = DrainRate()
    assert rate.retry_after_s(n_waiting) == 1
    for n, ns in batches:
        rate.add(n, ns)
    costs = [ns / n for n, ns in batches]
    slowest, fastest = (
        min(60, max(1, math.ceil(n_waiting * cost * k / 1e9))) for cost, k in ((max(costs), 1.001), (min(costs), 0.999))
    )
    assert fastest <= rate.retry_after_s(n_waiting) <= slowest


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"max_batch": 0}, {"max_wait_ns": -1}, {"queue_limit": -1}, {"synchronise": 0}):
        with pytest.raises(ValueError, match="must be at least"):
            BatchQueue(**{"max_batch": 1, "max_wait_ns": 0, "queue_limit": 0, **wrong})
