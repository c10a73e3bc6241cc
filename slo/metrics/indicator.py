"""What can be measured: one ``Indicator`` per file of ``slo/indicators/``, and how one is measured over records.

An indicator reads only stamps and counts. What a failed request contributes is decided here, once, for all of
them: failure is worst, not absent. Nothing here aggregates or judges.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import numpy as np

from plimsoll.slo.metrics.plugin import PluginError, all_at_once, announced, guarded, loaded, misfit
from plimsoll.slo.records.labels import label_of
from plimsoll.slo.records.queries import representatives, together
from plimsoll.slo.records.records import (
    CHUNKED,
    COLUMNS,
    PLANNED,
    RAGGED,
    SESSION_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    Records,
    Status,
    from_columns,
)
from plimsoll.slo.statistics.order import HELD, SLAB, Entries, Folded, gathered

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


def counted(column: str) -> Callable[[Records], tuple[FloatArray, BoolArray]]:
    """An indicator's ``compute``, of a column that counts; 0 and less: there was nothing to count."""
    return lambda records: (records[column].astype(np.float64), records[column] > 0)


def said_by(label: str) -> Callable[[Records], tuple[FloatArray, BoolArray]]:
    """An indicator's ``compute``, of what a column or a label of each row says; -1: nothing."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        said = records[label] if label in COLUMNS else records.label(label)
        return said.astype(np.float64), said >= 0

    return compute


@dataclass(frozen=True, slots=True)
class Indicator:
    """One metric.

    ``compute(records)`` gives ``(values float64, valid bool)``: one entry per record (scope ``request``, and ``query``,
    where all rows of a query have its value) or one per entry of a list that each record has, records in order (the
    other scopes, see ``entry_rows``). It looks at no status; invalid entries are unspecified. ``needs`` names the
    columns it reads (``chunk_ns`` for chunk arrivals). ``worst`` is what a
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
    unit: Literal["ns", "per_s", "1", "bytes"] = "ns"
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
    def chunked(self) -> bool:
        """It reads the times of chunks, or what goes with them."""
        return bool({*self.needs} & {*CHUNKED})

    @property
    def live(self) -> bool:
        """It reads columns that only speech sessions have."""
        return bool({*self.needs} & {*SESSION_COLUMNS, *RAGGED})


class Measured(Entries):
    """An indicator over the measured rows of some records: its values and their order, as of ``Entries``.

    ``values`` float64[m], failures as the indicator's worst; ``row`` int64[m], the position in those records that each
    value belongs to (a record has several values but in scope ``request``); ``n`` = m; ``missing``: successful measured
    records with no value; ``failed``: values that are the worst because the request failed, or never brought what was
    awaited. Of more than ``HELD`` values of lists use ``slabs()`` and ``ordered``: the arrays are made anew each time.
    """

    def __init__(self, entries: Entries, missing: int, failed: int) -> None:
        vars(self).update(vars(entries))
        self.missing, self.failed = missing, failed


def entries(scope: Scope) -> str:
    """What the values of indicators of this scope are, for people: several of them."""
    return {"gap": "gaps between chunks", "query": "queries"}.get(scope, f"{ENTRIES[scope]}s")


def between(records: Records, start: str, end: str) -> tuple[FloatArray, BoolArray]:
    """``end - start`` in ns for every record that has both stamps (in a warm-up row times before t0 are negative)."""
    first, last = records[start], records[end]
    found = np.empty(len(records))
    for begin in range(0, len(found), SLAB):
        part = slice(begin, begin + SLAB)
        found[part] = last[part] - first[part]
    return found, (first != -1) & (last != -1)


def gap_rows(records: Records) -> IntArray:
    """int64[gaps]: the record that each gap between successive chunks belongs to."""
    return entry_rows("gap", records)


