"""How often ``plimsoll canary`` decides wrongly where the truth is known, how often rightly, and how soon.

    python -m tests.bench.canary [--runs 200] [--n 1000 10000] [--process M/M/1:0.9 ...] [--arms own own-5% shared]

Two arms of simulated queues (``tests.bench.queues``) with ``n`` requests each on average, and every look of one step,
by the product's own code. Arms have a server each (``own``, with 5 % of the requests ``own-5%``), or share one
(``shared``). The canary takes so many times as long as the base: the tolerance itself (*at the edge*: whatever is
decided is wrong, 5 % at most each), as long (A/A), 1.2 and 1.5 times, or 1 % more than the tolerance of its requests
are bad. *5 % of users*: five times as long for one user in twenty. Abort / promote in per cent of the runs, and after
what part of the step on average.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.comparison.canary import LOOKS, SPENDING, Pair, Side, remembered
from plimsoll.slo.statistics.memory import Memory, of_ranks, ranks
from tests.bench import queues

ALPHA = 0.05
#: (name, quantile, tolerance): percentiles by ratio; shares by points, of requests beyond the true p95, and of
#: failures by themselves (0.5 %).
QUANTITIES = (
    ("p50 10 %", 0.5, 0.1),
    ("p95 10 %", 0.95, 0.1),
    ("p99 25 %", 0.99, 0.25),
    ("good 1 point", None, 0.01),
    ("error 1 point", None, 0.01),
)
ERRORS = 0.005
PROCESSES = ("i.i.d.:0", "M/M/1:0.5", "M/M/1:0.9", "LLM:0.7", "batch:0.7", "M/M/4:0.7")
TRUTHS = ("edge", "A/A", "1.2 x", "1.5 x", "5 % of users")


@dataclass(frozen=True, slots=True)
class Arms:
    """One run: logarithms of the times of both arms, when they came, and how many were in flight."""

    base: np.ndarray
    canary: np.ndarray
    base_due: np.ndarray
    canary_due: np.ndarray
    in_flight: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of all runs of one quantity under one truth, in per cent; ``part`` of the step until then."""

    aborted: float
    promoted: float
    part: float

    def __str__(self) -> str:
        return f"{self.aborted:.0f} / {self.promoted:.0f}, {self.part:.2f}"


def simulated(process: str, load: float, arms: str, n: int, runs: int, seed: int = 1) -> Iterator[Arms]:
    """Runs of one cell; in each 2 n requests come."""
    rng = np.random.default_rng([seed, n])
    share = 0.05 if arms.endswith("5%") else 0.5
    send = queues.PROCESSES[process]
    if arms == "shared":
        both = send(rng, runs, 2 * n, load)
        lot, flying, due = rng.random(2 * n) < share, queues.in_flight(process, load, both), np.arange(2 * n)
        for run in range(runs):
            values = np.log(both[:, run])
            yield Arms(values[~lot], values[lot], due[~lot], due[lot], (flying[run] / 2, flying[run] / 2))
        return
    counts = (int(2 * n * (1 - share)), int(2 * n * share))
    one, other = (send(rng, runs, count, load) for count in counts)
    flying_one, flying_other = (queues.in_flight(process, load, times) for times in (one, other))
    dues = np.arange(counts[0]) * counts[1], np.arange(counts[1]) * counts[0]
    for run in range(runs):
        values = (np.ascontiguousarray(np.log(times[:, run])) for times in (one, other))
        yield Arms(*values, *dues, (float(flying_one[run]), float(flying_other[run])))


