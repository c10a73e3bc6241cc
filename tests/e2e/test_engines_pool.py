"""The compiled engine does what the Python engine does: time-outs, connections, schedules and interrupts, in both.

As tests/e2e/test_engines.py. Real time, about fifteen seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

import plimsoll.harness.generator.native
from plimsoll.harness.transport import held
from plimsoll.slo.records.records import Phase, Status
from tests.e2e.both_engines import ENGINES, MS, Way, against, both, closed, opened, saying
from tests.raw_server import Script, answer, leave, reset

pytestmark = pytest.mark.e2e
pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")

OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# -- time-outs, refusals, stale connections -------------------------------------------------------------------


def test_no_answer_in_time_is_the_same_time_out_at_its_deadline_whatever_came_before() -> None:
    for script in (saying(5.0), saying(OK, 5.0), saying(CHUNKED + b"3\r\nabc\r\n", 5.0)):
        runs = both(script, Way(closed(2), target={"timeout_ns": 80 * MS}))
        for ran in runs:
            for row in ran.rows:
                assert row["status"] == Status.TIMEOUT
                assert 80 * MS <= row["done_ns"] - row["ready_ns"] < 200 * MS


def test_a_slot_that_a_time_out_frees_is_taken_up_at_once() -> None:
    """Nothing else happens then: no other answer, no timer."""
    for ran in both(saying(5.0), Way(closed(8), target={"timeout_ns": 37 * MS})):
        waits = sorted(then["due_ns"] - row["done_ns"] for row, then in itertools.pairwise(ran.rows))
        assert waits[3] < 2 * MS, waits


def test_a_refused_connection_is_the_same_row_and_a_closed_loop_rests_between_them() -> None:
    def dead(addresses: Any) -> tuple[Any, ...]:
        return ((2, ("127.0.0.1", 1)),)

    for ran in both(saying(answer()), Way(closed(8, slots=2), addresses=dead)):
        assert {row["status"] for row in ran.rows} == {Status.CONNECT}
        assert ran.rows[-1]["due_ns"] > 25 * MS, "four rounds of 10 ms"
    both(saying(answer()), Way(opened([0, 1, 1, 5]), addresses=dead, connections=3))


def test_a_server_that_serves_few_connections_at_a_time_does_not_notice_those_opened_ahead() -> None:
    """A thread for each connection, and three of them: others are accepted by the kernel, and never read."""

    def few() -> Script:
        threads = asyncio.Semaphore(3)

        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            if not request:
                await threads.acquire()  # for as long as the connection is there
                return
            await asyncio.sleep(0.01)
            writer.write(answer())

        return script

    way = Way(opened([0, 1, 40, 41, 42, 80, 120]), connections=8, target={"timeout_ns": 400 * MS})
    for ran in both(few, way, eager=True):
        assert {row["status"] for row in ran.rows} == {Status.OK}
        assert ran.stats["connections_opened"] == 8


@pytest.fixture
def deaf() -> Iterator[tuple[int, tuple[str, int]]]:
    """An address that answers nothing, as one without a route: a listener whose queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as held:
        for _ in range(4):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield socket.AF_INET, listener.getsockname()


def test_an_address_that_answers_nothing_is_given_up_for_the_next_in_its_share_of_the_time(deaf: Any) -> None:
    def first(found: Any) -> tuple[Any, ...]:
        return (deaf, *found.addresses)

    target = {"connect_timeout_ns": 160 * MS}
    for ran in both(saying(0.01, answer()), Way(opened([0, 1, 200, 200, 200]), addresses=first, target=target)):
        assert {row["status"] for row in ran.rows} == {Status.OK}
        assert 75 * MS < ran.rows[0]["connect_ns"] < 150 * MS
        assert ran.rows[4]["connect_ns"] < 40 * MS, "the good one is remembered"


def test_no_connection_in_time_is_the_same_failure(deaf: Any) -> None:
    way = Way(opened([0, 5]), addresses=lambda found: (deaf,), target={"connect_timeout_ns": 60 * MS})
    for ran in both(saying(answer()), way):
        for row in ran.rows:
            assert (row["status"], row["error"]) == (Status.CONNECT, "no connection after 0.06 s (connect timeout)")
            assert 55 * MS < row["done_ns"] - row["ready_ns"] < 200 * MS


def test_many_connections_at_once_all_find_the_one_address_that_answers() -> None:
    """Which address is preferred changes while they are trying: none may lose its place in the list."""

    def one_of_four(found: Any) -> tuple[Any, ...]:
        dead = [(2, (f"127.0.0.{i}", 1)) for i in (2, 3, 4)]
        return (*dead, *found.addresses)

    for _ in range(3):
        for ran in both(
            saying(answer()), Way(opened([0] * 12 + [0.3] * 12 + [1] * 12), addresses=one_of_four), ("connect_ns",)
        ):
            assert {row["status"] for row in ran.rows} == {Status.OK}


