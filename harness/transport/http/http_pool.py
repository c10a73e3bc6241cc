"""The HTTP/1.1 client: a pool of stamped connections to one origin, one request in flight on each.

Hot world. Keep-alive connections are taken last-in first-out; a new one is opened whenever none is idle (an open loop
never waits for another request's answer) up to ``max_connections``, then requests queue here and the wait counts in
their latency. What a response means is the dialect's business, after the exchange.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from plimsoll.harness.clock import Clock, WallMap
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.process.vitals import Durations
from plimsoll.harness.transport.client import OPENING, Target
from plimsoll.harness.transport.endpoint import Endpoint, locate, origin_of, was_reset
from plimsoll.harness.transport.held import relieve
from plimsoll.harness.transport.http.dialect import Dialect, PlainSuccess
from plimsoll.harness.transport.stream import Readers, Stream
from plimsoll.harness.transport.uplink import Uplinks
from plimsoll.harness.wire.http1 import ResponseReader, WireError
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status

_OK, _TIMEOUT, _CONNECT = int(Status.OK), int(Status.TIMEOUT), int(Status.CONNECT)
_PROTOCOL, _UNFINISHED = int(Status.PROTOCOL), int(Status.UNFINISHED)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to write: ``prefix + request id + suffix``; a trace context goes with the id, or in its place."""

    prefix: bytes = field(repr=False)  # it may hold credentials
    suffix: bytes
    n_in: int
    media_ns: int
    head: bool
    clip: Clip | None = field(default=None, repr=False, compare=False)
    n_asked: int = -1


