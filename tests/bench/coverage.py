"""How often a verdict is wrong where the truth is known: simulated queues, the verdict's own code.

    python -m tests.bench.coverage [--runs 600] [--process M/M/1 ...] [--load 0.9 ...] [--n 1000 ...] [--table FILE]

For each process, load and number of requests: the share of runs that PASS and that FAIL when the true share of bad requests
is 0.5, 0.8, 1, 1.25 and 2 times the allowed one, and when the true percentile is a tenth of the limit, for p50, p90, p99 and
p99.9. The limits are the true percentiles, from four million requests simulated apart (``TRUE``).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from slo.statistics import share
from slo.statistics.distance import Distance
from tests.bench import queues

ALLOWED = ("0.5", "0.1", "0.01", "0.001")
MULTIPLES = (0.5, 0.8, 1.0, 1.25, 2.0)
LENGTHS = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
LOADS = (0.5, 0.7, 0.9, 0.95)
#: (runs, requests) of the simulation that says where the true percentiles are.
TRUE = (4_000, 8_000)
#: Limits are this many times the true percentile in the column "far".
FAR = 10.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Shares of runs, in per cent, of one process, load, length and allowed share: (PASS, FAIL) by multiple, PASS far."""

    process: str
    load: float
    n: int
    allowed: str
    outcomes: dict[float, tuple[float, float]]
    far: float
    runs: int

    def faults(self) -> list[str]:
        """Where the cell breaks what docs/statistics.md promises, two standard errors granted."""
        found = []
        passed, failed = self.outcomes[1.0]
        for what, share_ in (("PASS", passed), ("FAIL", failed)):
            if share_ > 5 + 200 * math.sqrt(0.05 * 0.95 / self.runs):
                found.append(f"{what} {share_:.1f} % at the limit")
        if 2.0 in self.outcomes and self.outcomes[2.0][0] > 0.5 + 200 * math.sqrt(0.005 * 0.995 / self.runs):
            found.append(f"PASS {self.outcomes[2.0][0]:.1f} % with twice the allowed share bad")
        least = 299 if self.allowed != "0.001" else 2995
        if self.n >= max(1000, least) and self.far < 90:
            found.append(f"PASS {self.far:.1f} % at a tenth of the limit")
        return found


def truth(process: str, load: float, seed: int = 7) -> np.ndarray:
    """Sorted stationary times, enough of them to read the true percentiles off."""
    runs, n = TRUE
    times = queues.PROCESSES[process](np.random.default_rng([seed, 1]), runs, n, load)
    return np.sort(times.ravel())


def limit_at(ordered: np.ndarray, bad: float) -> float:
    """The limit that a share ``bad`` of the true times is above."""
    return float(ordered[min(int((1 - bad) * len(ordered)), len(ordered) - 1)])


def cells(process: str, load: float, lengths: Sequence[int], runs: int, seed: int = 1) -> Iterable[Cell]:
    """All cells of one process and load. A shorter run is the beginning of a longer one, up to 10,000."""
    ordered = truth(process, load)
    for n in lengths:
        times = queues.PROCESSES[process](np.random.default_rng([seed, n]), runs, n, load)
        flying = queues.in_flight(process, load, times)
        entries = np.arange(n)
        counts = {(q, m): [0, 0] for q in ALLOWED for m in (*MULTIPLES, FAR)}
        for run in range(runs):
            values = np.ascontiguousarray(times[:, run])
            laid = share.series(values, entries, share.Course(entries, n, float(flying[run])))
            up = np.sort(values)
            for (q, m), tally in counts.items():
                bad = float(q) if m == FAR else float(q) * m
                if bad >= 1:
                    continue
                limit = limit_at(ordered, bad) * (FAR if m == FAR else 1.0)
                seen, far = laid.count(values > limit), Distance(up / limit, laid.memory)
                failed = share.p_many(seen, q, far) <= 0.05
                tally[1] += failed
                tally[0] += not failed and share.p_few(seen, q, far) <= 0.05
        for q in ALLOWED:
            outcomes = {m: tuple(100 * c / runs for c in counts[q, m]) for m in MULTIPLES if float(q) * m < 1}
            yield Cell(process, load, n, q, outcomes, 100 * counts[q, FAR][0] / runs, runs)  # type: ignore[arg-type]


def row(cell: Cell) -> str:
    """One line of the table."""
    at = [f"{cell.outcomes[m][0]:.1f} / {cell.outcomes[m][1]:.1f}" if m in cell.outcomes else "" for m in MULTIPLES]
    p = f"p{(1 - float(cell.allowed)) * 100:g}"
    return f"| {cell.process} {cell.load:g} | {cell.n:,} | {p} | {' | '.join(at)} | {cell.far:.0f} | {'; '.join(cell.faults())} |"


HEAD = "| process | n | p | 0.5 x | 0.8 x | 1 x | 1.25 x | 2 x | far | beyond what is promised |\n|---|---|---|---|---|---|---|---|---|---|"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, a line as soon as it is known."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.coverage")
    options.add_argument("--runs", type=int, default=600)
    options.add_argument("--process", nargs="*", default=["M/M/1", "M/D/1", "M/M/4", "batch", "LLM", "AR(1)"])
    options.add_argument("--load", nargs="*", type=float, default=list(LOADS))
    options.add_argument("--n", nargs="*", type=int, default=list(LENGTHS))
    options.add_argument("--faults", action="store_true", help="print only the cells that break a promise")
    asked = options.parse_args(argv)
    print(HEAD)
    broken, began = 0, time.monotonic()
    for process in asked.process:
        for load in asked.load if process != "i.i.d." else [0.0]:
            for cell in cells(process, load, asked.n, asked.runs):
                broken += bool(cell.faults())
                if not asked.faults or cell.faults():
                    print(row(cell), flush=True)
    print(f"\n{broken} cells break a promise; {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
