"""A protocol's ``build``, from what makes its dialect. A transport is imported when a client is made, not to list protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plimsoll.harness.transport.client import Client, Target

if TYPE_CHECKING:
    from plimsoll.harness.transport.http.dialect import Dialect
    from plimsoll.harness.transport.live.dialogue import Dialogue
    from plimsoll.harness.transport.rpc.call import GrpcDialect

Build = Callable[[Target, Any], Client]


def over_http(dialect: Callable[[Target], Dialect]) -> Build:
    """Requests on keep-alive connections."""

    def build(target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.http.http_pool import HttpClient

        return HttpClient(target, clock, dialect(target))

    return build


def over_websocket(dialogue: Callable[[Target], Dialogue]) -> Build:
    """Live sessions, one connection each."""

    def build(target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.live.websocket_pool import WebSocketClient

        return WebSocketClient(target, clock, dialogue(target))

    return build


def over_grpc(dialect: Callable[[Target], GrpcDialect]) -> Build:
    """Calls on our own HTTP/2."""

    def build(target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient

        return GrpcClient(target, clock, dialect(target))

    return build
