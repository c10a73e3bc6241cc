"""TensorFlow Serving: predict, classify and regress over REST, and ``Predict`` over gRPC, without TensorFlow.

Tensors of the payload (``data["inputs"]``, as in ``kserve-v2``) become rows (``instances``) or columns (``inputs``);
``data`` that is already such a body goes out as it is. The metric is latency; the answer's shape is checked, because a
200 can hold an error. The server writes NaN and Infinity, which JSON does not know, and they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np
import orjson
from pydantic import Field, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_grpc, over_http
from plimsoll.harness.protocols._http.json_stream import json_headers
from plimsoll.harness.protocols._kserve import DTYPES, MAX_DIMENSIONS, Tensor, tensors
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.wire.tokens import fault_of
from plimsoll.scenarios.samples.payload import Payload

if TYPE_CHECKING:  # of accuracy runs alone
    from plimsoll.slo.verdict.accuracy import Answer

#: What an answer holds, by the call that it answers.
_ANSWERS = {"predict": ("predictions", "outputs"), "classify": ("results", "result"), "regress": ("results", "result")}
_BODIES = ("instances", "inputs", "examples")


class TfServingOptions(Options):
    """Options of ``tfserving``."""

    call: Literal["predict", "classify", "regress"] = "predict"
    layout: Literal["row", "column"] = "row"
    signature: str | None = Field(default=None, min_length=1)
    model_version: int | None = Field(default=None, ge=0)
    version_label: str | None = Field(default=None, min_length=1)
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_version(self) -> TfServingOptions:
        if self.model_version is not None and self.version_label is not None:
            raise ValueError("model_version and version_label are given together. Keep one")
        return self


class TfServingDialect:
    """One call of one model."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(TfServingOptions, target.options)
        self.accept = b"application/json"
        if not target.model and options.path is None:
            raise HarnessFault("target.model: tfserving needs the model's name. Give it, or the whole path")
        version = "" if options.model_version is None else f"/versions/{options.model_version}"
        if options.version_label is not None:
            version = f"/labels/{quote(options.version_label, safe='')}"
        path = join_path(target.url, f"/v1/models/{quote(target.model, safe='')}{version}:{options.call}", options.path)
        self._head = build_head("POST", path, json_headers(stream=False), target.headers)

    def encode(self, payload: Payload) -> HttpRequest:
        signature = {} if self._options.signature is None else {"signature_name": self._options.signature}
        try:
            body = orjson.dumps({**signature, **self._fields(payload)}, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            text = f"tfserving: an input can't be written as JSON: {error}. Give lists of numbers"
            raise HarnessFault(text) from None
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns)

    def _fields(self, payload: Payload) -> dict[str, Any]:
        data = payload.data
        tensors = data.get("inputs")
        if isinstance(tensors, list | tuple) and tensors and all(_is_tensor(tensor) for tensor in tensors):
            named = {tensor["name"]: _nested(tensor) for tensor in tensors}
            return {"inputs": named} if self._options.layout == "column" else {"instances": _rows(named)}
        if any(name in data for name in _BODIES):
            return data
        if payload.prompt is not None:
            return {"inputs" if self._options.layout == "column" else "instances": [payload.prompt]}
        raise HarnessFault(
            'tfserving: the payload has no data["inputs"], instances or examples and no prompt. Use a tensor source'
        )

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange) or exchange.status != outcome.OK:
            return
        if not outcome.readable(exchange):
            return
        try:
            answer = _loads(bytes(exchange.body))
        except (ValueError, RecursionError):
            what = f"not JSON: {outcome.excerpt(exchange.body)}" if exchange.body else "empty"
            outcome.fail(exchange, outcome.PROTOCOL, f"the body is {what}")
            return
        fault = fault_of(answer) if isinstance(answer, dict) else None
        wanted = _ANSWERS[self._options.call]
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not isinstance(answer, dict) or not any(answer.get(name) not in (None, [], {}) for name in wanted):
            text = f"the body holds no {' or '.join(wanted)}: {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)


