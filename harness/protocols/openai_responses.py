"""The Responses API (``POST /v1/responses``), as OpenAI and compatible servers speak it: typed events with numbers.

A stream ends with ``response.completed``, ``.incomplete`` or ``.failed``, never with a marker, and its events are
numbered without a gap: a gap means that an event was lost on the way. Nothing is kept from one response to the next.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import (
    ANSWER,
    NOTHING,
    REASONING,
    JsonApi,
    JsonDialect,
    Told,
    json_headers,
    mergeable,
    messages_of,
)
from plimsoll.harness.protocols.openai import SERVERS
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head, join_path
from plimsoll.harness.wire import tokens
from plimsoll.scenarios.samples.payload import Payload

_OWN = frozenset({"stream", "input", "model"})
_ENDED = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class ResponsesOptions(Options):
    """Options of ``openai-responses``."""

    stream: bool = True
    instructions: str | None = None
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    exact_output: bool = False
    obfuscation: bool | None = None
    check_sequence: bool = True
    extra_body: Annotated[dict[str, Any], mergeable(_OWN)] = {}
    path: str | None = Field(default=None, pattern=r"^/")


def responses_dialect(target: Target) -> JsonDialect:
    """The Responses API of a target. Raises HarnessFault."""
    options = accept(ResponsesOptions, target.options)

    def body(payload: Payload) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": target.model} if target.model else {}
        fields["input"] = payload.prompt if payload.messages is None and payload.prompt else _input(payload)
        if options.instructions is not None:
            fields["instructions"] = options.instructions
        if options.temperature is not None:
            fields["temperature"] = options.temperature
        if payload.max_output_tokens >= 0:
            fields["max_output_tokens"] = payload.max_output_tokens
        if options.exact_output:
            fields["ignore_eos"] = True
            if payload.max_output_tokens >= 0:
                fields["min_tokens"] = payload.max_output_tokens
        fields["stream"] = options.stream  # said either way: `transformers serve` streams unless told not to
        if options.stream and options.obfuscation is not None:
            fields["stream_options"] = {"include_obfuscation": options.obfuscation}
        return {**fields, **options.extra_body}

    def read(told: Told, event: dict[str, Any]) -> int:
        if options.check_sequence:
            _count_on(told, event.get("sequence_number"))
        return read_event(told, event)

    path = join_path(target.url, "/v1/responses", options.path)
    head = build_head("POST", path, json_headers(options.stream), target.headers)
    return JsonDialect(
        JsonApi(
            "openai-responses",
            head,
            body,
            read,
            options.stream,
            end="none of response.completed, .incomplete and .failed came",
            exact=options.exact_output,
        )
    )


def _input(payload: Payload) -> list[dict[str, Any]]:
    return [{**message, "content": _content(message)} for message in messages_of(payload, "openai-responses")]


def _content(message: dict[str, Any]) -> Any:
    """Content as this API names its parts: chat's ``text`` is ``input_text``, or ``output_text`` of the assistant."""
    content = message.get("content")
    if not isinstance(content, list):
        return content
    text = "output_text" if message.get("role") == "assistant" else "input_text"
    return [_part(part, text) for part in content]


def _part(part: Any, text: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {**part, "type": text}
    if kind == "image_url":
        image = part.get("image_url")
        given = dict(image) if isinstance(image, dict) else {"url": image}
        return {"type": "input_image", "image_url": given.pop("url", None), **given}
    return part


def _count_on(told: Told, number: Any) -> None:
    """Events are numbered one by one, from whichever number the first has; servers that number none are let be."""
    if type(number) is not int:
        return
    if told.seen >= 0 and number != told.seen + 1:
        told.bad = f"an event was lost: sequence_number goes from {told.seen} to {number}"
    told.seen = number


def read_event(told: Told, event: dict[str, Any]) -> int:
    """One event of a stream, or a whole response."""
    kind = event.get("type")
    if type(kind) is not str:
        if event.get("object") == "response" or "status" in event:
            return _end(told, event)
        return NOTHING
    if kind.endswith(".delta"):
        if not event.get("delta"):
            return NOTHING
        return REASONING if "reasoning" in kind else ANSWER
    if kind in _ENDED:
        response = event.get("response")
        _end(told, response if type(response) is dict else {"status": kind.rpartition(".")[2]})
        return NOTHING
    if kind == "error":
        told.fault = tokens.fault_of(event, named_error=True)
    elif kind == "response.output_item.added":
        item = event.get("item")
        what, called = (item.get("type"), item.get("name")) if type(item) is dict else (None, None)
        if type(what) is str and what.endswith("_call") and called:
            return ANSWER  # the model wrote the function's name
    return NOTHING


def _end(told: Told, response: dict[str, Any]) -> int:
    """The whole response: what it counted, and whether it is one."""
    told.n_in, told.n_out = tokens.usage_of(response.get("usage"))
    told.cached = tokens.cached_of(response.get("usage"))
    status = response.get("status")
    error = response.get("error")
    if status in ("failed", "cancelled") or error:
        told.fault = tokens.fault_of({"error": error or f"the response is {status}"})
        return NOTHING
    if status in ("completed", "incomplete"):
        told.done = True
        return ANSWER
    said = repr(outcome.shown(status, 40)) if type(status) is str else f"of type {type(status).__name__}"
    told.bad = f"the response is not finished: its status is {said}"
    return NOTHING


PROTOCOLS = (
    ProtocolSpec(
        "openai-responses",
        "OpenAI responses, streamed over SSE",
        over_http(responses_dialect),
        ResponsesOptions,
        bundled=True,
        lists_models=True,
        answers=("delta if type == response.output_text.delta", "output[-1].content[0].text"),
        servers=SERVERS,
        history="messages",
    ),
)
