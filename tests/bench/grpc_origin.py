"""A gRPC server for measuring clients: raw HTTP/2, one thread, and each message carries the instant at which it was
written.

A request message is three numbers: how many messages to answer with, when the first is due after the request and how
far apart they are (ns). A response message is the time (CLOCK_MONOTONIC, ns) just before the write that carried it, and
the time at which it was due. It serves nobody else: no flow control, no checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import struct
import sys
import time
from typing import Any

import uvloop

from plimsoll.harness.wire.grpc_messages import prefixed
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    FrameReader,
    frame,
    settings_frame,
    window_frame,
)

REQUEST = struct.Struct("<qqq")
RESPONSE = struct.Struct("<qq")
_HEADERS = b"\x88" + literal("content-type", b"application/grpc")
_TRAILERS = literal("grpc-status", b"0")


class Peer(asyncio.Protocol):
    """One client's connection."""

    def __init__(self) -> None:
        self._reader = FrameReader(self)
        self._preface = len(PREFACE)
        self._loop = asyncio.get_running_loop()
        self._taken = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._fd = self._transport.get_extra_info("socket").fileno()
        self._transport.write(settings_frame((4, 1 << 30), (3, 100_000)) + window_frame(0, 1 << 30))

    def data_received(self, data: bytes) -> None:
        if self._preface:
            cut = min(self._preface, len(data))
            self._preface -= cut
            data = data[cut:]
        if data:
            self._reader.feed(data, 0)

    def on_headers(self, stream: int, block: bytes, end: bool, t_ns: int) -> None:
        """What is asked for is in the message."""

    def on_data(self, stream: int, data: memoryview, size: int, end: bool, t_ns: int) -> None:
        self._taken += size
        if self._taken > 1 << 29:
            self._transport.write(window_frame(0, self._taken))
            self._taken = 0
        if len(data) != 5 + REQUEST.size:
            return  # a frame of audio, which nobody hears, or a half-close
        count, first_ns, gap_ns = REQUEST.unpack_from(data, 5)
        due = time.monotonic_ns() + first_ns
        if first_ns:
            self._later(due, stream, 0, count, gap_ns)
        else:
            self._write(stream, 0, count, gap_ns, due)

    def _later(self, due: int, *rest: int) -> None:
        stream, i, count, gap_ns = rest
        delay = max(0, due - time.monotonic_ns()) / 1e9
        self._loop.call_later(delay, self._write, stream, i, count, gap_ns, due)

    def _write(self, stream: int, i: int, count: int, gap_ns: int, due: int) -> None:
        while True:
            text = frame(HEADERS, END_HEADERS, stream, _HEADERS) if i == 0 else b""
            last = frame(HEADERS, END_HEADERS | END_STREAM, stream, _TRAILERS) if i == count - 1 else b""
            body = prefixed(RESPONSE.pack(time.monotonic_ns(), due))
            self._now(text + frame(DATA, 0, stream, body) + last)
            i += 1
            due += gap_ns
            if i == count:
                return
            if due > time.monotonic_ns():
                self._later(due, stream, i, count, gap_ns)
                return

    def _now(self, data: bytes) -> None:
        """The transport writes at the end of the loop's turn, which would be after the time in the message."""
        if not self._transport.get_write_buffer_size():
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._fd, data) :]
        if data:
            self._transport.write(data)

    def on_reset(self, stream: int, code: int, t_ns: int) -> None: ...

    def on_settings(self, pairs: list[tuple[int, int]], ack: bool, t_ns: int) -> None:
        if not ack:
            self._transport.write(frame(SETTINGS, 1, 0))

    def on_ping(self, data: bytes, ack: bool) -> None:
        if not ack:
            self._transport.write(frame(PING, 1, 0, data))

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None: ...

    def on_window(self, stream: int, increment: int) -> None: ...


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    gc.freeze()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
