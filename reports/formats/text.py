"""Text: what a run, a search or the like says in a terminal, 100 columns wide and without colour."""

from __future__ import annotations

from plimsoll.reports.blocks.document import Document
from plimsoll.reports.blocks.terminal import draw, plain
from plimsoll.reports.documents import run
from plimsoll.reports.format import Format
from plimsoll.reports.report import Report


def render(report: Report) -> bytes:
    """The summary of a run, UTF-8."""
    return plain(run.render_terminal(report))


def document(doc: Document) -> bytes:
    """A document, UTF-8."""
    return plain(draw(doc))


FORMAT = Format("text", ".txt", "the summary a terminal shows, without colour", render, document)
