"""This module gives protocols what they need of a transport: a ``build``, and the first model on a server's list.

A transport is imported when a client is made, not to list protocols.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Client, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.transport.live.handshake import http_url
from plimsoll.scenarios.samples.payload import Payload

if TYPE_CHECKING:
    from plimsoll.harness.transport.http.dialect import Dialect
    from plimsoll.harness.transport.live.dialogue import Dialogue
    from plimsoll.harness.transport.rpc.call import GrpcDialect

Build = Callable[[Target, Any], Client]


@dataclass(frozen=True, slots=True)
class _Requests:
    dialect: Callable[[Target], Dialect]
    repeats: bool = True

    def __call__(self, target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.http.http_pool import HttpClient

        return HttpClient(target, clock, self.dialect(target))


def over_http(dialect: Callable[[Target], Dialect]) -> Build:
    """Requests on keep-alive connections."""
    return _Requests(dialect)


@dataclass(frozen=True, slots=True)
class _Live:
    dialogue: Callable[[Target], Dialogue]
    says: tuple[str, ...] = ("header", "body")

    def __call__(self, target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.live.websocket_pool import WebSocketClient

        return WebSocketClient(target, clock, self.dialogue(target))


def over_websocket(dialogue: Callable[[Target], Dialogue]) -> Build:
    """Live sessions, one connection each."""
    return _Live(dialogue)


@dataclass(frozen=True, slots=True)
class _Calls:
    dialect: Callable[[Target], GrpcDialect]
    repeats: bool

    def __call__(self, target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient

        return GrpcClient(target, clock, self.dialect(target))


def over_grpc(dialect: Callable[[Target], GrpcDialect], repeats: bool = True) -> Build:
    """Calls on our own HTTP/2. ``repeats``: not those that speak while they listen."""
    return _Calls(dialect, repeats)


# -- the model of a target that names none: one GET over our own transport before the run, with no redirect -----------

_ENDPOINTS = (
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/audio/transcriptions",
    "/audio/speech",
    "/realtime",
)


def models_path(url: str) -> str:
    """The request target of the list of models for an origin, a base path or a whole endpoint URL."""
    whole, query_mark, query = http_url(url).partition("?")
    base = whole.rstrip("/")
    for ending in _ENDPOINTS:
        if base.endswith(ending):
            base = base.removesuffix(ending)
            break
    return join_path(f"{base}{query_mark}{query}", "/v1/models")


async def asked_once(client: Client, clock: LoopClock, payload: Payload, name: bytes, timeout_ns: int) -> Exchange:
    """One request outside any run, over, not settled. Raises TimeoutError."""
    exchange = Exchange(0, 0, 0, clock.now_ns(), client.encode(payload))
    done: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
    exchange.on_done = done.set_result
    exchange.ready_ns = clock.now_ns()
    client.send(exchange, name)
    return await asyncio.wait_for(done, timeout_ns / 1e9)


class _ModelList:
    """``GET /v1/models``."""

    accept = b"application/json"

    def __init__(self, target: Target) -> None:
        path = models_path(target.url)
        self._head = build_head("GET", path, {"accept": "application/json"}, target.headers)

    def encode(self, payload: Payload) -> HttpRequest:
        return HttpRequest(self._head, b"")

    def settle(self, exchange: Exchange) -> None:
        """Read by ``first_model``."""


async def first_model(target: Target) -> str | None:
    """The first model of ``GET /v1/models``, or None when the server has no such list (the request goes without a
    name).

    Takes at most the target's connect timeout. Raises HarnessFault for a bad URL or header.
    """
    from plimsoll.harness.transport.http.http_pool import HttpClient

    clock = LoopClock(asyncio.get_running_loop())
    client = HttpClient(target, clock, _ModelList(target))
    try:
        await client.open(0)
        exchange = await asked_once(client, clock, Payload(), b"plimsoll-models-0", target.connect_timeout_ns)
        name = json.loads(exchange.body)["data"][0]["id"] if exchange.code == 200 else None
    except (TimeoutError, ValueError, KeyError, IndexError, TypeError):
        return None
    finally:
        await client.close()
        clock.close()
    return name if isinstance(name, str) else None
