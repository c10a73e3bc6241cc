"""A server that costs as little as Python can: one fixed answer a request, or a fixed stream of token events.

Run as ``python -m tests.bench.loopback``; prints its port. It is the other end of the transport benchmarks, in a
process of its own, and stops when its standard input closes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

TOKENS = 128
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n" + b'{"ok": "yes"}'[:13]


def _event(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def stream() -> bytes:
    """A whole chat answer of TOKENS tokens as chunked SSE."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = (
        b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null}'
    )
    last = (
        b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":137}}'
        % TOKENS
    )
    return head + b"".join([_event(chunk) * TOKENS, _event(last), _event(b"[DONE]"), b"0\r\n\r\n"])


class Answering(asyncio.Protocol):
    """Answers each read with one response; a path of /stream gets the token stream."""

    _stream = stream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._stream if data.startswith(b"POST /stream") else PLAIN)


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Its URL and process id while it runs in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.loopback"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            process.stdin.close()
            process.wait(10)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
