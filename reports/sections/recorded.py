"""The ``recorded`` part of a report: how long the requests of a replay took when they were recorded, and how long now.

Whole and by the hour of the recording. A request that failed took for ever, then as now; one whose time nobody recorded
is left out on both sides. Nothing here is judged: who recorded may have begun to count elsewhere, and had other load.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Row, Section, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.statistics.distribution import quantile

_HOUR_NS = 3_600_000_000_000
#: Hours that a page shows; report.json has all.
_SHOWN = 48
_NAMES = ("at_ns", "status", "latency_ns", "ttft_ns")
FloatArray = npt.NDArray[np.float64]
#: Times then and now, and of which requests they count.
Pair = tuple[FloatArray, FloatArray, BoolArray]


class Side(BaseModel, frozen=True, extra="forbid"):
    """Nearest rank, in ns; null: infinite."""

    p50: Number = None
    p90: Number = None
    p99: Number = None


class Both(BaseModel, frozen=True, extra="forbid"):
    """The same requests, then and now."""

    n: int
    recorded: Side
    replayed: Side


class Hour(BaseModel, frozen=True, extra="forbid"):
    """``hour`` 0 begins with the recording's first request; null: the whole of it."""

    hour: int | None = None
    latency: Both | None = None
    ttft: Both | None = None


class Recorded(BaseModel, frozen=True, extra="forbid"):
    """Latencies as they were recorded and as they were in this run, of the requests that have both."""

    whole: Hour = Hour()
    hours: list[Hour] = Field(default_factory=list)


def recorded_part(run: JudgedRun) -> Recorded | None:
    """None: nobody recorded any."""
    known = run.originals
    if known is None:
        return None
    rows = run.records
    at, here = _places(rows, known)
    row = np.flatnonzero(here & rows.in_measure)  # a warm-up counts its queries from 0 again
    row = row[np.argsort(known["at_ns"][at[row]] // _HOUR_NS, kind="stable")]
    known, ok, due = {name: known[name][at[row]] for name in _NAMES}, rows.ok[row], rows["due_ns"][row]
    failed = ~np.isin(known["status"], (-1, 0))
    pairs: dict[str, Pair] = {}
    for name, to in (("latency", "done_ns"), ("ttft", "first_token_ns")):
        then = np.where(failed, np.inf, known[f"{name}_ns"].astype(np.float64))
        ended = rows[to][row]
        now = np.where(ok & (ended >= 0), (ended - due).astype(np.float64), np.inf)
        pairs[name] = then, now, failed | (known[f"{name}_ns"] >= 0)
    whole = _hour(None, pairs, slice(None))
    if whole.latency is None and whole.ttft is None:
        return None
    hours, begins = np.unique(known["at_ns"] // _HOUR_NS, return_index=True)
    ends = np.append(begins[1:], len(row))
    some = zip(hours.tolist(), map(slice, begins.tolist(), ends.tolist()), strict=True)
    return Recorded(whole=whole, hours=[_hour(hour, pairs, part) for hour, part in some])


def _places(rows: Records, known: Mapping[str, IntArray]) -> tuple[IntArray, BoolArray]:
    """Where in the columns each row is, and whether it is there."""
    width = int(max(known["sample_ix"].max(initial=0), rows["sample_ix"].max(initial=0))) + 1
    keys, own = (columns["query_id"] * width + columns["sample_ix"] for columns in (known, rows))
    at = np.minimum(np.searchsorted(keys, own), max(len(keys) - 1, 0))
    return at, keys[at] == own if len(keys) else np.zeros(len(own), np.bool_)


def _hour(hour: int | None, pairs: Mapping[str, Pair], of: slice) -> Hour:
    sides = {name: _both(then[of][kept[of]], now[of][kept[of]]) for name, (then, now, kept) in pairs.items()}
    return Hour(hour=hour, latency=sides["latency"], ttft=sides["ttft"])


def _both(then: FloatArray, now: FloatArray) -> Both | None:
    if not len(then) or not np.isfinite(then).any():
        return None
    return Both(n=len(then), recorded=_side(then), replayed=_side(now))


def _side(values: FloatArray) -> Side:
    ordered = np.sort(values)
    p50, p90, p99 = (number(quantile(ordered, q), "ns") for q in ("0.5", "0.9", "0.99"))
    return Side(p50=p50, p90=p90, p99=p99)


def blocks(found: Recorded, _report: object) -> list[Block]:
    """A table of each metric: the whole, and the hours where there are several."""
    several = found.hours if len(found.hours) > 1 else []
    tables = [_table(name, title, found.whole, several) for name, title in (("latency", "Latency"), ("ttft", "TTFT"))]
    return [Section("As recorded, and now", [Card([one for one in tables if one.rows])])]


def _table(name: str, title: str, whole: Hour, hours: Sequence[Hour]) -> Table:
    columns = [Column("hour", right=False, titled="Hour of the recording", names=True), Column("n")]
    columns += [Column(f"{side} {p}", folds=True) for p in ("p50", "p90", "p99") for side in ("recorded", "now")]
    rows = []
    for one in (whole, *hours[:_SHOWN]):
        both: Both | None = getattr(one, name)
        if both is not None:
            figures = [getattr(side, p) for p in ("p50", "p90", "p99") for side in (both.recorded, both.replayed)]
            label = "all" if one.hour is None else str(one.hour)
            rows.append(Row([label, units.count(both.n), *(units.human(value, "ns") for value in figures)]))
    left = len(hours) - _SHOWN
    fine = f"{units.many(left, 'more hour')} in report.json. " if left > 0 else ""
    said = "The recorded times are those of whoever recorded them, under the load of then."
    return Table(columns, rows, title=f"{title} as recorded, and now", fine=f"{fine}{said}")


SECTION = ReportSection("recorded", 88, recorded_part, blocks)
