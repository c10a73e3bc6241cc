"""One WebSocket connection of aiohttp as a peer: whole frames, stamped, in single writes; pings; clients that read too slowly.

Frames are handed to the transport directly, framed here, for the reason given in ``frontends/http/stream.py``: a message's two stamps
must lie on either side of its write. Nothing is ever compressed: permessage-deflate would move time and bytes out of sight.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import WebSocketError, WSMsgType, web

from plimsoll.reference_server.frontends.shared.stream import struck
from plimsoll.reference_server.frontends.websocket.peer import BrokenMessage, Ending
from plimsoll.reference_server.misfortune.fate import Misfortune
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.errors import StreamCut

MAX_UNSENT = 4 << 20
"""Most bytes that wait for a client; one that leaves more unread is cut."""
_ROOM = 64 << 10
_PATIENCE_S = 30.0
"""How long ``room`` waits for a client that reads nothing at all."""
_CLOSE_S = 2.0
"""How long a client may take to answer the server's close frame."""
_MAX_STAMPS = 1 << 20
_TEXT, _BINARY, _PONG = 0x1, 0x2, 0xA


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


class ConnectedPeer:
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
        """The next message; pings are answered, and don't count as one."""
        left_s = None if deadline_ns < 0 else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        async with asyncio.timeout(left_s):
            while True:
                message = await self._socket.receive()
                if message.type is WSMsgType.PING:
                    self._write(_PONG, bytes(message.data))
                elif message.type is WSMsgType.TEXT:
                    return str(message.data)
                elif message.type is WSMsgType.BINARY:
                    return bytes(message.data)
                elif message.type is WSMsgType.ERROR:
                    if isinstance(message.data, WebSocketError):
                        raise BrokenMessage(str(message.data))
                    raise ConnectionResetError("the client vanished")
                elif message.type is not WSMsgType.PONG:
                    return None

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one JSON text message."""
        self._message(_TEXT, json.dumps(message).encode())

    def send_audio(self, data: bytes) -> None:
        """Write one binary message."""
        self._message(_BINARY, data)

    def last_words(self, message: Mapping[str, Any]) -> None:
        """Write one message that no fault touches: what the faults did, told to the client."""
        with contextlib.suppress(ConnectionError, StreamCut):
            self._write(_TEXT, json.dumps(message).encode())

    async def room(self) -> None:
        """Return when the client has read most of what was sent."""
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
                await self._socket.close(code=ending.code, message=_reason(ending.reason))
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


def _reason(text: str) -> bytes:
    """As much of a reason as a close frame may hold, in whole characters."""
    return text.encode()[:123].decode(errors="ignore").encode()


async def upgrade(
    request: web.Request, row: TruthRow, misfortune: Misfortune, *, protocols: tuple[str, ...], max_message: int
) -> tuple[ConnectedPeer, web.WebSocketResponse]:
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
    return ConnectedPeer(socket, transport, row, misfortune), socket
