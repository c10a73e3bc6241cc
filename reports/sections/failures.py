"""Each kind of failure on its own: how many, when, from which workers, after how long, and which requests to look for.

A kind is a status, an HTTP code and an error text whose numbers and hexadecimal runs are taken as one, so that "request
8a41f3c09b timed out" a thousand times is one line. Explains nothing away: every failed request is in exactly one kind
or in ``other``.
"""

from functools import partial
from operator import not_
from typing import Any

import numpy as np
from markupsafe import Markup
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Drawings, Facts, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import Text
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.sections.slowest import request_id
from plimsoll.reports.svg.ink import element, join, line
from plimsoll.reports.svg.plot import Canvas, svg
from plimsoll.reports.wording import units
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.wire import Question
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status
from plimsoll.slo.records.trace_ids import TraceIds
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.statistics.order import ranked
from plimsoll.slo.verdict.counts import kinds_of

MAX_KINDS = 12
MAX_STEPS = 60
MAX_WORKERS = 16
MAX_IDS = 3
_TEXT = 300


class Until(BaseModel, frozen=True, extra="forbid"):
    """From when a request was due to its failure, in nanoseconds."""

    min: int
    p50: int
    max: int


class FailureKind(BaseModel, frozen=True, extra="forbid"):
    """Failures of one kind. ``steps[i]`` of them happened in step i of the run (see ``Failures``)."""

    status: str
    code: int | None = Field(default=None, description="HTTP status code; null: there was none")
    text: Text = Field(default="", description="the most frequent text of the kind")
    texts: int = Field(default=1, description="different texts that were taken as one")
    count: int
    share: float = Field(description="of all measured requests")
    first_ns: int = Field(description="after t0: when the first one failed")
    last_ns: int
    workers: list[int] = Field(default_factory=list, description="the first 16 of them")
    n_workers: int = 0
    answered: int = Field(default=0, description="failed after their first token had come")
    until_ns: Until | None = Field(default=None, description="null: none was ever sent, or the rows are with agents")
    steps: list[int] = Field(default_factory=list)
    request_ids: list[Text] = Field(default_factory=list, description="the first, the middle and the last one")
    trace_ids: list[Text] = Field(default_factory=list, description="theirs; absent: there are none", exclude_if=not_)


class Failures(BaseModel, frozen=True, extra="forbid"):
    """Kinds of failure, most frequent first; ``other`` failures are of kinds that are not listed."""

    start_ns: int = 0
    step_ns: int = 0
    kinds: list[FailureKind] = Field(default_factory=list)
    other: int = 0


