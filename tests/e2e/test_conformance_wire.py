"""What every protocol must do on a wire that misbehaves, whichever file it came from. A new protocol is tested here
with no edit.

Each protocol that needs a URL sends one sample to a server of its own that does one hostile thing; all protocols of one
case at once, in this process. Bound: 20 s in all, of which most is waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache

import pytest
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.slo.records.records import Status
from tests.e2e.plimsoll import ROOT
from tests.unit.harness.test_clients_conformance import PAYLOAD

pytestmark = pytest.mark.e2e

MS = 1_000_000
SPECS = [spec for spec in protocols().values() if spec.needs_url]
TIMEOUT_NS = 300 * MS
#: Of those that end for another reason, on a host that stands still meanwhile.
PATIENT_NS = 10_000 * MS
SECRET = "sk-do-not-show-me"
#: A host that is busy may hold a timer back by so much.
LATE_NS = 2_000 * MS
#: A live session may take its timeout and as long as its input lasts: what follows a clip is made short here.
LONGEST_S = 5.0
BRIEF = {"audio": {"trailing_silence": "100ms"}}
#: What a protocol needs before it can send anything. One that any server's schema will do for asks no server here.
OPTIONS: dict[str, dict[str, object]] = {
    "grpc": {
        "descriptor_set": str(ROOT / "harness" / "protocols" / "_grpc" / "sets" / "kserve.binpb"),
        "method": "inference.GRPCInferenceService/ModelInfer",
        "message": {"model_name": "m"},
    }
}
BODY = b'{"error": {"message": "the hold is full"}}'
each = pytest.mark.parametrize("name", [spec.name for spec in SPECS])


@dataclass
class Peer:
    """The server's end of the connections of one protocol: what came, and which of them the client has ended."""

    heard: bytearray = field(default_factory=bytearray)
    opened: int = 0
    ended: int = 0
    spoken_to: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Read to the client's end."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.heard += data
                self.spoken_to.set()
        self.ended += 1


