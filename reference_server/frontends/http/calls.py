"""One inference request over HTTP from its last byte to its outcome: stamps, faults, refusals, counters.

The routes say what the answer is; this file sees to it that every request, however it ends, leaves one true
row and that every refusal is a reply in the dialect of its route.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from reference_server.answers import Script
from reference_server.errors import RequestError, StreamCut, StreamFailure
from reference_server.faults import Misfortune, scripted_status
from reference_server.frontends.http import kserve_wire, openai_wire
from reference_server.service import Service
from reference_server.truth import TruthRow

_MAX_ID = 200
"""Longest request id taken over: an id is a label, not a place to keep things."""


@dataclass(slots=True, eq=False)
class Call:
    """One request under way."""

    service: Service
    request: web.Request
    body: bytes
    row: TruthRow
    misfortune: Misfortune = field(default_factory=Misfortune)
    failed: bool = False
    """The answer failed after its header had gone out under status 200."""

    def limits(self, script: Script) -> tuple[int, int]:
        """Token positions at which the answer fails or is cut: the request's own wish before the server's
        faults.
        """
        error_at = script.error_at if script.error_at >= 0 else self.misfortune.error_at
        return error_at, script.cut_at if script.cut_at >= 0 else self.misfortune.cut_at

    def obey(self, script: Script) -> None:
        """Raise the status that the script asks for, if it does."""
        if script.status is not None:
            raise scripted_status(script.status)

    async def hold_headers(self) -> None:
        """Wait as long as the faults say before the first byte."""
        if self.misfortune.delay_ns > 0:
            await self.service.wheel.sleep_until(self.row.received_ns + self.misfortune.delay_ns)

    async def send(self, response: web.StreamResponse) -> None:
        """Write the header, and the body if it is already known; stamp the first byte."""
        response.headers["x-request-id"] = self.row.request_id
        self.row.status = response.status
        self.row.first_write_ns = time.monotonic_ns()
        await response.prepare(self.request)
        if isinstance(response, web.Response):
            await response.write_eof()

    async def reply(self, body: bytes, *, server_timing: str = "") -> web.Response:
        """Send a JSON body under status 200."""
        await self.hold_headers()
        response = web.Response(body=body, content_type="application/json")
        if server_timing:
            response.headers["Server-Timing"] = server_timing
        await self.send(response)
        return response


Respond = Callable[[Call], Awaitable[web.StreamResponse]]


def inference(service: Service, respond: Respond) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of an inference route."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        received_ns = time.monotonic_ns()
        row = service.truth.open(_request_id(service, request), "", received_ns)
        call = Call(service, request, body, row)
        service.begin(received_ns)
        outcome = "error"
        try:
            call.misfortune = service.faults.draw(received_ns)
            response = await respond(call)
            outcome = "error" if call.failed else "ok"
            return response
        except RequestError as error:
            response = refusal(request, error)
            await call.hold_headers()
            await call.send(response)
            return response
        except StreamFailure as failure:
            response = refusal(request, RequestError(500, str(failure), kind="server_error", code="stream_failed"))
            await call.send(response)
            return response
        except StreamCut:
            outcome = "cut"
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, ConnectionError):
            outcome = "cancelled"
            raise
        finally:
            service.n_in_flight -= 1
            service.truth.close(row, outcome, time.monotonic_ns())
            service.metrics.request(row.model, row.status, row.outcome)

    return handle


def refusal(request: web.Request, error: RequestError) -> web.Response:
    """The reply to a refused request, in the dialect of its route."""
    body = kserve_wire.error_body(error) if request.path.startswith("/v2") else openai_wire.error_body(error)
    response = web.Response(body=body, status=error.status, content_type="application/json")
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What aiohttp itself refuses (unknown path, wrong method, body too large), in the route's dialect."""
    try:
        return await handler(request)
    except RequestError as error:
        return refusal(request, error)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is larger than the limit of {request.client_max_size} bytes"
        return refusal(request, RequestError(413, message, code="body_too_large"))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        response = refusal(request, RequestError(error.status, message, code="not_found"))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


def _request_id(service: Service, request: web.Request) -> str:
    given = request.headers.get("x-request-id", "")
    if given and given.isprintable() and len(given) <= _MAX_ID:
        return given
    service.n_unnamed += 1
    return f"unnamed-{service.n_unnamed}"
