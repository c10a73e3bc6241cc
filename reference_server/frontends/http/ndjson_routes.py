"""The Ollama-like routes: streams of one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from plimsoll.reference_server.frontends.http import ndjson_wire
from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.http.generation import generate
from plimsoll.reference_server.frontends.shared.fields import Fields
from plimsoll.reference_server.frontends.shared.text_request import TextRequest
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.tokenizer import Tokenizer


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""
    app.router.add_post("/api/generate", inference(service, _generate))
    app.router.add_post("/api/chat", inference(service, _chat))


async def _generate(call: Call) -> web.StreamResponse:
    return await _text(call, ndjson_wire.parse_generate, chat=False)


async def _chat(call: Call) -> web.StreamResponse:
    return await _text(call, ndjson_wire.parse_chat, chat=True)


async def _text(call: Call, parse: Callable[[Fields, Tokenizer], TextRequest], *, chat: bool) -> web.StreamResponse:
    fields = call.fields(any_type=True)  # as Ollama does: its users type `curl -d`
    model = call.service.model(fields.text("model"))
    call.row.model = model.name
    asked = parse(fields, model.tokenizer)
    created_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return await generate(call, model, asked, ndjson_wire.LineWriter(asked, chat=chat, created_at=created_at))
