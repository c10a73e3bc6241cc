"""One inference request over HTTP from its last byte to its outcome: stamps, faults, refusals, counters.

The routes say what the answer is; this file sees to it that every request, however it ends, leaves one true
row and that every refusal is a reply in the dialect of its route. What no transport changes of that is in ``accounting``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from aiohttp import web

from plimsoll.reference_server.frontends.http import kserve_wire, ndjson_wire, openai_wire
from plimsoll.reference_server.frontends.http.bodies import json_fields, read_body
from plimsoll.reference_server.frontends.http.ordeal import break_off, ordeal
from plimsoll.reference_server.frontends.shared import deepgram_wire
from plimsoll.reference_server.frontends.shared.fields import Fields
from plimsoll.reference_server.frontends.shared.stream import EventSink
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.accounting import UNTOUCHED, Account, accounted, in_time
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.stages import Stages

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

    account: Account
    request: web.Request
    body: bytes
    failed: bool = False
    """The request was refused, or its answer failed, before or after its header had gone out under status 200."""
    deadline_ns: int = -1
    """Instant of ``time.monotonic_ns()`` after which nobody wants the answer; -1 for none."""

    @property
    def service(self) -> Service:
        """The server that it came to."""
        return self.account.service

    @property
    def row(self) -> TruthRow:
        """What is kept of it."""
        return self.account.row

    def fields(self, *, any_type: bool = False) -> Fields:
        """The JSON object in the body. Raises RequestError 400, or 415 when the header says that it is something else."""
        return json_fields(self.request, self.body, any_type=any_type)

    def deadline(self) -> AbstractAsyncContextManager[None]:
        """Whatever the block waits for, it ends at the deadline. Raises RequestError 504."""

        def missed() -> None:
            self.service.metrics.deadline_missed(self.row.model)

        return in_time(self.deadline_ns, missed, f"within {DEADLINE_HEADER}", param=DEADLINE_HEADER)

    def count_stages(self, stages: Stages) -> None:
        """Have the answer's anatomy in the metrics."""
        self.service.metrics.stage(self.row.model, stages)

    async def send(self, response: web.StreamResponse) -> None:
        """Write the header, and the body if it is already known; stamp the first byte."""
        response.headers["x-request-id"] = self.row.request_id
        if self.account.misfortune.content_type and response.status < 400:
            response.headers["Content-Type"] = self.account.misfortune.content_type
        self.row.status = response.status
        self.row.first_write_ns = time.monotonic_ns()
        await response.prepare(self.request)
        if isinstance(response, web.Response):
            await response.write_eof()

    async def begin(
        self, content_type: str, stages: Stages, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Send the header of an answer that comes piece by piece."""
        response = web.StreamResponse(
            headers={"Content-Type": content_type, "Cache-Control": "no-cache", "Server-Timing": stages.server_timing()}
        )
        response.headers.update(headers or {})
        if self._chunked:
            response.enable_chunked_encoding()
        await self.account.hold()
        await self.send(response)
        return response

    def sink(self, render: Callable[[str], bytes], limits: tuple[int, int]) -> EventSink:
        """Where the events of an answer go that has begun. Raises ConnectionResetError when the client is gone."""
        transport = self.request.transport
        if not isinstance(transport, asyncio.WriteTransport):
            raise ConnectionResetError("the client is gone")
        return EventSink(transport, self.row, render, chunked=self._chunked, error_at=limits[0], cut_at=limits[1])

    @property
    def _chunked(self) -> bool:
        return self.request.version >= (1, 1)

    async def reply(self, body: bytes, *, server_timing: str = "") -> web.Response:
        """Send a JSON body under status 200."""
        await self.account.hold()
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
        with accounted(service, request_id(service, request), received_ns, closed) as account:
            call = Call(account, request, body)
            try:
                response = await _answer(call, respond)
                account.outcome = "error" if call.failed else "ok"
                return response
            except StreamCut:
                account.outcome = "cut"
                await break_off(request, account.break_by)
                raise asyncio.CancelledError from None
            except (asyncio.CancelledError, ConnectionError):
                account.outcome = "cancelled"
                raise

    return handle


async def _answer(call: Call, respond: Respond) -> web.StreamResponse:
    """The route's answer, or the reply to a request that is refused or fails: of either the client may be gone, which raises."""
    service, received_ns = call.service, call.row.received_ns
    try:
        if call.account.closed is not None:
            raise call.account.closed
        call.deadline_ns = _deadline_ns(call.request, received_ns)
        misfortune = call.account.draw()
        if misfortune is UNTOUCHED:
            return await respond(call)
        async with ordeal(call.request, misfortune, service.wheel, received_ns):
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
    call.account.refused(error)
    response = refusal(call.request, error)
    if call.service.startup.draining:
        response.force_close()  # the next request goes to another server
    await call.account.hold()
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
