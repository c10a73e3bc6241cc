"""A run of several agents by who sent it: the figures of each agent and of each region, and who differs.

Of many only the slowest and the fastest are listed; what the others did is one row, so that a run of a thousand agents
has a table that can be read and a report that stays small.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Folded, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import sentence
from plimsoll.slo.verdict.agents import Apart, Ranks, Share, split

#: So many of the slowest are listed, and as many of the fastest.
LISTED = 20
#: So many rows are shown without being asked for.
OPEN = 8
#: So many names stand in one sentence.
NAMED = 5


class SenderRanks(BaseModel, frozen=True, extra="forbid"):
    """Percentiles in nanoseconds; null is infinite: failed requests reach that far down."""

    p50: Number
    p90: Number
    p99: Number


class Sender(BaseModel, frozen=True, extra="forbid"):
    """What an agent, or all agents of a region, measured. Warm-up is left out, failures count as infinitely slow."""

    name: Text = Field(description='of an agent or a region; "": agents without a region')
    region: Text = Field(default="", description="of an agent")
    host: Text = Field(default="", description="of an agent")
    agents: int = 1
    requests: int = 0
    failed: float = Field(default=0.0, description="share of them")
    latency: SenderRanks | None = None
    ttft: SenderRanks | None = Field(default=None, description="null: there was no first token")
    generator_lag_p99_ns: Number = None
    clock_error_ns: int | None = Field(default=None, description="how far its clock may have been off at t0, at worst")
    lost: Text | None = Field(default=None, description="why the agent was lost on the way")


class Others(BaseModel, frozen=True, extra="forbid"):
    """Those between the slowest and the fastest, together."""

    number: int
    requests: int
    failed: float


class Senders(BaseModel, frozen=True, extra="forbid"):
    """The slowest first, by p90 of ``metric``."""

    rows: list[Sender] = Field(default_factory=list)
    others: Others | None = Field(default=None, description="null: all are listed")
    idle: int = Field(default=0, description="those that sent nothing that was measured")


class Agents(BaseModel, frozen=True, extra="forbid"):
    """Who sent the run. ``notes`` names who differs from the others beyond noise."""

    metric: Literal["ttft", "latency"] = "latency"
    by_agent: Senders = Senders()
    by_region: Senders | None = Field(default=None, description="null: no agent named its region")
    notes: list[Text] = Field(default_factory=list)


def agents_part(run: JudgedRun) -> Agents | None:
    """None: one host sent the run."""
    agents = [one for one in run.manifest.get("agents") or () if one.get("shards")]
    if not agents:
        return None
    regions = sorted({_region(one) for one in agents})
    of_region = [[place for place, one in enumerate(agents) if _region(one) == name] for name in regions]
    shards: list[Sequence[int]] = [one["shards"] for one in agents]
    found = split(run.records, shards)
    notes = []
    by_region = None
    if any(regions):
        whole = split(run.records, [[shard for place in some for shard in shards[place]] for some in of_region])
        rows = [_sender(name, share, [agents[place] for place in some])
                for name, share, some in zip(regions, whole.shares, of_region, strict=True)]  # fmt: skip
        by_region = _senders(rows, whole.metric)
        notes += _notes(whole.apart([range(len(regions))]), rows, whole.metric, "region")
    senders = [_sender(str(one.get("name", "")), share, [one]) for one, share in zip(agents, found.shares, strict=True)]
    notes += _notes(found.apart(of_region), senders, found.metric, "agent")
    return Agents(metric=found.metric, by_agent=_senders(senders, found.metric), by_region=by_region, notes=notes)


def _region(agent: Mapping[str, Any]) -> str:
    return str(agent.get("region") or "")


def _sender(name: str, share: Share, agents: Sequence[Mapping[str, Any]]) -> Sender:
    errors = [one["clock"]["error_ns"] for one in agents if one.get("clock")]
    (own,) = agents if len(agents) == 1 else ({},)
    return Sender(
        name=name,
        region=_region(own),
        host=str((own.get("host") or {}).get("hostname") or ""),
        agents=len(agents),
        requests=share.requests,
        failed=share.failed / max(share.requests, 1),
        latency=_ranks(share.latency),
        ttft=_ranks(share.ttft),
        generator_lag_p99_ns=None if share.lag is None else number(share.lag.p99, "ns"),
        clock_error_ns=max(errors, default=None),
        lost=own.get("lost"),
    )


def _ranks(found: Ranks | None) -> SenderRanks | None:
    if found is None:
        return None
    return part(SenderRanks, p50=number(found.p50, "ns"), p90=number(found.p90, "ns"), p99=number(found.p99, "ns"))


def _senders(rows: Sequence[Sender], metric: str) -> Senders:
    """p90 ranks them: a longer path moves it as much as the median, and a host that stalls at times shows there."""

    def slowness(row: Sender) -> tuple[float, str]:
        found: SenderRanks | None = getattr(row, metric)
        return (0.0 if found is None else -float("inf") if found.p90 is None else -found.p90), row.name

    busy = sorted((row for row in rows if row.requests), key=slowness)
    idle = len(rows) - len(busy)
    if len(busy) <= 2 * LISTED:
        return Senders(rows=busy, idle=idle)
    between = busy[LISTED:-LISTED]
    requests = sum(row.requests for row in between)
    failed = sum(row.failed * row.requests for row in between) / max(requests, 1)
    others = Others(number=len(between), requests=requests, failed=failed)
    return Senders(rows=[*busy[:LISTED], *busy[-LISTED:]], others=others, idle=idle)


# -- who differs -------------------------------------------------------------------------------------------------------


def _notes(apart: Sequence[Apart], rows: Sequence[Sender], metric: str, noun: str) -> list[str]:
    """A sentence for those that are alike in what differs; the first one's figures stand for them."""
    alike: dict[tuple[str, bool], list[Apart]] = {}
    for one in apart:
        alike.setdefault((one.what, one.worse), []).append(one)
    return [_note(some, rows, metric, noun) for some in alike.values()]


