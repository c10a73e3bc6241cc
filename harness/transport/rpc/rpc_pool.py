"""This client makes gRPC calls on our own HTTP/2, which share a few stamped connections or have one each.

Hot world. Request bytes are made before t0 but for the request id and the stream's number. A call beyond the server's
limit of concurrent streams waits here, and the wait counts in its latency.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plimsoll.harness.clock import Clock, WallMap
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.process.vitals import Durations
from plimsoll.harness.transport.client import OPENING, Target
from plimsoll.harness.transport.endpoint import Endpoint, locate, origin_of
from plimsoll.harness.transport.live.flights import Flights
from plimsoll.harness.transport.rpc.call import (
    GrpcDialect,
    GrpcOptions,
    GrpcRequest,
    Metadata,
    answering,
    hearing,
    metadata_error,
    method_error,
    shared_options,
)
from plimsoll.harness.transport.rpc.channel import Channel
from plimsoll.harness.transport.rpc.rpc_outcome import judge, put_headers, reset_status
from plimsoll.harness.transport.rpc.rpc_stream import Prepared
from plimsoll.harness.transport.stream import Readers
from plimsoll.harness.transport.uplink import Uplinks
from plimsoll.harness.wire.grpc_messages import prefixed
from plimsoll.harness.wire.hpack_blocks import BlockDecoder, BlockError, Headers, request_block
from plimsoll.harness.wire.http2_frames import REFUSED_STREAM
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status

if TYPE_CHECKING:
    from plimsoll.slo.verdict.accuracy import Answer

_OK, _CONNECT, _PROTOCOL = int(Status.OK), int(Status.CONNECT), int(Status.PROTOCOL)
#: How often a call that the server refused to begin is sent again, the first time after so long, then four times as
#: long.
_REFUSALS, _AGAIN_NS = 3, 1_000_000


#: Units of grpc-timeout, in ns.
_UNITS = ((1, "n"), (1_000, "u"), (1_000_000, "m"), (1_000_000_000, "S"), (60 * 10**9, "M"), (3600 * 10**9, "H"))


class GrpcClient:
    """Sends prepared calls to one origin and stamps what comes back."""

    def __init__(self, target: Target, clock: Clock, dialect: GrpcDialect) -> None:
        options = shared_options(target.options)
        self.target = target
        self.clock = clock
        self.heard = hearing(dialect)
        self.max_message = options.max_message
        self._dialect = dialect
        self._own = options.own_connection
        self._encoder = Encoder(target, options)
        self._decoder = BlockDecoder()
        limit = target.max_connections or (1 << 30)
        self._limit = limit if self._own else min(limit, options.channels)
        self._by_streams = not self._own and limit >= options.channels  # what calls wait for is the server's limit
        self._channels: deque[Channel] = deque()  # those that take calls, or will; the next one's turn is first
        self._idle: dict[Channel, None] = {}  # with own connections: in order of becoming idle
        self._draining: set[Channel] = set()
        self._waiting: deque[Exchange] = deque()
        self._tries: dict[Exchange, int] = {}  # how often a call was sent in vain, if it was
        self._flights = Flights(clock, self.cancel)
        self._pool_waits = Durations()
        self._opened = self._retried = self._refused = self._refused_calls = self._goaways = 0
        self.readers: Readers
        self.endpoint: Endpoint

    def encode(self, payload: Payload) -> Prepared:
        return self._encoder.prepare(self._dialect.encode(payload))

    async def open(self, connections: int) -> None:
        """Resolve the host and open the channels (with own connections, ``connections`` of them); wait for them at most
        the connect timeout.
        """
        self.readers = Readers(
            asyncio.get_running_loop(), WallMap(), self.target.stamps == "kernel", self._flights.relieve,
            Uplinks.of(self.clock, self.target.impair),
        )  # fmt: skip
        self.endpoint = await locate(self.target, "h2")
        left = (min(connections, self._limit) if self._own else self._limit) if connections else 0
        give_up_ns = self.clock.now_ns() + self.target.connect_timeout_ns
        opening = 0
        while (left or opening) and self.clock.now_ns() < give_up_ns:
            for _ in range(more := min(left, OPENING - opening)):
                self._connect()
            left -= more
            await asyncio.sleep(0.001)
            opening = sum(not channel.ready for channel in self._channels)

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        prepared: Prepared = exchange.request
        call = prepared.call
        exchange.request_id = request_id if self.target.send_request_id else b""
        exchange.n_in, exchange.media_ns = call.n_in, call.media_ns
        if prepared.live:
            exchange.session = SessionStamps()
        self._flights.add(exchange, prepared.timeout_ns)
        self._place(exchange)

    def _place(self, exchange: Exchange) -> None:
        """Put an exchange on a channel that has room, on one that is being opened, or in the queue."""
        if self._own:
            if self._idle:
                self._idle.popitem()[0].begin(exchange)
            elif len(self._channels) < self._limit:
                self._connect().waiting.append(exchange)
            else:
                self._waiting.append(exchange)
            return
        channels = self._channels
        if len(channels) < self._limit:
            self._connect()  # in place of one that is gone
        for _ in range(len(channels)):
            channel = channels[0]
            if len(channels) > 1:
                channels.rotate(-1)
            if channel.session.room > 0:
                channel.begin(exchange)
                return
        opening = [channel for channel in channels if not channel.ready]
        queue = min((channel.waiting for channel in opening), key=len) if opening else self._waiting
        queue.append(exchange)

    @property
    def answer(self) -> Callable[[Exchange], Answer | None] | None:
        """How the dialect reads what an accuracy run keeps, if it can."""
        return answering(self._dialect)

    @property
    def response(self) -> Any:
        """The type of an answer's messages, if the dialect has one: a class of protobuf's."""
        return getattr(self._dialect, "response", None)

    def settle(self, exchange: Exchange) -> None:
        """Judge the call, and let the dialect read its messages."""
        self.judge(exchange)
        self._dialect.settle(exchange)

    def judge(self, exchange: Exchange) -> None:
        """Decode the header blocks, if they are not yet, and judge the call by them."""
        known = exchange.code >= 0 or exchange.status != _OK
        if known and exchange.headers and all(name for name, _ in exchange.headers):
            return  # as soon as it had ended
        many = exchange.request.call.server_streaming
        found, exchange.headers = exchange.headers, []
        http_status = -1
        try:
            for name, block in found:
                headers = self._decoder.decode(block) if not name else ((name, block),)
                code = _http_status(headers)
                if 100 <= code < 200:
                    continue  # an interim answer
                http_status = code if code >= 0 else http_status
                put_headers(exchange, headers)
        except BlockError as error:
            if exchange.status == _OK:
                exchange.status, exchange.error = _PROTOCOL, str(error)
        judge(exchange, http_status, many)

    def is_page(self, exchange: Exchange) -> bool:
        """The headers that came are a web server's or a proxy's. Only asked when a body is no gRPC."""
        for _, block in exchange.headers:
            try:
                headers = self._decoder.decode(block)
            except BlockError:
                return False
            code, kind = _http_status(headers), dict(headers).get(b"content-type", b"")
            if code >= 200:
                return code != 200 or not kind.lower().startswith(b"application/grpc")
        return False

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        if not exchange.on_wire:
            return
        call = exchange.context
        if call is not None:
            call.cancel(status, error, self.clock.now_ns())
        else:
            self._has_waited(exchange)
            self.give_up(exchange, status, error, self.clock.now_ns())

    async def close(self) -> None:
        """Close every connection."""
        for channel in [*self._channels, *self._draining]:
            channel.close()
        self._channels.clear()
        self._idle.clear()
        self._draining.clear()
        if hasattr(self, "readers"):  # it was opened
            self.readers.close()
        await asyncio.sleep(0)

    def stats(self) -> dict[str, Any]:
        """Counters for generator.json."""
        readers = self.readers
        return {
            "engine": "python",
            "connections_opened": self._opened,
            "retried_on_stale_connection": self._retried,
            "retried_on_refused_stream": self._refused,
            "calls_refused_and_retried": self._refused_calls,
            "goaways": self._goaways,
            "pool_waits": self._pool_waits.count,
            "pool_wait_p99_ns": self._pool_waits.p99_ns(),
            "stream_waits": self._pool_waits.count if self._by_streams else 0,
            "kernel_reads": readers.kernel_reads,
            "user_reads": readers.user_reads,
            "clock_steps": readers.wall.steps,
            "stamps_refused": readers.wall.refused,
            "exhausted": dict(readers.exhausted),
            **({} if readers.uplinks is None else {"uplink": readers.uplinks.counts}),
        }

    # -- between the client and its channels --------------------------------------------------------------------

    def _connect(self) -> Channel:
        channel = Channel(self, self.clock.now_ns(), self.target.connect_timeout_ns)
        self._channels.append(channel)
        self._opened += 1
        channel.connect()
        self.clock.wake_at(channel.deadline_ns, lambda: self._connect_timed_out(channel))
        return channel

    def _connect_timed_out(self, channel: Channel) -> None:
        if channel.ready or channel.draining:
            return
        now, limit = self.clock.now_ns(), self.target.connect_timeout_ns
        if channel.try_next_address(now, limit):
            self.clock.wake_at(channel.deadline_ns, lambda: self._connect_timed_out(channel))
            return
        what = "no HTTP/2 settings from the server" if channel.connected else "no connection"
        channel.on_lost(f"{what} after {limit / 1e9:g} s (connect timeout)", now, False)

    def channel_ready(self, channel: Channel, t_ns: int) -> None:
        """Its first settings came: those who wait for it can go."""
        waiting = channel.waiting
        while waiting and channel.session.room > 0:
            exchange = waiting.popleft()
            if exchange.on_wire:
                exchange.connect_ns = min(t_ns - channel.opening_ns, max(0, t_ns - exchange.ready_ns))
                channel.begin(exchange)
        self._waiting.extend(waiting)  # more than the server takes at once
        waiting.clear()
        self.channel_has_room(channel)

    def channel_has_room(self, channel: Channel) -> None:
        """The longest waiting exchanges take the places."""
        most = 1 if self._own else 1 << 30
        waiting = self._waiting
        while waiting and len(channel.calls) < most and channel.session.room > 0:
            exchange = waiting.popleft()
            if exchange.on_wire:
                self._has_waited(exchange)
                channel.begin(exchange)
        if self._own and not channel.calls and channel.session.room > 0:
            self._idle[channel] = None

    def channel_draining(self, channel: Channel) -> None:
        """No new calls for this one. It may be said more than once."""
        if channel in self._channels:
            self._channels.remove(channel)
            self._goaways += channel.ready and channel.connected
        self._idle.pop(channel, None)
        if channel.calls:
            self._draining.add(channel)
        else:
            self._draining.discard(channel)
        if self._waiting and len(self._channels) < self._limit:
            waiting = self._waiting
            self._waiting = deque()
            for exchange in waiting:
                if exchange.on_wire and channel.ready and not channel.used:
                    self.retry(exchange, "it took no call at all")  # or we would connect for ever
                elif exchange.on_wire:
                    self._place(exchange)

    def _has_waited(self, exchange: Exchange) -> None:
        if exchange.sent_ns < 0:
            self._pool_waits.add(self.clock.now_ns() - exchange.ready_ns)

    def retry(self, exchange: Exchange, why: str) -> None:
        """The server never began this call: once more, on another connection, but not twice."""
        if exchange in self._tries:
            text = f"the server refused the call on two connections: {why}"
            self.give_up(exchange, _CONNECT, text, self.clock.now_ns())
            return
        self._tries[exchange] = 1
        self._retried += 1
        self._place(exchange)

    def refused(self, exchange: Exchange, limited: bool, t_ns: int) -> None:
        """REFUSED_STREAM: nothing was begun (RFC 9113 section 8.7). A server that limits concurrent streams counts one
        that has ended a moment longer than we do, so it gets the call again, a few times; one that sheds load refuses
        those too.
        """
        tries = self._tries.get(exchange, 0)
        if limited and tries < _REFUSALS:
            self._tries[exchange] = tries + 1
            self._refused += 1
            self._refused_calls += not tries
            self.clock.wake_at(
                t_ns + (_AGAIN_NS << 2 * tries), lambda: self._place(exchange) if exchange.on_wire else None
            )
            return
        status, exchange.code, text = reset_status(REFUSED_STREAM)
        self.give_up(exchange, status, text, t_ns)

    def give_up(self, exchange: Exchange, status: int, error: str, t_ns: int) -> None:
        """End an exchange that is on no call."""
        exchange.status = status
        exchange.error = error
        exchange.done_ns = t_ns
        self.finished(exchange)

    def finished(self, exchange: Exchange) -> None:
        """Hand an exchange back, exactly once."""
        if self._tries:
            self._tries.pop(exchange, None)
        self._flights.land(exchange)


def _http_status(headers: Headers) -> int:
    """The ``:status`` of a header block, -1 if it has none."""
    if headers and headers[0][0] == b":status" and headers[0][1].isdigit() and len(headers[0][1]) == 3:
        return int(headers[0][1])
    return -1


# -- a call as bytes, made before t0 ---------------------------------------------------------------------------


class Encoder:
    """Makes the calls of one target ready to write."""

    __slots__ = ("_authority", "_headers", "_timeout_ns", "_tls")

    def __init__(self, target: Target, options: GrpcOptions) -> None:
        origin = origin_of(target.url)
        self._tls = origin.tls
        self._authority = options.authority or origin.authority
        self._headers = target.headers
        self._timeout_ns = target.timeout_ns

    def prepare(self, request: GrpcRequest) -> Prepared:
        """The call as bytes. Raises HarnessFault with everything that can't be sent."""
        metadata = checked(request, self._headers)
        timeout_ns = timeout_of(request, self._timeout_ns)
        headers = [
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-accept-encoding", "identity"),
            ("grpc-timeout", timeout_text(timeout_ns)),
        ]
        if not any(name == "user-agent" for name, _ in metadata):
            headers.append(("user-agent", "plimsoll"))
        headers += [(name, _ascii(value)) for name, value in metadata]
        block = request_block(request.method, self._authority, self._tls, headers)
        first = request.opening if request.due_ns else len(request.messages)
        frames = tuple(prefixed(message) for message in request.messages[first:])
        return Prepared(
            call=replace(request, messages=()),  # they would be kept twice
            block=block,
            opening=b"".join(prefixed(message) for message in request.messages[:first]),
            frames=frames,
            due_ns=tuple(request.due_ns[first:]),
            gap_ns=tuple(request.gap_ns[first:]),
            whole=not frames and request.closing_due_ns <= 0,
            live=bool(frames) or request.clip is not None or request.frame_ns >= 0,
            timeout_ns=timeout_ns,
        )


