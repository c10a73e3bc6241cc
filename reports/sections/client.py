"""What the client's habits did: attempts per request over the run, retries, hedges, what was wasted, and how the
endpoint turned requests away: how fast, and whether ``Retry-After`` was right.

Attempts are the rows of single attempts, and the requests that had one. An attempt that failed before it was written,
or lost while its connection was opened, is one: so the metric ``attempts_per_request`` counts, and the bound
``max_amplification``.
"""

from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Facts, Figures, Section
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import Timeline, buckets_of
from plimsoll.reports.svg.plot import Canvas, Chart, chart
from plimsoll.reports.svg.strip import Layer, Strip, strip
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, Status
from plimsoll.slo.statistics.distribution import ascending

_WIDE, _NARROW = Canvas(1080, 150, left=66, right=72, top=10), Canvas(420, 150, left=58, right=62, top=10)
_SECOND_NS = 1_000_000_000


class Refusals(BaseModel, frozen=True, extra="forbid"):
    """Attempts that were turned away (429, 503, RESOURCE_EXHAUSTED)."""

    count: int
    p50_ns: int | None = Field(default=None, description="from sending to the refusal, median; null: never sent")
    p99_ns: int | None = None
    told: int = Field(default=0, description="of them, those with a Retry-After that could be read")
    retry_after_p50_s: int | None = Field(default=None, description="median of what it said; null: nothing")
    back_p50_ns: int | None = Field(
        default=None, description="from a refusal to the next attempt of anybody that was sent later and admitted"
    )
    early: int = Field(
        default=0, description="of those told, refusals after which that came before Retry-After was over"
    )


class ClientPart(BaseModel, frozen=True, extra="forbid"):
    """Requests, those that were never taken up left out, and the attempts that were made of them."""

    requests: int
    attempts: int
    amplification: float = Field(description="attempts per request")
    answered_at: dict[str, int] = Field(default_factory=dict, description="successes by number of attempts")
    retried: int = Field(default=0, description="requests that were sent again after a failure")
    hedges: int = 0
    hedge_wins: int = 0
    wasted_tokens: int = Field(default=0, description="of output, in attempts that did not answer")
    wasted_share: float | None = Field(default=None, description="of all tokens of output; null: there were none")
    requests_per_s: list[float] = Field(default_factory=list, description="first attempts, by bucket of the timeline")
    attempts_per_s: list[float] = Field(default_factory=list, description="all attempts, likewise")
    refusals: Refusals | None = Field(default=None, description="null: none was turned away")


def client_part(run: JudgedRun) -> ClientPart | None:
    """None: the client has no habits, and nobody was told to wait."""
    records, rows = run.records, run.records.measured()
    buckets = buckets_of(rows) if len(rows) else None
    rows = rows.select(rows["status"] != Status.UNSENT)
    tries = rows.label("tries")
    known = records.labels is not None and not {"tries", "retry_after"}.isdisjoint(records.labels.columns)
    if not known or buckets is None or not len(rows):
        return None
    single = records.in_measure & (records.label("tries") <= 1)
    made = records.select(single | ((records["phase"] == Phase.ATTEMPT) & _of_requests(records)))
    made = made.select(made["status"] != Status.UNSENT)
    hedges = np.maximum(rows.label("hedges"), 0)
    wasted = int(np.maximum(rows.label("wasted_tokens"), 0).sum())
    tokens = wasted + int(np.maximum(rows["n_out"], 0).sum())
    counts = np.bincount(np.maximum(tries[rows.ok], 1)).tolist()
    return ClientPart(
        requests=len(rows),
        attempts=len(made),
        amplification=float(f"{len(made) / len(rows):.6g}"),
        answered_at={str(n): count for n, count in enumerate(counts) if count},
        retried=int((tries - hedges > 1).sum()),
        hedges=int(hedges.sum()),
        hedge_wins=int((rows.label("hedge") == 1).sum()),
        wasted_tokens=wasted,
        wasted_share=float(f"{wasted / tokens:.6g}") if tokens else None,
        requests_per_s=buckets.per_s(_begun(rows)),
        attempts_per_s=buckets.per_s(_begun(made)),
        refusals=_refusals(made),
    )


def _of_requests(records: Records) -> BoolArray:
    """bool[n]: the row is of a measured request: those that were cancelled on purpose have attempts, too."""
    query, sample = records["query_id"], records["sample_ix"]
    keys = query * (int(sample.max(initial=0)) + 1) + sample
    return np.isin(keys, keys[records.in_measure])


