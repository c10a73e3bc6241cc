"""Text Generation Inference: ``/generate_stream`` and ``/generate``.

The last event of a stream carries the whole text and the counts; no marker follows. Special tokens (an end of sequence)
are counted by the server and are no text. Where an answer comes in one piece, its headers say how long it queued and
ran.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import (
    ANSWER,
    NOTHING,
    FinishReason,
    JsonApi,
    JsonDialect,
    Told,
    check_one_choice,
    json_headers,
    mergeable,
    prompt_of,
    route,
)
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head
from plimsoll.harness.wire import tokens
from plimsoll.scenarios.samples.payload import Payload

#: Stage -> the header that says how long it took, in milliseconds.
_STAGES = {"validation": b"x-validation-time", "queue": b"x-queue-time", "inference": b"x-inference-time"}


class TgiOptions(Options):
    """Options of ``tgi-generate``."""

    stream: bool = True
    parameters: Annotated[dict[str, Any], mergeable()] = {}
    finish_reason: FinishReason = "required"
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_choice(self) -> TgiOptions:
        check_one_choice(self.parameters, "parameters", self.stream)
        return self


def tgi_dialect(target: Target) -> JsonDialect:
    """TGI's own API at a target. Raises HarnessFault."""
    options = accept(TgiOptions, target.options)

    def body(payload: Payload) -> dict[str, Any]:
        planned = {"max_new_tokens": payload.max_output_tokens} if payload.max_output_tokens >= 0 else {}
        parameters = {"do_sample": False, "details": True, **planned, **options.parameters}
        return {"inputs": prompt_of(payload, "tgi-generate"), "parameters": parameters}

    must_say = options.finish_reason == "required" and options.parameters.get("details", True) is not False
    path = route(target.url, "/generate_stream" if options.stream else "/generate", options.path)
    return JsonDialect(
        JsonApi(
            "tgi-generate",
            build_head("POST", path, json_headers(options.stream), target.headers),
            body,
            read_event,
            options.stream,
            end="the event with generated_text never came",
            reason="details.finish_reason" if must_say else "",
            prelude=_prelude,
        )
    )


def _prelude(exchange: Exchange, told: Told) -> None:
    """What the headers of an answer in one piece say: stages, and the counts."""
    told.timing = tokens.timing_text({stage: _number(exchange, name) for stage, name in _STAGES.items()})
    told.n_in = tokens.count(_number(exchange, b"x-prompt-tokens"))
    told.n_out = tokens.count(_number(exchange, b"x-generated-tokens"))


def _number(exchange: Exchange, name: bytes) -> int | None:
    text = (outcome.header(exchange, name) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def read_event(told: Told, event: dict[str, Any]) -> int:
    """One event of a stream, or a whole answer."""
    if type(event.get("generated_text")) is str:
        told.done = True
        details = event.get("details")
        if type(details) is dict:
            told.reason = details.get("finish_reason")
            n_in, n_out = tokens.count(details.get("input_length")), tokens.count(details.get("generated_tokens"))
            told.n_in, told.n_out = (n_in if n_in >= 0 else told.n_in), (n_out if n_out >= 0 else told.n_out)
    token = event.get("token")
    if type(token) is dict and token.get("text") and not token.get("special"):
        return ANSWER
    return NOTHING


PROTOCOLS = (
    ProtocolSpec(
        "tgi-generate",
        "Text Generation Inference, /generate_stream or /generate",
        over_http(tgi_dialect),
        TgiOptions,
        answers=("token.text if not token.special", "generated_text if not token"),
        history="text",
    ),
)
