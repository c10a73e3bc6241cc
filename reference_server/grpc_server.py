"""The gRPC server: one grpc.aio server on one port, with inference, speech, health and reflection.

The port is its own: a second server on it is refused, where the library would share it and split the calls between the
two. A watcher of the health is told within a twentieth of a second, and its stream ends with the server's last word: an
open stream must not hold up a drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Collection

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

from plimsoll.reference_server.dialects import kserve_grpc, speech_grpc
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports import grpc_calls as calls
from plimsoll.reference_server.transports.grpc_calls import Context, question
from plimsoll.reference_server.values.errors import ConfigError, RequestError

_HEALTH = "grpc.health.v1.Health"
_LOOK_S = 0.05
_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class Health:
    """The service on one server. ``names`` are the services that can be asked about, beside "" for all."""

    def __init__(self, service: Service, names: Collection[str], closing: asyncio.Event) -> None:
        self._service = service
        self._names = frozenset(names) | {""}
        self._closing = closing
        self._looking: asyncio.Task[None] | None = None
        """One look at the server for all watchers: thousands of them must not each have a timer."""

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        return grpc.method_handlers_generic_handler(
            _HEALTH,
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
        return kind(status=kind.SERVING if self._service.ready else kind.NOT_SERVING)

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
        before = self._service.ready
        while not self._closing.is_set() and self._service.ready is before:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _LOOK_S)


class GrpcFrontEnd:
    """One listening port."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closing = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises ConfigError."""
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _check_free(host, port, where)
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self._service.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=self._service.max_connections,
            interceptors=[calls.Signature(identity)] if (identity := self._service.identity()) else (),
        )
        server.add_generic_rpc_handlers(self._handlers())
        try:
            bound = server.add_insecure_port(where)
        except RuntimeError as error:
            raise ConfigError(f"can't listen on {where}: {error}. Choose another --grpc-port") from None
        await server.start()
        self._server = server
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, give calls under way that long to finish, then cancel them."""
        self._closing.set()
        if self._server is not None:
            await self._server.stop(grace_s)

    def _handlers(self) -> list[grpc.GenericRpcHandler[bytes, bytes]]:
        ours = (kserve_grpc.SERVICE, speech_grpc.SERVICE)
        served = [*ours, _HEALTH, reflection.SERVICE_NAME]
        mirror = reflection.aio.ReflectionServicer(served)  # type: ignore[attr-defined]  # the stubs leave it out

        async def reflect(requests: AsyncIterator[bytes], context: Context) -> None:
            asked = (calls.read(reflected.ServerReflectionRequest, data) async for data in requests)
            try:
                async for reply in mirror.ServerReflectionInfo(asked, context):
                    await calls.write(context, reply.SerializeToString())
            except RequestError as error:
                await calls.refuse(context, error)
            except ConnectionError:
                raise asyncio.CancelledError from None

        method = grpc.stream_stream_rpc_method_handler(reflect)
        return [
            kserve_grpc.Inference(self._service, self._closing).handlers(),
            speech_grpc.Speech(self._service).handlers(),
            Health(self._service, ours, self._closing).handlers(),
            # Version 1 is version 1alpha under another name; clients try the newer one first.
            *(
                grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method})
                for name in (_REFLECTION_V1, reflection.SERVICE_NAME)
            ),
        ]


def _check_free(host: str, port: int, where: str) -> None:
    """Bind and let go, for the system's own words: the library would say less, and write to stderr."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"can't listen on {where}: {reason}. Choose another --grpc-port") from None
