"""Queues by simulation: stable ones pass as steady in at least 99 % of runs, overloaded ones are found in as many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.slo.validity.validity import backlog

SEEDS = 300
Floats = npt.NDArray[np.float64]


def arrivals(shape: str, n: int, random: np.random.Generator) -> Floats:
    return np.cumsum(random.exponential(1.0, n)) if shape[0] == "M" else np.arange(1.0, n + 1)


def services(shape: str, n: int, random: np.random.Generator) -> Floats:
    """Mean 1: exponential, constant, or with a heavy tail (lognormal, squared coefficient of variation 3.2)."""
    if shape[2] == "M":
        return random.exponential(1.0, n)
    return np.ones(n) if shape[2] == "D" else random.lognormal(-0.72, 1.2, n)


def departures(come: Floats, take: Floats) -> Floats:
    """One server, first come, first served: the Lindley recursion, unrolled."""
    worked = np.cumsum(take)
    return worked + np.maximum.accumulate(come - np.concatenate([[0.0], worked[:-1]]))


def flagged(shape: str, load: float, n: int) -> float:
    found = 0
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, n])
        come = arrivals(shape, n, random)
        gone = departures(come, load * services(shape, n, random))
        seen = backlog((come * 1e6).astype(np.int64), (gone * 1e6).astype(np.int64))
        found += seen is not None and seen.growing
    return found / SEEDS


@pytest.mark.parametrize("n", [300, 1000, 5000])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("shape", ["M/M/1", "M/D/1", "D/M/1", "M/G/1"])
def test_a_stable_queue_is_steady_however_busy_and_however_short_the_run(shape: str, load: float, n: int) -> None:
    assert flagged(shape, load, n) <= 0.01


@pytest.mark.parametrize(
    ("shape", "load", "n"),
    [
        ("M/M/1", 1.1, 12_000),  # a minute at 200/s
        ("M/D/1", 1.1, 6_000),
        ("D/M/1", 1.1, 6_000),
        ("M/G/1", 1.25, 6_000),
        ("M/M/1", 1.25, 3_000),
        ("M/M/1", 2.0, 500),
    ],
)
def test_an_overloaded_queue_is_found_in_a_run_of_realistic_length(shape: str, load: float, n: int) -> None:
    assert flagged(shape, load, n) >= 0.99
