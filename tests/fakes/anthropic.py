"""A fake of Anthropic's Messages API: named events, pings, thinking, tool input, errors under 200, 529 for an
overload.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from tests.fakes.stage import Entry, Failure, Fake, Route, answer_text, begin, main, pieces, say, serving, sse, text

_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
          500: "api_error", 529: "overloaded_error"}  # fmt: skip


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}


def _refusal(entry: Entry) -> web.Response | None:
    """What the real API refuses before it begins."""
    body = entry.body
    if "x-api-key" not in entry.headers and not entry.headers.get("authorization", "").startswith("Bearer "):
        return web.json_response(_error(401, "x-api-key header is required"), status=401)
    if "anthropic-version" not in entry.headers:
        return web.json_response(_error(400, "anthropic-version: header is required"), status=400)
    if not isinstance(body, dict) or not {"model", "max_tokens", "messages"} <= body.keys():
        return web.json_response(_error(400, "model, max_tokens, messages: Field required"), status=400)
    if any(message.get("role") not in ("user", "assistant") for message in body["messages"]):
        return web.json_response(_error(400, 'messages: roles must be "user" or "assistant"'), status=400)
    if entry.script.status != 200:
        message = "Overloaded" if entry.script.status == 529 else "it broke"
        return web.json_response(_error(entry.script.status, message), status=entry.script.status)
    return None


def _message(entry: Entry, content: list[Any], stop_reason: str | None, n_out: int) -> dict[str, Any]:
    usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": n_out}
    return {
        "id": "msg_fake", "type": "message", "role": "assistant", "model": entry.body["model"], "content": content,
        "stop_reason": stop_reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


async def _messages(fake: Fake, request: web.Request) -> web.StreamResponse:
    entry = await fake.enter(request)
    refused = _refusal(entry)
    if refused is not None:
        return refused
    n, thoughts = min(entry.body["max_tokens"], entry.script.tokens), entry.script.reasoning
    if not entry.body.get("stream"):
        async for _ in pieces(entry, 1):
            pass
        blocks = [{"type": "thinking", "thinking": answer_text(thoughts), "signature": "sig"}] if thoughts else []
        blocks.append({"type": "text", "text": answer_text(n)})
        return web.json_response(_message(entry, blocks, "end_turn", n + thoughts))
    response = await begin(request, "text/event-stream; charset=utf-8")
    await response.write(_event("message_start", message=_message(entry, [], None, 1)))
    await response.write(_event("ping"))
    try:
        await _blocks(response, entry, n, thoughts)
    except Failure:
        await response.write(sse(_error(529, "Overloaded"), "error"))
        return response
    usage = {"output_tokens": n + thoughts}
    await response.write(_event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage))
    await response.write(_event("message_stop"))
    await response.write_eof()
    return response


async def _blocks(response: web.StreamResponse, entry: Entry, n: int, thoughts: int) -> None:
    """A block of thought, if any, and a block of text, one delta a piece."""
    index = 0
    async for i in pieces(entry, thoughts + n):
        if i == 0 and thoughts:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            await response.write(_event("content_block_start", index=0, content_block=block))
        if i == thoughts:
            if thoughts:
                signed = {"type": "signature_delta", "signature": "sig"}
                await response.write(_event("content_block_delta", index=0, delta=signed))
                await response.write(_event("content_block_stop", index=0))
                index = 1
            block = {"type": "text", "text": ""}
            await response.write(_event("content_block_start", index=index, content_block=block))
        kind = "thinking" if i < thoughts else "text"
        delta = {"type": f"{kind}_delta", kind: text(i)}
        await say(response, entry, _event("content_block_delta", index=index, delta=delta))
    await response.write(_event("content_block_stop", index=index))


def _event(kind: str, **members: Any) -> bytes:
    return sse({"type": kind, **members}, kind)


ROUTES: tuple[Route, ...] = (("POST", "/v1/messages", _messages),)
#: Serve for the time of a block; ``plays`` and the members of ``Script`` say how answers go.
serve = partial(serving, ROUTES)

if __name__ == "__main__":
    main(ROUTES, __doc__)
