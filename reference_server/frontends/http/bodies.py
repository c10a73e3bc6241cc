"""Reading the body of a request: never more of it than the limit, never slower than a floor.

It refuses bodies by what they declare before it reads them, and knows nothing of what is in them.
"""

from __future__ import annotations

import asyncio

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from plimsoll.reference_server.frontends.shared.fields import Fields
from plimsoll.reference_server.values.errors import RequestError

SLOWEST_BYTES_PER_S = 1024
"""A body may take the time limit, and longer by what it has sent at this rate."""
_CHARSETS = (None, "utf-8", "utf8", "us-ascii")


async def read_body(request: web.Request, *, limit: int, timeout_s: float) -> bytes:
    """The whole body. Raises RequestError: 400 when it breaks off or can't be decoded, 408 when it is too slow, 413 when it is too large."""
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
    async with asyncio.timeout_at(deadline_s) as timer:
        while piece := await content.readany():
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
            timer.reschedule(deadline_s + len(body) / SLOWEST_BYTES_PER_S)
    return bytes(body)


def json_fields(request: web.Request, body: bytes, *, any_type: bool = False) -> Fields:
    """The JSON object in a body; a type that was not said counts as JSON. Raises RequestError 400, and 415 for another type unless
    ``any_type``.
    """
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
