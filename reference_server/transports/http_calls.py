"""One inference request over HTTP: its body, its stamps, its faults, and how it is refused in the dialect of its route.

However a request ends, it leaves one true row. What the faults do to its connection (held back, broken off, muted,
reset, dripped out) the routes know nothing of. What no transport changes is in ``service``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from plimsoll.reference_server.misfortune.fault import Break, Misfortune
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import UNTOUCHED, Account, Service, accounted
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.stream import EventSink, struck
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.timetable import DeadlineWheel, Entry

SLOWEST_BYTES_PER_S = 1024
"""A body may take the time limit, and longer by what it has sent at this rate."""
_CHARSETS = (None, "utf-8", "utf8", "us-ascii")
NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing discards what is unsent and sends a reset."""
DEADLINE_HEADER = "x-request-timeout-ms"
_MAX_ID = 200
"""Longest request id taken over: an id is a label, not a place to keep things."""
_MAX_DEADLINE_MS = 86_400_000
_MAX_MESSAGE = 1000
"""A refusal quotes what it refuses; it must not send all of it back."""
_MAX_PARAM = 200
_KEPT = ("Content-Type", "Inference-Header-Content-Length")
"""Headers that belong to a body."""
_LAST = frozenset({408, 413})
"""After these the rest of the request is still on its way: the connection ends."""


async def read_body(request: web.Request, *, limit: int, timeout_s: float) -> bytes:
    """The whole body. Raises RequestError: 400 when it can't be read, 408 when too slow, 413 when too large;
    ConnectionResetError when the client has gone.
    """
    declared = request.content_length
    if declared is not None and declared > limit:
        raise _too_large(limit)
    content = request.content
    try:
        if content.is_eof():  # most bodies came with their heads
            body = await content.read()
            if len(body) > limit:
                raise _too_large(limit)
            return body
        if request.transport is None:  # gone before this began: aiohttp would call its reader misused
            raise ConnectionResetError("the client is gone")
        return await _read_slowly(content, limit, timeout_s)
    except TimeoutError:
        message = (
            f"the body did not come within {timeout_s:g} s and a second more for each {SLOWEST_BYTES_PER_S} bytes. "
            "Send it faster"
        )
        raise RequestError(408, message, code="request_timeout") from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RequestError(400, f"the body can't be read: {reason}", code="invalid_body") from None


async def _read_slowly(content: StreamReader, limit: int, timeout_s: float) -> bytes:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    body = bytearray()
    while not content.at_eof():
        try:
            async with asyncio.timeout_at(deadline_s + len(body) / SLOWEST_BYTES_PER_S):
                body += await content.readany()
        except TimeoutError:
            for _ in range(2):  # after a standstill of ours the timer comes before what waits in the kernel is read
                await asyncio.sleep(0)
            late = content.read_nowait()
            if not late and not content.at_eof():
                raise
            body += late
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def json_fields(request: web.Request, body: bytes, *, any_type: bool = False) -> Fields:
    """The JSON object in a body without a type, or of JSON's. Raises RequestError 400, and 415 unless ``any_type``."""
    if "Content-Type" in request.headers and not any_type:
        kind, charset = request.content_type, request.charset
        if kind != "application/json" and not kind.endswith("+json"):
            message = f"Content-Type {kind} is not understood here. Send application/json"
            raise RequestError(415, message, code="unsupported_media_type")
        if (charset.lower() if charset else None) not in _CHARSETS:
            message = f"charset {charset} is not understood here. Send UTF-8"
            raise RequestError(415, message, code="unsupported_media_type")
    return Fields.parse(body)


def _too_large(limit: int) -> RequestError:
    message = (
        f"the body is larger than the limit of {limit} bytes. Send less, or start the server with a larger --max-body"
    )
    return RequestError(413, message, code="body_too_large")


