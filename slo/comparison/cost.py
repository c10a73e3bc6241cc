"""What a million tokens or requests cost, from the price of an hour, and how many replicas a load needs.

A cost is a price over a throughput, so it is as uncertain as the throughput is between runs; a lower throughput is a higher
cost, and no throughput an infinite one. Failed requests cost as much as good ones: only what was delivered divides the
price. Nothing here knows which price is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.quantity import Quantity, parse
from plimsoll.slo.comparison.ranks import signed_rank
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.distribution import exact

Per = Literal["output_tokens", "requests", "good_requests"]
_RATES = {"output_tokens": "rate(output_tokens)", "requests": "rate(ok)", "good_requests": "rate(good)"}
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a million of ``per``, in the price's currency. ``value``: at the median run's throughput ``per_s``.

    ``interval``: of the typical run's cost at the confidence, (0, inf) where there are too few runs (fewer than 6 at 95 %);
    ``values``: each run's.
    """

    name: str
    per: Per
    price_per_hour: float
    per_s: float
    value: float
    interval: tuple[float, float]
    values: tuple[float, ...]


def needs(per: Per) -> Quantity:
    """The quantity that a cost of ``per`` divides by: sample the runs with it."""
    return parse(_RATES[per])


def million(price_per_hour: float, per_s: float) -> float:
    """Price of a million at ``per_s``: 3.60 an hour at 1,000/s is 1.00; infinite at 0."""
    return price_per_hour / 3600 * _MILLION / per_s if per_s > 0 else math.inf


def cost(
    arm: Arm, price_per_hour: float, per: Per = "output_tokens", confidence: Fraction | str | float = "0.95"
) -> Cost | None:
    """Of a million of ``per``; None when a run has no such rate. Raises ValueError for a price below 0 or infinite."""
    if not 0 <= price_per_hour < math.inf:
        raise ValueError(f"a price of {price_per_hour} an hour: write what an hour costs, a number of at least 0")
    rates = arm.values(needs(per))
    if len(rates) == 0 or np.isnan(rates).any():
        return None
    middle = float(np.median(rates))
    low, high = _typical(rates, confidence)
    return Cost(
        name=arm.name,
        per=per,
        price_per_hour=price_per_hour,
        per_s=middle,
        value=million(price_per_hour, middle),
        interval=(million(price_per_hour, high), million(price_per_hour, low)),
        values=tuple(million(price_per_hour, float(rate)) for rate in rates),
    )


def _typical(rates: FloatArray, confidence: Fraction | str | float) -> tuple[float, float]:
    """Interval of the typical rate: exact, from the Walsh averages of its logarithm."""
    with np.errstate(divide="ignore"):
        shift = signed_rank(np.log(rates), confidence)
    return math.exp(shift.low), math.inf if shift.high == math.inf else math.exp(shift.high)


@dataclass(frozen=True, slots=True)
class Fleet:
    """``replicas`` for the peak; ``utilisation`` of each then, and ``one_down`` with one of them lost."""

    replicas: int
    utilisation: float
    one_down: float


def fleet(peak_per_s: float, capacity_per_s: float, headroom: str = "0.7", one_down: str = "0.85") -> Fleet:
    """Replicas that carry ``peak_per_s`` at most ``headroom`` full, and ``one_down`` full with one lost.

    ``capacity_per_s``: what one replica carries within its SLO, at its lower confidence bound. 1000/s over 120/s: 12 at a
    headroom of 0.7, 11 at 0.8. Raises ValueError for a capacity or shares that are not above 0.
    """
    share, failing = exact(headroom), exact(one_down)
    if capacity_per_s <= 0 or peak_per_s < 0 or not share or not failing:
        raise ValueError("a fleet needs a capacity above 0, a peak of at least 0 and shares above 0")
    load = Fraction(str(peak_per_s)) / Fraction(str(capacity_per_s))
    count = max(math.ceil(load / share), math.ceil(load / failing) + 1 if load else 1, 1)
    return Fleet(count, float(load / count), float(load / (count - 1)) if count > 1 else math.inf)
