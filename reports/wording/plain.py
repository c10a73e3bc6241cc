"""What every rendering for a terminal shares: its form as plain text (no colour, no control codes, the same anywhere), and a list."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

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


def listed(title: str, texts: Sequence[str]) -> RenderableType:
    """A bold title, and each text behind a dash; long ones fold under their own beginning."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column()
    rows.add_column(overflow="fold")
    for text in texts:
        rows.add_row("-", Text(text))
    return Group(Text(title, style="bold"), rows)