def _begun(rows: Records) -> IntArray:
    """When each was sent, or, if it never was, taken up."""
    sent, ready = rows["sent_ns"], rows["ready_ns"]
    at = np.where(sent >= 0, sent, ready)
    return at[at >= 0]


def _refusals(made: Records) -> Refusals | None:
    turned = made.select(made["status"] == Status.REFUSED)
    if not len(turned):
        return None
    took, said = turned["done_ns"] - turned["sent_ns"], turned.label("retry_after")
    admitted = ascending(made["sent_ns"][made.ok])
    at = np.searchsorted(admitted, turned["done_ns"])
    came = at < len(admitted)
    back = np.append(admitted, 0)[at] - turned["done_ns"]
    told = said >= 0
    return Refusals(
        count=len(turned),
        p50_ns=_rank(took, 0.5),
        p99_ns=_rank(took, 0.99),
        told=int(told.sum()),
        retry_after_p50_s=_rank(said[told], 0.5),
        back_p50_ns=_rank(back[came], 0.5),
        early=int((told & came & (back < said * _SECOND_NS)).sum()),
    )


def _rank(values: IntArray, p: float) -> int | None:
    return int(np.sort(values)[max(0, -int(-p * len(values) // 1) - 1)]) if len(values) else None


# -- laid out ----------------------------------------------------------------------------------------------------------


def blocks(part: ClientPart, report: Any) -> list[Block]:
    """Counts, and both rates on the run's own time axis."""
    times = f"{part.amplification:.4g} attempts per request"
    facts = [("Attempts", f"{units.count(part.attempts)} for {units.many(part.requests, 'request')}: {times}")]
    if part.answered_at:
        shown = ", ".join(f"{units.count(count)} at {n}" for n, count in part.answered_at.items())
        facts.append(("Answered after so many attempts", shown))
    if part.retried:
        facts.append(("Tried again", f"{units.many(part.retried, 'request')}, {_share(part.retried, part.requests)}"))
    if part.hedges:
        won = f"{units.many(part.hedge_wins, 'request')} answered by one"
        facts.append(("Hedges", f"{units.count(part.hedges)}, {_share(part.hedges, part.requests)}; {won}"))
    if part.wasted_tokens:
        share = "" if part.wasted_share is None else f", {units.percent(part.wasted_share, 2)} of all"
        facts.append(("Wasted", f"{units.many(part.wasted_tokens, 'token')} of output{share}"))
    facts += _turned(part.refusals) if part.refusals is not None else []
    shown_blocks: list[Block] = [Card([Facts(facts)])]
    timeline: Timeline | None = report.charts.timeline
    if timeline is not None and part.attempts > part.requests:
        shown_blocks.append(Card([Figures(partial(_chart, part, timeline), bare=True)]))
    return [Section("The client's attempts", shown_blocks)]


def _share(count: int, of: int) -> str:
    return f"{units.percent(count / max(of, 1), 2)} of requests"


def _turned(found: Refusals) -> list[tuple[str, str]]:
    facts = []
    if found.p50_ns is not None and found.p99_ns is not None:
        took = f"p50 {units.duration(found.p50_ns)}, p99 {units.duration(found.p99_ns)} after sending"
        facts.append(("Turned away", f"{units.many(found.count, 'attempt')}; {took}"))
    if found.back_p50_ns is not None:
        facts.append(("Admitted again", f"{units.duration(found.back_p50_ns)} after a refusal (median)"))
    if found.told and found.retry_after_p50_s is not None:
        early = f"{units.count(found.early)} of {units.count(found.told)} times capacity was back before that"
        facts.append(("Retry-After", f"{found.retry_after_p50_s} s (median); {early}"))
    return facts


def _chart(part: ClientPart, timeline: Timeline) -> list[Chart]:
    layers = [Layer("attempts", "s-error", part.attempts_per_s), Layer("requests", "s-sent", part.requests_per_s)]
    draw = partial(strip, Strip("Sent", "per_s", layers), timeline, "Attempts and requests over the run", x_labels=True)
    caption = "The distance between the lines is load that the client made by itself."
    return [chart("Attempts and requests", caption, [], draw, _WIDE, _NARROW)]


SECTION = ReportSection("client", 86, client_part, blocks)
