"""The error budgets for a terminal: one row an SLO, then what its alerts would have done, in one line each.

Shared by the summary after a run and by the plain text format. Words and signs carry the meaning, colour only repeats it.
Shows what ``plimsoll.reports.sections.budgets`` holds and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.reports.parts.parts import Number
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.sentences import budget_words, words
from plimsoll.reports.wording import units

WIDTH = 100
#: Narrower than this, the table goes without intervals and the size of the budget.
_ROOM = 84
_MARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"fired": ("✕", "red"), "alone": ("?", "yellow"), "quiet": ("✓", "green"), "unseen": ("–", "dim")}
)


def error_budgets(parts: Sequence[BudgetPart], width: int = WIDTH) -> RenderableType:
    """The block for ``rich``; nothing for no budgets."""
    if not parts:
        return Group()
    return Group(_amounts(parts, width), _alerts(parts))


def _amounts(parts: Sequence[BudgetPart], width: int) -> Table:
    table = Table(
        title=f"Error budgets: at a burn of 1 a full one is gone in its period; {units.bounds(parts[0].confidence)}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )
    roomy = width >= _ROOM
    table.add_column("SLO", overflow="fold", min_width=16)
    for name in ("SLI", "burn", *(("budget",) if roomy else ()), "spent", "gone in"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in parts:
        size = (_two(budget_words.span(part.budget_ns), f"in {budget_words.span(part.period_ns)}"),) if roomy else ()
        if part.burn is None:
            table.add_row(
                _two(budget_words.title(part), part.reason), units.NOTHING, units.NOTHING, *size, units.NOTHING, ""
            )
            continue
        table.add_row(
            _two(budget_words.title(part), budget_words.tally(part)),
            _two(budget_words.share(part.sli), _range(part.sli_interval, budget_words.share) if roomy else ""),
            _two(budget_words.burn(part.burn), _range(part.burn_interval, budget_words.burn) if roomy else ""),
            *size,
            _spent(part),
            "never" if part.exhausted_in_ns is None else budget_words.span(part.exhausted_in_ns),
        )
    return table


def _two(first: str, second: str) -> Text:
    text = Text(first)
    return text.append(f"\n{second}", style="dim") if second else text


def _range(interval: tuple[Number, Number], show: Callable[[Number], str]) -> str:
    low, high = (show(bound) for bound in interval)
    return f"{low.removesuffix(' %')} to {high}"


def _spent(part: BudgetPart) -> Text:
    by_time = "" if part.spent_by_time is None else f"{units.percent(part.spent_by_time, 3)} by time"
    by_events = "" if part.spent_by_events is None else f"{units.percent(part.spent_by_events, 3)} by events"
    return _two(by_time, by_events)


def _alerts(parts: Sequence[BudgetPart]) -> RenderableType:
    """One line for each thing to say, with the SLOs that it is true of where that is not all of them."""
    of: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for line in budget_words.sayings(part):
            of.setdefault(line, []).append(words.expression(part.name))
    rows = Table.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(overflow="fold")
    for kind in _MARKS:
        for (said, text), names in of.items():
            if said == kind:
                sign, style = _MARKS[kind]
                whose = "" if len(names) == len(parts) else f"{', '.join(names)}: "
                rows.add_row(Text(sign, style=style), Text(whose + text, style="dim" if kind == "unseen" else ""))
    return rows
