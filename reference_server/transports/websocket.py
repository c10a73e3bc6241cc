"""One WebSocket session from its handshake to its outcome: admission, stamped frames, faults, pings, the close.

Whoever is refused is told before the upgrade, in the dialect of the route. A session counts as one request in flight
for as long as it lasts. Nothing is compressed: permessage-deflate would move time and bytes out of sight.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import WebSocketError, WSMsgType, web

from plimsoll.reference_server.misfortune.fault import Misfortune
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Account, Service, accounted
from plimsoll.reference_server.transports.http_calls import break_off, ordeal, request_id
from plimsoll.reference_server.transports.stream import struck
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure

NORMAL = 1000
GOING_AWAY = 1001
POLICY = 1008
INTERNAL = 1011
TRY_AGAIN_LATER = 1013
MAX_UNSENT = 4 << 20
"""Most bytes that wait for a client; one that leaves more unread is cut."""
_ROOM = 64 << 10
_PATIENCE_S = 30.0
"""How long ``room`` waits for a client that reads nothing at all."""
_CLOSE_S = 2.0
"""How long a client may take to answer the server's close frame."""
_MAX_STAMPS = 1 << 20
_TEXT, _BINARY, _PONG = 0x1, 0x2, 0xA


@dataclass(frozen=True, slots=True)
class Ending:
    """How the server closes: a status code of RFC 6455, and a reason of at most 123 bytes."""

    code: int = NORMAL
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Did the conversation end as it should?"""
        return self.code == NORMAL


class Conversation(Protocol):
    """What happens on one connection, admitted before the handshake was answered."""

    async def hold(self, peer: Peer) -> Ending | None:
        """Talk until one side is done; None when the client closed. Raises RequestError when a model gives up."""

    def close(self) -> None:
        """Give up whatever the conversation holds; finished or not; harmless when repeated."""


class BrokenMessage(Exception):
    """The client broke the WebSocket protocol (too big, not UTF-8, a bad frame). The connection is closed."""


def frame(opcode: int, payload: bytes) -> bytes:
    """One final, unmasked frame (RFC 6455 section 5.2)."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


class Peer:
    """One client. ``misfortune`` counts messages sent where streams of text count tokens."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.WriteTransport,
        row: TruthRow,
        misfortune: Misfortune,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._misfortune = misfortune
        self._patience_s = patience_s
        self._n_sent = 0
        self.row = row

    async def receive(self, deadline_ns: int = -1) -> str | bytes | None:
        """The next message: text, binary, or None when the client has closed; pings are answered, and don't count as
        one.

        Raises TimeoutError when none came by that instant of ``time.monotonic_ns()``, ConnectionError when the client
        vanished, and BrokenMessage when what came is no message.
        """
        left_s = None if deadline_ns < 0 else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        async with asyncio.timeout(left_s):
            while True:
                message = await self._socket.receive()
                if message.type is WSMsgType.PING:
                    self._write(_PONG, bytes(message.data))
                elif message.type is WSMsgType.TEXT:
                    return str(message.data)
                elif message.type is WSMsgType.BINARY:
                    if len(self.row.heard_ns) < _MAX_STAMPS:
                        self.row.heard_ns.append([time.monotonic_ns(), len(message.data)])
                    return bytes(message.data)
                elif message.type is WSMsgType.ERROR:
                    if isinstance(message.data, WebSocketError):
                        raise BrokenMessage(str(message.data))
                    raise ConnectionResetError("the client vanished")
                elif message.type is not WSMsgType.PONG:
                    return None

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one JSON text message. Raises StreamFailure or StreamCut when a fault strikes, or ConnectionError."""
        self._message(_TEXT, json.dumps(message).encode())

    def send_audio(self, data: bytes) -> None:
        self._message(_BINARY, data)

    def last_words(self, message: Mapping[str, Any]) -> None:
        """Write one message that no fault touches: what the faults did, told to the client."""
        with contextlib.suppress(ConnectionError, StreamCut):
            self._write(_TEXT, json.dumps(message).encode())

    async def room(self) -> None:
        """Return when the client has read most of what was sent. Raises StreamCut when it doesn't read."""
        await asyncio.sleep(0)  # let the connection be heard between two pieces, however fast they come
        patient_until_s = time.monotonic() + self._patience_s
        unsent = self._transport.get_write_buffer_size()
        while unsent > _ROOM:
            await asyncio.sleep(0.002)
            left = self._transport.get_write_buffer_size()
            if left < unsent:
                patient_until_s = time.monotonic() + self._patience_s
            elif time.monotonic() > patient_until_s:
                raise StreamCut("the client reads nothing")
            unsent = left

    async def close(self, ending: Ending) -> None:
        """Send the close frame and wait a moment for the client's."""
        try:
            async with asyncio.timeout(2 * _CLOSE_S):
                # Whole characters, as many as there may be.
                reason = ending.reason.encode()[:123].decode(errors="ignore")
                await self._socket.close(code=ending.code, message=reason.encode())
        except TimeoutError:
            self._transport.abort()  # it reads nothing, so the frame never leaves the buffer

    def _message(self, opcode: int, payload: bytes) -> None:
        struck(self._n_sent, self._misfortune.error_at, self._misfortune.cut_at)
        self._n_sent += 1
        before_ns = time.monotonic_ns()
        self._write(opcode, payload)
        after_ns = time.monotonic_ns()
        if len(self.row.before_ns) < _MAX_STAMPS:
            self.row.before_ns.append(before_ns)
            self.row.after_ns.append(after_ns)

    def _write(self, opcode: int, payload: bytes) -> None:
        if self._socket.closed or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(frame(opcode, payload))
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            raise StreamCut("the client reads too slowly")


