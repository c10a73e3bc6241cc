"""Terminal: a document as ``rich`` draws it, and the same as plain text.

A narrow terminal gets fewer of a table's columns rather than cut-off numbers. Colour never carries meaning alone: every
outcome has its word and its sign.
"""

import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, JustifyMethod, OverflowMethod, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Command,
    Document,
    Facts,
    Folded,
    Line,
    Marked,
    Notes,
    On,
    Section,
    Sentence,
    Table,
    Warnings,
)
from plimsoll.reports.wording import signs, units

WIDTH = 100


def plain(drawn: RenderableType) -> bytes:
    """``WIDTH`` columns, UTF-8, no blanks at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False, highlight=False
    )
    console.print(drawn)
    # Rich pads table cells; trailing blanks are noise in a file and in a diff.
    return ("\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n").encode()


def draw(doc: Document, width: int = WIDTH) -> RenderableType:
    """A document for ``rich``; a narrow terminal goes without the columns that need room."""
    card = _card(doc.sign, doc.word, [Text(text, style=style) for text, style in doc.lines])
    parts = _apart([*doc.blocks, *doc.appendix], width)
    if doc.warnings:
        parts.append(_listed("Read with care", doc.warnings))
    return _spaced([*parts, card] if doc.card_last else [card, *parts])


def _apart(blocks: Sequence[Block], width: int) -> list[RenderableType]:
    """Each block, together with those that stand right under it."""
    parts: list[RenderableType] = []
    for close, drawn in _drawn(blocks, width):
        if close and parts:
            parts[-1] = Group(parts[-1], drawn)
        else:
            parts.append(drawn)
    return parts


def _drawn(blocks: Sequence[Block], width: int) -> Iterator[tuple[bool, RenderableType]]:
    """(whether it stands right under what is above it, drawn)."""
    for block in blocks:
        if not block.on & On.TERMINAL:
            continue
        match block:
            case Section() | Card() | Folded():
                yield from _drawn(block.blocks, width)
            case Sentence() if width >= block.least_width:
                lead = Text(block.lead, style="bold")
                yield block.close, lead.append(Text(block.text, style="dim" if block.fine else ""))
            case Marked():
                yield block.close, _signed(block.lines)
            case Table() | Facts() | Notes() | Warnings() | Line() | Command():
                yield False, _drawn_block(block, width)


def _drawn_block(block: Table | Facts | Notes | Warnings | Line | Command, width: int) -> RenderableType:
    match block:
        case Table():
            return _drawn_table(block, width)
        case Facts():
            grid = Grid.grid(padding=(0, 2))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in block.pairs:
                grid.add_row(name, Text(value if isinstance(value, str) else value.text))
            return Group(Text(block.title, style="bold"), Padding(grid, (0, 0, 0, 1))) if block.title else grid
        case Notes():
            return _listed(block.title, block.texts)
        case Warnings():
            rows = _signed([("!", "yellow", text) for text in block.texts])
            return Group(Text("Read with care", style="bold"), Padding(rows, (0, 0, 0, 1)))
        case Line():
            spans = [((one.value, "bold red" if one.bad else "bold"), f" {one.name}") for one in block.numbers]
            return Text(" · ").join(Text.assemble(*span) for span in spans)
        case Command():
            return Text(block.text)


def _signed(lines: Sequence[tuple[str, str, str]]) -> Grid:
    rows = Grid.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(overflow="fold")
    for sign, style, text in lines:
        rows.add_row(Text(sign, style=style), Text(text, style="dim" if style == "dim" else ""))
    return rows


def _drawn_table(block: Table, width: int) -> RenderableType:
    shown = [
        (index, column)
        for index, column in enumerate(block.columns)
        if column.on & On.TERMINAL and width >= column.least_width
    ]
    table = Grid(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for index, column in shown:
        # A sign and its word stand in one line.
        signed = any(isinstance(cell := row.cells[index], Cell) and cell.outcome for row in block.rows)
        whole = signed or (column.right and not column.folds)
        justify: JustifyMethod = "right" if column.right else "left"
        overflow: OverflowMethod = "ellipsis" if whole else "fold"
        table.add_column(column.head, justify=justify, no_wrap=whole, overflow=overflow, min_width=column.room)
    for row in block.rows:
        cells = [_drawn_cell(row.cells[index], width) for index, _ in shown]
        under = row.class_ == "sub"
        table.add_row(*([Text("  ").append(cells[0]), *cells[1:]] if under else cells), style="dim" if under else "")
    title = [Text(block.title, style="bold")] if block.title else []
    return Group(*title, table, *(Text(text, style="dim") for text in block.notes))


def _drawn_cell(cell: str | Cell, width: int) -> Text:
    if isinstance(cell, str):
        return Text(cell, style="red" if cell == units.INFINITE else "")
    if not cell.outcome:
        text = Text(cell.text, style="bold" if cell.strong else "")
        under = cell.under if width >= cell.under_least_width else ""
        return text.append(f"\n{under}", style="dim") if under else text
    word = Text(f"{signs.mark(cell.outcome)} {cell.text}", style=signs.colour(cell.outcome))
    return word.append(f" {cell.aside}" if cell.aside else "", style="dim")


def _spaced(parts: Sequence[RenderableType]) -> Group:
    """With an empty line between them."""
    return Group(*[one for part in parts for one in (part, Text(""))][:-1])


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


def _listed(title: str, texts: Sequence[str]) -> RenderableType:
    """A bold title, and each text behind a dash; long ones fold under their own beginning."""
    rows = Grid.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(overflow="fold")
    for text in texts:
        rows.add_row("-", Text(text))
    return Group(Text(title, style="bold"), rows)
