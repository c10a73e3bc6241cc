"""A fake of a BentoML service: a method is a route, streamed as lines of JSON; health routes; 503 beyond its
concurrency.

What it is faithful to is checked by `make interop`, which drives a real BentoML.
"""

from __future__ import annotations

import json
from functools import partial

from aiohttp import web

from tests.fakes.stage import Failure, Fake, Route, begin, main, pieces, say, serving, text


async def _generate(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    if entry.script.status == 503:
        return web.json_response({"error": "Service is too busy: max_concurrency is reached"}, status=503)
    if not isinstance(entry.body, dict) or not isinstance(entry.body.get("prompt"), str):
        return web.json_response({"error": "1 validation error for Input: prompt"}, status=400)
    n = int(entry.body.get("max_tokens", entry.script.tokens))
    response = await begin(request, "text/plain")
    try:
        async for i in pieces(entry, n):
            await say(response, entry, json.dumps({"text": text(i)}).encode() + b"\n")
    except Failure:
        await response.write(b'{"error": "An unexpected error has occurred"}\n')
        return response
    await response.write(json.dumps({"finish_reason": "stop", "n_tokens": n}).encode() + b"\n")
    await response.write_eof()
    return response


async def _healthy(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.Response()


ROUTES: tuple[Route, ...] = (
    ("POST", "/generate", _generate),
    *(("GET", f"/{name}", _healthy) for name in ("healthz", "livez", "readyz")),
)
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
