"""Registers the WebSocket routes, and has open sessions told when the server goes away."""

from __future__ import annotations

from aiohttp import web

from plimsoll.reference_server.frontends.websocket import listen, realtime, speak
from plimsoll.reference_server.frontends.websocket.sessions import Sessions, quiet_subprotocols
from plimsoll.reference_server.service.service import Service


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""
    quiet_subprotocols()
    sessions = Sessions(service)
    listen.add_routes(app, sessions)
    speak.add_routes(app, sessions)
    realtime.add_routes(app, sessions)
    app.on_shutdown.append(sessions.end)
