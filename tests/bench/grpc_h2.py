"""The alternative that was measured: gRPC with the ``h2`` library's state machine on our stamped stream. Only what the
benchmark's calls need; nothing of Plimsoll uses it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h2.config
import h2.connection
import h2.events

from plimsoll.harness.clock import Clock, WallMap
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import locate
from plimsoll.harness.transport.rpc.call import GrpcDialect
from plimsoll.harness.transport.stream import Readers, Stream
from plimsoll.harness.wire.grpc_messages import MessageReader, prefixed
from plimsoll.scenarios.samples.payload import Payload


class H2Client:
    """Calls on one connection; ``send`` and ``settle`` as ``plimsoll.harness.transport.client.Client`` has them."""

    def __init__(self, target: Target, clock: Clock, dialect: GrpcDialect) -> None:
        self._target, self._clock, self._dialect = target, clock, dialect
        self._calls: dict[int, tuple[Exchange, MessageReader]] = {}
        self._ready = asyncio.Event()
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config)

    def encode(self, payload: Payload) -> Any:
        request = self._dialect.encode(payload)
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", request.method), (":authority", "x"), ("te",
                "trailers"),
            ("content-type", "application/grpc"), ("grpc-timeout", "60S"), ("user-agent", "plimsoll"),
        ]  # fmt: skip
        return headers, b"".join(map(prefixed, request.messages))

    async def open(self, connections: int) -> None:
        self.readers = Readers(asyncio.get_running_loop(), WallMap())
        self._stream = Stream(self.readers, await locate(self._target), self, duplex=True)
        self._stream.connect()
        await self._ready.wait()

    def on_open(self, t_ns: int) -> None:
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(2**31 - 1 - 65535)
        self._stream.write(self._h2.data_to_send())

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        headers, body = exchange.request
        stream = self._h2.get_next_available_stream_id()
        self._calls[stream] = exchange, MessageReader(exchange, 1 << 20)
        self._h2.send_headers(stream, [*headers, ("x-request-id", request_id)])
        self._h2.send_data(stream, body, end_stream=True)
        exchange.sent_ns = self._stream.write(self._h2.data_to_send())

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        for event in self._h2.receive_data(bytes(data)):
            if isinstance(event, h2.events.DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                found = self._calls.get(event.stream_id)
                if found is not None:
                    found[1].feed(memoryview(event.data), t_ns)
            elif isinstance(event, h2.events.StreamEnded):
                exchange, _ = self._calls.pop(event.stream_id)
                exchange.done_ns = t_ns
                exchange.status = 0
                exchange.on_done(exchange)
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                self._ready.set()
        pending = self._h2.data_to_send()
        if pending:
            self._stream.write(pending)

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        raise RuntimeError(f"the connection was lost: {reason}")

    def settle(self, exchange: Exchange) -> None:
        """Headers were decoded on the way."""

    async def close(self) -> None:
        self._stream.close()
        self.readers.close()
