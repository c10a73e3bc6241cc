"""A gRPC client on grpcio: a second, independent implementation of the seam
(``plimsoll.harness.transport.client.Client``).

It passes the tests that our own HTTP/2 passes, so that neither is right only by its own lights. Its arrival times are
taken when Python gets round to it (``stamp = user``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import origin_of
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT
from plimsoll.harness.transport.live.flights import Flights
from plimsoll.harness.transport.live.player import Player
from plimsoll.harness.transport.rpc.call import GrpcDialect, GrpcRequest, answering, hearing, shared_options
from plimsoll.harness.transport.rpc.rpc_outcome import judge
from plimsoll.harness.transport.rpc.rpc_pool import Metadata, checked, timeout_of
from plimsoll.harness.transport.rpc.rpc_stream import end_media, start_media
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Stamp, Status
from plimsoll.slo.verdict.accuracy import Answer

_OK, _CONNECT, _PROTOCOL = int(Status.OK), int(Status.CONNECT), int(Status.PROTOCOL)
_UNAVAILABLE = 14
_HALF_CLOSE = bytes(bytearray(b"half-close"))
#: How grpcio begins its text when it is the connection that could not be made.
_NOT_CONNECTED = ("failed to connect", "DNS resolution failed", "Name resolution failure", "Address lookup failed")
#: ... and when one was cut. It has no other way to tell that from a server that says UNAVAILABLE.
_CUT = (
    "Socket closed",
    "recvmsg:",
    "Connection reset",
    "Broken pipe",
    "Endpoint closing",
    "Transport closed",
    "Stream removed",
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call with its metadata, which may hold credentials."""

    call: GrpcRequest
    metadata: Metadata = field(repr=False)
    live: bool
    timeout_ns: int


