"""``python -m tests.bench.schedule``: does the load leave when the plan says, and what would waiting awake buy?

Poisson arrivals of small JSON requests against the oracle, one worker on a core of its own. The bare timer is a thread
that only sleeps to absolute times on that core: the host's own lateness, below which nobody gets.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from plimsoll.slo.records import tables
from tests.bench.pinned import two_cores
from tests.bench.truth import oracle_on, pinned

_ABSTIME = 1
_LIBC = ctypes.CDLL(None)


@dataclass(slots=True)
class Ticks:
    """A bare timer's ticks on the client's core: when each was due (ns, CLOCK_MONOTONIC) and how late it came (us)."""

    due_ns: list[int] = field(default_factory=list)
    late_us: list[float] = field(default_factory=list)

    def p(self, percent: float) -> float:
        """A percentile of the lateness, in us."""
        return float(np.percentile(self.late_us, percent))

    def worst_us(self, begin_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Per span, the lateness of the worst tick that was still due or awaited in it; 0 where there was none."""
        due = np.array(self.due_ns)
        late = np.array(self.late_us)
        came = np.maximum.accumulate(due + late * 1000)
        first = np.searchsorted(came, np.asarray(begin_ns), side="left")
        last = np.searchsorted(due, np.asarray(end_ns), side="right")
        return np.array([late[a:b].max(initial=0.0) for a, b in zip(first, last, strict=True)])


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: lag in us (taken up minus due), achieved over planned rate, shape of the sent times, CPU, what was sent
    when.
    """

    lag_us: npt.NDArray[np.float64]
    rate_ratio: float
    dispersion: float
    ks_p: float
    ks_distance: float
    engine_cpu: float
    due_ns: npt.NDArray[np.int64]
    t0_ns: int
    validity: dict[str, Any]

    def excess_us(self, host: Ticks) -> npt.NDArray[np.float64]:
        """By how much each query was later than the worst tick of the host's timer while it waited; the host's share
        taken off.
        """
        return self.lag_us - host.worst_us(self.t0_ns + self.due_ns, self.t0_ns + self.due_ns + self.lag_us * 1000)


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def _sleep_until(due_ns: int) -> float:
    """Sleep to an absolute time; how late that was, in us."""
    at = _Timespec(*divmod(due_ns, 1_000_000_000))
    _LIBC.clock_nanosleep(time.CLOCK_MONOTONIC, _ABSTIME, ctypes.byref(at), None)
    return (time.monotonic_ns() - due_ns) / 1000


@contextmanager
def bare_timer(every_us: int = 1000) -> Iterator[Ticks]:
    """The ticks, while the block runs, of a thread that does nothing but sleep to absolute times on the client's core.

    A stall makes every tick in it late, as it does every query.
    """
    ticks = Ticks()
    over = threading.Event()

    def sleep() -> None:
        due = time.monotonic_ns() + 1_000_000
        while not over.is_set():
            ticks.late_us.append(_sleep_until(due))
            ticks.due_ns.append(due)
            due += every_us * 1000

    with pinned(two_cores().client):
        thread = threading.Thread(target=sleep)
        thread.start()
    try:
        yield ticks
    finally:
        over.set()
        thread.join()


def bare_sends(due_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """When a loop that only sleeps to these times (relative, ns) on the client's core gets to each: the best this host
    allows a sender that sleeps.
    """
    start = time.monotonic_ns() + 10_000_000 - int(due_ns[0])
    with pinned(two_cores().client):
        return np.array([due + int(_sleep_until(start + due) * 1000) for due in due_ns.tolist()], dtype=np.int64)


def ks_distance(at_ns: npt.NDArray[np.int64]) -> float:
    """Kolmogorov-Smirnov distance between the gaps of these times and the exponential of their mean."""
    gaps = np.diff(np.sort(at_ns))
    return float(stats.kstest(gaps, "expon", args=(0, gaps.mean())).statistic)


def measure(rate: float, seconds: float, *options: str, workers: int = 1) -> Schedule:
    """One run at ``rate`` for ``seconds``, after one second of warm-up."""
    cores = two_cores()
    with tempfile.TemporaryDirectory() as folder, oracle_on(cores.server, "--truth", "0") as server:
        command = [
            sys.executable, "-m", "plimsoll", "run", "--url", server.url, "--protocol", "http", "--kind", "server",
            "--rate",
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
        due,
        json.loads((run / "manifest.json").read_text())["t0_monotonic_ns"],
        validity,
    )


def main() -> int:
    """The table of docs/evidence/performance.md: three rates, three lengths of spin, interleaved; medians of three
    rounds.
    """
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
    print(f"bare timer at 1,000/s: p50 {bare.p(50):.0f} us, p99 {bare.p(99):.0f}, max {bare.p(100):.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
