"""The part of a report on what happened during the run: its events, with what became of each, and its phases. Report
key ``events``; the objectives on getting over one are the verdict's.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Folded, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.parts import Text
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.wording import units

TITLE = "Events"


class EventPart(BaseModel, frozen=True, extra="ignore"):
    """One event; times in ns from t0, -1: it did not begin, or end."""

    name: Text
    does: Text = Field(description="run, http, fault or note")
    text: Text = Field(description="the command, call, fault or note, without secrets")
    due_ns: int
    begun_ns: int = -1
    ended_ns: int = -1
    exit: int | None = Field(default=None, description="of a command its exit code, of a call the status")
    output: Text = Field(default="", description="the end of what it said, without secrets")
    fault: Text = Field(default="", description="why it failed; empty: it did not")


class PhasePart(BaseModel, frozen=True, extra="forbid"):
    """A stretch of the run, in ns from t0: queries due in it have its name as their label ``phase``."""

    name: Text
    from_ns: int
    to_ns: int | None = Field(description="null: the end of the run")


def events_part(run: JudgedRun) -> list[EventPart] | None:
    """None: the scenario has none."""
    told = run.manifest.get("events") or ()
    return [EventPart(**{**one, "text": public_text(one["text"])}) for one in told] or None


def phases_part(run: JudgedRun) -> list[PhasePart] | None:
    """The same of phases."""
    told = [(str(name), int(begin)) for name, begin in run.manifest.get("phases") or ()]
    ends: list[int | None] = [*(begin for _, begin in told), None][1:]
    return [
        PhasePart(name=name, from_ns=begin, to_ns=end) for (name, begin), end in zip(told, ends, strict=True) if name
    ] or None


def marks(report: Any) -> list[tuple[int, str]]:
    """Where charts over the run's time are marked: ns from t0, and what began then."""
    begun = [(one.begun_ns, one.name) for one in report.events or () if one.begun_ns >= 0]
    phases = [] if report.events else [(one.from_ns, one.name) for one in report.phases or () if one.from_ns]
    return begun + phases


def blocks(part: list[EventPart], report: Any) -> list[Block]:
    """A row for each event, and what those that failed said."""
    columns = [Column("event", right=False, titled="Event", names=True), Column("began"), Column("took")]
    columns += [Column("exit"), Column("what", right=False, titled="What", code=True, least_width=96)]
    rows = [_row(one) for one in part]
    shown: list[Block] = [Table(columns, rows, title=TITLE)]
    shown += [Sentence(f"{one.name} {one.fault}.") for one in part if one.fault]
    said = [
        Folded(f"What {one.name} said", [Sentence(line) for line in one.output.splitlines()[-20:]])
        for one in part
        if one.output
    ]
    return [Section(TITLE, [Card([*shown, *said])])]


def _row(one: EventPart) -> Row:
    if one.begun_ns < 0:
        return Row([one.name, "never", units.NOTHING, units.NOTHING, Cell(one.text)])
    took = units.NOTHING if one.does == "note" or one.ended_ns < 0 else units.duration(one.ended_ns - one.begun_ns)
    code = units.NOTHING if one.exit is None else str(one.exit)
    return Row([one.name, f"{one.begun_ns / 1e9:.3f} s", took, code, Cell(one.text)])


SECTION = ReportSection("events", 83, events_part, blocks)
