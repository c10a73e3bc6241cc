"""A search of a queue with a known line finds it: full verdicts of real records, in virtual time.

Requests a probe needs for 3 % (tests/bench/known_queue.py --simulated has more seeds): 80,000 at the longest for the
p90 of M/D/1 and 320,000 for that of M/M/1, whose line lies at 0.885 of its capacity: there latencies remember for
hundreds of requests, and verdicts that know it take twice what those of before took.
"""

from __future__ import annotations

import math

import pytest

from plimsoll.slo.search import sizing
from plimsoll.slo.search.probe import Settings
from tests.bench.known_queue import CELLS, Cell, by_default, held
from tests.simulated_queue import Queue, Service, promise, run, search


@pytest.mark.parametrize(
    ("service", "within", "base", "seed"),
    [
        ("constant", 8, 10_000, 1),
        ("constant", 5, 10_000, 2),
        ("exponential", 20, 40_000, 3),
    ],
)
def test_the_search_is_within_three_per_cent_of_the_closed_form(
    service: Service, within: int, base: int, seed: int
) -> None:
    queue = Queue(service)
    line = queue.line_per_s(0.9, within)
    answer, probes = search(
        queue, Settings("rate", 100.0, 1.0, resolution=0.01, seed=seed), [promise("90", within, queue)], base
    )
    assert answer.outcome == "FOUND"
    assert answer.best is not None
    assert abs(answer.best / line - 1) <= 0.03
    assert answer.low <= line <= answer.high <= 1.06 * line
    assert len(probes) <= 30


def test_short_probes_make_the_interval_wider_and_it_still_holds_the_line_as_often_as_it_says() -> None:
    queue = Queue("constant")
    line = queue.line_per_s(0.9, 10)
    answers = [
        search(
            queue,
            Settings("rate", 400.0, 50.0, resolution=0.05, seed=seed, longest=4.0),
            [promise("90", 10, queue)],
            1500,
        )[0]
        for seed in range(30)
    ]
    held = sum(answer.low <= line <= answer.high for answer in answers)
    claimed = sum(answer.confidence or 0.0 for answer in answers)
    assert held >= claimed - 2 * math.sqrt(30 * 0.1 * 0.9)
    assert all(answer.best is not None and answer.best <= line * 1.1 for answer in answers)
    assert {answer.outcome for answer in answers} <= {"FOUND", "OPEN"}


@pytest.mark.parametrize(("cell", "number"), [(CELLS[0], 8), (CELLS[1], 16)], ids=lambda value: str(value))
def test_what_a_search_with_nothing_but_an_objective_claims_within_its_budget_holds(cell: Cell, number: int) -> None:
    """Too little time for 2 %: the interval is wider, and not less true.

    ``known_queue --defaults 200`` is the whole table.
    """
    found = [by_default(cell, seed) for seed in range(number)]
    holding, said, agrees = held(found)
    assert agrees, (holding, said)
    assert all(one.holds for one in found)
    assert sum(one.outcome == "FOUND" for one in found) >= 0.75 * number
    assert 0.8 <= said <= 0.9


def test_the_simulated_queues_are_the_ones_of_the_books() -> None:
    n = 200_000
    for queue, closed in (
        (Queue("exponential"), sizing.mm1_mean(0.6)),
        (Queue("constant"), sizing.md1_mean(0.6)),
    ):
        records, _ = run(queue, 600.0, n, 5)
        took = (records["done_ns"] - records["due_ns"]) / queue.service_ns
        assert took.mean() == pytest.approx(closed, rel=0.03)
    many = Queue("exponential", servers=4)
    records, _ = run(many, 0.8 * many.capacity_per_s, n, 5)
    took = (records["done_ns"] - records["due_ns"]) / many.service_ns
    assert float((took > sizing.mmc_quantile(4, 0.8, 0.9)).mean()) == pytest.approx(0.1, rel=0.1)
    assert many.line_per_s(0.9, sizing.mmc_quantile(4, 0.8, 0.9)) == pytest.approx(0.8 * many.capacity_per_s, rel=1e-4)
