"""A sweep for a terminal: a sentence and a table per series, then the fronts and what to be wary of.

Colour never carries meaning alone: every outcome has its word and its sign.
"""

from __future__ import annotations

from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.comparison.comparison_parts import FrontPart
from plimsoll.reports.sweep import sweep_words as say
from plimsoll.reports.sweep.sweep_curves import times_of
from plimsoll.reports.sweep.sweep_parts import SeriesPart, SweepPoint, SweepReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import WIDTH, plain

_STYLES = MappingProxyType(
    {
        "FOUND": "green",
        "HOLDS": "green",
        "PASS": "green",
        "MEASURED": "blue",
        "FAIL": "red",
        "UNSTABLE": "red",
        "INCONCLUSIVE": "yellow",
        "INVALID": "magenta",
        "UNREACHABLE": "magenta",
    }
)
#: Times in the table of a terminal this wide.
_TIMES = 2


def render(report: SweepReport) -> bytes:
    """The summary without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: SweepReport, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``; a narrow terminal goes without the rates that can be derived."""
    parts: list[RenderableType] = [_banner(report)]
    for series in report.series:
        parts += [_table(series, report, width)]
        if len(report.series) > 1:
            parts[-1] = Group(parts[-1], Text(say.sentence(series, report)))
    parts += [_front(front) for front in report.fronts]
    if report.warnings:
        parts.append(
            Group(
                Text("Read with care", style="bold"), *(Text(f"- {text}", overflow="fold") for text in report.warnings)
            )
        )
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def _banner(report: SweepReport) -> RenderableType:
    style = _STYLES[report.outcome]
    promised = "; ".join(report.objectives) or "no objective was given"
    lines = [Text(report.name, style="bold"), Text(say.headline(report)), Text(promised, style="dim")]
    return Panel(
        Group(*lines),
        title=Text(f" {say.SYMBOLS[report.outcome]} {report.outcome} ", style=f"bold reverse {style}"),
        title_align="left",
        border_style=style,
        box=box.HEAVY if report.outcome in ("FAIL", "INVALID", "UNREACHABLE") else box.ROUNDED,
    )


def _table(series: SeriesPart, report: SweepReport, width: int) -> Table:
    table = Table(
        title=series.label or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )
    times = times_of(series.points)[:_TIMES]
    table.add_column(report.x.removeprefix("server.").removeprefix("option."), justify="right", no_wrap=True)
    columns = ["answered/s", "good/s", "tokens/s"] if width >= WIDTH else ["answered/s"]
    kept = [name for name in columns if any(_rate(point, name) is not None for point in series.points)]
    for name in kept:
        table.add_column(name, justify="right", no_wrap=True)
    for name in (f"{q} {say.short(time)}" for time in times for q in ("p50", "p99")):
        table.add_column(name, justify="right")  # the head may go into two lines, the value is one word
    table.add_column("outcome", no_wrap=True)
    for point in series.points:
        table.add_row(
            say.number(point.x),
            *(_short_rate(_rate(point, name)) for name in kept),
            *(cell.replace(" ", "\u00a0") for cell in say.times(point, times)),
            _outcome(point, series),
        )
    return table


def _rate(point: SweepPoint, column: str) -> float | None:
    found = {"answered/s": point.achieved_per_s, "good/s": say.good(point), "tokens/s": point.output_tokens_per_s}
    return found[column]


def _short_rate(value: float | None) -> str:
    return units.NOTHING if value is None else units.compact(value, 3)


def _outcome(point: SweepPoint, series: SeriesPart) -> Text:
    word = say.outcome(point)
    mark = " ← knee" if series.knee is not None and series.knee.x == point.x else ""
    return Text(f"{say.SYMBOLS[point.outcome]} {word}{mark}", style=_STYLES.get(word, "dim"))


def _front(front: FrontPart) -> RenderableType:
    kept = [point.name for point in front.points if not point.dominated_by]
    beaten = len(front.points) - len(kept)
    text = f"on the front: {'; '.join(kept)}" + (f" ({units.many(beaten, 'point')} beaten)" if beaten else "")
    return Group(Text(front.title, style="bold"), Text(text, overflow="fold"))
