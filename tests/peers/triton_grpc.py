"""Drives the server at the given address with tritonclient's gRPC clients; prints what came back as one JSON object.

Run by tests/e2e/test_reference_triton.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from triton_shared import NUMBERS, clicks, failure

ARRAYS = {**NUMBERS, "BYTES": np.array([[b"a", b"", b"\xff\x00" * 300]], np.object_)}


def given(datatype: str, name: str = "x") -> triton.InferInput:
    tensor = triton.InferInput(name, list(ARRAYS[datatype].shape), datatype)
    tensor.set_data_from_numpy(ARRAYS[datatype])
    return tensor


def prompt(text: str) -> triton.InferInput:
    tensor = triton.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode()], np.object_))
    return tensor


def same(datatype: str, array: Any) -> bool:
    wanted = ARRAYS[datatype]
    return bool(array.dtype == wanted.dtype and array.shape == wanted.shape and (array == wanted).all())


def questions(client: triton.InferenceServerClient) -> dict[str, Any]:
    config = client.get_model_config("scripted", as_json=True)["config"]
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready("scripted"),
        "server": client.get_server_metadata(as_json=True),
        "model": client.get_model_metadata("scripted", as_json=True),
        "decoupled": config["model_transaction_policy"]["decoupled"],
        "index": client.get_model_repository_index(as_json=True),
    }


def unary(client: triton.InferenceServerClient) -> dict[str, Any]:
    results: queue.Queue[Any] = queue.Queue()
    for _ in range(4):
        client.async_infer("scripted", [given("FP32")], lambda result, error: results.put((result, error)))
    outcomes = [results.get(timeout=10) for _ in range(4)]
    slow = {"plimsoll": '{"ttft_ms": 5000}'}
    pending = client.async_infer(
        "scripted",
        [given("FP32")],
        lambda result, error: results.put((result, error)),
        parameters=slow,
        request_id="gone",
    )
    time.sleep(0.1)
    pending.cancel()
    _, cancelled = results.get(timeout=10)
    return {
        "echoes": {
            datatype: same(datatype, client.infer("scripted", [given(datatype)]).as_numpy("x")) for datatype in ARRAYS
        },
        "async": [error is None and same("FP32", result.as_numpy("x")) for result, error in outcomes],
        "cancelled": cancelled.status(),
        "unknown model": failure(lambda: client.infer("none", [given("FP32")])),
        "unknown output": failure(
            lambda: client.infer("scripted", [given("FP32")], outputs=[triton.InferRequestedOutput("y")])
        ),
        "server's deadline": failure(lambda: client.infer("scripted", [given("FP32")], timeout=2000)),
        "client's deadline": failure(
            lambda: client.infer("scripted", [given("FP32")], client_timeout=0.05, parameters=slow)
        ),
        "shed": failure(lambda: client.infer("scripted", [given("FP32")], parameters={"plimsoll": '{"status": 503}'})),
    }


def stream(client: triton.InferenceServerClient, model: str) -> dict[str, Any]:
    """Two prompts and an unknown model on one stream; the text by id, and how each ended."""
    results: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: results.put((time.monotonic(), result, error)))
    for name in ("a", "b"):
        client.async_stream_infer(
            model,
            [prompt("hi")],
            request_id=name,
            enable_empty_final_response=True,
            parameters={"max_tokens": 8, "ignore_eos": True},
        )
    client.async_stream_infer("none", [prompt("hi")], request_id="c")
    texts: dict[str, str] = {"a": "", "b": ""}
    n_pieces, finals, errors = {"a": 0, "b": 0}, {}, []
    while len(finals) < 2 or not errors:
        _, result, error = results.get(timeout=20)
        if error is not None:
            errors.append(error.message())
            continue
        response = result.get_response()
        if response.parameters["triton_final_response"].bool_param:
            finals[response.id] = {key: value.string_param for key, value in response.parameters.items()}
        else:
            texts[response.id] += result.as_numpy("text_output")[0].decode()
            n_pieces[response.id] += 1
    client.stop_stream()
    return {"texts": texts, "n_pieces": n_pieces, "finals": finals, "errors": errors}


def cancelled_stream(client: triton.InferenceServerClient) -> bool:
    """A long answer is left after its first piece."""
    results: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    client.async_stream_infer("scripted", [prompt("x")], request_id="left", parameters={"max_tokens": 5000})
    _, error = results.get(timeout=10)
    client.stop_stream(cancel_requests=True)
    return error is None


async def many(address: str, n: int) -> list[str]:
    """The asyncio client: n requests down one stream, the text of each."""
    texts = [""] * n
    async with triton_aio.InferenceServerClient(address) as client:

        async def requests() -> AsyncIterator[dict[str, Any]]:
            for index in range(n):
                yield {
                    "model_name": "scripted",
                    "inputs": [prompt("hi")],
                    "request_id": str(index),
                    "enable_empty_final_response": True,
                    "parameters": {"max_tokens": 4},
                }

        left = n
        async for result, error in client.stream_infer(requests()):
            if error is not None:
                raise error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                left -= 1
                if left == 0:
                    break
            else:
                texts[int(response.id)] += result.as_numpy("text_output")[0].decode()
    return texts


def main(address: str) -> dict[str, Any]:
    client = triton.InferenceServerClient(address)
    seen = {
        "questions": questions(client),
        "unary": unary(client),
        "stream": stream(client, "scripted"),
        "llm": stream(client, "llm"),
        "clicks": clicks(triton, client, as_json=True),
        "left": cancelled_stream(client),
        "many": asyncio.run(many(address, 20)),
    }
    seen["statistics"] = client.get_inference_statistics("scripted", as_json=True)["model_stats"][0]
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
