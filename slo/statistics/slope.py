"""How fast something grows that is read again and again: memory, above all, whose neighbouring samples are alike.

The samples are cut into ten spans of equal number. Each counts with its median, so that no spike does; what the
medians grow by from span to span, a time, gives nine slopes, of which the mean is what lies between first and last.
Its interval is Student's t of those nine, 1.3 times as wide. It refuses to take samples for independent: noise about a
line makes neighbouring steps of opposite sign, and the interval too wide; a walk, whose every step stays, makes medians
of spans that share 1/6 of their variance with each neighbour, for which sqrt(1.5) is right in the limit and 1.3 with
nine steps. Measured on AR(1) noise from 0 to 1 (``tests/unit/slo/test_slope.py``) it holds what it claims.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.confidence import Probability, mean_interval

_SPANS = 10
#: Samples that it takes: two a span.
FEWEST = 2 * _SPANS
_WIDER = 1.3


@dataclass(frozen=True, slots=True)
class Slope:
    """``per_h``: growth in an hour, between ``low`` and ``high`` at the confidence that was asked for."""

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
