"""How many replicas a load takes and what they cost, from a capacity that was validated and how sure it is.

The capacity of a replica is the load at which its objectives were shown to hold, at the LOWER end of its interval: the point
estimate is wrong half of the time, and the rate at which it saturates keeps no promise at all. The upper end only says what the
uncertainty costs. Two rules, and the one that wants more decides: no replica fuller than the headroom, and none fuller than
a second share when one of them is lost. Source: SEMANTICS E.4. Nothing here knows which price or which headroom is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from plimsoll.slo.comparison.cost import fleet, million
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.queueing import replicas, replicas_with_one_down

Binding = Literal["headroom", "one down", "both"]
Per = Literal["requests", "good_requests", "output_tokens", "input_tokens"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests per second of one replica within its objectives. ``high``: where they fail; None: nobody has seen that."""

    low: float
    best: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Sized:
    """``replicas`` satisfy both rules; ``by_headroom``, ``by_one_down``: what each asks for by itself.

    ``utilisation``: load over the capacity of all; ``one_down``: of all but one, infinite where there is but one.
    """

    replicas: int
    by_headroom: int
    by_one_down: int
    utilisation: float
    one_down: float

    @property
    def binding(self) -> Binding:
        """The rule that decides."""
        if self.by_headroom == self.by_one_down:
            return "both"
        return "headroom" if self.by_headroom > self.by_one_down else "one down"


def size(peak_per_s: float, capacity_per_s: float, headroom: str, one_down: str) -> Sized:
    """The fleet for a peak. 1000/s over 120/s at 70 % and 85 %: 12 (12 by headroom, 11 by one down).

    Raises ValueError for a peak or a capacity that is not above 0, or shares outside 0..1.
    """
    both = fleet(peak_per_s, capacity_per_s, headroom, one_down)
    return Sized(
        both.replicas,
        replicas(peak_per_s, capacity_per_s, headroom),
        replicas_with_one_down(peak_per_s, capacity_per_s, one_down),
        both.utilisation,
        both.one_down,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One number of replicas: how full they are, and whether both rules hold."""

    replicas: int
    utilisation: float
    one_down: float
    headroom_kept: bool
    one_down_kept: bool


def around(peak_per_s: float, capacity_per_s: float, headroom: str, one_down: str, width: int = 2) -> tuple[Row, ...]:
    """Fleets of some replicas less and more than ``size`` says. Raises ValueError as that does."""
    needed = size(peak_per_s, capacity_per_s, headroom, one_down)
    load = Fraction(str(peak_per_s)) / Fraction(str(capacity_per_s))
    rows = []
    for n in range(max(1, needed.replicas - width), needed.replicas + width + 1):
        down = load / (n - 1) if n > 1 else None
        rows.append(
            Row(
                replicas=n,
                utilisation=float(load / n),
                one_down=math.inf if down is None else float(down),
                headroom_kept=load / n <= exact(headroom),
                one_down_kept=down is not None and down <= exact(one_down),
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Yield:
    """What one request brings: share of good ones, tokens out and in (None: not known)."""

    good_fraction: float | None = None
    output_tokens: float | None = None
    input_tokens: float | None = None

    def each(self) -> tuple[tuple[Per, float], ...]:
        """Units of each kind per request; kinds that are not known, or of which there are none, are left out."""
        known: tuple[tuple[Per, float | None], ...] = (
            ("requests", 1.0),
            ("good_requests", self.good_fraction),
            ("output_tokens", self.output_tokens),
            ("input_tokens", self.input_tokens),
        )
        return tuple((per, amount) for per, amount in known if amount)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a million of ``per``, in the price's currency, at the lower end of the capacity.

    ``full``: with every replica at its headroom; ``target``: of the whole fleet at the target rate, idle share included.
    ``full_range``, ``target_range``: from the upper end of the capacity to the lower; None where no upper end is known.
    """

    per: Per
    full: float
    full_range: tuple[float, float] | None
    target: float
    target_range: tuple[float, float] | None


def costs(
    price_per_hour: float, peak_per_s: float, capacity: Capacity, brings: Yield, headroom: str, one_down: str
) -> tuple[Cost, ...]:
    """What a million costs, for an hourly price of one replica. Raises ValueError for a price below 0 or infinite."""
    if not 0 <= price_per_hour < math.inf:
        raise ValueError(f"a price of {price_per_hour} an hour: write what a replica costs an hour, at least 0")
    share = float(exact(headroom))

    def whole(rate: float) -> float:
        return price_per_hour * size(peak_per_s, rate, headroom, one_down).replicas

    found = []
    for per, amount in brings.each():
        full, target = (
            million(price_per_hour, capacity.low * share * amount),
            million(whole(capacity.low), peak_per_s * amount),
        )
        full_range = target_range = None
        if capacity.high is not None:
            full_range = million(price_per_hour, capacity.high * share * amount), full
            target_range = million(whole(capacity.high), peak_per_s * amount), target
        found.append(Cost(per, full, full_range, target, target_range))
    return tuple(found)
