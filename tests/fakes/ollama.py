"""A fake of Ollama: ``/api/generate`` and ``/api/chat``, one object a line, streamed unless told otherwise, errors as
lines.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from aiohttp import web

from tests.fakes.stage import Entry, Failure, Fake, Route, answer_text, begin, main, pieces, say, serving, text


def _content(entry: Entry, chat: bool, said: str, thought: str = "") -> dict[str, Any]:
    head = {"model": entry.body["model"], "created_at": "2026-11-21T20:00:00.000000Z"}
    thinking = {"thinking": thought} if thought else {}
    if chat:
        return {**head, "message": {"role": "assistant", "content": said, **thinking}, "done": False}
    return {**head, "response": said, **thinking, "done": False}


def _last(entry: Entry, chat: bool, said: str, n: int) -> dict[str, Any]:
    script = entry.script
    load, prompt, spent = (int(ms * 1e6) for ms in (script.load_ms or 12.5, script.ttft_ms, n * script.itl_ms))
    return {
        **_content(entry, chat, said), "done": True, "done_reason": "stop", "total_duration": load + prompt + spent,
        "load_duration": load, "prompt_eval_count": 11, "prompt_eval_duration": prompt, "eval_count": n,
        "eval_duration": spent,
    }  # fmt: skip


async def _answer(fake: Fake, request: web.Request, chat: bool) -> web.StreamResponse:
    entry = await fake.enter(request)
    if not isinstance(entry.body, dict) or not entry.body.get("model"):
        return web.json_response({"error": "model is required"}, status=400)
    if entry.script.status != 200:
        return web.json_response({"error": "server busy, please try again"}, status=entry.script.status)
    wanted = int(entry.body.get("options", {}).get("num_predict", -1))
    n = entry.script.tokens if wanted < 0 else min(wanted, entry.script.tokens)
    thoughts = entry.script.reasoning if entry.body.get("think") else 0
    if not entry.body.get("stream", True):
        async for _ in pieces(entry, 1):
            pass
        return web.json_response(_last(entry, chat, answer_text(n), n + thoughts))
    response = await begin(request, "application/x-ndjson")
    try:
        async for i in pieces(entry, thoughts + n):
            line = _content(entry, chat, "", text(i)) if i < thoughts else _content(entry, chat, text(i))
            await say(response, entry, json.dumps(line).encode() + b"\n")
    except Failure:
        await response.write(b'{"error":"an error was encountered while running the model: it broke"}\n')
        return response
    await response.write(json.dumps(_last(entry, chat, "", n + thoughts)).encode() + b"\n")
    await response.write_eof()
    return response


async def _generate(fake: Fake, request: web.Request) -> web.StreamResponse:
    return await _answer(fake, request, chat=False)


async def _chat(fake: Fake, request: web.Request) -> web.StreamResponse:
    return await _answer(fake, request, chat=True)


ROUTES: tuple[Route, ...] = (("POST", "/api/generate", _generate), ("POST", "/api/chat", _chat))
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
