"""The HTTP front-end: an aiohttp server on one socket, routes registered from their own files.

One write per event and no compression; Nagle's algorithm is off. A client that goes away cancels its request.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from reference_server.frontends.http import admin_routes, kserve_routes, openai_routes
from reference_server.frontends.http.calls import refusals
from reference_server.service import Service


class HttpFrontEnd:
    """One listening socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, chosen by the kernel where 0 was asked for. Raises OSError."""
        app = web.Application(client_max_size=self._service.max_body_bytes, middlewares=[refusals])
        for routes in (openai_routes, kserve_routes, admin_routes):
            routes.add_routes(app, self._service)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1, keepalive_timeout=3600.0
        )
        await self._runner.setup()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=4096)
        self._site = web.SockSite(self._runner, listener, backlog=4096)
        await self._site.start()
        return int(listener.getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, give requests under way that long to finish, then cancel them."""
        if self._runner is None:
            return
        if self._site is not None:
            await self._site.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while self._service.n_in_flight and loop.time() < deadline:
            await asyncio.sleep(min(0.02, grace_s))
        await self._runner.cleanup()


FRONTEND = HttpFrontEnd
