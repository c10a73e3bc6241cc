"""The OpenAI-compatible wire: request bodies to values, answers to bytes. Pure: no sockets, no clock.

Frames come in the canonical order: a role frame with empty content, content deltas, a frame with the finish
reason, a usage frame when it was asked for, ``[DONE]``. What the server can't do is refused by name, never
ignored: several choices, stop strings, tools. Sampling settings are read and checked, but decoding is greedy
whatever they say.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference_server.answers import Finish, Script
from reference_server.errors import RequestError
from reference_server.frontends.http.fields import Fields, invalid
from reference_server.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"
_REFUSED = ("stop", "tools", "functions", "logprobs", "audio", "best_of", "suffix")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A chat or completion request, checked."""

    model: str
    prompt: list[int]
    max_new: int
    min_new: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    script: Script


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An embedding request, checked."""

    model: str
    prompts: list[list[int]]
    base64: bool
    script: Script


def parse_chat(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A chat request. Raises RequestError 400 naming the field."""
    said = []
    for index, message in enumerate(fields.items("messages")):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise invalid(where, "must be an object")
        role = Fields(message, f"{where}.").text("role")
        said.append((role, _content(message.get("content"), where)))
    fallback = fields.integer("max_tokens", 64, low=1)
    max_new = fields.integer("max_completion_tokens", fallback, low=1)
    return _text_request(fields, tokenizer.chat(said), max_new)


def parse_completion(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A completion request. Raises RequestError 400 naming the field."""
    prompt = fields.values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    return _text_request(fields, _tokens(prompt, "prompt", tokenizer), fields.integer("max_tokens", 16, low=1))


def parse_embedding(fields: Fields, tokenizer: Tokenizer, *, max_inputs: int = 2048) -> EmbeddingRequest:
    """An embedding request. Raises RequestError 400 naming the field."""
    given = fields.values.get("input")
    several = isinstance(given, list) and bool(given) and isinstance(given[0], str | list)
    inputs = given if several else [given]
    assert isinstance(inputs, list)
    if len(inputs) > max_inputs:
        raise invalid("input", f"has {len(inputs)} elements, the limit is {max_inputs}")
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    if fields.has("dimensions"):
        raise invalid("dimensions", "can't be chosen here. Leave it out")
    prompts = [_tokens(value, f"input[{i}]" if several else "input", tokenizer) for i, value in enumerate(inputs)]
    return EmbeddingRequest(fields.text("model"), prompts, encoding == "base64", fields.script())


def _text_request(fields: Fields, prompt: list[int], max_new: int) -> TextRequest:
    for name in _REFUSED:
        if fields.values.get(name) not in (None, False, [], 1 if name == "best_of" else None):
            raise invalid(name, "is not supported by this server. Leave it out")
    if fields.integer("n", 1, low=1) != 1:
        raise invalid("n", "must be 1: this server gives one choice")
    fields.number("temperature", 1.0, low=0.0, high=2.0)
    fields.number("top_p", 1.0, low=0.0, high=1.0)
    stream = fields.flag("stream")
    if fields.has("stream_options") and not stream:
        raise invalid("stream_options", "needs stream to be true")
    return TextRequest(
        model=fields.text("model"),
        prompt=prompt,
        max_new=max_new,
        min_new=fields.integer("min_tokens", 0, low=0),
        ignore_eos=fields.flag("ignore_eos"),
        stream=stream,
        include_usage=fields.mapping("stream_options").flag("include_usage"),
        script=fields.script(),
    )


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise invalid(f"{where}.content", "must be a string or a list of text parts")
    parts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise invalid(f"{where}.content[{index}]", 'must be {"type": "text", "text": "..."}')
        parts.append(part["text"])
    return "".join(parts)


def _tokens(value: object, where: str, tokenizer: Tokenizer) -> list[int]:
    if isinstance(value, str):
        return tokenizer.encode(value)
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        if not all(0 <= token < tokenizer.vocabulary for token in value):
            raise invalid(where, f"token ids must lie between 0 and {tokenizer.vocabulary - 1}")
        return tokenizer.begin(value)
    raise invalid(where, "must be a string or a list of token ids")


class ChunkWriter:
    """Bytes of one answer, streamed or whole. ``chat`` chooses between the two shapes."""

    def __init__(self, request: TextRequest, *, chat: bool, answer_id: str, created_s: int) -> None:
        self._request = request
        self._chat = chat
        self._id = answer_id
        self._created_s = created_s
        usage: dict[str, Any] = {"usage": None} if request.include_usage else {}
        self._frame_end = usage
        marker = "\x00"
        content = {"delta": {"content": marker}} if chat else {"text": marker}
        model = _event(self._frame([{"index": 0, **content, "logprobs": None, "finish_reason": None}]))
        self._before, self._after = model.split(json.dumps(marker).encode())

    def role(self) -> bytes:
        """The first chat frame; completions have none."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return _event(self._frame([{**choice, "finish_reason": None}])) if self._chat else b""

    def token(self, text: str) -> bytes:
        """A content frame; all but the text was rendered beforehand."""
        return self._before + json.dumps(text).encode() + self._after

    def finish(self, reason: str) -> bytes:
        """The frame with the finish reason."""
        content: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        return _event(self._frame([{"index": 0, **content, "logprobs": None, "finish_reason": reason}]))

    def usage(self, finish: Finish) -> bytes:
        """The frame with the token counts."""
        return _event({**self._frame([]), "usage": self._usage(finish)})

    def whole(self, text: str, finish: Finish) -> bytes:
        """The answer in one piece."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            content = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish.reason}
        body = self._frame([choice]) | {"usage": self._usage(finish)}
        return json.dumps(body | {"object": "chat.completion" if self._chat else "text_completion"}).encode()

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": self._created_s,
            "model": self._request.model,
            "choices": choices,
            **self._frame_end,
        }

    def _usage(self, finish: Finish) -> dict[str, Any]:
        n_prompt = len(self._request.prompt)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": finish.n_new,
            "total_tokens": n_prompt + finish.n_new,
            "prompt_tokens_details": {"cached_tokens": finish.n_cached},
        }


def embeddings(request: EmbeddingRequest, vectors: Sequence[Sequence[float]]) -> bytes:
    """The reply to an embedding request; base64 is of little-endian float32."""
    rows = []
    for index, vector in enumerate(vectors):
        value: str | list[float] = list(vector)
        if request.base64:
            value = base64.b64encode(array("f", vector).tobytes()).decode()
        rows.append({"object": "embedding", "index": index, "embedding": value})
    n_tokens = sum(len(prompt) for prompt in request.prompts)
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return json.dumps({"object": "list", "model": request.model, "data": rows, "usage": usage}).encode()


def error_body(error: RequestError) -> bytes:
    """The JSON of a refusal."""
    return json.dumps(_error(error.message, error.kind, error.param, error.code)).encode()


def error_event(message: str) -> bytes:
    """An error in the middle of a stream, under status 200."""
    return _event(_error(message, "server_error", None, "stream_failed"))


def _error(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()