def failures_part(records: Records, run_id: str, traces: TraceIds | None = None) -> Failures:
    """The failures among the measured rows."""
    measured = records.in_measure
    rows = np.flatnonzero(measured & ~records.ok)
    if len(rows) == 0:
        return Failures()
    due, done = (records.measured()[name] for name in ("due_ns", "done_ns"))
    start = int(min(0, due.min()))
    end = int(max(due.max(), done.max(), start + 1)) + 1
    step = -(-(end - start) // MAX_STEPS)
    kind = kinds_of(records, rows)
    numbers = np.bincount(kind)
    kept = np.lexsort((np.arange(len(numbers)), -numbers))[:MAX_KINDS]
    parts = []
    for index in kept.tolist():
        these = rows[kind == index]
        text, texts = _example(records, these)
        seen = _seen(records, these, run_id, traces, start, step)
        share = len(these) / len(due)
        parts.append(FailureKind(text=text, texts=texts, count=len(these), share=share, **seen))
    return Failures(start_ns=start, step_ns=step, kinds=parts, other=len(rows) - sum(part.count for part in parts))


def _example(records: Records, rows: IntArray) -> tuple[str, int]:
    """The most frequent text of these rows, and how many different ones there are."""
    numbers = np.bincount(records["error"][rows] + 1)
    return _text(records, int(np.argmax(numbers)) - 1), int(np.count_nonzero(numbers))


def _text(records: Records, index: int) -> str:
    return public_text(records.errors[index])[:_TEXT] if index >= 0 else ""


def _seen(
    records: Records, rows: IntArray, run_id: str, traces: TraceIds | None, start: int, step: int
) -> dict[str, Any]:
    """What the rows of one kind say, by the keys of the part."""
    due, done = records["due_ns"][rows], records["done_ns"][rows]
    when = np.where(done >= 0, done, due)
    workers = records["worker"][rows]
    workers = np.flatnonzero(np.bincount(workers[workers >= 0]))
    code = int(records.columns["code"][rows[0]])
    queries, samples = records["query_id"][rows], records["sample_ix"][rows]
    shown = [(int(queries[i]), int(samples[i])) for i in _spread(when)]
    return {
        "status": Status(int(records.columns["status"][rows[0]])).name,
        "code": code if code >= 0 else None,
        "first_ns": int(when.min()),
        "last_ns": int(when.max()),
        "workers": workers[:MAX_WORKERS].tolist(),
        "n_workers": len(workers),
        "answered": int(np.count_nonzero(records["first_token_ns"][rows] >= 0)),
        "until_ns": _until(done - due, (records["sent_ns"][rows] >= 0) & (done >= 0)),
        "steps": np.bincount(np.maximum(when - start, 0) // step, minlength=MAX_STEPS)[:MAX_STEPS].tolist(),
        "request_ids": [request_id(run_id, query, sample) for query, sample in shown],
        "trace_ids": [] if traces is None else [traces.header(*one, False)[3:35].decode() for one in shown],
    }


def _spread(when: IntArray) -> list[int]:
    """The first, the middle and the last place in order of time, the earlier one first among equals."""
    ranks = np.unique(np.linspace(0, len(when) - 1, min(MAX_IDS, len(when))).astype(np.int64))
    times = np.partition(when, ranks)[ranks].tolist()
    return [
        int(np.flatnonzero(when == at)[rank - np.count_nonzero(when < at)])
        for at, rank in zip(times, ranks.tolist(), strict=True)
    ]


def _until(waits: IntArray, known: BoolArray) -> Until | None:
    if not known.any():
        return None
    ordered = ranked(waits[known].astype(np.float64))
    return Until(min=int(ordered[0]), p50=int(quantile(ordered, "0.5")), max=int(ordered[-1]))


def failures_of_parts(rows: Rows) -> Failures:
    """The same of rows that lie in parts, without what only rows know: how long after they were due, and their ids.
    ``texts`` counts those of the part with most.
    """
    told, failed = rows.tally, rows.tally.whole("+failed")
    if not failed:
        return Failures()
    start = min(0, int(told["<due"][0]))
    step = -(-(max(int(told[">over"][0]), start + 1) + 1 - start) // MAX_STEPS)
    said = rows.ask(Question("failures", rows.of, {"steps": np.array([start, step, MAX_STEPS])}))
    found = []
    for name in (key.removeprefix("+kinds/") for key in said.arrays if key.startswith("+kinds/")):
        count, answered, *steps = said[f"+kinds/{name}"].tolist()
        status, code, _ = name.split("/")
        texts, workers = said.named(f"+text/{name}/"), np.unique(said[f"&workers/{name}"]).tolist()
        kind = FailureKind(
            status=status,
            code=int(code) if int(code) >= 0 else None,
            text=public_text(max(texts, key=texts.__getitem__)),
            texts=int(said[f">last/{name}"][1]),
            count=count,
            share=count / told.whole("+measured"),
            first_ns=int(said[f"<first/{name}"][0]),
            last_ns=int(said[f">last/{name}"][0]),
            workers=workers[:MAX_WORKERS],
            n_workers=len(workers),
            answered=answered,
            steps=steps,
        )
        found.append(kind)
    found.sort(key=lambda kind: (-kind.count, Status[kind.status], kind.code or -1))
    kinds = found[:MAX_KINDS]
    return Failures(start_ns=start, step_ns=step, kinds=kinds, other=failed - sum(kind.count for kind in kinds))


# -- in words -------------------------------------------------------------------------------------------------

_SPARK = Canvas(240, 34, left=0, right=0)


def blocks(part: Failures, report: Any) -> list[Block]:
    """How requests ended, and each kind of failure: a row where there is little room, a card of its own on the page."""
    statuses = [(name, units.count(number)) for name, number in report.counts.by_status.items() if number]
    ended: list[Block] = [Facts(statuses)] if statuses else []
    ended += [_card(kind, part, report.slowest.ids_sent) for kind in part.kinds]
    if part.other:
        ended.append(Sentence(f"{units.many(part.other, 'more failure')} of other kinds.", fine=True))
    found: list[Block] = [Section("How requests ended", [Card(ended)], on=On.PAGE)] if ended else []
    if report.counts.failed:
        name = f"Failures ({units.count(report.counts.failed)})"
        found.append(Section(name, [_table(part)], folded=name, on=On.WRITTEN))
    return found


def _table(part: Failures) -> Table:
    columns = [Column(name, right=False, titled=name.capitalize()) for name in ("status", "error")]
    columns.append(Column("requests", titled="Requests"))
    rows = [Row([_name(kind), _said(kind), units.count(kind.count)]) for kind in part.kinds]
    rows += [Row(["", "other kinds", units.count(part.other)])] if part.other else []
    return Table(columns, rows, title="Failures")


def _card(kind: FailureKind, part: Failures, ids_sent: bool) -> Card:
    return Card(
        [Drawings([("", partial(_spark, kind, part))]), Sentence(_said(kind)), Facts(_facts(kind, ids_sent))],
        code=_name(kind),
        aside=f"{units.count(kind.count)}, {units.percent(kind.share, 3)} of all",
        look="failure",
    )


def _name(kind: FailureKind) -> str:
    """A kind's status, with the code that came with it."""
    return kind.status if kind.code is None else f"{kind.status} {kind.code}"


def _said(kind: FailureKind) -> str:
    """A kind's most frequent text, and how many others it stands for."""
    others = f" ({units.count(kind.texts)} texts that differ in numbers only)" if kind.texts > 1 else ""
    return (kind.text or "no error text") + others


def _facts(kind: FailureKind, ids_sent: bool) -> list[tuple[str, str]]:
    first, last = _moment(kind.first_ns), _moment(kind.last_ns)
    facts = [("When", f"at {first}" if kind.count == 1 else f"{first} to {last}")]
    if kind.until_ns is not None:
        wait = kind.until_ns
        spread = units.duration(wait.p50)
        if kind.count > 1:
            spread = f"median {spread}, {units.duration(wait.min)} to {units.duration(wait.max)}"
        facts.append(("Failed after", f"{spread} since due"))
    elif kind.request_ids:  # no row told how long that was
        facts.append(("Failed after", "never sent"))
    if kind.answered:
        facts.append(("After the first token", f"{units.count(kind.answered)} of {units.count(kind.count)}"))
    if kind.n_workers:
        more = f" and {kind.n_workers - len(kind.workers)} more" if kind.n_workers > len(kind.workers) else ""
        facts.append(("Workers", ", ".join(str(worker) for worker in kind.workers) + more))
    if kind.request_ids:
        facts.append(("Request ids" if ids_sent else "Rows (ids were not sent)", ", ".join(kind.request_ids)))
    if kind.trace_ids:
        facts.append(("Trace ids", ", ".join(kind.trace_ids)))
    return facts


def _moment(at_ns: int) -> str:
    return units.duration(at_ns, 4) if at_ns else "0 s"


def _spark(kind: FailureKind, failures: Failures) -> Markup | None:
    """Failures of the kind over the run's time, as bars."""
    if not any(kind.steps):
        return None
    high, width = max(kind.steps), _SPARK.width / len(kind.steps)
    base = _SPARK.height - 3
    bars = [
        element(
            "rect", x=i * width, y=base - max(n / high * 28, 2.5), width=max(width - 1, 1.5),
            height=max(n / high * 28, 2.5), class_="s-error bar",
        )
        for i, n in enumerate(kind.steps)
        if n
    ]  # fmt: skip
    length = units.duration(failures.step_ns * len(kind.steps))
    most = f"at most {units.count(high)} in {units.duration(failures.step_ns)}"
    label = f"{units.count(kind.count)} failures over {length}, {most}"
    return svg(_SPARK, join([line(0, base + 0.5, _SPARK.width, base + 0.5, "base"), *bars]), label)


SECTION = ReportSection("failures", 110, lambda run: failures_part(run.records, run.run_id, run.traces), blocks)
