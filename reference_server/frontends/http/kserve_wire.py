"""The Open Inference Protocol V2 over HTTP with JSON bodies: requests to values, values to bytes. Pure.

The binary tensor extension is refused by name; tensors are checked for type, shape and number of elements.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reference_server.errors import RequestError
from reference_server.frontends.http.fields import Fields, invalid

_INTEGERS = {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
DATATYPES = frozenset({"BOOL", "FP16", "FP32", "FP64", "BYTES"} | _INTEGERS)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named tensor; ``data`` is flat, in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any]

    def as_json(self) -> dict[str, Any]:
        """The tensor as the protocol writes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape), "data": self.data}


def parse_inputs(fields: Fields) -> list[Tensor]:
    """The tensors of a request. Raises RequestError 400 naming the field."""
    tensors = []
    for index, value in enumerate(fields.items("inputs")):
        where = f"inputs[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        tensors.append(_tensor(Fields(value, f"{where}."), where))
    return tensors


def _tensor(fields: Fields, where: str) -> Tensor:
    datatype = fields.text("datatype")
    if datatype not in DATATYPES:
        raise invalid(f"{where}.datatype", f"unknown. Known: {', '.join(sorted(DATATYPES))}")
    shape = fields.items("shape")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise invalid(f"{where}.shape", "must be a list of integers from 0")
    data = fields.values.get("data")
    if not isinstance(data, list):
        raise invalid(f"{where}.data", "must be a list; binary tensor data is not supported by this server")
    flat = list(_flatten(data))
    if len(flat) != math.prod(shape):
        raise invalid(f"{where}.data", f"has {len(flat)} elements, the shape {shape} asks for {math.prod(shape)}")
    if not all(_fits(element, datatype) for element in flat):
        raise invalid(f"{where}.data", f"holds an element that is no {datatype}")
    return Tensor(fields.text("name"), datatype, tuple(shape), flat)


def _flatten(data: list[Any]) -> Iterator[Any]:
    pending = [iter(data)]
    while pending:
        for element in pending[-1]:
            if isinstance(element, list):
                pending.append(iter(element))
                break
            yield element
        else:
            pending.pop()


def _fits(element: object, datatype: str) -> bool:
    if datatype == "BOOL":
        return isinstance(element, bool)
    if datatype == "BYTES":
        return isinstance(element, str)
    if isinstance(element, bool):
        return False
    if datatype.startswith("FP"):
        return isinstance(element, int | float)
    if not isinstance(element, int):
        return False
    bits = int(datatype.removeprefix("U").removeprefix("INT"))
    low, high = (0, 2**bits) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return bool(low <= element < high)


def infer_reply(model: str, request_id: str, outputs: list[Tensor]) -> bytes:
    """The reply to an inference request."""
    body = {"model_name": model, "model_version": "1", "id": request_id}
    return json.dumps(body | {"outputs": [tensor.as_json() for tensor in outputs]}).encode()


def model_metadata(model: str) -> dict[str, Any]:
    """What a model takes and gives."""
    text = {"name": "text", "datatype": "BYTES", "shape": [-1]}
    anything = {"name": "any", "datatype": "FP32", "shape": [-1]}
    tensor = text if model == "llm" else anything
    return {
        "name": model,
        "versions": ["1"],
        "platform": "reference",
        "inputs": [tensor],
        "outputs": [tensor],
    }


def server_metadata(version: str) -> dict[str, Any]:
    """What the server is."""
    return {"name": "plimsoll-reference", "version": version, "extensions": []}


def error_body(error: RequestError) -> bytes:
    """The JSON of a refusal."""
    return json.dumps({"error": error.message}).encode()