def checked(request: GrpcRequest, headers: tuple[tuple[str, str], ...]) -> Metadata:
    """The metadata of a call: its own, and the target's headers that it doesn't replace.

    Raises HarnessFault with every error.
    """
    given = {name for name, _ in request.metadata}
    extra = tuple((name.lower(), value.strip()) for name, value in headers if name.lower() not in given)
    errors = [error for name, value in request.metadata if (error := metadata_error(name, value))]
    for name, value in extra:
        try:
            error = metadata_error(name, decoded(value) if name.endswith("-bin") else value)
        except ValueError:
            error = f"metadata {name!r}: its value is not base64. Encode it"
        errors += [f"target.headers: {error}"] if error else []
    path = method_error(request.method)
    errors += [path] if path else []
    count = len(request.messages)
    if not request.client_streaming and count != 1:
        errors.append(f"{request.method}: it takes one message, and the payload makes {count}")
    if request.due_ns and len(request.due_ns) != count:
        errors.append(f"{request.method}: {count} messages have {len(request.due_ns)} due times")
    if request.gap_ns and len(request.gap_ns) != len(request.due_ns):
        errors.append(f"{request.method}: {len(request.due_ns)} due times have {len(request.gap_ns)} gaps")
    if errors:
        raise HarnessFault(errors)
    return (*request.metadata, *((name, decoded(value) if name.endswith("-bin") else value) for name, value in extra))


def timeout_of(request: GrpcRequest, target_ns: int) -> int:
    """How long a call may take: its deadline, and the time that its own schedule takes."""
    allowed = request.deadline_ns if request.deadline_ns > 0 else target_ns
    return allowed + max(0, request.closing_due_ns, *request.due_ns[-1:])


def timeout_text(timeout_ns: int) -> str:
    """A grpc-timeout: at most eight digits and a unit, rounded up."""
    for size, unit in _UNITS:
        count = -(-max(timeout_ns, 1) // size)
        if count < 10**8:
            return f"{count}{unit}"
    return "99999999H"


def decoded(value: str) -> bytes:
    """The bytes of base64, padded or not. Raises ValueError."""
    return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)


def _ascii(value: str | bytes) -> str:
    """A value as it is written: -bin values in base64 without padding."""
    return value if isinstance(value, str) else base64.b64encode(value).decode().rstrip("=")
