"""TorchServe over gRPC: ``Predictions``, and ``StreamPredictions`` where the handler streams.

What goes in and comes out is bytes that only the model's handler understands, so nothing of an answer is checked but that
it is there; each streamed piece that isn't empty counts as output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.transport.rpc.rpc_outcome import fail_code
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.verdict.accuracy import Answer

SERVICE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"


class TorchServeGrpcOptions(GrpcOptions):
    """Options of ``torchserve-grpc``."""

    stream: bool = False
    model_version: str | None = Field(default=None, min_length=1)
    input_name: str = Field(default="data", min_length=1)
    body: str | None = None

    @field_validator("body")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None:
            BodyTemplate(value)
        return value


class TorchServeGrpcDialect:
    """One prediction a call."""

    __slots__ = ("_metadata", "_model", "_options", "_request", "_response", "_template", "_text")

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(TorchServeGrpcOptions, target.options)
        if not target.model:
            raise HarnessFault("target.model: torchserve-grpc needs the model's name. Give it")
        self._model = target.model
        self._metadata = metadata_of(target)
        method = shipped("torchserve").method(f"{SERVICE}/Predictions")
        self._request, self._response = method.request, method.response
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

        found = [read(self._response, data) for data in messages_of(exchange)]
        pieces = [bytes(one.prediction) for one in found if one is not None]
        return Answer(b"".join(pieces).decode("utf-8", "replace")) if pieces else None


PROTOCOLS = (
    ProtocolSpec(
        "torchserve-grpc",
        "TorchServe's Predictions and StreamPredictions over gRPC",
        over_grpc(TorchServeGrpcDialect),
        TorchServeGrpcOptions,
        grpc=True,
    ),
)
