"""What two runs are compared by: one number of a run, as ``p99(ttft)``, ``rate(output_tokens)`` or ``ratio(error)``.

The left side of the objectives' grammar, with a tolerance of its own if wanted: ``p99(ttft) 10%``; of some rows, as
``p99(ttft{class=chat})``. A value is compared
by ratio; a share by difference, because a ratio of error shares says little (0 to 0.01 % is infinitely worse). Nothing
is compared here, and nothing is promised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import (
    BAD_RATIOS,
    NAME,
    RATES,
    RATIOS,
    WHERE,
    ObjectiveError,
    of_server,
    one_of,
)
from plimsoll.slo.objectives.selector import Selector, SelectorError
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.server.canonical import NAMES

_SHAPE = re.compile(
    rf"\s*([a-z]+[0-9.]*)\s*\(\s*({NAME}){WHERE % 'where'}\)\s*(?:(?:±|\+-)?\s*([0-9]+(?:\.[0-9]+)?)\s*%)?\s*"
)

#: Compared when nobody says what: six at most, so that five runs an arm can still decide (see
#: ``plimsoll.slo.comparison.ranks``).
STREAMED = ("p50(ttft)", "p99(ttft)", "p99(tpot)", "p99(latency)", "rate(output_tokens)", "ratio(error)")
WHOLE = ("p50(latency)", "p99(latency)", "rate(ok)", "ratio(error)")
#: Of live speech and of speech that is made: a latency is mostly playing time there.
SPOKEN = (
    *("p50(first_partial)", "p99(first_partial)", "p50(finalization)", "p99(finalization)"),
    *("mean(wer)", "ratio(error)"),
)
HEARD = ("p50(first_audio_perceived)", "p99(first_audio_perceived)", "mean(stall_ratio)", "rate(ok)", "ratio(error)")


class QuantityError(ValueError):
    """Quantities that can't be used; ``errors`` has one text per mistake, each with the fix."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = list(errors)
        super().__init__("\n".join(self.errors))


@dataclass(frozen=True, slots=True)
class Quantity:
    """``str()`` is its name, ``p99(ttft)``.

    ``quantile``: 99/100 for p99, else None. ``unit``: ``ns``, ``ratio``, ``per_s`` or ``1``. ``tolerance``: a change up
    to this is of no interest (a fraction of the base; of a share: its points), None for the comparison's own.
    ``where``: the rows that it is of, all if it is empty.
    """

    statistic: str
    indicator: str
    quantile: Fraction | None
    better: Literal["lower", "higher"]
    unit: str
    tolerance: float | None = None
    where: Selector = ()

    def __str__(self) -> str:
        return f"{self.statistic}({self.indicator}{selector.text(self.where)})"

    @property
    def of_server(self) -> bool:
        """It is what the server says of itself."""
        return self.indicator in NAMES

    @property
    def scale(self) -> Literal["ratio", "difference"]:
        """How two of them are compared."""
        return "difference" if self.statistic == "ratio" else "ratio"


def parse(text: str) -> Quantity:
    """The quantity that ``text`` names. Raises ``QuantityError`` with what is allowed."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise QuantityError(
            [f"{text!r}: not a quantity. Write p99(ttft), mean(itl), rate(output_tokens), ratio(error)"]
        )
    statistic, name, written, percent = found.groups()
    try:
        where = () if written is None else selector.parse(written)
    except SelectorError as error:
        raise QuantityError([f"{text!r}: {error}"]) from None
    tolerance = float(Decimal(percent) / 100) if percent else None
    if tolerance is not None and not 0 <= tolerance < 1:
        raise QuantityError([f"{text!r}: a tolerance of {percent}% is not below 100 %. Write one like 5%"])
    if name in NAMES:
        return _of_server(text, statistic, name, tolerance, where)
    if statistic in ("ratio", "rate"):
        known = RATIOS if statistic == "ratio" else RATES
        if name not in known:
            raise QuantityError([f"{text!r}: {statistic}({name}) is not known; {statistic} is of {', '.join(known)}"])
        unit = "ratio" if statistic == "ratio" else "per_s"
        return Quantity(statistic, name, None, "lower" if name in BAD_RATIOS else "higher", unit, tolerance, where)
    if statistic == "accuracy":
        raise QuantityError([f"{text!r}: accuracy is judged run by run. Of words compare mean(wer)"])
    indicators = catalogue()
    if name not in indicators or name == "error":
        allowed = [known for known in indicators if known != "error"]
        raise QuantityError([f"{text!r}: {name} is not known here; {one_of(name, allowed)}"])
    quantile = _quantile(text, statistic)
    if quantile is not None:
        statistic = "p" + format((quantile * 100).limit_denominator(10**12).__float__(), ".12g")
    return Quantity(statistic, name, quantile, indicators[name].better, indicators[name].unit, tolerance, where)


def _of_server(text: str, statistic: str, name: str, tolerance: float | None, where: Selector) -> Quantity:
    """What the server says of itself; what is better neither way is compared as if less were."""
    try:
        unit, better = of_server(statistic, name)
    except ObjectiveError as error:
        raise QuantityError([f"{text!r}: {error}"]) from None
    if statistic == "slope":
        raise QuantityError(
            [f"{text!r}: slopes are judged and not compared. Write an objective: {statistic}({name}) <= 10MiB/h"]
        )
    if where:
        raise QuantityError([f"{text!r}: {name} is of the server and of no rows. Leave {selector.text(where)} out"])
    return Quantity(statistic, name, None, better or "lower", unit, tolerance)


def _quantile(text: str, statistic: str) -> Fraction | None:
    if statistic in ("mean", "max", "min"):
        return None
    if not re.fullmatch(r"p[0-9]+(\.[0-9]+)?", statistic) or not 0 < Fraction(statistic[1:]) < 100:
        raise QuantityError(
            [f"{text!r}: {statistic} is not known; choose p99 (any percentile), mean, max, min, ratio, rate"]
        )
    return Fraction(statistic[1:]) / 100


def parse_all(texts: Sequence[str]) -> tuple[Quantity, ...]:
    """Every quantity once. Raises ``QuantityError`` with all mistakes."""
    quantities: list[Quantity] = []
    errors: list[str] = []
    for text in texts:
        try:
            quantity = parse(text)
        except QuantityError as error:
            errors += error.errors
            continue
        if str(quantity) in {str(known) for known in quantities}:
            errors.append(f"{text!r}: {quantity} is given twice. Give it once")
        quantities.append(quantity)
    if errors:
        raise QuantityError(errors)
    return tuple(quantities)


def usual(has: Callable[[str], bool]) -> tuple[Quantity, ...]:
    """What is compared when nobody says what: of speech, of answers that stream, or of answers that come whole,
    whichever the first quantity says that there is.
    """
    return parse_all(next((texts for texts in (SPOKEN, HEARD, STREAMED) if has(texts[0])), WHOLE))


def every_usual() -> tuple[Quantity, ...]:
    """All that ``usual`` may ask for: what a sample of a run should hold."""
    return parse_all(tuple(dict.fromkeys(SPOKEN + HEARD + STREAMED + WHOLE)))


# -- the scale on which two values are compared: up is worse, and a difference is what counts -------------------------

# The logarithm of a time, minus that of a rate, a share of errors as it is. A difference of two such numbers is a ratio
# or a difference of shares, rises whenever the candidate gets slower, and may be infinite.


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
