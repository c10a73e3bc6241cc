"""Reads a percentile off a histogram by nearest rank, to hold what ``plimsoll.slo`` counts against values known by
hand.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from plimsoll.slo.statistics.distribution import DEFAULT_HDR, HdrConfig, IntArray, exact


def hdr_quantile(counts: IntArray, p: Fraction | str | float, config: HdrConfig = DEFAULT_HDR) -> int:
    """The highest value of the bucket that holds the nearest rank: never below the exact quantile of the same
    values.
    """
    rank = max(int(-(-(exact(p) * int(counts.sum())) // 1)), 1)
    return int(config.bounds(int(np.searchsorted(np.cumsum(counts), rank)))[1])
