"""What an unlucky request goes through on its connection: held back, broken off, muted, reset, or dripped out.

The routes know nothing of it: they write an answer as ever, and it is the connection that misbehaves.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from plimsoll.reference_server.misfortune.fate import Break, Misfortune
from plimsoll.reference_server.values.errors import StreamCut
from plimsoll.reference_server.values.timetable import DeadlineWheel, Entry

_NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing discards what is unsent and sends a reset."""


@asynccontextmanager
async def ordeal(
    request: web.Request, misfortune: Misfortune, wheel: DeadlineWheel, received_ns: int
) -> AsyncIterator[None]:
    """Have the block answer under the misfortune. Raises StreamCut when there is to be no answer at all."""
    if misfortune.hold_ns > 0:
        await wheel.sleep_until(received_ns + misfortune.hold_ns)
    if misfortune.breaks_at_once:
        raise StreamCut("the script ends the connection before the first byte")
    transport = request.transport
    if misfortune.drip_bytes == 0 or not isinstance(transport, asyncio.Transport):
        yield
        return
    drip = Drip(transport, wheel, misfortune.drip_bytes, misfortune.drip_ns)
    request.protocol.transport = drip
    try:
        yield
        await drip.drained()
    finally:
        drip.stop()
        if request.protocol.transport is drip:  # a lost connection has none any more
            request.protocol.transport = transport


async def break_off(request: web.Request, manner: Break) -> None:
    """End the answer here. Of the mute kind it returns only by cancellation, when the client or the server gives up."""
    if manner is Break.MUTE:
        await asyncio.Event().wait()
    if request.transport is None:
        return
    if manner is Break.RESET:
        connection = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    request.transport.abort()


class Drip(asyncio.Transport):
    """A transport before a transport: what is written goes out in pieces of ``n_bytes``, one each ``every_ns``."""

    def __init__(self, transport: asyncio.Transport, wheel: DeadlineWheel, n_bytes: int, every_ns: int) -> None:
        super().__init__()
        self._transport = transport
        self._wheel = wheel
        self._n_bytes = n_bytes
        self._every_ns = every_ns
        self._unsent: deque[int] = deque()
        self._entry: Entry | None = None
        self._last_ns = 0
        self._dry = asyncio.Event()
        self._dry.set()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Keep the bytes, and let the first of them go when it is time."""
        self._unsent.extend(bytes(data))
        if self._unsent and self._entry is None:
            self._dry.clear()
            self._entry = self._wheel.at(max(time.monotonic_ns(), self._last_ns + self._every_ns), self._drop)

    def _drop(self, due_ns: int) -> int | None:
        if self._transport.is_closing():
            self.stop()
            return None
        n = min(self._n_bytes, len(self._unsent))
        self._transport.write(bytes(self._unsent.popleft() for _ in range(n)))
        self._last_ns = due_ns
        if self._unsent:
            return due_ns + self._every_ns
        self._entry = None
        self._dry.set()
        return None

    async def drained(self) -> None:
        """Return when all has gone out, or never will."""
        await self._dry.wait()

    def stop(self) -> None:
        """Forget what has not gone out."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None
        self._unsent.clear()
        self._dry.set()

    def get_write_buffer_size(self) -> int:
        """Bytes not yet given to the kernel."""
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """As the transport behind."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the transport behind."""
        self.stop()
        self._transport.close()

    def abort(self) -> None:
        """Close the transport behind at once."""
        self.stop()
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport behind."""
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As the transport behind."""
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """As the transport behind."""
        return self._transport.get_protocol()

    def pause_reading(self) -> None:
        """As the transport behind."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport behind."""
        self._transport.resume_reading()