class Connection:
    """One keep-alive connection: a stream, a response reader and the exchange that is on it, if any."""

    __slots__ = ("_before", "_client", "_reader", "_stream", "deadline_ns", "exchange", "opening_ns", "reused")

    def __init__(self, client: HttpClient, exchange: Exchange | None, now_ns: int) -> None:
        self._client = client
        self._reader = ResponseReader()
        self._stream = Stream(client.readers, client.endpoint, self)
        self.exchange = exchange
        self.opening_ns = now_ns
        self.deadline_ns = now_ns + client.target.connect_timeout_ns // len(client.endpoint.addresses)
        self.reused = False
        self._before = 0

    def connect(self) -> None:
        self._stream.connect()

    def try_next_address(self, now_ns: int) -> bool:
        """This address does not answer: try the host's next one, if it has one."""
        self.deadline_ns = now_ns + self._client.target.connect_timeout_ns // len(self._client.endpoint.addresses)
        return self._stream.try_next_address()

    def begin(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.context = self
        prepared = exchange.request
        self._reader.start(exchange, prepared.head)
        data = b"".join((prepared.prefix, exchange.request_id, prepared.suffix))
        exchange.bytes_out = len(data)
        self._before = self._stream.taken
        stamp = self._stream.write(data)
        if exchange.sent_ns < 0:
            exchange.sent_ns = stamp
        else:
            exchange.attempts += 1

    def on_open(self, t_ns: int) -> None:
        self._client.connecting -= 1
        exchange = self.exchange
        if exchange is None:
            self._client.idle_again(self)
            return
        exchange.connect_ns = t_ns - self.opening_ns
        self.begin(exchange)

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        exchange = self.exchange
        if exchange is None:
            self._client.forget(self)  # bytes that answer nothing: this connection can't be trusted
            return
        if not kernel:
            exchange.stamp = 1
        try:
            complete = self._reader.feed(data, t_ns)
        except WireError as error:
            self._give_up(exchange, _PROTOCOL, str(error), t_ns)
            return
        if complete:
            self._complete(exchange, t_ns)
        elif exchange.watch is not None:
            exchange.watch(exchange)

    def _complete(self, exchange: Exchange, t_ns: int) -> None:
        self.exchange = None
        exchange.context = None
        self._reader.let_go()
        exchange.done_ns = t_ns
        exchange.status = _OK
        if self._reader.keep_alive and not self._stream.unsent and self._stream.connected and not self._client.fresh:
            self.reused = True
            self._client.idle_again(self)
        else:
            self._client.forget(self)
        self._client.finished(exchange)

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        client = self._client
        if not connected:
            client.connecting -= 1
        exchange = self.exchange
        if exchange is None:
            client.forget(self)
            return
        if not connected:
            self._give_up(exchange, _CONNECT, reason or "the connection was closed", t_ns)
        elif not reason and self._reader.eof():
            exchange.stamp = 1  # the kernel stamps bytes, and what ended this body was none
            self._complete(exchange, t_ns)
        elif self.reused and exchange.first_byte_ns < 0 and self._stream.read_at_most <= self._before:
            self.exchange = None
            client.retry(exchange)
            client.forget(self)  # opens the connection for it
        else:
            where = "in the middle of the response" if exchange.first_byte_ns >= 0 else "before any answer"
            text = f"connection closed {where}" + (f": {reason}" if reason else "")
            self._give_up(exchange, _CONNECT if was_reset(reason) else _PROTOCOL, text, t_ns)

    def _give_up(self, exchange: Exchange, status: int, text: str, t_ns: int) -> None:
        self.exchange = None
        exchange.context = None
        exchange.status = status
        exchange.error = text
        exchange.done_ns = t_ns
        self._client.forget(self)
        self._client.finished(exchange)

    def close(self) -> None:
        self._stream.close()
        self._reader.close()

    @property
    def connected(self) -> bool:
        return self._stream.connected


class HttpClient:
    """Sends prepared requests to one origin and stamps what comes back.

    See ``plimsoll.harness.transport.client.Client``.
    """

    def __init__(self, target: Target, clock: Clock, dialect: Dialect) -> None:
        self.target = target
        self._clock = clock
        self._dialect = dialect
        self._authority = origin_of(target.url).authority.encode()
        # The last one is used first: the last that answered; below it those that were opened ahead, and of these the
        # first opened.
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._all: set[Connection] = set()
        self._waiting: deque[Exchange] = deque()
        self._flying: dict[Exchange, int] = {}
        self._sweeping = False
        self._limit = target.max_connections or (1 << 30)
        self.fresh = target.fresh
        self._pool_waits = Durations()  # how long each request waited for one of max_connections connections
        self.connecting = 0
        self.opened = 0
        self.retried = 0
        self.readers: Readers
        self.endpoint: Endpoint
        self._found: Endpoint | None = None

    def encode(self, payload: Payload) -> Prepared:
        request = self._dialect.encode(payload)
        method = request.head.split(b" ", 1)[0]
        length = b"" if not request.body and method in (b"GET", b"HEAD", b"DELETE") else b"%d" % len(request.body)
        framing = b"content-length: %s\r\n" % length if length else b""
        prefix = request.head + b"host: " + self._authority + b"\r\n" + framing
        if self.target.send_request_id or self.target.traceparent is not None:
            prefix += b"x-request-id: " if self.target.send_request_id else b"traceparent: "
            suffix = b"\r\n\r\n" + request.body
        else:
            suffix = b"\r\n" + request.body
        is_head = method == b"HEAD"
        return Prepared(prefix, suffix, request.n_in, request.media_ns, is_head, request.clip, request.n_asked)

    async def find(self) -> Endpoint:
        """Resolve the host and load its TLS settings, once. Raises HarnessFault."""
        if self._found is None:
            self._found = self.endpoint = await locate(self.target)
        return self._found

    async def open(self, connections: int) -> None:
        """Resolve the host and open ``connections`` connections, ``OPENING`` at a time; wait for them at most the
        connect timeout.
        """
        weigh = partial(relieve, self._flying, self.cancel)
        uplinks = Uplinks.of(self._clock, self.target.impair)
        self.readers = Readers(asyncio.get_running_loop(), WallMap(), self.target.stamps == "kernel", weigh, uplinks)
        await self.find()
        left = 0 if self.fresh else min(connections, self._limit)
        give_up_ns = self._clock.now_ns() + self.target.connect_timeout_ns
        while (left or self.connecting) and self._clock.now_ns() < give_up_ns:
            for _ in range(more := min(left, OPENING - self.connecting)):
                self._connect(None)
            left -= more
            await asyncio.sleep(0.001)

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        exchange.request_id = exchange.traceparent
        if self.target.send_request_id:
            exchange.request_id = (
                request_id + b"\r\ntraceparent: " + exchange.traceparent if exchange.traceparent else request_id
            )
        exchange.n_in = exchange.request.n_in  # as the source counts it, until the server's usage says better
        exchange.media_ns = exchange.request.media_ns
        exchange.on_wire = True
        deadline = exchange.ready_ns + self.target.timeout_ns
        self._flying[exchange] = deadline
        if not self._sweeping:
            self._sweeping = True
            self._clock.wake_at(deadline, self._sweep)
        idle = self._idle
        if idle:
            idle.popitem()[0].begin(exchange)
        elif len(self._all) < self._limit:
            self._connect(exchange)
        else:
            self._waiting.append(exchange)

    def settle(self, exchange: Exchange) -> None:
        exchange.n_asked = exchange.request.n_asked
        self._dialect.settle(exchange)

    def plain(self) -> PlainSuccess | None:
        """Which answers ``settle`` has nothing to add to, if the dialect can say so."""
        rule: PlainSuccess | None = getattr(self._dialect, "plain", None)
        return rule

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        if not exchange.on_wire:
            return
        connection = exchange.context
        if connection is not None:
            connection.exchange = None
            exchange.context = None
            if not connection.connected:
                self.connecting -= 1
            self.forget(connection)
        else:
            self._has_waited(exchange)
        exchange.status = status
        exchange.error = error
        exchange.done_ns = self._clock.now_ns()
        self.finished(exchange)

    async def close(self) -> None:
        for connection in list(self._all):
            connection.close()
        self._all.clear()
        self._idle.clear()
        if hasattr(self, "readers"):  # it was opened
            self.readers.close()
        await asyncio.sleep(0)

    def stats(self) -> dict[str, Any]:
        """Counters for generator.json."""
        readers = self.readers
        return {
            "engine": "python",
            "connections_opened": self.opened,
            "retried_on_stale_connection": self.retried,
            "pool_waits": self._pool_waits.count,
            "pool_wait_p99_ns": self._pool_waits.p99_ns(),
            "kernel_reads": readers.kernel_reads,
            "user_reads": readers.user_reads,
            "clock_steps": readers.wall.steps,
            "stamps_refused": readers.wall.refused,
            "exhausted": dict(readers.exhausted),
            **({} if readers.uplinks is None else {"uplink": readers.uplinks.counts}),
        }

    # -- between the client and its connections -----------------------------------------------------------------

    def _connect(self, exchange: Exchange | None) -> None:
        connection = Connection(self, exchange, self._clock.now_ns())
        if exchange is not None:
            exchange.context = connection
        self._all.add(connection)
        self.opened += 1
        self.connecting += 1
        connection.connect()
        self._clock.wake_at(connection.deadline_ns, lambda: self._connect_timed_out(connection))

    def _connect_timed_out(self, connection: Connection) -> None:
        if connection in self._all and not connection.connected:
            if connection.try_next_address(self._clock.now_ns()):
                self._clock.wake_at(connection.deadline_ns, lambda: self._connect_timed_out(connection))
                return
            seconds = self.target.connect_timeout_ns / 1e9
            connection.on_lost(f"no connection after {seconds:g} s (connect timeout)", self._clock.now_ns(), False)

    def idle_again(self, connection: Connection) -> None:
        """A connection is free: the longest waiting request takes it."""
        waiting = self._waiting
        while waiting:
            exchange = waiting.popleft()
            if exchange.on_wire:
                self._has_waited(exchange)
                connection.begin(exchange)
                return
        self._idle[connection] = None
        if (
            not connection.reused
        ):  # a server of few threads has accepted the first of them, and would never read the last
            self._idle.move_to_end(connection, last=False)

    def forget(self, connection: Connection) -> None:
        """A connection is over. A waiting request gets a new one."""
        connection.close()
        self._all.discard(connection)
        self._idle.pop(connection, None)
        waiting = self._waiting
        while waiting:
            exchange = waiting.popleft()
            if exchange.on_wire:
                self._has_waited(exchange)
                self._connect(exchange)
                return

    def _has_waited(self, exchange: Exchange) -> None:
        """A request's wait for the pool is over. One that is sent a second time waited for the server, not for us."""
        if exchange.sent_ns < 0:
            self._pool_waits.add(self._clock.now_ns() - exchange.ready_ns)

    def retry(self, exchange: Exchange) -> None:
        """The server closed a kept-alive connection before it could read a byte of this: once more, on a fresh one."""
        self.retried += 1
        exchange.context = None
        self._waiting.appendleft(exchange)

    def finished(self, exchange: Exchange) -> None:
        """Hand an exchange back, exactly once."""
        if exchange.on_wire:
            exchange.on_wire = False
            del self._flying[exchange]
            exchange.on_done(exchange)

    def _sweep(self) -> None:
        now = self._clock.now_ns()
        late: list[Exchange] = []
        next_ns = 0
        for exchange, deadline in self._flying.items():
            if deadline > now:
                next_ns = deadline
                break
            late.append(exchange)
        text = f"no complete response after {self.target.timeout_ns / 1e9:g} s (timeout)"
        for exchange in late:
            self.cancel(exchange, _TIMEOUT, text)
        if next_ns:
            self._clock.wake_at(next_ns, self._sweep)
        elif self._flying:
            self._clock.wake_at(next(iter(self._flying.values())), self._sweep)
        else:
            self._sweeping = False
