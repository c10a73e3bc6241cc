"""Markdown for a comment on a pull request: verdict and objectives first, the rest folded away.

GitHub's dialect. Every string of the user's is escaped: it can neither break a table nor become a link or a tag.
"""

import re
from collections.abc import Sequence
from html import escape

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Cell,
    Command,
    Document,
    Facts,
    Folded,
    Line,
    Notes,
    On,
    Section,
    Sentence,
    Table,
    Warnings,
)
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format
from plimsoll.reports.wording.escape import markdown as _safe
from plimsoll.reports.wording.escape import markdown_quotes
from plimsoll.reports.wording.escape import markdown_table as _table
from plimsoll.reports.wording.signs import icon


def document(doc: Document) -> bytes:
    """A document as a comment, UTF-8."""
    blocks = [f"### {icon(doc.sign)} {doc.word}: {_safe(doc.name)}", _safe(doc.headline), _safe(doc.more)]
    blocks += [*_blocks(doc.blocks), markdown_quotes(doc.warnings), *_blocks(doc.appendix)]
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _blocks(blocks: Sequence[Block]) -> list[str]:
    return [text for block in blocks if block.on & On.MARKDOWN for text in _said(block) if text]


def _said(block: Block) -> list[str]:
    """The paragraphs of a block."""
    match block:
        case Section(folded=summary) if summary:
            return [_folded(escape(summary), "\n\n".join(_blocks(block.blocks)))]
        case Section() | Card():
            return _blocks(block.blocks)
        case Table():
            return _table_of(block)
        case Sentence():
            return [(f"**{_safe(block.lead)}**" if block.lead else "") + _safe_behind(block)]
        case Facts():
            return ["\n".join(f"- {_safe(name)}: {_value(value)}" for name, value in block.pairs)]
        case Notes():
            return [_safe(block.title), "\n".join(f"- {_safe(text)}" for text in block.texts)]
        case Folded():
            return [_folded(_safe(block.summary), "\n\n".join(_blocks(block.blocks)))]
        case Command():
            return [_code(block.text)]
        case Warnings():
            return [markdown_quotes(block.texts)]
        case Line():
            line = " · ".join(f"**{one.value}** {one.name}" for one in block.numbers)
            return [line + (f"  \n{_safe(block.under)}" if block.under else "")]
    return []  # a picture


def _value(value: str | Command) -> str:
    return _safe(value) if isinstance(value, str) else _code(value.text)


def _safe_behind(block: Sentence) -> str:
    """The text behind its first words, with the blank that may stand between them."""
    return (" " if block.text.startswith(" ") else "") + _safe(block.text)


def _table_of(block: Table) -> list[str]:
    shown = [(index, column) for index, column in enumerate(block.columns) if column.on & On.MARKDOWN]
    rows = [[_cell_of(row.cells[index]) for index, _ in shown] for row in block.rows]
    for cells, row in zip(rows, block.rows, strict=True):
        cells[0] = f"↳ {cells[0]}" if row.class_ == "sub" else cells[0]
    heads = [_safe(column.titled_head()) for _, column in shown]
    table = _table(heads, rows, "".join("r" if column.right else "l" for _, column in shown))
    return [table, "\n".join(f"- {_safe(text)}" for text in block.notes)]


def _cell_of(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _safe(cell)
    if cell.outcome:
        return f"{icon(cell.outcome)} {cell.text}" + (f" {_safe(cell.aside)}" if cell.aside else "")
    return f"**{_safe(cell.text)}**" if cell.strong else _safe(cell.text)


def _code(text: str) -> str:
    """A code span that can be copied as it stands (CommonMark 6.1: a fence longer than any run of backticks inside)."""
    flat = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{space}{flat}{space}{fence}"


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


FORMAT = Format("markdown", ".md", "a comment for a pull request", by(document, On.MARKDOWN), document)
