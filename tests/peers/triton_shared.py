"""Tensors and questions that both of tritonclient's clients put to a server."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

NUMBERS = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 1, 255]], np.uint8),
    "UINT16": np.array([[0, 1, 65535]], np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 0, 127]], np.int8),
    "INT16": np.array([[-32768, 0, 32767]], np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]], np.int64),
    "FP16": np.array([[1.5, -0.25, 65504]], np.float16),
    "FP32": np.array([[1.5, -0.1, 3e38]], np.float32),
    "FP64": np.array([[1.5, -0.1, 1e308]], np.float64),
}


def failure(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    return {}


def clicks(triton: ModuleType, client: Any, **form: bool) -> dict[str, Any]:
    """Three samples for the recommendation model, and what the server says that it did with them."""

    def features(name: str) -> Any:
        tensor = triton.InferInput(name, [3, 26], "INT64")
        tensor.set_data_from_numpy((np.arange(78) % 2).reshape(3, 26))
        return tensor

    dense, categorical = triton.InferInput("dense", [3, 13], "FP32"), features("categorical")
    dense.set_data_from_numpy(np.linspace(0, 1, 39, dtype=np.float32).reshape(3, 13))
    return {
        "probability": client.infer("dlrm", [dense, categorical]).as_numpy("probability").ravel().tolist(),
        "wrong datatype": failure(lambda: client.infer("dlrm", [features("dense"), categorical])),
        "statistics": client.get_inference_statistics("dlrm", **form)["model_stats"][0],
    }
