"""Drives the server at the given address with tritonclient's HTTP client; prints what came back as one JSON object.

Run by tests/e2e/test_reference_triton.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import tritonclient.http as triton
from triton_shared import NUMBERS, clicks, failure

ARRAYS = {**NUMBERS, "BYTES": np.array([["a", "", "\u00fc" * 300]], np.object_)}


def given(name: str, datatype: str, *, binary: bool) -> triton.InferInput:
    tensor = triton.InferInput(name, list(ARRAYS[datatype].shape), datatype)
    tensor.set_data_from_numpy(ARRAYS[datatype], binary_data=binary)
    return tensor


def same(datatype: str, array: Any) -> bool:
    wanted = ARRAYS[datatype]
    if datatype == "BYTES":
        return [e if isinstance(e, str) else e.decode() for e in array.ravel()] == list(wanted.ravel())
    return bool(array.dtype == wanted.dtype and array.shape == wanted.shape and (array == wanted).all())


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
    seen["clicks"] = clicks(triton, client)
    statistics = client.get_inference_statistics("scripted")["model_stats"][0]
    seen["statistics"] = statistics
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
