"""A fake of servers without a protocol of their own: whatever framing is asked for.

``/lines`` text lines, ``/chunks`` bare text, ``/sse`` events of text, ``/typed`` events told apart by their type,
``/prefixed`` length-prefixed JSON, ``/form`` what a form held.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from aiohttp import BodyPartReader, web

from tests.fakes.stage import Entry, Failure, Fake, Route, begin, main, pieces, say, serving, sse, text

_MEDIA = {"lines": "text/plain", "chunks": "text/plain", "sse": "text/event-stream", "typed": "text/event-stream",
          "prefixed": "application/octet-stream"}  # fmt: skip


def _prefixed(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(4, "big") + data


def _piece(kind: str, i: int) -> bytes:
    if kind == "lines":
        return text(i).strip().encode() + b"\n"
    if kind == "chunks":
        return text(i).encode()
    if kind == "sse":
        return b"data: " + text(i).encode() + b"\n\n"
    if kind == "typed":
        return sse({"type": "delta", "delta": {"text": text(i)}}, "delta")
    return _prefixed({"token": text(i)})


async def _stream(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    kind = request.path.strip("/")
    if entry.script.status != 200:
        return _refused(entry)
    response = await begin(request, _MEDIA[kind])
    if kind == "typed":
        await response.write(sse({"type": "start", "delta": {"text": "no output"}, "usage": {"in": 3}}, "start"))
    try:
        async for i in pieces(entry, entry.script.tokens):
            await say(response, entry, _piece(kind, i))
    except Failure:
        await response.write(
            sse({"detail": "it broke"}, "error") if kind in ("sse", "typed") else _prefixed({"error": "it broke"})
        )
        return response
    if kind == "typed":
        await response.write(sse({"type": "end", "reason": "stop", "usage": {"out": entry.script.tokens}}, "end"))
    await response.write_eof()
    return response


def _refused(entry: Entry) -> web.Response:
    return web.Response(text="Request dropped due to backpressure", status=entry.script.status)


async def _form(fake: Fake, request: web.Request) -> web.StreamResponse:
    reader = await request.multipart()
    found = {}
    while isinstance(part := await reader.next(), BodyPartReader):
        found[part.name] = [part.filename, part.headers.get("content-type"), (await part.read()).decode()]
    fake.log.append(Entry(request.path, request.headers.get("x-request-id", ""), {}, found, fake.script))
    return web.json_response({"ok": True})


ROUTES: tuple[Route, ...] = (*(("POST", f"/{kind}", _stream) for kind in _MEDIA), ("POST", "/form", _form))
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
