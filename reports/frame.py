"""Records as a pandas DataFrame, for notebooks: ``frame`` has one row a request, ``chunk_frame`` one an output chunk.

The only importer of pandas, which is an optional extra. Makes no statistic: a percentile taken here over the columns of
``metrics`` by nearest rank is the one that the report prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.cancelled import PHASES
from plimsoll.slo.records.records import COLUMNS, FloatArray, Records, Stamp, Status, TokensFrom

if TYPE_CHECKING:
    from pandas import DataFrame

_NAMES = (
    ("status", tuple(member.name for member in Status)),
    ("stamp", tuple(member.name.lower() for member in Stamp)),
    ("phase", PHASES),
    ("tokens_from", tuple(member.name.lower() for member in TokensFrom)),
    ("n_in_from", tuple(member.name.lower() for member in TokensFrom)),
)
#: Of these columns -1 is "did not happen" or "not known"; query_id, bytes and the like are always there.
_MAYBE = frozenset(name for name in COLUMNS if name.endswith("_ns") and name != "due_ns") | {
    "n_in",
    "n_out",
    "n_asked",
    "payload_ix",
    "code",
    "worker",
}


class FrameError(RuntimeError):
    """pandas is absent, or a metric can't be a column. The message ends with a next step."""


def frame(records: Records, metrics: Sequence[str] = ("latency", "ttft", "tpot")) -> DataFrame:
    """One row for each of ``records``, warm-up included, in their order, under the column names of requests.parquet.

    Times are integer nanoseconds after t0, missing (``pd.NA``) where they did not happen, never -1; but a warm-up row
    has times before t0, which are negative. Texts are categories. ``metrics`` adds indicators of one value a request as
    columns of float64 in the indicator's unit: ``inf`` for a failed request, ``NaN`` where the indicator does not cover
    it (warm-up rows too). Raises FrameError without pandas or for a metric that is none.
    """
    pandas = _pandas()
    names = dict(_NAMES)
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values = records.columns[name]
        if name in names:
            columns[name] = pandas.Categorical.from_codes(values, categories=list(names[name]))
        elif name in ("error", "server_timing"):
            columns[name] = _texts(pandas, records, name)
        elif name in _MAYBE:
            columns[name] = pandas.arrays.IntegerArray(records[name].copy(), np.asarray(records[name] == -1))
        else:
            columns[name] = np.array(values)
    made = pandas.DataFrame(columns, copy=False)
    for name in metrics:
        made[name] = _metric(records, name)
    return made


def chunk_frame(records: Records) -> DataFrame:
    """One row for each output chunk: ``row`` (the position of its request in ``records``), ``query_id``, ``sample_ix``,
    ``place`` in the answer from 0, ``chunk_ns`` after t0, and ``gap_ns`` since the chunk before (``NA`` for the first).

    48 bytes a chunk: of a run with 50 million, select the requests first.
    """
    pandas = _pandas()
    lengths = np.diff(records.chunk_offsets)
    row = np.repeat(np.arange(len(records)), lengths)
    place = np.arange(len(records.chunk_ns)) - np.repeat(records.chunk_offsets[:-1], lengths)
    gap = np.diff(records.chunk_ns, prepend=0)
    return pandas.DataFrame(
        {
            "row": row,
            "query_id": records["query_id"][row],
            "sample_ix": records["sample_ix"][row],
            "place": place,
            "chunk_ns": np.array(records.chunk_ns),
            "gap_ns": pandas.arrays.IntegerArray(gap, place == 0),
        },
        copy=False,
    )


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise FrameError("pandas is not installed. Install it with: pip install 'plimsoll-slo[notebook]'") from None
    return pandas


def _texts(pandas: Any, records: Records, name: str) -> Any:
    """A category a text; the same text twice in the table is one."""
    found = dict.fromkeys(records.table(name))
    place = {text: index for index, text in enumerate(found)}
    codes = np.array([place[text] for text in records.table(name)] + [-1], np.int64)
    return pandas.Categorical.from_codes(codes[records[name]], categories=list(found))


def _metric(records: Records, name: str) -> FloatArray:
    known = catalogue()
    if name not in known or known[name].scope != "request":
        usable = ", ".join(sorted(name for name, indicator in known.items() if indicator.scope == "request"))
        why = "has many values a request: see chunk_frame" if name in known else "is no indicator"
        raise FrameError(f"{name}: {why}. Give some of: {usable}")
    found = measure(known[name], records)
    values = np.full(len(records), np.nan)
    values[found.row] = found.values
    return values
