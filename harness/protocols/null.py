"""The null protocol: answers at once, without a network. What it measures is our own overhead."""

from __future__ import annotations

from typing import Any

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import ProtocolSpec
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom


class NullClient:
    """Finishes every exchange inside ``send``: one token, no bytes. Stamps are userland ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def encode(self, payload: Payload) -> Payload:
        return payload

    async def open(self, connections: int) -> None:
        """Nothing to open."""

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        now = self._clock.now_ns()
        exchange.sent_ns = now
        exchange.headers_ns = exchange.first_byte_ns = now
        exchange.done_ns = now
        exchange.stamp = 1
        exchange.status = int(Status.OK)
        exchange.on_done(exchange)

    def settle(self, exchange: Exchange) -> None:
        payload = exchange.request
        exchange.n_in = payload.n_in
        exchange.n_out = exchange.n_chunks = 1
        exchange.tokens_from = int(TokensFrom.CHUNKS)
        exchange.chunk_ns.append(exchange.done_ns)
        exchange.first_token_ns = exchange.first_answer_ns = exchange.last_token_ns = exchange.done_ns

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        """Nothing is ever in flight."""

    async def close(self) -> None:
        """Nothing to close."""

    def stats(self) -> dict[str, Any]:
        return {}


PROTOCOLS = (
    ProtocolSpec(
        "null",
        "no network: answers at once; measures Plimsoll's own overhead",
        lambda target, clock: NullClient(clock),
        streaming=False,
        needs_url=False,
    ),
)
