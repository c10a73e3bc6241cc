"""A fake of llama.cpp's server: ``/completion`` with prompt progress, timings in the last event, errors as events.

No SDK speaks this route: it follows llama.cpp's description of its server. (llama-cpp-python serves OpenAI's routes
only.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from tests.fakes.stage import Entry, Failure, Fake, Route, answer_text, begin, main, pieces, say, serving, sse, text


def _last(entry: Entry, n: int, content: str) -> dict[str, Any]:
    script = entry.script
    timings = {
        "cache_n": 0, "prompt_n": 8, "prompt_ms": script.ttft_ms, "prompt_per_second": 400.0, "predicted_n": n,
        "predicted_ms": n * script.itl_ms, "predicted_per_second": 250.0,
    }  # fmt: skip
    return {
        "index": 0, "content": content, "tokens": [], "id_slot": 0, "stop": True, "model": "fake.gguf",
        "tokens_predicted": n, "tokens_evaluated": 8, "prompt": entry.body["prompt"], "has_new_line": False,
        "truncated": False, "stop_type": "limit", "stopping_word": "", "tokens_cached": 7 + n, "timings": timings,
    }  # fmt: skip


def _error(code: int, message: str, kind: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": kind}}


async def _completion(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    if not isinstance(entry.body, dict) or "prompt" not in entry.body:
        return web.json_response(_error(400, '"prompt" must be provided', "invalid_request_error"), status=400)
    if entry.script.status != 200:
        kind = "unavailable_error" if entry.script.status == 503 else "server_error"
        return web.json_response(_error(entry.script.status, "it broke", kind), status=entry.script.status)
    wanted = int(entry.body.get("n_predict", -1))
    n = entry.script.tokens if wanted < 0 else min(wanted, entry.script.tokens)
    if not entry.body.get("stream"):
        async for _ in pieces(entry, 1):
            pass
        return web.json_response(_last(entry, n, answer_text(n)))
    response = await begin(request, "text/event-stream")
    if entry.body.get("return_progress"):
        progress = {"total": 8, "cache": 0, "processed": 8, "time_ms": 3}
        await response.write(sse({"index": 0, "content": "", "tokens": [], "stop": False, "prompt_progress": progress}))
    try:
        async for i in pieces(entry, n):
            event = {
                "index": 0,
                "content": text(i),
                "tokens": [i],
                "stop": False,
                "id_slot": 0,
                "tokens_predicted": i + 1,
            }
            await say(response, entry, sse({**event, "tokens_evaluated": 8}))
    except Failure:
        await response.write(sse(_error(500, "it broke", "server_error")))
        return response
    await response.write(sse(_last(entry, n, "")))
    await response.write_eof()
    return response


ROUTES: tuple[Route, ...] = (("POST", "/completion", _completion), ("POST", "/completions", _completion))
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
