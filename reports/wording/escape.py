"""Text from outside made harmless: for Markdown as GitHub reads it, and for XML."""

import re
from collections.abc import Iterable, Sequence

#: Characters that XML 1.0 can't hold in any spelling.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&@$])")
_LINKS = (("://", ":\u200b//"), ("www.", "www\u200b."), ("\\@", "\\@\u200b"), ("\\#", "\\#\u200b"))


def xml(text: str) -> str:
    """What XML can hold; the writer escapes the rest."""
    return _FORBIDDEN.sub("\ufffd", text)


def markdown(text: str) -> str:
    """One line in which no character means anything to Markdown, and nothing becomes a link by itself."""
    flat = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    # Escapes don't stop GitHub from linking addresses, people and issues; an invisible space does.
    for mark, broken in _LINKS:
        flat = flat.replace(mark, broken)
    return flat


def markdown_quotes(texts: Iterable[str], sign: str = "⚠️ ") -> str:
    """A quotation, each text a paragraph of its own."""
    return "\n>\n".join(f"> {sign}{markdown(text)}" for text in texts)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """A table of cells that are escaped already; ``align``: l or r for each column."""
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])
