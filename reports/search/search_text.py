"""A search for a terminal: the probes in order, then the answer in a sentence, what it is worth, and the next step.

Colour never carries meaning alone: every outcome has its word and its sign.
"""

from __future__ import annotations

from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.search import search_words as say
from plimsoll.reports.search.search_parts import ProbePart, SearchReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import plain

_STYLES = MappingProxyType(
    {
        "FOUND": "green",
        "PASS": "green",
        "NONE": "red",
        "FAIL": "red",
        "OPEN": "blue",
        "INCONCLUSIVE": "yellow",
        "INTERRUPTED": "yellow",
        "INVALID": "magenta",
        "UNREACHABLE": "magenta",
    }
)


def render(report: SearchReport) -> bytes:
    """The result without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: SearchReport) -> RenderableType:
    """The result for ``rich``."""
    parts: list[RenderableType] = []
    if report.probes:
        parts += [_probes(report), Text("")]
    parts.append(_banner(report))
    return Group(*parts)


def line(probe: ProbePart, report: SearchReport) -> str:
    """One probe in a line, for stderr as it ends."""
    cut = ", cut short" if probe.cut else ""
    return (
        f"[{probe.number}] {say.load(report, probe.load)} {probe.purpose}: {probe.outcome}{cut} after "
        f"{probe.took_ns / 1e9:.0f} s ({say.why(probe)})"
    )


def _probes(report: SearchReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("load", justify="right", no_wrap=True)
    table.add_column("probe", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for name in _objectives(report):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    for probe in report.probes:
        seen = {part.objective: say.observed(part) for part in probe.objectives}
        outcome = Text(f"{say.SYMBOLS[probe.outcome]} {probe.outcome}", style=_STYLES[probe.outcome])
        outcome.append(" (cut)" if probe.cut else "", style="dim")
        table.add_row(
            str(probe.number),
            say.load(report, probe.load),
            probe.purpose,
            outcome,
            *(seen.get(name, units.NOTHING) for name in _objectives(report)),
            f"{probe.took_ns / 1e9:.0f}",
        )
    return table


def _objectives(report: SearchReport) -> list[str]:
    """Those over the run; limits on single requests only say what "good" means."""
    return list(dict.fromkeys(part.objective for probe in report.probes for part in probe.objectives))


def _banner(report: SearchReport) -> RenderableType:
    style = _STYLES[report.outcome]
    lines: list[RenderableType] = [Text(say.headline(report))]
    lines += [Text(f"{name}: {value}") for name, value in say.facts(report)]
    lines += [Text(text, style="dim") for text in say.unsaid(report)]
    if step := say.next_step(report):
        lines.append(Text(step, style="bold"))
    return Panel(
        Group(*lines),
        title=Text(f" {say.SYMBOLS[report.outcome]} {report.outcome} ", style=f"bold reverse {style}"),
        title_align="left",
        border_style=style,
        box=box.ROUNDED,
    )
