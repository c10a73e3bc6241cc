"""Concurrency regions of MLPerf Endpoints (rules v1.0, draft): where the points of its curve have to lie. Arithmetic only.

The regions are log-spaced, by the algorithm of the rules and its rounding (to even). The rules' own printed example for
(1024, 16) disagrees with that algorithm at both ends; the algorithm is what is computed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Points in steady state last this long by issue time: up to 32 in flight, and above.
SHORT_NS, LONG_NS = 600_000_000_000, 1_200_000_000_000
SHORT_UP_TO = 32


@dataclass(frozen=True, slots=True)
class Regions:
    """Three ranges of concurrency, both ends included, and the highest concurrency that still counts as the top one."""

    low: tuple[int, int]
    medium: tuple[int, int]
    high: tuple[int, int]
    margin: int


def regions(most: int, least: int) -> Regions:
    """The regions above ``least`` and up to ``most``: equal steps of log2(most - least). Raises ValueError when there is no
    room for three.
    """
    if least < 0 or most - least < 8:
        raise ValueError(
            f"{least} to {most}: three regions need at least 8 steps between them. Raise the highest concurrency"
        )
    step = math.log2(most - least) / 3
    low, medium = round(least + 2**step), round(least + 2 ** (2 * step))
    return Regions((least + 1, low), (low + 1, medium), (medium + 1, most), math.ceil(most * 11 / 10))


def least_duration_ns(concurrency: int) -> int:
    """How long a point must be in steady state, first to last issue: 10 minutes up to 32 in flight, 20 above."""
    return SHORT_NS if concurrency <= SHORT_UP_TO else LONG_NS


def tokens_per_s_per_user(tpot_p90_ns: float) -> float:
    """Interactivity of a point: 1000 / p90 of TPOT in ms. Raises ValueError unless it is above 0."""
    if not tpot_p90_ns > 0:
        raise ValueError("the p90 of TPOT is not above 0: no request streamed more than one token")
    return 1e9 / tpot_p90_ns
