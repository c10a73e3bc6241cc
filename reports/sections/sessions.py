"""The part of a report on sessions: how many came and how they ended, how long they took, and what each turn got.

Report key ``sessions``; its numbers are ``plimsoll.slo.metrics.sessions``'s, and nothing is judged here.
"""

import math
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Facts, Row, Section, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.wording import units
from plimsoll.slo.metrics import sessions as found


class SessionTurn(BaseModel, frozen=True, extra="forbid"):
    """The requests of one turn; of a ``later`` one all from there on. null: infinite, or nothing to measure."""

    turn: int
    later: bool = False
    n: int
    failed: int = 0
    ttft_p50_ns: int | None = None
    ttft_p99_ns: int | None = None
    latency_p50_ns: int | None = None
    latency_p99_ns: int | None = None


class Sessions(BaseModel, frozen=True, extra="forbid"):
    """Sessions by how they ended. Abandoned ones (their last turn failed) count as infinitely long: null."""

    offered: int
    started: int
    finished: int
    abandoned: int
    cut: int = Field(description="still going on when the run ended")
    turns: int
    turns_not_reached: int = Field(description="never due, because their session had ended before")
    duration_p50_ns: int | None
    duration_p90_ns: int | None
    duration_p99_ns: int | None
    duration_max_ns: int | None
    at_ns: list[int] = Field(description="moments of the run")
    live: list[int] = Field(description="sessions that went on at these moments")
    by_turn: list[SessionTurn]


def sessions_part(numbers: found.Sessions | None) -> Sessions | None:
    """The part, or None for a run without sessions."""
    if numbers is None:
        return None
    by_turn = [SessionTurn(**_whole(asdict(one))) for one in numbers.by_turn]
    return Sessions(**_whole({**asdict(numbers), "by_turn": by_turn}))


def _whole(values: dict[str, Any]) -> dict[str, Any]:
    """With every time in whole ns, infinite ones as None."""
    times = {name: value for name, value in values.items() if isinstance(value, float)}
    return values | {name: None if math.isinf(value) else round(value) for name, value in times.items()}


def blocks(part: Sessions, report: Any) -> list[Block]:
    """How sessions went, and a row for each turn, unless the report has them in a table of labels."""
    most, last = max(part.live, default=0), part.live[-1] if part.live else 0
    ended = f"{units.count(part.finished)} finished, {units.count(part.abandoned)} abandoned"
    took = (part.duration_p50_ns, part.duration_p90_ns, part.duration_p99_ns)
    pairs = [
        (
            "Sessions",
            f"{units.count(part.offered)} offered, {units.count(part.started)} started: {ended}, {part.cut} cut",
        ),
        ("Turns", f"{units.count(part.turns)} due, {units.count(part.turns_not_reached)} never due"),
        ("Duration", "p50 {}, p90 {}, p99 {}".format(*map(_time, took))),
        ("Alive at once", f"at most {units.count(most)}, {units.count(last)} at the end"),
    ]
    columns = [Column("turn", right=False, titled="Turn", names=True)]
    columns += [Column(head) for head in ("n", "failed", "TTFT p50", "TTFT p99", "latency p50", "latency p99")]
    rows = [
        Row([_number(one), units.count(one.n), units.count(one.failed)] + [_time(value) for value in _times(one)])
        for one in part.by_turn
    ]
    if "turn" in (getattr(report, "by", None) or {}):
        return [Section("Sessions", [Card([Facts([*pairs, ("Each turn", "see By turn")])])])]
    return [Section("Sessions", [Card([Facts([*pairs]), Table(columns, rows)])])]


def _number(one: SessionTurn) -> str:
    return f"{one.turn} and later" if one.later else str(one.turn)


def _times(one: SessionTurn) -> list[int | None]:
    return [one.ttft_p50_ns, one.ttft_p99_ns, one.latency_p50_ns, one.latency_p99_ns]


def _time(ns: int | None) -> str:
    return units.INFINITE if ns is None else units.duration(ns)


SECTION = ReportSection("sessions", 82, lambda run: sessions_part(run.judged.sessions), blocks)
