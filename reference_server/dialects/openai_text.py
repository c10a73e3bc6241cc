"""OpenAI's chat, completions, embeddings and models.

Frames come in the canonical order: a role frame with empty content, content deltas, a frame with the finish reason, a
usage frame when it was asked for, ``[DONE]``. The last frame of JSON has the stages of the answer as ``server_timing``.
"""

from __future__ import annotations

import base64
import json
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from aiohttp import web

from plimsoll.reference_server.dialects.generation import (
    TextRequest,
    answering,
    messages,
    priority,
    refuse,
    text_request,
    tokens,
)
from plimsoll.reference_server.seams.models import Finish, Script
from plimsoll.reference_server.service.service import Service, obey
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call, inference, openai_error
from plimsoll.reference_server.transports.stream import sse
from plimsoll.reference_server.values.durations import PREPROCESS, Stages
from plimsoll.reference_server.values.errors import RequestError, invalid
from plimsoll.reference_server.values.tensors import Tensor
from plimsoll.reference_server.values.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"
_to_json = json.JSONEncoder().encode
_REFUSED = ("tools", "functions", "logprobs", "audio", "suffix", "echo")
_TEXT_TO_VECTOR = ("embedder",)
"""Models of fixed outputs that take texts."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An embedding request, checked. ``prompts`` are token ids, or texts where the model reads them itself."""

    model: str
    prompts: list[list[int]]
    base64: bool
    script: Script


