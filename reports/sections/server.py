"""What the server said of itself: its queue, batch, caches, memory and GPUs on the run's own time axis, what it does
not expose, its restarts, whether its books agree with ours, and what asking cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import not_
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Notes, Row, Section, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import buckets_of, number
from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.reports.svg.strip import Layer, Strip
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import IntArray
from plimsoll.slo.server.canonical import NAMES

if TYPE_CHECKING:  # a run of which nobody asked the server loads none of it
    from plimsoll.slo.server.batch_sizes import BatchSizes
    from plimsoll.slo.server.courses import Course
    from plimsoll.slo.server.served import Asked, Gap
    from plimsoll.slo.server.server_side import Energy, FirstToken, ServerSide

#: Drawn, in this order, where there are some.
DRAWN = (
    "server.queue",
    "server.running",
    "server.replicas",
    "server.kv_usage",
    "server.busy",
    "server.preempted",
    "gpu.utilisation",
    "gpu.power",
    "host.rss",
)
#: Sizes of batches that are listed each.
_MOST_SIZES = 20
#: Memory, whose growth is a leak.
_GROWS = ("host.rss", "gpu.memory")
#: Reasons that are listed for each source.
_MOST_GAPS = 20


class GapPart(BaseModel, frozen=True, extra="forbid"):
    """``count`` scrapes in a row that gave nothing, for one reason."""

    start_ns: int
    end_ns: int
    count: int
    reason: Text


class SourcePart(BaseModel, frozen=True, extra="forbid"):
    """Where samples came from, and what it cost to have them."""

    where: Text
    period_ns: int
    slowed_ns: int = Field(description="the longest period that it came to, because a scrape took more than 5 % of it")
    samples: int
    bytes: int
    took_p50_ns: int | None = Field(default=None, description="from asking to the last byte; null: no sample")
    took_max_ns: int | None = None
    gaps: list[GapPart] = Field(default_factory=list, description="the first 20; failed counts all")
    failed: int = Field(default=0, description="scrapes that gave nothing")
    unwritten: int = Field(default=0, description="of these, samples that no disk took")
    left_out: int = Field(default=0, description="series of one sample, at most, that were too many to keep")
    strange: bool = Field(default=False, description="no series has a name that is known", exclude_if=not_)


class SlopePart(BaseModel, frozen=True, extra="forbid"):
    """Growth in an hour, and its interval at 95 % (``plimsoll.slo.statistics.slope``)."""

    per_h: float
    low: float
    high: float


class NamePart(BaseModel, frozen=True, extra="forbid"):
    """One name from t0 to the last answer, of all its series. Of a gauge and of a mean ``mean``, ``min``, ``max``; of a
    counter ``total``, ``per_s``, and as ``max`` the greatest rate between two samples.
    """

    title: str
    unit: str
    kind: str
    engine: str
    families: list[Text]
    sources: list[Text]
    series: int
    samples: int
    unknown: int = Field(default=0, description="samples without a value: a restart, or a source that gave nothing")
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    total: float | None = None
    per_s: float | None = None
    idle: float | None = Field(default=None, description="before the first request, of a counter its rate")
    slope: SlopePart | None = Field(default=None, description="of memory; null: under 20 samples, or a restart")
    by_bucket: list[Number] = Field(
        default_factory=list,
        description="by bucket of the timeline: of a gauge the largest, of a counter its rate; null: unknown",
    )


class RestartPart(BaseModel, frozen=True, extra="forbid"):
    """Its process began anew between two samples: what it counted then is unknown."""

    source: Text
    after_ns: int
    before_ns: int


class BookPart(BaseModel, frozen=True, extra="forbid"):
    """One count as the server has it and as we do, warm-up included; null: not known."""

    what: str
    theirs: float | None
    ours: int | None
    difference: float | None = Field(default=None, description="theirs less ours; null: one of them is not known")
    why: str = Field(default="", description="why it is not known, or may differ")


class FirstTokenPart(BaseModel, frozen=True, extra="forbid"):
    """Means over all answers: by the server, by us from sending, and what is between: the network and the front end."""

    theirs_ns: int
    ours_ns: int
    between_ns: int


class EnergyPart(BaseModel, frozen=True, extra="forbid"):
    """Joules from t0 to the last answer, idle ones included; null: nothing was answered, or nobody counts tokens."""

    names: list[str]
    joules: float
    per_request_j: float | None
    per_token_j: float | None


class BatchesPart(BaseModel, frozen=True, extra="forbid"):
    """Batches by their size, as one source counted them between two of its samples."""

    source: Text
    of: str = Field(description="what a batch has so many of: requests, tokens")
    exact: bool = Field(description="each size is counted; else by buckets of the server's")
    since_ns: int
    until_ns: int
    mean: float | None = Field(default=None, description="null: not exact, or no batch")
    sizes: list[tuple[float, Number, int]] = Field(description="more than, at most (null: no limit), batches")
    why: str = Field(default="", description="why nothing is known", exclude_if=not_)


class ServerPart(BaseModel, frozen=True, extra="forbid"):
    """What the server said of itself; every sample is in ``server.parquet``."""

    sources: dict[str, SourcePart]
    names: dict[str, NamePart]
    absent: dict[str, str] = Field(default_factory=dict, description="what is not exposed, and what would expose it")
    restarts: list[RestartPart] = Field(default_factory=list)
    books: list[BookPart] = Field(default_factory=list)
    first_token: FirstTokenPart | None = Field(default=None, description="null: not known of the same answers")
    energy: EnergyPart | None = Field(default=None, description="null: nothing counts joules, or not all of the run's")
    batches: list[BatchesPart] = Field(default_factory=list, description="absent: nothing counts them", exclude_if=not_)
    cpu_s: float = Field(default=0.0, description="processor time of the process that asked")


def server_part(run: JudgedRun) -> ServerPart | None:
    """None: nobody asked the server."""
    side: ServerSide | None = run.judged.server
    if side is None:
        return None
    rows = run.records.measured()
    edges = buckets_of(rows).edges() if len(rows) else np.empty(0, np.int64)
    told = {track.source for track in side.served.tracks}
    return ServerPart(
        sources={name: _source(asked, name not in told) for name, asked in side.served.sources.items()},
        names={name: _name(course, edges, side) for name, course in side.courses.items()},
        absent=dict(side.absent),
        restarts=[part(RestartPart, one) for one in side.restarts],
        books=[part(BookPart, one) for one in side.books],
        first_token=None if side.first_token is None else _first_token(side.first_token),
        energy=None if side.energy is None else _energy(side.energy),
        batches=[_batches(one) for one in side.batches],
        cpu_s=max((asked.origin.cpu_ns for asked in side.served.sources.values()), default=0) / 1e9,
    )


def _batches(found: BatchSizes) -> BatchesPart:
    return part(BatchesPart, found, sizes=[(low, number(high, "1"), count) for low, high, count in found.sizes])


def _first_token(found: FirstToken) -> FirstTokenPart:
    theirs, ours = round(found.theirs_ns), round(found.ours_ns)
    return FirstTokenPart(theirs_ns=theirs, ours_ns=ours, between_ns=ours - theirs)


def _energy(found: Energy) -> EnergyPart:
    each = [found.joules / n if n else None for n in (found.requests, found.tokens)]
    return EnergyPart(names=list(found.names), joules=found.joules, per_request_j=each[0], per_token_j=each[1])


def _source(asked: Asked, strange: bool) -> SourcePart:
    took = np.sort(asked.end_ns - asked.sent_ns)
    gaps: Sequence[Gap] = asked.origin.gaps
    return part(
        SourcePart,
        asked.origin,
        samples=len(took),
        bytes=int(asked.n_bytes.sum()),
        took_p50_ns=int(took[(len(took) - 1) // 2]) if len(took) else None,
        took_max_ns=int(took[-1]) if len(took) else None,
        gaps=[part(GapPart, gap) for gap in gaps[:_MOST_GAPS]],
        failed=sum(gap.count for gap in gaps),
        strange=strange and len(took) > 0 and not asked.origin.declared,
    )


def _name(course: Course, edges: IntArray, side: ServerSide) -> NamePart:
    from plimsoll.slo.server.server_side import summary

    grown = course.growth() if course.name in _GROWS and not side.restarts else None
    said = {
        "samples": int(course.known.sum()),
        "unknown": int(course.unknown.sum()),
        "series": course.n_series,
        "idle": side.idle.get(course.name),
        "slope": None if grown is None else part(SlopePart, grown),
    }
    return part(NamePart, course, NAMES[course.name], by_bucket=by_bucket(course, edges), **said, **summary(course))


def by_bucket(course: Course, edges: IntArray) -> list[Number]:
    """One value a bucket. A counter's window lies in the bucket of its end; where a bucket has no end of one, it has
    the window that it lies in; a gauge holds until it is read again. None: unknown.
    """
    known = course.known
    values, weights = course.values, course.weights
    spans = np.maximum(course.seconds, 1e-9)
    rates = values / spans if course.kind == "counter" else values
    place = np.searchsorted(edges, course.end_ns, side="right") - 1
    after = np.searchsorted(course.end_ns, (edges[:-1] + edges[1:]) / 2)
    found: list[Number] = []
    for bucket in range(max(len(edges) - 1, 0)):
        there = (place == bucket) & known
        if not (place == bucket).any():
            at = int(after[bucket]) - (course.kind == "gauge")
            there = np.arange(len(values)) == at
        if not there.any() or np.isnan(values[there]).any() or not weights[there].sum():
            found.append(None)
        elif course.kind == "gauge":
            found.append(float(f"{values[there].max():.6g}"))
        else:
            share = weights[there] * (spans[there] if course.kind == "counter" else 1)
            found.append(float(f"{np.average(rates[there], weights=share):.6g}"))
    return found


# -- laid out ----------------------------------------------------------------------------------------------------------


def blocks(part: ServerPart, report: Any) -> list[Block]:
    """What it said, and how far that can be relied on."""
    head = [
        Column("the server says", right=False, names=True, titled="It says"),
        *(Column(name) for name in ("mean, or total", "most, or rate", "samples")),
    ]
    rows = [Row(_cells(name, one)) for name, one in part.names.items() if one.samples]
    table = Table(head, rows, title="The server itself")
    tables = [*([table] if rows else []), *map(_batch_table, part.batches)]
    notes = _notes(part)
    cards = [Card(one) for one in (tables, [Notes(notes)] if notes else []) if one]
    return [Section("The server itself", cards, "The server itself")]


def _batch_table(part: BatchesPart) -> Table:
    """Sizes as they were counted; of many, those between two powers of two as one."""
    found: dict[tuple[float, float], int] = {}
    many = len(part.sizes) > _MOST_SIZES
    for low, top, count in part.sizes:
        high = math.inf if top is None else float(top)
        if many and math.isfinite(high):
            high = 2.0 ** math.ceil(math.log2(high))
            low = high // 2
        found[low, high] = found.get((low, high), 0) + count
    total = sum(found.values())
    rows = [Row([_between(low, high), units.count(n), units.percent(n / total, 3)]) for (low, high), n in found.items()]
    kind = "exact" if part.exact else "by the server's buckets"
    head = Column(f"{part.of} in one", right=False, names=True)
    average = "" if part.mean is None else f"; mean {units.significant(part.mean)}"
    said = part.why or f"{units.count(total)} in all{average}"
    columns, notes = [head, Column("batches"), Column("share")], [f"{part.source}: {said}"]
    return Table(columns, rows, title=f"Batches by size ({kind})", notes=notes)


def _between(low: float, high: float) -> str:
    if math.isinf(high):
        return f"more than {low:g}"
    return f"{high:g}" if high - low <= 1 else f"{math.floor(low) + 1} to {high:g}"


def _cells(name: str, one: NamePart) -> list[str | Cell]:
    """What is counted has a total and a rate: of seconds that is cores, and of joules watts."""
    title, samples = Cell(one.title, code=name), units.count(one.samples)
    if one.kind != "counter":
        unit = "" if one.unit == "per_s" else one.unit
        return [title, *(units.human(value or 0.0, unit) for value in (one.mean, one.max)), samples]
    rate = units.NOTHING if one.per_s is None else units.human(one.per_s, {"J": "W", "s": ""}.get(one.unit, "per_s"))
    unit = "" if one.unit == "per_s" else one.unit
    return [title, units.NOTHING if one.total is None else units.human(one.total, unit), rate, samples]


def _notes(part: ServerPart) -> list[str]:
    notes = []
    for name, one in part.sources.items():
        took = (
            ""
            if one.took_p50_ns is None or one.took_max_ns is None
            else (f", each in {units.duration(one.took_p50_ns)} (at most {units.duration(one.took_max_ns)})")
        )
        slowed = f", slowed down to {units.duration(one.slowed_ns)}" if one.slowed_ns > one.period_ns else ""
        notes.append(f"{name}: {units.many(one.samples, 'sample')} every {units.duration(one.period_ns)}{slowed}{took}")
        notes += [
            f"{name}: nothing {units.many(gap.count, 'time')} from {units.seconds(gap.start_ns)}: {gap.reason}"
            for gap in one.gaps
        ]
    notes += [*_strange(part), *_restarted(part)]
    notes += [_of_host(one) for name, one in part.names.items() if one.idle is not None and name.startswith("host.")]
    for book in part.books:
        theirs = units.NOTHING if book.theirs is None else units.count(book.theirs)
        ours = units.NOTHING if book.ours is None else units.count(book.ours)
        if book.difference is None:
            notes.append(
                f"{book.what}: the server counts {theirs}, we count {ours}{f' ({book.why})' if book.why else ''}"
            )
        elif book.difference == 0:
            notes.append(f"{book.what}: the server and we count the same, {ours}")
        else:
            notes.append(_differs(book))
    if first := part.first_token:
        notes.append(
            f"time to first token, mean: {units.duration(first.theirs_ns)} by the server, "
            f"{units.duration(first.ours_ns)} from sending; {units.duration(first.between_ns)} are the network and "
            "what stands before the engine"
        )
    if used := part.energy:
        each = {"a request": used.per_request_j, "an output token": used.per_token_j}
        shares = [f"{units.human(joules, 'J')} {what}" for what, joules in each.items() if joules is not None]
        named = " and ".join(NAMES[name].title for name in used.names)
        notes.append(f"{named}, idle included: {', '.join([units.human(used.joules, 'J'), *shares])}")
    for why in dict.fromkeys(part.absent.values()):
        notes.append(f"{', '.join(NAMES[name].title for name, reason in part.absent.items() if reason == why)}: {why}")
    return notes


def _of_host(one: NamePart) -> str:
    """What the process takes at idle and at its peak, and of memory how fast it grows."""
    unit = {"J": "W", "s": ""}.get(one.unit, one.unit)
    said = f"{one.title}: {units.human(one.idle, unit)} before the first request, at most {units.human(one.max, unit)}"
    if one.slope is None or one.slope.high - one.slope.low >= (one.max or 0.0):  # so wide an interval says nothing
        return said
    low, grown, high = (units.human(at, "bytes") for at in (one.slope.low, one.slope.per_h, one.slope.high))
    return f"{said}, growing by {grown} an hour ({low} to {high}, at 95 %)"


def _strange(part: ServerPart) -> list[str]:
    return [
        f"{name}: no name on its page is one of an engine that is known, so nothing here and no objective can use it. "
        "Every series of it is in server.parquet"
        for name, one in part.sources.items()
        if one.strange
    ]


def _restarted(part: ServerPart) -> list[str]:
    return [
        f"{one.source} restarted between {units.seconds(one.after_ns)} and {units.seconds(one.before_ns)}: what it "
        "counted then is unknown"
        for one in part.restarts
    ]


def _differs(book: BookPart) -> str:
    found = book.difference or 0.0
    why = book.why or ("others use it, or it counts what we do not" if found > 0 else "some of ours it does not count")
    return (
        f"{book.what}: the server counts {units.count(book.theirs or 0)}, we count {units.count(book.ours or 0)}: "
        f"{units.count(abs(found))} {'more' if found > 0 else 'fewer'} ({why})"
    )


def server_warnings(part: ServerPart | None) -> list[str]:
    """What to know before anything of a run is quoted: a restart, an end before the run's, and books that differ."""
    if part is None:
        return []
    cut = [f"the server's books are not known: {book.why}" for book in part.books if "last asked" in book.why]
    said = {
        "unwritten": "{name}: {n} of its samples could not be written: the disk was full. Make room and measure again",
        "left_out": "{name} shows new series again and again: up to {n} of a sample were too many to keep",
    }
    each = ((name, how, getattr(one, how)) for name, one in part.sources.items() for how in said)
    lost = [said[how].format(name=name, n=units.count(n)) for name, how, n in each if n]
    return [
        *lost,
        *_strange(part),
        *_restarted(part),
        *dict.fromkeys(cut),
        *(_differs(book) for book in part.books if book.difference),
    ]


def strips(said: Mapping[str, Sequence[Number]]) -> list[Strip]:
    """What it said over the run, by bucket of a timeline: to stand under the latencies, on their axis. What was 0 all
    the time is left out.
    """
    return [
        Strip(
            about.title if "server" in about.title else f"{about.title} at the server",
            about.unit,
            [Layer(name, "s-sent", said[name])],
        )
        for name, about in ((name, NAMES[name]) for name in DRAWN)
        if any(said.get(name, ()))
    ]


SECTION = ReportSection("server", 84, server_part, blocks)
