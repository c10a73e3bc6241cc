"""How fast the language model is on a device, and how fast it could be: steps through the runner's seam beside two
rooflines.

A roofline here is a bound from counting: bytes that a decoding step must read at the device's bandwidth, or operations
that a prompt needs at its peak. Both peaks are measured on the same device (a copy, a large product) and taken from the
data sheet. Steps go through the call that the engine makes, one after the other; it measures, it judges nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from plimsoll.reference_server.device.llama_runner import LlamaRunner, Options
from plimsoll.reference_server.models.llama import Llama, seeded
from plimsoll.reference_server.models.presets import LLAMAS, LlamaShape
from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.values.durations import Startup

TARGETS = {"decode, batch 1": 0.60, "decode, batch 64": 0.50, "prefill, 2048 tokens": 0.40}
"""Of the data sheet's roofline: bandwidth for decoding, dense bf16 for prefill."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes and floating-point operations (bf16, dense) a second."""

    bandwidth: float
    flops: float


DATA_SHEETS = {
    "H200": Peaks(4.8e12, 989.4e12),
    "H100 PCIe": Peaks(2.0e12, 756.0e12),
    "H100 NVL": Peaks(3.9e12, 835.0e12),
    "H100": Peaks(3.35e12, 989.4e12),
    "A100-SXM4-80GB": Peaks(2.039e12, 312.0e12),
    "A100": Peaks(1.555e12, 312.0e12),
    "L40S": Peaks(0.864e12, 362.0e12),
    "L4": Peaks(0.300e12, 121.0e12),
}
"""By a part of the device's name, the most telling first. Source: the manufacturer's data sheets, without sparsity."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of step: the work that it can't avoid, and how long it took."""

    name: str
    n_bytes: int
    flops: int
    seconds: float

    def share(self, peaks: Peaks) -> float:
        """Of the roofline that binds it: 1 is as fast as the device could be."""
        return max(self.n_bytes / peaks.bandwidth, self.flops / peaks.flops) / self.seconds


def data_sheet(name: str) -> Peaks | None:
    """The peaks of a device of that name, if its data sheet is known here."""
    return next((peaks for part, peaks in DATA_SHEETS.items() if part in name), None)


def measured_peaks(*, n_bytes: int = 4 << 30, side: int = 8192) -> Peaks:
    """What a copy and a large product of the CUDA device reach."""
    source = torch.zeros(n_bytes // 2, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(source)
    copy_s = _on_device(lambda: target.copy_(source))
    a = torch.randn(side, side, dtype=torch.bfloat16, device="cuda")
    b = torch.randn_like(a)
    product = torch.empty_like(a)
    product_s = _on_device(lambda: torch.mm(a, b, out=product))
    return Peaks(2 * n_bytes / copy_s, 2 * side**3 / product_s)


def _on_device(work: Callable[[], object], rounds: int = 20) -> float:
    """Median seconds of some work, by the device's own clock."""
    times = []
    for number in range(rounds + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        if number >= 5:  # the first are the clock's ramp
            times.append(float(begin.elapsed_time(end)) / 1e3)
    return statistics.median(times)


def seeded_model(preset: str, device: str) -> Llama:
    """A preset with seeded weights, in bf16 on CUDA and float32 on a CPU."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = LLAMAS[preset]
    weights = seeded(shape, seed=0, device=device, dtype=dtype)
    return Llama(shape, weights, eos=frozenset({257}), printable=True)


def warm_runner(model: Llama, options: Options, *, n_tokens: int, max_batch: int, block_size: int = 64) -> LlamaRunner:
    """A runner with room for ``n_tokens`` in its cache, warmed up."""
    runner = LlamaRunner(
        model,
        block_size=block_size,
        n_blocks=-(-n_tokens // block_size) + max_batch,
        max_batch=max_batch,
        threads=torch.get_num_threads(),
        options=options,
        startup=Startup(),
    )
    runner.warm_up()
    return runner


def decoding(runner: LlamaRunner, *, batch: int, context: int, steps: int = 60) -> Measured:
    """Steps of ``batch`` sequences that grow from half of ``steps`` below ``context`` to half above it.

    What the cache holds doesn't matter to the time: it is left as it is.
    """
    first = context - steps // 2
    if first < 1 or context + steps > runner.shape.max_context:
        raise ValueError(f"{steps} steps round a context of {context} tokens don't fit into {runner.shape.max_context}")
    pages = -(-(context + steps) // runner.block_size)
    tables = [list(range(row * pages, (row + 1) * pages)) for row in range(batch)]
    if tables[-1][-1] >= runner.n_blocks:
        raise ValueError(f"{batch} sequences of {pages} blocks don't fit into {runner.n_blocks}")
    tokens = [65] * batch
    cold, begun_s = steps // 6, time.perf_counter()
    for number, position in enumerate(range(first, first + steps)):
        if number == cold:
            begun_s = time.perf_counter()
        chunks = [
            Chunk(row, [tokens[row]], position, tables[row][: position // runner.block_size + 1], True, False)
            for row in range(batch)
        ]
        tokens = runner.step(chunks)
    # A step that runs ahead is under way before it is asked for: a step's time is that of all of them by their number,
    # with what lies between two calls.
    seconds = (time.perf_counter() - begun_s) / (steps - cold)
    itemsize = runner.itemsize
    n_bytes = runner.shape.step_bytes(batch, context, itemsize)
    flops = 2 * batch * runner.shape.matrix_parameters()
    return Measured(f"decode, batch {batch}", n_bytes, flops, seconds)


def prefill(runner: LlamaRunner, *, n_tokens: int, rounds: int = 12) -> Measured:
    """A whole prompt of ``n_tokens`` in one step, alone."""
    blocks = list(range(-(-n_tokens // runner.block_size)))
    prompt = [65 + place % 26 for place in range(n_tokens)]
    times = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        runner.step([Chunk(0, prompt, 0, blocks, True, False)])
        times.append(time.perf_counter() - begun_s)
    shape = runner.shape
    n_bytes = shape.matrix_parameters() * runner.itemsize
    seconds = statistics.median(times[rounds // 4 :])
    return Measured(f"prefill, {n_tokens} tokens", n_bytes, shape.prompt_flops(n_tokens), seconds)


def described(shape: LlamaShape, context: int) -> str:
    """The arithmetic of the rooflines, in words."""
    one, many = shape.step_bytes(1, context, 2), shape.step_bytes(64, context, 2)
    return (
        f"matrices {shape.matrix_parameters() * 2 / 1e9:.2f} GB, keys and values {shape.kv_bytes(2) / 1024:.0f} KiB a "
        f"token; a step at a context of {context}: {one / 1e9:.2f} GB alone, {many / 1e9:.2f} GB at batch 64; a "
        f"prompt of 2048 tokens: {shape.prompt_flops(2048) / 1e12:.1f} TFLOP"
    )
