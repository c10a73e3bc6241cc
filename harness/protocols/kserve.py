"""The Open Inference Protocol (KServe V2) over HTTP with JSON bodies, as Triton, MLServer, OpenVINO and
others speak it.

A request carries tensors (``data["inputs"]`` of the payload, in the protocol's own shape) or a prompt as
one BYTES tensor. The metric is latency; the response's shape is checked, because a 200 can hold an error.
With ``binary: true`` tensors travel as raw little-endian bytes behind the JSON (the binary tensor data extension), which is
what images and embeddings want: as JSON a 224 x 224 image of floats is some 3 MB of digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any
from urllib.parse import quote

import orjson
from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._kserve.tensors import DTYPES, MAX_DIMENSIONS, Tensor
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.wire.tokens import fault_of
from plimsoll.scenarios.samples.payload import Payload

DATATYPES = frozenset((*DTYPES, "BYTES"))


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

    __slots__ = ("_head", "_options", "accept")

    def __init__(self, target: Target) -> None:
        self._options = accept(KserveOptions, target.options)
        self.accept = b"application/json"
        version = f"/versions/{quote(self._options.model_version, safe='')}" if self._options.model_version else ""
        route = f"/v2/models/{quote(target.model, safe='')}{version}/infer"
        path = join_path(target.url, route, self._options.path)
        if not target.model and "/models//" in path:
            raise HarnessFault("target.model: kserve-v2 needs the model's name. Give it, or the whole path")
        defaults = {
            "accept": "application/octet-stream, application/json" if self._options.binary else "application/json",
            "accept-encoding": "identity",
            "content-type": "application/octet-stream" if self._options.binary else "application/json",
            "user-agent": "plimsoll",
        }
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
    """Why the bytes behind the JSON are not the tensors that it announces, or None. ``raw_bytes`` -1: there are none."""
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
    if not isinstance(tensor, Mapping):
        return "not a mapping of name, shape, datatype and data"
    name, shape, datatype = tensor.get("name"), tensor.get("shape"), tensor.get("datatype")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        return f"tensor {outcome.shown(name, 60)!r} has no known datatype (one of {', '.join(sorted(DATATYPES))})"
    if not isinstance(shape, list | tuple) or not all(type(n) is int and n >= 0 for n in shape):
        return f"tensor {outcome.shown(name, 60)!r} has no shape (a list of whole numbers, all known)"
    if len(shape) > MAX_DIMENSIONS:
        return f"tensor {outcome.shown(name, 60)!r} has {len(shape)} dimensions, more than {MAX_DIMENSIONS}"
    data = tensor.get("data")
    if isinstance(data, list) and not any(isinstance(item, list) for item in data[:1]) and len(data) != prod(shape):
        return f"tensor {outcome.shown(name, 60)!r} has {len(data)} elements, not the {prod(shape)} of its shape"
    return None


PROTOCOLS = (
    ProtocolSpec(
        "kserve-v2",
        "KServe Open Inference Protocol V2 over HTTP, JSON or binary tensors",
        over_http(KserveDialect),
        KserveOptions,
        streaming=False,
        bundled=True,
    ),
)
