"""``grpc.health.v1.Health``: SERVING once requests are answered, NOT_SERVING before that and while the server drains.

A watcher is told within a twentieth of a second, and its stream ends with the server's last word: an open stream must not hold up a drain.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import grpc
from grpc_health.v1 import health_pb2

from plimsoll.reference_server.frontends.grpc_ import grpc_calls as calls
from plimsoll.reference_server.frontends.grpc_.grpc_calls import Context, question
from plimsoll.reference_server.frontends.shared import open_inference
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

SERVICE = "grpc.health.v1.Health"
_LOOK_S = 0.05


class Health:
    """The service on one server. ``names`` are the services that can be asked about, beside "" for all."""

    def __init__(self, service: Service, names: Collection[str], closing: asyncio.Event) -> None:
        self._service = service
        self._names = frozenset(names) | {""}
        self._closing = closing
        self._looking: asyncio.Task[None] | None = None
        """One look at the server for all watchers: thousands of them must not each have a timer."""

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Check and Watch."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(question(health_pb2.HealthCheckRequest, self._check)),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            },
        )

    def _check(self, asked: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        if asked.service not in self._names:
            raise RequestError(404, f"service {asked.service!r} is not served here", code="unknown_service")
        return self._now(asked.service)

    def _now(self, name: str) -> health_pb2.HealthCheckResponse:
        kind = health_pb2.HealthCheckResponse
        if name not in self._names:
            return kind(status=kind.SERVICE_UNKNOWN)
        return kind(status=kind.SERVING if open_inference.ready(self._service) else kind.NOT_SERVING)

    async def _watch(self, data: bytes, context: Context) -> None:
        try:
            name = calls.read(health_pb2.HealthCheckRequest, data).service
        except RequestError as error:
            await calls.refuse(context, error)
        told = b""
        while True:
            closing = self._closing.is_set()
            now = self._now(name).SerializeToString()
            if now != told:
                try:
                    await calls.write(context, now)
                except ConnectionError:
                    raise asyncio.CancelledError from None
                told = now
            if closing:
                return
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            await asyncio.shield(self._looking)

    async def _look(self) -> None:
        """Return when there may be something new to tell."""
        before = open_inference.ready(self._service)
        while not self._closing.is_set() and open_inference.ready(self._service) is before:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _LOOK_S)