def parse_chat(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    said = messages(fields)
    fallback = fields.integer("max_tokens", 64, low=1)
    max_new = fields.integer("max_completion_tokens", fallback, low=1)
    return _text_request(fields, tokenizer.chat(said), max_new)


def parse_completion(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    prompt = fields.values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    return _text_request(fields, tokens(prompt, "prompt", tokenizer), fields.integer("max_tokens", 16, low=1))


def embedding_inputs(fields: Fields, *, max_inputs: int = 2048) -> tuple[list[Any], list[str]]:
    """The inputs of an embedding request, not yet looked into, and what to call each. Raises RequestError 400."""
    given = fields.values.get("input")
    if not (isinstance(given, list) and given and isinstance(given[0], str | list)):
        return [given], ["input"]
    if len(given) > max_inputs:
        raise invalid("input", f"has {len(given)} elements, the limit is {max_inputs}")
    return given, [f"input[{i}]" for i in range(len(given))]


def wants_base64(fields: Fields) -> bool:
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    if fields.has("dimensions"):
        raise invalid("dimensions", "can't be chosen here. Leave it out")
    return encoding == "base64"


def parse_embedding(fields: Fields, tokenizer: Tokenizer) -> EmbeddingRequest:
    inputs, names = embedding_inputs(fields)
    prompts = [tokens(value, name, tokenizer) for value, name in zip(inputs, names, strict=True)]
    return EmbeddingRequest(fields.text("model"), prompts, wants_base64(fields), fields.script())


def _text_request(fields: Fields, prompt: list[int], max_new: int) -> TextRequest:
    refuse(fields, _REFUSED)
    for name in ("n", "best_of"):
        if fields.integer(name, 1, low=1) != 1:
            raise invalid(name, "must be 1: this server gives one choice")
    stream = fields.flag("stream")
    if fields.has("stream_options") and not stream:
        raise invalid("stream_options", "needs stream to be true")
    options = fields.mapping("stream_options")
    usage = options.flag("include_usage")
    continuous = usage and options.flag("continuous_usage_stats")
    return text_request(
        fields, fields, prompt, max_new, stream=stream, include_usage=usage, continuous_usage=continuous
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
        if not self._chat:
            return ()
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return (sse(self._frame([{**choice, "finish_reason": None}])),)

    def token(self, text: str, n_new: int) -> bytes:
        """A content frame; all but the text was rendered beforehand, unless each frame has its usage."""
        if self._request.continuous_usage:
            return sse(self._content(text) | {"usage": self._usage(Finish("", n_new, -1))})
        before, after = self._halves
        return before + _to_json(text).encode() + after

    @cached_property
    def _halves(self) -> tuple[bytes, bytes]:
        """What comes before and after the text of a content frame: only streams need it."""
        marker = "\x00"
        before, after = sse(self._content(marker)).split(json.dumps(marker).encode())
        return before, after

    def failure(self, error: RequestError) -> bytes:
        return sse(openai_error(error))

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """The frame with the finish reason, that with the token counts, the end."""
        request = self._request
        content: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        last = self._frame([{"index": 0, **content, "logprobs": None, "finish_reason": finish.reason}])
        frames = [last]
        if request.include_usage and not request.script.omit_usage:
            frames.append({**self._frame([]), "usage": self._usage(finish)})
        frames[-1]["server_timing"] = stages.server_timing()
        return [*map(sse, frames), *(() if request.script.omit_done else (DONE,))]

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
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


def add_routes(app: web.Application, service: Service) -> None:
    def chat_writer(call: Call, _: Fields, asked: TextRequest) -> ChunkWriter:
        return ChunkWriter(asked, chat=True, answer_id=f"chatcmpl-{call.row.request_id}", created_s=int(time.time()))

    def completion_writer(call: Call, _: Fields, asked: TextRequest) -> ChunkWriter:
        return ChunkWriter(asked, chat=False, answer_id=f"cmpl-{call.row.request_id}", created_s=int(time.time()))

    async def models(_request: web.Request) -> web.Response:
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "plimsoll"} for name in service.model_names]
        return web.json_response({"object": "list", "data": rows})

    async def one_model(request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if name not in service.model_names:
            raise service.unknown(name, "is served")
        return web.json_response({"id": name, "object": "model", "created": 0, "owned_by": "plimsoll"})

    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model}", one_model)
    app.router.add_post("/v1/chat/completions", answering(service, parse_chat, chat_writer))
    app.router.add_post("/v1/completions", answering(service, parse_completion, completion_writer))
    app.router.add_post("/v1/embeddings", inference(service, _embeddings))


async def _embeddings(call: Call) -> web.StreamResponse:
    fields = call.fields()
    name = fields.text("model")
    stages = Stages()
    from_what = _from_texts if name in _TEXT_TO_VECTOR else _from_tokens
    vectors, n_tokens = await from_what(call, fields, name, stages)
    body = embeddings(name, vectors, as_base64=wants_base64(fields), n_tokens=n_tokens)
    return await call.reply(body, server_timing=stages.server_timing())


async def _from_tokens(call: Call, fields: Fields, name: str, stages: Stages) -> tuple[list[list[float]], int]:
    model = call.service.model(name, "turns text into vectors")
    call.row.model = model.name
    asked = parse_embedding(fields, model.tokenizer)
    priority(fields)  # vectors are made at once: a rank is checked, and changes nothing
    obey(asked.script)
    call.service.check(model, max(len(prompt) for prompt in asked.prompts), 0, asked.script)
    stages.add(PREPROCESS, time.monotonic_ns() - call.row.received_ns)
    async with call.deadline():
        vectors = await model.embed(asked.prompts, asked.script, stages)
    call.count_stages(stages)
    return vectors, sum(len(prompt) for prompt in asked.prompts)


async def _from_texts(call: Call, fields: Fields, name: str, stages: Stages) -> tuple[list[list[float]], int]:
    """From a model behind a batcher, which keeps deadlines and counts by itself."""
    batched = call.service.batched(name)
    call.row.model = name
    inputs, names = embedding_inputs(fields)
    wants_base64(fields)
    script, rank = fields.script(), priority(fields)
    obey(script)
    if script.needs_timetable:
        raise invalid("plimsoll", "this model keeps no timetable. Use model scripted")
    for text, where in zip(inputs, names, strict=True):
        if not isinstance(text, str):
            raise invalid(where, f"must be a string: model {name!r} takes no token ids")
    texts = np.array([text.encode("utf-8", "replace") for text in inputs], dtype=np.object_)
    tensors = [Tensor(batched.model.inputs[0].name, "BYTES", texts)]
    given = await batched.infer(tensors, stages, priority=rank, deadline_ns=call.deadline_ns)
    # Bytes count as tokens, as for the other models here.
    return given[0].data.tolist(), sum(map(len, texts))
