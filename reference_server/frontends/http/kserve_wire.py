"""The Open Inference Protocol V2 over HTTP with JSON bodies: requests to values, values to bytes. Pure.

Tensors are checked for name, datatype, shape, number and kind of elements; what follows the JSON of a binary request is
``kserve_binary``'s business. JSON has no NaN and no bytes beyond UTF-8: such outputs are refused, with the way round it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.frontends.http.kserve_binary import Tail
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.shared.open_inference import InferRequest, wishes
from plimsoll.reference_server.frontends.shared.raw_tensors import MAX_DIMENSIONS, MAX_SIZE, objects, shaped, to_bytes
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import NUMPY, Tensor


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request, and how its reply is to be written: by default and by output, as bytes (true) or as JSON."""

    request: InferRequest
    binary: bool
    by_output: Mapping[str, bool]


def parse_request(fields: Fields, model: str, tail: Tail | None = None) -> Parsed:
    """An inference request whose JSON was read. Raises RequestError 400 naming the field and the tensor."""
    script = fields.script()
    parameters = fields.mapping("parameters")
    by_output: dict[str, bool] = {}
    outputs = []
    for index, value in enumerate(fields.items("outputs") if fields.values.get("outputs") else []):
        where = f"outputs[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        output = Fields(value, f"{where}.")
        name, wanted = output.text("name"), output.mapping("parameters")
        outputs.append(name)
        if wanted.has("classification"):
            raise invalid(f"{where}.parameters.classification", "is not supported by this server. Leave it out")
        if wanted.has("binary_data"):
            by_output[name] = wanted.flag("binary_data")
    tensors = parse_inputs(fields, tail)
    if tail is not None:
        tail.end()
    request = InferRequest(model, fields.text("id", ""), tensors, outputs, wishes(parameters, script))
    return Parsed(request, parameters.flag("binary_data_output"), by_output)


def parse_inputs(fields: Fields, tail: Tail | None = None) -> list[Tensor]:
    """The tensors of a request. Raises RequestError 400 naming the field."""
    tensors = []
    for index, value in enumerate(fields.items("inputs")):
        where = f"inputs[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        tensors.append(_tensor(Fields(value, f"{where}."), where, tail))
    return tensors


def _tensor(fields: Fields, where: str, tail: Tail | None) -> Tensor:
    name = fields.text("name")
    datatype = fields.text("datatype")
    dtype = NUMPY.get(datatype)
    if dtype is None:
        raise invalid(f"{where}.datatype", f"{datatype!r} of tensor {name!r} is unknown. Known: {', '.join(NUMPY)}")
    sizes = fields.values.get("shape")
    if not isinstance(sizes, list) or len(sizes) > MAX_DIMENSIONS:
        raise invalid(f"{where}.shape", f"of tensor {name!r} must be a list of at most {MAX_DIMENSIONS} sizes")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in sizes):
        raise invalid(f"{where}.shape", f"of tensor {name!r} must be integers from 0 to {MAX_SIZE}")
    shape = tuple(sizes)
    parameters = fields.mapping("parameters")
    if parameters.has("binary_data_size"):
        size = parameters.integer("binary_data_size", 0, low=0)
        if fields.has("data"):
            raise invalid(f"{where}.data", f"tensor {name!r} has data and binary_data_size. Send one of them")
        if tail is None:
            raise invalid(
                f"{where}.parameters.binary_data_size",
                f"tensor {name!r} is announced as bytes, but the request lacks the header Inference-Header-Content-Length",
            )
        return tail.tensor(name, datatype, shape, size)
    data = fields.values.get("data")
    if not isinstance(data, list):
        raise invalid(f"{where}.data", f"of tensor {name!r} must be a list, or give parameters.binary_data_size")
    flat = list(_flatten(data))
    if len(flat) != math.prod(shape):
        raise invalid(
            f"{where}.data", f"tensor {name!r} has {len(flat)} elements, the shape {sizes} asks for {math.prod(shape)}"
        )
    return shaped(name, datatype, shape, _array(flat, datatype, dtype, where, name))


def _array(flat: list[Any], datatype: str, dtype: np.dtype[Any], where: str, name: str) -> npt.NDArray[Any]:
    unfit = invalid(f"{where}.data", f"tensor {name!r} holds an element that is no {datatype}")
    if not all(_fits(element, datatype) for element in flat):
        raise unfit
    try:
        if datatype == "BYTES":
            return objects([element.encode("utf-8") for element in flat])
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer beyond every float
        raise unfit from None
    if datatype.startswith("FP") and not np.isfinite(array).all():
        raise invalid(f"{where}.data", f"tensor {name!r} holds a number beyond {datatype}. Send it as binary data")
    return array


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


def reply(parsed: Parsed, outputs: Sequence[Tensor]) -> tuple[bytes, int | None]:
    """The reply's body, and the length of its JSON where tensors follow as bytes, else None."""
    rows: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for tensor in outputs:
        row: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.data.shape)}
        if parsed.by_output.get(tensor.name, parsed.binary):
            tail.append(to_bytes(tensor))
            row["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            row["data"] = _json_data(tensor)
        rows.append(row)
    head = infer_reply(parsed.request.model, parsed.request.request_id, rows)
    return (head + b"".join(tail), len(head)) if tail else (head, None)


def infer_reply(model: str, request_id: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The JSON of a reply."""
    body = {"model_name": model, "model_version": "1", "id": request_id}
    return json.dumps(body | {"outputs": rows}).encode()


def _json_data(tensor: Tensor) -> list[Any]:
    flat = tensor.data.ravel()
    if tensor.datatype == "BYTES":
        try:
            return [element.decode("utf-8") for element in flat]
        except UnicodeDecodeError:
            raise _unsayable(tensor, "bytes that are no UTF-8") from None
    if tensor.datatype.startswith("FP") and not np.isfinite(flat).all():
        raise _unsayable(tensor, "NaN or infinity")
    return list(flat.tolist())


def _unsayable(tensor: Tensor, what: str) -> RequestError:
    return RequestError(
        400,
        f"output {tensor.name!r} holds {what}, which JSON can't say. Ask for it with parameters.binary_data",
        param="outputs",
        code="invalid_tensor",
    )


def server_metadata(version: str, extensions: Sequence[str]) -> dict[str, Any]:
    """What the server is."""
    return {"name": "plimsoll-reference", "version": version, "extensions": list(extensions)}


def error_body(error: RequestError) -> bytes:
    """The JSON of a refusal."""
    return json.dumps({"error": error.message}).encode()
