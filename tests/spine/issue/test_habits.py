"""Clients with habits, in virtual time: what is tried again and when, who wins, what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.habits import ENOUGH, LOST, RESERVE, Habits, Latest
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.habits import ClientSection
from plimsoll.slo.records.records import Phase, Status
from plimsoll.slo.records.trace_ids import TraceIds, again
from tests.spine.issue.test_issuer import MS, S, open_plan
from tests.virtual_time import VirtualClient, VirtualClock

OK, FAILED = 200, 503
#: (after how long the body begins, after how long it ends; None: never, code or the status without one)
Answer = tuple[int | None, int | None, int | Status]


class Server(VirtualClient):
    """Gives the k-th attempt of a query (from 0) the answer that ``script(query, k)`` says."""

    def __init__(self, clock: VirtualClock, script: Callable[[int, int], Answer]) -> None:
        super().__init__(clock, lambda exchange: None)
        self._script, self._tries = script, dict[int, int]()
        self.dropped: list[Exchange] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.traces: list[bytes] = []

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        k = self._tries[exchange.query_id] = self._tries.get(exchange.query_id, -1) + 1
        first, done, how = self._script(exchange.query_id, k)
        self.traces.append(exchange.traceparent)
        super().send(exchange, request_id)

        def begin() -> None:
            if exchange in self._flying:
                exchange.code, exchange.headers_ns = int(how), self._clock.now_ns()
                exchange.headers = [*self.headers]
                exchange.mark_ns.append(self._clock.now_ns())
                exchange.mark_end.append(1)
                if exchange.watch is not None:
                    exchange.watch(exchange)

        def end() -> None:
            status = int(how) if isinstance(how, Status) else int(Status.OK)
            self._answer(exchange, status, how.name if isinstance(how, Status) else None)

        if first is not None:
            self._clock.wake_at(self._clock.now_ns() + first, begin)
        if done is not None:
            self._clock.wake_at(self._clock.now_ns() + done, end)

    def settle(self, exchange: Exchange) -> None:
        if exchange.code == FAILED and exchange.status == Status.OK:
            exchange.status = int(Status.REFUSED)
        exchange.n_out = len(exchange.mark_ns)

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        self.dropped.append(exchange)
        super().cancel(exchange, status, error)


class World:
    """An issuer, a client with habits, a scripted server, and the rows that come out, settled."""

    def __init__(self, script: Callable[[int, int], Answer], queries: int = 1, shards: int = 1, **client: Any) -> None:
        self.clock = VirtualClock()
        self.server = Server(self.clock, script)
        section = ClientSection.model_validate(client)
        self.habits = Habits(self.server, section, self.clock, 7, shards)
        self.rows: list[Exchange] = []
        load = Load(cut(open_plan([at * 100 * MS for at in range(queries)])), None, ["r"], "run")
        self.issuer = Issuer(load, self.habits, self.clock, self.rows.append)
        self.habits.on_attempt, self.habits.excess = self.rows.append, self.issuer.abort
        self.t0 = self.clock.now_ns() + S

    def run(self) -> World:
        self.issuer.start(self.t0)
        self.clock.run(self.t0 + 3600 * S)
        settle = self.habits.after(self.habits.settle, self.server.settle)
        for row in self.rows:
            settle(row)
        assert not self.issuer.in_flight
        return self

    @property
    def requests(self) -> list[Exchange]:
        return [row for row in self.rows if row.phase == Phase.MEASURE]

    @property
    def attempts(self) -> list[Exchange]:
        found = [row for row in self.rows if row.phase == Phase.ATTEMPT]
        return sorted(found, key=lambda row: (row.query_id, (row.labels or {})["attempt"]))


def test_each_attempt_is_a_span_of_its_own_in_the_requests_trace() -> None:
    world = World(failing(2), retry=retry())
    load = world.issuer._load
    world.issuer._load = replace(load, traces=TraceIds.of("run", 1.0))
    world.run()
    first = TraceIds.of("run", 1.0).header(0, 0, False)
    assert world.server.traces == [first, again(first, 1), again(first, 2)]


def failing(times: int) -> Callable[[int, int], Answer]:
    return lambda query, k: (5 * MS, 10 * MS, FAILED if k < times else OK)


def retry(**more: Any) -> dict[str, Any]:
    return {"on": [503, "connect"], "backoff": "100ms..10s", "jitter": "none", "max": 3, **more}


def test_an_answer_at_the_first_try_has_one_row_and_is_as_without_habits() -> None:
    world = World(failing(0), retry=retry()).run()
    (row,) = world.rows
    assert (row.status, row.labels) == (Status.OK, {"attempt": 0, "tries": 1})
    assert row.due_ns == row.ready_ns == row.sent_ns == world.t0
    assert row.done_ns == world.t0 + 10 * MS


def test_a_failure_is_tried_again_after_waits_that_double_and_the_request_has_the_last_answer() -> None:
    world = World(failing(2), retry=retry()).run()
    (request,) = world.requests
    sent = [row.sent_ns - world.t0 for row in world.attempts]
    assert sent == [0, 110 * MS, 320 * MS]  # 10 ms each, then 100 ms, then 200 ms
    assert [row.status for row in world.attempts] == [Status.REFUSED, Status.REFUSED, Status.OK]
    assert (request.due_ns, request.ready_ns, request.sent_ns) == (world.t0,) * 3
    assert (request.done_ns, request.status, request.code) == (world.t0 + 330 * MS, Status.OK, OK)
    assert request.labels == {"attempt": 2, "tries": 3, "wasted_tokens": 2}
    assert {len(world.server.ids), *world.server.ids} == {3, b"run-0-0"}


def test_retries_end_and_what_is_not_on_the_list_is_not_tried_again() -> None:
    world = World(failing(9), retry=retry(max=2)).run()
    assert [row.status for row in world.requests] == [Status.REFUSED]
    assert len(world.attempts) == 3
    assert len(World(failing(9), retry=retry(on=[429, "5xx"])).run().attempts) == 4
    assert not World(failing(9), retry=retry(on=[429])).run().attempts


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ((None, 5 * MS, Status.CONNECT), "connect"),
        ((None, 5 * MS, Status.PROTOCOL), "connect"),
        ((None, 5 * MS, Status.TIMEOUT), "timeout"),
        ((1 * MS, 5 * MS, Status.PROTOCOL), "cut"),
        ((1 * MS, 5 * MS, Status.TIMEOUT), "cut"),
    ],
)
def test_what_broke_after_it_had_begun_is_tried_again_only_as_cut(answer: Answer, word: str) -> None:
    for on in ("connect", "timeout", "cut"):
        world = World(lambda query, k: answer if not k else (1, 2, OK), retry=retry(on=[on])).run()
        assert (world.requests[0].status == Status.OK) == (on == word)


def test_retry_after_is_waited_for_on_top_of_the_back_off_unless_it_is_not_honoured() -> None:
    for honoured, waited in ((True, 3_100 * MS), (False, 100 * MS)):
        world = World(failing(1), retry=retry(honour_retry_after=honoured))
        world.server.headers = [(b"retry-after", b"3")]
        first, second = world.run().attempts
        assert second.sent_ns - first.done_ns == waited


def test_jitter_is_drawn_from_the_seed_by_query_and_stays_within_its_bounds() -> None:
    def waits(jitter: str) -> list[int]:
        attempts = World(failing(1), 40, retry=retry(jitter=jitter)).run().attempts
        return [second.sent_ns - first.done_ns for first, second in zip(attempts[::2], attempts[1::2], strict=True)]

    full, equal = waits("full"), waits("equal")
    assert full == waits("full")
    assert len(set(full)) == 40
    assert 0 <= min(full) < 20 * MS < 80 * MS < max(full) <= 100 * MS
    assert 50 * MS <= min(equal) < 60 * MS < 90 * MS < max(equal) <= 100 * MS


def test_a_budget_bounds_retries_to_its_share_of_requests_and_a_reserve() -> None:
    world = World(failing(9), 200, retry=retry(budget="10%", max=3, backoff="1ms")).run()
    assert world.habits.retries.taken == pytest.approx(200 * 0.1 + RESERVE, abs=1)
    assert world.habits.retries.denied > 100
    alone = World(failing(9), 200, shards=10, retry=retry(budget="10%", max=3, backoff="1ms")).run()
    assert alone.habits.retries.taken == pytest.approx(200 * 0.1 + RESERVE / 10, abs=1)


def slow_first(query: int, k: int) -> Answer:
    return (900 * MS, 1000 * MS, OK) if k == 0 else (20 * MS, 60 * MS, OK)


def test_the_hedge_that_answers_first_is_kept_and_the_other_is_dropped_at_its_first_token() -> None:
    world = World(slow_first, hedge={"after": "200ms"}).run()
    (request,) = world.requests
    assert request.labels == {"attempt": 1, "tries": 2, "hedge": 1, "hedges": 1, "wasted_tokens": 0}
    assert (request.sent_ns, request.done_ns) == (world.t0, world.t0 + 260 * MS)
    lost, won = world.attempts
    assert (lost.status, lost.error, lost.done_ns) == (Status.CANCELLED, LOST, world.t0 + 220 * MS)
    assert (won.sent_ns, won.n_out, won.labels) == (world.t0 + 200 * MS, 1, {"attempt": 1, "hedge": 1})
    assert world.habits.hedge_wins == 1


def test_no_hedge_is_sent_beside_an_answer_that_has_begun_and_a_first_attempt_may_win() -> None:
    begun = World(lambda query, k: (100 * MS, 900 * MS, OK), hedge={"after": "200ms"}).run()
    assert [row.labels for row in begun.rows] == [{"attempt": 0, "tries": 1, "hedge": 0, "hedges": 0}]
    won = World(lambda query, k: (210 * MS, 300 * MS, OK), hedge={"after": "200ms"}).run()
    assert (won.requests[0].labels or {})["attempt"] == 0
    assert [row.status for row in won.attempts] == [Status.OK, Status.CANCELLED]
    assert won.requests[0].done_ns == won.t0 + 300 * MS


def test_a_hedge_that_fails_leaves_the_request_to_the_first_attempt() -> None:
    world = World(
        lambda query, k: (400 * MS, 500 * MS, OK) if not k else (1, 2, FAILED), hedge={"after": "200ms"}
    ).run()
    assert [row.status for row in world.requests] == [Status.OK]
    assert [row.status for row in world.attempts] == [Status.OK, Status.REFUSED]


def test_no_hedge_answered_a_request_that_nobody_answered() -> None:
    world = World(lambda query, k: (None, None, OK), hedge={"after": "100ms"}, patience="300ms").run()
    assert [(row.labels or {})["hedge"] for row in world.requests] == [0]
    assert [(row.labels or {})["hedge"] for row in world.attempts] == [0, 1]
    assert world.habits.hedge_wins == 0


def test_a_percentile_is_of_this_runs_answers_and_those_that_were_dropped_count_as_long_as_they_lasted() -> None:
    def one_in_ten(query: int, k: int) -> Answer:
        return (500 * MS, 510 * MS, OK) if query % 10 == 9 and not k else (20 * MS, 30 * MS, OK)

    world = World(one_in_ten, 400, hedge={"after": "p85"}).run()
    hedged = [row.query_id for row in world.requests if (row.labels or {})["hedges"]]
    assert hedged == list(range(109, 400, 10))  # none before 100 answers are known; then each slow one
    assert all(row.done_ns - row.due_ns == 50 * MS for row in world.requests if row.query_id in hedged)


def test_the_percentile_is_the_nearest_rank() -> None:
    latest = Latest(0.95)
    for value in range(1, 101):
        latest.add(value)
    assert latest.value_ns == 95


def test_a_user_without_patience_leaves_whatever_is_being_tried() -> None:
    waiting = World(lambda query, k: (None, None, OK), patience="300ms").run()
    (row,) = waiting.rows
    assert (row.status, row.done_ns) == (Status.CANCELLED, waiting.t0 + 300 * MS)
    assert "left after 0.3 s without a first token" in str(row.error)
    between = World(failing(9), retry=retry(backoff="1s"), patience="300ms").run()
    assert [(row.status, row.done_ns) for row in between.requests] == [(Status.CANCELLED, between.t0 + 300 * MS)]
    assert [row.code for row in between.rows] == [FAILED]  # one attempt was all there was
    stays = World(lambda query, k: (100 * MS, 900 * MS, OK), patience="300ms").run()
    assert [row.status for row in stays.rows] == [Status.OK]


def test_the_end_of_a_run_ends_requests_between_two_attempts() -> None:
    world = World(failing(9), retry=retry(backoff="9s"))
    world.issuer.start(world.t0)
    world.clock.run(world.t0 + 5 * S)
    world.issuer.give_up(Status.UNFINISHED, "drain")
    world.clock.run(world.t0 + 60 * S)
    assert [(row.status, row.error, row.done_ns) for row in world.requests] == [
        (Status.UNFINISHED, "drain", world.t0 + 5 * S)
    ]


def test_more_attempts_per_request_than_allowed_end_the_run_with_the_reason() -> None:
    world = World(failing(99), 400, retry=retry(max=9, backoff="1ms"), max_amplification=3).run()
    assert "attempts were sent per request" in str(world.issuer.aborted)
    assert len(world.server.sent) <= ENOUGH + 20
    assert World(failing(0), 400, retry=retry(), max_amplification=3).run().issuer.aborted is None


def test_warm_up_is_tried_again_too_and_has_rows_of_requests_alone() -> None:
    world = World(failing(1), retry=retry())
    world.issuer._load = Load(cut(open_plan([S])), cut(open_plan([-500 * MS])), ["r"], "run")
    world.run()
    assert [(row.phase, row.code, (row.labels or {})["tries"]) for row in world.rows] == [
        (Phase.WARMUP, OK, 2),
        (Phase.MEASURE, OK, 1),
    ]


def test_hedges_go_to_their_own_url_as_encoded_for_it_and_are_dropped_there() -> None:
    for quick in (20 * MS, 900 * MS):
        world = World(lambda query, k: (400 * MS, 500 * MS, OK), hedge={"after": "200ms"})
        other = Server(world.clock, lambda query, k, quick=quick: (quick, quick + MS, OK))  # type: ignore[misc]
        world.habits.other = other
        world.issuer._load = Load(cut(open_plan([0])), None, [("here", "there")], "run")
        world.run()
        assert [(one.request, len(server.dropped)) for server in (world.server, other) for one in server.sent] == [
            ("here", int(quick < 200 * MS)),
            ("there", int(quick > 200 * MS)),
        ]
