"""The Open Inference Protocol V2 routes: health, metadata, statistics, inference with JSON and binary tensors, generated text.

What the models make of a request is in ``open_inference``; here are the bytes and the statuses. Health is told by status code.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from plimsoll.reference_server.frontends.http import kserve_binary, kserve_wire
from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.shared import open_inference
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.shared.open_inference import InferRequest, Occasion, card
from plimsoll.reference_server.seams.answers import Answer, Ask
from plimsoll.reference_server.service.accounting import obey
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from plimsoll.reference_server.values.tensors import Tensor

_VERSIONS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""

    async def server(_request: web.Request) -> web.Response:
        described = kserve_wire.server_metadata(open_inference.version(), open_inference.EXTENSIONS)
        return web.json_response(described)

    async def live(_request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(_request: web.Request) -> web.Response:
        is_ready = open_inference.ready(service)
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    async def model(request: web.Request) -> web.Response:
        return web.json_response(_card(service, request).as_json())

    async def model_ready(request: web.Request) -> web.Response:
        name, is_ready = _card(service, request).name, open_inference.ready(service)
        return web.json_response({"name": name, "ready": is_ready}, status=200 if is_ready else 503)

    async def statistics(request: web.Request) -> web.Response:
        asked = [_card(service, request).name] if "model" in request.match_info else open_inference.names(service)
        rows = [service.statistics.of(name).as_json(name, open_inference.n_executed(service, name)) for name in asked]
        return web.json_response({"model_stats": rows})

    async def config(request: web.Request) -> web.Response:
        return web.json_response(_card(service, request).config())

    async def index(_request: web.Request) -> web.Response:
        state = "READY" if open_inference.ready(service) else "UNAVAILABLE"
        rows = [{"name": name, "version": "1", "state": state} for name in open_inference.names(service)]
        return web.json_response(rows)

    app.router.add_get("/v2", server)
    app.router.add_post("/v2/repository/index", index)
    app.router.add_get("/v2/health/live", live)
    app.router.add_get("/v2/health/ready", ready)
    app.router.add_get("/v2/models/stats", statistics)
    for path in _VERSIONS:
        app.router.add_get(path, model)
        app.router.add_get(f"{path}/ready", model_ready)
        app.router.add_get(f"{path}/config", config)
        app.router.add_get(f"{path}/stats", statistics)
        app.router.add_post(f"{path}/infer", inference(service, _infer))
        app.router.add_post(f"{path}/generate", inference(service, _generate))
        app.router.add_post(f"{path}/generate_stream", inference(service, _generate_stream))


def _card(service: Service, request: web.Request) -> open_inference.Card:
    return card(service, request.match_info["model"], request.match_info.get("version", ""))


def _occasion(call: Call, request: InferRequest) -> Occasion:
    wish = request.wishes
    obey(wish.script)
    deadline_ns = open_inference.deadline(call.row.received_ns, wish, call.deadline_ns)
    return Occasion(call.row, call.account.limits(wish.script), deadline_ns)


async def _infer(call: Call) -> web.StreamResponse:
    model = _card(call.service, call.request).name
    call.row.model = model
    head, tail = kserve_binary.split(call.body, call.request.headers.get(kserve_binary.HEADER))
    parsed = kserve_wire.parse_request(Fields.parse(head), model, tail)
    occasion = _occasion(call, parsed.request)
    outputs = await open_inference.infer(call.service, parsed.request, occasion)
    body, n_json = kserve_wire.reply(parsed, outputs)
    response = web.Response(
        body=body, content_type="application/json" if n_json is None else "application/octet-stream"
    )
    if n_json is not None:
        response.headers[kserve_binary.HEADER] = str(n_json)
    response.headers["Server-Timing"] = occasion.stages.server_timing()
    await call.account.hold()
    await call.send(response)
    return response


def _text_request(call: Call) -> InferRequest:
    """The body of the generate routes: ``text_input``, and parameters in their own object or beside it."""
    model = call.service.model(_card(call.service, call.request).name).name
    call.row.model = model
    fields = Fields.parse(call.body)
    given = fields.mapping("parameters").values
    beside = {key: value for key, value in fields.values.items() if key not in ("parameters", "plimsoll", "id")}
    parameters = Fields({**beside, **given}, "parameters.")
    text = fields.text("text_input")
    try:
        tensor = open_inference.piece("text_input", text, errors="strict")
    except UnicodeEncodeError:
        raise invalid("text_input", "holds half a character that UTF-8 can't say") from None
    wish = open_inference.wishes(parameters, fields.script())
    if wish.max_new is None:
        wish = open_inference.with_default(wish)
    return InferRequest(model, fields.text("id", ""), [tensor], wishes=wish)


def _frame(request: InferRequest, text: str) -> dict[str, Any]:
    named = {"id": request.request_id} if request.request_id else {}
    return {**named, "model_name": request.model, "model_version": "1", "text_output": text}


async def _generate(call: Call) -> web.StreamResponse:
    request = _text_request(call)
    occasion = _occasion(call, request)
    (output,) = await open_inference.infer(call.service, request, occasion)
    body = json.dumps(_frame(request, _first(output))).encode()
    return await call.reply(body, server_timing=occasion.stages.server_timing())


def _first(tensor: Tensor) -> str:
    return str(tensor.data.ravel()[0].decode("utf-8"))


async def _generate_stream(call: Call) -> web.StreamResponse:
    request = _text_request(call)
    occasion = _occasion(call, request)
    model, ask, _ = open_inference.text_ask(call.service, request, occasion)
    with open_inference.counted(call.service, model.name, occasion):
        answer = model.ask(ask)
        try:
            async with open_inference.in_time(call.service, request.model, occasion.deadline_ns):
                await answer.ready()
            return await _stream(call, request, occasion, ask, answer)
        finally:
            answer.close()


async def _stream(
    call: Call, request: InferRequest, occasion: Occasion, ask: Ask, answer: Answer
) -> web.StreamResponse:
    response = await call.begin("text/event-stream", occasion.stages)
    sink = call.sink(lambda text: _event(_frame(request, text)), occasion.limits)
    try:
        async with open_inference.in_time(call.service, request.model, occasion.deadline_ns):
            finish = await answer.play(sink)
    except (StreamFailure, RequestError) as failure:
        call.failed = occasion.failed = True
        sink.event(_event({"error": str(failure)}))
    else:
        # The last event holds no text; clients that join the pieces may ignore it.
        end = {"finish_reason": finish.reason, "server_timing": occasion.stages.server_timing()}
        sink.event(_event(_frame(request, "") | end))
        ttft_s = (call.row.before_ns[0] - call.row.received_ns) / 1e9 if call.row.before_ns else -1.0
        call.service.metrics.answer(request.model, finish.n_new, ttft_s)
        call.count_stages(occasion.stages)
    await response.write_eof()
    return response


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()
