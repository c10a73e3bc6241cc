"""One inference request over HTTP from its last byte to its outcome: stamps, faults, refusals, counters.

The routes say what the answer is; this file sees to it that every request, however it ends, leaves one true
row and that every refusal is a reply in the dialect of its route.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from reference_server.answers import Script
from reference_server.errors import RequestError, StreamCut, StreamFailure
from reference_server.frontends.http import kserve_wire, ndjson_wire, openai_wire
from reference_server.frontends.http.bodies import json_fields, read_body
from reference_server.frontends.http.fields import Fields
from reference_server.frontends.http.ordeal import break_off, ordeal
from reference_server.frontends.websocket import deepgram_wire
from reference_server.misfortune.fate import Break, Misfortune, scripted_status
from reference_server.service import Service
from reference_server.stages import Stages
from reference_server.truth import TruthRow

DEADLINE_HEADER = "x-request-timeout-ms"
_MAX_ID = 200
"""Longest request id taken over: an id is a label, not a place to keep things."""
_MAX_DEADLINE_MS = 86_400_000
_MAX_MESSAGE = 1000
"""A refusal quotes what it refuses; it must not send all of it back."""
_MAX_PARAM = 200
_LAST = frozenset({408, 413})
"""After these the rest of the request is still on its way: the connection ends."""


@dataclass(slots=True, eq=False)
class Call:
    """One request under way."""

    service: Service
    request: web.Request
    body: bytes
    row: TruthRow
    misfortune: Misfortune = field(default_factory=Misfortune)
    failed: bool = False
    """The request was refused, or its answer failed, before or after its header had gone out under status 200."""
    own_cut: bool = False
    """The request itself said where it is cut."""
    deadline_ns: int = -1
    """Instant of ``time.monotonic_ns()`` after which nobody wants the answer; -1 for none."""

    def fields(self) -> Fields:
        """The JSON object in the body. Raises RequestError 400, or 415 when the header says that it is something else."""
        return json_fields(self.request, self.body)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Whatever the block waits for, it ends at the deadline. Raises RequestError 504."""
        if self.deadline_ns < 0:
            yield
            return
        try:
            # The loop's clock is the monotonic clock that deadlines are told in.
            async with asyncio.timeout_at(self.deadline_ns / 1e9):
                yield
        except TimeoutError:
            self.service.metrics.deadline_missed(self.row.model)
            raise RequestError(
                504,
                f"the answer was not whole within {DEADLINE_HEADER}. Allow more time, or ask for less",
                kind="server_error",
                param=DEADLINE_HEADER,
                code="deadline_exceeded",
            ) from None

    def count_stages(self, stages: Stages) -> None:
        """Have the answer's anatomy in the metrics."""
        self.service.metrics.stage(self.row.model, stages)

    def limits(self, script: Script) -> tuple[int, int]:
        """Token positions at which the answer fails or is cut: the request's own wish before the server's
        faults.
        """
        error_at = script.error_at if script.error_at >= 0 else self.misfortune.error_at
        if script.cut_at >= 0:
            self.own_cut = True
            return error_at, script.cut_at
        return error_at, self.misfortune.cut_at

    @property
    def break_by(self) -> Break:
        """How the answer breaks off, if it does."""
        return Break.CLOSE if self.own_cut else self.misfortune.break_by

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
        if self.misfortune.content_type and response.status < 400:
            response.headers["Content-Type"] = self.misfortune.content_type
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
        closed = service.closed()
        body = (
            b"" if closed else await read_body(request, limit=service.max_body_bytes, timeout_s=service.read_timeout_s)
        )
        received_ns = time.monotonic_ns()
        row = service.truth.open(request_id(service, request), "", received_ns)
        call = Call(service, request, body, row)
        outcome = "error"
        if closed is None:
            service.begin(received_ns)
        else:  # the clock of the faults starts with a request that is served
            service.n_in_flight += 1
        try:
            response = await _answer(call, respond, closed)
            outcome = "error" if call.failed else "ok"
            return response
        except StreamCut:
            outcome = "cut"
            await break_off(request, call.break_by)
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, ConnectionError):
            outcome = "cancelled"
            raise
        finally:
            service.n_in_flight -= 1
            service.truth.close(row, outcome, time.monotonic_ns())
            service.metrics.request(row.model, row.status, row.outcome)

    return handle


async def _answer(call: Call, respond: Respond, closed: RequestError | None) -> web.StreamResponse:
    """The route's answer, or the reply to a request that is refused or fails: of either the client may be gone, which raises."""
    service, received_ns = call.service, call.row.received_ns
    try:
        if closed is not None:
            raise closed
        call.deadline_ns = _deadline_ns(call.request, received_ns)
        call.misfortune = service.faults.draw(received_ns, in_flight=service.n_in_flight)
        async with ordeal(call.request, call.misfortune, service.wheel, received_ns):
            return await respond(call)
    except RequestError as error:
        call.failed = True
        return await _refuse(call, error)
    except StreamFailure as failure:
        call.failed = True
        failed = RequestError(failure.status, str(failure), kind="server_error", code=failure.code)
        response = refusal(call.request, failed)
        await call.send(response)
        return response


async def _refuse(call: Call, error: RequestError) -> web.Response:
    if error.status in (429, 503) and call.row.model not in call.service.fixed:  # whose batchers count for themselves
        call.service.metrics.rejected(call.row.model, error.code or "unnamed")
    response = refusal(call.request, error)
    if call.service.startup.draining:
        response.force_close()  # the next request goes to another server
    await call.hold_headers()
    await call.send(response)
    return response


def refusal(request: web.Request, error: RequestError) -> web.Response:
    """The reply to a refused request, in the dialect of its route."""
    if len(error.message) > _MAX_MESSAGE:
        error.message = error.message[:_MAX_MESSAGE] + " ..."
    if error.param is not None:
        error.param = error.param[:_MAX_PARAM]
    dialect = openai_wire.error_body
    if request.path.startswith("/v2"):
        dialect = kserve_wire.error_body
    elif request.path.startswith("/api/"):
        dialect = ndjson_wire.error_body
    elif request.path in ("/v1/listen", "/v1/speak"):
        dialect = deepgram_wire.error_body
    response = web.Response(body=dialect(error), status=error.status, content_type="application/json")
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    if error.status in _LAST:
        response.force_close()
    return response


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What was refused before a route had it (unknown path, wrong method, body too large), in the route's dialect."""
    try:
        return await handler(request)
    except RequestError as error:
        return refusal(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status, "refused")
        response = refusal(request, RequestError(error.status, message, code=code))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


def _deadline_ns(request: web.Request, received_ns: int) -> int:
    given = request.headers.get(DEADLINE_HEADER)
    if given is None:
        return -1
    if not given.isascii() or not given.isdecimal() or len(given) > 9 or not 1 <= int(given) <= _MAX_DEADLINE_MS:
        message = f"{DEADLINE_HEADER}: must be whole milliseconds from 1 to {_MAX_DEADLINE_MS}"
        raise RequestError(400, message, param=DEADLINE_HEADER, code="invalid_value")
    return received_ns + int(given) * 1_000_000


def request_id(service: Service, request: web.Request) -> str:
    """The id a request goes by: its own, or one made up where it has none that can be kept."""
    given = request.headers.get("x-request-id", "")
    if given and given.isprintable() and len(given) <= _MAX_ID:
        return given
    service.n_unnamed += 1
    return f"unnamed-{service.n_unnamed}"
