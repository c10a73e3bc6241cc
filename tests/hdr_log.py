"""A reader of HdrHistogram interval logs (.hlog), for what the product writes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from plimsoll.slo.statistics.distribution import HdrConfig, IntArray, Interval, Log, decode

_LINE = re.compile(r"(?:Tag=([^,\s]+),)?([\d.]+),([\d.]+),([\d.]+),(\S+)")
_STAMP = re.compile(r"#\[(StartTime|BaseTime): *([\d.]+) ")
_YEAR_S = 365 * 24 * 3600.0


def read(text: str) -> Log:
    """Parse a log of any HdrHistogram writer. Interval times come back relative to the start time.

    Without a base time, times more than a year before the start time are taken as relative to it and others
    as absolute (the Java reader's rule). Raises ValueError naming the line.
    """
    stamps: dict[str, float] = {}
    rows: list[tuple[str | None, float, float, IntArray, HdrConfig]] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _STAMP.match(line)
        if found:
            stamps[found[1]] = float(found[2])
        if not line or line.startswith(("#", '"')):
            continue
        parts = _LINE.fullmatch(line)
        if not parts:
            raise ValueError(f"line {number}: not an interval; wants [Tag=t,]start,length,max,histogram")
        try:
            counts, config = decode(parts[5])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        rows.append((parts[1], float(parts[2]), float(parts[3]), counts, config))
    first = rows[0][1] if rows else 0.0
    start = stamps.get("StartTime", first)
    base = stamps.get("BaseTime", start if first < start - _YEAR_S else 0.0)
    return Log(start, tuple(_intervals(rows, base - start)))


def _intervals(rows: list[tuple[str | None, float, float, IntArray, HdrConfig]], shift_s: float) -> Iterable[Interval]:
    for tag, start_s, length_s, counts, config in rows:
        yield Interval(start_s + shift_s, length_s, counts, config, tag)