@asynccontextmanager
async def ordeal(
    request: web.Request, misfortune: Misfortune, wheel: DeadlineWheel, received_ns: int
) -> AsyncIterator[None]:
    """Have the block answer under the misfortune. Raises StreamCut when there is to be no answer at all."""
    if misfortune.hold_ns > 0:
        await wheel.sleep_until(received_ns + misfortune.hold_ns)
    if misfortune.breaks_at_once:
        raise StreamCut("the script ends the connection before the first byte")
    transport = request.transport
    if misfortune.drip_bytes == 0 or not isinstance(transport, asyncio.Transport):
        yield
        return
    drip = Drip(transport, wheel, misfortune.drip_bytes, misfortune.drip_ns)
    request.protocol.transport = drip
    try:
        yield
        await drip.drained()
    finally:
        drip.stop()
        if request.protocol.transport is drip:  # a lost connection has none any more
            request.protocol.transport = transport


async def break_off(request: web.Request, manner: Break) -> None:
    """End the answer here. Of the mute kind it returns only by cancellation, when the client or the server gives up."""
    if manner is Break.MUTE:
        await asyncio.Event().wait()
    if request.transport is None:
        return
    if manner is Break.RESET:
        connection = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    request.transport.abort()


class Drip(asyncio.Transport):
    """A transport before a transport: what is written goes out in pieces of ``n_bytes``, one each ``every_ns``."""

    def __init__(self, transport: asyncio.Transport, wheel: DeadlineWheel, n_bytes: int, every_ns: int) -> None:
        super().__init__()
        self._transport = transport
        self._wheel = wheel
        self._n_bytes = n_bytes
        self._every_ns = every_ns
        self._unsent: deque[int] = deque()
        self._entry: Entry | None = None
        self._last_ns = 0
        self._dry = asyncio.Event()
        self._dry.set()
        for same in ("get_extra_info", "set_protocol", "get_protocol", "pause_reading", "resume_reading", "is_closing"):
            setattr(self, same, getattr(transport, same))

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Keep the bytes, and let the first of them go when it is time."""
        self._unsent.extend(bytes(data))
        if self._unsent and self._entry is None:
            self._dry.clear()
            self._entry = self._wheel.at(max(time.monotonic_ns(), self._last_ns + self._every_ns), self._drop)

    def _drop(self, due_ns: int) -> int | None:
        if self._transport.is_closing():
            self.stop()
            return None
        n = min(self._n_bytes, len(self._unsent))
        self._transport.write(bytes(self._unsent.popleft() for _ in range(n)))
        self._last_ns = due_ns
        if self._unsent:
            return due_ns + self._every_ns
        self._entry = None
        self._dry.set()
        return None

    async def drained(self) -> None:
        """Return when all has gone out, or never will."""
        await self._dry.wait()

    def stop(self) -> None:
        """Forget what has not gone out."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None
        self._unsent.clear()
        self._dry.set()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        self.stop()
        self._transport.close()

    def abort(self) -> None:
        self.stop()
        self._transport.abort()


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
    cache: str = ""
    """``hit`` or ``miss``, where answers are kept."""
    events: list[bytes] = field(default_factory=list)
    """Those of its stream, where answers are kept."""

    @property
    def service(self) -> Service:
        return self.account.service

    @property
    def row(self) -> TruthRow:
        return self.account.row

    def fields(self, *, any_type: bool = False) -> Fields:
        """The JSON object in the body. Raises RequestError 400, or 415 for another type."""
        return json_fields(self.request, self.body, any_type=any_type)

    def deadline(self) -> AbstractAsyncContextManager[None]:
        """Whatever the block waits for, it ends at the deadline. Raises RequestError 504."""
        return self.service.in_time(self.row.model, self.deadline_ns, f"within {DEADLINE_HEADER}", DEADLINE_HEADER)

    def count_stages(self, stages: Stages) -> None:
        self.service.metrics.stage(self.row.model, stages)

    async def send(self, response: web.StreamResponse) -> None:
        """Write the header, and the body if it is already known; stamp the first byte."""
        response.headers["x-request-id"] = self.row.request_id
        if self.cache:
            response.headers["x-cache"] = self.cache
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

    async def play(
        self, response: web.StreamResponse, pieces: AsyncIterator[bytes], stages: Stages, limits: tuple[int, int]
    ) -> web.StreamResponse:
        """Write audio piece by piece, each stamped; its header went out, so what fails now is only cut off."""
        row = self.row
        try:
            async with self.deadline():
                async for data in pieces:
                    struck(len(row.before_ns), *limits)
                    before_ns = time.monotonic_ns()
                    await response.write(data)
                    row.before_ns.append(before_ns)
                    row.after_ns.append(time.monotonic_ns())
        except (StreamFailure, RequestError) as failure:
            raise StreamCut(f"audio has no other way to say it: {failure}") from None
        self.count_stages(stages)
        await response.write_eof()
        return response

    def sink(self, render: Callable[[str], bytes], limits: tuple[int, int]) -> EventSink:
        """Where the events of an answer go that has begun. Raises ConnectionResetError when the client is gone."""
        transport = self.request.transport
        if not isinstance(transport, asyncio.WriteTransport):
            raise ConnectionResetError("the client is gone")
        sink = EventSink(transport, self.row, render, chunked=self._chunked, error_at=limits[0], cut_at=limits[1])
        sink.kept = self.events if self.cache else None
        return sink

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
    """The route's answer, or the reply to a request that is refused or fails. Raises when the client is gone."""
    service, received_ns = call.service, call.row.received_ns
    try:
        if call.account.closed is not None:
            raise call.account.closed
        call.deadline_ns = _deadline_ns(call.request, received_ns)
        misfortune = call.account.draw()
        if misfortune is UNTOUCHED:
            return await _kept(call, respond)
        async with ordeal(call.request, misfortune, service.wheel, received_ns):
            return await _kept(call, respond)
    except RequestError as error:
        call.failed = True
        return await _refuse(call, error)
    except StreamFailure as failure:
        call.failed = True
        response = refusal(call.request, failure.refusal())
        await call.send(response)
        return response


