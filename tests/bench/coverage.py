"""How often a verdict is wrong where the truth is known: simulated queues, the verdict's own code.

    python -m tests.bench.coverage [--runs 600] [--process M/M/1 ...] [--load 0.9 ...] [--n 1000 ...]
    python -m tests.bench.coverage --power      requests for a PASS in nine runs of ten, half of the allowed share being bad
    python -m tests.bench.coverage --breaks     a slow mode that a short run need not meet

For each process, load and number of requests: the share of runs that PASS and that FAIL when the true share of bad
requests is 0.5, 0.8, 1, 1.25 and 2 times the allowed one, and when the true percentile is a tenth of the limit, for
p50, p90, p99 and p99.9. The limits are the true percentiles, from 24 million requests simulated apart (``TRUE``).
"""  # noqa: E501

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distance import Distance
from tests.bench import queues

ALLOWED = ("0.5", "0.1", "0.01", "0.001")
MULTIPLES = (0.5, 0.8, 1.0, 1.25, 2.0)
LENGTHS = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
LOADS = (0.5, 0.7, 0.9, 0.95)
#: (runs, requests) of the simulation that says where the true percentiles are.
TRUE = (3_000, 8_000)
#: Limits are this many times the true percentile in the column "far".
FAR = 10.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Shares of runs, in per cent, of one process, load, length and allowed share: (PASS, FAIL) by multiple, PASS
    far.
    """

    process: str
    load: float
    n: int
    allowed: str
    outcomes: dict[float, tuple[float, float]]
    far: float
    runs: int

    def faults(self) -> list[str]:
        """Where the cell breaks what docs/evidence/statistics.md promises, two standard errors granted."""
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


def passes(values: np.ndarray, limit: float, allowed: str, flying: float = 0.0) -> bool:
    """Whether the verdict on one run's values is PASS."""
    entries = np.arange(len(values))
    laid = share.series(values, entries, share.Course(entries, len(values), flying))
    return (
        share.weigh(laid.count(values > limit), allowed, "0.95", Distance(np.sort(values) / limit, laid.memory)).outcome
        == "PASS"
    )


def power(process: str, load: float, allowed: str, runs: int) -> tuple[int, float]:
    """(n, share of PASS): the first of a ladder of lengths, each 1.08 times the last, from which on nine in ten
    pass.
    """
    ordered = truth(process, load)
    limit = limit_at(ordered, float(allowed) / 2)
    n = sure.passing(Fraction(allowed), Fraction(allowed) / 2, "0.95", "0.9")
    assert n is not None
    while True:
        times = queues.PROCESSES[process](np.random.default_rng([3, n]), runs, n, load)
        flying = queues.in_flight(process, load, times)
        found = float(
            np.mean([passes(np.ascontiguousarray(times[:, i]), limit, allowed, float(flying[i])) for i in range(runs)])
        )
        if found >= 0.9:
            return n, found
        n = math.ceil(n * 1.08)


def outages(length: int, n: int, runs: int, allowed: str = "0.01") -> float:
    """Share of PASS where the allowed share is bad in truth, in outages of ``length`` requests that are 100 times as
    slow.
    """
    rng = np.random.default_rng([5, length, n])
    passed = 0
    for _ in range(runs):
        values, at = rng.lognormal(0.0, 0.3, n), -int(rng.integers(0, length + 1))
        gap = length * (1 / float(allowed) - 1)
        at = int(rng.exponential(gap)) if rng.random() > float(allowed) else at
        while at < n:
            values[max(at, 0) : max(at + length, 0)] *= 100
            at += length + 1 + int(rng.exponential(gap))
        passed += passes(values, 20.0, allowed)
    return passed / runs


