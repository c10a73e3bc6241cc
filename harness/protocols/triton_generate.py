"""Triton's generate extension: ``/v2/models/M/generate_stream`` and ``/generate``, text in and text out.

A stream has no end of its own: it ends well when the response does, and an error is an event under status 200. Triton
counts no tokens here, so the number of frames with text stands in for them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import (
    ANSWER,
    NOTHING,
    JsonApi,
    JsonDialect,
    Told,
    check_one_choice,
    json_headers,
    mergeable,
    prompt_of,
)
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import build_head, join_path
from plimsoll.scenarios.samples.payload import Payload


class TritonOptions(Options):
    """Options of ``triton-generate``."""

    stream: bool = True
    model_version: str | None = Field(default=None, min_length=1)
    input: str = Field(default="text_input", min_length=1)
    output: str = Field(default="text_output", min_length=1)
    max_tokens_field: str = Field(default="max_tokens", min_length=1)
    max_tokens_in: Literal["parameters", "body"] = "parameters"
    parameters: Annotated[dict[str, Any], mergeable()] = {}
    extra_body: Annotated[dict[str, Any], mergeable()] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_choice(self) -> TritonOptions:
        check_one_choice(self.parameters, "parameters", self.stream)
        check_one_choice(self.extra_body, "extra_body", self.stream)
        return self


def triton_dialect(target: Target) -> JsonDialect:
    """The generate routes of a model. Raises HarnessFault."""
    options = accept(TritonOptions, target.options)

    def body(payload: Payload) -> dict[str, Any]:
        planned = {options.max_tokens_field: payload.max_output_tokens} if payload.max_output_tokens >= 0 else {}
        inside = options.max_tokens_in == "parameters"
        parameters = {
            **({"stream": True} if options.stream else {}),
            **(planned if inside else {}),
            **options.parameters,
        }
        prompt = prompt_of(payload, "triton-generate", ", or protocol kserve-v2 or triton-stream for tensors")
        fields: dict[str, Any] = {options.input: prompt, **({} if inside else planned)}
        if parameters:
            fields["parameters"] = parameters
        return {**fields, **options.extra_body}

    def read(told: Told, event: dict[str, Any]) -> int:
        told.finished = told.finished or options.output in event
        return ANSWER if event.get(options.output) else NOTHING

    version = f"/versions/{quote(options.model_version, safe='')}" if options.model_version else ""
    verb = "generate_stream" if options.stream else "generate"
    path = join_path(target.url, f"/v2/models/{quote(target.model, safe='')}{version}/{verb}", options.path)
    if not target.model and "/models//" in path:
        raise HarnessFault("target.model: triton-generate needs the model's name. Give it, or the whole path")
    return JsonDialect(
        JsonApi(
            "triton-generate",
            build_head("POST", path, json_headers(options.stream), target.headers),
            body,
            read,
            options.stream,
        )
    )


PROTOCOLS = (
    ProtocolSpec(
        "triton-generate",
        "Triton's generate_stream or generate",
        over_http(triton_dialect),
        TritonOptions,
        bundled=True,
        answers=("text_output",),
        history="text",
    ),
)