async def upgrade(
    request: web.Request, row: TruthRow, misfortune: Misfortune, *, protocols: tuple[str, ...], max_message: int
) -> tuple[Peer, web.WebSocketResponse]:
    """Answer the handshake. Raises ConnectionError when the client is gone."""
    socket = web.WebSocketResponse(
        protocols=protocols,
        compress=False,
        autoping=False,
        heartbeat=30.0,  # a half-open connection holds a place in the recogniser: find it
        max_msg_size=max_message,
        timeout=_CLOSE_S,
    )
    socket.headers["x-request-id"] = row.request_id
    row.status = 101
    row.first_write_ns = time.monotonic_ns()
    await socket.prepare(request)
    transport = request.transport
    if not isinstance(transport, asyncio.WriteTransport):
        raise ConnectionResetError("the client is gone")
    return Peer(socket, transport, row, misfortune), socket


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the sessions of a route say when something is wrong."""

    refuse: Callable[[RequestError, str], web.Response]
    """The reply to a handshake that is refused; the text is the request id."""
    failed: Callable[[RequestError], Mapping[str, Any]]
    """The message that says why the session ends before its time."""
    protocols: tuple[str, ...]
    """Subprotocols that clients may offer; the first that fits is chosen."""


Admit = Callable[[web.Request, TruthRow], Conversation]
"""Checks what a handshake asks for and reserves it. Raises RequestError. Sets the model of the row."""


@dataclass(slots=True, eq=False)
class Sessions:
    """All sessions of one server, so that its end can be told to each."""

    service: Service
    open: set[Peer] = field(default_factory=set)

    def route(self, dialect: Dialect, admit: Admit) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            service, received_ns = self.service, time.monotonic_ns()
            with accounted(service, request_id(service, request), received_ns, service.closed()) as account:
                return await _Session(self, request, account, dialect).run(admit)

        return handle

    def count_stages(self, row: TruthRow) -> Callable[[Stages], None]:
        """What has stages of a session's answers counted in the metrics."""
        return lambda stages: self.service.metrics.stage(row.model, stages)

    async def end(self, _app: web.Application) -> None:
        """Close what is still open: the server goes away."""
        ending = Ending(GOING_AWAY, "the server is shutting down")
        await asyncio.gather(*(peer.close(ending) for peer in self.open), return_exceptions=True)


@dataclass(slots=True, eq=False)
class _Session:
    sessions: Sessions
    request: web.Request
    account: Account
    dialect: Dialect
    over: bool = False
    """All was said: whether the client waits for the close frame is its own affair."""

    async def run(self, admit: Admit) -> web.StreamResponse:
        """From the faults' draw to the close frame. Raises CancelledError and ConnectionError at a lost client."""
        account, request = self.account, self.request
        conversation: Conversation | None = None
        try:
            async with ordeal(request, account.draw(session=True), account.service.wheel, account.row.received_ns):
                if not web.WebSocketResponse().can_prepare(request):
                    message = f"{request.path} is a WebSocket. Connect with a WebSocket handshake, version 13"
                    raise RequestError(426, message, code="no_upgrade")
                conversation = admit(request, account.row)
                await account.hold()
                return await self._upgraded(conversation)
        except RequestError as error:
            await account.hold()
            return await self._refuse(error)
        except StreamCut:
            account.outcome = "cut"
            if conversation is not None:
                conversation.close()
            await break_off(request, account.break_by)
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, ConnectionError):
            if not self.over:
                account.outcome = "cancelled"
            raise
        finally:
            if conversation is not None:
                conversation.close()

    async def _upgraded(self, conversation: Conversation) -> web.StreamResponse:
        peer, response = await upgrade(
            self.request,
            self.account.row,
            self.account.misfortune,
            protocols=self.dialect.protocols,
            max_message=self.sessions.service.max_body_bytes,
        )
        self.sessions.open.add(peer)
        try:
            ending = await conversation.hold(peer)
            self.account.outcome = "ok" if ending is None or ending.ok else "error"
        except BrokenMessage:
            return response  # closed already, with the status code of what was wrong
        except RequestError as error:
            peer.last_words(self.dialect.failed(error))
            ending = Ending(TRY_AGAIN_LATER if error.status == 503 else INTERNAL, error.message)
        except StreamFailure as failure:
            peer.last_words(self.dialect.failed(failure.refusal()))
            ending = Ending(INTERNAL, str(failure))
        finally:
            self.sessions.open.discard(peer)
        self.over = True
        if ending is not None:
            await peer.close(ending)
        return response

    async def _refuse(self, error: RequestError) -> web.StreamResponse:
        row = self.account.row
        self.account.refused(error)
        response = self.dialect.refuse(error, row.request_id)
        response.headers["x-request-id"] = row.request_id
        if error.retry_after_s is not None:
            response.headers["Retry-After"] = str(error.retry_after_s)
        if error.status == 426:
            response.headers["Upgrade"] = "websocket"
        row.status = error.status
        row.first_write_ns = time.monotonic_ns()
        await response.prepare(self.request)
        await response.write_eof()
        return response