def row(cell: Cell) -> str:
    """One line of the table."""
    at = [f"{cell.outcomes[m][0]:.1f} / {cell.outcomes[m][1]:.1f}" if m in cell.outcomes else "" for m in MULTIPLES]
    p = f"p{(1 - float(cell.allowed)) * 100:g}"
    return f"| {cell.process} {cell.load:g} | {cell.n:,} | {p} | {' | '.join(at)} | {cell.far:.0f} | {'; '.join(cell.faults())} |"  # noqa: E501


HEAD = "| process | n | p | 0.5 x | 0.8 x | 1 x | 1.25 x | 2 x | far | beyond what is promised |\n|---|---|---|---|---|---|---|---|---|---|"  # noqa: E501


def worst(found: Sequence[Cell]) -> list[str]:
    """A line for each process and percentile: the most wrong PASS and FAIL over its loads and lengths, and the least
    PASS far away.
    """
    lines = [
        "| process | p | PASS at the limit | FAIL at the limit | PASS at 2 x | PASS far, from 1,000 on |",
        "|---|---|---|---|---|---|",
    ]
    for process in dict.fromkeys(cell.process for cell in found):
        for allowed in ALLOWED:
            those = [cell for cell in found if (cell.process, cell.allowed) == (process, allowed)]
            passed, failed = (max(cell.outcomes[1.0][side] for cell in those) for side in (0, 1))
            twice = [cell.outcomes[2.0][0] for cell in those if 2.0 in cell.outcomes]
            far = [cell.far for cell in those if cell.n >= (1_000 if allowed != "0.001" else 2_995)]
            lines.append(
                f"| {process} | p{(1 - float(allowed)) * 100:g} | {passed:.1f} % | {failed:.1f} % | "
                f"{f'{max(twice):.1f} %' if twice else ''} | {f'{min(far):.0f} %' if far else ''} |"
            )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, a line as soon as it is known."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.coverage")
    options.add_argument("--runs", type=int, default=600)
    options.add_argument("--process", nargs="*", default=["M/M/1", "M/D/1", "M/M/4", "batch", "LLM", "AR(1)"])
    options.add_argument("--load", nargs="*", type=float, default=list(LOADS))
    options.add_argument("--n", nargs="*", type=int, default=list(LENGTHS))
    options.add_argument("--faults", action="store_true", help="print only the cells that break a promise")
    options.add_argument("--power", action="store_true")
    options.add_argument("--breaks", action="store_true")
    asked = options.parse_args(argv)
    if asked.power:
        print("| process | p | exact test of independent requests | a verdict |\n|---|---|---|---|")
        for process, load in (("i.i.d.", 0.0), ("AR(1)", 0.5), ("AR(1)", 0.9), ("M/M/1", 0.5), ("M/M/1", 0.7)):
            for allowed in ("0.1", "0.01") if process == "i.i.d." else ("0.1",):
                exactly = sure.passing(Fraction(allowed), Fraction(allowed) / 2, "0.95", "0.9")
                n, _ = power(process, load, allowed, asked.runs)
                print(f"| {process} {load or ''} | p{100 - 100 * float(allowed):g} | {exactly:,} | {n:,} |", flush=True)
        return 0
    if asked.breaks:
        print("| outages of | 1,000 requests | 3,000 | 10,000 | 100,000 |\n|---|---|---|---|---|")
        for length in (1, 10, 100, 1_000):
            found = [f"{100 * outages(length, n, asked.runs):.0f} %" for n in (1_000, 3_000, 10_000, 100_000)]
            print(f"| {length:,} | {' | '.join(found)} |", flush=True)
        return 0
    print(HEAD)
    broken, began, found_cells = 0, time.monotonic(), []
    for process in asked.process:
        for load in asked.load if process != "i.i.d." else [0.0]:
            for cell in cells(process, load, asked.n, asked.runs):
                broken += bool(cell.faults())
                found_cells.append(cell)
                if not asked.faults or cell.faults():
                    print(row(cell), flush=True)
    print("", *worst(found_cells), sep="\n")
    print(f"\n{broken} cells break a promise; {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
