"""What counts against ``ratio(good)``, ``ratio(error)`` and ``ratio(frame_missed)``, one entry at a time.

The first two are shares of requests, the last one of frames: queries with a deadline. Nothing is judged here.
"""

from __future__ import annotations

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import BoolArray, IntArray, Records


def against(name: str, records: Records, good: BoolArray) -> tuple[BoolArray, IntArray]:
    """(bad bool[m], row int64[m]): of every entry whether it counts against the ratio, and its record, ascending.

    ``good`` bool[records] is the goodput's. Frames without a deadline are no entries.
    """
    if name == "frame_missed":
        found = measure(catalogue()[name], records)
        return found.values > 0, found.row
    rows = np.flatnonzero(records.in_measure)
    return ~(good if name == "good" else records.ok)[rows], rows


def entries(name: str) -> str:
    """What the ratio is a share of, for people."""
    return "frames" if name == "frame_missed" else "requests"


def failing(name: str) -> str:
    """What an entry that counts against it is, for people."""
    return {"error": "failed", "good": "not good", "frame_missed": "missed their deadline"}[name]
