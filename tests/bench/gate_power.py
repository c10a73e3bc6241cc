"""False alarms and power of the comparison, by simulation: the tables of docs/compare.md. ``python -m tests.bench.gate_power``.

Six quantities, of which one changes; a run's value is log-normal around the arm's with the run-to-run spread given. Sends no
load and reads no clock.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtr

from slo.comparison.arms import Arm, Reading, RunSample, Within
from slo.comparison.compare import compare
from slo.comparison.quantity import STREAMED, parse_all
from slo.comparison.resample import design_effect

_KEYS = STREAMED[:5]
_QUANTITIES = parse_all(STREAMED)


def arm(name: str, rng: np.random.Generator, shared: np.ndarray, own: float, effect: float, paired: bool) -> Arm:  # type: ignore[type-arg]
    """Runs whose quantities share ``shared`` and have ``own`` spread of their own; the second one is 1 + effect."""
    runs = []
    for i, common in enumerate(shared):
        values = 100.0 * np.exp(common + rng.normal(0, own, len(_KEYS)))
        values[1] *= 1 + effect
        readings = {key: Reading(float(v), 10_000) for key, v in zip(_KEYS, values, strict=True)}
        readings["ratio(error)"] = Reading(0.0, 10_000)
        runs.append(RunSample(str(i), readings, i if paired else None))
    return Arm(name, tuple(runs))


def rates(runs: int, cv: float, effect: float, common: float, reps: int, seed: int) -> tuple[float, float]:
    """Share of comparisons that end in a REGRESSION of the changed quantity, and of any."""
    rng = np.random.default_rng(seed)
    changed = anything = 0
    for _ in range(reps):
        shared = rng.normal(0, cv * common**0.5, (2, runs))
        if common:
            shared[1] = shared[0]  # what neighbouring runs have in common
        own = cv * (1 - common) ** 0.5
        base, candidate = (
            arm(name, rng, part, own, by, common > 0)
            for name, part, by in (("a", shared[0], 0.0), ("b", shared[1], effect))
        )
        result = compare(base, [candidate], _QUANTITIES).candidates[0]
        changed += result.effects[1].outcome == "REGRESSION"
        anything += result.outcome == "REGRESSION"
    return changed / reps, anything / reps


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
            reading = Reading(float(ordered[9899]), 10_000, 0, Within(ordered, design_effect(values > ordered[9899])))
            arms.append(Arm(name, (RunSample(name, {"p99(ttft)": reading}),)))
        cried += compare(arms[0], arms[1:], quantity, single_run=True).outcome == "REGRESSION"
    return cried / reps


def main() -> None:
    reps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| runs | spread | in common | A/A | +5 % | +10 % | +20 % |")
    print("|---|---|---|---|---|---|---|")
    for runs in (5, 8):
        for cv in (0.02, 0.05):
            for common in (0.0, 0.8):
                cells = [
                    rates(runs, cv, effect, common, reps, 1)[1 if effect == 0 else 0]
                    for effect in (0.0, 0.05, 0.1, 0.2)
                ]
                shown = " | ".join(f"{cell * 100:.1f} %" for cell in cells)
                print(f"| {runs} | {cv * 100:.0f} % | {common * 100:.0f} % | {shown} |", flush=True)

    print("\n| spread | independent requests | correlated (0.95) |\n|---|---|---|")
    for spread in (0.0, 0.02, 0.05, 0.1):
        cells = [f"{alone(spread, correlation, reps, 2) * 100:.1f} %" for correlation in (0.0, 0.95)]
        print(f"| {spread * 100:.0f} % | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
