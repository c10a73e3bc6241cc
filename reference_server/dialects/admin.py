"""Routes about the server itself: health, metrics, the truth about past requests, and the faults in force.

Faults are changed from this host only, and never for a browser's page.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Collection

from aiohttp import web

from plimsoll.reference_server.misfortune.fault import Fault, check_models, parse_fault
from plimsoll.reference_server.misfortune.faults import UNBEGUN
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.errors import ConfigError, RequestError, invalid

_MAX_DIGITS = 19
"""Of nanoseconds in 64 bits."""
_MAX_BODY = 4096
_MAX_FAULTS = 64
_EXAMPLE = 'Send {"fault": "NAME=ARGS"}, and perhaps "from": "call" or "request"'


def add_routes(app: web.Application, service: Service) -> None:
    _add_health(app, service)
    _add_truth(app, service)
    _add_faults(app, service)


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


def _add_faults(app: web.Application, service: Service) -> None:
    async def place(request: web.Request) -> web.Response:
        check_caller(request)
        fields = await read_fields(request, ("fault", "from"), _EXAMPLE)
        fault = _fault(fields, service)
        at_once = _at_once(fields)
        if service.canary is not None and fault.name == "quality":
            try:
                await service.canary.prepare(fault)
            except ConfigError as error:
                raise _refused(error) from None
        now_ns = time.monotonic_ns()
        placed = service.faults.place(fault, now_ns if at_once else UNBEGUN)
        service.levers.changed(now_ns)
        return web.json_response(placed.as_json(now_ns), status=201)

    async def listing(request: web.Request) -> web.Response:
        check_caller(request)
        now_ns = time.monotonic_ns()
        return web.json_response({"faults": [placed.as_json(now_ns) for placed in service.faults.present]})

    async def remove(request: web.Request) -> web.Response:
        check_caller(request)
        fault_id = request.match_info.get("fault_id")
        gone = service.faults.remove(fault_id)
        if fault_id is not None and not gone:
            present = ", ".join(placed.fault_id for placed in service.faults.present) or "none"
            raise RequestError(404, f"no fault has the id {fault_id!r}. In force: {present}", code="unknown_fault")
        now_ns = time.monotonic_ns()
        service.levers.changed(now_ns)
        return web.json_response({"faults": [placed.as_json(now_ns) for placed in gone]})

    app.router.add_post("/admin/faults", place)
    app.router.add_get("/admin/faults", listing)
    app.router.add_delete("/admin/faults", remove)
    app.router.add_delete("/admin/faults/{fault_id}", remove)


async def read_fields(request: web.Request, known: Collection[str], example: str = "") -> Fields:
    """The JSON object in the body. Raises RequestError 400 for what is none, or has other keys; 413 for too much."""
    body = b""
    if request.transport is None:
        raise ConnectionResetError("the client is gone")
    while len(body) <= _MAX_BODY and (piece := await request.content.readany()):
        body += piece
    if len(body) > _MAX_BODY:
        raise RequestError(413, f"the body is larger than the limit of {_MAX_BODY} bytes", code="body_too_large")
    fields = Fields.parse(body)
    for key in fields.values:
        if key not in known:
            raise invalid(key, "unknown. " + (example or f"Known: {', '.join(sorted(known))}"))
    return fields


def _at_once(fields: Fields) -> bool:
    """Do the fault's times count from the call, or else from the next inference request?"""
    since = fields.text("from", "call")
    if since not in ("call", "request"):
        raise invalid("from", "must be call (now) or request (the next inference request)")
    return since == "call"


def _fault(fields: Fields, service: Service) -> Fault:
    try:
        fault = parse_fault(fields.text("fault"))
        in_batches = service.scripted is not None and service.scripted.batches is not None
        check_models(fault, service.model_names, batches=in_batches)
    except ConfigError as error:
        raise _refused(error) from None
    if fault.kind.at_start:
        raise invalid("fault", f"{fault.name} acts while the server starts. Give it at start: --fault {fault.text}")
    if len(service.faults.present) >= _MAX_FAULTS:
        raise RequestError(409, f"{_MAX_FAULTS} faults are in force already. Take some away: DELETE /admin/faults/ID")
    return fault


def _refused(error: ConfigError) -> RequestError:
    return RequestError(400, str(error).removeprefix("--fault "), param="fault", code="invalid_value")


def check_caller(request: web.Request) -> None:
    """Raises RequestError 403: who may only use the server must not be able to break it."""
    if not _from_here(request):
        raise RequestError(403, "faults are changed from the server's own host only. Call 127.0.0.1", code="forbidden")
    if "Origin" in request.headers:
        raise RequestError(
            403, "faults are not changed from web pages. Call without an Origin header", code="forbidden"
        )


def _from_here(request: web.Request) -> bool:
    """Did it come from this host, and whoever had it passed on too?"""
    passed_on = ",".join(request.headers.getall("X-Forwarded-For", ()))
    return all(map(_is_here, (request.remote or "", *filter(None, passed_on.split(",")))))


def _is_here(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
