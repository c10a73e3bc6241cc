"""A server that writes exactly the bytes a test scripts: what a real one would never do on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Script = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body; b"" at end of stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head + (await reader.readexactly(length) if length else b"")


def leave(writer: asyncio.StreamWriter, data: bytes) -> None:
    """The last bytes and the end of the connection in one segment: who reads them can write before the end is seen."""
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        sock.send(data)
        sock.shutdown(socket.SHUT_RDWR)


def reset(writer: asyncio.StreamWriter) -> None:
    """Throw the connection away now, with a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def raw_server(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", eager: bool = False
) -> AsyncIterator[str]:
    """Serve ``script(request, reader, writer, connection_number)`` for each request; yields the base URL.

    ``eager``: call it once a connection, with no request read.
    """
    count = 0
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number = count
        writers.append(writer)
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError, ssl.SSLError):
                if eager:
                    await script(b"", reader, writer, number)
                while not writer.is_closing() and (request := await read_request(reader)):
                    await script(request, reader, writer, number)
                    await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"{'https' if tls else 'http'}://{name}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:  # whatever state it is in: uvloop warns about a transport left open
            writer.transport.abort()
        await asyncio.sleep(0.01)


def answer(body: bytes = b"ok", extra: bytes = b"", status: bytes = b"200 OK") -> bytes:
    """A plain content-length response."""
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n%s\r\n%s" % (status, len(body), extra, body)