def test_more_bytes_than_may_wait_for_python_end_the_run_of_the_compiled_engine_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plimsoll.harness.generator.native, "waiting", lambda: 1 << 20)
    way = Way(opened([0]), protocol="openai-chat", options={})
    ran = against("native", saying(answer(b"data: {}\n\n" * 200_000)), way)
    assert str(ran.aborted).startswith("this worker ran out of memory for responses (at most 1 MiB may wait")
    assert len(ran.rows) == 1


def stale() -> Script:
    """The first connection ends together with its first answer, so that the next request meets a closed one."""

    async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            leave(writer, answer())
        else:
            writer.write(answer())

    return script


def test_a_request_that_meets_a_stale_connection_is_sent_once_more_and_its_row_says_so() -> None:
    python, native = both(lambda: stale(), Way(closed(3)))
    assert {row["status"] for row in python.rows} == {Status.OK}
    assert [row["attempts"] for row in native.rows] == [1, 2, 1]
    assert python.ids == native.ids == ["run-0-0", "run-1-0", "run-2-0"], "the server read each of them once"
    assert native.stats["retried_on_stale_connection"] == 1
    assert python.stats["pool_waits"] == native.stats["pool_waits"] == 0


def every_third(end: str) -> Script:
    """It reads every request, and in place of every third answer ends the connection at once."""
    seen: list[int] = []

    async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        seen.append(number)
        if len(seen) % 3:
            writer.write(answer())
        elif end == "reset":
            reset(writer)
        elif end == "half an answer":
            writer.write(answer()[:20])
            writer.close()
        else:
            writer.close()

    return script


@pytest.mark.parametrize("end", ["fin", "reset", "half an answer"])
def test_a_request_that_the_server_read_is_never_sent_again(end: str) -> None:
    """However soon it hangs up, on kept-alive connections too: what it read and dropped is a failure, each of them."""
    for ran in both(lambda: every_third(end), Way(closed(12))):
        failed = Status.CONNECT if end == "reset" else Status.PROTOCOL
        assert [row["status"] for row in ran.rows] == [Status.OK, Status.OK, failed] * 4
        assert {row["attempts"] for row in ran.rows} == {1}
        assert len(ran.ids) == len(set(ran.ids)) == 12
        assert ran.stats["retried_on_stale_connection"] == 0


