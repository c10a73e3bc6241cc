"""``python -m tests.bench.gpu_roofline``: the language model's steps on this machine's CUDA device beside their
rooflines.

One command, some minutes: it draws the weights of a preset on the device, measures the device's own peaks, then
decoding at batch 1 and 64 and a prompt of 2048 tokens, and prints a table and what was to be reached. Without a CUDA
device it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll.reference_server.models.presets import LLAMAS

if TYPE_CHECKING:
    from tests.bench import gpu_measures

NO_DEVICE, MISSED = 2, 1


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 when every target is kept, 1 when one is missed, 2 without a device."""
    given = _parser().parse_args(arguments)
    try:
        import torch
    except ModuleNotFoundError:
        print("no CUDA device: torch is not installed. Install plimsoll-slo[server]", file=sys.stderr)
        return NO_DEVICE
    if not torch.cuda.is_available():
        print("no CUDA device: torch finds none here, so there is nothing to measure", file=sys.stderr)
        return NO_DEVICE
    return _measure(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_roofline", description=__doc__)
    add = parser.add_argument
    add("--preset", default="8b", choices=sorted(LLAMAS))
    add("--context", type=int, default=2048, help="tokens of each sequence while decoding (default %(default)s)")
    add("--copies", action="store_true", help="decode over copies of the pages, not in place")
    add("--no-graphs", action="store_true", help="launch every kernel of a decoding step")
    add("--no-compile", action="store_true", help="leave element-wise parts as plain torch")
    add("--no-ahead", action="store_true", help="plan a step only when the one before has been read")
    add("--json", metavar="FILE", type=Path, default=None, help="also write the figures as JSON")
    return parser


def _measure(given: argparse.Namespace) -> int:
    import torch

    from plimsoll.reference_server.device.llama_runner import Options
    from tests.bench import gpu_measures as gpu

    begun_s = time.perf_counter()
    name = torch.cuda.get_device_name()
    measured, sheet = gpu.measured_peaks(), gpu.data_sheet(name)
    torch.cuda.empty_cache()
    model = gpu.seeded_model(given.preset, "cuda")
    options = Options(
        paged=not given.copies,
        graphs=not given.no_graphs,
        compiled=not given.no_compile,
        ahead=not given.no_ahead,
        sizes=(1, 64),
    )
    print(f"{name}, torch {torch.__version__}, {given.preset} in bf16, {options}")
    print(gpu.described(model.shape, given.context))
    print(f"weights drawn and peaks measured in {time.perf_counter() - begun_s:.0f} s", flush=True)
    runner = gpu.warm_runner(model, options, n_tokens=64 * (given.context + 128), max_batch=64)
    print(f"warm after {time.perf_counter() - begun_s:.0f} s; executed as {runner.options}", flush=True)
    rows = [gpu.decoding(runner, batch=batch, context=given.context) for batch in (1, 64)]
    del runner
    torch.cuda.empty_cache()
    alone = gpu.warm_runner(model, replace(options, ahead=False, sizes=(1,)), n_tokens=4096, max_batch=1)
    rows.append(gpu.prefill(alone, n_tokens=2048))
    print(table(rows, measured, sheet))
    if given.json is not None:
        figures = {
            "device": name,
            "options": asdict(options),
            "measured": asdict(measured),
            "rows": [asdict(r) for r in rows],
        }
        given.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    judged = sheet or measured
    kept = all(row.share(judged) >= gpu.TARGETS[row.name] for row in rows)
    print(f"took {time.perf_counter() - begun_s:.0f} s; {'every target kept' if kept else 'a target was missed'}")
    return 0 if kept else MISSED


def table(rows: list[gpu_measures.Measured], measured: gpu_measures.Peaks, sheet: gpu_measures.Peaks | None) -> str:
    """The figures as a Markdown table, after the peaks that they are held against."""
    from tests.bench.gpu_measures import TARGETS

    lines = [
        f"measured peaks: {measured.bandwidth / 1e12:.2f} TB/s by a copy, {measured.flops / 1e12:.0f} TFLOP/s by a "
        "product",
        "data sheet: unknown device"
        if sheet is None
        else f"data sheet: {sheet.bandwidth / 1e12:.2f} TB/s, {sheet.flops / 1e12:.0f} TFLOP/s in dense bf16",
        "",
        "| step | must read | must compute | time | GB/s | TFLOP/s | of measured peak | of data sheet | target | "
        "kept |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        of_sheet = None if sheet is None else row.share(sheet)
        judged = row.share(measured) if of_sheet is None else of_sheet
        target = TARGETS[row.name]
        lines.append(
            f"| {row.name} | {row.n_bytes / 1e9:.2f} GB | {row.flops / 1e12:.2f} TFLOP | {row.seconds * 1e3:.2f} ms | "
            f"{row.n_bytes / row.seconds / 1e9:.0f} | {row.flops / row.seconds / 1e12:.0f} | "
            f"{row.share(measured):.0%} | {'-' if of_sheet is None else f'{of_sheet:.0%}'} | {target:.0%} | "
            f"{'yes' if judged >= target else '**no**'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
