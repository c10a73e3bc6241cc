"""Routes about the server itself: health, metrics, and the truth about past requests."""

from __future__ import annotations

import json

from aiohttp import web

from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

_MAX_DIGITS = 19
"""Of nanoseconds in 64 bits."""


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""
    _add_health(app, service)
    _add_truth(app, service)


def _add_health(app: web.Application, service: Service) -> None:
    startup = service.startup

    async def health(_request: web.Request) -> web.Response:
        closed = service.closed()
        status = "ok" if closed is None else closed.code
        answer = {"status": status, "models": service.model_names, "startup_s": startup.seconds()}
        if status == "ok":
            return web.json_response(answer)
        return web.json_response(answer, status=503, headers={"Retry-After": "1"})

    async def live(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def start_phases(_request: web.Request) -> web.Response:
        return web.json_response({"ready": startup.ready, "startup_s": startup.seconds()})

    async def metrics(_request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=service.render_metrics(), headers=headers)

    app.router.add_get("/health", health)
    app.router.add_get("/health/live", live)
    app.router.add_get("/startup", start_phases)
    app.router.add_get("/metrics", metrics)


def _add_truth(app: web.Application, service: Service) -> None:
    async def truth(request: web.Request) -> web.StreamResponse:
        since = request.query.get("since", "0")
        if not since.isdecimal() or len(since) > _MAX_DIGITS:
            raise RequestError(400, "since: must be monotonic nanoseconds, e.g. since=0", param="since")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for row in service.truth.since(int(since)):
            await response.write(json.dumps(row.as_json()).encode() + b"\n")
        await response.write_eof()
        return response

    async def truth_of(request: web.Request) -> web.Response:
        request_id = request.match_info["request_id"]
        row = service.truth.get(request_id)
        if row is None:
            raise RequestError(404, f"no truth about request {request_id!r}: never seen, or forgotten", code="unknown")
        return web.json_response(row.as_json())

    async def forget(_request: web.Request) -> web.Response:
        service.truth.clear()
        return web.Response(status=204)

    app.router.add_get("/truth", truth)
    app.router.add_get("/truth/{request_id}", truth_of)
    app.router.add_delete("/truth", forget)
