"""Simulated servers whose stationary latencies are known: many runs at once, one column each.

    times = queues.PROCESSES["M/M/1"](rng, runs, n, load)        float64[n, runs], sojourn times in order of arrival

Every process starts in equilibrium (after a burn-in as long as its memory) and has Poisson arrivals; times are in units
of the mean service time unless said. ``in_flight(name, load, times)`` is what Little's law gives each run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
Process = Callable[[np.random.Generator, int, int, float], Times]
#: A batch of B takes 5 + 0.6 B ms; a step of the LLM-like server with B streams too.
BASE_MS, EACH_MS = 5.0, 0.6
SLOTS, TOKENS = 8, 16.0


def _burn_in(load: float) -> int:
    return int(min(40_000, 30 / (1 - load) ** 2))


def _one_server(service: Callable[[np.random.Generator, int], Times]) -> Process:
    def run(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
        times, waiting = np.empty((n, runs)), np.zeros(runs)
        for i in range(-_burn_in(load), n):
            took = service(rng, runs)
            if i >= 0:
                times[i] = waiting + took
            waiting = np.maximum(0, waiting + took - rng.exponential(1 / load, runs))
        return times

    return run


def _servers(count: int) -> Process:
    """M/M/count: each server takes ``count`` on average, so that all together work at rate 1."""

    def run(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
        times, free, every = np.empty((n, runs)), np.zeros((runs, count)), np.arange(runs)
        for i in range(-_burn_in(load), n):
            first = free.argmin(1)
            done = np.maximum(0, free[every, first]) + rng.exponential(count, runs)
            if i >= 0:
                times[i] = done
            free[every, first] = done
            free -= rng.exponential(1 / load, runs)[:, None]
        return times

    return run


def batch(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
    """A server that takes all that wait at once: 5 + 0.6 B ms for B.

    ``load`` of its limit of 1/0.6 a ms; times in ms.
    """
    whole = n + int(3000 / (1 - load))
    arrived, of = np.empty((n, runs)), np.empty((n, runs), np.int64)
    ends = np.zeros((whole + 1, runs))
    starts, size, now, number = np.full(runs, -1.0), np.zeros(runs), np.zeros(runs), np.zeros(runs, np.int64)
    every = np.arange(runs)
    for i in range(whole):
        now = now + rng.exponential(EACH_MS / load, runs)
        new = now > starts
        finished = starts + BASE_MS + EACH_MS * size
        ends[number[new], every[new]] = finished[new]
        starts = np.where(new, np.maximum(np.where(size > 0, finished, 0), now), starts)
        size, number = np.where(new, 1, size + 1), number + new
        if (kept := i - whole + n) >= 0:
            arrived[kept], of[kept] = now, number
    ends[number, every] = starts + BASE_MS + EACH_MS * size
    times: Times = np.take_along_axis(ends, of, 0) - arrived
    return times


def continuous(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
    """Continuous batching: 8 slots, steps of 5 + 0.6 B ms for B streams, 16 tokens on average; time to first token in
    ms.
    """
    rate = load * SLOTS / (TOKENS * (BASE_MS + EACH_MS * SLOTS))
    whole = n + int(2000 + 20 / (1 - load) ** 2)
    arrived = np.cumsum(rng.exponential(1 / rate, (runs, whole + SLOTS + 1)), axis=1)
    arrived[:, whole:] = np.inf
    first, every, slots = np.zeros((runs, whole + SLOTS + 1)), np.arange(runs), np.arange(SLOTS)
    head, active, now = np.zeros(runs, np.int64), np.zeros(runs, np.int64), np.zeros(runs)
    while (head < whole).any():
        at = np.minimum(head[:, None] + slots, whole + SLOTS)
        waiting = arrived[every[:, None], at]
        idle = (active == 0) & (waiting[:, 0] > now) & (head < whole)
        now = np.where(idle, waiting[:, 0], now)
        admitted = np.minimum((waiting <= now[:, None]).sum(1), SLOTS - active)
        active = active + admitted
        end = now + BASE_MS + EACH_MS * active
        row, column = np.nonzero(slots[None, :] < admitted[:, None])
        first[row, at[row, column]] = end[row]
        head = head + admitted
        now = np.where(active > 0, end, now)
        active = active - rng.binomial(active, 1 / TOKENS)
    times: Times = (first[:, :whole] - arrived[:, :whole])[:, whole - n :].T
    return times


def autoregressive(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
    """Lognormal times whose logarithms are an AR(1) series with correlation ``load`` from one to the next."""
    times, now = np.empty((n, runs)), rng.standard_normal(runs)
    for i in range(n):
        times[i] = now
        now = load * now + np.sqrt(1 - load * load) * rng.standard_normal(runs)
    return np.exp(times)


def independent(rng: np.random.Generator, runs: int, n: int, load: float) -> Times:
    """Exponential times that have nothing to do with each other."""
    return rng.exponential(1.0, (n, runs))


PROCESSES: Mapping[str, Process] = {
    "i.i.d.": independent,
    "M/M/1": _one_server(lambda rng, runs: rng.exponential(1.0, runs)),
    "M/D/1": _one_server(lambda rng, runs: np.ones(runs)),
    "M/M/4": _servers(4),
    "batch": batch,
    "LLM": continuous,
    "AR(1)": autoregressive,
    "M/M/8": _servers(8),
    "M/LN/1": _one_server(lambda rng, runs: np.exp(rng.normal(-np.log(4.2) / 2, np.sqrt(np.log(4.2)), runs))),
}


def in_flight(name: str, load: float, times: Times) -> Times:
    """float64[runs]: how many requests are in the system on average, by Little's law; 0 where there is no system."""
    if name in ("AR(1)", "i.i.d."):
        return np.zeros(times.shape[1])
    if name == "batch":
        return load / EACH_MS * times.mean(0)
    if name == "LLM":
        rate = load * SLOTS / (TOKENS * (BASE_MS + EACH_MS * SLOTS))
        return rate * times.mean(0) + load * SLOTS * (TOKENS - 1) / TOKENS
    return load * times.mean(0)
