"""What can be measured: one ``Indicator`` per file of ``slo/indicators/``, and how one is measured over records.

An indicator reads only stamps and counts. What a failed request contributes is decided here, once, for all of
them: failure is worst, not absent. Nothing here aggregates or judges.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from plimsoll.slo.metrics.plugin import PluginError, announced, guarded, loaded, misfit
from plimsoll.slo.records.queries import representatives, together
from plimsoll.slo.records.records import (
    COLUMNS,
    PLANNED,
    RAGGED,
    SESSION_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    Records,
)

#: So many gaps may be made up for failed requests in any case.
_PLENTY = 1_000_000

#: What one value belongs to: a request; the step between two of its chunks; a word of its reference that was heard; a
#: frame of audio that was sent; a transcript that came while audio was going out; a query of several samples.
Scope = Literal["request", "gap", "word", "frame", "interim", "query"]
#: Where a table shows a metric: what an answer takes, what speech does, others by name, what explains them.
Group = Literal["answer", "speech", "other", "last"]
#: The chart of percentiles that a metric has a line in.
Chart = Literal["", "answer", "live", "sound", "pace"]
#: The same for people.
ENTRIES: Mapping[Scope, str] = MappingProxyType(
    {
        "request": "request",
        "gap": "gap between chunks",
        "word": "word",
        "frame": "frame",
        "interim": "interim transcript",
        "query": "query",
    }
)
_LISTED: Mapping[Scope, str] = MappingProxyType({"word": "word_lag_ns", "frame": "frame_lag_ns"})


class OnFailure(Enum):
    """What a request that did not succeed contributes to an indicator."""

    WORST = "ranks as the worst value, whatever it was doing when it failed"
    WORST_IF_ABSENT = "its real value if it got that far, otherwise the worst"
    AS_IS = "its real value if it got that far, otherwise nothing"


@dataclass(frozen=True, slots=True)
class Indicator:
    """One metric.

    ``compute(records)`` gives ``(values float64, valid bool)``: one entry per record (scope ``request``, and ``query``,
    where all rows of a query have its value) or one per entry of a list that each record has, records in order (the
    other scopes, see ``entry_rows``). It looks at no status; invalid entries are unspecified. ``needs`` names the
    columns it reads (``chunk_ns`` for chunk arrivals). ``unit`` is ``ns``, ``per_s`` or ``1``. ``worst`` is what a
    failure ranks as: +inf, or 0 where more is better. ``outside`` marks successful records that the definition does not
    cover; they satisfy a limit on a single request. ``awaited``: what a user waits for; a success that never brought
    it, in a run where others did, ranks as the worst too, unless it is outside.

    ``from_due``: a time that begins when the request was due, so that what is above a limit is later than it.

    How it is shown: ``title``, and ``short`` for the end of a line; ``group`` and ``rank``, its place in tables;
    ``chart``, the chart of percentiles that has a line of it ("": none); ``drawn``: its distribution and its course are
    drawn too. ``foreign``: of an outside package; set where it is found.
    """

    name: str
    needs: tuple[str, ...]
    formula: str
    source: str
    summary: str
    compute: Callable[[Records], tuple[FloatArray, BoolArray]]
    unit: Literal["ns", "per_s", "1"] = "ns"
    better: Literal["lower", "higher"] = "lower"
    scope: Scope = "request"
    on_failure: OnFailure = OnFailure.WORST
    outside: Callable[[Records], BoolArray] | None = None
    awaited: bool = False
    from_due: bool = False
    title: str = ""
    short: str = ""
    group: Group = "other"
    rank: int = 0
    chart: Chart = ""
    drawn: bool = False
    foreign: bool = False

    def __post_init__(self) -> None:
        words = self.name.replace("_", " ")
        object.__setattr__(self, "title", self.title or words.capitalize())
        object.__setattr__(self, "short", self.short or words)

    @property
    def worst(self) -> float:
        return float("inf") if self.better == "lower" else 0.0

    @property
    def signed(self) -> bool:
        """It may be negative: an endpoint may be done before the moment of the speech that it is measured from."""
        return self.live and self.unit == "ns"

    @property
    def live(self) -> bool:
        """It reads columns that only speech sessions have."""
        return bool({*self.needs} & {*SESSION_COLUMNS, *RAGGED})


@dataclass(frozen=True, slots=True)
class Measured:
    """An indicator over the measured rows of some records.

    ``values`` float64[m], failures as the indicator's worst; ``row`` int64[m], the position in those records that each
    value belongs to (a record has several values but in scope ``request``); ``n`` = m; ``missing``: successful measured
    records with no value; ``failed``: values that are the worst because the request failed, or never brought what was
    awaited.
    """

    values: FloatArray
    row: IntArray
    n: int
    missing: int
    failed: int


def entries(scope: Scope) -> str:
    """What the values of indicators of this scope are, for people: several of them."""
    return {"gap": "gaps between chunks", "query": "queries"}.get(scope, f"{ENTRIES[scope]}s")


def between(records: Records, start: str, end: str) -> tuple[FloatArray, BoolArray]:
    """``end - start`` in ns for every record that has both stamps (in a warm-up row times before t0 are negative)."""
    first, last = records[start], records[end]
    return (last - first).astype(np.float64), (first != -1) & (last != -1)


def gap_rows(records: Records) -> IntArray:
    """int64[gaps]: the record that each gap between successive chunks belongs to."""
    return np.repeat(np.arange(len(records)), np.maximum(np.diff(records.chunk_offsets) - 1, 0))


def entry_rows(scope: Scope, records: Records) -> IntArray:
    """int64[values]: the record that each value of an indicator of this scope belongs to."""
    if scope == "gap":
        return gap_rows(records)
    rows = np.arange(len(records))
    if scope == "interim":
        return np.repeat(rows, np.diff(records.chunk_offsets))
    return rows if scope in ("request", "query") else np.repeat(rows, np.diff(records.ragged(_LISTED[scope])[1]))


def measure(indicator: Indicator, records: Records, judged: bool = False) -> Measured:
    """The values of an indicator over the measured rows, failures included as the worst.

    Not applicable, n = 0: there are successful requests but no request at all, failed ones included, has the stamps
    (say, a first token from an endpoint that does not stream). ``judged``: for a verdict, where that holds only if
    nothing failed; otherwise the last request with the stamps could take the objective away by failing. Of a ``live``
    one it holds without successes too: that all requests failed makes no text run a run of speech. A failed request has
    as many gaps as the longest answer: what never came never comes.
    """
    if indicator.scope == "query":
        return _of_queries(indicator, records)
    ok, measured = records.ok, records.in_measure
    lenient = not (judged and bool((measured & ~ok).any()))
    nothing = Measured(np.empty(0), np.empty(0, np.int64), 0, int((ok & measured).sum()), 0)
    if indicator.live and records.session is None and lenient:
        return nothing
    values, valid = indicator.compute(records)
    row = entry_rows(indicator.scope, records)
    valid = valid & measured[row]
    unknown = not valid.any() and (indicator.live or bool((ok & measured).any()))
    if unknown and lenient:
        return nothing
    has_value = np.zeros(len(records), bool)
    has_value[row[valid]] = True
    failed = measured & ~ok
    if indicator.on_failure is OnFailure.WORST and indicator.scope == "request":
        valid = valid & ok  # a failed request's own value gives way to the worst one
        punished = failed
    elif indicator.on_failure is OnFailure.WORST:
        punished = failed
    elif indicator.on_failure is OnFailure.WORST_IF_ABSENT:
        punished = failed & ~has_value
    else:
        punished = np.zeros(len(records), bool)
    if indicator.awaited:  # an empty answer must not be better than a slow one
        silent = measured & ok & ~has_value
        punished = punished | (silent if indicator.outside is None else silent & ~indicator.outside(records))
    extra = np.flatnonzero(punished)
    if indicator.scope != "request" and len(extra):
        extra = np.repeat(extra, _lost(np.bincount(row[valid], minlength=len(records)), extra))
    missing = int(np.count_nonzero(measured & ok & ~has_value))
    if not len(extra):  # in order already; on a run of 50 million gaps each copy saved is 400 MB
        whole = bool(valid.all())
        return Measured(values if whole else values[valid], row if whole else row[valid], int(valid.sum()), missing, 0)
    rows = np.concatenate([row[valid], extra])
    both = np.concatenate([values[valid], np.full(len(extra), indicator.worst)])
    order = np.argsort(rows, kind="stable")
    return Measured(both[order], rows[order], len(rows), missing, len(extra))


def _of_queries(indicator: Indicator, records: Records) -> Measured:
    """One value per query, of one of its rows; ``compute`` has made a query with a failed sample the worst already."""
    values, valid = indicator.compute(records)
    if not bool(valid.any()):
        return Measured(np.empty(0), np.empty(0, np.int64), 0, int((records.ok & records.in_measure).sum()), 0)
    first = representatives(records)
    row = np.sort(first[valid[first] & records.in_measure[first]])
    without = first[~valid[first] & records.in_measure[first]]
    lost = int(np.count_nonzero(values[row] == indicator.worst))
    return Measured(values[row], row, len(row), int(np.count_nonzero(records.ok[without])), lost)


def succeeded(indicator: Indicator, records: Records) -> BoolArray:
    """bool[records]: what an entry of each row is of did succeed: its request, or every sample of its query."""
    return together(records).whole(records.ok) if indicator.scope == "query" else records.ok


def of_successes(indicator: Indicator, records: Records, found: Measured) -> BoolArray:
    """bool[m]: the values of ``found`` that successes alone made.

    The distance to a frame that never came is none, though its own frame came.
    """
    kept = np.asarray(succeeded(indicator, records)[found.row])
    return kept & np.asarray(found.values != indicator.worst) if indicator.scope == "query" else kept


def _lost(had: IntArray, failed: IntArray) -> IntArray:
    """How many gaps each failed request lacks of the longest answer: at least one.

    All together never many more than all gaps that there are: beyond that half of the values no number changes a
    verdict on a high percentile, and memory is finite.
    """
    most = max(int(had.sum()), _PLENTY) // len(failed) + 1
    lost: IntArray = np.clip(int(had.max(initial=0)) - had[failed], 1, most)
    return lost


@cache
def catalogue() -> Mapping[str, Indicator]:
    """Every indicator by name: each module of ``plimsoll.slo.indicators`` exports ``INDICATOR``, one or a tuple of
    them, and an outside package names its own by an entry point in the group ``plimsoll.indicators``.

    Raises PluginError for an outside package that fails, exports none, or takes a name that there is; LookupError
    where a file of ours does.
    """
    import plimsoll.slo.indicators as folder

    found: dict[str, Indicator] = {}
    for stem in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        exported = getattr(importlib.import_module(f"{folder.__name__}.{stem}"), "INDICATOR", None)
        for one in exported if isinstance(exported, tuple) else (exported,):
            if (wrong := _wrong(one, found)) is not None:
                raise LookupError(f"slo/indicators/{stem}.py: {wrong}")
            found[one.name] = one
    for point in announced("plimsoll.indicators"):
        exported = loaded(point)
        for one in exported if isinstance(exported, tuple) else (exported,):
            if (wrong := _wrong(one, found)) is not None:
                raise PluginError(point, wrong)
            found[one.name] = _foreign(point, one)
    return MappingProxyType(found)


_TEXTS = ("formula", "source", "summary", "title", "short")
_KINDS: Mapping[str, type] = MappingProxyType(
    {**dict.fromkeys(_TEXTS, str), "rank": int, "on_failure": OnFailure, **dict.fromkeys(("awaited", "from_due"), bool)}
)


def _wrong(one: object, found: Mapping[str, Indicator]) -> str | None:
    """Why this can't be a metric beside those that were found."""
    if not isinstance(one, Indicator):
        return f"exports {_shown(one)}, no INDICATOR; name its Indicator so"
    if not isinstance(one.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", one.name):
        return f"the name {_shown(one.name)} is none of small letters, digits and _; choose another one"
    if one.name in found:
        return f"{one.name} exists already; choose another name"
    words = {"unit": ("ns", "per_s", "1"), "better": ("lower", "higher"), "scope": get_args(Scope)}
    for field, known in {**words, "group": get_args(Group), "chart": get_args(Chart)}.items():
        if getattr(one, field) not in known:
            return f"the {field} of {one.name} is {getattr(one, field)!r}; choose one of {', '.join(map(repr, known))}"
    columns = {*COLUMNS, *SESSION_COLUMNS, *RAGGED, *PLANNED, "chunk_ns"}
    needs: object = one.needs
    if not isinstance(needs, tuple) or not columns.issuperset(needs):
        return f"the needs of {one.name} are {needs!r:.60}; give a tuple of columns of the run directory"
    for field in ("compute", *(() if one.outside is None else ("outside",))):
        if not callable(getattr(one, field)):
            return f"the {field} of {one.name} is no function"
    return misfit(one, _KINDS)


def _shown(value: object) -> str:
    return f"{value!r:.60}"


def _foreign(point: EntryPoint, one: Indicator) -> Indicator:
    """A metric of an outside package: what its functions raise, or return that no metric does, is its own error."""

    def of_values(made: tuple[FloatArray, BoolArray], records: Records) -> str | None:
        n = len(entry_rows(one.scope, records))
        values, valid = made
        right = values.shape == valid.shape == (n,) and values.dtype.kind in "fiu" and valid.dtype == np.bool_
        if not right:
            return f"returned no float64[{n}] and bool[{n}]"
        found = values[valid]
        odd = np.isnan(found) | np.isneginf(found) if values.dtype.kind == "f" else np.zeros(len(found), np.bool_)
        return "returned a value that is NaN or -inf: say with valid where there is none" if odd.any() else None

    def of_rows(made: BoolArray, records: Records) -> str | None:
        right = made.shape == (len(records),) and made.dtype == np.bool_
        return None if right else f"returned no bool[{len(records)}]"

    outside = one.outside and guarded(point, f"outside of {one.name}", one.outside, of_rows)
    compute = guarded(point, f"compute of {one.name}", one.compute, of_values)
    return replace(one, compute=compute, outside=outside, foreign=True)


def live_ones() -> tuple[str, ...]:
    """The metrics of outside packages that can be shown while a run goes on: times that each row has by itself."""
    every = catalogue().values()
    return tuple(m.name for m in every if m.foreign and (m.unit, m.better) == ("ns", "lower") and m.scope != "query")


def lately(indicator: Indicator, records: Records) -> FloatArray:
    """Its values in the measured rows that succeeded."""
    values, valid = indicator.compute(records)
    kept = (records.ok & records.in_measure)[entry_rows(indicator.scope, records)]
    found: FloatArray = values[valid & kept].astype(np.float64)
    return found[np.isfinite(found)]


def in_order(names: Iterable[str]) -> list[str]:
    """Names of metrics as tables show them: by group, rank and name; names that nobody knows last."""
    known = catalogue()
    groups = get_args(Group)

    def place(name: str) -> tuple[int, int, str]:
        one = known.get(name)
        return (len(groups), 0, name) if one is None else (groups.index(one.group), one.rank, name)

    return sorted(names, key=place)


def title_of(name: str) -> str:
    """What people call a metric."""
    known = catalogue().get(name)
    return name.replace("_", " ").capitalize() if known is None else known.title


def short_of(name: str) -> str:
    """A name short enough to stand at the end of a line."""
    known = catalogue().get(name)
    return name.replace("_", " ") if known is None else known.short


def lines_of(chart: Chart) -> list[str]:
    """The metrics that one chart of percentiles has a line of."""
    return in_order(name for name, one in catalogue().items() if one.chart == chart)
