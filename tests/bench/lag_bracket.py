"""How far a bracket of the generator's lateness errs where departures are not monotone in arrivals: ``python -m
tests.bench.lag_bracket``.

2,000 Poisson requests at 70 % of a server, under a generator that stalls (and a generator of two workers of which one
stalls). Shown: the share of requests whose truth lies outside [L - G, L], and by how much the true p90 and p99 lie
outside what verdicts are judged by (L; L - G, and nothing of what left in a bunch), over 40 seeds: mean and worst. Runs
that are INVALID anyway, by the shape of their arrivals, are left out. The table is in docs/reference/validity.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from tests.late_queue import MS, Case, Queue, batches, case, drawn, first_come, last_come, shared, shortest, stalled

N = 2000
#: Name to the queue at a mean service, and whether only one of two workers stalls.
QUEUES: dict[str, tuple[object, bool]] = {
    "first come, one of two workers stalls": (lambda service: first_come(1), True),
    "last come, first served": (lambda service: last_come, False),
    "shortest first": (lambda service: shortest, False),
    "processor sharing": (lambda service: shared, False),
    "batches, T(B) = 5 + 0.6 B": (lambda service: batches(5 * service, service * 6 // 10, 32), False),
    "batches, with a window of 5": (lambda service: batches(5 * service, service * 6 // 10, 32, 5 * service), False),
}
#: Requests per second, mean service in ms, stalls, their mean length in ms.
STALLS = ((70.0, 10, 3, 20.0), (70.0, 10, 10, 20.0), (700.0, 1, 3, 20.0), (700.0, 1, 1, 100.0))


@dataclass(frozen=True, slots=True)
class Errors:
    """Over the runs that stayed VALID: shares of requests outside, and mean and worst of how far percentiles are, of
    the truth.
    """

    valid: int
    above: float
    below: float
    truth_above: dict[str, tuple[float, float]]
    truth_below: dict[str, tuple[float, float]]


def seen(
    queue: Queue, rate: float, service_ms: int, stalls: int, mean_ms: float, alone: bool, seed: int
) -> Case | None:
    """One run; None: it is INVALID by the shape of its arrivals."""
    due, service = drawn(N, rate, service_ms * MS, True, seed)
    left = stalled(due, stalls, mean_ms * MS, seed, alone)
    done = queue(left, service)
    rows = from_columns(N, due_ns=due, ready_ns=left, sent_ns=left, first_byte_ns=done, done_ns=done)
    facts = GeneratorFacts(open_loop=True, planned=N, planned_queries=N, process="poisson")
    return (
        case(queue, due, left, service)
        if assess(rows, facts, [parse("p99(latency) <= 1s")]).outcome == "VALID"
        else None
    )


def errors(name: str, rate: float, service_ms: int, stalls: int, mean_ms: float, seeds: int = 40) -> Errors:
    """One cell of the table."""
    made, alone = QUEUES[name]
    queue: Queue = made(service_ms * MS)  # type: ignore[operator]
    cases = [
        one for seed in range(seeds) if (one := seen(queue, rate, service_ms, stalls, mean_ms, alone, seed)) is not None
    ]
    low: dict[str, tuple[float, float]] = {}
    high: dict[str, tuple[float, float]] = {}
    for q in ("p90", "p99"):
        at = float(q[1:]) / 100
        ends = [[float(np.quantile(part, at)) for part in (one.lowest, one.true, one.measured)] for one in cases]
        over = [max(bottom - true, 0.0) / true for bottom, true, _ in ends]
        under = [max(true - top, 0.0) / true for _, true, top in ends]
        low[q], high[q] = (float(np.mean(over)), max(over)), (float(np.mean(under)), max(under))
    outside = [
        float(np.mean([np.mean(part > 0) for part in parts]))
        for parts in zip(*((one.above, one.below) for one in cases), strict=True)
    ]
    return Errors(len(cases), outside[0], outside[1], high, low)


def lines() -> Iterator[str]:
    """The table in markdown."""
    yield "| load | stalls | server | truth above L | below L - G | true p90 above | true p99 above | true p90 below | true p99 below |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|"
    for rate, service, stalls, mean in STALLS:
        for name in QUEUES:
            found = errors(name, rate, service, stalls, mean)
            parts = [
                f"{mean_:.1%} ({worst:.0%})"
                for part in (found.truth_above, found.truth_below)
                for mean_, worst in part.values()
            ]
            yield (
                f"| {rate:g}/s of {service} ms | {stalls} x {mean:g} ms | {name} | {found.above:.1%} | "
                f"{found.below:.1%} | {' | '.join(parts)} |"
            )


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
