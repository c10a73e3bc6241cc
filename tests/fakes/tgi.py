"""A fake of Text Generation Inference's own API: events without a space after ``data:``, the counts in the last one, no
marker.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from aiohttp import web

from tests.fakes.stage import Entry, Failure, Fake, Route, answer_text, begin, main, pieces, say, serving, sse, text

_KINDS = {422: "validation", 429: "overloaded", 424: "generation"}


def _refusal(entry: Entry) -> web.Response | None:
    if not isinstance(entry.body, dict) or not isinstance(entry.body.get("inputs"), str):
        return web.json_response({"error": "Input validation error: inputs", "error_type": "validation"}, status=422)
    status = entry.script.status
    if status != 200:
        error = "Model is overloaded" if status == 429 else "it broke"
        return web.json_response({"error": error, "error_type": _KINDS.get(status, "generation")}, status=status)
    return None


def _tokens(entry: Entry) -> int:
    return min(int(entry.body.get("parameters", {}).get("max_new_tokens") or 100), entry.script.tokens)


def _token(i: int) -> dict[str, Any]:
    return {"id": i + 100, "text": text(i), "logprob": -0.5, "special": False}


async def _stream(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    refused = _refusal(entry)
    if refused is not None:
        return refused
    n = _tokens(entry)
    headers = {"x-compute-type": "cpu", "x-compute-characters": "7", "x-accel-buffering": "no"}
    response = await begin(request, "text/event-stream", headers)
    try:
        async for i in pieces(entry, n):
            await say(
                response,
                entry,
                sse({"index": i + 1, "token": _token(i), "generated_text": None, "details": None}, space=""),
            )
    except Failure:
        error = {"error": "Request failed during generation: it broke", "error_type": "generation"}
        await response.write(sse(error, space=""))
        return response
    details = {"finish_reason": "eos_token", "generated_tokens": n + 1, "input_length": 6, "seed": None}
    last = {"id": 2, "text": "</s>", "logprob": 0.0, "special": True}
    await response.write(
        sse({"index": n + 1, "token": last, "generated_text": answer_text(n), "details": details}, space="")
    )
    await response.write_eof()
    return response


async def _whole(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    refused = _refusal(entry)
    if refused is not None:
        return refused
    n = _tokens(entry)
    async for _ in pieces(entry, 1):
        pass
    answer: dict[str, Any] = {"generated_text": answer_text(n)}
    if entry.body.get("parameters", {}).get("details"):
        tokens = [_token(i) for i in range(n)]
        answer["details"] = {
            "finish_reason": "length",
            "generated_tokens": n,
            "seed": None,
            "prefill": [],
            "tokens": tokens,
        }
    times = {"total": 30, "validation": 1, "queue": 9, "inference": 20, "time-per-token": 4}
    headers = {f"x-{name}{'' if name == 'time-per-token' else '-time'}": str(ms) for name, ms in times.items()}
    return web.json_response(answer, headers={**headers, "x-prompt-tokens": "6", "x-generated-tokens": str(n)})


async def _either(fake: Fake, request: web.Request) -> web.StreamResponse:
    """The route of the hosted API: a member ``stream`` decides, and a whole answer is a list of one."""
    body = json.loads(await request.read())
    if body.get("stream"):
        return await _stream(fake, request)
    answer = await _whole(fake, request)
    assert isinstance(answer, web.Response)
    if answer.status != 200 or not isinstance(answer.body, bytes):
        return answer
    return web.Response(body=b"[%b]" % answer.body, content_type="application/json")


async def _info(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.json_response(
        {"model_id": "fake", "max_input_tokens": 1024, "max_total_tokens": 2048, "version": "3.3.5"}
    )


async def _health(_fake: Fake, _request: web.Request) -> web.StreamResponse:
    return web.Response()


ROUTES: tuple[Route, ...] = (
    ("POST", "/generate_stream", _stream),
    ("POST", "/generate", _whole),
    ("POST", "/", _either),
    ("GET", "/info", _info),
    ("GET", "/health", _health),
)
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
