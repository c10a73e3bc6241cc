"""The gRPC front-end: one grpc.aio server on one port, with inference, speech, health and reflection.

The port is its own: a second server on it is refused, where the library would share it and split the calls between the two.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

from plimsoll.reference_server.frontends.grpc_ import grpc_calls as calls
from plimsoll.reference_server.frontends.grpc_ import health, inference, speech
from plimsoll.reference_server.frontends.grpc_.grpc_calls import Context
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import ConfigError, RequestError

_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class GrpcFrontEnd:
    """One listening port."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closing = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises ConfigError when it can't be had."""
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _check_free(host, port, where)
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self._service.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=self._service.max_connections,
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
        ours = (inference.SERVICE, speech.SERVICE)
        served = [*ours, health.SERVICE, reflection.SERVICE_NAME]
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
            inference.Inference(self._service, self._closing).handlers(),
            speech.Speech(self._service).handlers(),
            health.Health(self._service, ours, self._closing).handlers(),
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


FRONTEND = GrpcFrontEnd
