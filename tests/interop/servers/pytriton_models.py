"""Triton by pytriton: ``echo`` (tensors), ``words`` (decoupled: an answer for each word), ``slow`` (a queue of four).

``pytriton_models.py HTTP GRPC METRICS``, in the environment of nvidia-pytriton, whose package carries Triton's binary.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig


def echo(requests: list[Any]) -> list[dict[str, np.ndarray[Any, Any]]]:
    for request in requests:
        if request["x"].shape[-1] == 13:
            raise ValueError("thirteen is refused")
    return [{"y": request["x"]} for request in requests]


def words(requests: list[Any]) -> Iterator[list[dict[str, np.ndarray[Any, Any]]]]:
    (request,) = requests
    for place, word in enumerate(request["text_input"].ravel()[0].decode().split()):
        if place == 5:  # the first ones are on their way
            with Path("underway").open("a") as told:
                told.write("one\n")
        if word == "slowly":
            time.sleep(0.2)
        yield [{"text_output": np.array([word.encode()], dtype=np.bytes_)}]


def slow(requests: list[Any]) -> list[dict[str, np.ndarray[Any, Any]]]:
    time.sleep(0.1)
    return [{"y": request["x"]} for request in requests]


def main(http: int, grpc: int, metrics: int) -> None:
    where = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1", "metrics_address": "127.0.0.1"}
    config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics, allow_gpu_metrics=False, **where)
    numbers = {"inputs": [Tensor(name="x", dtype=np.float32, shape=(-1,))]}
    numbers["outputs"] = [Tensor(name="y", dtype=np.float32, shape=(-1,))]
    text = {"inputs": [Tensor(name="text_input", dtype=np.bytes_, shape=(1,))]}
    text["outputs"] = [Tensor(name="text_output", dtype=np.bytes_, shape=(1,))]
    queue = DynamicBatcher(default_queue_policy=QueuePolicy(max_queue_size=4))
    # Its statistics are kept behind a token otherwise.
    with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as server:
        server.bind("echo", echo, **numbers, config=ModelConfig(batching=False))
        server.bind("words", words, **text, config=ModelConfig(batching=False, decoupled=True))
        server.bind("slow", slow, **numbers, config=ModelConfig(max_batch_size=1, batcher=queue))
        server.serve()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
