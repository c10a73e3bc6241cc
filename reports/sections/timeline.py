"""Records to a timeline: the run in at most some hundred buckets, so that a person sees when things went
wrong.

Works on whole columns (a million rows, fifty million chunks); the only Python loop is over buckets. Warm-up
rows are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plimsoll.reports.parts.chart_parts import Band, LagBand, Timeline
from plimsoll.reports.parts.parts import MAX_BUCKETS
from plimsoll.reports.sections.chart_data import band, grouped
from plimsoll.slo.records.records import FloatArray, IntArray, Phase, Records, Status

_MS = 1_000_000
_STEPS_MS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
_SLAB = 4_000_000  # chunks taken at a time: bounds the memory, not the result


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Equal buckets from ``start_ns``; the last one takes the remainder, so it is half to one and a half
    wide.
    """

    start_ns: int
    end_ns: int
    width_ns: int
    n: int

    def index(self, times_ns: IntArray) -> IntArray:
        return np.clip((times_ns - self.start_ns) // self.width_ns, 0, self.n - 1)

    def edges(self) -> IntArray:
        inner = self.start_ns + self.width_ns * np.arange(self.n, dtype=np.int64)
        return np.append(inner, self.end_ns)

    def per_s(self, times_ns: IntArray) -> list[float]:
        return self.rates(np.bincount(self.index(times_ns), minlength=self.n).astype(np.float64))

    def rates(self, totals: FloatArray) -> list[float]:
        seconds = np.maximum(np.diff(self.edges()), 1) / 1e9
        return [float(f"{rate:.6g}") for rate in (totals / seconds).tolist()]


def _buckets(start_ns: int, end_ns: int, n: int) -> _Buckets:
    """Buckets wide enough to hold some requests each, and at most ``MAX_BUCKETS`` of them."""
    span = max(end_ns - start_ns, 1)
    target = min(MAX_BUCKETS // 2, max(20, n // 40))
    width = next((step * _MS for step in _STEPS_MS if span <= step * _MS * target), 0)
    if width == 0:
        width = -(-span // target // (600_000 * _MS)) * 600_000 * _MS  # whole ten-minute steps, rounded up
    return _Buckets(start_ns, start_ns + span, width, max(1, round(span / width)))


def timeline(records: Records, values: Mapping[str, tuple[FloatArray, IntArray, str]]) -> Timeline | None:
    """The timeline of the measured rows, or None when nothing was measured.

    ``values`` gives each banded indicator by name: its values, the row each belongs to, and its unit.
    """
    rows = np.flatnonzero(records["phase"] == Phase.MEASURE)
    if len(rows) == 0:
        return None
    due, ready, sent, done, status = (
        records[name][rows] for name in ("due_ns", "ready_ns", "sent_ns", "done_ns", "status")
    )
    start = int(min(0, due.min()))
    end = int(max(due.max(), sent.max(), done.max(), start + 1))
    buckets = _buckets(start, end, len(rows))
    ok, was_sent, was_issued = status == Status.OK, sent >= 0, ready >= 0
    ended = np.where(done >= 0, done, end)
    # A request that waits for a connection is in flight: its user waits as well.
    peak, mean = _in_flight(ready[was_issued], np.maximum(ended, ready)[was_issued], buckets)
    lag = grouped(
        (sent - due)[was_sent].astype(np.float64),
        buckets.index(due[was_sent]),
        buckets.n,
        ("0.5", "0.99", "1"),
    )
    all_due = records["due_ns"]
    bands = {
        name: Band(**dict(zip(("p50", "p99"), band(v, buckets.index(all_due[row]), buckets.n, unit), strict=True)))
        for name, (v, row, unit) in values.items()
    }
    return Timeline(
        bucket_ns=buckets.width_ns,
        start_ns=start,
        end_ns=buckets.end_ns,
        due=np.bincount(buckets.index(due), minlength=buckets.n).tolist(),
        planned_per_s=buckets.per_s(due),
        sent_per_s=buckets.per_s(sent[was_sent]),
        completed_per_s=buckets.per_s(ended[ok]),
        errors_per_s=buckets.per_s(ended[~ok & (status != Status.UNSENT)]),
        in_flight_max=peak,
        in_flight_mean=mean,
        output_tokens_per_s=_tokens(records, rows, buckets),
        bands=bands,
        lag=LagBand(**dict(zip(("p50", "p99", "max"), (_whole(column) for column in lag), strict=True))),
    )


def _whole(column: FloatArray) -> list[int | None]:
    return [None if np.isnan(v) else round(v) for v in column.tolist()]


def _in_flight(sent: IntArray, done: IntArray, buckets: _Buckets) -> tuple[list[int], list[float]]:
    """Most and mean number of requests on the wire per bucket, by an event sweep (departures first on a
    tie).
    """
    if len(sent) == 0:
        return [0] * buckets.n, [0.0] * buckets.n
    # The low bit of the key is the direction, so one sort of int64 orders time and ties at once.
    key = np.sort(np.concatenate((sent * 2 + 1, done * 2)))
    level = np.cumsum((key & 1) * 2 - 1)
    at = key >> 1
    held = np.append(np.diff(at), 0) * level
    area = np.concatenate(([0], np.cumsum(held)[:-1]))  # request-nanoseconds before event i
    edges = buckets.edges()
    last = np.searchsorted(at, edges, side="right") - 1  # last event at or before each edge
    seen = np.maximum(last, 0)
    total = np.where(last >= 0, area[seen] + level[seen] * (edges - at[seen]), 0)
    entering = np.where(last >= 0, level[seen], 0)[:-1]
    peak = entering.copy()
    np.maximum.at(peak, buckets.index(at), level)
    mean = np.diff(total) / np.maximum(np.diff(edges), 1)
    return peak.tolist(), [float(f"{m:.6g}") for m in mean.tolist()]


def _tokens(records: Records, rows: IntArray, buckets: _Buckets) -> list[float] | None:
    """Output tokens per second by arrival; a row's tokens are spread evenly over its chunks. None: no
    tokens.
    """
    n_out, chunks = records["n_out"], np.diff(records.chunk_offsets)
    tokens = np.where(n_out >= 0, n_out, chunks).astype(np.float64)
    measured = np.zeros(len(records), dtype=bool)
    measured[rows] = True
    tokens[~measured] = 0.0
    if not np.any(tokens > 0):
        return None
    totals = np.zeros(buckets.n)
    whole = np.flatnonzero((chunks == 0) & (tokens > 0) & (records["done_ns"] >= 0))
    totals += np.bincount(buckets.index(records["done_ns"][whole]), weights=tokens[whole], minlength=buckets.n)
    weight = tokens / np.maximum(chunks, 1)
    offsets, first = records.chunk_offsets, 0
    while first < len(records):
        last = int(np.searchsorted(offsets, offsets[first] + _SLAB, side="right")) - 1
        last = min(max(last, first + 1), len(records))
        where = buckets.index(records.chunk_ns[offsets[first] : offsets[last]])
        spread = np.repeat(weight[first:last], chunks[first:last])
        totals += np.bincount(where, weights=spread, minlength=buckets.n)
        first = last
    return buckets.rates(totals)
