"""The gRPC front-end: one grpc.aio server on one port."""

from __future__ import annotations

import grpc

from reference_server.service import Service


class GrpcFrontEnd:
    """One listening port."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises OSError."""
        self._server = grpc.aio.server()
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(where)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        await self._server.start()
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, give calls under way that long to finish, then cancel them."""
        if self._server is not None:
            await self._server.stop(grace_s)


FRONTEND = GrpcFrontEnd
