"""Who may come in, who gives way and who has been too slow, without a socket: the door in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.http_server import Connection, Door, last_words
from plimsoll.reference_server.transports.http_calls import read_body
from plimsoll.reference_server.values.errors import RequestError


class Peer:
    """What the door sees of a connection."""

    def __init__(self) -> None:
        self.transport: object | None = object()
        self.ahead = False
        self.slow = False

    def force_close(self) -> None:
        self.transport = None

    def too_slow(self, limit_s: float) -> None:
        self.slow = True
        self.force_close()


def as_connection(peer: Peer) -> Connection:
    return cast(Connection, peer)


def request(*, whole: bool = True) -> Any:
    return SimpleNamespace(content=SimpleNamespace(is_eof=lambda: whole))


def test_the_connection_that_was_idle_longest_gives_way() -> None:
    door = Door(limit=3, head_s=1.0)
    first, second, third, fourth = peers = [Peer() for _ in range(4)]
    for peer in peers[:3]:
        assert door.admit(as_connection(peer))
    door.begin(as_connection(first), request())
    assert door.admit(as_connection(fourth))
    assert [peer.transport is None for peer in peers] == [False, True, False, False]
    door.begin(as_connection(third), request())
    door.end(as_connection(first))  # idle again, since later than the fourth
    assert door.admit(as_connection(Peer()))
    assert [peer.transport is None for peer in peers] == [False, True, False, True]
    assert second.transport is None


def test_when_all_are_busy_nobody_comes_in() -> None:
    door = Door(limit=2, head_s=1.0)
    peers = [Peer(), Peer()]
    for peer in peers:
        door.admit(as_connection(peer))
        door.begin(as_connection(peer), request())
    assert not door.admit(as_connection(Peer()))
    door.forget(as_connection(peers[0]))
    assert door.admit(as_connection(Peer()))


class Steps:
    """A loop's clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []
        self.waiting: list[Callable[[], None]] = []
        """What sockets have for the loop, which reads them once a round, between its callbacks."""

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        return self.call_at(self.now_s + delay_s, call)

    def call_at(self, at_s: float, call: Callable[[], None]) -> Any:
        self.timers.append((at_s, call))
        return SimpleNamespace(cancel=lambda: None)

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.soon.append(partial(call, *arguments))

    def to(self, now_s: float) -> None:
        while self.timers and min(self.timers)[0] <= now_s:
            at_s, call = self.timers.pop(self.timers.index(min(self.timers, key=lambda timer: timer[0])))
            self.now_s = at_s
            call()
            while self.soon:
                calls, self.soon = [*self.soon, *self.waiting], []
                self.waiting = []
                for one in calls:
                    one()
        self.now_s = now_s


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def test_a_head_that_has_begun_must_be_whole_in_time_and_silence_may_last(steps: Steps) -> None:
    door = Door(limit=9, head_s=1.0)
    silent, slow, slower, quick = peers = [Peer() for _ in range(4)]
    for peer in peers:
        door.admit(as_connection(peer))
    door.heard(as_connection(slow))
    door.heard(as_connection(quick))
    steps.to(0.5)
    door.heard(as_connection(slow))  # more of it: the clock runs since the first byte
    door.heard(as_connection(slower))
    door.begin(as_connection(quick), request())
    steps.to(1.2)
    assert [peer.slow for peer in peers] == [False, True, False, False]
    steps.to(60.0)
    assert [peer.slow for peer in peers] == [False, True, True, False]
    assert silent.transport is not None


def test_a_head_that_lies_in_the_kernel_since_the_server_stood_still_is_not_late(steps: Steps) -> None:
    door, peer = Door(limit=9, head_s=1.0), Peer()
    door.admit(as_connection(peer))
    door.heard(as_connection(peer))
    steps.waiting.append(lambda: door.begin(as_connection(peer), request()))
    steps.to(3.0)
    assert not peer.slow


def test_the_body_of_a_client_that_has_gone_is_no_defect_of_the_server() -> None:
    async def read() -> None:
        content = StreamReader(Mock(connected=False), 2**16)
        gone: Any = SimpleNamespace(content_length=9, transport=None, content=content)
        await read_body(gone, limit=99, timeout_s=1.0)

    with pytest.raises(ConnectionResetError):
        asyncio.run(read())


def test_a_head_behind_an_answer_gets_its_time_from_the_end_of_the_answer(steps: Steps) -> None:
    door = Door(limit=9, head_s=1.0)
    peer = Peer()
    door.admit(as_connection(peer))
    door.begin(as_connection(peer), request(whole=False))
    door.heard(as_connection(peer))  # its own body
    assert not peer.ahead
    door.begin(as_connection(peer), request())
    door.heard(as_connection(peer))  # the next request
    steps.to(50.0)
    assert not peer.slow
    door.end(as_connection(peer))
    steps.to(50.9)
    assert not peer.slow
    steps.to(51.1)
    assert peer.slow


@given(st.lists(st.tuples(st.sampled_from(["admit", "begin", "end", "forget"]), st.integers(0, 5))))
def test_no_history_lets_in_more_than_the_limit(events: list[tuple[str, int]]) -> None:
    door = Door(limit=3, head_s=1.0)
    inside: dict[int, Peer] = {}
    for kind, i in events:
        if kind == "admit" and i not in inside:
            peer = Peer()
            if door.admit(as_connection(peer)):
                inside[i] = peer
        elif i in inside:
            connection = as_connection(inside[i])
            if kind == "begin":
                door.begin(connection, request())
            elif kind == "end":
                door.end(connection)
            elif kind == "forget":
                inside.pop(i).force_close()
                door.forget(connection)
        inside = {j: peer for j, peer in inside.items() if peer.transport is not None}
        assert len(inside) <= 3


def test_last_words_are_a_whole_response() -> None:
    head, _, body = last_words(RequestError(503, "full", code="x", retry_after_s=2)).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert b"Content-Length: %d" % len(body) in lines
    assert {b"Connection: close", b"Retry-After: 2"} <= set(lines)
