"""The Open Inference Protocol V2 routes: health, metadata, inference with JSON bodies.

The scripted model echoes its tensors after its time to first token; the language model continues the BYTES
tensor ``text``, at most ``parameters.max_tokens`` tokens an element.
"""

from __future__ import annotations

import asyncio
import time
from importlib import metadata

from aiohttp import web

from reference_server.answers import Ask, Script, TextModel
from reference_server.errors import RequestError
from reference_server.frontends.http import kserve_wire
from reference_server.frontends.http.calls import Call, inference
from reference_server.frontends.http.fields import Fields, invalid
from reference_server.frontends.http.kserve_wire import Tensor
from reference_server.frontends.http.stream import TextSink
from reference_server.service import Service


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""

    async def server(_request: web.Request) -> web.Response:
        return web.json_response(kserve_wire.server_metadata(_version()))

    async def live(_request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(_request: web.Request) -> web.Response:
        return web.json_response({"ready": True})

    async def model(request: web.Request) -> web.Response:
        return web.json_response(kserve_wire.model_metadata(service.model(request.match_info["model"]).name))

    async def model_ready(request: web.Request) -> web.Response:
        name = service.model(request.match_info["model"]).name
        return web.json_response({"name": name, "ready": True})

    app.router.add_get("/v2", server)
    app.router.add_get("/v2/health/live", live)
    app.router.add_get("/v2/health/ready", ready)
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        app.router.add_get(path, model)
        app.router.add_get(f"{path}/ready", model_ready)
        app.router.add_post(f"{path}/infer", inference(service, _infer))


async def _infer(call: Call) -> web.StreamResponse:
    service = call.service
    model = service.model(call.request.match_info["model"])
    call.row.model = model.name
    if "Inference-Header-Content-Length" in call.request.headers:
        raise RequestError(400, "binary tensor data is not supported by this server. Send the tensors as JSON")
    fields = Fields.parse(call.body)
    script = fields.script()
    call.obey(script)
    service.check(model, 0, 0, script)
    inputs = kserve_wire.parse_inputs(fields)
    outputs = await _echo(call, inputs, script) if model is service.scripted else await _text(call, fields, inputs)
    return await call.reply(kserve_wire.infer_reply(model.name, fields.text("id", ""), outputs))


async def _echo(call: Call, inputs: list[Tensor], script: Script) -> list[Tensor]:
    scripted = call.service.scripted
    if scripted is None:
        raise RequestError(404, "model 'scripted' does not exist", code="model_not_found")
    answer = scripted.ask(Ask([0], 1, call.row, script=script))
    error_at, cut_at = call.limits(script)
    try:
        await answer.ready()
        await answer.play(TextSink(error_at=error_at, cut_at=cut_at))
    finally:
        answer.close()
    return inputs


async def _text(call: Call, fields: Fields, inputs: list[Tensor]) -> list[Tensor]:
    parameters = fields.mapping("parameters")
    max_new = parameters.integer("max_tokens", 16, low=1)
    ignore_eos = parameters.flag("ignore_eos")
    texts = next(
        (tensor for tensor in inputs if tensor.name in ("text", "text_input") and tensor.datatype == "BYTES"), None
    )
    if texts is None:
        raise invalid("inputs", "model 'llm' takes a tensor named text or text_input of datatype BYTES")
    model = call.service.model("llm")
    prompts = [model.tokenizer.encode(text) for text in texts.data]
    for prompt in prompts:
        call.service.check(model, len(prompt), max_new, Script())
    asks = [Ask(prompt, max_new, call.row, ignore_eos=ignore_eos) for prompt in prompts]
    # A task group, so that a refused or failed element takes its siblings, and their blocks, with it.
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_continue(call, model, ask)) for ask in asks]
    except* RequestError as failures:
        raise failures.exceptions[0] from None
    return [Tensor("text", "BYTES", texts.shape, [task.result() for task in tasks])]


async def _continue(call: Call, model: TextModel, ask: Ask) -> str:
    answer = model.ask(ask)
    sink = TextSink()
    try:
        await answer.ready()
        finish = await answer.play(sink)
    finally:
        answer.close()
    call.service.metrics.answer(model.name, finish.n_new, (time.monotonic_ns() - ask.row.received_ns) / 1e9)
    return sink.text


def _version() -> str:
    try:
        return metadata.version("plimsoll")
    except metadata.PackageNotFoundError:
        return "0"
