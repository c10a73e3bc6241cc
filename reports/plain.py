"""What is drawn for a terminal, as plain text: no colour, no control codes, the same anywhere. Draws nothing itself."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

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
