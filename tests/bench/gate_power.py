"""How often does `compare` cry regression when every quantity is worse by exactly what is tolerated? And what does it
find?

``python -m tests.bench.gate_power [COMPARISONS]`` prints the tables of docs/evidence/compare-statistics.md. Six
quantities of made runs: percentiles of log-normal requests, drawn by the exact distribution of their order statistics,
a rate, and a binomial share of errors; each run has a factor of its own per quantity. Sends no load and reads no clock.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtr, ndtri

from plimsoll.slo.comparison.arms import Arm, Reading, RunSample, Within
from plimsoll.slo.comparison.compare import compare
from plimsoll.slo.comparison.quantity import STREAMED, parse_all
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics import share

_QUANTITIES = parse_all(STREAMED)
_REQUESTS = 20_000
#: Of the logarithm of one request's time.
_SIGMA = 0.5
_SHARE = 0.02
_SPREAD = 0.04
#: Of what neighbours in an interleaved comparison share.
_DRIFT = 0.08


@dataclass(frozen=True, slots=True)
class Cell:
    """One row: ``spreads`` are of base and candidate between runs; ``together``: correlation of one run's
    quantities.
    """

    runs: tuple[int, int]
    tolerance: float = 0.05
    spreads: tuple[float, float] = (_SPREAD, _SPREAD)
    together: float = 0.0
    paired: bool = False


def arm(
    name: str, rng: np.random.Generator, cell: Cell, side: int, by: float, share: float, drift: FloatArray, only: bool
) -> Arm:
    """Runs whose times are ``1 + by`` times as long, whose rate is ``1 - by`` of the usual, and whose errors are
    ``share``.

    ``only``: of these p99(ttft) alone is changed.
    """
    runs = []
    for i in range(cell.runs[side]):
        own = cell.together**0.5 * rng.normal() + (1 - cell.together) ** 0.5 * rng.normal(size=6)
        factor = np.exp(cell.spreads[side] * own + (drift[i] if cell.paired else 0.0))
        half = rng.beta(_REQUESTS * 0.5, _REQUESTS * 0.5 + 1)
        tail, top = _REQUESTS * 0.49, _REQUESTS * 0.01 + 1
        at = np.array([half, half + (1 - half) * rng.beta(tail, top), *rng.beta(_REQUESTS * 0.99, top, size=2)])
        values = 1e8 * np.exp(_SIGMA * ndtri(at)) * factor[:4]
        slower = np.array([1.0, 1 + by, 1.0, 1.0]) if only else 1 + by
        bad = rng.binomial(_REQUESTS, min(share * factor[5], 1.0)) / _REQUESTS
        rate = 3000 * (1.0 if only else 1 - by) / factor[4]
        readings = dict(zip(STREAMED, (*(values * slower).tolist(), float(rate), float(bad)), strict=True))
        runs.append(
            RunSample(str(i), {k: Reading(v, _REQUESTS) for k, v in readings.items()}, i if cell.paired else None)
        )
    return Arm(name, tuple(runs))


def outcomes(cell: Cell, effect: float, share_effect: float, reps: int, seed: int, only: bool = False) -> Counter[str]:
    """How often each outcome, with every quantity (or one) changed by ``effect``."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for _ in range(reps):
        drift = rng.normal(0, _DRIFT, max(cell.runs))
        base = arm("a", rng, cell, 0, 0.0, _SHARE, drift, only)
        candidate = arm("b", rng, cell, 1, effect, _SHARE + share_effect, drift, only)
        points = min(cell.tolerance, 0.01)
        found[
            compare(base, [candidate], _QUANTITIES, cell.tolerance, share_tolerance=points).candidates[0].outcome
        ] += 1
    return found


def at_the_tolerance(cell: Cell, reps: int, seed: int = 1) -> Counter[str]:
    """All six quantities are worse by exactly what is tolerated."""
    return outcomes(cell, cell.tolerance, min(cell.tolerance, 0.01), reps, seed)


def _percent(count: int, reps: int) -> str:
    return f"{100 * count / reps:.1f} %"