def list_lengths(scope: Scope, records: Records) -> IntArray:
    """int64[records]: how many values each record has of an indicator of this scope, which is one of lists."""
    chunks = scope in ("gap", "interim")
    lengths: IntArray = np.diff(records.chunk_offsets if chunks else records.ragged(_LISTED[scope])[1])
    return np.maximum(lengths - 1, 0) if scope == "gap" else lengths


def entry_rows(scope: Scope, records: Records) -> IntArray:
    """int64[values]: the record that each value of an indicator of this scope belongs to."""
    rows = np.arange(len(records))
    return rows if scope in ("request", "query") else np.repeat(rows, list_lengths(scope, records))


def measure(indicator: Indicator, records: Records, judged: bool = False) -> Measured:
    """The values of an indicator over the measured rows, failures included as the worst.

    Not applicable, n = 0: there are successful requests but no request at all, failed ones included, has the stamps
    (say, a first token from an endpoint that does not stream). ``judged``: for a verdict, where that holds only if
    nothing failed; otherwise the last request with the stamps could take the objective away by failing. Of a ``live``
    one it holds without successes too: that all requests failed makes no text run a run of speech. A failed request has
    as many gaps as the longest answer: what never came never comes.
    """
    ok, measured = records.ok, records.in_measure
    lenient = not (judged and bool((measured & ~ok).any()))
    nothing = Measured(Entries((np.empty(0), None)), int(np.count_nonzero(ok & measured)), 0)
    if indicator.chunked and records.chunks.dropped:
        return nothing
    if indicator.scope == "query":
        return _of_queries(indicator, records)
    if indicator.live and records.session is None and lenient:
        return nothing
    if indicator in records.kept:
        kept: Measured = records.kept[indicator]
        if kept.remade:
            return kept
        # In an order of its own: a mean is of what was sorted or of what was counted, whoever asked before.
        return Measured(Entries((kept.values, None if kept.plain else kept.row)), kept.missing, kept.failed)
    found = (_of_requests if indicator.scope == "request" else _of_lists)(indicator, records, lenient)
    if found is not None and (found.remade or judged) and found.n > found.failed:
        records.kept[indicator] = found  # judged ones are asked for again, and of others it takes a pass
    return nothing if found is None else found


class Extent(NamedTuple):
    """Of the lists of a run: the longest, all their entries, and how many requests lack some because they failed."""

    longest: int
    had: int
    failed: int


def extent(indicator: Indicator, records: Records) -> Extent:
    """That of an indicator of lists in some of a run's records."""
    lists, _, extra = _sized(indicator, records, small=True)
    return Extent(int(lists.sizes.max(initial=0)), int(lists.sizes.sum()), len(extra))


def measure_part(indicator: Indicator, records: Records, run: Extent | None = None) -> Measured:
    """``measure`` of some records of a run in which other records have values; ``run``: the extent of all its lists."""
    found = (
        _of_requests(indicator, records, False)
        if indicator.scope == "request"
        else _of_lists(indicator, records, False, run)
    )
    assert found is not None
    return found


def _of_requests(indicator: Indicator, records: Records, lenient: bool) -> Measured | None:
    """One value a record at most; None where nothing applies."""
    ok, measured = records.ok, records.in_measure
    if "chunk_ns" in indicator.needs and records.session is None and not records.chunk_offsets[-1]:
        values, valid = np.empty(len(records)), np.zeros(len(records), np.bool_)  # without a chunk none has a value
    else:
        values, valid = indicator.compute(records)
    has_value = valid & measured
    if lenient and _unknown(indicator, has_value, ok & measured):
        return None
    punished = _punished(indicator, records, has_value)
    # A failed request's own value gives way to the worst one.
    kept = has_value & ok if indicator.on_failure is OnFailure.WORST else has_value
    missing = int(np.count_nonzero(measured & ok & ~has_value))
    failed = int(np.count_nonzero(punished))
    if failed:
        values, kept = np.where(punished, indicator.worst, values), kept | punished
    held = (values, None) if bool(kept.all()) else (values[kept], np.flatnonzero(kept))
    return Measured(Entries(held), missing, failed)


