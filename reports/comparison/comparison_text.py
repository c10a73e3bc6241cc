"""A comparison for a terminal: the outcome, each effect with its interval, then ranking, costs and what to be wary of.

Colour never carries meaning alone: every outcome has its word and its sign.
"""

from __future__ import annotations

from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.comparison import comparison_words as say
from plimsoll.reports.comparison.comparison_parts import CandidatePart, ComparisonReport, EffectPart, RankingPart
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import WIDTH, listed, plain

_STYLES = MappingProxyType(
    {
        "IMPROVEMENT": "green",
        "INDISTINGUISHABLE": "blue",
        "INCONCLUSIVE": "yellow",
        "REGRESSION": "red",
        "INVALID": "magenta",
        "RANKED": "blue",
    }
)


def render(report: ComparisonReport) -> bytes:
    """The summary without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: ComparisonReport, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``; a narrow terminal goes without the values and shows the changes."""
    parts: list[RenderableType] = [_banner(report)]
    for candidate in report.candidates:
        parts.append(_effects(candidate, report, width))
        if candidate.reasons:
            parts.append(listed(f"{candidate.name}: why {candidate.outcome}", candidate.reasons))
        within = [say.within(e, e.one_run) for e in candidate.effects if e.one_run is not None]
        if within:
            parts.append(listed("Within this pair of runs only, blind to how runs differ", within))
    parts += [_ranking(ranking) for ranking in report.rankings]
    if report.costs:
        parts.append(_costs(report))
    for front in report.fronts:
        beaten = [f"{p.name}: beaten by {p.dominated_by}" for p in front.points if p.dominated_by]
        kept = ", ".join(p.name for p in front.points if not p.dominated_by)
        parts.append(listed(front.title, [f"on the front: {kept}", *beaten]))
    if report.false_alarms is not None:
        parts.append(listed("A/A", [say.alarms(report.false_alarms)]))
    if report.warnings:
        parts.append(listed("Read with care", report.warnings))
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def _banner(report: ComparisonReport) -> RenderableType:
    word = say.word(report)
    style = _STYLES[word]
    runs = ", ".join(f"{arm.name} {units.many(len(arm.runs), 'run')}" for arm in (report.base, *report.arms))
    lines = [Text(report.title, style="bold"), Text(say.headline(report)), Text(f"{runs} (base first)", style="dim")]
    return Panel(
        Group(*lines),
        title=Text(f" {say.SYMBOLS[word]} {word} ", style=f"bold reverse {style}"),
        title_align="left",
        border_style=style,
        box=box.HEAVY if word in ("REGRESSION", "INVALID") else box.ROUNDED,
    )


def _table(title: str) -> Table:
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )


def _effects(candidate: CandidatePart, report: ComparisonReport, width: int) -> Table:
    table = _table(f"{candidate.name} against {report.base.name}: {say.together(candidate, report)}")
    table.add_column("", no_wrap=True)
    table.add_column("quantity", no_wrap=True)
    names = ["base", "candidate", "change", "interval"] if width >= WIDTH else ["change", "interval"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for effect in candidate.effects:
        cells = _cells(effect)
        outcome = Text(f"{say.SYMBOLS[effect.outcome]} {effect.outcome}", style=_STYLES[effect.outcome])
        table.add_row(outcome, Text(effect.quantity), *(cells[name] for name in names))
    return table


def _cells(effect: EffectPart) -> dict[str, Text]:
    return {
        "base": Text(say.value(effect, effect.base)),
        "candidate": Text(say.value(effect, effect.candidate)),
        "change": Text(say.change(effect), style="bold"),
        "interval": Text(say.interval(effect)),
    }


def _ranking(ranking: RankingPart) -> RenderableType:
    table = _table("")
    for name in ("tier", "arm"):
        table.add_column(name, no_wrap=True)
    table.add_column("median of the runs", justify="right", no_wrap=True)
    for place in ranking.places:
        table.add_row(say.tier(place), Text(place.name), units.human(place.value, ranking.unit, 4))
    title = Text(f"Ranking by {ranking.quantity}, {ranking.better} is better", style="bold")
    return Group(title, table, *(Text(note, style="dim") for note in say.ranked(ranking)))


def _costs(report: ComparisonReport) -> Table:
    table = _table(say.cost_title(report))
    for name in ("arm", "of"):
        table.add_column(name, no_wrap=True)
    for name in ("cost (interval)", "throughput", "price an hour"):
        table.add_column(name, justify="right", no_wrap=True)
    for cost in report.costs:
        table.add_row(
            Text(cost.name), say.PER[cost.per], say.money(cost), units.rate(cost.per_s), f"{cost.price_per_hour:g}"
        )
    return table
