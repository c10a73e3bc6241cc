"""Drives the server at the given address with tritonclient's HTTP client; prints what came back as one JSON object.

Run by tests/e2e/test_reference_triton.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

ARRAYS = {
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
    "BYTES": np.array([["a", "", "\u00fc" * 300]], np.object_),
}


def given(name: str, datatype: str, *, binary: bool) -> triton.InferInput:
    tensor = triton.InferInput(name, list(ARRAYS[datatype].shape), datatype)
    tensor.set_data_from_numpy(ARRAYS[datatype], binary_data=binary)
    return tensor


def same(datatype: str, array: Any) -> bool:
    wanted = ARRAYS[datatype]
    if datatype == "BYTES":
        return [e if isinstance(e, str) else e.decode() for e in array.ravel()] == list(wanted.ravel())
    return bool(array.dtype == wanted.dtype and array.shape == wanted.shape and (array == wanted).all())


def failure(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    return {}


def echoes(client: triton.InferenceServerClient) -> dict[str, bool]:
    """Every datatype in every mixture of JSON and bytes; FP16 has no JSON in this client."""
    seen = {}
    for datatype in ARRAYS:
        for sends in (True, False):
            for receives in (True, False):
                if datatype == "FP16" and not (sends and receives):
                    continue
                asked = [triton.InferRequestedOutput("x", binary_data=receives)]
                result = client.infer("scripted", [given("x", datatype, binary=sends)], outputs=asked, request_id="7")
                right = same(datatype, result.as_numpy("x")) and result.get_response()["id"] == "7"
                seen[f"{datatype} {sends} {receives}"] = right
    return seen


def clicks(client: triton.InferenceServerClient) -> dict[str, Any]:
    """Three samples for the recommendation model, and what the server says that it did with them."""
    dense = triton.InferInput("dense", [3, 13], "FP32")
    dense.set_data_from_numpy(np.linspace(0, 1, 39, dtype=np.float32).reshape(3, 13))
    categorical = triton.InferInput("categorical", [3, 26], "INT64")
    categorical.set_data_from_numpy((np.arange(78) % 2).reshape(3, 26))
    result = client.infer("dlrm", [dense, categorical])
    return {
        "probability": result.as_numpy("probability").ravel().tolist(),
        "wrong datatype": failure(lambda: client.infer("dlrm", [given_as(categorical, "dense"), categorical])),
        "statistics": client.get_inference_statistics("dlrm")["model_stats"][0],
    }


def given_as(tensor: triton.InferInput, name: str) -> triton.InferInput:
    """The same tensor under another's name."""
    made = triton.InferInput(name, tensor.shape(), tensor.datatype())
    made.set_data_from_numpy((np.arange(78) % 2).reshape(3, 26))
    return made


def main(address: str) -> dict[str, Any]:
    client = triton.InferenceServerClient(address, concurrency=4)
    fp32 = given("x", "FP32", binary=True)
    seen: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready("scripted"),
        "server": client.get_server_metadata(),
        "model": client.get_model_metadata("scripted"),
        "config": client.get_model_config("scripted"),
        "index": client.get_model_repository_index(),
        "echoes": echoes(client),
    }
    two = client.infer("scripted", [given("a", "INT8", binary=True), given("b", "BYTES", binary=True)])
    seen["all outputs are binary by default"] = [same("INT8", two.as_numpy("a")), same("BYTES", two.as_numpy("b"))]
    for algorithm in ("gzip", "deflate"):
        result = client.infer("scripted", [fp32], request_compression_algorithm=algorithm)
        seen[algorithm] = same("FP32", result.as_numpy("x"))
    begun = time.monotonic()
    results = [client.async_infer("scripted", [fp32]) for _ in range(4)]
    seen["async"] = [same("FP32", result.get_result().as_numpy("x")) for result in results]
    seen["async_s"] = time.monotonic() - begun
    seen["unknown model"] = failure(lambda: client.infer("none", [fp32]))
    seen["unknown output"] = failure(
        lambda: client.infer("scripted", [fp32], outputs=[triton.InferRequestedOutput("y")])
    )
    lying = triton.InferInput("x", [1, 4], "FP32")
    lying._raw_data = b"\0" * 12  # what no honest caller can make it send
    lying._parameters["binary_data_size"] = 12
    seen["wrong size"] = failure(lambda: client.infer("scripted", [lying]))
    seen["too late"] = failure(lambda: client.infer("scripted", [fp32], timeout=2000))
    seen["clicks"] = clicks(client)
    statistics = client.get_inference_statistics("scripted")["model_stats"][0]
    seen["statistics"] = statistics
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
