"""``python -m tests.bench.schedule``: does the load leave when the plan says, and what would waiting awake buy?

Poisson arrivals of small JSON requests against the oracle, one worker on a core of its own. The bare timer is a thread that
only sleeps to absolute times on that core: the host's own lateness, below which nobody gets.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from slo import tables
from tests.bench.pinned import two_cores
from tests.bench.truth import oracle_on, pinned

_ABSTIME = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: lag in us (taken up minus due), achieved over planned rate, shape of the sent times, CPU, what was sent when."""

    lag_us: npt.NDArray[np.float64]
    rate_ratio: float
    dispersion: float
    ks_p: float
    ks_distance: float
    engine_cpu: float
    due_ns: npt.NDArray[np.int64]
    validity: dict[str, Any]


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


@contextmanager
def bare_timer(every_us: int = 1000) -> Iterator[list[float]]:
    """Lateness in us, while the block runs, of a thread that does nothing but sleep to absolute times on the client's core.

    A stall makes every tick in it late, as it does every query.
    """
    late: list[float] = []
    over = threading.Event()

    def sleep() -> None:
        libc = ctypes.CDLL(None)
        due = time.monotonic_ns() + 1_000_000
        while not over.is_set():
            at = _Timespec(*divmod(due, 1_000_000_000))
            libc.clock_nanosleep(time.CLOCK_MONOTONIC, _ABSTIME, ctypes.byref(at), None)
            late.append((time.monotonic_ns() - due) / 1000)
            due += every_us * 1000

    with pinned(two_cores().client):
        thread = threading.Thread(target=sleep)
        thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def measure(rate: float, seconds: float, *options: str, workers: int = 1) -> Schedule:
    """One run at ``rate`` for ``seconds``, after one second of warm-up."""
    cores = two_cores()
    with tempfile.TemporaryDirectory() as folder, oracle_on(cores.server, "--truth", "0") as server:
        command = [
            sys.executable, "-m", "harness", "run", "--url", server.url, "--protocol", "http", "--kind", "server", "--rate",
            str(rate), "--duration", f"{seconds}s", "--warmup", "1s", "--workers", str(workers), "--option",
            """body_text='{"x": 1}'""", *options, "--out", f"{folder}/run", "--json",
        ]  # fmt: skip
        with pinned(cores.client):
            done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode in (0, 4), done.stderr
        return read(Path(folder) / "run")


def read(run: Path) -> Schedule:
    """What a run's records say of its schedule."""
    records = tables.load(run).measured()
    facts = json.loads((run / "generator.json").read_text())["facts"]
    due, ready, sent = records["due_ns"], records["ready_ns"], records["sent_ns"]
    assert (sent >= 0).all()
    gaps = np.diff(np.sort(sent))
    fit = stats.kstest(gaps, "expon", args=(0, gaps.mean()))
    validity = json.loads((run / "report.json").read_text())["validity"]
    return Schedule(
        (ready - due) / 1000,
        float(np.ptp(due) / np.ptp(sent)),
        validity["arrivals"]["dispersion_sent"],
        float(fit.pvalue),
        float(fit.statistic),
        max(facts["engine_cpu"] or facts["worker_cpu"]),
        np.sort(due),
        validity,
    )


def main() -> int:
    """The table of docs/performance.md: three rates, three lengths of spin, interleaved; medians of three rounds."""
    print(
        "| rate | spin | lag p50 us | p99 | max | rate off by | dispersion | KS distance | KS p | engine CPU |\n|---|"
        + "---|" * 9
    )
    for rate in (100, 1000, 5000):
        found: dict[str, list[Schedule]] = {"0": [], "auto": [], "100us": []}
        for _ in range(3):
            for spin, runs in found.items():
                runs.append(measure(rate, 6, "--option", f"spin={spin}"))
        for spin, runs in found.items():
            cells = [
                f"{rate:,}/s",
                spin,
                *(f"{statistics.median(float(np.percentile(r.lag_us, q)) for r in runs):.0f}" for q in (50, 99, 100)),
                f"{max(abs(r.rate_ratio - 1) for r in runs):.4%}",
                f"{statistics.median(r.dispersion for r in runs):.2f}",
                f"{statistics.median(r.ks_distance for r in runs):.3f}",
                f"{statistics.median(r.ks_p for r in runs):.2f}",
                f"{statistics.median(r.engine_cpu for r in runs):.0%}",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)
    with bare_timer() as bare:
        time.sleep(6)
    print(
        f"bare timer at 1,000/s: p50 {np.percentile(bare, 50):.0f} us, p99 {np.percentile(bare, 99):.0f}, max {max(bare):.0f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
