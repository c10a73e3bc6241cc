"""CSV: of a run one row per metric, in the units of ``report.json``, as RFC 4180 writes it.

Of anything else than a run: the rows that it has for a spreadsheet, or its outcome and each of its tables as they are
shown.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from plimsoll.reports.blocks.document import Block, Card, Cell, Command, Document, Facts, Folded, Grid, Section, Table
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format

#: What a spreadsheet would run as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def document(doc: Document) -> bytes:
    """The rows that a document has for a spreadsheet, its heads first; else its tables, an empty line between two."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n" if doc.properties else "\n").writerows(
        [_harmless(value) for value in row] for row in doc.sheet or _tables(doc)
    )
    return out.getvalue().encode()


def _tables(doc: Document) -> Iterator[Sequence[object]]:
    """The outcome, then each table once: a line with its title, one with its heads, its rows."""
    yield "document", "name", "outcome", "headline"
    yield doc.kind, doc.name, doc.word, doc.headline
    seen: list[tuple[list[str], list[list[str]]]] = []
    for title, heads, rows in _found([*doc.blocks, *doc.appendix], ""):
        if rows and (heads, rows) not in seen:
            seen.append((heads, rows))
            yield from ([], [title], heads, *rows)


def _found(blocks: Sequence[Block], above: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(title, heads, rows) of each table and each list of facts; ``above``: the title of what they stand in."""
    for block in blocks:
        match block:
            case Section():
                yield from _found(block.blocks, block.title)
            case Card():
                yield from _found(block.blocks, block.name or above)
            case Folded() | Grid():
                yield from _found(block.blocks, above)
            case Table():
                heads = [column.titled_head() or column.head for column in block.columns]
                rows = [[_said(cell) for cell in row.cells] for row in block.rows]
                yield block.title or above, heads, rows
            case Facts():
                pairs = [[name, value.text if isinstance(value, Command) else value] for name, value in block.pairs]
                yield block.title or above, ["name", "value"], pairs


def _said(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text or " ".join(name for _, name in cell.links)


def _harmless(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


FORMAT = Format("csv", ".csv", "the table of metrics, for spreadsheets", by(document), document)
