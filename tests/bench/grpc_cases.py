"""What gRPC costs the client's process, per call, per streamed message and per live frame, with no network: the bytes
of a server are fed in, and what we write is dropped. System calls are not in it; ``tests.bench.grpc_cost`` has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import GrpcRequest
from plimsoll.harness.transport.rpc.channel import Channel
from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient
from plimsoll.harness.wire.grpc_messages import prefixed
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2 import Session
from plimsoll.harness.wire.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
    settings_frame,
    window_frame,
)
from plimsoll.scenarios.samples.payload import Payload
from tests.virtual_time import VirtualClock

_BLOCK = b"\x88" + literal("content-type", b"application/grpc")
_TRAILERS = literal("grpc-status", b"0")
_FRAME_NS = 20_000_000


class _Wire:
    """Stands in for the stream: takes bytes, gives the time."""

    connected = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wrote = self.taken = 0

    def write(self, data: bytes) -> int:
        self.wrote += len(data)
        return self._clock.now_ns()

    def untaken(self) -> int:
        return 0

    def close(self) -> None: ...


class _Calls:
    """A client whose one channel has no socket."""

    def __init__(self, request: GrpcRequest) -> None:
        self._request = request
        self.clock = VirtualClock()
        self.client = GrpcClient(Target("127.0.0.1:1", "bench"), self.clock, self)
        self.finished = 0
        self.channel = _connected(self.client, self.clock)
        self.client._channels.append(self.channel)
        self.prepared = self.client.encode(Payload())

    def encode(self, payload: Payload) -> GrpcRequest:
        return self._request

    def settle(self, exchange: Exchange) -> None:
        """Nothing of the messages' own."""

    def over(self, exchange: Exchange) -> None:
        self.client.settle(exchange)
        if exchange.status:
            raise RuntimeError(f"{exchange.status}: {exchange.error}")
        self.finished += 1

    def send(self, number: int) -> None:
        exchange = Exchange(number, 0, 0, 0, self.prepared)
        exchange.on_done = self.over
        exchange.ready_ns = self.clock.now_ns()
        self.client.send(exchange, b"bench-%d-0" % number)


def _connected(client: Any, clock: Clock) -> Any:
    """A channel whose stream was exchanged, after the server's settings."""
    client.readers, client.endpoint = SimpleNamespace(preferred=0), SimpleNamespace(addresses=(None,))
    channel: Any = Channel(client, 0, 0)
    channel._stream = _Wire(clock)
    channel.session = Session(channel._stream.write, channel)
    channel.on_data(settings_frame((3, 1_000_000), (4, 1 << 30)) + window_frame(0, 1 << 30), 0, True)
    return channel


def _answer(stream: int, messages: int) -> bytes:
    data = frame(DATA, 0, stream, prefixed(bytes(64)))
    return (
        frame(HEADERS, END_HEADERS, stream, _BLOCK)
        + data * messages
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, _TRAILERS)
    )


def _cost(calls: int, messages: int) -> float:
    """Microseconds of CPU a call of so many response messages, settling included."""
    bench = _Calls(GrpcRequest("/bench.Svc/Ask", (bytes(64),), server_streaming=messages > 1))
    answers = [_answer(2 * i + 1, messages) for i in range(calls)]
    feed = bench.channel.on_data
    begun = time.process_time()
    for i, answer in enumerate(answers):
        bench.send(i)
        feed(answer, i, True)
    spent = time.process_time() - begun
    if bench.finished != calls:
        raise RuntimeError(f"{bench.finished} of {calls} calls")
    return spent / calls * 1e6


def grpc_call() -> float:
    """A unary call, from send to settled."""
    return _cost(5_000, 1)


def grpc_message() -> float:
    """One response message of a stream."""
    return _cost(20, 2_000) / 2_000


def grpc_frame() -> float:
    """One live frame of 640 bytes, from its timer to the write."""
    frames, calls = 500, 20
    due = (0, *(_FRAME_NS * (i + 1) for i in range(frames)))
    request = GrpcRequest(
        "/bench.Svc/Ask", (b"", *((bytes(640),) * frames)), due, opening=1, client_streaming=True, frame_ns=_FRAME_NS
    )
    bench = _Calls(request)
    for i in range(calls):
        bench.send(i)
    before = bench.channel._stream.wrote
    begun = time.process_time()
    bench.clock.run(bench.clock.now_ns() + _FRAME_NS * (frames + 1))
    spent = time.process_time() - begun
    if bench.channel._stream.wrote - before < 640 * frames * calls:
        raise RuntimeError("not every frame was written")
    return spent / frames / calls * 1e6


GRPC_CASES: Mapping[str, Callable[[], float]] = MappingProxyType(
    {"grpc_call": grpc_call, "grpc_message": grpc_message, "grpc_frame": grpc_frame}
)
