"""The Messages API (``POST /v1/messages``), as Anthropic and compatible servers speak it.

A key given by ``api_key_env`` and its kin goes out as ``x-api-key``, as this API wants it. Text and tool input are
answer, thinking is output but not answer; ``message_stop`` ends a stream. Tokens are the API's own count, prompt tokens
read from its cache included.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

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
)
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head, join_path
from plimsoll.harness.wire import tokens
from plimsoll.harness.wire.headers import header_error
from plimsoll.scenarios.samples.payload import Payload

_OWN = frozenset({"stream", "messages", "model"})
#: 529 is this API's own code for an overload.
_SHED = frozenset({429, 503, 529})
_BEARER = re.compile(r"^bearer\s+", re.IGNORECASE)
#: Members of a delta that carry output, by what they are.
_DELTAS = (("text", ANSWER), ("partial_json", ANSWER), ("thinking", REASONING))


class MessagesOptions(Options):
    """Options of ``anthropic-messages``."""

    stream: bool = True
    max_tokens: int = Field(default=1024, ge=1)
    temperature: float | None = Field(default=0.0, ge=0, le=1)
    system: str | None = None
    thinking_budget: int | None = Field(default=None, ge=1024)
    auth: Literal["x-api-key", "bearer"] = "x-api-key"
    version: str = "2023-06-01"
    beta: list[str] = []
    finish_reason: FinishReason = "required"
    extra_body: Annotated[dict[str, Any], mergeable(_OWN)] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @field_validator("version", "beta")
    @classmethod
    def _header(cls, value: str | list[str]) -> str | list[str]:
        error = header_error("anthropic-version", value if isinstance(value, str) else ",".join(value))
        if error:
            raise ValueError(error)
        return value


def messages_dialect(target: Target) -> JsonDialect:
    """The Messages API of a target. Raises HarnessFault."""
    options = accept(MessagesOptions, target.options)

    def body(payload: Payload) -> dict[str, Any]:
        system, messages = _split_system(messages_of(payload, "anthropic-messages"), options.system)
        planned = payload.max_output_tokens if payload.max_output_tokens >= 0 else options.max_tokens
        fields: dict[str, Any] = {"model": target.model, "max_tokens": planned, "messages": messages}
        if system:
            fields["system"] = system
        if options.thinking_budget is not None:
            fields["thinking"] = {"type": "enabled", "budget_tokens": options.thinking_budget}
            fields["max_tokens"] = planned + options.thinking_budget  # the budget counts towards it
        elif options.temperature is not None:
            fields["temperature"] = options.temperature
        if options.stream:
            fields["stream"] = True
        return {**fields, **options.extra_body}

    if not target.model:
        raise HarnessFault("target.model: anthropic-messages needs the model's name. Give it")
    defaults = {**json_headers(options.stream), "anthropic-version": options.version}
    if options.beta:
        defaults["anthropic-beta"] = ",".join(options.beta)
    headers = _with_api_key(target.headers) if options.auth == "x-api-key" else target.headers
    path = join_path(target.url, "/v1/messages", options.path)
    return JsonDialect(
        JsonApi(
            "anthropic-messages",
            build_head("POST", path, defaults, headers),
            body,
            read_event,
            options.stream,
            end="neither a stop_reason nor message_stop came",
            reason="stop_reason" if options.finish_reason == "required" else "",
            shed=_SHED,
        )
    )


def _with_api_key(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """``Authorization: Bearer KEY`` as ``x-api-key: KEY``, unless that is there already."""
    if any(name.lower() == "x-api-key" for name, _ in headers):
        return headers
    return tuple(
        ("x-api-key", _BEARER.sub("", value))
        if name.lower() == "authorization" and _BEARER.match(value)
        else (name, value)
        for name, value in headers
    )


def _split_system(messages: list[dict[str, Any]], given: str | None) -> tuple[Any, list[dict[str, Any]]]:
    """Messages of the role ``system`` go into the field of that name, which may hold text or blocks of it."""
    said: list[Any] = [given] if given is not None else []
    said += [message.get("content") for message in messages if message.get("role") == "system"]
    rest = [message for message in messages if message.get("role") != "system"]
    if all(isinstance(text, str) for text in said):
        return "\n\n".join(said), rest
    blocks: list[Any] = []
    for text in said:
        blocks += text if isinstance(text, list) else [{"type": "text", "text": text}]
    return blocks, rest


def read_event(told: Told, event: dict[str, Any]) -> int:
    """One event of a stream, or a whole message."""
    kind = event.get("type")
    if kind == "content_block_delta":
        delta = event.get("delta")
        if type(delta) is dict:
            for name, carries in _DELTAS:
                if delta.get(name):
                    return carries
        return NOTHING
    if kind == "content_block_start":
        return _block(event.get("content_block"))
    if kind == "message_start":
        message = event.get("message")
        _count(told, message.get("usage") if type(message) is dict else None)
    elif kind == "message_delta":
        _count(told, event.get("usage"))
        delta = event.get("delta")
        if type(delta) is dict and delta.get("stop_reason"):
            told.reason, told.finished = delta["stop_reason"], True
    elif kind == "message_stop":
        told.done = True
    elif kind == "message":
        _count(told, event.get("usage"))
        told.reason = event.get("stop_reason")
        told.done = type(event.get("content")) is list
        return ANSWER if event.get("content") else NOTHING
    return NOTHING


def _block(block: Any) -> int:
    """What a block begins with: a tool's name is the model's own word, and text is seldom there already."""
    if type(block) is not dict:
        return NOTHING
    kind = block.get("type")
    if kind == "redacted_thinking":
        return REASONING if block.get("data") else NOTHING
    if block.get("text") or (type(kind) is str and kind.endswith("tool_use") and block.get("name")):
        return ANSWER
    return REASONING if block.get("thinking") else NOTHING


def _count(told: Told, usage: Any) -> None:
    """Counts are running totals: the last one counts. What came from the cache is prompt all the same."""
    if type(usage) is not dict:
        return
    fresh, n_out = tokens.usage_of(usage)
    if fresh >= 0:
        cached = (tokens.count(usage.get(f"cache_{what}_input_tokens")) for what in ("creation", "read"))
        told.n_in = fresh + sum(count for count in cached if count > 0)
    told.cached = max(told.cached, tokens.cached_of(usage))
    if n_out >= 0:
        told.n_out = n_out


PROTOCOLS = (
    ProtocolSpec(
        "anthropic-messages",
        "Anthropic messages, streamed over SSE",
        over_http(messages_dialect),
        MessagesOptions,
        answers=("delta.text if type == content_block_delta", "content[-1].text"),
        history="messages",
    ),
)
