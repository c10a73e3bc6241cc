"""A/A: how often does the gate cry regression when nothing changed?

Runs of one endpoint are split into two arms at random, or in every way if those are few, and each split is compared as base
and candidate. Random splits show what the gate does with spread like this host's. They can't show drift, because they
spread it evenly; so the first half is also compared with the second, as a baseline from last week is with today's runs, and
the runs in turn, as interleaved ones are. When the first of these cries and the second doesn't, interleave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, nan

import numpy as np

from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Outcome, compare
from plimsoll.slo.comparison.quantity import Quantity
from plimsoll.slo.statistics.confidence import clopper_pearson
from plimsoll.slo.statistics.distribution import exact


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """``alarms`` of ``splits`` were a false REGRESSION: ``rate``, NaN for no split; ``undecided`` could decide nothing.

    ``interval``: exact (Clopper-Pearson), of the rate over all splits of these runs; other runs may give another. ``every``:
    all splits were tried, so there is nothing to estimate. ``expected``: the most that the design allows. ``in_order``: the
    outcome of the first half against the second; ``in_turn``: of every other run against the rest.
    """

    runs: int
    per_arm: int
    splits: int
    alarms: int
    undecided: int
    rate: float
    interval: tuple[float, float]
    every: bool
    expected: float
    in_order: Outcome
    in_turn: Outcome


def false_alarm_rate(
    arm: Arm,
    quantities: Sequence[Quantity] | None = None,
    tolerance: float = 0.05,
    confidence: Fraction | str | float = "0.95",
    *,
    share_tolerance: float = 0.01,
    most: int = 1000,
    seed: int = 0,
) -> FalseAlarms:
    """Split the arm's runs, which are in the order of time, in halves; an odd one is left out.

    At most ``most`` splits, drawn with ``seed`` when there are more. Fewer than two runs give no rate.
    """
    n, half = len(arm.runs), len(arm.runs) // 2
    expected = float((1 - exact(confidence)) / 2)
    if half == 0:
        return FalseAlarms(n, 0, 0, 0, 0, nan, (0.0, 1.0), True, expected, "INCONCLUSIVE", "INCONCLUSIVE")

    def outcome(first: Sequence[int], second: Sequence[int]) -> Outcome:
        base, other = (Arm(name, tuple(arm.runs[i] for i in rows)) for name, rows in (("A", first), ("A'", second)))
        return compare(base, [other], quantities, tolerance, confidence, share_tolerance=share_tolerance).outcome

    every = comb(n, half) * comb(n - half, half) <= most
    found = [outcome(*split) for split in (_all(n, half) if every else _some(n, half, most, seed))]
    alarms = found.count("REGRESSION")
    return FalseAlarms(
        runs=n,
        per_arm=half,
        splits=len(found),
        alarms=alarms,
        undecided=found.count("INCONCLUSIVE") + found.count("INVALID"),
        rate=alarms / len(found),
        interval=clopper_pearson(alarms, len(found), confidence),
        every=every,
        expected=expected,
        in_order=outcome(range(half), range(n - half, n)),
        in_turn=outcome(range(0, 2 * half, 2), range(1, 2 * half, 2)),
    )


def _all(n: int, half: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for first in combinations(range(n), half):
        rest = [i for i in range(n) if i not in first]
        for second in combinations(rest, half):
            yield first, second


def _some(n: int, half: int, most: int, seed: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    rng = np.random.default_rng(seed)
    for _ in range(most):
        order = rng.permutation(n).tolist()
        yield tuple(order[:half]), tuple(order[half : 2 * half])
