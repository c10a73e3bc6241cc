"""Routes that put faults in force on a running server, and take them away. From this host only, and never for a browser's page."""

from __future__ import annotations

import ipaddress
import time

from aiohttp import web

from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.misfortune.fault import Fault, check_models, parse_fault
from plimsoll.reference_server.misfortune.placed import UNBEGUN
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import ConfigError, RequestError

_MAX_BODY = 4096
_MAX_FAULTS = 64


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""

    async def place(request: web.Request) -> web.Response:
        _check_caller(request)
        fields = await _fields(request)
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
        _check_caller(request)
        now_ns = time.monotonic_ns()
        return web.json_response({"faults": [placed.as_json(now_ns) for placed in service.faults.present]})

    async def remove(request: web.Request) -> web.Response:
        _check_caller(request)
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


async def _fields(request: web.Request) -> Fields:
    """Raises RequestError 400 for what is no JSON object of known keys, 413 for too much."""
    body = b""
    while len(body) <= _MAX_BODY and (piece := await request.content.readany()):
        body += piece
    if len(body) > _MAX_BODY:
        raise RequestError(413, f"the body is larger than the limit of {_MAX_BODY} bytes", code="body_too_large")
    fields = Fields.parse(body)
    for key in fields.values:
        if key not in ("fault", "from"):
            raise invalid(key, 'unknown. Send {"fault": "NAME=ARGS"}, and perhaps "from": "call" or "request"')
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
        check_models(fault, service.model_names)
    except ConfigError as error:
        raise _refused(error) from None
    if fault.kind.at_start:
        raise invalid("fault", f"{fault.name} acts while the server starts. Give it at start: --fault {fault.text}")
    if len(service.faults.present) >= _MAX_FAULTS:
        raise RequestError(409, f"{_MAX_FAULTS} faults are in force already. Take some away: DELETE /admin/faults/ID")
    return fault


def _refused(error: ConfigError) -> RequestError:
    return RequestError(400, str(error).removeprefix("--fault "), param="fault", code="invalid_value")


def _check_caller(request: web.Request) -> None:
    """Raises RequestError 403: who may only use the server must not be able to break it."""
    if not _from_here(request):
        raise RequestError(403, "faults are changed from the server's own host only. Call 127.0.0.1", code="forbidden")
    if "Origin" in request.headers:
        raise RequestError(
            403, "faults are not changed from web pages. Call without an Origin header", code="forbidden"
        )


def _from_here(request: web.Request) -> bool:
    try:
        address = ipaddress.ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
