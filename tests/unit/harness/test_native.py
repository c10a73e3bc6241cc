"""What the compiled engine is given is checked before it is believed, and where it can't be used somebody is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.generator.native import ROW, NativeRun, spin_of, why_not
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.http_pool import HttpClient
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.records.records import Status

engine = pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")

REQUEST = (b"GET / HTTP/1.1\r\n", b"\r\n", False)


def made(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "addresses": [(2, "127.0.0.1", 1)],
        "run_id": b"run",
        "timeout_ns": 10**9,
        "connect_timeout_ns": 10**9,
        "max_connections": 0,
        "outstanding_limit": 10,
        "send_request_id": True,
        "stamping": True,
        "spin_ns": 0,
    }
    return engine.Engine(**{**settings, **changes})


def array(*values: int) -> Any:
    return np.array(values, np.int64)


OPEN = {
    "due": array(0, 5),
    "ids": array(0, 1),
    "offsets": array(0, 1, 2),
    "sample": array(0, 0),
    "payload": array(0, 1),
}
CLOSED = {"offsets": array(0, 1), "sample": array(0), "payload": array(0), "slots": 1, "first": 0, "step": 1}


class Opening:
    """A client's connections that take 3 ms each: how many were being opened at once."""

    def __init__(self) -> None:
        self.until: list[float] = []
        self.most = self.opened = 0

    def open(self, n: int) -> None:
        n = max(0, n)  # the engine takes no order of less than nothing
        self.until += [time.monotonic() + 0.003] * n
        self.opened += n
        self.most = max(self.most, self.connecting)

    @property
    def connecting(self) -> int:
        now = time.monotonic()
        return sum(at > now for at in self.until)

    def counters(self) -> dict[str, int]:
        return {"connecting": self.connecting}


class TakenUp(Opening):
    """What is being opened stands in both of the engine's counters while it takes the order up."""

    def counters(self) -> dict[str, int]:
        return {"connecting": 2 * self.connecting}


def test_an_order_that_stands_in_both_counters_for_a_moment_orders_nothing_more() -> None:
    opening = TakenUp()
    run = NativeRun.__new__(NativeRun)
    run._engine, run._client = opening, SimpleNamespace(target=Target("http://127.0.0.1:1", "http"))  # type: ignore[assignment]
    asyncio.run(run.open(300))
    assert (opening.opened, opening.most, opening.connecting) == (300, 64, 0)


def test_connections_are_opened_ahead_a_few_at_a_time_and_all_of_them() -> None:
    target = Target("http://127.0.0.1:1", "http")
    opening = Opening()
    run = NativeRun.__new__(NativeRun)
    run._engine, run._client = opening, SimpleNamespace(target=target)  # type: ignore[assignment]
    asyncio.run(run.open(300))
    assert (opening.opened, opening.most, opening.connecting) == (300, 64, 0)

    class Http(HttpClient):
        connecting = property(lambda self: opening.connecting, lambda self, value: None)  # type: ignore[assignment]

        def _connect(self, exchange: object) -> None:
            opening.open(1)

    async def python() -> None:
        await Http(target, LoopClock(asyncio.get_running_loop()), None).open(300)  # type: ignore[arg-type]

    opening = Opening()
    asyncio.run(python())
    assert (opening.opened, opening.most, opening.connecting) == (300, 64, 0)


def add_open(**changes: Any) -> None:
    e = made()
    e.set_requests([REQUEST, REQUEST, None])
    e.open_lane(0, *{**OPEN, **changes}.values(), -1)
    e.close()


def add_closed(**changes: Any) -> None:
    e = made()
    e.set_requests([REQUEST, None])
    e.closed_lane(0, *{**CLOSED, **changes}.values(), False, -1, 1, 0)
    e.close()


def test_a_plan_that_is_one_is_taken() -> None:
    add_open()
    add_closed()
    empty = array()
    add_open(due=empty, ids=empty, offsets=array(0), sample=empty, payload=empty)


@pytest.mark.parametrize(
    "changes",
    [
        {"due": np.array([0, 5], np.int32)},
        {"due": np.array([0.0, 5.0])},
        {"due": np.array([0, 5], np.uint64)},
        {"due": np.zeros((2, 1), np.int64)},
        {"ids": array(0)},
        {"ids": array(-1, 1)},
        {"offsets": array()},
        {"offsets": array(0, 1)},
        {"offsets": array(0, 2, 1)},
        {"offsets": array(1, 1, 2)},
        {"sample": array(0)},
        {"sample": array(0, -1)},
        {"payload": array(0, 3)},
        {"payload": array(0, -1)},
        {"payload": array(0, 2)},
        {"payload": array(0, 1, 1)},
    ],
)
def test_an_open_plan_that_contradicts_itself_or_its_requests_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="plan's arrays"):
        add_open(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": array(0), "sample": array(), "payload": array()},
        {"offsets": array(), "sample": array(), "payload": array()},
        {"slots": 0},
        {"first": -1},
        {"step": 0},
        {"payload": array(1)},
    ],
)
def test_a_closed_plan_without_rows_slots_or_steps_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="plan's arrays"):
        add_closed(**changes)


