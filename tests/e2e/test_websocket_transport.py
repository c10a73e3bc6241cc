"""WebSocket sessions on the stamped transport, against servers that do exactly what each test says.

Real sockets, real time; each test is over in well under two seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
import uvloop
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script, messages_of
from plimsoll.harness.transport.live.websocket_pool import WebSocketClient
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Stamp, Status
from tests.raw_server import raw_server

pytestmark = pytest.mark.e2e
MS = 1_000_000


class Told:
    """A dialogue that plays one script and knows three words."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def encode(self, payload: Payload) -> Script:
        return self._script

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return {b"ready": READY, b"done": DONE, b"endpoint": ENDPOINT}.get(message, NOTHING)

    def settle(self, exchange: Exchange) -> None:
        """Nothing to settle."""


class Peer:
    """The server's end of one session: frames by the library, on a stream that a test may break."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.protocol = ServerProtocol()
        self.sent: list[tuple[int, bytes]] = []
        self.heard: list[tuple[int, bytes, bool]] = []
        self.request: Any = None
        self.closed_with: int | None = None

    async def accept(self, head: bytes) -> None:
        self.protocol.receive_data(head)
        self.request = self.protocol.events_received()[0]
        self.protocol.send_response(self.protocol.accept(self.request))
        await self.flush()

    async def flush(self) -> int:
        now = time.monotonic_ns()
        self.writer.write(b"".join(self.protocol.data_to_send()))
        await self.writer.drain()
        return now

    async def text(self, data: bytes) -> None:
        self.protocol.send_text(data)
        self.sent.append((await self.flush(), data))

    async def binary(self, data: bytes) -> None:
        self.protocol.send_binary(data)
        self.sent.append((await self.flush(), data))

    def _take(self) -> None:
        for event in self.protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
                self.heard.append((time.monotonic_ns(), bytes(event.data), event.opcode is Opcode.TEXT))
            elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                received = self.protocol.close_rcvd
                self.closed_with = received.code if received is not None else 1005

    async def until(self, heard: bytes | None = None) -> bytes:
        """Hear until that message has come; None: until there is one."""
        while True:
            self._take()
            if self.heard and (heard is None or self.heard[-1][1] == heard):
                return self.heard[-1][1]
            await self.more()

    async def more(self) -> None:
        data = await self._reader.read(65_536)
        if not data:
            raise ConnectionError("the client went away")
        self.protocol.receive_data(data)

    async def until_closed(self) -> None:
        """Hear everything until the client says goodbye."""
        self._take()
        while self.closed_with is None:
            await self.more()
            self._take()


PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Bench:
    """One client on one loop; ``talk`` plays the script once."""

    def __init__(self, url: str, script: Script, **target: Any) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.client = WebSocketClient(Target(url, "test", **target), self.clock, Told(script))
        self.request = self.client.encode(Payload())

    def begin(self) -> tuple[Exchange, asyncio.Future[Exchange]]:
        done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        exchange = Exchange(0, 0, 0, time.monotonic_ns(), self.request)
        exchange.on_done = done.set_result
        exchange.ready_ns, exchange.traceparent = self.clock.now_ns(), PARENT
        self.client.send(exchange, b"run-0-0")
        return exchange, done

    async def talk(self) -> Exchange:
        return await asyncio.wait_for(self.begin()[1], 10)


Serve = Callable[[Peer], Awaitable[None]]


def play(script: Script, serve: Serve, body: Callable[[Bench], Awaitable[None]], **options: Any) -> Peer:
    """Run one test body against one scripted peer, and give the (last) peer."""
    tls = options.pop("tls", None)
    raw = options.pop("raw", None)
    peers: list[Peer] = []

    async def on_connection(head: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        peer = Peer(reader, writer)
        peers.append(peer)
        if raw is not None:
            await raw(peer, head)
            return
        await peer.accept(head)
        await serve(peer)

    async def main() -> None:
        async with raw_server(on_connection, tls=tls) as url:
            bench = Bench(url, script, **options)
            await bench.client.open(0)
            try:
                await body(bench)
                await asyncio.sleep(0.02)  # the server hears the goodbye
            finally:
                await bench.client.close()
                bench.clock.close()

    uvloop.run(main())
    return peers[-1]


def one(script: Script, serve: Serve, **options: Any) -> tuple[Exchange, Peer]:
    found: list[Exchange] = []

    async def body(bench: Bench) -> None:
        found.append(await bench.talk())

    peer = play(script, serve, body, **options)
    return found[0], peer


async def answer_and_finish(peer: Peer) -> None:
    await peer.until()
    await peer.text(b"one")
    await peer.binary(bytes(range(256)))
    await peer.text(b"done")
    await peer.until_closed()


ASK = Script("/talk?x=1", headers=(("authorization", "Token k"),), frames=(Message(b"hello", True),), due_ns=(0,))


def test_what_was_said_and_heard_is_exact_and_in_order() -> None:
    exchange, peer = one(ASK, answer_and_finish)
    assert (exchange.status, exchange.error, exchange.code) == (Status.OK, None, 101)
    assert [message for _, message, _ in peer.heard] == [b"hello"]
    assert [(data, text) for _, data, text in messages_of(exchange)] == [
        (b"one", True),
        (bytes(range(256)), False),
        (b"done", True),
    ]
    assert peer.request.path == "/talk?x=1"
    assert peer.request.headers["authorization"] == "Token k"
    assert peer.request.headers["x-request-id"] == "run-0-0"
    assert peer.request.headers["traceparent"] == PARENT.decode()
    assert "Sec-WebSocket-Extensions" not in peer.request.headers
    assert peer.closed_with == 1000


@pytest.mark.alone
def test_messages_carry_the_kernels_stamps_and_lie_after_the_servers_own() -> None:
    exchange, peer = one(ASK, answer_and_finish)
    assert exchange.stamp == Stamp.KERNEL
    marks = exchange.mark_ns.tolist()
    assert marks == sorted(marks)
    for (sent_ns, _), t_ns in zip(peer.sent, marks, strict=True):
        assert sent_ns - 20_000 <= t_ns <= sent_ns + 50 * MS
    assert 0 < exchange.sent_ns <= exchange.first_byte_ns <= exchange.headers_ns <= marks[0] <= exchange.done_ns
    assert exchange.session is not None
    assert exchange.session.open_ns == exchange.headers_ns


@pytest.mark.alone
def test_frames_leave_on_their_deadlines_and_the_closing_at_the_true_end() -> None:
    dues = tuple(range(20 * MS, 220 * MS, 20 * MS))
    script = Script(
        "/live",
        frames=tuple(Message(bytes([i]) * 640) for i in range(10)),
        due_ns=dues,
        closing=(Message(b"close", True),),
        closing_ns=205 * MS,
        frame_ns=20 * MS,
    )

    async def serve(peer: Peer) -> None:
        await peer.until(b"close")
        await peer.text(b"done")
        await peer.until_closed()

    exchange, peer = one(script, serve)
    assert exchange.status == Status.OK
    assert exchange.session is not None
    lags = exchange.session.frame_lag_ns.tolist()
    assert len(lags) == 10
    assert all(lag >= 0 for lag in lags)
    start = exchange.session.media_start_ns
    assert exchange.session.input_end_ns == start + 205 * MS
    arrivals = {data[:1]: t_ns for t_ns, data, text in peer.heard if not text}
    for i, due in enumerate(dues):
        # A frame can't be there before it is due; how much later is the host's business, and on the row.
        assert arrivals[bytes([i])] >= start + due
        assert arrivals[bytes([i])] <= start + due + lags[i] + 100 * MS
    assert [data for _, data, text in peer.heard if text] == [b"close"]


def test_the_microphone_waits_for_the_ready_message() -> None:
    script = Script("/r", opening=(Message(b"setup", True),), waits=True, frames=(Message(b"a"),), due_ns=(0,))
    opened: list[int] = []

    async def serve(peer: Peer) -> None:
        assert await peer.until() == b"setup"
        await asyncio.sleep(0.05)
        assert len(peer.heard) == 1
        opened.append(time.monotonic_ns())
        await peer.text(b"ready")
        await peer.more()
        await peer.text(b"done")
        await peer.until_closed()

    exchange, _ = one(script, serve)
    assert exchange.status == Status.OK
    assert exchange.session is not None
    assert exchange.session.open_ns >= opened[0] - 20_000 > exchange.headers_ns


@pytest.mark.alone
def test_an_endpoint_ends_the_frames_that_nobody_needs() -> None:
    script = Script(
        "/e",
        frames=tuple(Message(bytes([i])) for i in range(40)),
        due_ns=tuple(i * 20 * MS for i in range(40)),
        needed=2,
        closing=(Message(b"close", True),),
        closing_ns=800 * MS,
        frame_ns=20 * MS,
    )

    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"endpoint")
        await peer.until_closed()

    async def body(bench: Bench) -> None:
        exchange, _ = bench.begin()
        await asyncio.sleep(0.3)
        bench.client.cancel(exchange, int(Status.CANCELLED), "enough")
        found.append(exchange)

    found: list[Exchange] = []
    peer = play(script, serve, body)
    said = [data for _, data, _ in peer.heard]
    assert said[-1] == b"close"
    assert 2 <= len(said) - 1 < 12
    assert found[0].session is not None
    assert 0 < found[0].session.input_end_ns < found[0].session.media_start_ns + 800 * MS


def test_fragments_with_a_ping_between_are_one_message_that_came_when_its_last_part_did() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        peer.protocol.send_text(b"wh", fin=False)
        await peer.flush()
        await asyncio.sleep(0.03)
        peer.protocol.send_ping(b"?")
        peer.protocol.send_continuation(b"ole", fin=True)
        peer.sent.append((await peer.flush(), b"whole"))
        await peer.text(b"done")
        await peer.until_closed()

    exchange, peer = one(ASK, serve)
    heard = messages_of(exchange)
    assert [data for _, data, _ in heard] == [b"whole", b"done"]
    assert heard[0][0] >= peer.sent[0][0] - 20_000


@pytest.mark.parametrize(
    ("code", "status"), [(401, Status.HTTP), (403, Status.HTTP), (429, Status.REFUSED), (503, Status.REFUSED)]
)
def test_a_refused_handshake_keeps_its_code_and_text(code: int, status: Status) -> None:
    async def raw(peer: Peer, head: bytes) -> None:
        body = b'{"error": "no free channels"}'
        peer.writer.write(b"HTTP/1.1 %d Nope\r\ncontent-length: %d\r\n\r\n%b" % (code, len(body), body))
        await peer.writer.drain()

    exchange, _ = one(ASK, answer_and_finish, raw=raw)
    assert (exchange.status, exchange.code) == (status, code)
    assert "no free channels" in str(exchange.error)


def test_a_refusal_whose_body_ends_with_the_connection_is_read_too() -> None:
    async def raw(peer: Peer, head: bytes) -> None:
        peer.writer.write(b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\nbad key")
        await peer.writer.drain()
        peer.writer.close()

    exchange, _ = one(ASK, answer_and_finish, raw=raw)
    assert (exchange.status, exchange.code) == (Status.HTTP, 403)
    assert "bad key" in str(exchange.error)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",  # noqa: E501
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
    ],
)
def test_an_answer_that_is_no_upgrade_is_no_session(answer: bytes) -> None:
    async def raw(peer: Peer, head: bytes) -> None:
        peer.writer.write(answer)
        await peer.writer.drain()
        peer.writer.close()

    exchange, _ = one(ASK, answer_and_finish, raw=raw)
    assert exchange.status in (Status.PROTOCOL, Status.HTTP)
    assert exchange.error


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        (1000, "", Status.OK),
        (1008, "DATA-0000", Status.PROTOCOL),
        (1011, "NET-0001", Status.PROTOCOL),
        (1013, "later", Status.REFUSED),
        (3007, "too fast", Status.PROTOCOL),
    ],
)
def test_how_the_server_closes_is_how_the_session_ended(code: int, reason: str, status: Status) -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        peer.protocol.send_close(code, reason)
        await peer.flush()

    exchange, _ = one(ASK, serve)
    assert exchange.status == status
    assert [data for _, data, _ in messages_of(exchange)] == [b"half"]
    if status != Status.OK:
        assert str(code) in str(exchange.error)
        assert reason in str(exchange.error)


def test_a_reset_in_the_middle_keeps_what_was_heard() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        await asyncio.sleep(0.02)
        sock = peer.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER 0: a reset, not an end
        peer.writer.transport.abort()

    exchange, _ = one(ASK, serve)
    assert exchange.status == Status.CONNECT
    assert "in the middle of the session" in str(exchange.error)
    assert [data for _, data, _ in messages_of(exchange)] == [b"half"]


def test_broken_framing_is_a_protocol_error_that_keeps_what_was_heard() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        peer.writer.write(b"\xff\xff\xff\xff")
        await peer.writer.drain()
        await peer.more()

    exchange, _ = one(ASK, serve)
    assert exchange.status == Status.PROTOCOL
    assert [data for _, data, _ in messages_of(exchange)] == [b"half"]


def test_nobody_listening_is_connect() -> None:
    async def main() -> Exchange:
        bench = Bench("http://127.0.0.1:1", ASK)
        await bench.client.open(0)
        try:
            return await bench.talk()
        finally:
            await bench.client.close()
            bench.clock.close()

    exchange = uvloop.run(main())
    assert exchange.status == Status.CONNECT
    assert "refused" in str(exchange.error)


def test_a_server_that_never_finishes_is_a_time_out_that_keeps_what_was_heard_and_says_goodbye() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        await peer.until_closed()

    exchange, peer = one(ASK, serve, timeout_ns=200 * MS)
    assert exchange.status == Status.TIMEOUT
    assert [data for _, data, _ in messages_of(exchange)] == [b"half"]
    assert peer.closed_with == 1000


@pytest.mark.alone
def test_a_handshake_that_is_never_answered_has_the_plain_time_out_however_long_the_script() -> None:
    script = Script("/h", frames=(Message(b"x"),), due_ns=(0,), closing_ns=5_000 * MS, frame_ns=20 * MS)

    async def raw(peer: Peer, head: bytes) -> None:
        await asyncio.sleep(1)

    exchange, _ = one(script, answer_and_finish, raw=raw, timeout_ns=200 * MS)
    assert exchange.status == Status.TIMEOUT
    assert 200 * MS <= exchange.done_ns - exchange.ready_ns < 900 * MS


def test_what_a_script_takes_to_say_is_added_to_the_time_out() -> None:
    script = Script("/l", frames=(Message(b"x"),), due_ns=(400 * MS,), closing_ns=400 * MS, frame_ns=400 * MS)

    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"done")
        await peer.until_closed()

    exchange, _ = one(script, serve, timeout_ns=300 * MS)
    assert (exchange.status, exchange.error) == (Status.OK, None)


def test_a_cancelled_session_leaves_nothing_open() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        await peer.until_closed()

    async def body(bench: Bench) -> None:
        exchange, done = bench.begin()
        await asyncio.sleep(0.1)
        bench.client.cancel(exchange, int(Status.CANCELLED), "enough")
        assert (await done).status == Status.CANCELLED
        bench.client.cancel(exchange, int(Status.TIMEOUT), "again")
        assert exchange.status == Status.CANCELLED

    peer = play(ASK, serve, body)
    assert peer.closed_with == 1000


def test_more_sessions_than_connections_wait_and_all_are_served() -> None:
    async def body(bench: Bench) -> None:
        flights = [bench.begin() for _ in range(7)]
        for _, done in flights:
            assert (await asyncio.wait_for(done, 5)).status == Status.OK
        assert bench.client.stats()["pool_waits"] == 5
        assert bench.client.stats()["pool_wait_p99_ns"] > 0
        assert bench.client.stats()["connections_opened"] == 7

    play(ASK, answer_and_finish, body, max_connections=2)


@pytest.mark.alone
def test_a_peer_that_stops_reading_shows_in_the_unsent_bytes() -> None:
    script = Script(
        "/p",
        frames=tuple(Message(bytes(262_144)) for _ in range(40)),
        due_ns=tuple(i * MS for i in range(40)),
        closing_ns=60 * MS,
        frame_ns=MS,
    )

    async def serve(peer: Peer) -> None:
        await asyncio.sleep(1.0)

    exchange, _ = one(script, serve, timeout_ns=500 * MS)
    assert exchange.status == Status.TIMEOUT
    assert exchange.session is not None
    assert exchange.session.unsent_bytes > 1_000_000


def test_nothing_that_a_server_said_unasked_is_older_than_the_handshake() -> None:
    """As a gRPC server does, whose port was given by mistake: its first bytes come with the connection."""
    found: list[Exchange] = []

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def greet() -> None:
                for _ in range(20):
                    with listening.accept()[0] as connection:
                        connection.sendall(b"220 mail.example\r\n")
                        connection.settimeout(2)
                        while connection.recv(4096):
                            """Until the client has gone."""

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                greeting = pool.submit(greet)
                bench = Bench(f"http://127.0.0.1:{listening.getsockname()[1]}", ASK)
                await bench.client.open(0)
                try:
                    found.extend([await bench.talk() for _ in range(20)])
                finally:
                    await bench.client.close()
                    bench.clock.close()
                greeting.result()

    uvloop.run(main())
    assert {exchange.status for exchange in found} == {Status.PROTOCOL}
    assert all(exchange.sent_ns <= exchange.first_byte_ns <= exchange.done_ns for exchange in found)


@pytest.mark.alone
def test_tls_sessions_work_and_are_stamped_by_the_kernel(tmp_path: Any) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    pem = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(pem))
    found: list[Exchange] = []

    async def main() -> None:
        async def on_connection(head: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            peer = Peer(reader, writer)
            await peer.accept(head)
            await answer_and_finish(peer)

        async with raw_server(on_connection, tls=server) as url:
            bench = Bench(url.replace("http", "wss").replace("wsss", "wss"), ASK, ca_file=str(pem))
            await bench.client.open(0)
            try:
                found.append(await bench.talk())
            finally:
                await bench.client.close()
                bench.clock.close()

    uvloop.run(main())
    assert (found[0].status, found[0].error) == (Status.OK, None)
    assert found[0].stamp == Stamp.KERNEL
