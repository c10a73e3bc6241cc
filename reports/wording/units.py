"""Numbers as people read them: one place decides digits, prefixes and signs for every format.

Values come in the units of ``report.json`` (``ns``, ``ratio``, ``1/s``, ...). ``None`` is an infinite value and is
written ∞; "no data" is the caller's business. This module never rounds what a program will read.
"""

from __future__ import annotations

import math

#: A statistic: integer nanoseconds for times, float for ratios and rates, None for +inf or "no data".
Number = int | float | None

INFINITE = "∞"
NOTHING = "–"

_TIME_STEPS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))
_SI_STEPS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
_MINUTE_NS = 60_000_000_000
_LONG_NS = 10 * _MINUTE_NS


def significant(value: float, digits: int = 3) -> str:
    """``value`` with that many significant digits, no exponent, integers never cut: 0.0123, 1.23, 123,
    1234.
    """
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 12)}f}"
    # 9.999 must become 10.0, not 10.00: look at the size again after rounding.
    rounded = float(text)
    if rounded != 0 and decimals > 0:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        text = f"{value:.{min(decimals, 12)}f}"
    return text


def duration(value_ns: float, digits: int = 3) -> str:
    """Nanoseconds with the prefix that fits: ``1.23 ms``, ``45.6 s``, ``12 min 30 s``."""
    size = abs(value_ns)
    if size >= _LONG_NS:
        seconds = round(size / 1e9)
        sign = "-" if value_ns < 0 else ""
        hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
        return f"{sign}{hours} h {minutes:02d} min" if hours else f"{sign}{minutes} min {rest:02d} s"
    if size == 0:
        return "0 ms"
    for index, (scale, name) in enumerate(_TIME_STEPS):
        last = index == len(_TIME_STEPS) - 1
        if last or float(significant(size / scale, digits)) < 1000:
            shown = value_ns / scale
            return f"{shown:.0f} ns" if name == "ns" else f"{significant(shown, digits)} {name}"
    raise AssertionError("unreachable: the last step always returns")


def count(value: float) -> str:
    """A whole number with comma thousands: ``12,345``."""
    return f"{round(value):,}"


def many(number: float, noun: str) -> str:
    """``1 request``, ``1,234 requests``."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def compact(value: float, digits: int = 3) -> str:
    """A plain number with an SI prefix: ``950``, ``12.3k``, ``4.5M``."""
    size = abs(value)
    scale, prefix = _SI_STEPS[0]
    for step, name in _SI_STEPS:
        if size >= step * 0.9995:
            scale, prefix = step, name
    return f"{significant(value / scale, digits)}{prefix}"


def percent(fraction: float, digits: int = 4) -> str:
    """A fraction as per cent. Never rounds up to 100 % or down to 0 %: 0.99996 is ``99.996 %``."""
    if fraction in (0, 1):
        return f"{fraction * 100:.0f} %"
    text = significant(fraction * 100, digits)
    while 0 < fraction < 1 and float(text) >= 100 and digits < 12:
        digits += 1
        text = significant(fraction * 100, digits)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} %"


#: Of units that grow large: from which size, and what it is then.
_LARGER = {
    "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1, "B")),
    "Hz": ((1e9, "GHz"), (1e6, "MHz")),
}


def human(value: Number, unit: str, digits: int = 3) -> str:
    """A statistic for a person: ``human(1_234_567, "ns")`` is ``1.23 ms``; None is ∞."""
    if value is None:
        return INFINITE
    if unit == "ns":
        return duration(value, digits)
    if unit in ("ratio", "fraction"):
        return percent(value, max(digits, 4))
    if unit.endswith("/h"):
        return f"{human(value, unit.removesuffix('/h'), digits)}/h"
    for size, name in _LARGER.get(unit, ()):
        if abs(value) >= size or size == 1:
            return f"{significant(value / size, digits)} {name}"
    if unit in ("1/s", "/s", "per_s"):
        return f"{significant(value, digits) if abs(value) < 1000 else count(value)}/s"
    text = count(value) if value == round(value) and abs(value) < 1e15 else significant(value, digits)
    return f"{text} {unit}" if unit not in ("", "1", "count") else text


def rate(value: float | None) -> str:
    """A rate per second, or a dash when there is none."""
    return NOTHING if value is None else human(value, "1/s")


def seconds(value_ns: float) -> str:
    """A position on the run's time axis: ``0``, ``30 s``, ``2 min``, ``1 h``; fractions only when needed."""
    if value_ns == 0:
        return "0"
    if abs(value_ns) < 1_000_000_000:
        return duration(value_ns, 3).replace(".00 ", " ").replace(".0 ", " ")
    total = value_ns / 1e9
    if total < 120 or total % 60:
        text = f"{total:.3f}".rstrip("0").rstrip(".")
        return f"{text} s"
    minutes = total / 60
    return f"{minutes:g} min" if minutes < 120 or minutes % 60 else f"{minutes / 60:g} h"


def quantile_name(q: float) -> str:
    """``0.99`` is ``p99``, ``0.999`` is ``p99.9``; extremes are ``min`` and ``max``."""
    if q <= 0:
        return "min"
    if q >= 1:
        return "max"
    tail = 1 - q
    decimals = max(0, min(9, math.ceil(-math.log10(tail)) - 1))
    text = f"{q * 100:.{decimals}f}"
    return "p" + (text.rstrip("0").rstrip(".") if "." in text else text)


def bounds(confidence: float) -> str:
    """The head of a column of bounds. There is one kind everywhere: each alone has the confidence, as in a verdict."""
    return f"bounds, {percent(confidence)} each"


def limit(value: Number, unit: str) -> str:
    """A threshold as its author would write it, no trailing zeros: ``200 ms``, ``99.5 %``, ``1.5 s``, ``40/s``."""
    text = human(value, unit, 6)
    number, space, rest = text.partition(" ")
    if not space and number.endswith("/s"):
        number, rest = number[:-2], "/s"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}{space}{rest}"