def _note(some: Sequence[Apart], rows: Sequence[Sender], metric: str, noun: str) -> str:
    first = some[0]
    row = rows[first.group]
    listed = ", ".join(_name(rows[one.group]) for one in some[:NAMED])
    more = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
    several = len(some) > 1
    names = f"{units.many(len(some), noun)} ({listed}{more})" if several else f"{noun} {listed}"
    if first.what == "failed":
        own, whole = units.percent(first.own, 3), units.percent(first.whole, 3)
        figures = f"of the requests of {_name(row)} {own} failed, of all {whole}"
        how = f"{'fail' if several else 'fails'} {'more' if first.worse else 'less'} often than the others"
    else:
        own, whole = units.duration(first.own), units.duration(first.whole)
        figures = f"{first.what}({metric}) of {_name(row)} is {own}, of all {whole}"
        how = f"{'are' if several else 'is'} {'slower' if first.worse else 'faster'} than the others"
    lag = row.generator_lag_p99_ns
    own_part = f"; its generator was late by {units.duration(lag)} (p99)" if lag is not None and first.worse else ""
    return f"{names} {how}, more than chance makes: {figures}{own_part}. Look at the network path and the host there"


def _name(row: Sender) -> str:
    if not row.name:
        return "(none)"
    return f"{row.name} on {row.host}" if row.host and row.host not in row.name else row.name


# -- laid out ----------------------------------------------------------------------------------------------------------


def blocks(found: Agents, _report: object) -> list[Block]:
    """A table of regions, where they are named, and one of agents; a long one is folded."""
    shown: list[Block] = [Sentence(sentence(note)) for note in found.notes]
    if found.by_region is not None:
        shown.append(_table("Region", found.by_region, found.metric))
    agents = _table("Agent", found.by_agent, found.metric)
    total = len(found.by_agent.rows) + (found.by_agent.others.number if found.by_agent.others else 0)
    long = len(found.by_agent.rows) > OPEN
    shown.append(Folded(f"All {units.many(total, 'agent')}", [agents]) if long else agents)
    return [Section("Who sent it", [Card(shown)], on=On.PAGE | On.MARKDOWN)]


def _table(head: str, found: Senders, metric: str) -> Table:
    heard = any(row.ttft is not None for row in found.rows)
    columns = [Column(head, right=False, names=True), Column("requests"), Column("failed")]
    columns += [Column(f"{name} {p}") for name in _metrics(heard) for p in ("p50", "p90", "p99")]
    columns += [Column("generator lag p99"), Column("clock known to")]
    rows = [_row(row, heard) for row in found.rows]
    if found.others is not None:
        between = [f"{units.count(found.others.number)} between these", units.count(found.others.requests)]
        between += [units.percent(found.others.failed, 3), *[""] * (len(columns) - 3)]
        rows.insert(LISTED, Row(between))
    notes = [f"{units.many(found.idle, head.lower())} sent nothing that was measured"] if found.idle else []
    return Table(columns, rows, notes=[sentence(note) for note in notes])


def _metrics(heard: bool) -> tuple[str, ...]:
    return ("ttft", "latency") if heard else ("latency",)


def _row(row: Sender, heard: bool) -> Row:
    aside = " · ".join(text for text in (row.region, row.host, row.lost and f"was lost: {row.lost}") if text)
    aside = aside or (units.many(row.agents, "agent") if row.agents > 1 else "")
    cells: list[str | Cell] = [Cell(row.name or "(none)", aside=aside), units.count(row.requests)]
    cells.append(units.percent(row.failed, 3))
    for name in _metrics(heard):
        ranks: SenderRanks | None = getattr(row, name)
        cells += (
            [units.NOTHING] * 3
            if ranks is None
            else [units.human(value, "ns") for value in (ranks.p50, ranks.p90, ranks.p99)]
        )
    cells.append(units.NOTHING if row.generator_lag_p99_ns is None else units.duration(row.generator_lag_p99_ns))
    return Row([*cells, units.NOTHING if row.clock_error_ns is None else units.duration(row.clock_error_ns)])


SECTION = ReportSection("agents", 132, agents_part, blocks)
