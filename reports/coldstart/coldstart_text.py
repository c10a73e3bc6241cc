"""A cold start for a terminal: the times over all repeats, each repeat, and what to be wary of."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.coldstart import coldstart_words as say
from plimsoll.reports.coldstart.coldstart_parts import ColdstartReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import WIDTH, listed, plain

_STYLES = {"PASS": "green", "MEASURED": "blue", "INVALID": "magenta", "INTERRUPTED": "yellow"}


def render(report: ColdstartReport) -> bytes:
    """The summary without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: ColdstartReport, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``."""
    parts: list[RenderableType] = [_banner(report)]
    if report.spreads:
        parts.append(_times(report, width))
        if certain := say.certainty(report):
            parts.append(Text(certain, style="dim"))
    parts.append(_repeats(report))
    if report.goals:
        parts.append(listed("Objectives", [f"{goal.outcome} {goal.objective}: kept in {goal.kept} of {goal.of}, worst {units.human(goal.worst, 'ns')}" for goal in report.goals]))  # fmt: skip
    if report.warnings:
        parts.append(listed("Read with care", report.warnings))
    return Group(*(piece for part in parts for piece in (part, Text(""))))


def _banner(report: ColdstartReport) -> RenderableType:
    word = report.outcome
    style = _STYLES.get(word, "red")
    lines = [Text(say.headline(report), style="bold"), Text(report.start), Text(report.url, style="dim")]
    title = Text(f" {say.SYMBOLS[word]} {word} ", style=f"bold reverse {style}")
    return Panel(Group(*lines), title=title, title_align="left", border_style=style, box=box.ROUNDED)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)


def _times(report: ColdstartReport, width: int) -> Table:
    table = _table()
    table.add_column("", no_wrap=True)
    names = ["median", "least", "greatest", "interval", "first start", "the others"]
    for name in names if width >= WIDTH else names[:3]:
        table.add_column(name, justify="right", no_wrap=True)
    for part in report.spreads:
        cells = [units.human(v, "ns") for v in (part.median, part.least, part.greatest)]
        if width >= WIDTH:
            cells.append(say.interval(part, report))
            cells += [units.NOTHING if v is None else units.human(v, "ns") for v in (part.first, part.later)]
        table.add_row(say.TITLES[part.quantity], *(Text(cell) for cell in cells))
    return table


def _repeats(report: ColdstartReport) -> Table:
    table = _table()
    for name in ("start", "port", "ready", "first TTFT", "first latency", "steady", "level", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in report.repeats:
        times = (part.port_ns, part.ready_ns, part.first_ttft_ns, part.first_latency_ns)
        cells = [units.NOTHING if value is None else units.duration(value) for value in times]
        level = units.NOTHING if part.steady_level_ns is None else units.duration(part.steady_level_ns)
        number = f"{part.number}" if part.complete else f"{part.number} (cut short)"
        table.add_row(number, *cells, say.steady(part), level, f"{part.failed} of {part.requests}")
    return table
