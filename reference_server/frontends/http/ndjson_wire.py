"""The Ollama-like wire: request bodies to values, answers to lines of JSON. Pure: no sockets, no clock.

A stream is one object a line; the last has ``done`` true, the counts, and durations in nanoseconds. A prompt is taken as it
is, without a template. What the server can't do is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from plimsoll.reference_server.frontends.shared import text_request
from plimsoll.reference_server.frontends.shared.fields import Fields
from plimsoll.reference_server.frontends.shared.text_request import TextRequest
from plimsoll.reference_server.seams.answers import Finish
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.stages import DECODE, PREFILL, Stages
from plimsoll.reference_server.values.tokenizer import Tokenizer

_REFUSED = ("format", "images", "think", "tools", "suffix", "system", "template", "context", "logprobs")


def parse_generate(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A request to continue a prompt. Raises RequestError 400 naming the field."""
    return _text_request(fields, tokenizer.encode(fields.text("prompt")))


def parse_chat(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A request to continue a conversation. Raises RequestError 400 naming the field."""
    return _text_request(fields, tokenizer.chat(text_request.messages(fields)))


def _text_request(fields: Fields, prompt: list[int]) -> TextRequest:
    text_request.refuse(fields, _REFUSED)
    options = fields.mapping("options")
    text_request.sampling(options)
    return TextRequest(
        model=fields.text("model"),
        prompt=prompt,
        max_new=options.integer("num_predict", 64, low=1),
        min_new=options.integer("min_tokens", 0, low=0),
        ignore_eos=options.flag("ignore_eos"),
        stream=fields.flag("stream") if fields.has("stream") else True,
        stops=text_request.stops(options),
        priority=text_request.priority(options),
        script=fields.script(),
    )


class LineWriter:
    """Lines of one answer. ``chat`` chooses between the two shapes; ``created_at`` is when it was asked for, in RFC 3339."""

    content_type = "application/x-ndjson"

    def __init__(self, request: TextRequest, *, chat: bool, created_at: str) -> None:
        self._request = request
        self._chat = chat
        self._created_at = created_at
        marker = "\x00"
        self._before, self._after = _line(self._content(marker)).split(json.dumps(marker).encode())

    def opening(self) -> Sequence[bytes]:
        """Nothing."""
        return ()

    def token(self, text: str, n_new: int) -> bytes:
        """A line with text; all but the text was rendered beforehand."""
        return self._before + json.dumps(text).encode() + self._after

    def failure(self, error: RequestError) -> bytes:
        """An error in the middle of a stream, under status 200."""
        return error_body(error) + b"\n"

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """The line that ends the answer; no line at all where the script leaves the end out."""
        if self._request.script.omit_done:
            return ()
        return (_line(self._last("", finish, stages, elapsed_ns)),)

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
        """The answer in one piece."""
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


def error_body(error: RequestError) -> bytes:
    """The JSON of a refusal."""
    return json.dumps({"error": error.message}).encode()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
