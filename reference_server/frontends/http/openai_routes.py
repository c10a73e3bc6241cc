"""The OpenAI-compatible routes: chat, completions, embeddings, models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web

from reference_server.answers import Answer, Ask, Finish
from reference_server.errors import StreamFailure
from reference_server.frontends.http import openai_wire
from reference_server.frontends.http.calls import Call, inference
from reference_server.frontends.http.fields import Fields
from reference_server.frontends.http.openai_wire import ChunkWriter, TextRequest
from reference_server.frontends.http.stream import EventSink, TextSink
from reference_server.service import Service
from reference_server.stages import Stages
from reference_server.tokenizer import Tokenizer


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""

    async def models(_request: web.Request) -> web.Response:
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "plimsoll"} for name in service.model_names]
        return web.json_response({"object": "list", "data": rows})

    async def one_model(request: web.Request) -> web.Response:
        name = service.model(request.match_info["model"]).name
        return web.json_response({"id": name, "object": "model", "created": 0, "owned_by": "plimsoll"})

    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{model}", one_model)
    app.router.add_post("/v1/chat/completions", inference(service, _chat))
    app.router.add_post("/v1/completions", inference(service, _completion))
    app.router.add_post("/v1/embeddings", inference(service, _embeddings))


async def _chat(call: Call) -> web.StreamResponse:
    return await _text(call, openai_wire.parse_chat, chat=True)


async def _completion(call: Call) -> web.StreamResponse:
    return await _text(call, openai_wire.parse_completion, chat=False)


async def _text(call: Call, parse: Callable[[Fields, Tokenizer], TextRequest], *, chat: bool) -> web.StreamResponse:
    service = call.service
    fields = Fields.parse(call.body)
    model = service.model(fields.text("model"))
    call.row.model = model.name
    asked = parse(fields, model.tokenizer)
    call.obey(asked.script)
    service.check(model, len(asked.prompt), asked.max_new, asked.script)
    ask = Ask(asked.prompt, asked.max_new, call.row, asked.min_new, asked.ignore_eos, asked.script)
    answer_id = f"{'chatcmpl' if chat else 'cmpl'}-{call.row.request_id}"
    writer = ChunkWriter(asked, chat=chat, answer_id=answer_id, created_s=int(time.time()))
    answer = model.ask(ask)
    try:
        await answer.ready()
        if asked.stream:
            return await _stream(call, asked, answer, writer, ask.stages)
        return await _whole(call, asked, answer, writer, ask.stages)
    finally:
        answer.close()


async def _whole(
    call: Call, asked: TextRequest, answer: Answer, writer: ChunkWriter, stages: Stages
) -> web.StreamResponse:
    error_at, cut_at = call.limits(asked.script)
    sink = TextSink(error_at=error_at, cut_at=cut_at)
    finish = await answer.play(sink)
    _count(call, finish, sink.first_ns)
    return await call.reply(writer.whole(sink.text, finish), server_timing=stages.server_timing())


async def _stream(
    call: Call, asked: TextRequest, answer: Answer, writer: ChunkWriter, stages: Stages
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-cache",
            "Server-Timing": stages.server_timing(),
        }
    )
    chunked = call.request.version >= (1, 1)
    if chunked:
        response.enable_chunked_encoding()
    await call.hold_headers()
    await call.send(response)
    transport = call.request.transport
    if not isinstance(transport, asyncio.WriteTransport):
        raise ConnectionResetError("the client is gone")
    error_at, cut_at = call.limits(asked.script)
    sink = EventSink(transport, call.row, writer.token, chunked=chunked, error_at=error_at, cut_at=cut_at)
    role = writer.role()
    if role:
        sink.event(role)
    try:
        finish = await answer.play(sink)
    except StreamFailure as failure:
        call.failed = True
        sink.event(openai_wire.error_event(str(failure)))
    else:
        sink.event(writer.finish(finish.reason))
        if asked.include_usage and not asked.script.omit_usage:
            sink.event(writer.usage(finish))
        if not asked.script.omit_done:
            sink.event(openai_wire.DONE)
        _count(call, finish, call.row.before_ns[0] if call.row.before_ns else -1)
    await response.write_eof()
    return response


async def _embeddings(call: Call) -> web.StreamResponse:
    service = call.service
    fields = Fields.parse(call.body)
    model = service.model(fields.text("model"))
    call.row.model = model.name
    asked = openai_wire.parse_embedding(fields, model.tokenizer)
    call.obey(asked.script)
    service.check(model, max(len(prompt) for prompt in asked.prompts), 0, asked.script)
    vectors = await model.embed(asked.prompts, asked.script)
    return await call.reply(openai_wire.embeddings(asked, vectors))


def _count(call: Call, finish: Finish, first_ns: int) -> None:
    ttft_s = (first_ns - call.row.received_ns) / 1e9 if first_ns >= 0 else -1.0
    call.service.metrics.answer(call.row.model, finish.n_new, ttft_s)
