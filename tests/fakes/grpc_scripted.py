"""A gRPC server of grpcio that does what each test says, and logs when it did it (CLOCK_MONOTONIC): ground truth.

It knows no message types: bytes in, bytes out. ``/fake.Svc/Unary``, ``/ServerStream``, ``/ClientStream``, ``/Bidi``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

Script = Callable[["Log", Any, Any], Awaitable[Any]]


@dataclass
class Log:
    """What the server saw and did, in order."""

    metadata: list[dict[str, Any]] = field(default_factory=list)
    received: list[tuple[int, bytes]] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)
    method: str = ""
    cancelled: int = 0
    ended: int = 0
    half_closed_ns: list[int] = field(default_factory=list)
    deadlines_s: list[float | None] = field(default_factory=list)

    def see(self, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        self.deadlines_s.append(context.time_remaining())

    async def write(self, context: Any, message: bytes) -> None:
        """Send one message of a stream; its time is taken just before."""
        self.sent_ns.append(time.monotonic_ns())
        await context.write(message)


@asynccontextmanager
async def scripted_server(
    script: Script, credentials: grpc.ServerCredentials | None = None, options: tuple[tuple[str, Any], ...] = ()
) -> AsyncIterator[tuple[str, Log, grpc.aio.Server]]:
    """``script(log, requests, context)`` answers every kind of call: ``requests`` is the message or an async iterator;
    what it returns is the answer of a call with one answer. Yields (address, log, server).
    """
    log = Log()

    def handler(name: str) -> Any:
        async def handle(requests: Any, context: Any) -> Any:
            log.see(context)
            log.method = name
            try:
                return await script(log, requests, context)
            except asyncio.CancelledError:
                log.cancelled += 1
                raise
            finally:
                log.ended += 1

        return handle

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(handler("Unary")),
        "ServerStream": grpc.unary_stream_rpc_method_handler(handler("ServerStream")),
        "ClientStream": grpc.stream_unary_rpc_method_handler(handler("ClientStream")),
        "Bidi": grpc.stream_stream_rpc_method_handler(handler("Bidi")),
    }
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), *options))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fake.Svc", handlers),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", log, server
    finally:
        await server.stop(0)
