"""``python -m tests.bench.fixed_models [MODEL...]``: what the models of fixed outputs do behind their batcher, on this
machine's CPU.

Each caller asks for one sample at a time and asks again when it has its answer; no network. One line for each longest
batch: alone first, then with two callers for each seat of a batch. Times of the CPU stay true on a busy host:
``forward`` is the model's thread alone, for one batch (median), ``all told`` the whole process, for one sample. Latency
and rate by the clock are true on an idle host only.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from plimsoll.reference_server.engine.batcher import Batcher
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.tensors import Tensor, bytes_tensor

MODULES = {"resnet50": "resnet", "dlrm": "dlrm", "embedder": "embedder"}
N_SAMPLES = 64
SECONDS = 4.0


def samples(name: str) -> list[Sequence[Tensor]]:
    """Requests of one sample each: pictures of 500 x 375, clicks over whole tables, texts of 8 to 40 words."""
    rng = np.random.default_rng(1)
    if name == "resnet50":
        return [[bytes_tensor("image", [_jpeg(rng)])] for _ in range(N_SAMPLES)]
    if name == "embedder":
        known = [
            "ship",
            "line",
            "load",
            "safe",
            "cargo",
            "port",
            "fog",
            "tide",
            "crew",
            "anchor",
            "hull",
            "storm",
            "harbour",
            "captain",
            "voyage",
            "weather",
        ]
        sizes = rng.integers(8, 41, N_SAMPLES)
        return [[bytes_tensor("text", [" ".join(rng.choice(known, size)).encode()])] for size in sizes]
    from plimsoll.reference_server.models.dlrm import TABLES

    return [
        [
            Tensor("dense", "FP32", rng.lognormal(0, 2, (1, 13)).astype(np.float32)),
            Tensor("categorical", "INT64", (rng.random((1, 26)) * np.array(TABLES)).astype(np.int64)),
        ]
        for _ in range(N_SAMPLES)
    ]


def _jpeg(rng: np.random.Generator) -> bytes:
    from PIL import Image

    patches = rng.integers(0, 256, (*rng.integers(4, 40, 2), 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(patches).resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


class Metered:
    """A model that notes how much of a CPU each forward pass takes; the models compute in the thread that calls."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.forward_s: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        begun = time.thread_time()
        results: Sequence[Any] = self._model.forward(samples, stages)
        self.forward_s.append(time.thread_time() - begun)
        return results


async def drive(model: Any, requests: Sequence[Sequence[Tensor]], max_batch: int, n_callers: int) -> str:
    """One line of the table."""
    metered = Metered(model)
    batcher = Batcher(metered, max_batch=max_batch, max_wait_ns=2_000_000, queue_limit=1000)
    await batcher.start()
    metered.forward_s.clear()  # the warm-up's
    took: list[float] = []
    until = time.perf_counter() + SECONDS

    async def caller(at: int) -> None:
        while time.perf_counter() < until:
            begun = time.perf_counter()
            await batcher.infer(requests[at % len(requests)], Stages())
            took.append(time.perf_counter() - begun)
            at += n_callers

    begun, begun_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller(i) for i in range(n_callers)))
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    await batcher.stop()
    p50, p99 = (statistics.quantiles(took, n=100)[i] * 1e3 for i in (49, 98))
    return (
        f"| `{model.name}` | {max_batch} | {n_callers} | {len(took) / len(metered.forward_s):.1f} | "
        f"{statistics.median(metered.forward_s) * 1e3:.1f} ms | {cpu / len(took) * 1e3:.2f} ms | "
        f"{len(took) / cpu:,.0f} | {len(took) / seconds:,.0f}/s | {p50:.1f} ms | {p99:.1f} ms |"
    )


def main(names: Sequence[str]) -> None:
    """Print the table."""
    print(
        "| model | max batch | callers | samples in a batch | forward | all told | samples per CPU second | rate | "
        "p50 | p99 |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in names or MODULES:
        module = importlib.import_module(f"plimsoll.reference_server.models.{MODULES[name]}")
        model = module.build(device="cpu", seed=0, threads=1)
        requests = samples(name)
        for max_batch, n_callers in ((1, 1), (1, 16), (8, 16), (32, 64)):
            if name != "resnet50" or max_batch <= 8:
                print(asyncio.run(drive(model, requests, max_batch, n_callers)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
