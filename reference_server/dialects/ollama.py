"""Ollama's generate and chat: streams of one JSON object a line; a prompt is taken without a template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from plimsoll.reference_server.dialects.generation import TextRequest, answering, messages, refuse, text_request
from plimsoll.reference_server.seams.models import Finish
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call
from plimsoll.reference_server.values.durations import DECODE, PREFILL, Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tokenizer import Tokenizer

_REFUSED = ("format", "images", "think", "tools", "suffix", "system", "template", "context", "logprobs")


def parse_generate(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    return _text_request(fields, tokenizer.encode(fields.text("prompt")))


def parse_chat(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    return _text_request(fields, tokenizer.chat(messages(fields)))


def _text_request(fields: Fields, prompt: list[int]) -> TextRequest:
    refuse(fields, _REFUSED)
    options = fields.mapping("options")
    stream = fields.flag("stream") if fields.has("stream") else True
    return text_request(fields, options, prompt, options.integer("num_predict", 64, low=1), stream=stream)


class LineWriter:
    """Lines of one answer. ``chat`` chooses between the two shapes; ``created_at`` is in RFC 3339."""

    content_type = "application/x-ndjson"

    def __init__(self, request: TextRequest, *, chat: bool, created_at: str) -> None:
        self._request = request
        self._chat = chat
        self._created_at = created_at
        marker = "\x00"
        self._before, self._after = _line(self._content(marker)).split(json.dumps(marker).encode())

    def opening(self) -> Sequence[bytes]:
        return ()

    def token(self, text: str, n_new: int) -> bytes:
        """A line with text; all but the text was rendered beforehand."""
        return self._before + json.dumps(text).encode() + self._after

    def failure(self, error: RequestError) -> bytes:
        return _line({"error": error.message})

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """The line that ends the answer; no line at all where the script leaves the end out."""
        if self._request.script.omit_done:
            return ()
        return (_line(self._last("", finish, stages, elapsed_ns)),)

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
        return json.dumps(self._last(text, finish, stages, elapsed_ns)).encode()

    def _content(self, text: str) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"response": text}
        return {"model": self._request.model, "created_at": self._created_at, **content, "done": False}

    def _last(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> dict[str, Any]:
        ended = self._content(text) | {"done": True, "done_reason": finish.reason}
        if self._request.script.omit_usage:
            return ended
        spans = stages.spans_ns
        return ended | {
            "total_duration": elapsed_ns,
            "load_duration": 0,  # models are loaded before requests are taken
            "prompt_eval_count": len(self._request.prompt),
            "prompt_eval_duration": spans.get(PREFILL, 0),
            "eval_count": finish.n_new,
            "eval_duration": spans.get(DECODE, 0),
            "server_timing": stages.server_timing(),
        }


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def add_routes(app: web.Application, service: Service) -> None:
    def writer(call: Call, _: Fields, asked: TextRequest) -> LineWriter:
        created_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return LineWriter(asked, chat=call.request.path == "/api/chat", created_at=created_at)

    for path, parse in (("/api/generate", parse_generate), ("/api/chat", parse_chat)):
        # Of any type, as Ollama does: its users type `curl -d`.
        app.router.add_post(path, answering(service, parse, writer, any_type=True))