class Flight:
    """One call under way: its task, and the call of the library once there is one."""

    __slots__ = ("_client", "_player", "_queue", "_queued", "call", "exchange", "prepared", "task")

    def __init__(self, client: OfficialClient, exchange: Exchange) -> None:
        self._client = client
        self._player: Player | None = None
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queued = 0
        self.exchange: Exchange | None = exchange
        self.prepared: Prepared = exchange.request
        self.call: Any = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, method: Any) -> None:
        """Make the call, to its end; whatever ends it is recorded."""
        exchange, prepared, client = self.exchange, self.prepared, self._client
        if exchange is None:
            return
        request, metadata = prepared.call, list(prepared.metadata)
        if exchange.request_id:
            metadata.append(("x-request-id", exchange.request_id.decode()))
        exchange.sent_ns = client.clock.now_ns()
        exchange.bytes_out = sum(map(len, request.messages))
        writer = None
        try:
            first = () if request.client_streaming else (request.messages[0],)
            self.call = call = method(*first, metadata=metadata, timeout=prepared.timeout_ns / 1e9)
            if exchange.session is not None:
                start_media(exchange.session, request, exchange.sent_ns)
            if request.client_streaming:
                writer = asyncio.ensure_future(self._write_all(call, request, exchange.sent_ns))
            if request.server_streaming:
                while (message := await call.read()) is not client.eof:
                    self._take(bytes(message))
                    if self.exchange is None:
                        return
            else:
                self._take(bytes(await call))
            await self._ended(call)
        except asyncio.CancelledError:
            if self.exchange is not None:  # the call was cancelled by neither us nor the issuer: the server did
                await self._ended(self.call)
        except client.error as error:
            if self.call is None:
                self.finish(_PROTOCOL, f"grpcio would not make the call: {error}")
            else:
                await self._ended(self.call)
        finally:
            if writer is not None:
                writer.cancel()

    async def _write_all(self, call: Any, request: GrpcRequest, start: int) -> None:
        first = request.opening if request.due_ns else len(request.messages)
        for message in request.messages[:first]:
            await call.write(message)
        frames, due_ns = request.messages[first:], request.due_ns[first:]
        closing_ns = max(request.closing_due_ns, due_ns[-1] if due_ns else 0)
        if frames or closing_ns > 0:
            needed = len(frames) if request.needed is None else request.needed
            self._player = Player(
                self._client.clock,
                frames,
                due_ns,
                needed,
                _HALF_CLOSE,
                closing_ns,
                self._put,
                self._unsent,
                request.gap_ns[first:],
            )
            self._player.start(start)
            while (message := await self._queue.get()) is not _HALF_CLOSE:
                await call.write(message)
                self._queued -= len(message)
        await call.done_writing()

    def _put(self, data: bytes) -> int:
        self._queue.put_nowait(data)
        self._queued += len(data) if data is not _HALF_CLOSE else 0
        return self._client.clock.now_ns()

    def _unsent(self) -> int:
        return self._queued

    def _take(self, message: bytes) -> None:
        exchange, now = self.exchange, self._client.clock.now_ns()
        if exchange is None:
            return
        if exchange.first_byte_ns < 0:
            exchange.first_byte_ns = exchange.headers_ns = now
        exchange.body += message
        exchange.bytes_in += len(message)
        exchange.mark_ns.append(now)
        exchange.mark_end.append(len(exchange.body))
        heard = self._client.heard
        said = heard(exchange, message) if heard is not None else 0
        if said == DONE:
            exchange.headers.append((b"grpc-status", b"0"))
            self.call.cancel()
            self.finish(_OK, None)
        elif said == ENDPOINT and self._player is not None:
            self._player.cut()

    async def _ended(self, call: Any) -> None:
        """Keep what the library says of the call's end, in the words of the wire."""
        exchange = self.exchange
        if exchange is None:
            return
        now = self._client.clock.now_ns()
        code, details = await call.code(), await call.details() or ""
        exchange.code = code.value[0]
        initial, trailing = await call.initial_metadata() or (), await call.trailing_metadata() or ()
        for name, value in (*initial, *trailing):
            exchange.headers.append((name.encode(), value if isinstance(value, bytes) else value.encode()))
        if exchange.code == _UNAVAILABLE and details.startswith(_NOT_CONNECTED):
            self.finish(_CONNECT, details, now)
        elif exchange.code == _UNAVAILABLE and details.startswith(_CUT):
            self.finish(_CONNECT if "reset by peer" in details else _PROTOCOL, f"connection closed: {details}", now)
        else:
            exchange.headers.append((b"grpc-status", b"%d" % exchange.code))
            exchange.headers.append((b"grpc-message", details.replace("%", "%25").encode()))
            if exchange.first_byte_ns < 0:
                exchange.first_byte_ns = exchange.headers_ns = now
            self.finish(_OK, None, now)

    def finish(self, status: int, error: str | None, t_ns: int = -1) -> None:
        """Hand the exchange back, once."""
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        exchange.context = None
        exchange.status, exchange.error = status, error
        exchange.done_ns = t_ns if t_ns >= 0 else self._client.clock.now_ns()
        player, self._player = self._player, None  # it holds us, and the garbage collector is off
        if player is not None:
            player.stop()
            if exchange.session is not None:
                end_media(exchange.session, player)
        self._client.over(self, exchange)

    def cancel(self, status: int, error: str) -> None:
        if self.call is not None:
            self.call.cancel()
        self.finish(status, error)
        if self.task is not None:
            self.task.cancel()


