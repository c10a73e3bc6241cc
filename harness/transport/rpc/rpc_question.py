"""This module makes one gRPC call outside of any load, such as whether a server is ready. It measures nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import GrpcRequest, Metadata, metadata_of
from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient
from plimsoll.scenarios.samples.payload import Payload

HEALTH = "/grpc.health.v1.Health/Check"
_UNIMPLEMENTED = 12
#: HealthCheckResponse.status by number, in the first field.
_STATES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class _AsItIs:
    """The dialect of a call whose path and messages are the payload's."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def encode(self, payload: Payload) -> GrpcRequest:
        streams = bool(payload.data["streams"])
        return GrpcRequest(
            payload.data["path"],
            payload.data["messages"],
            client_streaming=streams,
            server_streaming=streams,
            metadata=self._metadata,
        )

    def settle(self, exchange: Exchange) -> None:
        """Read by who asked."""


class Questions:
    """A connection to ask over. ``open`` before the first question, ``close`` after the last."""

    def __init__(self, target: Target, metadata: Metadata = ()) -> None:
        self._clock = LoopClock(asyncio.get_running_loop())
        self._client = GrpcClient(target, self._clock, _AsItIs(metadata))

    async def open(self) -> None:
        """Resolve the host and connect. Raises HarnessFault for a host without an address or a bad CA file."""
        await self._client.open(1)

    async def close(self) -> None:
        await self._client.close()
        self._clock.close()

    async def ask(self, path: str, messages: Sequence[bytes], *, streams: bool = False) -> Exchange:
        """The finished call; its status, code and messages are as any call's."""
        client, clock = self._client, self._clock
        payload = Payload(data={"path": path, "messages": tuple(messages), "streams": streams})
        exchange = Exchange(0, 0, 0, clock.now_ns(), client.encode(payload))
        done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        exchange.on_done = lambda ended: None if done.done() else done.set_result(ended)
        exchange.ready_ns = clock.now_ns()
        client.send(exchange, b"plimsoll-question-0")
        await done
        client.settle(exchange)
        return exchange


async def ask_health(target: Target, timeout_s: float) -> tuple[bool, str]:
    """(ready, what the server said).

    A server without a health service is ready: "" is what it said. Raises HarnessFault.
    """
    questions = Questions(target, metadata_of(target))
    try:
        async with asyncio.timeout(timeout_s):
            await questions.open()
            exchange = await questions.ask(HEALTH, (b"",))
    except TimeoutError:
        return False, f"nothing for {timeout_s:g} s"
    finally:
        await questions.close()
    if exchange.code == _UNIMPLEMENTED:
        return True, ""
    if exchange.code != 0:
        return False, exchange.error or "no status"
    body = bytes(exchange.body)
    state = body[1] if len(body) >= 2 and body[0] == 0x08 else 0
    return state == 1, _STATES.get(state, f"status {state}")
