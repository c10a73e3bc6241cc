"""The Open Inference Protocol (KServe V2): over HTTP, over gRPC, and as Triton's streams over gRPC.

A payload carries tensors (``data["inputs"]``, in the protocol's own shape) or a prompt as one BYTES tensor. The metric
is latency; the answer's tensors are checked against their shapes, because an OK can hold anything. protobuf is loaded
for gRPC only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np
import orjson
from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_grpc, over_http
from plimsoll.harness.protocols._http.json_stream import json_headers
from plimsoll.harness.protocols._kserve import (
    Tensor,
    answer_of,
    description_problem,
    put_tensors,
    response_problem,
    says_something,
    tensors,
)
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.transport.rpc.call import CODES, GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.transport.rpc.rpc_outcome import GRPC, fail_code
from plimsoll.harness.wire.tokens import fault_of, sheds_load
from plimsoll.scenarios.samples.payload import Payload

if TYPE_CHECKING:  # of accuracy runs alone
    from plimsoll.slo.verdict.accuracy import Answer


class KserveOptions(Options):
    """Options of ``kserve-v2``."""

    binary: bool = False
    model_version: str | None = Field(default=None, min_length=1)
    outputs: list[str] = []
    prompt_input: str = Field(default="text_input", min_length=1)
    prompt_shape: list[int] = Field(default=[1], min_length=1)
    parameters: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")


class KserveDialect:
    """``POST /v2/models/M[/versions/V]/infer``."""

    def __init__(self, target: Target) -> None:
        self._options = accept(KserveOptions, target.options)
        self.accept = b"application/json"
        version = f"/versions/{quote(self._options.model_version, safe='')}" if self._options.model_version else ""
        route = f"/v2/models/{quote(target.model, safe='')}{version}/infer"
        path = join_path(target.url, route, self._options.path)
        if not target.model and "/models//" in path:
            raise HarnessFault("target.model: kserve-v2 needs the model's name. Give it, or the whole path")
        defaults = json_headers(stream=False)
        if self._options.binary:
            defaults |= {"accept": "application/octet-stream, application/json"}
            defaults |= {"content-type": "application/octet-stream"}
        self._head = build_head("POST", path, defaults, target.headers)

    def encode(self, payload: Payload) -> HttpRequest:
        """``data["inputs"]``: a list of ``{name, shape, datatype, data}``; ``data`` may be nested lists
        or numpy.
        """
        options = self._options
        body: dict[str, Any] = {"inputs": self._inputs(payload)}
        if options.outputs:
            body["outputs"] = [{"name": name} for name in options.outputs]
        if options.parameters:
            body["parameters"] = options.parameters
        if options.binary:
            return self._encode_binary(body, payload)
        try:
            encoded = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            raise HarnessFault(
                f"kserve-v2: an input can't be written as JSON: {error}. Give lists of numbers"
            ) from None
        return HttpRequest(self._head, encoded, payload.n_in, payload.media_ns)

    def _encode_binary(self, body: dict[str, Any], payload: Payload) -> HttpRequest:
        """JSON that says how many bytes each tensor has, then the tensors in that order."""
        raw, described = [], []
        for tensor in body["inputs"]:
            try:
                data = Tensor(tensor).raw()
            except ValueError as error:
                raise HarnessFault(f"kserve-v2: {error}. Correct the payload source") from None
            raw.append(data)
            own = {**tensor.get("parameters", {}), "binary_data_size": len(data)}
            described.append({**{key: value for key, value in tensor.items() if key != "data"}, "parameters": own})
        body["inputs"] = described
        if self._options.outputs:
            body["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in self._options.outputs]
        else:
            body["parameters"] = {**body.get("parameters", {}), "binary_data_output": True}
        header = orjson.dumps(body)
        head = self._head + b"inference-header-content-length: %d\r\n" % len(header)
        return HttpRequest(head, b"".join((header, *raw)), payload.n_in, payload.media_ns)

    def _inputs(self, payload: Payload) -> list[Any]:
        inputs = payload.data.get("inputs")
        if inputs is None and payload.prompt is not None:
            shape = self._options.prompt_shape
            if prod(shape) != 1:
                raise HarnessFault(f"target.options.prompt_shape: {shape} has not one element. Use [1] or [1, 1]")
            name = self._options.prompt_input
            return [{"name": name, "shape": shape, "datatype": "BYTES", "data": [payload.prompt]}]
        if not isinstance(inputs, list | tuple) or not inputs:
            raise HarnessFault('kserve-v2: the payload has no data["inputs"] and no prompt. Use a tensor source')
        for i, tensor in enumerate(inputs):
            problem = _tensor_problem(tensor)
            if problem or "data" not in tensor:
                raise HarnessFault(
                    f'kserve-v2: data["inputs"][{i}]: {problem or "no data"}. Correct the payload source'
                )
        return list(inputs)

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange) or exchange.status != outcome.OK:
            return
        length = outcome.header(exchange, b"inference-header-content-length")
        raw_bytes = -1
        if length is not None and length.isascii() and length.isdigit() and len(length) < 12:
            raw_bytes = len(exchange.body) - int(length)
            if int(length) > len(exchange.body):
                outcome.fail(exchange, outcome.PROTOCOL, f"inference-header-content-length {length} is past the end")
                return
            answer = outcome.load_object(exchange, int(length))
        else:
            answer = outcome.load_object(exchange)
        if answer is None:
            return
        fault = fault_of(answer)
        if fault is not None:
            outcome.fail_by(exchange, fault)
            return
        problem = self._answer_problem(answer) or _raw_problem(answer, raw_bytes)
        if problem is not None:
            outcome.fail(exchange, outcome.PROTOCOL, problem)

    def _answer_problem(self, answer: dict[str, Any]) -> str | None:
        outputs = answer.get("outputs")
        if not isinstance(outputs, list) or not outputs:
            return "the response holds no outputs"
        for i, tensor in enumerate(outputs):
            problem = _tensor_problem(tensor)
            if problem:
                return f"outputs[{i}]: {problem}"
        missing = sorted(set(self._options.outputs) - {tensor["name"] for tensor in outputs})
        return f"the response lacks the outputs {', '.join(missing)}" if missing else None


def _raw_problem(answer: Mapping[str, Any], raw_bytes: int) -> str | None:
    """Why the bytes behind the JSON are not the tensors that it announces, or None.

    ``raw_bytes`` -1: there are none.
    """
    sizes = [
        tensor.get("parameters", {}).get("binary_data_size")
        for tensor in answer["outputs"]
        if isinstance(tensor.get("parameters"), dict) and "binary_data_size" in tensor["parameters"]
    ]
    if not all(type(size) is int and size >= 0 for size in sizes):
        return "a binary_data_size in the response is no number of bytes"
    if sizes and sum(sizes) != max(raw_bytes, 0):
        return f"the response announces {sum(sizes)} bytes of tensors and brings {max(raw_bytes, 0)}"
    return None


def _tensor_problem(tensor: Any) -> str | None:
    """Why a value is not a V2 tensor, or None. Flat data must have as many elements as the shape says."""
    problem = description_problem(tensor)
    if problem is not None:
        return problem
    data, shape = tensor.get("data"), tensor["shape"]
    if isinstance(data, list) and not any(isinstance(item, list) for item in data[:1]) and len(data) != prod(shape):
        name = outcome.shown(tensor["name"], 60)
        return f"tensor {name!r} has {len(data)} elements, not the {prod(shape)} of its shape"
    return None


# -- gRPC -------------------------------------------------------------------------------------------------------------

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
                f'{self._protocol}: the payload has no data["inputs"] and no prompt. '
                "Use a tensor source or a text source"
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

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(KserveCallOptions, target.options)
        self._metadata = metadata_of(target)
        method = shipped("kserve").method(f"{SERVICE}/ModelInfer")
        self.response = self._response = method.response
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


# -- ModelStreamInfer -------------------------------------------------------------------------------------------------

_FINAL = "triton_final_response"


class TritonStreamDialect:
    """``inference.GRPCInferenceService/ModelStreamInfer``: one request on a stream of its own, any number of answers.

    A stream's failure is a message in it (``error_message``) while the call itself ends OK. The client asks for an
    empty last answer, so that an end can be told from a cut; a server that never marks one (MLServer) isn't held to it.
    Triton wraps each answer, MLServer doesn't: which of the two it is shows in the first message.
    """

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(KserveCallOptions, target.options)
        self._metadata = metadata_of(target)
        schema = shipped("kserve")
        method = schema.method(f"{SERVICE}/ModelStreamInfer")
        self.response = self._wrapped = method.response
        self._bare = schema.message("inference.ModelInferResponse")
        self._writer = RequestWriter(target, options, method.request, triton_enable_empty_final_response=True)

    def encode(self, payload: Payload) -> GrpcRequest:
        return GrpcRequest(
            f"/{SERVICE}/ModelStreamInfer",
            (self._writer.write(payload),),
            client_streaming=True,
            server_streaming=True,
            metadata=self._metadata,
            deadline_ns=self._options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        scan = _Scan(self._wrapped, self._bare)
        problem = scan.read(exchange)
        times = np.frombuffer(exchange.mark_ns, dtype=np.int64).copy()
        outcome.stamp_chunks(exchange, times, scan.output, scan.output[0] if scan.output else -1)
        outcome.count_tokens(exchange, -1, -1, exchange.status == outcome.OK)
        if scan.timing and len(scan.timing) <= 1000:
            exchange.server_timing = scan.timing
        if scan.error is not None:
            self._fail(exchange, scan.error, scan.code)
        elif problem is not None:
            outcome.fail(exchange, outcome.PROTOCOL, problem)
        elif scan.marks_final and not scan.final:
            text = f"stream cut after {len(scan.output)} answers: none was marked as the last one"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        elif not len(exchange.mark_end):
            outcome.fail(exchange, outcome.PROTOCOL, "empty stream: no answer")

    def answer(self, exchange: Exchange) -> Answer | None:
        """The texts of all answers together, or the last answer's tensor."""
        from plimsoll.slo.verdict.accuracy import Answer

        wanted = next(iter(self._options.outputs), None)
        scan = _Scan(self._wrapped, self._bare)
        scan.read(exchange)
        found = [one for message in scan.answers if (one := answer_of(message, wanted)) is not None]
        if found and found[-1].text is None:
            return found[-1]
        return Answer("".join(one.text or "" for one in found)) if found else None

    def _fail(self, exchange: Exchange, message: str, code: int) -> None:
        if code > 0:
            fail_code(exchange, code, message)
            return
        text = outcome.shown(message)
        status = outcome.REFUSED if sheds_load(message) else GRPC
        outcome.fail(exchange, status, f"in the stream: {text}")


