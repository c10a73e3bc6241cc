"""Text: what a run, a search or the like says in a terminal, 100 columns wide and without colour."""

from plimsoll.reports.blocks.document import Document, On
from plimsoll.reports.blocks.terminal import draw, plain
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format


def document(doc: Document) -> bytes:
    """A document, UTF-8."""
    return plain(draw(doc))


FORMAT = Format("text", ".txt", "the summary a terminal shows, without colour", by(document, On.TERMINAL), document)
