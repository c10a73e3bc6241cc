"""Text: the summary at the end of a run, for a terminal; without colour where there is none.

Fits 100 columns. Colour never carries meaning alone: every outcome has its word and its sign. The same
rendering serves the terminal (``render_terminal``, with the terminal's own width and colours) and the file
(plain).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from rich import box
from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from plimsoll.reports.document import (
    Block,
    Card,
    Cell,
    Command,
    Document,
    Facts,
    Folded,
    Notes,
    On,
    Section,
    Sentence,
    Table,
)
from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.sentences import budget_words, tables, words
from plimsoll.reports.wording import signs, units
from plimsoll.reports.wording.plain import WIDTH, listed, plain

#: Narrower than this, nothing is said of the bounds, for the table of objectives goes without them.
_ROOM_FOR_BOUNDS = 88
_NONE: Mapping[str, str] = MappingProxyType({})


def render(report: Report) -> bytes:
    """The summary without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: Report, files: Mapping[str, str] = _NONE, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``; ``files`` are the written files by what they are, named last.

    A terminal narrower than ``WIDTH`` gets fewer percentiles rather than cut-off numbers.
    """
    parts: list[RenderableType] = [_banner(report)]
    if report.verdict.objectives:
        note = (
            [Text(words.bounds_note(report), style="dim")]
            if width >= _ROOM_FOR_BOUNDS and words.bounded(report)
            else []
        )
        parts.append(Group(*_drawn(tables.objectives(report), width), *note))
    if report.verdict.request_objectives:
        parts += _drawn([tables.attainments(report)], width)
    asked = [part for part in report.budgets if words.names_its_period(part.objective)]
    if asked:
        parts.append(error_budgets(asked, width))
    if report.accuracy is not None:
        parts += _drawn([tables.answers(report.accuracy)], width)
    parts.append(_flow(report))
    if report.metrics:
        *shown, own = _drawn(tables.metrics(report), width)
        parts.append(Group(_spaced(shown), own))
    if report.speech is not None:
        facts, *more = _drawn(tables.speech(report.speech, report.confidence), width)
        parts += [facts, *(Group(*pair) for pair in zip(more[::2], more[1::2], strict=True))]
    if report.anatomy is not None:
        parts += _drawn(tables.anatomy(report.anatomy), width)
    if report.counts.failed:
        parts += _drawn([tables.failures(report)], width)
    if report.warnings:
        parts.append(_list("Read with care", report.warnings, "yellow"))
    parts.append(_end(report, files))
    return _spaced(parts)


def document(doc: Document) -> bytes:
    """A search, a comparison or the like without colour, 100 columns, UTF-8."""
    return plain(draw(doc))


def draw(doc: Document, width: int = WIDTH) -> RenderableType:
    """A document for ``rich``; a narrow terminal goes without the columns that need room."""
    card = _card(doc.sign, doc.word, [Text(text, style=style) for text, style in doc.lines])
    parts = [*_drawn([*doc.blocks, *doc.appendix], width)]
    if doc.warnings:
        parts.append(listed("Read with care", doc.warnings))
    return _spaced([*parts, card] if doc.card_last else [card, *parts])


def _drawn(blocks: Sequence[Block], width: int) -> Iterator[RenderableType]:
    for block in blocks:
        if not block.on & On.TERMINAL:
            continue
        match block:
            case Section() | Card() | Folded():
                yield from _drawn(block.blocks, width)
            case Table():
                yield _drawn_table(block, width)
            case Sentence():
                lead = Text(block.lead, style="bold")
                yield lead.append(Text(block.text, style="dim" if block.fine else ""))
            case Facts():
                grid = Grid.grid(padding=(0, 2))
                grid.add_column(style="dim", no_wrap=True)
                grid.add_column(overflow="fold")
                for name, value in block.pairs:
                    grid.add_row(name, Text(value))
                yield Group(Text(block.title, style="bold"), Padding(grid, (0, 0, 0, 1))) if block.title else grid
            case Notes():
                yield listed(block.title, block.texts)
            case Command():
                yield Text(block.text)


def _drawn_table(block: Table, width: int) -> RenderableType:
    shown = [
        (index, column)
        for index, column in enumerate(block.columns)
        if column.on & On.TERMINAL and width >= column.least_width
    ]
    table = _table("")
    for index, column in shown:
        # A sign and its word stand in one line.
        signed = any(isinstance(cell := row.cells[index], Cell) and cell.outcome for row in block.rows)
        whole = signed or (column.right and not column.folds)
        justify: JustifyMethod = "right" if column.right else "left"
        table.add_column(column.head, justify=justify, no_wrap=whole, overflow="ellipsis" if whole else "fold")
    for row in block.rows:
        cells = [_drawn_cell(row.cells[index]) for index, _ in shown]
        under = row.class_ == "sub"
        table.add_row(*([Text("  ").append(cells[0]), *cells[1:]] if under else cells), style="dim" if under else "")
    title = [Text(block.title, style="bold")] if block.title else []
    return Group(*title, table, *(Text(text, style="dim") for text in block.notes))


def _drawn_cell(cell: str | Cell) -> Text:
    if isinstance(cell, str):
        return Text(cell, style="red" if cell == units.INFINITE else "")
    if not cell.outcome:
        return Text(cell.text, style="bold" if cell.strong else "")
    word = Text(f"{signs.mark(cell.outcome)} {cell.text}", style=signs.colour(cell.outcome))
    return word.append(f" {cell.aside}" if cell.aside else "", style="dim")


def _spaced(parts: Sequence[RenderableType]) -> Group:
    """With an empty line between them."""
    return Group(*[one for part in parts for one in (part, Text(""))][:-1])


def _banner(report: Report) -> RenderableType:
    word = words.outcome(report)
    lines = [Text(words.headline(report))]
    title = " · ".join(
        part for part in (report.run.scenario.name, report.run.scenario.kind, report.run.target.url) if part
    )
    if title:
        lines.insert(0, Text(title, style="bold"))
    if report.validity.outcome == "INVALID":
        lines += [Text(f"- {words.sentence(reason)}") for reason in report.validity.reasons[1:]]
    if repeated := attempts.said(report.attempts):
        lines.append(Text(repeated))
    health = Text.assemble(
        ("Generator ", "dim"),
        (report.validity.outcome, signs.colour(report.validity.outcome)),
        (f": {words.health(report.validity)}.", "dim"),
    )
    return _card(word, word, [*lines, health])


def _card(sign: str, word: str, lines: Sequence[Text]) -> Panel:
    """The outcome, and what is to be said of it first."""
    style = signs.colour(sign)
    return Panel(
        Group(*lines),
        title=Text(f" {signs.mark(sign)} {word} ", style=f"bold reverse {style}"),
        title_align="left",
        border_style=style,
        box=box.HEAVY if signs.tone(sign) in ("fail", "invalid") else box.ROUNDED,
    )


def _table(title: str) -> Grid:
    return Grid(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )


def _flow(report: Report) -> Text:
    flow, counts = report.throughput, report.counts
    total = counts.ok + counts.failed
    text = Text.assemble((units.rate(flow.requests_per_s), "bold"), " completed")
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        good = "" if flow.good_fraction is None else f" ({units.percent(flow.good_fraction)} of requests)"
        text.append_text(Text.assemble(" · ", (units.rate(flow.goodput_per_s), "bold"), f" good{good}"))
    if flow.output_tokens_per_s:
        text.append_text(Text.assemble(" · ", (units.rate(flow.output_tokens_per_s), "bold"), " output tokens"))
    style = "bold red" if counts.failed else "bold"
    return text.append_text(
        Text.assemble(" · ", (units.count(counts.failed), style), f" of {units.many(total, 'request')} failed")
    )


def _list(title: str, texts: list[str], style: str) -> RenderableType:
    rows = Grid.grid(padding=(0, 1))
    rows.add_column(style=style)
    rows.add_column(overflow="fold")
    for text in texts:
        rows.add_row("!", Text(text))
    return Group(Text(title, style="bold"), Padding(rows, (0, 0, 0, 1)))


def _end(report: Report, files: Mapping[str, str]) -> RenderableType:
    run = report.run
    seed = "" if run.seed is None else f"seed {run.seed}"
    plan = f"plan {run.plan_fingerprint}" if run.plan_fingerprint else ""
    facts = " · ".join(part for part in (f"run {run.id}" if run.id else "", seed, plan) if part)
    lines = [Text(f"Percentiles: {report.percentile_definition}.", style="dim")]
    if woken := words.host_timer(run.timer):
        lines.insert(0, Text(f"Host timer: {woken}.", style="dim"))
    if facts:
        lines.insert(0, Text(facts, style="dim"))
    if run.directory and not files:
        lines.append(Text(f"Records: {run.directory}"))
    lines += [Text(f"{what}: {where}") for what, where in files.items()]
    return Group(*lines)


FORMAT = Format("text", ".txt", "the summary a terminal shows, without colour", render, document)


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


def _amounts(parts: Sequence[BudgetPart], width: int) -> Grid:
    table = _table(
        f"Error budgets: at a burn of 1 a full one is gone in its period; {units.bounds(parts[0].confidence)}"
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
    rows = Grid.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(overflow="fold")
    for kind in _MARKS:
        for (said, text), names in of.items():
            if said == kind:
                sign, style = _MARKS[kind]
                whose = "" if len(names) == len(parts) else f"{', '.join(names)}: "
                rows.add_row(Text(sign, style=style), Text(whose + text, style="dim" if kind == "unseen" else ""))
    return rows