def _unknown(indicator: Indicator, has_value: BoolArray, good: BoolArray) -> bool:
    """No request has a value, though some succeeded, or the metric is of speech."""
    return not has_value.any() and (indicator.live or bool(good.any()))


def _punished(indicator: Indicator, records: Records, has_value: BoolArray) -> BoolArray:
    """bool[records]: requests that rank as the worst."""
    ok, measured = records.ok, records.in_measure
    if indicator.on_failure is OnFailure.WORST:
        punished = measured & ~ok
    elif indicator.on_failure is OnFailure.WORST_IF_ABSENT:
        punished = measured & ~ok & ~has_value
    else:
        punished = np.zeros(len(records), np.bool_)
    if indicator.awaited:  # an empty answer must not be better than a slow one
        silent = measured & ok & ~has_value
        punished = punished | (silent if indicator.outside is None else silent & ~indicator.outside(records))
    return np.asarray(punished)


def _of_lists(indicator: Indicator, records: Records, lenient: bool, run: Extent | None = None) -> Measured | None:
    """Several values a record; None where nothing applies.

    One pass tells how many each record has, and counts them by their size if they are more than memory should hold.
    Later passes make them anew, with those that failed requests lack.
    """
    ok, measured = records.ok, records.in_measure
    lists, folded, extra = _sized(indicator, records, int(list_lengths(indicator.scope, records).sum()) <= HELD)
    has_value = lists.sizes > 0
    if lenient and _unknown(indicator, has_value, ok & measured):
        return None
    missing, failed = int(np.count_nonzero(measured & ok & ~has_value)), 0
    if len(extra):
        whole = run or Extent(int(lists.sizes.max(initial=0)), int(lists.sizes.sum()), len(extra))
        lists.lost[extra] = _lost(lists.sizes[extra], whole)
        np.add(lists.sizes, lists.lost, out=lists.sizes)
        failed = int(lists.lost.sum())
    if folded is not None:
        folded.add_equal(indicator.worst, failed)
        return Measured(Entries(again=lists.slabs, folded=folded, sizes=lists.sizes), missing, failed)
    return Measured(Entries(gathered(lists.slabs()), sizes=lists.sizes), missing, failed)


def _sized(indicator: Indicator, records: Records, small: bool) -> tuple[_Lists, Folded | None, IntArray]:
    """(lists with the sizes that they have, their values counted unless they are few, rows int64[k] that lack some)."""
    # A copy, because these records may keep what is found.
    lists = _Lists(
        indicator, replace(records), records.in_measure, *(np.zeros(len(records), np.int64) for _ in range(2))
    )
    folded = None if small else Folded(lists.slabs)
    for values, row in lists.slabs():
        first = int(row[0]) if len(row) else 0
        found = np.bincount(row - first)
        lists.sizes[first : first + len(found)] += found
        if folded is not None:
            folded.add(values)
    return lists, folded, np.flatnonzero(_punished(indicator, records, lists.sizes > 0))


