"""TorchServe: ``POST /predictions/M[/V]``, whatever the model's handler takes and gives.

A prompt goes out as text and everything else as JSON, unless a body is given. A handler that streams writes chunks without any marks:
what arrives together is one chunk, so ``itl`` is between reads, not tokens. Code 503 is both TorchServe's word for an overload and for
an exception in the handler; its body tells them apart and is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept, problems
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import route
from plimsoll.harness.protocols.http import HttpDialect, HttpOptions
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest
from plimsoll.scenarios.samples.payload import Payload

#: The type that TorchServe gives the failures of a handler, under 503 as under 500.
_HANDLER = b"InternalServerException"


class TorchServeOptions(Options):
    """Options of ``torchserve``."""

    stream: bool = False
    model_version: str | None = Field(default=None, min_length=1)
    content_type: str | None = None
    body: str | None = None
    body_text: str | None = None
    body_file: str | None = None
    form: dict[str, str] = {}
    form_files: dict[str, str] = {}
    error_path: str = "error"
    path: str | None = Field(default=None, pattern=r"^/")

    @field_validator("content_type")
    @classmethod
    def _content_type(cls, value: str | None) -> str | None:
        return value if value is None else str(HttpOptions(content_type=value).content_type)


class TorchServeDialect:
    """Two plain requests to one route: of text and of JSON. The payload picks, unless a body is given."""

    __slots__ = ("_given", "_json", "_text", "accept", "plain")

    def __init__(self, target: Target) -> None:
        options = accept(TorchServeOptions, target.options)
        path = options.path
        if path is None:
            if not target.model:
                raise HarnessFault("target.model: torchserve needs the model's name. Give it, or the whole path")
            version = f"/{quote(options.model_version, safe='')}" if options.model_version else ""
            path = route(target.url, f"/predictions/{quote(target.model, safe='')}{version}")
        shared: dict[str, Any] = {
            "path": path,
            "framing": "chunks" if options.stream else "none",
            "error_path": options.error_path,
        }
        bodies = options.model_dump(
            include={"body", "body_text", "body_file", "form", "form_files", "content_type"}, exclude_defaults=True
        )
        self._given = bool(bodies.keys() - {"content_type"})
        text: dict[str, Any] = {"body": "{{ prompt }}", "content_type": "text/plain; charset=utf-8"}
        json: dict[str, Any] = {"body": "{{ data | tojson }}"}
        kind = {name: value for name, value in bodies.items() if name == "content_type"}
        self._text = _plain(target, {**shared, **(bodies if self._given else {**text, **kind})})
        self._json = _plain(target, {**shared, **(bodies if self._given else {**json, **kind})})
        self.accept = self._text.accept
        self.plain = self._text.plain

    def encode(self, payload: Payload) -> HttpRequest:
        if self._given or payload.prompt is not None:
            return self._text.encode(payload)
        if not payload.data:
            raise HarnessFault(
                "torchserve: the payload has neither a prompt nor data. Use another source, or give a body"
            )
        return self._json.encode(payload)

    def settle(self, exchange: Exchange) -> None:
        shed = exchange.code == 503 and exchange.status in (outcome.OK, outcome.PROTOCOL)
        self._text.settle(exchange)
        if shed and exchange.status == outcome.REFUSED and _HANDLER in exchange.body:
            exchange.status = outcome.HTTP


def _plain(target: Target, options: Mapping[str, Any]) -> HttpDialect:
    return HttpDialect(Target(target.url, "http", target.model, target.headers, options))


def _mistakes(given: TorchServeOptions) -> list[str]:
    """Those of the requests that are written by the ``http`` protocol's rules."""
    said = given.model_dump(exclude={"stream", "model_version"}, exclude_unset=True)
    return problems(HttpOptions, {name: value for name, value in said.items() if name != "content_type" or value})


PROTOCOLS = (
    ProtocolSpec(
        "torchserve",
        "TorchServe's /predictions/M, streamed or not",
        over_http(TorchServeDialect),
        TorchServeOptions,
        mistakes=_mistakes,
        streaming=False,
    ),
)