class OfficialClient:
    """Sends prepared calls over grpcio."""

    def __init__(self, target: Target, clock: Clock, dialect: GrpcDialect) -> None:
        library: Any = grpc.aio
        self._aio = library
        self.target = target
        self.clock = clock
        self.heard = hearing(dialect)
        self.eof: Any = library.EOF
        self.error: type[Exception] = grpc.RpcError
        self._dialect = dialect
        self._options = shared_options(target.options)
        self._credentials = self._load_credentials()
        self._flights = Flights(clock, self.cancel)
        self._channels: list[Any] = []
        self._methods: dict[tuple[int, str], Any] = {}
        self._running: set[Flight] = set()
        self._turn = 0

    def _load_credentials(self) -> Any:
        target = self.target
        if not origin_of(target.url).tls:
            return None
        context = ssl.create_default_context(cafile=target.ca_file)
        roots = "".join(ssl.DER_cert_to_PEM_cert(cert) for cert in context.get_ca_certs(binary_form=True))
        return grpc.ssl_channel_credentials(root_certificates=roots.encode())

    def encode(self, payload: Payload) -> Prepared:
        request = self._dialect.encode(payload)
        live = bool(request.due_ns) or request.clip is not None or request.frame_ns >= 0
        metadata = checked(request, self.target.headers)
        return Prepared(request, metadata, live, timeout_of(request, self.target.timeout_ns))

    async def open(self, connections: int) -> None:
        """Make the channels, and with ``connections`` wait for them at most the connect timeout."""
        origin = origin_of(self.target.url)
        address = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
        options = [
            ("grpc.use_local_subchannel_pool", 1),  # equal channels would share one connection
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", self._options.max_message),
            ("grpc.max_send_message_length", -1),
            *([("grpc.default_authority", self._options.authority)] if self._options.authority else []),
        ]
        aio = self._aio
        for _ in range(min(self._options.channels, self.target.max_connections or self._options.channels)):
            if self._credentials is None:
                self._channels.append(aio.insecure_channel(address, options=options))
            else:
                self._channels.append(aio.secure_channel(address, self._credentials, options=options))
        if connections:
            ready = [asyncio.ensure_future(channel.channel_ready()) for channel in self._channels]
            _, late = await asyncio.wait(ready, timeout=self.target.connect_timeout_ns / 1e9)
            for task in late:
                task.cancel()

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        prepared: Prepared = exchange.request
        exchange.request_id = request_id if self.target.send_request_id else b""
        exchange.n_in, exchange.media_ns = prepared.call.n_in, prepared.call.media_ns
        exchange.stamp = int(Stamp.USER)
        if prepared.live:
            exchange.session = SessionStamps()
        self._flights.add(exchange, prepared.timeout_ns)
        flight = Flight(self, exchange)
        exchange.context = flight
        self._running.add(flight)
        flight.task = asyncio.ensure_future(flight.run(self._method(prepared.call)))

    def _method(self, call: GrpcRequest) -> Any:
        """The method on the channel whose turn it is."""
        turn = self._turn = (self._turn + 1) % len(self._channels)
        key = (turn, call.method)
        found = self._methods.get(key)
        if found is None:
            kind = f"{'stream' if call.client_streaming else 'unary'}_{'stream' if call.server_streaming else 'unary'}"
            found = self._methods[key] = getattr(self._channels[turn], kind)(call.method)
        return found

    def over(self, flight: Flight, exchange: Exchange) -> None:
        """A call ended."""
        self._running.discard(flight)
        self._flights.land(exchange)

    @property
    def answer(self) -> Callable[[Exchange], Answer | None] | None:
        """How the dialect reads what an accuracy run keeps, if it can."""
        return answering(self._dialect)

    def settle(self, exchange: Exchange) -> None:
        judge(exchange, 200, exchange.request.call.server_streaming)
        self._dialect.settle(exchange)

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        if exchange.on_wire and exchange.context is not None:
            exchange.context.cancel(status, error)

    async def close(self) -> None:
        """Cancel what is under way and close every channel."""
        for flight in list(self._running):
            flight.exchange = None
            if flight.task is not None:
                flight.task.cancel()
        self._running.clear()
        for channel in self._channels:
            await channel.close(0)
        self._channels.clear()
        self._methods.clear()

    def stats(self) -> dict[str, Any]:
        """Counters for generator.json; the library tells nothing of its connections."""
        return {
            "engine": "grpcio",
            "connections_opened": len(self._channels),
            "retried_on_stale_connection": 0,
            "pool_waits": 0,
            "pool_wait_p99_ns": 0,
            "kernel_reads": 0,
            "user_reads": 0,
            "clock_steps": 0,
            "stamps_refused": 0,
            "exhausted": {},
        }