def sides(run: Arms, look: int, canary: np.ndarray, tolerance: float | None) -> tuple[Side, Side]:
    """Both arms at a look, from 0; ``tolerance`` None: for a share, whose values have the memory."""
    found = []
    for values, due, flying in zip(
        (run.base, canary), (run.base_due, run.canary_due), run.in_flight, strict=True
    ):  # fmt: skip
        part = slice(0, len(values) * (look + 1) // LOOKS)
        if tolerance is None:
            memory = of_ranks(ranks(values[part]), flying)
        else:
            memory = remembered(values[part], math.log1p(tolerance), flying)
        found.append(Side(values[part], due[part], memory))
    return found[0], found[1]


def decided(pair: Pair, by: float, look: int) -> str:
    """What this look says: "abort", "promote" or ""."""
    alpha = SPENDING[look] * 5 / 100
    if pair.p_worse(by, alpha) <= alpha:
        return "abort"
    return "promote" if pair.p_fine(by, alpha) <= alpha else ""


def marked(side: Side, bad: np.ndarray, memory: Memory | None) -> Side:
    """As a share of bad ones; ``memory`` None: that of the marks themselves."""
    marks = bad.astype(np.float64)
    return Side(marks, side.due_ns, memory or of_ranks(ranks(marks)))


def tallies(process: str, load: float, arms: str, n: int, runs: int, seed: int = 1) -> dict[tuple[str, str], Tally]:
    """Every quantity under every truth, of one cell."""
    truth = np.sort(np.log(queues.PROCESSES[process](np.random.default_rng([seed, 7]), 400, 4_000, load)).ravel())
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for number, run in enumerate(simulated(process, load, arms, n, runs, seed)):
        users = np.random.default_rng([seed, number]).random(len(run.canary)) < 0.05
        slow = run.canary + math.log(5) * users
        failing = [
            np.random.default_rng([seed, number, arm]).random(len(one)) for arm, one in enumerate((run.base, slow))
        ]
        over: dict[tuple[str, str], tuple[str, float]] = {}
        for look in range(LOOKS):
            held = {one: sides(run, look, run.canary, one) for one in (0.1, 0.25, None)}
            users_slow = {one: sides(run, look, slow, one)[1] for one in held}
            for (name, quantile, tolerance), said in ((one, said) for one in QUANTITIES for said in TRUTHS):
                if (name, said) in over or (quantile is None and said.endswith("x")):
                    continue
                kept = None if quantile is None else tolerance
                base, plain = held[kept]
                canary = users_slow[kept] if said == TRUTHS[4] else plain
                draws = [one[: len(side)] for one, side in zip(failing, (base, canary), strict=True)]
                pair, by = _posed(name, base, canary, quantile, tolerance, said, truth, draws)
                if outcome := decided(pair, by, look):
                    over[name, said] = outcome, (look + 1) / LOOKS
        for name, _, _ in QUANTITIES:
            for said in TRUTHS:
                found.setdefault((name, said), []).append(over.get((name, said), ("", 1.0)))
    return {
        key: Tally(
            *(100 * sum(one == word for one, _ in ends) / runs for word in ("abort", "promote")),
            sum(part for _, part in ends) / runs,
        )
        for key, ends in found.items()
    }


def _posed(
    name: str,
    base: Side,
    canary: Side,
    quantile: float | None,
    tolerance: float,
    said: str,
    truth: np.ndarray,
    draws: list[np.ndarray],
) -> tuple[Pair, float]:
    """A canary that is f times as slow, against a tolerance, is the same canary against the tolerance over f."""
    if quantile is not None:
        by = math.log1p(tolerance)
        times = {"edge": by, "1.2 x": math.log(1.2), "1.5 x": math.log(1.5)}.get(said, 0.0)
        return Pair(base, canary, quantile), by - times
    more = tolerance * (said == "edge")
    if name.startswith("error"):
        more += 0.05 * (said == TRUTHS[4])
        arms = [
            marked(one, draw < bad, None)
            for one, draw, bad in zip((base, canary), draws, (ERRORS, ERRORS + more), strict=True)
        ]
    else:
        limits = [float(truth[int((1 - bad) * len(truth))]) for bad in (0.05, 0.05 + more)]
        arms = [marked(one, one.values > limit, one.memory) for one, limit in zip((base, canary), limits, strict=True)]
    return Pair(arms[0], arms[1], None), tolerance


def faults(found: dict[tuple[str, str], Tally], runs: int) -> list[str]:
    """Where more than 5 % are wrong, two standard errors granted."""
    most = 5 + 200 * math.sqrt(0.05 * 0.95 / runs)
    wrong = []
    for (name, said), tally in found.items():
        if tally.aborted > most and said in ("edge", "A/A"):
            wrong.append(f"{name} {said}: abort {tally.aborted:.1f} %")
        if tally.promoted > most and said == "edge":
            wrong.append(f"{name} {said}: promote {tally.promoted:.1f} %")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, a line as soon as it is known."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.canary")
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--n", nargs="*", type=int, default=[1_000, 10_000])
    options.add_argument("--process", nargs="*", default=list(PROCESSES))
    options.add_argument("--arms", nargs="*", default=["own", "own-5%", "shared"])
    asked = options.parse_args(argv)
    print(
        f"| process | arms | requests each | quantity | {' | '.join(TRUTHS)} |\n|{'---|' * (4 + len(TRUTHS))}",
        flush=True,
    )
    broken = 0
    for n in asked.n:
        for process, _, load in (text.partition(":") for text in asked.process):
            for arms in asked.arms:
                found = tallies(process, float(load), arms, n, asked.runs)
                broken += len(faults(found, asked.runs))
                for name, quantile, _ in QUANTITIES:
                    cells = [
                        "" if quantile is None and said.endswith("x") else str(found[name, said]) for said in TRUTHS
                    ]
                    print(f"| {process} {load} | {arms} | {n:,} | {name} | {' | '.join(cells)} |", flush=True)
                for text in faults(found, asked.runs):
                    print(f"beyond 5 %: {process} {load}, {arms}, {n}: {text}", file=sys.stderr, flush=True)
    print(f"{broken} cells break the promise", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
