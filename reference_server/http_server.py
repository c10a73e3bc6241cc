"""The HTTP server: one socket, the routes of every dialect, and the connections that wait before them.

Where there is no room for a new connection, the one that has been idle longest gives way; when all are busy, the new
one is told 503 and closed. A head that has begun must be whole in time; a connection that says nothing may stay,
because load generators open theirs long before they need them.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from plimsoll.reference_server.dialects import (
    admin,
    deepgram,
    kserve_http,
    ollama,
    openai_audio,
    openai_responses,
    openai_text,
    realtime,
)
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.http_calls import error_body, refusals
from plimsoll.reference_server.transports.websocket import Sessions
from plimsoll.reference_server.values.errors import RequestError, unavailable

_ROUNDS = 6
"""A request that lies in the kernel is read, parsed and begun in so many rounds of the event loop at most. When the
server itself stood still, its timer comes before all of them."""
_LAST_WORDS_S = 1.0
"""How long a connection that was turned away may take to read why."""
_MAX_REASON = 200
_DIALECTS = (openai_text, openai_responses, openai_audio, ollama, kserve_http, admin)
_LIVE_DIALECTS = (deepgram, realtime)
_SPARE_FILES = 64
"""Descriptors that are not for connections."""
_LINGER_S = 2.0
"""How long what a refused client still sends is read and thrown away, so that it gets to read the refusal."""


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
        self._idle.pop(connection, None)
        self._heads.pop(connection, None)
        self._busy[connection] = request

    def end(self, connection: Connection) -> None:
        if self._busy.pop(connection, None) is None or connection.transport is None:
            return
        self._idle[connection] = None
        if connection.ahead:  # the next head had begun before the answer was out
            connection.ahead = False
            self._begin_head(connection)

    def forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._busy.pop(connection, None)
        self._heads.pop(connection, None)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        transports = [connection.transport for connection in (*self._idle, *self._busy)]
        return sum(transport.get_write_buffer_size() for transport in transports if transport is not None)

    def close(self) -> None:
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

    def _sweep(self, rounds: int = _ROUNDS) -> None:
        """Close whoever has been too slow, so many rounds of the loop later; entries are in the order in which they
        began.
        """
        loop = asyncio.get_running_loop()
        if rounds:
            loop.call_soon(self._sweep, rounds - 1)
            return
        self._timer = None
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
        busy = "too many connections are busy. Come back later, or start the server with more --max-connections"
        transport.write(last_words(unavailable(busy, "too_many_connections")))
        if transport.can_write_eof():
            # A close would reset the connection, should its request be on the way, and take the words along.
            transport.write_eof()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        if data:
            self._door.heard(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._door.forget(self)
        super().connection_lost(exc)

    def too_slow(self, limit_s: float) -> None:
        """End a connection whose request head does not get whole."""
        if self.transport is not None:
            message = f"the head of the request was not whole within {limit_s:g} s. Send it in one piece"
            self.transport.write(last_words(RequestError(408, message, code="request_timeout")))
        self.force_close()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What aiohttp itself trips over, unless it is the rest of a request that nobody needs any more."""
        broken = isinstance(kw.get("exc_info"), web.RequestPayloadError | HttpProcessingError)
        if self.transport is not None and not broken:
            super().log_exception(*args, **kw)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is answered when the bytes were no HTTP, or when a handler failed, which the log then has."""
        if isinstance(exc, ConnectionError):
            raise exc  # there is nobody to tell
        if status >= 500:
            self.logger.error("the handler of %s %s failed", request.method, request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the answer is out already")
        error = _unreadable(exc, message) if status < 500 else _failed(status)
        response = web.Response(body=error_body("", error), status=error.status, content_type="application/json")
        response.force_close()
        return response


def last_words(error: RequestError) -> bytes:
    """A whole HTTP response that ends its connection."""
    body = error_body("", error)
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


class HttpFrontEnd:
    """One listening socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._deadline_s = float("inf")
        self._door = Door(limit=_room(service.max_connections), head_s=service.read_timeout_s)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises OSError."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=4096)
        app = web.Application(middlewares=[self._door.track, refusals])
        if identity := self._service.identity():

            async def sign(_request: web.Request, response: web.StreamResponse) -> None:
                response.headers.update(identity)

            app.on_response_prepare.append(sign)
        for dialect in _DIALECTS:
            dialect.add_routes(app, self._service)
        # aiohttp would warn about every client that offers a subprotocol unknown here: none is chosen (RFC 6455).
        logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
        sessions = Sessions(self._service)
        app.on_shutdown.append(sessions.end)
        for live in _LIVE_DIALECTS:
            live.add_routes(app, sessions)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None

        def connect() -> Connection:
            return Connection(
                self._door,
                server,
                loop=loop,
                access_log=None,
                keepalive_timeout=3600.0,
                lingering_time=_LINGER_S,
                logger=logging.getLogger(__name__),
            )

        self._listener = await loop.create_server(connect, sock=listener, backlog=4096)
        return int(listener.getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, give requests under way that long, then cancel them. A second call can shorten the wait."""
        if self._runner is None:
            return
        if self._listener is not None:
            self._listener.close()
        loop = asyncio.get_running_loop()
        self._deadline_s = min(self._deadline_s, loop.time() + grace_s)
        while (self._service.n_in_flight or self._door.unsent_bytes) and loop.time() < self._deadline_s:
            await asyncio.sleep(0.02)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._door.close()


def _room(wanted: int) -> int:
    """As many connections as were asked for and the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + _SPARE_FILES:
        most = wanted + _SPARE_FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + _SPARE_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return max(1, most - _SPARE_FILES)
    return wanted
