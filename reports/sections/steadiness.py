"""Warm-up, drift and the steady stretch of a run, in the report and in words. They are proposals and observations: no
verdict reads them.
"""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Facts, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import sentence
from plimsoll.slo.statistics.warmup import Incident
from plimsoll.slo.verdict.steadiness import Steadiness

#: A trend over the whole run of less than this share of the level is not worth a sentence.
MATERIAL = 0.10
_SECOND_NS = 1_000_000_000


class Proposal(BaseModel, frozen=True, extra="forbid"):
    """What MSER-5 says of the metric in order of issue. ``drop`` is 0 where it would leave nothing out."""

    proposed: bool = Field(description="more than chance, enough to matter, and its end was seen")
    incident: Text = Field("", description="what went wrong in that stretch, so that it is no warm-up; empty: nothing")
    too_short: bool = Field(False, description="it may be longer than half of the run")
    drop: int = Field(0, description="requests before the cut")
    until_ns: int = Field(0, description="when the first request after the cut was due")
    before_ns: Number = Field(None, description="median before the cut; null: infinite, or no cut")
    after_ns: Number = Field(None, description="median after the cut; likewise")
    distance: float = Field(0.0, description="standard errors between the ranks on both sides")
    suggested_warmup_ns: int | None = Field(None, description="for --warmup, the warm-up that the run had included")
    curve_at_ns: list[int] = Field(default_factory=list, description="cuts, by the due time of what would be left")
    curve: list[float] = Field(default_factory=list, description="MSER there, relative to no cut at all")


class Drift(BaseModel, frozen=True, extra="forbid"):
    """One percentile over the windows: Mann-Kendall with Hamed and Rao's variance, and Pettitt's change point."""

    percentile: str
    direction: Literal["up", "down", "none"]
    p: float
    change: float | None = Field(None, description="Sen's slope over the run, relative to the median window")
    shift_at_ns: int | None = Field(None, description="the most likely change of level, where it is more than chance")
    shift_p: float = 1.0
    value_ns: list[Number] = Field(default_factory=list, description="by window; null is infinite")


class SteadyStretch(BaseModel, frozen=True, extra="forbid"):
    """The first stretch of windows on a plateau, at least half of the time; both times null when there is none."""

    verdict: Literal["steady", "drifting_up", "drifting_down", "anomaly", "not_found"]
    since_ns: int | None = None
    until_ns: int | None = None


class SteadinessPart(BaseModel, frozen=True, extra="forbid"):
    """Warm-up, trend and steady stretch of one metric. The last two look at what comes after a proposed warm-up."""

    metric: str
    n: int
    warmup: Proposal | None = Field(None, description="null: fewer than 100 values")
    drift: list[Drift] = Field(default_factory=list, description="empty: fewer than 200 values")
    edges_ns: list[int] = Field(default_factory=list, description="when the windows of drift begin; last: their end")
    steady: SteadyStretch | None = None
    notes: list[Text] = Field(default_factory=list, description="what is worth a sentence; often nothing")


def steadiness_part(found: Steadiness | None) -> SteadinessPart | None:
    """None: too few requests, or a load that is meant to move."""
    if found is None:
        return None
    warmup = found.warmup
    proposal = None if warmup is None else part(Proposal, warmup, incident=_incident(warmup.incident))
    drift = [part(Drift, one) for one in found.drift]
    notes = [*_warmup_notes(found.metric, proposal), *_drift_notes(found.metric, drift)]
    return part(SteadinessPart, found, warmup=proposal, drift=drift, notes=notes)


def _incident(found: Incident | None) -> str:
    if found is None:
        return ""
    said = [f"{units.many(found.failed, 'request')} failed there"] if found.failed else []
    if found.stall is not None:
        since, until = (units.duration(at, 3) if at else "0 s" for at in found.stall)
        said.append(f"nothing was answered from {since} to {until}")
    return " and ".join(said)


def _warmup_notes(metric: str, found: Proposal | None) -> list[str]:
    if found is None or not (found.proposed or found.too_short or found.incident):
        return []
    medians = (
        f"median {metric} {units.duration(found.before_ns or math.nan)}" if found.before_ns else "half of it failed"
    )
    levels = f"{medians}, then {units.duration(found.after_ns)}" if found.after_ns else medians
    if found.incident:
        how = "slower" if found.distance > 0 else "faster"
        return [
            f"the first {units.duration(found.until_ns, 2)} ({units.many(found.drop, 'request')}) are {how} than the "
            f"rest ({levels}), but {found.incident}: that is no warm-up to leave out. Find out what happened then"
        ]
    if found.too_short:
        falls = "it may be warm-up to the end. Run for longer"
        rises = "the endpoint still fills up, or does not keep up. Run for longer, or lower the load"
        way, then = ("falls", falls) if found.distance > 0 else ("rises", rises)
        return [f"{metric} still {way} at the half of the run ({levels}): {then}"]
    seconds = (found.suggested_warmup_ns or 0) // _SECOND_NS
    return [
        f"the first {units.duration(found.until_ns, 2)} ({units.many(found.drop, 'request')}) look like warm-up "
        f"({levels}): run again with --warmup {seconds}s"
    ]


