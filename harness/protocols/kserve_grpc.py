"""The Open Inference Protocol (KServe V2) over gRPC: one inference, one answer (``ModelInfer``).

The metric is latency; the answer's tensors are checked against their shapes, because an OK can hold anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._kserve.tensors import Tensor, answer_of, put_tensors, response_problem, tensors
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.scenarios.samples.payload import Payload

if TYPE_CHECKING:
    from plimsoll.slo.verdict.accuracy import Answer


SERVICE = "inference.GRPCInferenceService"


class KserveCallOptions(GrpcOptions):
    """Options of ``kserve-v2-grpc`` and ``triton-stream``."""

    model_version: str | None = Field(default=None, min_length=1)
    outputs: list[str] = []
    prompt_input: str = Field(default="text_input", min_length=1)
    prompt_shape: list[int] = Field(default=[1], min_length=1)
    max_tokens_parameter: str | None = Field(default="max_tokens", min_length=1)
    max_tokens_input: str | None = Field(default=None, min_length=1)
    inputs: list[dict[str, Any]] = []
    parameters: dict[str, bool | int | float | str] = {}
    contents: Literal["raw", "typed"] = "raw"

    @field_validator("prompt_shape")
    @classmethod
    def _one(cls, value: list[int]) -> list[int]:
        if any(size != 1 for size in value):
            raise ValueError(f"{value} has not one element. Use [1] or [1, 1]")
        return value

    @field_validator("parameters")
    @classmethod
    def _fits(cls, value: dict[str, Any]) -> dict[str, Any]:
        big = [name for name, item in value.items() if type(item) is int and not -(2**63) <= item < 2**63]
        if big:
            raise ValueError(f"{', '.join(big)}: more than 64 bits. Write a smaller number, or text")
        return value

    @field_validator("inputs")
    @classmethod
    def _tensors(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        errors = []
        for i, one in enumerate(value):
            try:
                Tensor(one)
            except ValueError as error:
                errors.append(f"[{i}]: {error}")
        if errors:
            raise ValueError("; ".join(errors) + ". Correct the tensors")
        return value


class RequestWriter:
    """Payloads to the bytes of a ModelInferRequest. Raises HarnessFault for a target without a model."""

    __slots__ = ("_fixed", "_kind", "_model", "_options", "_protocol")

    def __init__(self, target: Target, options: KserveCallOptions, kind: Any, **said: bool) -> None:
        if not target.model:
            raise HarnessFault(f"target.model: {target.protocol} needs the model's name. Give it")
        self._model, self._options, self._kind = target.model, options, kind
        self._protocol = target.protocol
        self._fixed = {**said, **options.parameters}

    def write(self, payload: Payload) -> bytes:
        """The same payload always gives the same bytes. Raises HarnessFault with everything that is wrong with it."""
        options = self._options
        message = self._kind(model_name=self._model, model_version=options.model_version or "")
        parameters = dict(self._fixed)
        is_text = payload.data.get("inputs") is None
        wanted = payload.max_output_tokens
        if is_text and wanted >= 0 and options.max_tokens_input is None and options.max_tokens_parameter is not None:
            parameters = {options.max_tokens_parameter: wanted, **parameters}
        for name, value in parameters.items():
            put_parameter(message.parameters[name], value)
        for name in options.outputs:
            message.outputs.add(name=name)
        made = self._inputs(payload) + tensors(options.inputs, "target.options.inputs")
        put_tensors(message, made, options.contents == "raw")
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    def _inputs(self, payload: Payload) -> list[Tensor]:
        options = self._options
        given = payload.data.get("inputs")
        if given is not None and (not isinstance(given, list | tuple) or not given):
            raise HarnessFault(f'{self._protocol}: data["inputs"] is no list of tensors. Use a tensor source')
        if given is not None:
            return tensors(given, f'{self._protocol}: data["inputs"]')
        if payload.prompt is None:
            raise HarnessFault(
                f'{self._protocol}: the payload has no data["inputs"] and no prompt. Use a tensor source or a text source'
            )
        shape = options.prompt_shape
        made = [{"name": options.prompt_input, "shape": shape, "datatype": "BYTES", "data": [payload.prompt]}]
        if options.max_tokens_input is not None and payload.max_output_tokens >= 0:
            made.append(
                {
                    "name": options.max_tokens_input,
                    "shape": shape,
                    "datatype": "INT32",
                    "data": [payload.max_output_tokens],
                }
            )
        return tensors(made, self._protocol)


def put_parameter(parameter: Any, value: bool | int | float | str) -> None:
    """Set an InferParameter by the value's type."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value


class KserveGrpcDialect:
    """``inference.GRPCInferenceService/ModelInfer``."""

    __slots__ = ("_metadata", "_options", "_response", "_writer")

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(KserveCallOptions, target.options)
        self._metadata = metadata_of(target)
        method = shipped("kserve").method(f"{SERVICE}/ModelInfer")
        self._response = method.response
        self._writer = RequestWriter(target, options, method.request)

    def encode(self, payload: Payload) -> GrpcRequest:
        return GrpcRequest(
            f"/{SERVICE}/ModelInfer",
            (self._writer.write(payload),),
            metadata=self._metadata,
            deadline_ns=self._options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        if exchange.status != outcome.OK:
            return
        for data in messages_of(exchange):
            answer = read(self._response, data)
            if answer is None:
                problem: str | None = "the answer is no ModelInferResponse"
            else:
                problem = response_problem(answer, self._options.outputs)
            if problem is not None:
                outcome.fail(exchange, outcome.PROTOCOL, problem)

    def answer(self, exchange: Exchange) -> Answer | None:
        """The first output asked for, or the first there is."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        wanted = next(iter(self._options.outputs), None)
        found = [read(self._response, data) for data in messages_of(exchange)]
        return answer_of(found[0], wanted) if found and found[0] is not None else None


PROTOCOLS = (
    ProtocolSpec(
        "kserve-v2-grpc",
        "KServe Open Inference Protocol V2 over gRPC: ModelInfer",
        over_grpc(KserveGrpcDialect),
        KserveCallOptions,
        streaming=False,
        bundled=True,
        grpc=True,
    ),
)
