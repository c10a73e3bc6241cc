"""A verdict is wrong as rarely as it says where requests queue: a small version of ``python -m
tests.bench.coverage``.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from plimsoll.slo.statistics import confidence as sure
from tests.bench import queues
from tests.bench.coverage import cells, limit_at, outages, passes, truth

RUNS = 100


@pytest.mark.parametrize(
    ("process", "load", "n"),
    [("M/M/1", 0.9, 1_000), ("M/M/1", 0.7, 3_000), ("batch", 0.9, 1_000), ("AR(1)", 0.9, 1_000), ("M/M/4", 0.95, 300)],
)
def test_a_verdict_at_the_limit_is_wrong_in_one_run_of_twenty_at_most(process: str, load: float, n: int) -> None:
    """Three standard errors granted. On 0465d30 the p99 of M/M/1 at 0.9 passed in 87 % of runs of 1,000."""
    most = 5 + 300 * math.sqrt(0.05 * 0.95 / RUNS)
    for cell in cells(process, load, [n], RUNS, seed=3):
        assert max(cell.outcomes[1.0]) <= most, cell
        if 2.0 in cell.outcomes:
            assert cell.outcomes[2.0][0] <= 2.0, cell
        if cell.allowed in ("0.1", "0.01") and n >= 1_000:
            assert cell.far >= 90 - 300 * math.sqrt(0.1 * 0.9 / RUNS), cell


def test_requests_that_are_independent_pay_little_for_the_question() -> None:
    """At 1.38 times what the exact test takes (1.15 x 1.2, what they paid before) nine runs of ten pass."""
    exactly = sure.passing(Fraction("0.1"), Fraction("0.05"), "0.95", "0.9")
    assert exactly is not None
    n = math.ceil(exactly * 1.38)
    times = queues.independent(np.random.default_rng(4), 400, n, 0.0)
    limit = limit_at(truth("i.i.d.", 0.0), 0.05)
    passed = np.mean([passes(np.ascontiguousarray(times[:, i]), limit, "0.1") for i in range(400)])
    assert passed >= 0.9 - 3 * math.sqrt(0.09 / 400)


def test_a_slow_mode_that_the_run_never_met_is_where_the_assumption_breaks() -> None:
    """One outage of 1,000 requests in 100,000 breaks a p99; a run of 1,000 requests that meets none passes, and says
    why.
    """
    assert outages(1_000, 1_000, 60) > 0.9
    assert outages(1, 1_000, 60) < 0.15