def _loads(body: bytes) -> Any:
    """JSON, and what this server writes besides: NaN, Infinity and -Infinity."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if b"NaN" not in body and b"Infinity" not in body:
            raise
        return json.loads(body)


def _is_tensor(tensor: Any) -> bool:
    return isinstance(tensor, Mapping) and {"name", "shape", "data"} <= tensor.keys()


def _nested(tensor: Mapping[str, Any]) -> Any:
    """The tensor's values in nested lists of its shape. Raises HarnessFault where they do not fit it."""
    shape, data = list(tensor["shape"]), tensor["data"]
    values = data.ravel().tolist() if hasattr(data, "ravel") else list(data)
    values = [{"b64": _b64(value)} if isinstance(value, bytes) else value for value in values]
    if any(isinstance(value, list) for value in values[:1]):
        return values  # it is nested already
    if len(values) != prod(shape):
        name = outcome.shown(str(tensor["name"]), 60)
        text = f"tensor {name!r} has {len(values)} elements, not the {prod(shape)} of its shape"
        raise HarnessFault(f"tfserving: {text}. Correct the payload source")
    for size in reversed(shape[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values if shape else values[0]


def _b64(value: bytes) -> str:
    import base64

    return base64.b64encode(value).decode()


def _rows(named: Mapping[str, Any]) -> list[Any]:
    """Tensors by name, as one object (or one value, of a single tensor) for each place of the first dimension."""
    sizes = {len(value) if isinstance(value, list) else -1 for value in named.values()}
    if len(sizes) > 1 or -1 in sizes:
        raise HarnessFault(
            "tfserving: the tensors have no first dimension in common, so they are no rows. Set layout: column"
        )
    if len(named) == 1:
        return list(next(iter(named.values())))
    return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]


# -- gRPC -------------------------------------------------------------------------------------------------------------

METHOD = "tensorflow.serving.PredictionService/Predict"
#: V2 datatype -> (TensorFlow's number of it, the field for its elements).
KINDS = {
    "FP32": (1, "float_val"), "FP64": (2, "double_val"), "INT32": (3, "int_val"), "UINT8": (4, "int_val"),
    "INT16": (5, "int_val"), "INT8": (6, "int_val"), "BYTES": (7, "string_val"), "INT64": (9, "int64_val"),
    "BOOL": (10, "bool_val"), "BF16": (14, "half_val"), "UINT16": (17, "int_val"), "FP16": (19, "half_val"),
    "UINT32": (22, "uint32_val"), "UINT64": (23, "uint64_val"),
}  # fmt: skip
_BY_NUMBER = {number: (datatype, field) for datatype, (number, field) in KINDS.items()}


class TfServingGrpcOptions(GrpcOptions):
    """Options of ``tfserving-grpc``."""

    signature: str | None = Field(default=None, min_length=1)
    model_version: int | None = Field(default=None, ge=0, lt=2**63)
    version_label: str | None = Field(default=None, min_length=1)
    outputs: list[str] = []
    prompt_input: str = Field(default="inputs", min_length=1)
    prompt_shape: list[int] = Field(default=[1], min_length=1)
    contents: Literal["raw", "typed"] = "raw"

    @model_validator(mode="after")
    def _together(self) -> TfServingGrpcOptions:
        if self.model_version is not None and self.version_label is not None:
            raise ValueError("model_version and version_label are given together. Keep one")
        if any(size != 1 for size in self.prompt_shape):
            raise ValueError(f"prompt_shape: {self.prompt_shape} has not one element. Use [1] or [1, 1]")
        return self


class TfServingGrpcDialect:
    """One prediction a call."""

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(TfServingGrpcOptions, target.options)
        if not target.model:
            raise HarnessFault("target.model: tfserving-grpc needs the model's name. Give it")
        self._metadata = metadata_of(target)
        method = shipped("tfserving").method(METHOD)
        self._request, self._response = method.request, method.response
        self.response = method.response
        self._head = method.request()
        spec = getattr(self._head, "model_spec")  # noqa: B009 - made from a descriptor, so no attribute that mypy knows
        spec.name, spec.signature_name = target.model, options.signature or ""
        if options.model_version is not None:
            spec.version.value = options.model_version
        if options.version_label is not None:
            spec.version_label = options.version_label
        getattr(self._head, "output_filter").extend(options.outputs)  # noqa: B009

    def encode(self, payload: Payload) -> GrpcRequest:
        message: Any = self._request()
        message.CopyFrom(self._head)
        for tensor in self._inputs(payload):
            put_tensor(message.inputs[tensor.name], tensor, self._options.contents == "raw")
        return GrpcRequest(
            f"/{METHOD}",
            (message.SerializeToString(deterministic=True),),
            metadata=self._metadata,
            deadline_ns=self._options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def _inputs(self, payload: Payload) -> list[Tensor]:
        options, given = self._options, payload.data.get("inputs")
        if isinstance(given, list | tuple) and given:
            return tensors(given, 'tfserving-grpc: data["inputs"]')
        if given is not None or payload.prompt is None:
            raise HarnessFault('tfserving-grpc: the payload has no data["inputs"] and no prompt. Use a tensor source')
        one = {
            "name": options.prompt_input,
            "shape": options.prompt_shape,
            "datatype": "BYTES",
            "data": [payload.prompt],
        }
        return tensors([one], "tfserving-grpc")

    def settle(self, exchange: Exchange) -> None:
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        if exchange.status != outcome.OK:
            return
        for data in messages_of(exchange):
            answer = read(self._response, data)
            problem = "the answer is no PredictResponse" if answer is None else self._problem(answer)
            if problem is not None:
                outcome.fail(exchange, outcome.PROTOCOL, problem)

    def _problem(self, answer: Any) -> str | None:
        if not answer.outputs:
            return "the response holds no outputs"
        for name, tensor in answer.outputs.items():
            problem = tensor_problem(tensor)
            if problem is not None:
                return f"outputs[{outcome.shown(name, 60)!r}]: {problem}"
        missing = sorted(set(self._options.outputs) - set(answer.outputs))
        return f"the response lacks the outputs {', '.join(missing)}" if missing else None

    def answer(self, exchange: Exchange) -> Answer | None:
        """The first output asked for, or the first by name."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        for data in messages_of(exchange):
            found = read(self._response, data)
            if found is not None and found.outputs:
                return tensor_answer(found.outputs[next(iter(self._options.outputs), min(found.outputs))])
        return None


def tensor_answer(proto: Any) -> Answer | None:
    """A TensorProto as an accuracy run keeps it."""
    from plimsoll.slo.verdict.accuracy import Answer

    datatype, field = _BY_NUMBER.get(proto.dtype, ("BF16", ""))
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if datatype == "BF16":
        return None
    if datatype == "BYTES":
        return Answer(proto.string_val[0].decode("utf-8", "replace")) if proto.string_val else None
    if proto.tensor_content:
        return Answer(numbers=np.frombuffer(proto.tensor_content, DTYPES[datatype]), shape=shape)
    kind = "<u2" if field == "half_val" else DTYPES[datatype]
    given = np.array(list(getattr(proto, field)) or [0], kind).view(DTYPES[datatype])
    # A single element, or the last one, fills the rest of the shape.
    filled = np.concatenate((given, np.repeat(given[-1:], max(0, prod(shape) - len(given)))))
    return Answer(numbers=filled[: prod(shape)], shape=shape)


def put_tensor(proto: Any, tensor: Tensor, raw: bool) -> None:
    """Fill a TensorProto."""
    proto.dtype, field = KINDS[tensor.datatype]
    for size in tensor.shape:
        proto.tensor_shape.dim.add(size=size)
    if tensor.datatype == "BYTES":
        proto.string_val.extend(tensor.array)
    elif raw:
        proto.tensor_content = tensor.array.tobytes()
    else:
        values = tensor.array.view("<u2") if field == "half_val" else tensor.array
        getattr(proto, field).extend(values.tolist())


def tensor_problem(proto: Any) -> str | None:
    """Why a TensorProto can't be one, or None.

    Fewer elements than its shape has are fine: the last one fills the rest.
    """
    if proto.dtype not in _BY_NUMBER:
        return f"dtype {proto.dtype} holds neither numbers nor texts"
    datatype, field = _BY_NUMBER[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        return "its shape is not known"
    n = prod(shape)
    if proto.tensor_content and datatype != "BYTES":
        wanted = n * np.dtype(DTYPES[datatype]).itemsize
        found = len(proto.tensor_content)
        return None if found == wanted else f"{found} bytes of content, not the {wanted} of its shape"
    found = len(getattr(proto, field))
    return None if found <= n else f"{found} elements, not the {n} of its shape"


PROTOCOLS = (
    ProtocolSpec(
        "tfserving",
        "TensorFlow Serving's REST predict, classify and regress",
        over_http(TfServingDialect),
        TfServingOptions,
        streaming=False,
        source="tensors",
        answers=("predictions", "outputs"),
        servers=("tensorflow", "tensorflow-serving", "tf-serving"),
    ),
    ProtocolSpec(
        "tfserving-grpc",
        "TensorFlow Serving's Predict over gRPC",
        over_grpc(TfServingGrpcDialect),
        TfServingGrpcOptions,
        streaming=False,
        grpc=True,
        source="tensors",
        servers=("tensorflow", "tensorflow-serving", "tf-serving"),
    ),
)
