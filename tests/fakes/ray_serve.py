"""A fake of a Ray Serve application at ``/``: text in bare chunks, its own routes under ``/-``, 503 when its queue is
full.

What it is faithful to is checked by `make interop`, which drives a real Ray Serve.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from tests.fakes.stage import Failure, Fake, Route, begin, break_off, main, pieces, say, serving, text


async def _application(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    if entry.script.status == 503:
        return web.Response(text="Request dropped due to backpressure (max_queued_requests)", status=503)
    if not isinstance(entry.body, dict) or "prompt" not in entry.body:
        return web.Response(text="Internal Server Error", status=500)
    response = await begin(request, "text/plain; charset=utf-8")
    try:
        async for i in pieces(entry, int(entry.body.get("max_tokens", entry.script.tokens))):
            await say(response, entry, text(i).encode())
    except Failure:  # an exception in the application ends the stream without its terminator
        break_off(request)
        return response
    await response.write_eof()
    return response


async def _healthz(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.Response(text="success")


async def _routes(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.json_response({"/": "default"})


ROUTES: tuple[Route, ...] = (
    ("POST", "/", _application),
    ("GET", "/-/healthz", _healthz),
    ("GET", "/-/routes", _routes),
)
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