def _drift_notes(metric: str, drift: list[Drift]) -> list[str]:
    """The percentile with the strongest trend, if it is enough to matter."""
    told = [d for d in drift if d.direction != "none" and (d.change is None or abs(d.change) >= MATERIAL)]
    if not told:
        return []
    worst = min(told, key=lambda d: d.p)
    how = "rises" if worst.direction == "up" else "falls"
    by = "" if worst.change is None else f" by {units.percent(abs(worst.change), 2)}"
    return [
        f"{worst.percentile} of {metric} {how}{by} from window to window of the run (Mann-Kendall p = {worst.p:.2g}): "
        "it depends on how long the run was"
    ]


def blocks(part: SteadinessPart, _report: object) -> list[Block]:
    """Warm-up, drift and steady stretch, on the page only."""
    facts = [*_warmup(part.warmup), *_stretch(part)]
    shown: list[Block] = [Sentence(sentence(note)) for note in part.notes]
    shown += [Facts(facts)] if facts else []
    if part.drift:
        head = f"{part.metric} in {max(len(part.edges_ns) - 1, 0)} windows"
        columns = [Column(head, right=False, names=True), Column("trend", right=False), Column("p (Mann-Kendall)")]
        columns += [Column("change of level"), Column("lowest"), Column("highest")]
        shown.append(Table(columns, [Row(_drift(drift)) for drift in part.drift]))
    return [Section("Was the run steady?", [Card(shown)], on=On.PAGE)]


def _warmup(found: Proposal | None) -> list[tuple[str, str]]:
    if found is None:
        return [("Warm-up", "not judged: fewer than 100 values")]
    if found.incident:
        return [("Warm-up", f"none to leave out: {found.incident}")]
    if found.too_short:
        return [("Warm-up", "may be longer than half of the run")]
    if not found.proposed:
        return [("Warm-up", "none to leave out")]
    levels = ""
    if found.before_ns is not None and found.after_ns is not None:
        levels = f"; median {units.duration(found.before_ns)} before, {units.duration(found.after_ns)} after"
    return [
        (
            "Warm-up (MSER-5)",
            f"the first {units.duration(found.until_ns)}, {units.many(found.drop, 'request')}{levels}",
        ),
        ("Left out of the numbers", "nothing: the cut is a proposal"),
    ]


def _stretch(part: SteadinessPart) -> list[tuple[str, str]]:
    found = part.steady
    if found is None:
        return []
    if found.since_ns is None or found.until_ns is None:
        flat = (
            found.verdict == "not_found" and bool(part.drift) and all(drift.direction == "none" for drift in part.drift)
        )
        levels = "none covers half of the run: its levels move up and down, with no trend either way"
        return [("Steady stretch", levels if flat else found.verdict.replace("_", " "))]
    span = (
        f"{units.duration(found.since_ns)} to {units.duration(found.until_ns)}"
        if found.since_ns
        else (f"0 s to {units.duration(found.until_ns)}")
    )
    return [("Steady stretch", f"{found.verdict.replace('_', ' ')}, {span}")]


def _drift(drift: Drift) -> list[str]:
    change = "" if drift.change is None or drift.direction == "none" else f" by {units.percent(abs(drift.change), 2)}"
    trend = {"up": "rises", "down": "falls", "none": "no trend"}[drift.direction]
    shift = units.NOTHING if drift.shift_at_ns is None else f"at {units.duration(drift.shift_at_ns)}"
    p = "< 0.001" if drift.p < 0.001 else f"{drift.p:.2g}"
    ends = (_extreme(drift.value_ns, least=least) for least in (True, False))
    return [drift.percentile, trend + change, p, shift, *ends]


def _extreme(values: Sequence[int | float | None], least: bool) -> str:
    known = [float("inf") if value is None else float(value) for value in values]
    if not known:
        return units.NOTHING
    value = min(known) if least else max(known)
    return units.INFINITE if value == float("inf") else units.duration(value)


SECTION = ReportSection("steadiness", 140, lambda run: steadiness_part(run.judged.steadiness), blocks)