def test_requests_on_connections_opened_ahead_that_the_server_reads_and_drops_all_fail() -> None:
    async def takes_and_closes(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        writer.close()

    for ran in both(lambda: takes_and_closes, Way(opened([0, 1, 2]), connections=3)):
        assert {row["status"] for row in ran.rows} == {Status.PROTOCOL}
        assert ran.stats["retried_on_stale_connection"] == 0
        assert len(ran.ids) == 3


def test_a_connection_closed_between_requests_is_replaced() -> None:
    for ran in both(saying(answer(), close=True), Way(opened([0, 40, 80]))):
        assert {row["status"] for row in ran.rows} == {Status.OK}
        assert ran.stats["connections_opened"] == 3


def test_a_server_that_takes_requests_and_hangs_up_is_never_asked_twice() -> None:
    def takes() -> Script:
        seen: list[int] = []

        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            seen.append(number)
            if len(seen) % 2 == 0:
                await asyncio.sleep(0.1)
                writer.close()
                return
            writer.write(answer())

        return script

    _, native = both(takes, Way(closed(4)))
    assert [row["status"] for row in native.rows] == [Status.OK, Status.PROTOCOL] * 2
    assert len(native.ids) == 4


# -- memory ---------------------------------------------------------------------------------------------------


def test_answers_in_flight_hold_no_more_than_the_budget_and_the_biggest_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five answers without end, of which four are slow: the one that fills memory is given up, whichever engine reads
    it.
    """
    monkeypatch.setattr(held, "MOST", 24 << 20)

    def endless() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(64 if b"-0-0" in request else 2):
                    writer.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                    await writer.drain()
            if b"-0-0" not in request:
                await asyncio.sleep(1)
                writer.write(b"0\r\n\r\n")

        return script

    for ran in both(endless, Way(opened([0] * 5)), but=("bytes_in", "stamp")):
        assert [row["status"] for row in ran.rows] == [Status.PROTOCOL] + [Status.OK] * 4
        assert "held more than 24 MiB together" in ran.rows[0]["error"]
        assert 16 << 20 < ran.rows[0]["bytes_in"] < 40 << 20


# -- the pool -------------------------------------------------------------------------------------------------


def test_a_limit_of_connections_makes_requests_wait_and_the_wait_is_counted_the_same() -> None:
    python, native = both(saying(0.05, answer()), Way(opened([0] * 6), target={"max_connections": 2}))
    for ran in (python, native):
        assert (ran.stats["connections_opened"], ran.stats["pool_waits"]) == (2, 4)
        assert max(row["sent_ns"] - row["ready_ns"] for row in ran.rows) > 90 * MS
        assert 85 * MS < ran.stats["pool_wait_p99_ns"] < 160 * MS


def test_a_time_out_lets_the_next_request_go_with_what_is_left_of_its_time() -> None:
    for ran in both(saying(5.0), Way(opened([0, 40]), target={"max_connections": 1, "timeout_ns": 90 * MS})):
        assert {row["status"] for row in ran.rows} == {Status.TIMEOUT}
        assert ran.rows[1]["sent_ns"] >= ran.rows[0]["done_ns"]
        assert 90 * MS <= ran.rows[1]["done_ns"] - ran.rows[1]["ready_ns"] < 120 * MS
        assert ran.stats["pool_waits"] == 1


def test_stale_connections_never_make_more_connections_than_the_limit() -> None:
    def closing() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            await asyncio.sleep(0.005)
            writer.write(answer(extra=b"connection: close\r\n"))
            writer.close()

        return script

    for ran in both(closing, Way(opened([0] * 12), target={"max_connections": 3}), but=("connect_ns",)):
        assert {row["status"] for row in ran.rows} == {Status.OK}
        spans = sorted([(row["sent_ns"], 1) for row in ran.rows] + [(row["done_ns"], -1) for row in ran.rows])
        on, most = 0, 0
        for _, step in spans:
            on += step
            most = max(most, on)
        assert most <= 3


def test_giving_up_connects_nobody_who_waited() -> None:
    """Ctrl-C with 200 requests waiting for two connections: not one more connection is begun for them."""
    way = Way(opened([0] * 202), target={"max_connections": 2}, give_up_after_ms=100)
    ran = against("native", saying(5.0), way)
    assert len(ran.rows) == 202
    assert {(row["status"], row["error"]) for row in ran.rows} == {(Status.UNFINISHED, "interrupted by the user")}
    assert ran.stats["connections_opened"] <= 4
    assert len(ran.ids) == 2


# -- schedules ------------------------------------------------------------------------------------------------

KINDS = {
    "single stream": Way(closed(12)),
    "multi stream": Way(closed(4, samples=8)),
    "multi stream on slots": Way(closed(7, slots=3, samples=4)),
    "concurrency": Way(closed(24, slots=6)),
    "offline": Way(opened([0], samples=300, limit=16)),
    "server": Way(opened([i * 0.7 for i in range(100)])),
    "server in bursts": Way(opened([5] * 80 + [9] * 80 + [30] * 5)),
    "several payloads": Way(closed(9, payloads=4)),
    "an empty shard": Way(opened([])),
    "late from the start": Way(opened([0, 1, 2, 3]), lead_ms=-50),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_sends_the_same_queries_and_never_more_than_its_slots(name: str) -> None:
    way = KINDS[name]
    python, native = both(saying(0.004, answer()), way, but=("connect_ns", "stamp"))
    assert {row["status"] for row in native.rows} <= {Status.OK}
    assert len(set(native.ids)) == len(native.rows)
    if way.plan.open_loop:
        assert [row["due_ns"] for row in python.rows] == [row["due_ns"] for row in native.rows]
    limit = way.plan.max_in_flight
    if limit is not None:
        widest = int(way.plan.offsets[1]) if way.plan.cyclic else 1
        assert max(python.peak, native.peak) <= limit * widest


def test_failures_in_a_query_of_many_samples_free_its_slot_once() -> None:
    def failing() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            sample = int(request.split(b"x-request-id: run-", 1)[1].split(b"\r\n")[0].split(b"-")[1])
            await asyncio.sleep(0.002 * sample)
            if sample == 1:
                writer.write(OK + b"content-length: 5\r\n\r\ncu")
            elif sample == 2:
                await asyncio.sleep(5)
            else:
                writer.write(answer())
            if sample != 0:
                writer.close()

        return script

    way = Way(closed(6, slots=2, samples=4), target={"timeout_ns": 60 * MS})
    python, native = both(failing, way, but=("connect_ns", "stamp"))
    wanted = [Status.OK, Status.PROTOCOL, Status.TIMEOUT, Status.OK]
    assert [row["status"] for row in native.rows] == wanted * 6
    assert max(python.peak, native.peak) <= 8


def test_a_closed_loop_runs_its_minimum_of_time_and_one_query_more() -> None:
    for engine in ENGINES:
        ran = against(engine, saying(0.005, answer()), Way(closed(3, slots=2, min_duration_ns=120 * MS)))
        last = max(row["due_ns"] for row in ran.rows)
        assert 120 * MS <= last < 160 * MS


@pytest.mark.parametrize("engine", ENGINES)
def test_a_closed_warm_up_hands_its_slots_over_at_t0(engine: str) -> None:
    way = Way(closed(20, slots=3), warmup=closed(10**6, slots=3), lead_ms=120)
    ran = against(engine, saying(0.01, answer()), way)
    warm = [row for row in ran.rows if row["phase"] == Phase.WARMUP]
    assert len(warm) > 20, "it begins at once, not at t0"
    assert min(row["due_ns"] for row in warm) < -80 * MS
    assert max(row["due_ns"] for row in warm) < 0 <= min(row["due_ns"] for row in ran.rows if row["phase"] == 0)
    assert ran.peak <= 3
    assert sum(row["phase"] == 0 for row in ran.rows) == 20
    assert {name.split("-")[0] for name in ran.ids} == {"run", "runw"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_closed_warm_up_before_an_open_loop_ends_at_t0(engine: str) -> None:
    way = Way(opened([0, 10, 20]), warmup=closed(10**6, slots=2), lead_ms=80)
    ran = against(engine, saying(0.01, answer()), way)
    warm = [row for row in ran.rows if row["phase"] == Phase.WARMUP]
    assert len(warm) > 8
    assert max(row["due_ns"] for row in warm) < 0
    assert [row["due_ns"] for row in ran.rows if row["phase"] == 0] == [0, 10 * MS, 20 * MS]


def test_an_open_warm_up_is_sent_when_it_is_due() -> None:
    for main in (opened([0, 10]), closed(4, slots=2)):
        python, native = both(
            saying(0.002, answer()), Way(main, warmup=opened([-50, -30, -1]), lead_ms=60), but=("connect_ns", "stamp")
        )
        for ran in (python, native):
            assert [row["due_ns"] for row in ran.rows if row["phase"] == 1] == [-50 * MS, -30 * MS, -1 * MS]


def test_a_limit_of_time_ends_either_loop_and_is_said() -> None:
    for plan in (opened([0, 10, 20, 200, 300], max_duration_ns=100 * MS), closed(10**6, max_duration_ns=100 * MS)):
        for engine in ENGINES:
            ran = against(engine, saying(0.01, answer()), Way(plan))
            assert ran.max_duration_hit
            assert max(row["due_ns"] for row in ran.rows) <= 101 * MS


def test_too_many_outstanding_requests_end_an_open_loop_with_the_same_words() -> None:
    way = Way(opened([i * 0.5 for i in range(400)]), outstanding=30, target={"timeout_ns": 400 * MS})
    python, native = (against(engine, saying(5.0), way) for engine in ENGINES)
    assert python.aborted == native.aborted
    assert native.aborted is not None
    assert len(python.rows) == len(native.rows) == 31


# -- interrupts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_sends_nothing_more_and_waits_for_what_is_in_flight(engine: str) -> None:
    way = Way(opened([i * 5.0 for i in range(100)]), stop_after_ms=100)
    ran = against(engine, saying(0.05, answer()), way)
    assert 5 < len(ran.rows) < 40
    assert {row["status"] for row in ran.rows} == {Status.OK}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_in_a_warm_up_ends_it_at_once_though_nothing_is_in_flight(engine: str) -> None:
    way = Way(opened([0]), warmup=opened([-4990]), lead_ms=5000, stop_after_ms=60)
    begun = time.monotonic()
    ran = against(engine, saying(answer()), way)
    assert time.monotonic() - begun < 2
    assert len(ran.rows) <= 1


def test_what_is_given_up_at_once_is_all_handed_over() -> None:
    """As the drain limit does: give up, and collect with no pause in between."""
    way = Way(opened([i * 0.02 for i in range(2000)]), give_up_after_ms=150, target={"max_connections": 50})
    for engine in ENGINES:
        ran = against(engine, saying(5.0), way)
        assert len(ran.rows) == 2000
        assert {(row["status"], row["error"]) for row in ran.rows} == {(Status.UNFINISHED, "interrupted by the user")}
        assert all(row["done_ns"] > 0 for row in ran.rows)


def test_connections_are_open_before_the_first_query_is_due() -> None:
    for ran in both(saying(0.01, answer()), Way(opened([0] * 8), connections=8)):
        assert {row["connect_ns"] for row in ran.rows} == {-1}
        assert ran.stats["connections_opened"] == 8


def test_ipv6_works() -> None:
    for ran in both(saying(answer()), Way(closed(2)), host="::1"):
        assert {row["status"] for row in ran.rows} == {Status.OK}
