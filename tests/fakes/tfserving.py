"""A fake of TensorFlow Serving's REST port: predict by rows and by columns, classify, model status; NaN in its JSON.

No small SDK speaks to it: it follows the documented REST API; the messages of the gRPC port are TensorFlow's own.
"""

from __future__ import annotations

import json
from functools import partial

from aiohttp import web

from tests.fakes.stage import Fake, Route, main, pieces, serving


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


async def _call(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    body = entry.body
    name, _, call = request.match_info["rest"].partition(":")
    if name.partition("/")[0] == "absent":
        return _error(404, "Servable not found for request: Latest(absent)")
    if not isinstance(body, dict):
        return _error(400, "JSON Parse error: Invalid value. at offset: 0")
    if entry.script.status != 200:
        return _error(entry.script.status, "it broke")
    async for _ in pieces(entry, 1):
        pass
    if call == "classify" and "examples" in body:
        return web.json_response({"results": [[["a", 0.9]] for _ in body["examples"]]})
    if call == "predict" and "instances" in body:
        scores = [[0.1, float("nan"), float("-inf")] for _ in body["instances"]]
        # The server itself writes what JSON does not know.
        return web.Response(text=json.dumps({"predictions": scores}), content_type="application/json")
    if call == "predict" and "inputs" in body:
        return web.json_response({"outputs": body["inputs"]})
    return _error(400, "Missing 'inputs' or 'instances' key")


async def _status(_fake: Fake, request: web.Request) -> web.StreamResponse:
    status = {"error_code": "OK", "error_message": ""}
    return web.json_response({"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": status}]})


ROUTES: tuple[Route, ...] = (("POST", "/v1/models/{rest:.+}", _call), ("GET", "/v1/models/{rest:.+}", _status))
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