def test_arrays_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises((ValueError, BufferError)):
        add_open(due=np.arange(4, dtype=np.int64)[::2])


def test_what_is_given_twice_or_too_late_is_refused() -> None:
    e = made()
    with pytest.raises(RuntimeError, match="once"):
        e.__init__([(2, "127.0.0.1", 1)], b"r", 1, 1, 0, 1, True, True, 0)
    e.set_requests([REQUEST])
    with pytest.raises(TypeError, match="once"):
        e.set_requests([REQUEST])
    e.open(0)
    with pytest.raises(ValueError, match="before open"):
        e.set_plain(bytes(1000), [])
    with pytest.raises(ValueError, match="before open"):
        e.closed_lane(0, *CLOSED.values(), False, -1, 1, 0)
    e.close()
    with pytest.raises(RuntimeError, match="closed"):
        e.state()
    e.close()


def test_a_list_of_requests_may_change_afterwards() -> None:
    e = made()
    requests = [REQUEST, (b"x" * 100, b"y", False)]
    e.set_requests(requests)
    requests.clear()
    e.closed_lane(0, array(0, 1), array(0), array(1), 1, 0, 1, False, -1, 1, 0)
    e.close()


@pytest.mark.parametrize("addresses", [[], [(2, "::1", 1)], [(10, "127.0.0.1", 1)], [(1, "/x", 1)], [(2, "host", 1)]])
def test_an_address_that_is_none_is_refused(addresses: list[Any]) -> None:
    with pytest.raises(ValueError, match="address"):
        made(addresses=addresses)


def test_an_engine_that_was_never_opened_ends_quietly() -> None:
    for _ in range(3):
        e = made()
        e.stop()
        e.give_up(8)
        assert e.state() == (0, 0)
        del e


def test_turns_are_expected_before_the_start_and_those_never_sent_are_freed() -> None:
    e = made()
    with pytest.raises(ValueError, match="no turn is expected"):
        e.turn(0, 0, 0, 0, -1, REQUEST)
    bell = e.bell()
    with pytest.raises(ValueError, match="once, before open"):
        e.bell()
    with pytest.raises(ValueError, match="no such turn"):
        e.turn(-1, 0, 0, 0, -1, REQUEST)
    with pytest.raises(TypeError):
        e.turn(0, 0, 0, 0, -1, ("text", b"", False))
    e.open(0)
    for at in range(300):  # given before t0, and due long after everything is over
        e.turn(at, 0, at, (at * 7919) % 300 + (1 << 61), -1, REQUEST)
    e.go(time.monotonic_ns(), -1)
    e.turned()
    time.sleep(0.02)
    assert e.state() == (0, 0), "not over before they are sent"
    with pytest.raises(ValueError, match="no turn is expected"):
        e.turn(0, 0, 0, 0, -1, REQUEST)
    with pytest.raises(BlockingIOError):
        os.read(bell, 8)
    e.stop()
    e.close()


def test_a_turn_is_sent_when_it_is_due_and_the_bell_rings_when_it_has_ended() -> None:
    e = made()
    bell = e.bell()
    e.open(0)
    t0 = time.monotonic_ns()
    e.go(t0, -1)
    order = [30, 10, 20, -5]
    for at, ms in enumerate(order):
        e.turn(at, 0, at, t0 + ms * 1_000_000, -1, REQUEST)
    e.turned()
    give_up, rows = time.monotonic() + 5, []
    while len(rows) < len(order) * len(ROW) and time.monotonic() < give_up:
        select.select([bell], [], [], 1.0)
        with contextlib.suppress(BlockingIOError):
            os.read(bell, 8)
        rows += np.frombuffer(e.collect(1 << 20)[1], np.int64).tolist()
    found = [dict(zip(ROW, rows[at : at + len(ROW)], strict=True)) for at in range(0, len(rows), len(ROW))]
    assert [one["query_id"] for one in found] == [3, 1, 2, 0]
    for one in found:
        assert (one["due_ns"] - t0) // 1_000_000 == order[one["query_id"]]
        assert one["ready_ns"] >= one["due_ns"]
        assert one["status"] == Status.CONNECT, "nobody listens there"
    e.close()


def test_why_the_native_engine_can_not_be_used_ends_with_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, tls = Target("http://h:1", "http"), Target("https://h:1", "http")
    assert why_not(plain) is None
    assert "TLS. Give an http:// URL" in (why_not(tls) or "")
    assert "HTTP only. Leave this option out" in (why_not(plain, http=False) or "")
    monkeypatch.setattr("plimsoll.harness.generator.native.available", lambda: False)
    assert "not compiled here. Install a C compiler" in (why_not(plain) or "")


def test_the_spin_costs_at_most_a_quarter_of_a_core() -> None:
    def spin(**flags: Any) -> int:
        return spin_of(with_flags(None, **flags).blocks(10).extent())

    assert spin(rate=10.0, arrival="constant") == spin(rate=1000.0, arrival="constant") == 50_000
    assert 24_900 <= spin(rate=10_000.0, arrival="constant") <= 25_000
    assert spin(kind="concurrency", concurrency=4, queries=10) == 0
    assert spin(kind="offline", queries=1) == 0
