"""The HTTP front-end: an aiohttp server on one socket, routes registered from their own files.

One write per event and no compression; Nagle's algorithm is off. A client that goes away cancels its request, and so does one
that closes its half of the connection: the two look the same from here.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket

from aiohttp import web

from plimsoll.reference_server.frontends.http import (
    admin_routes,
    audio_routes,
    kserve_routes,
    misfortune_routes,
    ndjson_routes,
    openai_routes,
)
from plimsoll.reference_server.frontends.http.calls import refusals
from plimsoll.reference_server.frontends.http.connections import Connection, Door
from plimsoll.reference_server.frontends.websocket import routes as websocket_routes
from plimsoll.reference_server.service.service import Service

_ROUTES = (openai_routes, audio_routes, ndjson_routes, kserve_routes, admin_routes, misfortune_routes, websocket_routes)
_SPARE_FILES = 64
"""Descriptors that are not for connections."""
_LINGER_S = 2.0
"""How long what a refused client still sends is read and thrown away, so that it gets to read the refusal."""


class HttpFrontEnd:
    """One listening socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._deadline_s = float("inf")
        self._door = Door(limit=_room(service.max_connections), head_s=service.read_timeout_s)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises OSError."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=4096)
        app = web.Application(middlewares=[self._door.track, refusals])
        for routes in _ROUTES:
            routes.add_routes(app, self._service)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None

        def connect() -> Connection:
            return Connection(
                self._door,
                server,
                loop=loop,
                access_log=None,
                keepalive_timeout=3600.0,
                lingering_time=_LINGER_S,
                logger=logging.getLogger(__name__),
            )

        self._listener = await loop.create_server(connect, sock=listener, backlog=4096)
        return int(listener.getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, give requests under way that long to finish, then cancel them. A second call can shorten the wait."""
        if self._runner is None:
            return
        if self._listener is not None:
            self._listener.close()
        loop = asyncio.get_running_loop()
        self._deadline_s = min(self._deadline_s, loop.time() + grace_s)
        while (self._service.n_in_flight or self._door.unsent_bytes) and loop.time() < self._deadline_s:
            await asyncio.sleep(0.02)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._door.close()


def _room(wanted: int) -> int:
    """As many connections as were asked for and the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + _SPARE_FILES:
        most = wanted + _SPARE_FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + _SPARE_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return max(1, most - _SPARE_FILES)
    return wanted


FRONTEND = HttpFrontEnd
