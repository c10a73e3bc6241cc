"""The gate's level: with every quantity worse by exactly what is tolerated it seldom cries.

The full table is in the docs.
"""

from __future__ import annotations

import pytest

from tests.bench.gate_power import Cell, at_the_tolerance, outcomes

REPS = 400
#: 5 % and two standard errors.
MOST = REPS * 0.05 + 2 * (REPS * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(
    "cell",
    [
        Cell((5, 5), 0.05),
        Cell((5, 5), 0.0, (0.04, 0.12)),
        Cell((10, 10), 0.1, (0.12, 0.04)),
        Cell((8, 8), 0.05, paired=True),
        Cell((5, 5), 0.05, together=0.7),
        Cell((20, 5), 0.0, (0.04, 0.12)),
    ],
    ids=str,
)
def test_six_quantities_at_the_tolerance_raise_an_alarm_in_one_comparison_of_twenty_at_most(cell: Cell) -> None:
    found = at_the_tolerance(cell, REPS)
    assert found["REGRESSION"] <= MOST
    assert found["IMPROVEMENT"] <= MOST
    assert not found["INCONCLUSIVE"]


def test_what_is_twice_the_tolerance_is_found_where_runs_are_alike() -> None:
    cell = Cell((8, 8), 0.05, (0.02, 0.02))
    assert outcomes(cell, 0.1, 0.0, 100, 2, only=True)["REGRESSION"] >= 60
    assert outcomes(cell, 0.1, 0.02, 50, 2)["REGRESSION"] == 50
