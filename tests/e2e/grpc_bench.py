"""One gRPC client on one loop, for tests: ``call`` makes a call and settles it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import GrpcRequest
from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient
from plimsoll.scenarios.samples.payload import Payload
from tests.grpcio_client import OfficialClient

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Fixed:
    """A dialect that makes the call it was given last and reads nothing into the answer."""

    def __init__(self) -> None:
        self.request: GrpcRequest | None = None
        self.said: Callable[[bytes], int] | None = None

    def encode(self, payload: Payload) -> GrpcRequest:
        assert self.request is not None
        return self.request

    def settle(self, exchange: Exchange) -> None:
        """Nothing to settle."""

    def hear(self, exchange: Exchange, message: bytes) -> int:
        return self.said(message) if self.said is not None else 0


class GrpcBench:
    """A client and its clock."""

    def __init__(self, url: str, transport: str, options: dict[str, Any], **target: Any) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.dialect = Fixed()
        make = OfficialClient if transport == "grpcio" else GrpcClient
        self.client: Any = make(Target(url, "test", options=options, **target), self.clock, self.dialect)

    def start(self, request: GrpcRequest, request_id: bytes = b"run-0-0") -> tuple[Exchange, asyncio.Future[Exchange]]:
        self.dialect.request = request
        exchange = Exchange(0, 0, 0, time.monotonic_ns(), self.client.encode(Payload()))
        done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()

        def over(finished: Exchange) -> None:
            finished.on_done = None  # it would hold the future that holds it
            done.set_result(finished)

        exchange.on_done = over
        exchange.ready_ns, exchange.traceparent = self.clock.now_ns(), PARENT
        self.client.send(exchange, request_id)
        return exchange, done

    async def call(self, request: GrpcRequest, request_id: bytes = b"run-0-0") -> Exchange:
        _, done = self.start(request, request_id)
        exchange = await asyncio.wait_for(done, 10)
        self.client.settle(exchange)
        return exchange


@asynccontextmanager
async def grpc_bench(url: str, ahead: int = 0, transport: str = "stamped", **options: Any) -> AsyncIterator[GrpcBench]:
    """A client of ``url``; the options of ``plimsoll.harness.transport.client.Target`` among ``options`` go there, all
    others are the protocol's.
    """
    mine = {
        "timeout_ns",
        "connect_timeout_ns",
        "ca_file",
        "tls_verify",
        "headers",
        "max_connections",
        "send_request_id",
    }
    target = {name: value for name, value in options.items() if name in mine}
    rest = {name: value for name, value in options.items() if name not in mine}
    bench = GrpcBench(url, transport, rest, **target)
    await bench.client.open(ahead)
    try:
        yield bench
    finally:
        await bench.client.close()
        bench.clock.close()


def unary(message: bytes = b"hi", **more: Any) -> GrpcRequest:
    return GrpcRequest("/fake.Svc/Unary", (message,), **more)


def stream(message: bytes = b"hi", **more: Any) -> GrpcRequest:
    return GrpcRequest("/fake.Svc/ServerStream", (message,), server_streaming=True, **more)


def bidi(*messages: bytes, **more: Any) -> GrpcRequest:
    return GrpcRequest("/fake.Svc/Bidi", messages, client_streaming=True, server_streaming=True, **more)


def messages(exchange: Exchange) -> list[bytes]:
    ends = list(exchange.mark_end)
    return [bytes(exchange.body[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
