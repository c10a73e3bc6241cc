"""OpenSLO's duration shorthand: a positive whole number and one letter, ``1m`` a minute and ``1M`` a month.

Months, quarters and years have no one length; budgets count them as 30, 90 and 365 days. No seconds, no compound forms:
the specification has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from plimsoll.slo.objectives.openslo.place import Place, show

_MINUTE_NS = 60_000_000_000
_DAY_NS = 1440 * _MINUTE_NS
#: letter -> (nanoseconds, singular).
UNITS = MappingProxyType(
    {
        "m": (_MINUTE_NS, "minute"),
        "h": (60 * _MINUTE_NS, "hour"),
        "d": (_DAY_NS, "day"),
        "w": (7 * _DAY_NS, "week"),
        "M": (30 * _DAY_NS, "month"),
        "Q": (90 * _DAY_NS, "quarter"),
        "Y": (365 * _DAY_NS, "year"),
    }
)
#: Longer than any service has a promise for, and well inside int64.
_LONGEST_NS = 50 * 365 * _DAY_NS
_HOW = "Write a whole number and one of m (minutes), h, d, w, M (months), Q, Y, like 5m or 30d"


@dataclass(frozen=True, slots=True)
class Duration:
    """``text`` as written, its length (a month as 30 days), and in words: ``4 weeks``."""

    text: str
    ns: int
    words: str


def read_duration(place: Place, *, zero: bool = False) -> Duration | None:
    """The duration at a place; an error, or a warning for what is probably a minute written as a month."""
    found = re.fullmatch(r"([0-9]{1,9})([A-Za-z])", place.value) if isinstance(place.value, str) else None
    if found is None or found[2] not in UNITS:
        place.error(f"is {show(place.value)}, not a duration. {_HOW}")
        return None
    count, (ns, unit) = int(found[1]), UNITS[found[2]]
    if count == 0 and not zero:
        place.error(f"is {show(place.value)}: no time at all. {_HOW}")
        return None
    if count * ns > _LONGEST_NS:
        place.error(f"is {show(place.value)}: more than 50 years. {_HOW}")
        return None
    if found[2] == "M":
        place.warn(f"is {count} month{'s' * (count != 1)}, not minutes. If minutes are meant, write {count}m")
    return Duration(place.value, count * ns, f"{count} {unit}{'s' * (count != 1)}")


def read_slice_window(place: Place) -> Duration | None:
    """A time slice: a duration, or a bare number of minutes (0.5 is half a minute)."""
    if isinstance(place.value, str):
        return read_duration(place)
    minutes = place.number()
    if minutes is None:
        return None
    ns = minutes * _MINUTE_NS
    if not 1_000_000 <= ns <= _LONGEST_NS:
        place.error(f"is {show(place.value)}. A bare number is minutes: write one above 0, like 1 or 0.5")
        return None
    return Duration(str(place.value), int(ns), span(ns))


def span(ns: Fraction | int) -> str:
    """A length of time for people: ``43.2 min``, ``16 h 48 min``, ``1.5 d``, ``3.024 s``."""
    seconds = Fraction(ns) / 1_000_000_000
    if seconds < 60:
        return f"{float(seconds):.4g} s"
    if seconds < 3600:
        return f"{float(seconds / 60):.4g} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{float(seconds / 86400):.4g} d"
