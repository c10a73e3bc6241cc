"""TorchServe: ``POST /predictions/M[/V]`` over HTTP, ``Predictions`` and ``StreamPredictions`` over gRPC.

What goes in and comes out only the model's handler understands, so nothing of an answer is checked but that it is
there. A handler that streams writes chunks without any marks: over HTTP what arrives together is one chunk, so ``itl``
is between reads, not tokens. Code 503 is both TorchServe's word for an overload and for an exception in the handler;
its body tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept, problems
from plimsoll.harness.protocols._clients import over_grpc, over_http
from plimsoll.harness.protocols._http.body_template import BodyTemplate, compiles
from plimsoll.harness.protocols._http.json_stream import route
from plimsoll.harness.protocols.http import HttpDialect, HttpOptions
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.transport.rpc.rpc_outcome import fail_code
from plimsoll.scenarios.samples.payload import Payload

if TYPE_CHECKING:  # of accuracy runs alone
    from plimsoll.slo.verdict.accuracy import Answer

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

    def mistakes(self) -> list[str]:
        """Those of the requests that are written by the ``http`` protocol's rules."""
        said = self.model_dump(exclude={"stream", "model_version"}, exclude_unset=True)
        return problems(HttpOptions, {name: value for name, value in said.items() if name != "content_type" or value})


class TorchServeDialect:
    """Two plain requests to one route: of text and of JSON. The payload picks, unless a body is given."""

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


# -- gRPC -------------------------------------------------------------------------------------------------------------

SERVICE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"


class TorchServeGrpcOptions(GrpcOptions):
    """Options of ``torchserve-grpc``."""

    stream: bool = False
    model_version: str | None = Field(default=None, min_length=1)
    input_name: str = Field(default="data", min_length=1)
    body: str | None = None

    _template = field_validator("body")(compiles)


class TorchServeGrpcDialect:
    """One prediction a call."""

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(TorchServeGrpcOptions, target.options)
        if not target.model:
            raise HarnessFault("target.model: torchserve-grpc needs the model's name. Give it")
        self._model = target.model
        self._metadata = metadata_of(target)
        method = shipped("torchserve").method(f"{SERVICE}/Predictions")
        self._request, self._response = method.request, method.response
        self.response = method.response
        self._text = options.body is None
        self._template = BodyTemplate("{{ data | tojson }}" if options.body is None else options.body)

    def encode(self, payload: Payload) -> GrpcRequest:
        options = self._options
        if self._text and payload.prompt is not None:
            body = payload.prompt.encode()
        elif self._text and not payload.data:
            raise HarnessFault(
                "torchserve-grpc: the payload has neither a prompt nor data. Use another source, or give a body"
            )
        else:
            body = self._template.render(payload, self._model)
        message: Any = self._request(model_name=self._model, model_version=options.model_version or "")
        message.input[options.input_name] = body
        return GrpcRequest(
            f"/{SERVICE}/{'StreamPredictions' if options.stream else 'Predictions'}",
            (message.SerializeToString(deterministic=True),),
            server_streaming=options.stream,
            metadata=self._metadata,
            deadline_ns=options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        output: list[int] = []
        problem, fault = None, None
        for i, data in enumerate(messages_of(exchange)):
            answer = read(self._response, data)
            if answer is None:
                problem = f"message {i + 1} is no PredictionResponse"
                break
            if answer.HasField("status") and answer.status.code:
                fault = answer.status
                break
            if answer.prediction:
                output.append(i)
        if self._options.stream:
            times = np.frombuffer(exchange.mark_ns, dtype=np.int64).copy()
            outcome.stamp_chunks(exchange, times, output, output[0] if output else -1)
            outcome.count_tokens(exchange, -1, -1, exchange.status == outcome.OK)
        if fault is not None:
            fail_code(exchange, fault.code, fault.message)
        elif problem is not None:
            outcome.fail(exchange, outcome.PROTOCOL, problem)
        elif self._options.stream and not output:
            outcome.fail(exchange, outcome.PROTOCOL, "empty stream: no output")

    def answer(self, exchange: Exchange) -> Answer | None:
        """All pieces together, as text."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read
        from plimsoll.slo.verdict.accuracy import Answer

        found = [read(self._response, data) for data in messages_of(exchange)]
        pieces = [bytes(one.prediction) for one in found if one is not None]
        return Answer(b"".join(pieces).decode("utf-8", "replace")) if pieces else None


PROTOCOLS = (
    ProtocolSpec(
        "torchserve",
        "TorchServe's /predictions/M, streamed or not",
        over_http(TorchServeDialect),
        TorchServeOptions,
        streaming=False,
    ),
    ProtocolSpec(
        "torchserve-grpc",
        "TorchServe's Predictions and StreamPredictions over gRPC",
        over_grpc(TorchServeGrpcDialect),
        TorchServeGrpcOptions,
        grpc=True,
    ),
)
