"""How fast something grows that is read again and again: memory, above all, whose neighbouring samples are alike.

The samples are cut into ten spans of equal number, each counts with its median, and the steps between medians give nine
slopes. Their interval is Student's t, 1.3 times as wide: noise about a line makes steps of opposite sign and it too
wide; of a walk, whose every step stays, medians share 1/6 of their variance with each neighbour, and sqrt(1.5) is right
in the limit. On AR(1) noise from 0 to 1 it holds what it claims (``tests/unit/slo/test_slope.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.confidence import Probability, mean_interval

_SPANS = 10
#: Samples that it takes: two a span.
FEWEST = 2 * _SPANS
_WIDER = 1.3


class Slope(NamedTuple):
    """Growth in an hour, between ``low`` and ``high`` at the confidence that was asked for."""

    per_h: float
    low: float
    high: float


def slope(at_s: FloatArray, values: FloatArray, confidence: Probability = "0.95", sides: int = 2) -> Slope | None:
    """Of values at ascending times; None for fewer than twenty, or where spans lie at one time."""
    if len(values) < FEWEST:
        return None
    spans = np.array_split(np.arange(len(values)), _SPANS)
    levels = np.array([np.median(values[one]) for one in spans])
    hours = np.diff([at_s[one].mean() for one in spans]) / 3600
    if not (hours > 0).all():
        return None
    steps = np.diff(levels) / hours
    found = float((levels[-1] - levels[0]) / hours.sum())
    low, high = mean_interval(steps, confidence, sides)
    half = (high - low) / 2 * _WIDER
    return Slope(found, found - half, found + half)
