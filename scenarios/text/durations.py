"""Durations as people write them, kept as whole nanoseconds.

``500us``, ``200ms``, ``30s``, ``2m``, ``1h``, or a bare number of seconds. No compound forms (``1h30m``), no
months, nothing negative, nothing that is not a number.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
MAX_NS = 366 * 24 * UNITS["h"]

_SHAPE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m|h)?")


def parse_duration(value: Any) -> int:
    """``value`` in nanoseconds, rounded to the nearest. Raises ``ValueError`` with what is allowed."""
    if isinstance(value, str):
        match = _SHAPE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a duration. Write a number and a unit: 500us, 200ms, 30s, 2m or 1h")
        exact = Fraction(match[1]) * UNITS[(match[2] or "s").replace("µ", "u")]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{value} is not a duration. Write a number of seconds from 0 up, or for example 30s")
        exact = Fraction(repr(value)) * UNITS["s"]
    else:
        raise ValueError(f"{value!r} is not a duration. Write for example 30s, 200ms or a number of seconds")
    if exact > MAX_NS:
        raise ValueError(f"{value} is more than a year. Write a shorter duration")
    return round(exact)


def format_duration(ns: int) -> str:
    """The shortest exact spelling: 90000000000 is ``90s``, 60000000000 ``1m``. ``parse_duration`` undoes."""
    if ns == 0:
        return "0s"
    unit = max((size, name) for name, size in UNITS.items() if ns % size == 0)[1]
    return f"{ns // UNITS[unit]}{unit}"


#: A pydantic field that reads a duration and holds nanoseconds.
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m|h)?\s*$"},
                {"type": "number", "minimum": 0},
            ],
            "description": "A duration: 500us, 200ms, 30s, 2m, 1h, or a bare number of seconds.",
        }
    ),
]
