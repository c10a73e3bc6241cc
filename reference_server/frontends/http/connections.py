"""Connections: how many there may be, and how long the head of a request may take.

A connection is idle until the head of a request is whole, and busy until its answer is out. When there is no room for a new
one, the one that has been idle longest gives way; when all are busy, the new one is told 503 and closed. A head that has begun
must be whole in time, so that trickling it byte by byte wins nothing. A connection that says nothing may stay: load generators
open theirs long before they need them. It refuses to look into requests: that is the routes' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from plimsoll.reference_server.frontends.http import openai_wire
from plimsoll.reference_server.values.errors import RequestError

_LINGER_S = 1.0
"""How long a connection that was turned away may take to read why."""
_MAX_REASON = 200


class Door:
    """The connections of one front-end."""

    def __init__(self, *, limit: int, head_s: float) -> None:
        self._limit = limit
        self._head_s = head_s
        self._idle: dict[Connection, None] = {}
        self._busy: dict[Connection, web.BaseRequest] = {}
        self._heads: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Connection) -> bool:
        """Make room for a new connection; false when all are busy."""
        if len(self._idle) + len(self._busy) >= self._limit:
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.forget(oldest)
            oldest.force_close()
        self._idle[connection] = None
        return True

    def heard(self, connection: Connection) -> None:
        """Bytes came: the head of a request has begun, if none is being answered."""
        request = self._busy.get(connection)
        if request is None:
            self._begin_head(connection)
        elif request.content.is_eof():
            connection.ahead = True

    def begin(self, connection: Connection, request: web.BaseRequest) -> None:
        """A head is whole."""
        self._idle.pop(connection, None)
        self._heads.pop(connection, None)
        self._busy[connection] = request

    def end(self, connection: Connection) -> None:
        """An answer is out."""
        if self._busy.pop(connection, None) is None or connection.transport is None:
            return
        self._idle[connection] = None
        if connection.ahead:  # the next head had begun before the answer was out
            connection.ahead = False
            self._begin_head(connection)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._idle.pop(connection, None)
        self._busy.pop(connection, None)
        self._heads.pop(connection, None)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        transports = [connection.transport for connection in (*self._idle, *self._busy)]
        return sum(transport.get_write_buffer_size() for transport in transports if transport is not None)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @web.middleware
    async def track(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Between ``begin`` and ``end`` a connection is busy."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            return await handler(request)
        self.begin(connection, request)
        try:
            return await handler(request)
        finally:
            self.end(connection)

    def _begin_head(self, connection: Connection) -> None:
        if connection in self._heads or connection not in self._idle:
            return
        loop = asyncio.get_running_loop()
        self._heads[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._head_s, self._sweep)

    def _sweep(self) -> None:
        """Close whoever has been too slow; entries are in the order in which they began."""
        self._timer = None
        loop = asyncio.get_running_loop()
        for connection, since in list(self._heads.items()):
            if since + self._head_s > loop.time():
                self._timer = loop.call_at(since + self._head_s, self._sweep)
                return
            self.forget(connection)
            connection.too_slow(self._head_s)


class Connection(web.RequestHandler):
    """aiohttp's side of one connection, with a door before it and refusals that a client of ours can read."""

    __slots__ = ("_door", "_turned_away", "ahead")

    def __init__(self, door: Door, server: web.Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._door = door
        self._turned_away = False
        self.ahead = False
        """Bytes of the next request came before the answer to this one was out."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, or say why not."""
        if self._door.admit(self):
            super().connection_made(transport)
            return
        self._turned_away = True
        assert isinstance(transport, asyncio.Transport)
        error = RequestError(
            503,
            "too many connections are busy. Come back later, or start the server with more --max-connections",
            kind="server_error",
            code="too_many_connections",
            retry_after_s=1,
        )
        transport.write(last_words(error))
        if transport.can_write_eof():
            transport.write_eof()  # a close would reset the connection, should its request be on the way, and take the words along
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._turned_away:
            return
        if data:
            self._door.heard(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        self._door.forget(self)
        super().connection_lost(exc)

    def too_slow(self, limit_s: float) -> None:
        """End a connection whose request head does not get whole."""
        if self.transport is not None:
            message = f"the head of the request was not whole within {limit_s:g} s. Send it in one piece"
            self.transport.write(last_words(RequestError(408, message, code="request_timeout")))
        self.force_close()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What aiohttp itself trips over, unless it is the rest of a request that nobody needs any more: broken, or gone."""
        broken = isinstance(kw.get("exc_info"), web.RequestPayloadError | HttpProcessingError)
        if self.transport is not None and not broken:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is answered when the bytes were no HTTP, or when a handler failed: then, and only then, the log has it."""
        if isinstance(exc, ConnectionError):
            raise exc  # there is nobody to tell
        if status >= 500:
            self.logger.error("the handler of %s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the answer is out already")
        error = _unreadable(exc, message) if status < 500 else _failed(status)
        response = web.Response(
            body=openai_wire.error_body(error), status=error.status, content_type="application/json"
        )
        response.force_close()
        return response


def last_words(error: RequestError) -> bytes:
    """A whole HTTP response that ends its connection."""
    body = openai_wire.error_body(error)
    reason = {408: "Request Timeout", 503: "Service Unavailable"}[error.status]
    retry = f"Retry-After: {error.retry_after_s}\r\n" if error.retry_after_s is not None else ""
    head = f"HTTP/1.1 {error.status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{retry}Connection: close\r\n\r\n".encode() + body


def _unreadable(exc: BaseException | None, message: str | None) -> RequestError:
    reason = " ".join((message or str(exc) or "no reason given").split())[:_MAX_REASON]
    if isinstance(exc, LineTooLong):
        return RequestError(431, f"the request line or a header is too long: {reason}", code="head_too_large")
    return RequestError(400, f"this is not a request in HTTP/1.1: {reason}", code="invalid_http")


def _failed(status: int) -> RequestError:
    message = "the server failed on this request; its log says why. This is a defect: please report it"
    return RequestError(status, message, kind="server_error", code="internal_error")
