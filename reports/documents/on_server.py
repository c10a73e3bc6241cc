"""The columns that the servers' own figures make beside runs, in every document of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.reports.blocks.document import Block, Card, Column, Row, Section, Table
from plimsoll.reports.wording import units
from plimsoll.slo.server.beside import COLUMNS

_TITLE = "The servers themselves"
_FINE = "What the servers said of themselves, the median of the runs: shown, and no claim that they differ."


def table(head: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[Block]:
    """A table of what at least one of the rows has; nothing where none has anything."""
    kept = [name for name in COLUMNS if any(name in said for _, said in rows)]
    if not kept:
        return []
    columns = [Column(head, right=False, titled=head.capitalize(), names=True)]
    columns += [Column(name.replace("(", "\n("), titled=name, folds=True) for name in kept]
    cells = [
        [units.human(said[name], COLUMNS[name]) if name in said else "not measured" for name in kept]
        for _, said in rows
    ]
    made = [Row([label, *figures]) for (label, _), figures in zip(rows, cells, strict=True)]
    absent = [name for name in COLUMNS if name not in kept]
    notes = [f"not measured in any run: {', '.join(absent)}"] if absent else []
    return [Section(_TITLE, [Card([Table(columns, made, title=_TITLE, notes=notes, fine=_FINE)])], _TITLE)]
