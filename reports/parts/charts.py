"""The data of every chart, exact and of bounded size: quantile curves, histograms, the timeline, heat map and waits by
prompt length.

Values come in as float64 with +inf for failed requests, which are never left out. Nothing is drawn, fitted or smoothed:
each number can be recomputed from the records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import not_

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import MAX_BUCKETS, MAX_CURVE_POINTS, Number
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.part import NEVER
from plimsoll.slo.parts.wire import Question
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records, Status, TokensFrom
from plimsoll.slo.statistics.distribution import BLOCK, ascending, exact, nearest
from plimsoll.slo.statistics.order import Ordered


class Curve(BaseModel, frozen=True, extra="forbid"):
    """Exact quantiles of one indicator: ``value[i]`` is the nearest-rank quantile at ``q[i]``; null is infinite."""

    unit: str = "ns"
    n: int
    failed: int = 0
    q: list[float]
    value: list[Number]


class Distribution(BaseModel, frozen=True, extra="forbid"):
    """A histogram: ``counts[i]`` values lie in [edges[i], edges[i+1]); ``infinite`` more have no finite value."""

    unit: str = "ns"
    n: int
    edges: list[float]
    counts: list[int]
    infinite: int = 0


class Band(BaseModel, frozen=True, extra="forbid"):
    """Median and 99th percentile per bucket; null: no request, or the percentile is a failed one (see due)."""

    p50: list[Number]
    p99: list[Number]
    failed: list[int] = Field(
        default_factory=list, description="how many are infinite, by bucket; absent: none", exclude_if=not_
    )
    p99_ok: list[Number] = Field(
        default_factory=list, description="p99 of the others; absent: none is infinite", exclude_if=not_
    )


class LagBand(BaseModel, frozen=True, extra="forbid"):
    """Schedule lag per bucket, in nanoseconds."""

    p50: list[int | None]
    p99: list[int | None]
    max: list[int | None]


class Timeline(BaseModel, frozen=True, extra="forbid"):
    """The run in buckets of ``bucket_ns``; bucket i starts at ``start_ns + i * bucket_ns`` after t0.

    Requests are put in the bucket they were due in, except ``completed_per_s``, ``good_per_s`` and ``errors_per_s``
    (the bucket they ended in), ``sent_per_s`` (sent in) and tokens (arrived in). The last bucket may be partial; its
    rates are over the part that lies inside the run.
    """

    bucket_ns: int
    start_ns: int
    end_ns: int
    due: list[int]
    planned_per_s: list[float]
    sent_per_s: list[float]
    completed_per_s: list[float]
    errors_per_s: list[float]
    in_flight_max: list[int]  # empty: rows stayed with agents, and nobody knows
    in_flight_mean: list[float]
    output_tokens_per_s: list[float] | None = None
    good_per_s: list[float] | None = Field(
        default=None, description="of those that completed; absent: nothing was promised of single requests"
    )
    bands: dict[str, Band] = Field(default_factory=dict)
    lag: LagBand


class Heatmap(BaseModel, frozen=True, extra="forbid"):
    """``counts[row][column]`` requests had a value in [edges[row], edges[row + 1]) and were due in column ``column``,
    which begins at ``start_ns + column * column_ns`` after t0; ``failed[column]`` more failed. A null percentile: the
    column is empty, or a failure is that percentile.
    """

    metric: str
    unit: str = "ns"
    column_ns: int
    start_ns: int
    end_ns: int
    n: int
    edges: list[float]
    counts: list[list[int]]
    failed: list[int]
    p50: list[Number]
    p99: list[Number]


class PromptBin(BaseModel, frozen=True, extra="forbid"):
    """Requests whose prompt had ``low`` to ``high`` input tokens, both included; a null percentile is a failed one."""

    low: int
    high: int
    n: int
    failed: int = 0
    p50: Number = None
    p90: Number = None
    p99: Number = None


class ByPrompt(BaseModel, frozen=True, extra="forbid"):
    """One metric by prompt length. ``points``: (input tokens, value) of some requests, evenly taken in order of due
    time, and of the slowest of each bin.
    """

    metric: str
    unit: str = "ns"
    n: int
    unknown: int = Field(default=0, description="measured requests whose prompt length nobody told")
    planned: bool = Field(default=False, description="lengths are the plan's, because the server counted none")
    bins: list[PromptBin]
    points: list[tuple[int, Number]]


class BurnTimeline(BaseModel, frozen=True, extra="forbid"):
    """The run in equal parts, at most 300: ``burn[i]`` is the burn rate of the entries due in the part that ends at
    ``end_ns[i]`` (null: there were none), ``spent[i]`` the share of the period's budget that is spent by then.
    """

    start_ns: int = 0
    end_ns: list[int] = Field(default_factory=list)
    burn: list[float | None] = Field(default_factory=list)
    spent: list[float] = Field(default_factory=list)


class Charts(BaseModel, frozen=True, extra="forbid"):
    """The data of every chart, of bounded size."""

    curves: dict[str, Curve] = Field(default_factory=dict)
    distributions: dict[str, Distribution] = Field(default_factory=dict)
    timeline: Timeline | None = None
    heatmap: Heatmap | None = None
    by_prompt: ByPrompt | None = None


#: A small number for each value: its stretch of time, its bin.
Groups = npt.NDArray[np.int16]

_BINS = 48
_USUAL = ("0.25", "0.5", "0.75", "0.9", "0.95", "0.99", "0.999", "0.9999", "0.99999", "0.999999")


def number(value: float, unit: str) -> Number:
    """A float as ``report.json`` writes it: None for an infinity or NaN, an int for nanoseconds."""
    if not np.isfinite(value):
        return None
    return round(value) if unit == "ns" else float(value)


def curve(ordered: Ordered, unit: str) -> Curve:
    """Quantiles of ``ordered`` (ascending, +inf last), evenly spread over log(1/(1-q)) as tails are read.

    Point i is the exact nearest-rank quantile: ``q = rank / n``, ``value = ordered[rank - 1]``. At most
    ``MAX_CURVE_POINTS`` points, always with the first, the last, the usual percentiles and the last finite one.
    """
    n = len(ordered)
    if n == 0:
        return Curve(unit=unit, n=0, q=[], value=[])
    ranks = curve_ranks(ordered)
    return Curve(
        unit=unit,
        n=n,
        failed=n - int(ordered.searchsorted(np.inf)),
        q=[int(rank) / n for rank in ranks],
        value=[number(v, unit) for v in ordered[ranks - 1].tolist()],
    )


def curve_ranks(ordered: Ordered) -> IntArray:
    """The ranks, from 1, of a curve's points."""
    n, finite = len(ordered), int(ordered.searchsorted(np.inf))
    room = MAX_CURVE_POINTS - len(_USUAL) - 3
    spread = 1.0 - np.power(10.0, -np.linspace(0.0, np.log10(n), room)) if n > 1 else np.zeros(1)
    usual = [-(-(exact(p) * n) // 1) for p in _USUAL]
    return np.unique(np.clip(np.concatenate((np.ceil(spread * n), usual, [1, n, finite])).astype(np.int64), 1, n))


#: Of the median: less than that has no bin of its own.
_LEAST_SHOWN = 1e-3


def distribution(ordered: Ordered, unit: str) -> Distribution:
    """A histogram of the finite part of ``ordered`` (ascending) in bins of equal ratio from least to greatest.

    A few values near nothing (two tokens of one chunk have a gap of 0) would stretch it over decades without a bar:
    what lies below a thousandth of the median is in the first bin.
    """
    n, finite = len(ordered), int(ordered.searchsorted(np.inf))
    infinite = n - finite
    if finite == 0:
        return Distribution(unit=unit, n=n, edges=[], counts=[], infinite=infinite)
    floor = 1.0 if unit == "ns" else 1e-9
    least, middle, most = ordered[np.array([0, finite // 2, finite - 1])].tolist()
    floor = max(floor, middle * _LEAST_SHOWN)
    low, high = max(least, floor), max(most, floor)
    if high <= low * 1.02:
        low, high = low * 0.99, high * 1.01
    bins = min(_BINS, max(8, int(np.sqrt(finite) * 1.5)))
    edges = np.geomspace(low, high, bins + 1)
    # Positions of the edges in sorted data give the counts without a second pass over the values.
    places = ordered.searchsorted(edges)
    places[0], places[-1] = 0, finite
    return Distribution(
        unit=unit,
        n=n,
        edges=[float(f"{edge:.9g}") for edge in edges],
        counts=np.diff(places).tolist(),
        infinite=infinite,
    )


def banded(values: FloatArray, group: Groups, groups: int, unit: str) -> Band:
    """Median and p99 of ``values`` per ``group``, and p99 of the finite ones where some are not."""
    p50, p99 = band(values, group, groups, unit)
    lost = np.isinf(values)
    if not lost.any():
        return Band(p50=p50, p99=p99)
    failed = np.bincount(group[lost], minlength=groups).tolist()
    return Band(p50=p50, p99=p99, failed=failed, p99_ok=band(values[~lost], group[~lost], groups, unit)[1])


def band(values: FloatArray, group: Groups, groups: int, unit: str) -> tuple[list[Number], list[Number]]:
    """Nearest-rank p50 and p99 of ``values`` per ``group`` (0..groups-1); None where a group is empty."""
    columns = grouped(values, group, groups, ("0.5", "0.99"))
    low, high = ([number(v, unit) for v in column.tolist()] for column in columns)
    return low, high


def grouped(values: FloatArray, group: Groups, groups: int, q: tuple[str, ...]) -> list[FloatArray]:
    """Nearest-rank quantiles per group, NaN where empty. Loops over groups (at most some hundreds), never rows."""
    result = [np.full(groups, np.nan) for _ in q]
    for index, part in enumerate(parted(values, group, groups)):
        if len(part):
            ranks = nearest(len(part), q)
            part.partition(sorted(set(ranks)))
            for column, rank in zip(result, ranks, strict=True):
                column[index] = part[rank]
    return result


def parted(values: FloatArray, group: Groups, groups: int) -> list[FloatArray]:
    """A copy of the values of each group (0..groups-1), in their order."""
    sizes = np.bincount(group, minlength=groups)
    ends, made = np.cumsum(sizes), np.empty_like(values)
    place = ends - sizes  # where the next one of each group goes
    for first in range(0, len(values), BLOCK):
        part = group[first : first + BLOCK]
        order = np.argsort(part, kind="stable")  # of 16 bits: two passes
        here = np.bincount(part, minlength=groups)
        made[np.repeat(place - np.cumsum(here) + here, here) + np.arange(len(part))] = values[first:][order]
        place += here
    return np.split(made, ends[:-1])


# -- the run in buckets of time ---------------------------------------------------------------------------------------

_MS = 1_000_000
_STEPS_MS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
_SLAB = 500_000  # chunks taken at a time: bounds the memory, not the result


def placed(times_ns: IntArray, start_ns: int, width_ns: int, n: int) -> Groups:
    """int16[m]: which of ``n`` equal stretches of time each moment is in; the first and the last take the others."""
    found = np.empty(len(times_ns), np.int16)
    for first in range(0, len(times_ns), BLOCK):
        place = times_ns[first : first + BLOCK] - start_ns
        place //= width_ns
        found[first : first + BLOCK] = np.clip(place, 0, n - 1, out=place)
    return found


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Equal buckets from ``start_ns``; the last one takes the remainder, so it is half to one and a half wide."""

    start_ns: int
    end_ns: int
    width_ns: int
    n: int

    def index(self, times_ns: IntArray) -> Groups:
        return placed(times_ns, self.start_ns, self.width_ns, self.n)

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


def buckets_of(rows: Records) -> _Buckets:
    """The buckets of a timeline of these rows, of which there is one at least."""
    due, sent, done = (rows[name] for name in ("due_ns", "sent_ns", "done_ns"))
    start = int(min(0, due.min()))
    return _buckets(start, int(max(due.max(), sent.max(), done.max(), start + 1)), len(rows))


def timeline(
    records: Records, values: Mapping[str, tuple[FloatArray, IntArray, str]], good: BoolArray | None = None
) -> Timeline | None:
    """The timeline of the measured rows, or None when nothing was measured.

    ``values`` gives each banded indicator by name: its values, the row each belongs to, and its unit; ``good``
    bool[records]: the request kept all that was promised of it.
    """
    rows = records.measured()
    if len(rows) == 0:
        return None
    due, ready, sent, done = (rows[name] for name in ("due_ns", "ready_ns", "sent_ns", "done_ns"))
    buckets = buckets_of(rows)
    start, end = buckets.start_ns, buckets.end_ns
    ok, was_sent, was_issued = rows.ok, sent >= 0, ready >= 0
    ended = np.where(done >= 0, done, end)
    # A request that waits for a connection is in flight: its user waits as well.
    peak, mean = _in_flight(ready[was_issued], np.maximum(ended, ready)[was_issued], buckets)
    lag = grouped(
        (sent - due)[was_sent].astype(np.float64), buckets.index(due[was_sent]), buckets.n, ("0.5", "0.99", "1")
    )
    all_due = records["due_ns"]
    bands = {}
    for name, (v, row, unit) in values.items():
        bands[name] = banded(v, buckets.index(all_due[row]), buckets.n, unit)
    return Timeline(
        bucket_ns=buckets.width_ns,
        start_ns=start,
        end_ns=buckets.end_ns,
        due=np.bincount(buckets.index(due), minlength=buckets.n).tolist(),
        planned_per_s=buckets.per_s(due),
        sent_per_s=buckets.per_s(sent[was_sent]),
        completed_per_s=buckets.per_s(ended[ok]),
        errors_per_s=buckets.per_s(ended[~ok & (rows.columns["status"] != Status.UNSENT)]),
        in_flight_max=peak,
        in_flight_mean=mean,
        output_tokens_per_s=_tokens(rows, buckets),
        good_per_s=None if good is None else buckets.per_s(ended[good[records.in_measure]]),
        bands=bands,
        lag=LagBand(**dict(zip(("p50", "p99", "max"), (_whole(column) for column in lag), strict=True))),
    )


def timeline_of_parts(rows: Rows) -> Timeline | None:
    """The same of rows that lie in parts, without what does not add up (bands, percentiles, the most in flight) and
    tokens.
    """
    told, n = rows.tally, rows.tally.whole("+measured")
    if not n:
        return None
    start = min(0, int(told["<due"][0]))
    buckets = _buckets(start, max(int(told[">over"][0]), int(told[">sent"][0]), start + 1), n)
    edges = buckets.edges()
    said = rows.ask(Question("timeline", rows.of, {"edges": edges}))
    planned, sent, completed, errors = (buckets.rates(one.astype(np.float64)) for one in said["+counts"])
    flying = said["+flying"] / np.maximum(np.diff(edges), 1)
    unknown: list[int | None] = [None] * buckets.n
    return Timeline(
        bucket_ns=buckets.width_ns,
        start_ns=start,
        end_ns=buckets.end_ns,
        due=said["+counts"][0].tolist(),
        planned_per_s=planned,
        sent_per_s=sent,
        completed_per_s=completed,
        errors_per_s=errors,
        in_flight_max=[],
        in_flight_mean=[float(f"{mean:.6g}") for mean in flying.tolist()],
        lag=LagBand(p50=unknown, p99=unknown, max=[None if one == NEVER else one for one in said[">late"].tolist()]),
    )


def _whole(column: FloatArray) -> list[int | None]:
    return [None if np.isnan(v) else round(v) for v in column.tolist()]


def _in_flight(sent: IntArray, done: IntArray, buckets: _Buckets) -> tuple[list[int], list[float]]:
    """Most and mean number of requests on the wire per bucket (departures first on a tie)."""
    if len(sent) == 0:
        return [0] * buckets.n, [0.0] * buckets.n
    starts, ends, edges = ascending(sent), ascending(done), buckets.edges()
    come, gone = starts.searchsorted(edges, "right"), ends.searchsorted(edges, "right")
    # Request-nanoseconds up to each edge: what began there less what was over, each until the edge.
    total = come * edges - _sums(starts, come) - (gone * edges - _sums(ends, gone))
    peak = (come - gone)[:-1]
    # It is highest after an arrival, or where the first of several departures is at the very beginning of a bucket.
    before = starts.searchsorted(edges[1:-1]) - ends.searchsorted(edges[1:-1])
    leaves = ends.searchsorted(edges[1:-1]) < gone[1:-1]
    peak[1:] = np.where(leaves, np.maximum(peak[1:], before - 1), peak[1:])
    begins = np.append(0, starts.searchsorted(edges[1:-1]))
    for index, (first, last) in enumerate(zip(begins.tolist(), [*begins[1:].tolist(), len(starts)], strict=True)):
        for at in range(first, last, BLOCK):
            until = min(at + BLOCK, last)
            level = np.arange(at + 1, until + 1) - ends.searchsorted(starts[at:until], "right")
            peak[index] = max(peak[index], int(level.max()))
    mean = np.diff(total) / np.maximum(np.diff(edges), 1)
    return peak.tolist(), [float(f"{m:.6g}") for m in mean.tolist()]


def _sums(times: IntArray, ends: IntArray) -> IntArray:
    """The sum of the first so many times, for each of ``ends`` (ascending)."""
    parts = zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True)
    return np.cumsum(np.array([times[first:last].sum() for first, last in parts], np.int64))


def _tokens(records: Records, buckets: _Buckets) -> list[float] | None:
    """Output tokens per second by arrival; a row's tokens are spread evenly over its chunks. None: no tokens."""
    n_out, chunks = records["n_out"], np.diff(records.chunk_offsets)
    tokens = np.where(n_out >= 0, n_out, chunks).astype(np.float64)
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
        where = buckets.index(records.chunks.part(first, last))
        spread = np.repeat(weight[first:last], chunks[first:last])
        totals += np.bincount(where, weights=spread, minlength=buckets.n)
        first = last
    return buckets.rates(totals)


# -- a heat map: how one latency was distributed in each stretch of the run -------------------------------------------

#: Cells: at most so many columns of time and rows of values.
MAX_COLUMNS = 120
MAX_ROWS = 36
#: Requests that a column should hold, so that its colours mean something.
_PER_COLUMN = 12


def heatmap(name: str, values: FloatArray, due_ns: IntArray, unit: str, timeline: Timeline) -> Heatmap | None:
    """The map of ``values`` (+inf for failures) by when each was due, its columns whole buckets of ``timeline``.

    None where there is no finite value.
    """
    finite = np.isfinite(values)
    number_of = int(np.count_nonzero(finite))
    if not number_of:
        return None
    together = _buckets_a_column(len(values), len(timeline.due))
    width, columns = timeline.bucket_ns * together, -(-len(timeline.due) // together)
    column = placed(due_ns, timeline.start_ns, width, columns)
    least, most = float(values.min(where=finite, initial=np.inf)), float(values.max(where=finite, initial=-np.inf))
    edges = _edges(number_of, least, most, unit)
    rows = len(edges) - 1
    counts = np.zeros(rows * columns, np.int64)
    for first in range(0, len(values), BLOCK):
        part = slice(first, first + BLOCK)
        place = _rows(values[part][finite[part]], edges) * columns + column[part][finite[part]]
        counts += np.bincount(place, minlength=rows * columns)
    p50, p99 = band(values, column, columns, unit)
    return Heatmap(
        metric=name,
        unit=unit,
        column_ns=width,
        start_ns=timeline.start_ns,
        end_ns=timeline.end_ns,
        n=len(values),
        edges=[float(f"{edge:.6g}") for edge in edges],
        counts=counts.reshape(rows, columns).tolist(),
        failed=np.bincount(column[~finite], minlength=columns).tolist(),
        p50=p50,
        p99=p99,
    )


def _buckets_a_column(n: int, buckets: int) -> int:
    """How many buckets of the timeline make a column that holds enough requests, of at most ``MAX_COLUMNS``."""
    columns = min(MAX_COLUMNS, max(8, n // _PER_COLUMN), buckets)
    return -(-buckets // max(columns, 1))


def _rows(finite: FloatArray, edges: FloatArray) -> IntArray:
    """Which two edges of equal ratio each value lies between, the lower one included; the nearest ones, if none."""
    last = len(edges) - 2
    step = np.log(edges[-1] / edges[0]) / (last + 1)
    guess: IntArray = (np.log(np.clip(finite, edges[0], edges[-1]) / edges[0]) / step).astype(np.int64)
    np.clip(guess, 0, last, out=guess)
    guess += finite >= edges[guess + 1]  # logarithms may be off by a rounding error
    guess -= finite < edges[guess]
    np.clip(guess, 0, last, out=guess)
    return guess


def _edges(n: int, least: float, most: float, unit: str) -> FloatArray:
    """Edges of equal ratio from the least to the greatest of n values; fewer rows for few or a narrow range."""
    floor = 1.0 if unit == "ns" else 1e-9
    low, high = max(least, floor), max(most, floor)
    if high < low * 1.1:
        low, high = low * 0.95, high * 1.05
    rows = int(min(MAX_ROWS, max(8, np.sqrt(n) * 1.5)))
    edges = np.geomspace(low, high, rows + 1)
    # Rounded outwards, because what is written are six digits and no value may lie outside of them.
    edges[0], edges[-1] = edges[0] * (1 - 1e-5), edges[-1] * (1 + 1e-5)
    return np.asarray(edges)


# -- the wait for an answer by the length of its prompt ---------------------------------------------------------------

MAX_BINS = 12
MAX_POINTS = 300
#: Requests that a bin should hold on average, and the ratio of lengths below which there is nothing to compare.
_PER_BIN = 8
_VARIES = 1.25


def by_prompt(name: str, values: FloatArray, row: IntArray, unit: str, records: Records) -> ByPrompt | None:
    """``values[i]`` (+inf for a failure) belongs to row ``row[i]``. None where lengths are unknown or hardly vary."""
    lengths = prompt_lengths(records)[row]
    known = lengths > 0
    if not known.any():
        return None
    n_in, found = lengths[known], values[known]
    low, high = int(n_in.min()), int(n_in.max())
    if high < low * _VARIES:
        return None
    bounds = _bounds(low, high, len(n_in))
    place = (np.searchsorted(bounds, n_in, side="right") - 1).astype(np.int16)
    bins, slowest = [], []
    for index, part in enumerate(parted(found, place, len(bounds))):
        if len(part):
            top = high if index == len(bounds) - 1 else int(bounds[index + 1]) - 1
            bins.append(_bin(int(bounds[index]), top, part, unit))
            most = part.max(where=np.isfinite(part), initial=-np.inf)  # the last one of several; the first failed one
            slowest.append(
                np.flatnonzero((place == index) & (found == most))[-1]
                if np.isfinite(most)
                else np.flatnonzero(place == index)[0]
            )
    picked = np.unique(np.concatenate((_even(len(found), MAX_POINTS - len(slowest)), np.array(slowest))))
    return ByPrompt(
        metric=name,
        unit=unit,
        n=len(found),
        unknown=int(np.count_nonzero(~known)),
        planned=lengths_planned(records),
        bins=bins,
        points=[(int(n_in[i]), number(float(found[i]), unit)) for i in picked if np.isfinite(found[i])],
    )


def prompt_lengths(records: Records) -> IntArray:
    """int64[n]: input tokens of each row as the server counted them, -1 where unknown.

    A row that failed takes the count of a success with the same payload: its own is at best an estimate of ours, in
    other tokens than the server's. Where no success was counted, all rows have the plan's lengths
    (``lengths_planned``).
    """
    n_in, payload = records["n_in"], records["payload_ix"]
    if lengths_planned(records):
        return n_in
    ok = records.ok & (records["n_in_from"] != TokensFrom.PLAN)
    told = ok & (n_in >= 0) & (payload >= 0)
    if ok.all() or not told.any():
        return np.where(ok, n_in, -1)
    known, first = np.unique(payload[told], return_index=True)
    lost = np.flatnonzero(~ok)
    at = np.minimum(np.searchsorted(known, payload[lost]), len(known) - 1)
    filled = n_in.copy()
    filled[lost] = np.where(known[at] == payload[lost], n_in[told][first][at], -1)
    return filled


def lengths_planned(records: Records) -> bool:
    """No server counted any: the lengths there are, are the plan's."""
    known = records["n_in_from"][records.ok & (records["n_in"] >= 0)]
    return len(known) > 0 and bool((known == TokensFrom.PLAN).all())


def _bounds(low: int, high: int, n: int) -> IntArray:
    """First length of each bin: equal ratios, whole numbers, no two alike."""
    bins = min(MAX_BINS, max(2, n // _PER_BIN))
    return np.unique(np.floor(np.geomspace(low, high + 1, bins + 1)[:-1] + 1e-9).astype(np.int64))


def _bin(low: int, high: int, values: FloatArray, unit: str) -> PromptBin:
    ranks = nearest(len(values), ("0.5", "0.9", "0.99"))
    values.partition(sorted(set(ranks)))
    p50, p90, p99 = (number(float(values[rank]), unit) for rank in ranks)
    failed = int(np.count_nonzero(np.isinf(values)))
    return PromptBin(low=low, high=high, n=len(values), failed=failed, p50=p50, p90=p90, p99=p99)


def _even(n: int, at_most: int) -> IntArray:
    """At most so many positions of 0..n-1, evenly apart."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))
