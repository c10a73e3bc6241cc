"""A fake of TorchServe's inference port: a handler's answer in one piece or in bare chunks, and its two kinds of 503.

No SDK speaks to it: it follows TorchServe's documented inference API and its sources.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from tests.fakes.stage import Failure, Fake, Route, answer_text, begin, main, pieces, say, serving, text

_OVERLOAD = 'Model "m" has no worker to serve inference request. Please use scale workers API to add workers.'


def _error(code: int, kind: str, message: str) -> web.Response:
    return web.json_response({"code": code, "type": kind, "message": message}, status=code)


async def _predictions(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    name = request.match_info["model"]
    if name == "absent":
        return _error(404, "ModelNotFoundException", f"Model not found: {name}")
    if entry.script.status == 503:
        return _error(503, "ServiceUnavailableException", _OVERLOAD)
    streams = name.endswith("stream")
    try:
        if not streams:
            async for _ in pieces(entry, 1):
                pass
            return web.Response(text=answer_text(entry.script.tokens))
        response: web.StreamResponse | None = None
        async for i in pieces(entry, entry.script.tokens):
            response = response or await begin(request, "text/plain")
            await say(response, entry, text(i).encode())
    except Failure:
        return _error(503, "InternalServerException", "Prediction failed")
    assert response is not None
    await response.write_eof()
    return response


async def _ping(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "Healthy"})


ROUTES: tuple[Route, ...] = (
    ("POST", "/predictions/{model}", _predictions),
    ("POST", "/predictions/{model}/{version}", _predictions),
    ("GET", "/ping", _ping),
)
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
