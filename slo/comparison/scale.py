"""The scale on which two values of a quantity are compared: up is worse, and a difference is what counts.

The logarithm of a time, minus that of a rate, a share of errors as it is. A difference of two such numbers is a ratio or a
difference of shares, rises whenever the candidate gets slower, and may be infinite. Nothing is compared here.
"""

from __future__ import annotations

import math

import numpy as np

from plimsoll.slo.comparison.quantity import Quantity
from plimsoll.slo.records.records import FloatArray


def worse(values: FloatArray, quantity: Quantity) -> FloatArray:
    """``values`` turned and scaled so that a greater one is a worse one and differences are what is compared."""
    sign = 1.0 if quantity.better == "lower" else -1.0
    if quantity.scale == "difference":
        return sign * values
    with np.errstate(divide="ignore"):  # zero is minus infinity here, and means it
        return sign * np.log(values)


def back(low: float, high: float, quantity: Quantity) -> tuple[float, float]:
    """An interval of differences of ``worse`` as an interval of the effect."""
    if quantity.better == "higher":
        low, high = -high, -low
    if quantity.scale == "difference":
        return low + 0.0, high + 0.0
    return _exp(low), _exp(high)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def limits(quantity: Quantity, tolerance: float) -> tuple[float, float]:
    """Where worse and better begin: 1 + tolerance and 1 - tolerance of the base, whichever way is worse."""
    if quantity.scale == "difference":
        return tolerance, -tolerance
    up, down = math.log1p(tolerance), math.log1p(-tolerance)
    return (up, down) if quantity.better == "lower" else (-down, -up)