Behave = Callable[[Peer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by an RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def say_nothing(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await peer.listen(reader)


async def reset_at_once(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def reset_when_asked(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    reset(writer)


async def close_when_asked(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)


async def speak_another_language(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n" * 20 + b"\r\n")
    await peer.listen(reader)


async def refuse(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(BODY) + BODY)
    await peer.listen(reader)


async def break_off(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The beginning of a good answer, then an RST; of no use to gRPC, which takes it for another language."""
    await reader.read(65_536)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n" + b'{"a": "')
    await writer.drain()
    await asyncio.sleep(0.02)
    reset(writer)


@dataclass(frozen=True)
class Meeting:
    """One sample and what became of it. ``over_ns``: when the client said so; ``left_open``: connections that it had
    not ended by then and a little later; ``open_after_close``: nor when it was closed itself.
    """

    exchange: Exchange
    kind: str
    begun_ns: int
    over_ns: int
    times_done: int
    left_open: int
    open_after_close: int


def kind_of(spec: ProtocolSpec, client: Client) -> str:
    if spec.grpc:
        return "grpc"
    return "websocket" if hasattr(client, "dialogue") else "http"


def options_of(spec: ProtocolSpec) -> dict[str, object]:
    if spec.name in OPTIONS:
        return OPTIONS[spec.name]
    return {} if spec.check(BRIEF) else dict(BRIEF)


@dataclass
class Talk:
    """One protocol, ready to send one sample to its own server."""

    spec: ProtocolSpec
    clock: LoopClock
    client: Client
    request: object
    peer: Peer
    place: socket.socket


def prepared(spec: ProtocolSpec, place: socket.socket, timeout_ns: int) -> Talk:
    """Everything that takes a loop's time, before anything is sent."""
    url = f"{'grpc' if spec.grpc else 'http'}://127.0.0.1:{place.getsockname()[1]}"
    headers = (("authorization", f"Bearer {SECRET}"),)
    clock = LoopClock(asyncio.get_running_loop())
    client = spec.build(Target(url, spec.name, "model", headers, options_of(spec), timeout_ns), clock)
    return Talk(spec, clock, client, client.encode(PAYLOAD), Peer(), place)


async def meet(talk: Talk, behave: Behave | None, *, cancel: bool) -> Meeting:
    """Send the sample to a server that behaves so; None: there is no server.

    ``cancel`` when the server has heard something.
    """
    peer, client, clock = talk.peer, talk.client, talk.clock

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert behave is not None
        peer.opened += 1
        try:
            await behave(peer, reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, sock=talk.place) if behave is not None else None
    finished: list[int] = []
    done = asyncio.Event()

    def on_done(_exchange: Exchange) -> None:
        finished.append(time.monotonic_ns())
        done.set()

    try:
        await client.open(0)
        exchange = Exchange(0, 0, 0, clock.now_ns(), talk.request)
        exchange.on_done = on_done
        exchange.ready_ns = begun_ns = clock.now_ns()
        client.send(exchange, b"run-0-0")
        if cancel:
            await asyncio.wait_for(peer.spoken_to.wait(), 5)
            client.cancel(exchange, int(Status.CANCELLED), "enough")
            client.cancel(exchange, int(Status.TIMEOUT), "again")
        await asyncio.wait_for(done.wait(), LONGEST_S)
        await settled(lambda: peer.ended == peer.opened)
        left_open = peer.opened - peer.ended
        client.settle(exchange)
    finally:
        await client.close()
        clock.close()
    await settled(lambda: peer.ended == peer.opened)
    if server is not None:
        server.close()
    found = (begun_ns, finished[0], len(finished), left_open, peer.opened - peer.ended)
    return Meeting(exchange, kind_of(talk.spec, client), *found)


async def settled(condition: Callable[[], bool]) -> None:
    """Until that holds, for half a second at most."""
    for _ in range(50):
        if condition():
            return
        await asyncio.sleep(0.01)


@cache
def meetings(behave: Behave | None, cancel: bool = False) -> dict[str, Meeting | BaseException]:
    """Every protocol's meeting with such a server, all at once. One that never ends, or raises, spoils no other's."""

    async def main() -> dict[str, Meeting | BaseException]:
        found: dict[str, Meeting | BaseException] = {}
        talks: list[Talk] = []
        with ExitStack() as stack:
            for spec in SPECS:
                # A port that is bound and not listened at refuses connections, and nobody else gets it meanwhile.
                place = stack.enter_context(socket.socket())
                place.bind(("127.0.0.1", 0))
                try:
                    waits = behave is say_nothing and not cancel
                    talks.append(prepared(spec, place, TIMEOUT_NS if waits else PATIENT_NS))
                except HarnessFault as fault:
                    found[spec.name] = fault
            meetings = await asyncio.gather(
                *(meet(talk, behave, cancel=cancel) for talk in talks), return_exceptions=True
            )
        return found | dict(zip([talk.spec.name for talk in talks], meetings, strict=True))

    return uvloop.run(main())


def meeting_of(name: str, behave: Behave | None, cancel: bool = False) -> Meeting:
    found = meetings(behave, cancel)[name]
    if isinstance(found, BaseException):
        raise AssertionError(f"{name}: {found!r}") from found
    return found


def check(meeting: Meeting, *expected: Status) -> Exchange:
    """It ended once, as expected, in plain words without secrets, with its stamps in order."""
    exchange = meeting.exchange
    assert Status(exchange.status) in expected, exchange.error
    assert meeting.times_done == 1
    assert exchange.error
    assert SECRET not in exchange.error
    stamps = [exchange.due_ns, exchange.ready_ns, exchange.sent_ns, exchange.first_byte_ns, exchange.done_ns]
    known = [stamp for stamp in stamps if stamp >= 0]
    assert known == sorted(known), stamps
    assert exchange.done_ns >= 0
    assert exchange.done_ns <= meeting.over_ns
    marks = exchange.mark_ns.tolist()
    assert marks == sorted(marks)
    return exchange


@each
def test_nobody_listening_is_connect(name: str) -> None:
    exchange = check(meeting_of(name, None), Status.CONNECT)
    assert "refused" in str(exchange.error)
    assert exchange.sent_ns == exchange.first_byte_ns == -1


@each
def test_no_answer_is_a_time_out_at_the_deadline(name: str) -> None:
    meeting = meeting_of(name, say_nothing)
    exchange = check(meeting, Status.TIMEOUT)
    said = re.search(r"after ([0-9.]+) s \(timeout\)", str(exchange.error))
    assert said is not None, exchange.error
    deadline_ns = float(said[1]) * 1e9
    assert deadline_ns >= TIMEOUT_NS
    assert deadline_ns == TIMEOUT_NS or meeting.kind != "http"  # a live session may take as long as its input lasts
    # The text has two digits of it.
    assert deadline_ns * 0.95 <= exchange.done_ns - meeting.begun_ns < deadline_ns * 1.05 + LATE_NS
    assert exchange.first_byte_ns == -1


@each
def test_a_timed_out_request_leaves_no_connection_that_a_later_one_might_take(name: str) -> None:
    meeting = meeting_of(name, say_nothing)
    # A gRPC channel is shared: the call is reset, the connection lives until the client is closed.
    assert meeting.left_open == 0 or meeting.kind == "grpc"
    assert meeting.open_after_close == 0


@pytest.mark.parametrize("behave", [reset_at_once, reset_when_asked], ids=lambda one: one.__name__)
@each
def test_a_reset_is_connect(name: str, behave: Behave) -> None:
    exchange = check(meeting_of(name, behave), Status.CONNECT)
    assert "reset" in str(exchange.error)


@each
def test_a_connection_that_is_closed_is_a_failure_of_the_wire(name: str) -> None:
    exchange = check(meeting_of(name, close_when_asked), Status.PROTOCOL, Status.CONNECT)
    assert "closed" in str(exchange.error)


@each
def test_another_language_is_no_success_and_no_wait(name: str) -> None:
    meeting = meeting_of(name, speak_another_language)
    check(meeting, Status.PROTOCOL, *((Status.CONNECT,) if meeting.kind == "grpc" else ()))
    assert meeting.over_ns - meeting.begun_ns < LATE_NS


@each
def test_an_answer_that_breaks_off_keeps_what_came(name: str) -> None:
    meeting = meeting_of(name, break_off)
    # A handshake that is answered with 200 is no session; to gRPC it is another language.
    exchange = check(meeting, Status.CONNECT, *((Status.HTTP, Status.PROTOCOL) if meeting.kind != "http" else ()))
    if meeting.kind == "http":
        assert exchange.code == 200
        assert bytes(exchange.body) == b'{"a": "'
        assert exchange.first_byte_ns > 0


@each
def test_a_refusal_keeps_its_status_and_message(name: str) -> None:
    meeting = meeting_of(name, refuse)
    if meeting.kind == "grpc":  # HTTP/1.1 is another language there
        assert "503" in str(check(meeting, Status.PROTOCOL, Status.CONNECT).error)
        return
    exchange = check(meeting, Status.REFUSED)
    assert exchange.code == 503
    assert "the hold is full" in str(exchange.error)


@each
def test_cancellation_leaves_nothing_open(name: str) -> None:
    meeting = meeting_of(name, say_nothing, True)
    exchange = check(meeting, Status.CANCELLED)
    assert exchange.error == "enough"
    assert meeting.left_open == 0 or meeting.kind == "grpc"
    assert meeting.open_after_close == 0
