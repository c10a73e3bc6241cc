"""Durations as people write them (``50ms``) to integer nanoseconds. Knows no other unit than time."""

from __future__ import annotations

import re
from decimal import Decimal

_UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*")


def parse_duration_ns(text: str) -> int:
    """Nanoseconds in ``text``: a number and a unit (ns, us, ms, s, m).

    Raises ValueError when the text isn't such a pair.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or match.group(2) not in _UNIT_NS:
        raise ValueError(f"{text!r} is no duration. Write a number and a unit, e.g. 50ms; units: {', '.join(_UNIT_NS)}")
    return int(Decimal(match.group(1)) * _UNIT_NS[match.group(2)])
