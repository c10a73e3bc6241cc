"""The hot loop, in virtual time: exact, and nothing sleeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import Issuer, Load, never
from plimsoll.harness.protocols.null import NullClient
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.slo.records.records import Status
from tests.virtual_time import VirtualClient, VirtualClock

MS = 1_000_000
S = 1_000_000_000


def open_plan(due_ns: list[int], per_query: int = 1, limit: int | None = None) -> Plan:
    n = len(due_ns)
    return Plan(
        due_ns=np.array(due_ns, dtype=np.int64),
        query_id=np.arange(n),
        offsets=np.arange(n + 1) * per_query,
        sample_ix=np.tile(np.arange(per_query), n),
        payload_ix=np.zeros(n * per_query, dtype=np.int64),
        after=np.full(n, -1),
        stop=Stop(),
        seed=0,
        open_loop=True,
        max_in_flight=limit,
    )


def closed_plan(slots: int, stop: Stop, per_query: int = 1, rows: int = 4) -> Plan:
    return Plan(
        due_ns=np.zeros(rows, dtype=np.int64),
        query_id=np.arange(rows),
        offsets=np.arange(rows + 1) * per_query,
        sample_ix=np.tile(np.arange(per_query), rows),
        payload_ix=np.zeros(rows * per_query, dtype=np.int64),
        after=np.full(rows, -1),
        stop=stop,
        seed=0,
        open_loop=False,
        cyclic=True,
        max_in_flight=slots,
    )


class World:
    """An issuer with a virtual clock and client, and what came out of it."""

    def __init__(
        self,
        plan: Plan,
        service: Callable[[Exchange], int | None] = lambda exchange: 10 * MS,
        warmup: Plan | None = None,
        late_ns: int = 0,
        limit: int = 1000,
        cancel_ns: list[int] | None = None,
    ) -> None:
        self.clock = VirtualClock(late_ns=late_ns)
        self.client = VirtualClient(self.clock, service)
        self.finished: list[Exchange] = []
        cancel = never if cancel_ns is None else lambda piece: np.array(cancel_ns)[piece.query_id]
        load = Load(cut(plan), None if warmup is None else cut(warmup), ["r"], "run", limit, cancel)
        self.issuer = Issuer(load, self.client, self.clock, self.finished.append)
        self.t0 = self.clock.now_ns() + 2 * S

    def run(self, until_ns: int | None = None) -> World:
        self.issuer.start(self.t0)
        self.clock.run(None if until_ns is None else self.t0 + until_ns)
        return self

    def sent(self, phase: int = 0) -> list[int]:
        return [e.sent_ns - self.t0 for e in self.client.sent if e.phase == phase]


def test_open_loop_sends_at_the_due_time_and_waits_for_nothing() -> None:
    due = [0, 3 * MS, 3 * MS, 50 * MS]
    world = World(open_plan(due), service=lambda e: S).run()
    assert world.sent() == due
    assert world.client.peak == 4
    assert all(e.done_ns - e.due_ns == S for e in world.finished)


def test_a_stalled_server_does_not_slow_the_open_loop_down() -> None:
    due = list(range(0, 100 * MS, MS))
    world = World(open_plan(due), service=lambda e: None).run()
    assert world.sent() == due
    assert world.issuer.in_flight == 100


def test_a_late_loop_sends_at_once_and_keeps_the_original_due_time() -> None:
    due = [0, 10 * MS, 20 * MS]
    world = World(open_plan(due), late_ns=15 * MS).run()
    assert [e.due_ns - world.t0 for e in world.client.sent] == due
    assert world.sent() == [15 * MS, 15 * MS, 35 * MS]  # the second was due when the loop woke for the first


def test_latency_is_counted_from_the_due_time_when_the_generator_itself_stalls() -> None:
    world = World(open_plan([0, MS, 2 * MS]))
    original = world.client.send

    def slow_first(exchange: Exchange, request_id: bytes) -> None:
        original(exchange, request_id)
        if exchange.query_id == 0:
            world.clock.spend(100 * MS)

    world.client.send = slow_first  # type: ignore[method-assign]
    world.run()
    latency = {e.query_id: e.done_ns - e.due_ns for e in world.finished}
    assert latency == {0: 100 * MS, 1: 109 * MS, 2: 108 * MS}
    assert world.client.sent[1].ready_ns - world.client.sent[1].due_ns == 99 * MS


def test_every_sample_of_a_query_is_sent_with_its_own_request_id() -> None:
    world = World(open_plan([0, MS], per_query=3)).run()
    assert world.client.ids == [f"run-{q}-{s}".encode() for q in range(2) for s in range(3)]


def test_offline_puts_at_most_its_limit_on_the_wire_and_counts_the_wait() -> None:
    world = World(open_plan([0], per_query=10, limit=4)).run()
    assert world.client.peak == 4
    assert len(world.finished) == 10
    assert sorted({(e.done_ns - e.due_ns) // MS for e in world.finished}) == [10, 20, 30]


def test_the_ceiling_aborts_the_run_and_holds_nothing_back() -> None:
    world = World(open_plan(list(range(0, 100 * MS, MS))), service=lambda e: None, limit=20).run()
    assert world.issuer.aborted is not None
    assert "ceiling 20" in world.issuer.aborted
    assert len(world.client.sent) == 21


def test_closed_loop_is_due_when_its_slot_comes_free() -> None:
    stop = Stop(min_queries=6, min_duration_ns=0)
    world = World(closed_plan(2, stop)).run()
    assert world.sent() == [0, 0, 10 * MS, 10 * MS, 20 * MS, 20 * MS]
    assert all(e.due_ns == e.sent_ns for e in world.client.sent)
    assert world.client.peak == 2


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (Stop(min_queries=5, min_duration_ns=0), 5),
        (Stop(min_queries=5, min_duration_ns=95 * MS), 11),  # the last one is issued at 100 ms
        (Stop(min_queries=50, min_duration_ns=95 * MS), 50),
        (Stop(min_queries=50, min_duration_ns=0, max_queries=7), 7),
    ],
)
def test_closed_loop_stops_by_loadgens_rule(stop: Stop, expected: int) -> None:
    world = World(closed_plan(1, stop)).run()
    assert len(world.client.sent) == expected
    assert world.issuer.issued_all


def test_multi_stream_issues_the_next_query_when_the_slowest_sample_is_done() -> None:
    stop = Stop(min_queries=3, min_duration_ns=0)
    world = World(closed_plan(1, stop, per_query=8), service=lambda e: (1 + e.sample_ix) * MS).run()
    assert sorted(set(world.sent())) == [0, 8 * MS, 16 * MS]
    assert len(world.finished) == 24


def test_max_duration_stops_issuing_and_says_so() -> None:
    stop = Stop(min_queries=1000, min_duration_ns=0, max_duration_ns=55 * MS)
    world = World(closed_plan(1, stop)).run()
    assert len(world.client.sent) == 6
    assert world.issuer.max_duration_hit


def test_open_warmup_runs_before_t0_and_is_marked() -> None:
    warmup = open_plan([-S, -500 * MS])
    world = World(open_plan([0, MS]), warmup=warmup).run()
    assert world.sent(phase=1) == [-S, -500 * MS]
    assert world.sent(phase=0) == [0, MS]
    assert world.client.ids[0] == b"runw-0-0"


def test_closed_warmup_hands_its_slots_over_at_t0_without_exceeding_them() -> None:
    stop = Stop(min_queries=4, min_duration_ns=0)
    world = World(closed_plan(2, stop), service=lambda e: 300 * MS, warmup=closed_plan(2, stop)).run()
    assert max(world.sent(phase=1)) < 0 <= min(world.sent(phase=0))
    assert world.client.peak == 2
    assert len(world.sent(phase=0)) == 4


def test_giving_up_ends_everything_in_flight_with_that_status() -> None:
    world = World(open_plan([0, MS, 2 * MS]), service=lambda e: None).run()
    world.issuer.give_up(Status.UNFINISHED, "drain")
    assert [e.status for e in world.finished] == [Status.UNFINISHED] * 3
    assert world.issuer.in_flight == 0


def test_a_client_that_answers_inside_send_does_not_recurse() -> None:
    clock = VirtualClock()
    finished: list[Exchange] = []
    stop = Stop(min_queries=5000, min_duration_ns=0)
    issuer = Issuer(Load(cut(closed_plan(1, stop)), None, ["r"], "run"), NullClient(clock), clock, finished.append)
    issuer.start(clock.now_ns())
    clock.run()
    assert len(finished) == 5000


@pytest.mark.parametrize(
    "plan",
    [
        closed_plan(1, Stop(min_queries=5000, min_duration_ns=0)),
        open_plan([0] * 5000),
        open_plan([0], per_query=5000),
        replace(open_plan([0], per_query=5000), max_in_flight=2),
    ],
)
def test_while_a_client_answers_inside_send_others_have_their_turn(plan: Plan) -> None:
    clock = VirtualClock()
    finished: list[Exchange] = []
    issuer = Issuer(Load(cut(plan), None, ["r"], "run"), NullClient(clock), clock, finished.append)
    sent: list[int] = []

    def look() -> None:
        sent.append(len(finished))
        if not issuer.issued_all:
            clock.wake_at(0, look)

    issuer.start(clock.now_ns())
    clock.wake_at(0, look)
    clock.run()
    assert len(finished) == 5000
    assert max(b - a for a, b in pairwise(sent)) <= 1024


def test_sharded_issuers_together_send_the_whole_schedule() -> None:
    due = sorted(np.random.default_rng(3).integers(0, S, 101).tolist())
    plan = open_plan(due)
    whole: list[int] = []
    for shard in range(4):
        world = World(plan.shard(shard, 4)).run()
        whole += world.sent()
    assert sorted(whole) == due


def test_a_closed_loop_on_a_dead_endpoint_does_not_spin() -> None:
    stop = Stop(min_queries=5, min_duration_ns=S)
    world = World(closed_plan(2, stop), service=lambda e: 1000)
    answer = world.client._answer
    world.client._answer = lambda e, status, error: answer(e, int(Status.CONNECT), "refused")  # type: ignore[method-assign]
    world.run()
    assert len(world.client.sent) == pytest.approx(200, abs=4)  # two slots, one try every 10 ms each, for a second
    assert world.issuer.issued_all


def test_a_chosen_query_is_cancelled_that_long_after_it_was_taken_up_and_a_quick_one_is_not() -> None:
    delays = [30 * MS, -1, 5 * MS, 10 * MS]
    world = World(
        open_plan([0, MS, 2 * MS, 3 * MS], per_query=2), lambda e: 20 * MS if e.query_id else 5 * MS, cancel_ns=delays
    )
    world.run()
    over = {(e.query_id, e.sample_ix): (e.status, e.done_ns - e.ready_ns) for e in world.finished}
    assert over == {
        **{(0, i): (int(Status.OK), 5 * MS) for i in range(2)},
        **{(1, i): (int(Status.OK), 20 * MS) for i in range(2)},
        **{(2, i): (int(Status.CANCELLED), 5 * MS) for i in range(2)},
        **{(3, i): (int(Status.CANCELLED), 10 * MS) for i in range(2)},
    }
    assert world.issuer.in_flight == 0


def test_a_cancelled_query_of_a_closed_loop_frees_its_slot_and_the_choice_repeats_with_the_rows() -> None:
    plan = closed_plan(1, Stop(min_queries=6, min_duration_ns=0, max_queries=6), rows=2)
    world = World(plan, lambda e: 50 * MS, cancel_ns=[7 * MS, -1]).run()
    took = [e.done_ns - e.due_ns for e in world.finished]
    assert took == [7 * MS, 50 * MS] * 3


def test_the_warm_up_is_not_cancelled() -> None:
    before = open_plan([-S, -S + MS])
    world = World(open_plan([0]), lambda e: 50 * MS, warmup=before, cancel_ns=[MS]).run()
    assert sorted(e.status for e in world.finished) == [0, 0, int(Status.CANCELLED)]
