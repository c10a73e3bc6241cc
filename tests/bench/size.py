"""``python -m tests.bench.size [--rows N ...] [--chunks N] [--keep FOLDER]``: CPU time and memory of runs of any size.

Segments of an open loop are made as workers would, then sealed, reported, gated and compared with themselves, each in a
process of its own. Printed: CPU seconds and peak memory of each step, per million requests (and token events), and what
each further million costs, which says whether memory is flat. Start-up is in every figure: it is most of the smallest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.sealing import made, sealing

SLOS = ("--slo", "p99(ttft) <= 200ms", "--slo", "p99(latency) <= 20s")
TOKENS = ("--slo", "p99(itl) <= 40ms")
WORKERS = 4


@dataclass(frozen=True)
class Cost:
    """Of one process: CPU seconds, peak resident memory in MB, seconds it took."""

    cpu: float
    peak: float
    wall: float


def cost(command: Sequence[str], folder: Path, good: Sequence[int]) -> Cost:
    """Run a command to its end. Raises RuntimeError with what it said if it ends otherwise than expected."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder, env=_environment())
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode not in good:
        raise RuntimeError(f"{' '.join(command)}: {child.returncode}: {said.decode(errors='replace')[-2000:]}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.monotonic() - begun)


def _environment() -> dict[str, str]:
    here = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}


def steps(folder: Path, rows: int, chunks: int) -> dict[str, Cost]:
    """What each step costs."""
    run, slos = str(folder / "run"), [*SLOS, *(TOKENS if chunks else ())]
    plimsoll = [sys.executable, "-m", "plimsoll"]
    made(folder, rows, chunks, WORKERS)
    found = {"seal": cost(sealing(folder, rows, WORKERS), folder, (0,))}
    found["report"] = cost([*plimsoll, "report", run, *slos], folder, (0,))
    found["gate"] = cost([*plimsoll, "gate", run, *slos], folder, (0, 1, 3, 4))
    shutil.copytree(run, folder / "other")
    for name in ("manifest.json", "generator.json"):  # another run: the same one is refused
        file = folder / "other" / name
        file.write_text(file.read_text().replace('"big"', '"other"'))
    found["compare"] = cost([*plimsoll, "compare", run, str(folder / "other")], folder, (0, 1, 3, 4))
    shutil.rmtree(folder / "other")
    return found


def table(found: dict[int, dict[str, Cost]], chunks: int) -> list[str]:
    """A line for each step and number of rows."""
    lines = [f"{'step':8} {'requests':>12} {'CPU s':>8} {'s/million':>10} {'peak MB':>8} {'MB/million more':>16}"]
    before: dict[str, tuple[int, Cost]] = {}
    for rows, costs in sorted(found.items()):
        for step, one in costs.items():
            slope = ""
            if step in before:
                fewer, earlier = before[step]
                slope = f"{(one.peak - earlier.peak) / (rows - fewer) * 1e6:16.1f}"
            lines.append(f"{step:8} {rows:12,} {one.cpu:8.2f} {one.cpu / rows * 1e6:10.2f} {one.peak:8.0f} {slope}")
            before[step] = rows, one
        both = costs["seal"].cpu + costs["report"].cpu
        events = f", {both / (rows * chunks) * 1e6:.3f} s a million token events" if chunks else ""
        lines.append(f"seal + report of {rows:,}: {both / rows * 1e6:.2f} CPU-s a million requests{events}")
    return lines


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--chunks", type=int, default=0, help="token events a request")
    parser.add_argument("--keep", type=Path, help="an empty folder on a large disk, in which the runs stay")
    options = parser.parse_args()
    found = {}
    for rows in options.rows:
        if options.keep is not None:
            folder = options.keep / str(rows)
            folder.mkdir(parents=True)
            found[rows] = steps(folder, rows, options.chunks)
            continue
        with tempfile.TemporaryDirectory() as path:
            found[rows] = steps(Path(path), rows, options.chunks)
    print("\n".join(table(found, options.chunks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
