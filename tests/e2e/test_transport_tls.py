"""Neither TLS nor short connections lose the kernel's stamp: an encrypted byte is stamped where a plain one is.

The server is a thread that seals its records in memory, so that a test decides which bytes leave in which segment. It
notes the monotonic time before and after each ``send``; on loopback a segment arrives within that call. A stamp is
right if it is at most 0.1 ms earlier (the error of the clock map) and 1 ms later. Real time; each test is over in two
seconds.
"""

from __future__ import annotations

import _ssl
import asyncio
import contextlib
import ctypes
import ctypes.util
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
import uvloop

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.openai import settle_stream
from plimsoll.slo.records.records import Stamp, Status
from tests.e2e.test_transport import Bench, Plain, scripted, server_context
from tests.raw_server import answer, raw_server

pytestmark = pytest.mark.e2e

EARLY_NS, LATE_NS = 100_000, 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
END = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_LAST), _LAST)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Sent = tuple[int, int]


def token(i: int) -> bytes:
    """One chunk that holds one token event."""
    event = b'data: {"choices":[{"delta":{"content":"%d"},"finish_reason":null}]}\n\n' % i
    return b"%x\r\n%s\r\n" % (len(event), event)


class Tokens(Plain):
    """A fixed request whose answer is a chat stream."""

    def settle(self, exchange: Exchange) -> None:
        settle_stream(exchange)


class Peer:
    """One accepted connection: TLS by hand, segments by hand."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.settimeout(5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.sent: list[Sent] = []

    def handshake(self) -> bytes:
        """Until it is done; gives what TLS 1.3 would send of its own accord then: the session tickets."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.sock.sendall(self._out.read())
                self._in.write(self.sock.recv(65536))
        return self._out.read()

    def request(self) -> bytes:
        """The next request; b"" at the end of the stream."""
        data = b""
        while not data.endswith(b"\r\n\r\nhello"):
            try:
                data += self._tls.read(65536)
            except ssl.SSLWantReadError:
                received = self.sock.recv(65536)
                if not received:
                    return b""
                self._in.write(received)
        return data

    def seal(self, data: bytes) -> bytes:
        """The data as one TLS record."""
        self._tls.write(data)
        return self._out.read()

    def send(self, raw: bytes) -> None:
        """Bytes as they are, in one segment; the time before and after is noted in ``sent``."""
        before = time.monotonic_ns()
        self.sock.sendall(raw)
        self.sent.append((before, time.monotonic_ns()))

    def goodbye(self) -> bytes:
        """The close_notify alert."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._out.read()


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run ``serve`` in a thread for each connection, one after the other; yields the port.

    Its errors are raised here.
    """
    errors: list[BaseException] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            with sock:
                try:
                    serve(sock)
                except BaseException as error:  # noqa: BLE001 - it is raised by the test's own thread
                    errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        thread.join(10)
        listener.close()
    if errors:
        raise errors[0]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    ca = trustme.CA()
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return ca, path


