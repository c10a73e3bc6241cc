"""HdrHistogram interval logs (.hlog): one histogram per interval of a run, as other tools read them.

Text, format 1.3 of the Java HistogramLogWriter: comment lines with start and base time, a legend, then
``[Tag=name,]start_s,length_s,max,base64``. Written here, because the Python package's writer raises on the
start time, floor-divides the maximum and writes no tag. Nothing here measures or opens files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from plimsoll.slo.statistics.distribution import DEFAULT_HDR, HdrConfig, IntArray, decode, encode, hdr_max

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
_LINE = re.compile(r"(?:Tag=([^,\s]+),)?([\d.]+),([\d.]+),([\d.]+),(\S+)")
_STAMP = re.compile(r"#\[(StartTime|BaseTime): *([\d.]+) ")
_YEAR_S = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Counts of the values recorded in ``start_s``..``start_s + length_s``, seconds after the log's start."""

    start_s: float
    length_s: float
    counts: IntArray
    config: HdrConfig = DEFAULT_HDR
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A whole interval log; ``start_epoch_s`` is the run's start in seconds since 1970."""

    start_epoch_s: float
    intervals: tuple[Interval, ...]


def write(log: Log, unit_ratio: float = 1e6) -> str:
    """The log as text; ``unit_ratio`` scales the printed maximum (1e6: nanoseconds to milliseconds).

    Raises ValueError for a tag with a comma or white space, or an interval before the start.
    """
    return "".join(lines(log.start_epoch_s, log.intervals, unit_ratio))


def lines(start_epoch_s: float, intervals: Iterable[Interval], unit_ratio: float = 1e6) -> Iterator[str]:
    """What ``write`` writes, a line at a time: a long run's counts need not all be in memory at once."""
    started = datetime.fromtimestamp(start_epoch_s, UTC).isoformat(sep=" ", timespec="milliseconds")
    yield "#[Histogram log format version 1.3]\n"
    yield f"#[StartTime: {start_epoch_s:.3f} (seconds since epoch), {started}]\n"
    yield f"#[BaseTime: {start_epoch_s:.3f} (seconds since epoch)]\n"
    yield _LEGEND + "\n"
    for interval in intervals:
        yield _line(interval, unit_ratio) + "\n"


def _line(interval: Interval, unit_ratio: float) -> str:
    if interval.tag is not None and not re.fullmatch(r"[^,\s]+", interval.tag):
        raise ValueError(f"tag {interval.tag!r}: no commas or white space; use letters, digits and _")
    if interval.start_s < 0 or interval.length_s < 0:
        raise ValueError(f"interval at {interval.start_s} s: starts before the log; give seconds after its start")
    tag = f"Tag={interval.tag}," if interval.tag is not None else ""
    top = hdr_max(interval.counts, interval.config) / unit_ratio
    blob = encode(interval.counts, interval.config)
    return f"{tag}{interval.start_s:.3f},{interval.length_s:.3f},{top:.3f},{blob}"


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
