"""One gRPC connection: HTTP/2 on a stamped stream, and what happens to its calls when it opens, drains or breaks.

It is used once the server's settings have come: only then is it known to speak HTTP/2 and how many calls it takes. It
never reconnects itself, sends no pings, and opens no stream after the server's GOAWAY.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.endpoint import Endpoint, was_reset
from plimsoll.harness.transport.rpc.call import Hearing
from plimsoll.harness.transport.rpc.rpc_stream import Call
from plimsoll.harness.transport.stream import Readers, Stream
from plimsoll.harness.transport.uplink import Uplinks
from plimsoll.harness.wire.http2 import Session
from plimsoll.harness.wire.http2_frames import WireError, error_name
from plimsoll.slo.records.records import Status

_CONNECT, _PROTOCOL = int(Status.CONNECT), int(Status.PROTOCOL)


class Pool(Protocol):
    """What a channel needs of its client."""

    clock: Clock
    readers: Readers
    endpoint: Endpoint
    heard: Hearing | None
    max_message: int

    def is_page(self, exchange: Exchange) -> bool: ...

    def channel_ready(self, channel: Channel, t_ns: int) -> None:
        """Its first settings came: those who wait for it can go."""
        ...

    def channel_has_room(self, channel: Channel) -> None: ...

    def channel_draining(self, channel: Channel) -> None:
        """No new calls for this one. It may be said more than once."""
        ...

    def retry(self, exchange: Exchange, why: str) -> None:
        """The server never began this call: once more, on another connection."""
        ...

    def refused(self, exchange: Exchange, limited: bool, t_ns: int) -> None:
        """The server refused to begin this call. ``limited``: it had announced how many it takes at once."""
        ...

    def give_up(self, exchange: Exchange, status: int, error: str, t_ns: int) -> None:
        """End an exchange that is on no call."""
        ...

    def finished(self, exchange: Exchange) -> None: ...


class Channel:
    """One connection. ``waiting`` are the exchanges that go on it as soon as it is ``ready``."""

    __slots__ = (
        "_goodbye",
        "_pool",
        "_stream",
        "calls",
        "deadline_ns",
        "draining",
        "heard",
        "kernel",
        "opening_ns",
        "ready",
        "session",
        "used",
        "waiting",
    )

    def __init__(self, pool: Pool, now_ns: int, connect_timeout_ns: int) -> None:
        self._pool = pool
        self.heard = pool.heard
        self._stream = Stream(pool.readers, pool.endpoint, self, duplex=True)
        self.session = Session(self._stream.write, self)
        self.calls: dict[Call, None] = {}
        self.waiting: deque[Exchange] = deque()
        self.opening_ns = now_ns
        self.deadline_ns = now_ns + connect_timeout_ns // len(pool.endpoint.addresses)
        self.kernel = True
        self.ready = False
        self.used = False  # it has carried a call
        self.draining = False  # no new calls
        self._goodbye = ""

    @property
    def connected(self) -> bool:
        """TCP and TLS stand."""
        return self._stream.connected

    def now_ns(self) -> int:
        return self._pool.clock.now_ns()

    def untaken(self) -> int:
        """Bytes that the peer has not taken: what its windows hold back and what its host has not acknowledged."""
        return self._stream.untaken() + sum(call.unsent for call in self.calls)

    @property
    def uplinks(self) -> Uplinks | None:
        return self._pool.readers.uplinks

    def is_page(self, exchange: Exchange) -> bool:
        return self._pool.is_page(exchange)

    def connect(self) -> None:
        self._stream.connect()

    def try_next_address(self, now_ns: int, connect_timeout_ns: int) -> bool:
        """This address does not answer: try the host's next one, if it has one."""
        if self.connected:
            return False
        self.deadline_ns = now_ns + connect_timeout_ns // len(self._pool.endpoint.addresses)
        return self._stream.try_next_address()

    def begin(self, exchange: Exchange) -> None:
        """Write a call. Only while the session has room."""
        before = self._stream.taken if self.used and not self.calls else -1
        call = Call(self, exchange, self._pool.max_message, before)
        exchange.context = call
        self.calls[call] = None
        self.used = True
        call.begin(self.session, self._pool.clock)
        if self.session.exhausted:  # after a thousand million calls
            self.draining = True
            self._pool.channel_draining(self)

    def call_over(self, call: Call, exchange: Exchange) -> None:
        """A call ended: its place is free before its exchange is handed back."""
        self.calls.pop(call, None)
        if not self.draining:
            self._pool.channel_has_room(self)
        else:
            self._leave()
        self._pool.finished(exchange)

    def call_refused(self, call: Call, exchange: Exchange, t_ns: int) -> None:
        self.calls.pop(call, None)
        self._pool.refused(exchange, self.session.limited, t_ns)
        if self.draining:
            self._leave()

    # -- called by the stream -----------------------------------------------------------------------------------

    def on_open(self, t_ns: int) -> None:
        self.session.open()

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        self.kernel = kernel
        try:
            self.session.feed(data, t_ns)
        except WireError as error:
            self.session.refuse(error)
            for call in self._end(str(error), t_ns):
                call.finish(_PROTOCOL, str(error), t_ns)

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        text = ": ".join(part for part in (self._goodbye, reason) if part)
        if connected and not self.ready:
            text = ": ".join(("connection closed before the server's HTTP/2 settings came", *filter(None, (text,))))
        for call in self._end(text or "the connection was closed", t_ns):
            self._lost(call, text, t_ns)

    def _end(self, text: str, t_ns: int) -> list[Call]:
        """The connection is over: those that waited for it can't be made. Gives the calls on it, which are over too."""
        calls, waiting = list(self.calls), list(self.waiting)
        self.calls.clear()
        self.waiting.clear()
        self.close()
        self.draining = True
        self._pool.channel_draining(self)
        for exchange in waiting:
            self._pool.give_up(exchange, _CONNECT, text, t_ns)
        return calls

    def _lost(self, call: Call, text: str, t_ns: int) -> None:
        exchange = call.exchange
        if exchange is None:
            return
        answered = exchange.first_byte_ns >= 0
        if not answered and self._stream.read_at_most <= call.before:
            call.take()
            self._pool.retry(exchange, "the connection had been closed")
            return
        where = "in the middle of the response" if answered else "before any answer"
        status = _CONNECT if was_reset(text) else _PROTOCOL
        call.finish(status, f"connection closed {where}" + (f": {text}" if text else ""), t_ns)

    # -- called by the session ----------------------------------------------------------------------------------

    def on_settings(self, t_ns: int) -> None:
        if self.ready:
            self._pool.channel_has_room(self)
            return
        self.ready = True
        self._pool.channel_ready(self, t_ns)

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None:
        said = "".join(char if char.isprintable() else "?" for char in text)
        self._goodbye = f"GOAWAY {error_name(code)}" + (f" ({said})" if said else "")
        self.draining = True
        self._pool.channel_draining(self)
        for call in [call for call in self.calls if call.number > last]:
            self.calls.pop(call, None)
            exchange = call.withdraw(self.session)
            if exchange is not None:
                self._pool.retry(exchange, self._goodbye)
        self._leave()

    def _leave(self) -> None:
        """Close once the last call of a draining connection is over."""
        if not self.calls:
            self.close()
            self._pool.channel_draining(self)

    def close(self) -> None:
        self._stream.close()
        self.session.close()
