"""The OpenAI-compatible routes for text: chat, completions, responses, embeddings, models."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from aiohttp import web

from plimsoll.reference_server.frontends.http import openai_wire
from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.http.generation import generate
from plimsoll.reference_server.frontends.http.openai_responses import ResponseWriter, parse_response
from plimsoll.reference_server.frontends.http.openai_wire import ChunkWriter
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.shared.text_request import TextRequest, priority
from plimsoll.reference_server.seams.answers import Script
from plimsoll.reference_server.service.accounting import obey
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.stages import PREPROCESS, Stages
from plimsoll.reference_server.values.tensors import Tensor
from plimsoll.reference_server.values.tokenizer import Tokenizer

_TEXT_TO_VECTOR = ("embedder",)
"""Models of fixed outputs that take texts."""


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""

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
    app.router.add_post("/v1/chat/completions", inference(service, _chat))
    app.router.add_post("/v1/completions", inference(service, _completion))
    app.router.add_post("/v1/responses", inference(service, _response))
    app.router.add_post("/v1/embeddings", inference(service, _embeddings))


async def _chat(call: Call) -> web.StreamResponse:
    return await _text(call, openai_wire.parse_chat, chat=True)


async def _completion(call: Call) -> web.StreamResponse:
    return await _text(call, openai_wire.parse_completion, chat=False)


async def _text(call: Call, parse: Callable[[Fields, Tokenizer], TextRequest], *, chat: bool) -> web.StreamResponse:
    fields = call.fields()
    model = call.service.model(fields.text("model"))
    call.row.model = model.name
    asked = parse(fields, model.tokenizer)
    answer_id = f"{'chatcmpl' if chat else 'cmpl'}-{call.row.request_id}"
    writer = ChunkWriter(asked, chat=chat, answer_id=answer_id, created_s=int(time.time()))
    return await generate(call, model, asked, writer)


async def _response(call: Call) -> web.StreamResponse:
    fields = call.fields()
    model = call.service.model(fields.text("model"))
    call.row.model = model.name
    asked = parse_response(fields, model.tokenizer)
    instructions = fields.text("instructions") if fields.has("instructions") else None
    writer = ResponseWriter(asked, instructions=instructions, answer_id=call.row.request_id, created_s=int(time.time()))
    return await generate(call, model, asked, writer)


async def _embeddings(call: Call) -> web.StreamResponse:
    fields = call.fields()
    name = fields.text("model")
    stages = Stages()
    from_what = _from_texts if name in _TEXT_TO_VECTOR else _from_tokens
    vectors, n_tokens = await from_what(call, fields, name, stages)
    body = openai_wire.embeddings(name, vectors, as_base64=openai_wire.wants_base64(fields), n_tokens=n_tokens)
    return await call.reply(body, server_timing=stages.server_timing())


async def _from_tokens(call: Call, fields: Fields, name: str, stages: Stages) -> tuple[list[list[float]], int]:
    model = call.service.model(name, "turns text into vectors")
    call.row.model = model.name
    asked = openai_wire.parse_embedding(fields, model.tokenizer)
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
    inputs, names = openai_wire.embedding_inputs(fields)
    openai_wire.wants_base64(fields)
    script, rank = fields.script(), priority(fields)
    obey(script)
    _no_timetable(script)
    for text, where in zip(inputs, names, strict=True):
        if not isinstance(text, str):
            raise invalid(where, f"must be a string: model {name!r} takes no token ids")
    texts = np.array([text.encode("utf-8", "replace") for text in inputs], dtype=np.object_)
    tensors = [Tensor(batched.model.inputs[0].name, "BYTES", texts)]
    given = await batched.infer(tensors, stages, priority=rank, deadline_ns=call.deadline_ns)
    # Bytes count as tokens, as for the other models here.
    return given[0].data.tolist(), sum(map(len, texts))


def _no_timetable(script: Script) -> None:
    if script.needs_timetable:
        raise invalid("plimsoll", "this model keeps no timetable. Use model scripted")
