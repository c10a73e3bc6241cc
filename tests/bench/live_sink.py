"""A peer for live streams that costs almost nothing: it takes WebSocket frames, counts bytes, and says a sentence now
and then.

``python -m tests.bench.live_sink FRAME_BYTES FRAMES EVERY`` serves on a free port of 127.0.0.1, prints ``{"port":
...}``, and ends when its stdin closes, with the CPU seconds that it used as its last line. It knows how long a session
is, so it parses no frame: after each EVERY frames it sends a partial transcript, after FRAMES the final one, and
closes.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
import time

import uvloop

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def text_frame(data: bytes) -> bytes:
    """One unmasked text message of 126 to 65,535 bytes (RFC 6455 section 5.2)."""
    return b"\x81\x7e" + len(data).to_bytes(2, "big") + data


PARTIAL = text_frame(
    json.dumps({"type": "Results", "text": "one two three", "is_final": False, "pad": "x" * 80}).encode()
)
FINAL = text_frame(json.dumps({"type": "Results", "text": "one two three", "is_final": True, "pad": "x" * 80}).encode())
CLOSE = b"\x88\x02\x03\xe8"


class Sink(asyncio.Protocol):
    """One session."""

    def __init__(self, frame_bytes: int, frames: int, every: int) -> None:
        self._left = frame_bytes * frames
        self._step = frame_bytes * every
        self._next = self._left - self._step
        self._upgraded = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._upgraded:
            head, _, data = data.partition(b"\r\n\r\n")
            key = next(
                line[19:].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:")
            )
            digest = base64.b64encode(hashlib.sha1(key + _GUID).digest())
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n"  # noqa: E501
                % digest
            )
            self._upgraded = True
        self._left -= len(data)
        if self._left <= 0:
            self._transport.write(FINAL + CLOSE)
            self._left = 1 << 62
        elif self._left <= self._next:
            self._next -= self._step
            self._transport.write(PARTIAL)


async def main(frame_bytes: int, frames: int, every: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sink(frame_bytes, frames, every), "127.0.0.1", 0, backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    begun = time.process_time()
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({"cpu_s": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:4])))
