"""Ollama: ``POST /api/generate`` and ``/api/chat``, one JSON object a line.

The last line has ``done`` true, the counts and how long loading, reading the prompt and generating took: these become
the request's stages. A model that had to be loaded first is called cold there, because its first answers measure a
disk. Thinking is output, not answer.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import (
    ANSWER,
    NOTHING,
    REASONING,
    FinishReason,
    JsonApi,
    JsonDialect,
    Told,
    json_headers,
    mergeable,
    messages_of,
    prompt_of,
    route,
)
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head
from plimsoll.harness.wire import tokens
from plimsoll.scenarios.samples.payload import Payload

_OWN = frozenset({"stream", "prompt", "messages", "model"})
#: A warm model reports some tens of milliseconds of loading; reading weights takes longer than this.
COLD_NS = 1_000_000_000


class OllamaOptions(Options):
    """Options of ``ollama-generate`` and ``ollama-chat``."""

    stream: bool = True
    temperature: float | None = Field(default=0.0, ge=0)
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: str | int | None = None
    finish_reason: FinishReason = "required"
    options: Annotated[dict[str, Any], mergeable()] = {}
    extra_body: Annotated[dict[str, Any], mergeable(_OWN)] = {}
    path: str | None = Field(default=None, pattern=r"^/")


def ollama_dialect(target: Target, chat: bool) -> JsonDialect:
    """One of the two routes of a target. Raises HarnessFault."""
    options = accept(OllamaOptions, target.options)
    name = "ollama-chat" if chat else "ollama-generate"
    if not target.model:
        raise HarnessFault(f"target.model: {name} needs the model's name, as `ollama list` shows it. Give it")

    def body(payload: Payload) -> dict[str, Any]:
        said: dict[str, Any] = (
            {"messages": messages_of(payload, name)} if chat else {"prompt": prompt_of(payload, name)}
        )
        inner: dict[str, Any] = {} if options.temperature is None else {"temperature": options.temperature}
        if payload.max_output_tokens >= 0:
            inner["num_predict"] = payload.max_output_tokens
        fields = {"model": target.model, **said, "stream": options.stream, "options": {**inner, **options.options}}
        wished = {"think": options.think, "keep_alive": options.keep_alive}
        asked = {key: value for key, value in wished.items() if value is not None}
        return {**fields, **asked, **options.extra_body}

    path = route(target.url, "/api/chat" if chat else "/api/generate", options.path)
    return JsonDialect(
        JsonApi(
            name,
            build_head("POST", path, json_headers(options.stream, "ndjson"), target.headers),
            body,
            read_line,
            options.stream,
            framing="ndjson",
            end="the line with done never came",
            reason="done_reason" if options.finish_reason == "required" else "",
        )
    )


def read_line(told: Told, line: dict[str, Any]) -> int:
    """One line of a stream, or a whole answer; of either route."""
    if line.get("done") is True:
        told.done, told.reason = True, line.get("done_reason")
        told.n_in, told.n_out = tokens.count(line.get("prompt_eval_count")), tokens.count(line.get("eval_count"))
        told.timing = _stages(line)
    message = line.get("message")
    holder, key = (message, "content") if type(message) is dict else (line, "response")
    if holder.get(key) or holder.get("tool_calls"):
        return ANSWER
    return REASONING if holder.get("thinking") else NOTHING


def _stages(line: dict[str, Any]) -> str:
    """The durations of the last line, which are in nanoseconds."""
    load = line.get("load_duration")
    text = tokens.timing_text(
        {"load": load, "prefill": line.get("prompt_eval_duration"), "decode": line.get("eval_duration")}, 1e-6
    )
    if type(load) is int and load >= COLD_NS and text.startswith("load;"):
        first, comma, rest = text.partition(",")
        text = f'{first};desc="cold model"{comma}{rest}'
    return text


PROTOCOLS = (
    ProtocolSpec(
        "ollama-chat",
        "Ollama's /api/chat, streamed as JSON lines",
        over_http(partial(ollama_dialect, chat=True)),
        OllamaOptions,
        bundled=True,
        answers=("message.content",),
        history="messages",
    ),
    ProtocolSpec(
        "ollama-generate",
        "Ollama's /api/generate, streamed as JSON lines",
        over_http(partial(ollama_dialect, chat=False)),
        OllamaOptions,
        bundled=True,
        answers=("response",),
        history="text",
    ),
)
