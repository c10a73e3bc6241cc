"""llama.cpp's own server: ``POST /completion``.

The last event has ``stop`` true, the counts and the timings. Events of prompt progress come before the first token and
are none. The server caches prompts unless told otherwise, so repeated prompts measure a warm cache: ``cache_prompt:
false`` measures a cold one.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

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
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head
from plimsoll.harness.wire import tokens
from plimsoll.scenarios.samples.payload import Payload

_OWN = frozenset({"stream", "prompt"})


class LlamaCppOptions(Options):
    """Options of ``llamacpp-completion``."""

    stream: bool = True
    temperature: float | None = Field(default=0.0, ge=0)
    cache_prompt: bool | None = None
    exact_output: bool = False
    finish_reason: FinishReason = "required"
    extra_body: Annotated[dict[str, Any], mergeable(_OWN)] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_choice(self) -> LlamaCppOptions:
        check_one_choice(self.extra_body, "extra_body", self.stream)
        return self


def llamacpp_dialect(target: Target) -> JsonDialect:
    """The completion route of a target. Raises HarnessFault."""
    options = accept(LlamaCppOptions, target.options)

    def body(payload: Payload) -> dict[str, Any]:
        fields: dict[str, Any] = {"prompt": prompt_of(payload, "llamacpp-completion"), "stream": options.stream}
        if payload.max_output_tokens >= 0:
            fields["n_predict"] = payload.max_output_tokens
        if options.temperature is not None:
            fields["temperature"] = options.temperature
        if options.cache_prompt is not None:
            fields["cache_prompt"] = options.cache_prompt
        if options.exact_output:
            fields["ignore_eos"] = True
        return {**fields, **options.extra_body}

    path = route(target.url, "/completion", options.path)
    return JsonDialect(
        JsonApi(
            "llamacpp-completion",
            build_head("POST", path, json_headers(options.stream), target.headers),
            body,
            read_event,
            options.stream,
            end="the event with stop never came",
            reason="stop_type" if options.finish_reason == "required" else "",
            exact=options.exact_output,
        )
    )


def read_event(told: Told, event: dict[str, Any]) -> int:
    """One event of a stream, or a whole answer."""
    if event.get("stop") is True:
        told.done, told.reason = True, _reason(event)
        timings = event.get("timings")
        timings = timings if type(timings) is dict else {}
        told.n_in = tokens.count(event.get("tokens_evaluated"))
        told.n_out = tokens.count(event.get("tokens_predicted", timings.get("predicted_n")))
        told.cached = tokens.count(timings.get("cache_n"))
        told.timing = tokens.timing_text({"prefill": timings.get("prompt_ms"), "decode": timings.get("predicted_ms")})
    return ANSWER if event.get("content") else NOTHING


def _reason(event: dict[str, Any]) -> Any:
    """Why it stopped: ``stop_type``, or the flag that older servers set in its place."""
    kind = event.get("stop_type")
    if kind is not None:
        return None if kind == "none" else kind
    return next((name for name in ("stopped_eos", "stopped_limit", "stopped_word") if event.get(name)), None)


PROTOCOLS = (
    ProtocolSpec(
        "llamacpp-completion",
        "llama.cpp's /completion, streamed over SSE",
        over_http(llamacpp_dialect),
        LlamaCppOptions,
        answers=("content",),
        servers=("llama.cpp",),
        history="text",
    ),
)
