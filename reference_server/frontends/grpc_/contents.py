"""Messages of the inference service to values and back: raw and typed contents, parameters, every datatype. Pure.

A reply mirrors its request: tensors that came typed go typed, so that people and generic clients can read them, and raw otherwise.
FP16 has no typed contents in this protocol, and goes raw.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plimsoll.reference_server.frontends.grpc_ import inference_pb2 as pb
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.shared.open_inference import InferRequest, wishes
from plimsoll.reference_server.frontends.shared.raw_tensors import (
    checked_shape,
    checked_type,
    from_bytes,
    objects,
    shaped,
    to_bytes,
    wrong,
)
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import Tensor

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Which field of the typed contents holds the elements of a datatype."""


def parse_request(message: pb.ModelInferRequest) -> InferRequest:
    """The request in a message. Raises RequestError 400 naming the tensor or the parameter."""
    given = parameters(message.parameters)
    for output in message.outputs:
        if "classification" in output.parameters:
            raise invalid(f"output {output.name!r}: classification", "is not supported by this server. Leave it out")
    return InferRequest(
        model=message.model_name,
        request_id=message.id,
        tensors=_raw(message) if message.raw_input_contents else [_typed(tensor) for tensor in message.inputs],
        outputs=[output.name for output in message.outputs],
        wishes=wishes(Fields(given, "parameters."), Fields({"plimsoll": _script(given.get("plimsoll"))}).script()),
    )


def parameters(given: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    """Parameters as values. Raises RequestError 400 for one that holds none."""
    values: dict[str, Any] = {}
    for name, parameter in given.items():
        chosen = parameter.WhichOneof("parameter_choice")
        if chosen is None:
            raise invalid(f"parameters.{name}", "holds no value")
        values[name] = getattr(parameter, chosen)
    return values


def _script(text: object) -> object:
    if text is None:
        return None
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        raise invalid("parameters.plimsoll", "must be a JSON object as a string") from None


def _raw(message: pb.ModelInferRequest) -> list[Tensor]:
    raw, inputs = message.raw_input_contents, message.inputs
    if len(raw) != len(inputs):
        raise RequestError(
            400,
            f"raw_input_contents: has {len(raw)} entries for {len(inputs)} inputs. Give one for each",
            param="raw_input_contents",
            code="invalid_tensor",
        )
    tensors = []
    for tensor, data in zip(inputs, raw, strict=True):
        if tensor.HasField("contents"):
            raise wrong(tensor.name, "has typed contents beside raw_input_contents. Send all tensors the same way")
        tensors.append(from_bytes(tensor.name, tensor.datatype, checked_shape(tensor.name, tensor.shape), data))
    return tensors


def _typed(tensor: pb.ModelInferRequest.InferInputTensor) -> Tensor:
    name, datatype = tensor.name, tensor.datatype
    dtype = checked_type(name, datatype)
    shape = checked_shape(name, tensor.shape)
    wanted = CONTENTS.get(datatype)
    if wanted is None:
        raise wrong(name, f"{datatype} has no typed contents. Send it in raw_input_contents")
    for field, _ in tensor.contents.ListFields():
        if field.name != wanted:
            raise wrong(name, f"{datatype} belongs in contents.{wanted}, not {field.name}")
    elements = getattr(tensor.contents, wanted)
    if len(elements) != math.prod(shape):
        raise wrong(name, f"has {len(elements)} elements, the shape {list(shape)} asks for {math.prod(shape)}")
    if datatype == "BYTES":
        return shaped(name, datatype, shape, objects(list(elements)))
    array = np.array(list(elements), np.int64 if wanted in ("int_contents", "uint_contents") else dtype)
    if dtype.kind in "iu" and len(array):
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise wrong(name, f"holds an element that is no {datatype}")
    return shaped(name, datatype, shape, array.astype(dtype))


def response(
    request: InferRequest, outputs: Sequence[Tensor], *, typed: bool, **said: bool | str
) -> pb.ModelInferResponse:
    """The reply to a request; ``said`` are its parameters."""
    message = pb.ModelInferResponse(model_name=request.model, model_version="1", id=request.request_id)
    for name, value in said.items():
        if isinstance(value, bool):
            message.parameters[name].bool_param = value
        else:
            message.parameters[name].string_param = value
    typed = typed and all(tensor.datatype in CONTENTS for tensor in outputs)
    for tensor in outputs:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.data.shape)
        if typed:
            getattr(output.contents, CONTENTS[tensor.datatype]).extend(tensor.data.ravel().tolist())
        else:
            message.raw_output_contents.append(to_bytes(tensor))
    return message