class Play:
    """A script for the server's side and a test for the client's, over one kind of TLS."""

    def __init__(self, authority: tuple[trustme.CA, Path], version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        ca, self._ca_file = authority
        self.context = server_context(ca)
        self.context.minimum_version = self.context.maximum_version = version
        self.sent: list[Sent] = []
        self.connections = 0

    def serve(self, script: Callable[[Peer, bytes], None]) -> Callable[[socket.socket], None]:
        """``script(peer, tickets)`` after the handshake of each connection."""

        def talk(sock: socket.socket) -> None:
            self.connections += 1
            peer = Peer(sock, self.context)
            peer.sent = self.sent
            script(peer, peer.handshake())

        return talk

    def run(
        self,
        serve: Callable[[socket.socket], None],
        body: Callable[[Bench], Awaitable[None]],
        stamping: bool = True,
    ) -> None:
        with listening(serve) as port:

            async def main() -> None:
                bench = Bench(f"https://127.0.0.1:{port}", Tokens(), ca_file=str(self._ca_file))
                await bench.client.open(0)
                bench.client.readers.stamping = stamping
                await asyncio.sleep(0.05)  # the kernel switches its stamping on in the background
                try:
                    await body(bench)
                finally:
                    await bench.close()

            uvloop.run(main())


def assert_arrived(times: list[int], sent: list[Sent]) -> None:
    """Each time lies within the ``send`` that carried the bytes."""
    assert len(times) == len(sent)
    off = [(t_ns - before, t_ns - after) for t_ns, (before, after) in zip(times, sent, strict=True)]
    assert all(past_before >= -EARLY_NS and past_after <= LATE_NS for past_before, past_after in off), off


def settled(bench: Bench, exchange: Exchange) -> list[int]:
    """The chunk times of a stream that must be a success with kernel stamps only."""
    bench.client.settle(exchange)
    assert (exchange.status, exchange.error) == (Status.OK, None)
    assert exchange.stamp == Stamp.KERNEL
    assert bench.client.stats()["user_reads"] == 0
    return list(exchange.chunk_ns)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
@pytest.mark.alone
def test_every_token_of_a_tls_stream_has_the_kernels_stamp_of_its_arrival(
    authority: tuple[trustme.CA, Path], version: ssl.TLSVersion
) -> None:
    play = Play(authority, version)

    def script(peer: Peer, tickets: bytes) -> None:
        peer.sock.sendall(tickets)
        while peer.request():
            for i in range(20):
                peer.send(peer.seal((HEAD if i == 0 else b"") + token(i)))
                time.sleep(0.005)
            peer.sock.sendall(peer.seal(END))

    async def body(bench: Bench) -> None:
        for _ in range(3):
            play.sent.clear()
            exchange = await bench.get()
            times = settled(bench, exchange)
            assert_arrived(times, play.sent)
            assert exchange.sent_ns < exchange.first_byte_ns == exchange.first_token_ns == times[0]
            assert exchange.done_ns <= time.monotonic_ns()
        assert play.connections == 1

    play.run(play.serve(script), body)


async def lateness(bench: Bench, play: Play) -> tuple[Exchange, list[int]]:
    """One stream read by a loop that is blocked for 40 ms at a time; how late each token's stamp is, in ns."""
    play.sent.clear()
    pending = asyncio.ensure_future(bench.get())
    while not pending.done():
        time.sleep(0.04)  # that the loop is blocked is the point
        await asyncio.sleep(0.001)
    exchange = pending.result()
    bench.client.settle(exchange)
    assert exchange.status == Status.OK
    return exchange, [t_ns - after for t_ns, (_, after) in zip(exchange.chunk_ns, play.sent, strict=True)]


@pytest.mark.alone
def test_a_blocked_loop_makes_userland_stamps_late_and_kernel_stamps_not(authority: tuple[trustme.CA, Path]) -> None:
    def script(peer: Peer, tickets: bytes) -> None:
        peer.sock.sendall(tickets)
        while peer.request():
            for i in range(9):
                time.sleep(0.07)  # more than a block: one token a read
                peer.send(peer.seal((HEAD if i == 0 else b"") + token(i)))
            time.sleep(0.07)
            peer.sock.sendall(peer.seal(END))

    kernel, user = Play(authority), Play(authority)

    async def by_kernel(bench: Bench) -> None:
        exchange, late = await lateness(bench, kernel)
        assert exchange.stamp == Stamp.KERNEL
        assert_arrived(list(exchange.chunk_ns), kernel.sent)
        assert max(late) < LATE_NS

    async def by_userland(bench: Bench) -> None:
        exchange, late = await lateness(bench, user)
        assert exchange.stamp == Stamp.USER
        assert max(late) > 10 * LATE_NS  # nine arrivals somewhere within blocks of 40 ms

    kernel.run(kernel.serve(script), by_kernel)
    user.run(user.serve(script), by_userland, stamping=False)


@pytest.mark.parametrize("at", [3, 5, 40, -1], ids=["in its header", "after its header", "in its middle", "at its end"])
@pytest.mark.alone
def test_a_record_split_over_two_segments_is_stamped_by_the_later_one(
    authority: tuple[trustme.CA, Path], at: int
) -> None:
    """Not a byte of a record can be read before its last one: until then it has not arrived."""
    play = Play(authority)

    def script(peer: Peer, tickets: bytes) -> None:
        peer.sock.sendall(tickets)
        while peer.request():
            whole, split = peer.seal(HEAD + token(0)), peer.seal(token(1))
            peer.send(whole + split[:at])  # the first token is complete in the segment that begins the second
            time.sleep(0.02)
            peer.send(split[at:])
            time.sleep(0.02)
            peer.send(peer.seal(token(2)) + peer.seal(token(3)))  # two records in one segment: one time
            time.sleep(0.02)
            peer.sock.sendall(peer.seal(END))

    async def body(bench: Bench) -> None:
        for _ in range(3):
            play.sent.clear()
            times = settled(bench, await bench.get())
            assert_arrived(times[:3], play.sent)
            assert times[3] == times[2]

    play.run(play.serve(script), body)


@pytest.mark.alone
def test_session_tickets_are_no_bytes_of_an_answer_and_cost_no_stamp(authority: tuple[trustme.CA, Path]) -> None:
    """The tickets of the handshake come before the answer, one in the segment that begins its first record."""
    play = Play(authority)
    play.context.num_tickets = 3

    def script(peer: Peer, tickets: bytes) -> None:
        size = len(tickets) // 3
        peer.request()
        peer.sock.sendall(tickets[: size + 10])  # one, and the beginning of the next
        time.sleep(0.02)
        first = peer.seal(HEAD + token(0))
        peer.sock.sendall(tickets[size + 10 :] + first[:20])
        time.sleep(0.02)
        peer.send(first[20:])
        time.sleep(0.02)
        peer.send(peer.seal(token(1)))
        peer.sock.sendall(peer.seal(END))
        peer.request()

    async def body(bench: Bench) -> None:
        exchange = await bench.get()
        assert_arrived(settled(bench, exchange), play.sent)
        assert exchange.first_byte_ns == exchange.first_token_ns  # the tickets 40 and 20 ms earlier were no first byte
        assert play.connections == 1

    play.run(play.serve(script), body)


@pytest.mark.parametrize("notify", [True, False], ids=["close_notify", "a bare end"])
def test_a_body_that_ends_with_the_connection_needs_a_close_notify(
    authority: tuple[trustme.CA, Path], notify: bool
) -> None:
    """Anyone on the path can end a TCP connection; only the server can say close_notify (RFC 9112, section 9.8)."""
    play = Play(authority)

    def script(peer: Peer, tickets: bytes) -> None:
        peer.sock.sendall(tickets)
        peer.request()
        peer.send(peer.seal(b"HTTP/1.1 200 OK\r\n\r\n" + b"half of it"))
        if notify:
            peer.sock.sendall(peer.goodbye())

    async def body(bench: Bench) -> None:
        exchange = await bench.get()
        assert bytes(exchange.body) == b"half of it"
        assert exchange.status == (Status.OK if notify else Status.PROTOCOL)
        assert notify or "without close_notify" in (exchange.error or "")

    play.run(play.serve(script), body)


def test_a_tls_connection_that_can_not_be_written_to_is_replaced_and_nothing_is_raised(
    authority: tuple[trustme.CA, Path],
) -> None:
    class Broken:
        def write(self, data: bytes) -> int:
            error = ssl.SSLError(1, "protocol is shutdown")
            error.reason = "PROTOCOL_IS_SHUTDOWN"
            raise error

    play = Play(authority)

    def script(peer: Peer, tickets: bytes) -> None:
        peer.sock.sendall(tickets)
        while peer.request():
            peer.send(peer.seal(OK))

    async def body(bench: Bench) -> None:
        assert (await bench.get()).status == Status.OK
        connection = next(iter(bench.client._all))
        connection._stream._tls = cast(Any, Broken())
        exchange = await bench.get()
        assert (exchange.status, exchange.stamp) == (Status.OK, Stamp.KERNEL)
        assert (bench.client.retried, play.connections) == (1, 2)

    play.run(play.serve(script), body)


@pytest.mark.alone
def test_a_server_that_closes_after_each_answer_costs_no_stamp() -> None:
    """The kernel stamps only while some socket asks: between two connections there must be one that does."""

    async def main() -> None:
        async with raw_server(scripted(answer(b"ok", b"connection: close\r\n"))) as url:
            bench = Bench(url, Plain())
            await bench.client.open(0)
            await asyncio.sleep(0.05)
            for _ in range(30):
                assert (await bench.get()).stamp == Stamp.KERNEL
                await asyncio.sleep(0.02)
            assert bench.client.opened == 30
            await bench.close()

    uvloop.run(main())


# -- key updates and late tickets: Python's ssl can't send them, OpenSSL can ----------------------------------------


def openssl() -> Any:
    """The library that Python's own ssl module uses, or the system's."""
    path = getattr(_ssl, "__file__", None) or ctypes.util.find_library("ssl")
    try:
        library: Any = ctypes.CDLL(path)
        for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
    except (OSError, AttributeError, TypeError):
        pytest.skip("OpenSSL can't be called from here")
    return library


class UpdatingPeer:
    """A server that sends a key update (and asks for one) and a new ticket before, between and after its records."""

    def __init__(self, library: Any, pem: Path) -> None:
        self._ssl = library
        self._context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_server_method())))
        assert library.SSL_CTX_use_certificate_chain_file(self._context, str(pem).encode()) == 1
        assert library.SSL_CTX_use_PrivateKey_file(self._context, str(pem).encode(), 1) == 1
        self.sent: list[Sent] = []
        self.updates = 0
        self.connections = 0

    def _update(self, tls: ctypes.c_void_p) -> None:
        for ask in (lambda: self._ssl.SSL_key_update(tls, 1), lambda: self._ssl.SSL_new_session_ticket(tls)):
            assert ask() == 1
            assert self._ssl.SSL_do_handshake(tls) == 1
        self.updates += 1

    def _write(self, tls: ctypes.c_void_p, data: bytes) -> None:
        before = time.monotonic_ns()
        assert self._ssl.SSL_write(tls, data, len(data)) == len(data)
        self.sent.append((before, time.monotonic_ns()))

    def serve(self, sock: socket.socket) -> None:
        self.connections += 1
        sock.settimeout(None)  # OpenSSL has the descriptor: it must block
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = ctypes.c_void_p(self._ssl.SSL_new(self._context))
        assert self._ssl.SSL_set_fd(tls, sock.fileno()) == 1
        assert self._ssl.SSL_accept(tls) == 1
        room = ctypes.create_string_buffer(65536)
        while self._ssl.SSL_read(tls, room, len(room)) > 0:  # one read a request: it is one record
            self._update(tls)
            time.sleep(0.01)
            for i in range(3):
                self._write(tls, (HEAD if i == 0 else b"") + token(i))
                self._update(tls)
                time.sleep(0.01)
            assert self._ssl.SSL_write(tls, END, len(END)) == len(END)
            self._update(tls)
        self._ssl.SSL_free(tls)


@pytest.mark.alone
def test_key_updates_are_answered_and_they_and_late_tickets_cost_no_stamp(
    authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    pem = tmp_path / "server.pem"
    authority[0].issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    peer = UpdatingPeer(openssl(), pem)

    async def body(bench: Bench) -> None:
        for _ in range(4):  # requests after the first one are written with the client's new keys
            peer.sent.clear()
            exchange = await bench.get()
            assert_arrived(settled(bench, exchange), peer.sent)
            assert exchange.first_byte_ns == exchange.first_token_ns
            await asyncio.sleep(0.02)
        assert peer.connections == 1
        assert peer.updates == 20

    Play(authority).run(peer.serve, body)