@dataclass(frozen=True, slots=True)
class _Lists:
    """The values of an indicator in the lists of the records ``among`` bool[records], ``sizes`` int64[records] of each;
    ``lost`` int64[records] of them are the worst ones, of what a failed request lacks.
    """

    indicator: Indicator
    records: Records
    among: BoolArray
    sizes: IntArray
    lost: IntArray

    def slabs(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """(values, rows) of a few records at a time, as many as fit in a processor's cache; at least one slab."""
        n, among = len(self.records), self.among
        lengths = list_lengths(self.indicator.scope, self.records)
        if lengths.sum() <= SLAB:
            yield self._part(0, n, self.records, among)
            return
        ends, first = np.cumsum(lengths), 0
        while first < n:
            most = (int(ends[first - 1]) if first else 0) + SLAB
            last = min(max(int(np.searchsorted(ends, most, side="right")), first + 1), first + SLAB // 8, n)
            yield self._part(first, last, self.records.select(np.arange(first, last)), among)
            first = last

    def _part(self, first: int, last: int, part: Records, among: BoolArray) -> tuple[FloatArray, IntArray]:
        values, valid = self.indicator.compute(part)
        row = entry_rows(self.indicator.scope, part)
        row += first
        if not bool(among[first:last].all()):
            valid = valid & among[row]
        if not bool(valid.all()):
            values, row = values[valid], row[valid]
        extra = np.repeat(np.arange(first, last), self.lost[first:last])
        if not len(extra):
            return values, row
        rows = np.concatenate([row, extra])
        order = np.argsort(rows, kind="stable")
        return np.concatenate([values, np.full(len(extra), self.indicator.worst)])[order], rows[order]


def extremes(indicator: Indicator, records: Records, greatest: bool) -> tuple[FloatArray, BoolArray]:
    """(greatest or least value float64[records] of each record, bool[records]: it has one), whatever its status."""
    none = -np.inf if greatest else np.inf
    if indicator.scope in ("request", "query"):
        values, valid = indicator.compute(records)
        return np.where(valid, values, none), valid
    n = len(records)
    found, has = np.full(n, none), np.zeros(n, np.bool_)
    every = _Lists(indicator, records, np.ones(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64))
    for values, row in every.slabs():
        if len(row):
            starts = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
            found[row[starts]] = (np.maximum if greatest else np.minimum).reduceat(values, starts)
            has[row[starts]] = True
    return found, has


def _of_queries(indicator: Indicator, records: Records) -> Measured:
    """One value per query, of one of its rows; ``compute`` has made a query with a failed sample the worst already."""
    ok, measured = records.ok, records.in_measure
    values, valid = indicator.compute(records)
    if not bool(valid.any()):
        return Measured(Entries((np.empty(0), None)), int(np.count_nonzero(ok & measured)), 0)
    first = representatives(records)
    row = np.sort(first[valid[first] & measured[first]])
    without = first[~valid[first] & measured[first]]
    lost = int(np.count_nonzero(values[row] == indicator.worst))
    return Measured(Entries((values[row], row)), int(np.count_nonzero(ok[without])), lost)


def succeeded(indicator: Indicator, records: Records) -> BoolArray:
    """bool[records]: what an entry of each row is of did succeed: its request, or every sample of its query."""
    return together(records).whole(records.ok) if indicator.scope == "query" else records.ok


def of_successes(indicator: Indicator, records: Records, found: Measured) -> BoolArray:
    """bool[m]: the values of ``found`` that successes alone made.

    The distance to a frame that never came is none, though its own frame came.
    """
    kept = np.asarray(succeeded(indicator, records)[found.row])
    return kept & np.asarray(found.values != indicator.worst) if indicator.scope == "query" else kept


def successes(indicator: Indicator, records: Records, found: Measured) -> Entries | None:
    """The values of ``found`` that successes alone made (``of_successes``), in memory or not as ``found`` is; None: all
    of them.
    """
    good = succeeded(indicator, records)

    def slabs() -> Iterator[tuple[FloatArray, IntArray]]:
        for values, row in found.slabs():
            kept = good[row]
            if indicator.scope == "query":
                kept = kept & (values != indicator.worst)
            yield values[kept], row[kept]

    if not found.failed and bool((good | ~records.in_measure).all()):
        return None
    if not isinstance(found.ordered, Folded):
        kept = of_successes(indicator, records, found)
        return None if bool(kept.all()) else Entries((found.values[kept], found.row[kept]))
    folded = Folded(slabs)
    for values, _ in slabs():
        folded.add(values)
    return None if len(folded) == found.n else Entries(again=slabs, folded=folded)


def _lost(had: IntArray, run: Extent) -> IntArray:
    """How many gaps each failed request lacks of the run's longest answer: at least one.

    All together never many more than all gaps that there are: beyond that half of the values no number changes a
    verdict on a high percentile, and memory is finite.
    """
    lost: IntArray = np.clip(run.longest - had, 1, max(run.had, _PLENTY) // run.failed + 1)
    return lost


class Catalogue(Mapping[str, Indicator]):
    """Indicators by name. ``families``: by what begins their names with a dot, who makes one of a name; those are found
    and not listed, for there is no end to them.
    """

    def __init__(self, known: Mapping[str, Indicator], families: Mapping[str, Callable[[str], Indicator]]) -> None:
        self._known, self.families = dict(known), families

    def __getitem__(self, name: str) -> Indicator:
        if (found := self._known.get(name)) is not None:
            return found
        family, dot, own = name.partition(".")
        if dot and own and family in self.families:
            return self.families[family](name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@cache
def catalogue() -> Catalogue:
    """Every indicator by name: each module of ``plimsoll.slo.indicators`` exports ``INDICATOR``, one or a tuple of
    them, or ``FAMILY``, which makes one of each name that begins with the file's and a dot; an outside package names
    its own by an entry point in the group ``plimsoll.indicators``.

    Raises PluginError for an outside package that fails, exports none, or takes a name that there is; LookupError
    where a file of ours does.
    """
    import plimsoll.slo.indicators as folder

    found: dict[str, Indicator] = {}
    families: dict[str, Callable[[str], Indicator]] = {}
    for stem in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        module = importlib.import_module(f"{folder.__name__}.{stem}")
        if (family := getattr(module, "FAMILY", None)) is not None:
            families[stem] = family
            continue
        exported = getattr(module, "INDICATOR", None)
        for one in exported if isinstance(exported, tuple) else (exported,):
            if (wrong := _wrong(one, found)) is not None:
                raise LookupError(f"slo/indicators/{stem}.py: {wrong}")
            found[one.name] = one
    all_at_once([partial(_add, point, found) for point in announced("plimsoll.indicators")])
    return Catalogue(found, families)


def _add(point: EntryPoint, found: dict[str, Indicator]) -> None:
    """The metrics of an outside package to those that were found."""
    exported = loaded(point)
    for one in exported if isinstance(exported, tuple) else (exported,):
        if (wrong := _wrong(one, found)) is not None:
            raise PluginError(point, wrong)
        found[one.name] = _foreign(point, one)


def tried() -> None:
    """Compute the metrics of outside packages over a few made-up rows: a stream, one answer at once, a failure.

    Raises PluginError with each that fails, which would be known only after the load otherwise.
    """
    ms = 1_000_000
    due, first, token = [0, 20 * ms, 0], [10 * ms, 60 * ms, -1], [20 * ms, 60 * ms, -1]
    rows = from_columns(
        3, due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=first, headers_ns=first, first_token_ns=token,
        first_answer_ns=token, last_token_ns=[50 * ms, 60 * ms, -1], done_ns=[50 * ms, 60 * ms, 100 * ms],
        n_in=3, n_out=[2, 1, -1], bytes_out=9, bytes_in=[99, 50, 0], chunks=[[20 * ms, 50 * ms], [60 * ms], []],
        status=[Status.OK, Status.OK, Status.TIMEOUT],
    )  # fmt: skip
    ours = [one for one in catalogue().values() if one.foreign]
    all_at_once([partial(call, rows) for one in ours for call in (one.compute, one.outside) if call is not None])


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
    words = {"unit": ("ns", "per_s", "1", "bytes"), "better": ("lower", "higher"), "scope": get_args(Scope)}
    for field, known in {**words, "group": get_args(Group), "chart": get_args(Chart)}.items():
        if getattr(one, field) not in known:
            return f"the {field} of {one.name} is {getattr(one, field)!r}; choose one of {', '.join(map(repr, known))}"
    columns = {*COLUMNS, *SESSION_COLUMNS, *RAGGED, *PLANNED, "chunk_ns"}
    needs: object = one.needs
    if not isinstance(needs, tuple) or any(need not in columns and label_of(str(need)) is None for need in needs):
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