def levels(reps: int) -> None:
    """Every cell of the level's table."""
    ratios = (("alike", 1.0, 1.0), ("candidate's 3 x", 1.0, 3.0), ("base's 3 x", 3.0, 1.0))
    print("| runs | made | spread between runs | tolerance 0 | 5 % | 10 % | IMPROVEMENT, at most | INCONCLUSIVE |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for runs in ((3, 3), (5, 5), (10, 10), (20, 20), (20, 5), (5, 20)):
        for paired in (False, True) if runs[0] == runs[1] else (False,):
            for name, *by in ratios:
                spreads = (_SPREAD * by[0], _SPREAD * by[1])
                cells = [
                    at_the_tolerance(Cell(runs, tolerance, spreads, 0.0, paired), reps)
                    for tolerance in (0.0, 0.05, 0.1)
                ]
                shown = " | ".join(_percent(cell["REGRESSION"], reps) for cell in cells)
                better = _percent(max(cell["IMPROVEMENT"] for cell in cells), reps)
                open_ = _percent(cells[0]["INCONCLUSIVE"], reps)
                how = "interleaved" if paired else "apart"
                print(f"| {runs[0]}, {runs[1]} | {how} | {name} | {shown} | {better} | {open_} |", flush=True)


def power(reps: int) -> None:
    """What is found of changes of one quantity and of all, with a tolerance of 5 %."""
    changes = ((0.0, 0.0, True), (0.05, 0.0, True), (0.1, 0.0, True), (0.2, 0.0, True), (0.1, 0.02, False))
    print("\n| runs | made | spread | nothing changed | one by 5 % | 10 % | 20 % | all by 10 % |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for runs in ((5, 5), (8, 8), (10, 10), (20, 20), (20, 5)):
        for paired in (False, True) if runs[0] == runs[1] else (False,):
            for spread in (0.02, 0.05):
                cell = Cell(runs, 0.05, (spread, spread), 0.0, paired)
                cells = [outcomes(cell, *change[:2], reps, 2, change[2])["REGRESSION"] for change in changes]
                shown = " | ".join(_percent(count, reps) for count in cells)
                how = "interleaved" if paired else "apart"
                print(f"| {runs[0]}, {runs[1]} | {how} | {spread * 100:.0f} % | {shown} |", flush=True)


def alone(spread: float, correlation: float, reps: int, seed: int) -> float:
    """Share of false regressions of one run against one run under ``single_run``, p99 of 10,000 exponential values."""
    rng = np.random.default_rng(seed)
    quantity = parse_all(["p99(ttft)"])
    cried = 0
    for _ in range(reps):
        arms = []
        for name in "ab":
            noise = rng.standard_normal(10_000)
            normal = lfilter([(1 - correlation**2) ** 0.5], [1, -correlation], noise)
            values = -np.log(ndtr(-normal)) * np.exp(rng.normal(0, spread))
            ordered = np.sort(values)
            laid = share.series(values, np.arange(10_000), share.Course(np.arange(10_000), 10_000, 0.0))
            reading = Reading(
                float(ordered[9899]), 10_000, 0, Within(ordered, laid.count(values > ordered[9899]).design)
            )
            arms.append(Arm(name, (RunSample(name, {"p99(ttft)": reading}),)))
        cried += compare(arms[0], arms[1:], quantity, single_run=True).outcome == "REGRESSION"
    return cried / reps


def single_runs(reps: int) -> None:
    """False regressions of one run against one."""
    print("\n| spread | independent requests | correlated (0.95) |\n|---|---|---|")
    for spread in (0.0, 0.02, 0.05, 0.1):
        cells = [_percent(round(alone(spread, correlation, reps, 2) * reps), reps) for correlation in (0.0, 0.95)]
        print(f"| {spread * 100:.0f} % | {cells[0]} | {cells[1]} |", flush=True)


def main() -> None:
    """All tables."""
    reps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    levels(reps)
    power(reps)
    single_runs(reps)


if __name__ == "__main__":
    main()
