"""How often requests were tried: a section of an outside package, announced by its entry point alone."""

from __future__ import annotations

from pydantic import BaseModel

from plimsoll.reports.blocks.document import Block, Card, Facts, Section
from plimsoll.reports.blocks.section import JudgedRun, ReportSection


class Retries(BaseModel, frozen=True):
    """``most``: of one request."""

    attempts: int
    most: int


def _part(run: JudgedRun) -> Retries | None:
    tried = run.records["attempts"][run.records.in_measure]
    return Retries(attempts=int(tried.sum()), most=int(tried.max())) if len(tried) else None


def _blocks(part: Retries, _report: object) -> list[Block]:
    facts = Facts([("Attempts", str(part.attempts)), ("Most of one request", str(part.most))], title="Retries")
    return [Section("Retries", [Card([facts])], folded="Retries")]


SECTION = ReportSection("retries", 125, _part, _blocks, Retries)
