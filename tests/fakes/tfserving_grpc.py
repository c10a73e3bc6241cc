"""TensorFlow Serving's PredictionService/Predict for one model: a tensor ``x`` of floats comes back doubled as ``y``.

String inputs come back as they are. It refuses what the server refuses: another model, an unknown input, elements that
don't fit their shape.

Its client package needs all of TensorFlow: messages are of TensorFlow Serving's own descriptors.
"""

from __future__ import annotations

import asyncio
from math import prod
from typing import Any

import grpc
import numpy as np

from tests.fakes.grpc_stage import Messages, Refusal, Services, Stage, invalid, main

KINDS = Messages("tfserving")
_P = "tensorflow.serving."
_MODEL = "double"


def _values(tensor: Any) -> Any:
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype == 7:
        found: Any = np.array(list(tensor.string_val), dtype=object)
    elif tensor.dtype == 1:
        raw = tensor.tensor_content
        found = np.frombuffer(raw, "<f4") if raw else np.array(list(tensor.float_val), "<f4")
    else:
        raise invalid(f"input must be DT_FLOAT or DT_STRING, got {tensor.dtype}")
    if len(found) != prod(shape):
        raise invalid("Tensor proto contains inconsistent number of elements")
    return found.reshape(shape)


async def predict(stage: Stage) -> None:
    """``/tensorflow.serving.PredictionService/Predict``."""
    request = KINDS[_P + "PredictRequest"].FromString(await stage.read() or b"")
    stage.log.config = str(request.model_spec)
    spec = request.model_spec
    if spec.name != _MODEL:
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
    if spec.signature_name not in ("", "serving_default"):
        raise invalid(f'Serving signature name: "{spec.signature_name}" not found in signature def')
    if len(request.inputs) != 1:
        raise invalid("input size does not match signature: 1 expected")
    ((name, tensor),) = request.inputs.items()
    values = _values(tensor)
    answer = KINDS[_P + "PredictResponse"]()
    answer.model_spec.name, answer.model_spec.signature_name = _MODEL, "serving_default"
    answer.model_spec.version.value = 1
    out = answer.outputs["y"]
    out.dtype = tensor.dtype
    out.tensor_shape.CopyFrom(tensor.tensor_shape)
    if tensor.dtype == 7:
        out.string_val.extend(values.ravel().tolist())
    else:
        out.float_val.extend((2 * values).ravel().tolist())
    await asyncio.sleep(stage.knobs.answer_ms / 1000)
    await stage.say(answer, name)


SERVICES: Services = {_P + "PredictionService": {"Predict": predict}}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
