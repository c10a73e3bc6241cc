"""The OpenAI-compatible wire: request bodies to values, answers to bytes. Pure: no sockets, no clock.

Frames come in the canonical order: a role frame with empty content, content deltas, a frame with the finish reason, a usage
frame when it was asked for, ``[DONE]``. The last frame of JSON has the answer's whole anatomy as ``server_timing``.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plimsoll.reference_server.frontends.shared import text_request
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.shared.text_request import TextRequest
from plimsoll.reference_server.seams.answers import Finish, Script
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.stages import Stages
from plimsoll.reference_server.values.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"
_to_json = json.JSONEncoder().encode
_REFUSED = ("tools", "functions", "logprobs", "audio", "suffix", "echo")


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An embedding request, checked. ``prompts`` are token ids, or texts where the model has its own way of reading them."""

    model: str
    prompts: list[list[int]]
    base64: bool
    script: Script


def parse_chat(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A chat request. Raises RequestError 400 naming the field."""
    said = text_request.messages(fields)
    fallback = fields.integer("max_tokens", 64, low=1)
    max_new = fields.integer("max_completion_tokens", fallback, low=1)
    return _text_request(fields, tokenizer.chat(said), max_new)


def parse_completion(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    """A completion request. Raises RequestError 400 naming the field."""
    prompt = fields.values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    return _text_request(
        fields, text_request.tokens(prompt, "prompt", tokenizer), fields.integer("max_tokens", 16, low=1)
    )


def embedding_inputs(fields: Fields, *, max_inputs: int = 2048) -> tuple[list[Any], list[str]]:
    """The inputs of an embedding request, not yet looked into, and what to call each. Raises RequestError 400 naming the field."""
    given = fields.values.get("input")
    if not (isinstance(given, list) and given and isinstance(given[0], str | list)):
        return [given], ["input"]
    if len(given) > max_inputs:
        raise invalid("input", f"has {len(given)} elements, the limit is {max_inputs}")
    return given, [f"input[{i}]" for i in range(len(given))]


def wants_base64(fields: Fields) -> bool:
    """How vectors are wanted. Raises RequestError 400 naming the field."""
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    if fields.has("dimensions"):
        raise invalid("dimensions", "can't be chosen here. Leave it out")
    return encoding == "base64"


def parse_embedding(fields: Fields, tokenizer: Tokenizer) -> EmbeddingRequest:
    """An embedding request. Raises RequestError 400 naming the field."""
    inputs, names = embedding_inputs(fields)
    prompts = [text_request.tokens(value, name, tokenizer) for value, name in zip(inputs, names, strict=True)]
    return EmbeddingRequest(fields.text("model"), prompts, wants_base64(fields), fields.script())


def _text_request(fields: Fields, prompt: list[int], max_new: int) -> TextRequest:
    text_request.refuse(fields, _REFUSED)
    for name in ("n", "best_of"):
        if fields.integer(name, 1, low=1) != 1:
            raise invalid(name, "must be 1: this server gives one choice")
    text_request.sampling(fields)
    stream = fields.flag("stream")
    if fields.has("stream_options") and not stream:
        raise invalid("stream_options", "needs stream to be true")
    options = fields.mapping("stream_options")
    return TextRequest(
        model=fields.text("model"),
        prompt=prompt,
        max_new=max_new,
        min_new=fields.integer("min_tokens", 0, low=0),
        ignore_eos=fields.flag("ignore_eos"),
        stream=stream,
        include_usage=options.flag("include_usage"),
        continuous_usage=options.flag("include_usage") and options.flag("continuous_usage_stats"),
        stops=text_request.stops(fields),
        priority=text_request.priority(fields),
        script=fields.script(),
    )


class ChunkWriter:
    """Bytes of one answer, streamed or whole. ``chat`` chooses between the two shapes."""

    content_type = "text/event-stream"

    def __init__(self, request: TextRequest, *, chat: bool, answer_id: str, created_s: int) -> None:
        self._request = request
        self._chat = chat
        self._id = answer_id
        self._created_s = created_s

    def opening(self) -> Sequence[bytes]:
        """The first chat frame; completions have none."""
        if not self._chat:
            return ()
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return (_event(self._frame([{**choice, "finish_reason": None}])),)

    def token(self, text: str, n_new: int) -> bytes:
        """A content frame; all but the text was rendered beforehand, unless each frame has its usage."""
        if self._request.continuous_usage:
            return _event(self._content(text) | {"usage": self._usage(Finish("", n_new, -1))})
        before, after = self._halves
        return before + _to_json(text).encode() + after

    @cached_property
    def _halves(self) -> tuple[bytes, bytes]:
        """What comes before and after the text of a content frame: only streams need it."""
        marker = "\x00"
        before, after = _event(self._content(marker)).split(json.dumps(marker).encode())
        return before, after

    def failure(self, error: RequestError) -> bytes:
        """An error in the middle of a stream, under status 200."""
        return _event(_error(error.message, error.kind, error.param, error.code))

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """The frame with the finish reason, that with the token counts, the end."""
        request = self._request
        content: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        last = self._frame([{"index": 0, **content, "logprobs": None, "finish_reason": finish.reason}])
        frames = [last]
        if request.include_usage and not request.script.omit_usage:
            frames.append({**self._frame([]), "usage": self._usage(finish)})
        frames[-1]["server_timing"] = stages.server_timing()
        return [*map(_event, frames), *(() if request.script.omit_done else (DONE,))]

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
        """The answer in one piece."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            content = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish.reason}
        body = self._frame([choice]) | {"usage": self._usage(finish)}
        return json.dumps(body | {"object": "chat.completion" if self._chat else "text_completion"}).encode()

    def _content(self, text: str) -> dict[str, Any]:
        content = {"delta": {"content": text}} if self._chat else {"text": text}
        return self._frame([{"index": 0, **content, "logprobs": None, "finish_reason": None}])

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        frame: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": self._created_s,
            "model": self._request.model,
            "choices": choices,
        }
        return frame | {"usage": None} if self._request.include_usage else frame

    def _usage(self, finish: Finish) -> dict[str, Any]:
        n_prompt = len(self._request.prompt)
        usage: dict[str, Any] = {
            "prompt_tokens": n_prompt,
            "completion_tokens": finish.n_new,
            "total_tokens": n_prompt + finish.n_new,
        }
        return usage if finish.n_cached < 0 else usage | {"prompt_tokens_details": {"cached_tokens": finish.n_cached}}


def embeddings(model: str, vectors: Sequence[Sequence[float]], *, as_base64: bool, n_tokens: int) -> bytes:
    """The reply to an embedding request; base64 is of little-endian float32."""
    rows = []
    for index, vector in enumerate(vectors):
        value: str | list[float] = list(vector)
        if as_base64:
            value = base64.b64encode(array("f", vector).tobytes()).decode()
        rows.append({"object": "embedding", "index": index, "embedding": value})
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return json.dumps({"object": "list", "model": model, "data": rows, "usage": usage}).encode()


def error_body(error: RequestError) -> bytes:
    """The JSON of a refusal."""
    return json.dumps(_error(error.message, error.kind, error.param, error.code)).encode()


def _error(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()