class _Scan:
    """One stream, gone through."""

    __slots__ = (
        "_bare",
        "_is_bare",
        "_wrapped",
        "answers",
        "code",
        "error",
        "final",
        "marks_final",
        "output",
        "timing",
    )

    def __init__(self, wrapped: Any, bare: Any) -> None:
        self._wrapped, self._bare = wrapped, bare
        self._is_bare: bool | None = None  # until the first message
        self.output: list[int] = []
        self.answers: list[Any] = []  # those that are output
        self.error: str | None = None
        self.code = -1
        self.final = self.marks_final = False
        self.timing = ""

    def read(self, exchange: Exchange) -> str | None:
        """Why an answer can't be read or is none, or None. Stops at one that holds an error."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        for i, data in enumerate(messages_of(exchange)):
            answer = self._unwrapped(bytes(data), read)
            if answer is None:
                return f"message {i + 1} is neither Triton's ModelStreamInferResponse nor a ModelInferResponse"
            if self.error is not None:
                self._note(answer)
                return None
            self._note(answer)
            if not answer.outputs:
                continue
            problem = response_problem(answer, ())
            if problem is not None:
                return f"message {i + 1}: {problem}"
            if says_something(answer):
                self.output.append(i)
                self.answers.append(answer)
        return None

    def _unwrapped(self, data: bytes, read: Callable[[Any, bytes], Any]) -> Any:
        if self._is_bare is None:
            self._is_bare = self._looks_bare(data, read)
        if self._is_bare:
            return read(self._bare, data)
        message = read(self._wrapped, data)
        if message is None:
            return None
        if message.error_message:
            self.error = message.error_message
        return message.infer_response

    def _looks_bare(self, data: bytes, read: Callable[[Any, bytes], Any]) -> bool:
        """Read as a bare answer it has what a wrapped one (a text and a message) can't have: more than two fields."""
        message = read(self._bare, data)
        return message is not None and bool(
            message.outputs or message.id or message.parameters or message.raw_output_contents
        )

    def _note(self, answer: Any) -> None:
        parameters = answer.parameters
        if not parameters:
            return
        if _FINAL in parameters:
            self.marks_final = True
            self.final = self.final or bool(parameters[_FINAL].bool_param)
        if "server_timing" in parameters:
            self.timing = parameters["server_timing"].string_param
        if self.error is not None and "status" in parameters and parameters["status"].string_param in CODES:
            self.code = CODES.index(parameters["status"].string_param)


PROTOCOLS = (
    ProtocolSpec(
        "kserve-v2",
        "KServe Open Inference Protocol V2 over HTTP, JSON or binary tensors",
        over_http(KserveDialect),
        KserveOptions,
        streaming=False,
        bundled=True,
        servers=("triton", "mlserver", "openvino", "ovms"),
    ),
    ProtocolSpec(
        "kserve-v2-grpc",
        "KServe Open Inference Protocol V2 over gRPC: ModelInfer",
        over_grpc(KserveGrpcDialect),
        KserveCallOptions,
        streaming=False,
        bundled=True,
        grpc=True,
        servers=("triton", "mlserver", "openvino", "ovms"),
    ),
    ProtocolSpec(
        "triton-stream",
        "Triton's ModelStreamInfer over gRPC: decoupled models, one stream a request",
        over_grpc(TritonStreamDialect),
        KserveCallOptions,
        bundled=True,
        grpc=True,
    ),
)
