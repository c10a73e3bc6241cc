"""A bake-off as a document: the ranking at the load that decides, and what every endpoint did at each load."""

from __future__ import annotations

from dataclasses import replace

from plimsoll.reports.blocks.document import Block, Card, Case, Column, Document, Row, Section, Suite, Table
from plimsoll.reports.documents import comparison, on_server
from plimsoll.reports.format import Renderers
from plimsoll.reports.models.comparison_parts import BakeoffReport, LevelPart
from plimsoll.reports.wording import units
from plimsoll.slo.server.beside import medians

_NOWHERE = "There is no load at which no run is INVALID and every endpoint kept up, so nobody was ranked."


def document(report: BakeoffReport) -> Document:
    """The whole bake-off."""
    whole = comparison.document(report)
    ranked = report.deciding_level is not None
    said = whole.headline if ranked else _NOWHERE
    return replace(
        whole,
        kind="bakeoff",
        word=whole.word if ranked else "INVALID",
        headline=said,
        lines=[whole.lines[0], (said, ""), *whole.lines[2:]],
        blocks=[_loads(report), *_servers(report), *whole.blocks],
        suites=[_suite(report, said)],
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document)


def _loads(report: BakeoffReport) -> Section:
    """Every endpoint at every load."""
    quantities = [ranking.quantity for ranking in report.levels[0].rankings] if report.levels else []
    columns = [
        Column("load", right=False, titled="Load", names=True),
        Column("arm", right=False, titled="Arm", names=True),
        Column("passed", titled="Passed", room=len("passed")),
        *(
            Column(_head(name), titled=name, folds=True, room=max(map(len, _head(name).splitlines())))
            for name in quantities
        ),
    ]
    rows = [
        Row(
            [
                level.level or units.NOTHING,
                arm.name,
                _passed(level, arm.name, len(arm.runs)),
                *_medians(level, arm.name),
            ]
        )
        for level in report.levels
        for arm in (level.comparison.base, *level.comparison.arms)
    ]
    fine = "Passed: runs in which every objective of the load is met."
    table = Table(columns, rows, title=f"{report.name}: median of the runs at each load", fine=fine)
    return Section("Median of the runs at each load", [Card([table])])


def _servers(report: BakeoffReport) -> list[Block]:
    """Every server at every load, where there are several loads; the one that decides stands below anyway."""
    rows = [
        (f"{level.level} {arm.name}", medians([run.server for run in arm.runs]))
        for level in report.levels
        for arm in (level.comparison.base, *level.comparison.arms)
    ]
    return on_server.table("load and arm", rows) if len(report.levels) > 1 else []


def _head(quantity: str) -> str:
    """A head breaks before its bracket, never within a word."""
    return quantity.replace("(", "\n(")


def _passed(level: LevelPart, arm: str, runs: int) -> str:
    return f"{level.passed.get(arm, 0)} of {runs}"


def _medians(level: LevelPart, arm: str) -> list[str]:
    """The median of an arm by each quantity; a dash where it has no place."""
    found = []
    for ranking in level.rankings:
        at = [place.value for place in ranking.places if place.name == arm]
        found.append(units.human(at[0], ranking.unit, 4) if at else units.NOTHING)
    return found


def _suite(report: BakeoffReport, said: str) -> Suite:
    """Each ranking a case: whether it could tell anybody apart."""
    cases = [
        Case(f"ranking by {ranking.quantity}", comparison.ranking_word(ranking), comparison.leaders(ranking))
        for ranking in (report.rankings if report.deciding_level is not None else ())
    ]
    return Suite(report.name, "plimsoll.bakeoff", cases or [Case("ranking", "INVALID", said)])
