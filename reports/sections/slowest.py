"""The slowest answers with every stamp they have: where the time went, and by which id to look for them in a server's
log.

Successful requests only, by value: a failed request is slower than all of them, and what is known about it is in
``plimsoll.reports.sections.failures``. Nothing is judged here, and no stage is blamed.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import not_
from types import MappingProxyType

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Column,
    Figures,
    Folded,
    On,
    Row,
    Section,
    Sentence,
    Table,
)
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.parts import Text
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.svg.bars import Bar, between, staged
from plimsoll.reports.svg.plot import Chart, Key
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.stages import parse
from plimsoll.slo.records.records import BoolArray, Records, Stamp, Status, TokensFrom
from plimsoll.slo.records.trace_ids import TraceIds, address_error
from plimsoll.slo.statistics.distribution import BLOCK

MAX_SLOWEST = 10
_TEXT = 200

#: What requests are ranked by, and the stamp at which it ends. Both begin when the request was due.
RANKED: Mapping[str, str] = MappingProxyType({"ttft": "first_token_ns", "latency": "done_ns"})

#: The stamps of one answer in the order in which they come.
STAGES = ("ready", "sent", "first_byte", "headers", "first_token", "first_answer", "last_token", "done")


class Stages(BaseModel, frozen=True, extra="forbid"):
    """Nanoseconds from when the request was due; null: it did not happen. ``ready``: the generator took it up;
    ``sent``: its first byte left, once there was a connection for it; the others are arrivals. ``first_answer``: the
    first token that is no reasoning.
    """

    ready: int | None = None
    sent: int | None = None
    first_byte: int | None = None
    headers: int | None = None
    first_token: int | None = None
    first_answer: int | None = None
    last_token: int | None = None
    done: int | None = None


class SlowRequest(BaseModel, frozen=True, extra="forbid"):
    """One answer. ``connect_ns``: how long its connection took to set up, null when it reused one."""

    request_id: Text
    query_id: int
    sample_ix: int
    value_ns: int = Field(description="what it is ranked by")
    due_ns: int
    stages_ns: Stages
    connect_ns: int | None = None
    n_in: int | None = None
    n_in_planned: bool = Field(default=False, description="n_in is the plan's length, because the server counted none")
    n_out: int | None = None
    status: str = "OK"
    code: int | None = None
    worker: int | None = None
    stamp: str = ""
    server_timing: Text = ""
    trace_id: Text = Field(default="", description="absent: it carried no trace context", exclude_if=not_)
    sampled: bool = Field(default=False, description="its flag asked servers to record the trace", exclude_if=not_)


class Slowest(BaseModel, frozen=True, extra="forbid"):
    """The slowest successful requests, slowest first, by time to first token and by latency; ``failed`` more are slower
    than any of them. ``ids_sent`` is false where the target was told to get no ``x-request-id``; ``trace_url`` is where
    a trace can be seen, with ``{trace_id}`` for its id.
    """

    ttft: list[SlowRequest] = Field(default_factory=list)
    latency: list[SlowRequest] = Field(default_factory=list)
    failed: int = 0
    ids_sent: bool = True
    trace_url: Text = Field(default="", exclude_if=not_)


def slowest_part(
    records: Records, run_id: str, ids_sent: bool = True, traces: TraceIds | None = None, trace_url: str = ""
) -> Slowest:
    """The slowest of the measured rows."""
    measured, ok = records.in_measure, records.ok
    found = {
        name: [_request(records, row, value, run_id, traces) for row, value in _top(records, measured & ok, column)]
        for name, column in RANKED.items()
    }
    failed = int(np.count_nonzero(measured & ~ok))
    return Slowest(**found, failed=failed, ids_sent=ids_sent, trace_url=trace_url if traces is not None else "")


def _top(records: Records, good: BoolArray, column: str) -> list[tuple[int, int]]:
    """(row, value) of the good rows that took longest from due to this stamp, longest first, the earlier one first
    among equals; negative values are none.
    """
    end, due = records[column], records["due_ns"]
    rows, values = np.empty(0, np.int64), np.empty(0, np.int64)
    for first in range(0, len(records), BLOCK):
        part = slice(first, first + BLOCK)
        took = np.where(good[part] & (end[part] >= 0), end[part] - due[part], -1)
        more = np.flatnonzero(took > (values[-1] if len(values) == MAX_SLOWEST else -1))
        rows, values = np.append(rows, more + first), np.append(values, took[more])
        order = np.lexsort((rows, -values))[:MAX_SLOWEST]
        rows, values = rows[order], values[order]
    return list(zip(rows.tolist(), values.tolist(), strict=True))


def request_id(run_id: str, query_id: int, sample_ix: int) -> str:
    """The ``x-request-id`` that a measured request was sent with."""
    return f"{run_id}-{query_id}-{sample_ix}"


def _request(records: Records, row: int, value_ns: int, run_id: str, traces: TraceIds | None) -> SlowRequest:
    def known(name: str) -> int | None:
        value = int(records.columns[name][row])
        return None if value < 0 else value

    due = int(records.columns["due_ns"][row])
    times = {stage: known(f"{stage}_ns") for stage in STAGES}
    query, sample, timing = known("query_id") or 0, known("sample_ix") or 0, known("server_timing")
    header = b"" if traces is None else traces.header(query, sample, False)
    return SlowRequest(
        request_id=request_id(run_id, query, sample),
        query_id=query,
        sample_ix=sample,
        value_ns=value_ns,
        due_ns=due,
        stages_ns=Stages(**{stage: None if at is None else at - due for stage, at in times.items()}),
        connect_ns=known("connect_ns"),
        n_in=known("n_in"),
        n_in_planned=known("n_in_from") == TokensFrom.PLAN,
        n_out=known("n_out"),
        status=Status(int(records.columns["status"][row])).name,
        code=known("code"),
        worker=known("worker"),
        stamp=Stamp(int(records.columns["stamp"][row])).name.lower(),
        server_timing="" if timing is None else public_text(records.timings[timing])[:_TEXT],
        trace_id=header[3:35].decode(),
        sampled=header.endswith(b"1"),
    )


# -- in words -------------------------------------------------------------------------------------------------

#: The stages that are drawn, by the stamp each ends with. The end of the headers is in the table only.
DRAWN = ("ready", "sent", "first_byte", "first_token", "first_answer", "last_token", "done")
_NAMES = MappingProxyType(
    {
        "ready": "generator late",
        "sent": "waits for a connection",
        "first_byte": "waits for the first byte",
        "first_token": "to the first token",
        "first_answer": "reasons",
        "last_token": "tokens",
        "done": "to the end",
    }
)
_TITLES = MappingProxyType({"ttft": "Slowest to their first token", "latency": "Slowest to their end"})
#: A stage of less than this share of the longest bar is no more than a hair line: the legend leaves it out.
_VISIBLE = 0.003


def blocks(part: Slowest, _report: object) -> list[Block]:
    """By time to first token and by latency: a chart and a table each, on the page only; none when too little was
    measured.
    """
    groups = [(title, getattr(part, name)) for name, title in _TITLES.items()]
    cards: list[Block] = [_card(title, requests, part.trace_url) for title, requests in groups if len(requests) > 1]
    return [Section("The slowest requests", [*cards, Sentence(note(part), fine=True)], on=On.PAGE)] if cards else []


def note(part: Slowest) -> str:
    """What is not among them."""
    ids = "Ids are the x-request-id of each request" if part.ids_sent else "Ids were not sent with the requests"
    lost = units.many(part.failed, "failed request")
    failed = f" {lost} rank{'s' if part.failed == 1 else ''} as slower than all of these." if part.failed else ""
    return f"Stages from when a request was due. {ids}; rows of requests.parquet have them too.{failed}"


def _card(title: str, requests: Sequence[SlowRequest], trace_url: str) -> Card:
    columns = [Column("Request", right=False, names=True), Column("due")]
    columns += [Column(stage.replace("_", " ")) for stage in STAGES]
    columns += [Column("trace", right=False)] if trace_url else []
    table = Table(columns, [Row(_row(request, trace_url)) for request in requests], look="stamps")
    drawn = Figures(partial(_charts, title, requests), bare=True)
    return Card([drawn, Folded("Every stamp, as time since due", [table])])


def _charts(title: str, requests: Sequence[SlowRequest]) -> list[Chart]:
    bars = [Bar(_label(request), _stages(request)) for request in requests]
    short = [Bar(_label(request, short=True), _stages(request)) for request in requests]
    longest = max(end for bar in bars for _, _, end in bar.stages)
    used = {stage for bar in bars for stage, begin, end in bar.stages if end - begin > _VISIBLE * longest}
    legend = [Key(_NAMES[stage], f"to-{stage}", "bar") for stage in DRAWN if f"to-{stage}" in used]
    return [staged(title, legend, bars, short)]


def _stages(request: SlowRequest) -> list[tuple[str, int, int]]:
    stamps: list[tuple[str, int | None]] = [(stage, getattr(request.stages_ns, stage)) for stage in DRAWN]
    return between(stamps)


def _label(request: SlowRequest, short: bool = False) -> str:
    parts = [request.request_id, units.duration(request.value_ns), f"due {units.duration(request.due_ns, 4)}"]
    if request.n_out is not None:
        whose = "planned " if request.n_in_planned else ""
        told = f"{units.count(request.n_in)} {whose}in, " if request.n_in is not None else ""
        parts.append(f"{told}{units.count(request.n_out)} out")
    if not short:
        stages = [f"{name} {units.duration(took)}" for name, took in parse(request.server_timing).items()]
        parts += [", ".join(stages)] if stages else []
    return "  ·  ".join(parts)


def _row(request: SlowRequest, trace_url: str) -> list[str | Cell]:
    stamps = [getattr(request.stages_ns, stage) for stage in STAGES]
    due = units.duration(request.due_ns, 6) if request.due_ns else "0 s"
    times = [units.NOTHING if at is None else units.duration(at) for at in stamps]
    row: list[str | Cell] = [Cell("", code=request.request_id, aside=_more(request)), due, *times]
    if trace_url:
        address = trace_url.replace("{trace_id}", request.trace_id)
        row.append(Cell("", links=[(address, "sampled" if request.sampled else "not sampled")]))
    return row


def _more(request: SlowRequest) -> str:
    parts = [f"{request.status} {request.code}" if request.code is not None else request.status]
    parts += [f"worker {request.worker}"] if request.worker is not None else []
    parts.append(f"{request.stamp} stamps")
    if request.connect_ns is not None:
        parts.append(f"opened its connection in {units.duration(request.connect_ns)}")
    parts += [request.server_timing] if request.server_timing else []
    parts += [f"trace {request.trace_id}"] if request.trace_id else []
    return " · ".join(parts)


def _part(run: JudgedRun) -> Slowest:
    options = run.options
    trace_url = options.get("trace_url", "")
    trace_url = "" if address_error(trace_url) else trace_url
    return slowest_part(run.records, run.run_id, bool(options.get("request_id", True)), run.traces, trace_url)


SECTION = ReportSection("slowest", 120, _part, blocks)