async def _kept(call: Call, respond: Respond) -> web.StreamResponse:
    """The answer kept of the same request (path and body), in one piece; else a new one, which is kept if good."""
    answers = call.service.kept
    if call.service.response_cache == 0:
        return await respond(call)
    key = hashlib.sha256(call.request.path_qs.encode() + b"\0" + call.body).digest()
    kept = answers.pop(key, None)
    call.cache = "miss" if kept is None else "hit"
    call.service.metrics.cached(call.cache)
    if kept is not None:
        answers[key] = kept
        call.row.model, headers, body = kept
        hit = web.Response(body=body, headers=headers)
        await call.send(hit)
        return hit
    response = await respond(call)
    made = response.body if isinstance(response, web.Response) else b"".join(call.events)
    if response.status == 200 and not call.failed and isinstance(made, bytes) and made:
        headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
        answers[key] = call.row.model, headers, made
        if len(answers) > call.service.response_cache:
            answers.popitem(last=False)
    return response


async def _refuse(call: Call, error: RequestError) -> web.Response:
    call.account.refused(error)
    response = refusal(call.request, error)
    if call.service.startup.draining:
        response.force_close()  # the next request goes to another server
    await call.account.hold()
    await call.send(response)
    return response


def error_body(path: str, error: RequestError) -> bytes:
    """The JSON of a refusal in the dialect of a path, OpenAI's where it is nobody's."""
    if path in ("/v1/listen", "/v1/speak"):
        return deepgram_error(error)
    own = path.startswith(("/v2", "/api/"))  # KServe's and Ollama's
    return json.dumps({"error": error.message} if own else openai_error(error)).encode()


def openai_error(error: RequestError) -> dict[str, Any]:
    """A refusal as OpenAI's services write it."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def deepgram_error(error: RequestError, request_id: str = "") -> bytes:
    """A refusal as Deepgram writes it; the request id is also in the header x-request-id."""
    code = (error.code or error.kind).upper()
    return json.dumps({"err_code": code, "err_msg": error.message[:_MAX_MESSAGE], "request_id": request_id}).encode()


def refusal(request: web.Request, error: RequestError) -> web.Response:
    """The reply to a refused request, in the dialect of its route."""
    if len(error.message) > _MAX_MESSAGE:
        error.message = error.message[:_MAX_MESSAGE] + " ..."
    if error.param is not None:
        error.param = error.param[:_MAX_PARAM]
    body = error_body(request.path, error)
    response = web.Response(body=body, status=error.status, content_type="application/json")
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
