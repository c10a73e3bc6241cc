"""Document: what a search, a sweep, a comparison, a capacity plan and a cold start say to people, as a few kinds of blocks.

``reports/documents`` turns each result into one, and every format renders any of them. Nothing here is computed or escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Literal

from plimsoll.reports.svg.plot import Chart
from plimsoll.reports.wording.signs import tone


class On(Flag):
    """Where a block or a column is shown: a page has room for everything, a comment and a terminal have not."""

    PAGE = auto()
    TERMINAL = auto()
    MARKDOWN = auto()
    ALL = PAGE | TERMINAL | MARKDOWN


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than its text. ``outcome``: its sign stands before it; ``links``: (address, name).

    ``aside``: what stands beside an outcome, and on a page beside any text.
    """

    text: str
    outcome: str = ""
    aside: str = ""
    strong: bool = False
    links: Sequence[tuple[str, str]] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """``titled``: its head on a page and in Markdown, where that differs; a terminal narrower than ``least_width`` goes without it.

    ``names``: it names the row. ``words``: it holds sentences. ``folds``: its head may go into two lines.
    """

    head: str
    right: bool = True
    on: On = On.ALL
    titled: str | None = None
    least_width: int = 0
    names: bool = False
    words: bool = False
    code: bool = False
    folds: bool = False

    def titled_head(self) -> str:
        """The head on a page and in Markdown."""
        return self.head.replace("\n", " ") if self.titled is None else self.titled


@dataclass(frozen=True, slots=True)
class Row:
    """One cell for each column. ``class_``: how the page sets it off; ``sub`` belongs to the row above it, everywhere."""

    cells: Sequence[str | Cell]
    class_: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """``title`` is the terminal's, for elsewhere a section has one. ``notes`` stand under it, ``fine`` on the page only."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    fine: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Sentence:
    """A paragraph; ``lead``: its first words, in bold. ``fine``: small print."""

    text: str
    lead: str = ""
    fine: bool = False
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values; ``title`` is the terminal's."""

    pairs: Sequence[tuple[str, str]]
    title: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Notes:
    """A list of sentences under a title."""

    texts: Sequence[str]
    title: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Figures:
    """Charts, each in a card of its own with what is to be said of it; two stand side by side where ``paired``."""

    charts: Sequence[Chart]
    notes: Sequence[str] = ()
    paired: bool = False
    bare: bool = False
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that can be copied."""

    text: str
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Folded:
    """Details that are opened on demand; a terminal can't."""

    summary: str
    blocks: Sequence[Block]
    on: On = On.PAGE | On.MARKDOWN


@dataclass(frozen=True, slots=True)
class Card:
    """Blocks that stand together on a page, under their name and outcome where they have any."""

    blocks: Sequence[Block]
    name: str = ""
    outcome: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with its heading; elsewhere its blocks follow each other."""

    title: str
    blocks: Sequence[Block]
    on: On = On.ALL


Block = Table | Sentence | Facts | Notes | Figures | Command | Folded | Card | Section


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was tested, for JUnit and annotations."""

    name: str
    result: Literal["ok", "failure", "error"]
    outcome: str
    message: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that belong together."""

    name: str
    class_name: str
    cases: Sequence[Case]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """``word``: the outcome; ``as_of``: the word whose sign it has, where that is another. ``name``: whose it is.

    ``lines``: (text, style) of the terminal's card, which stands last where ``card_last``. ``page_notes`` stand with the
    warnings of a page. ``appendix`` stands behind the warnings in Markdown. ``sheet``: the rows of a CSV file.
    """

    kind: str
    word: str
    name: str
    headline: str
    blocks: Sequence[Block]
    title: str = ""
    heading: str = ""
    as_of: str = ""
    meta: Sequence[str] = ()
    lines: Sequence[tuple[str, str]] = ()
    warnings: tuple[str, ...] = ()
    page_notes: tuple[str, ...] = ()
    warning_title: str = "Read this with care"
    appendix: Sequence[Block] = ()
    card_last: bool = False
    style: str = "comparison"
    started_at: str = ""
    plimsoll: str = ""
    footer: str = ""
    suites: Sequence[Suite] = ()
    sheet: Sequence[Sequence[object]] = ()

    @property
    def sign(self) -> str:
        """The word whose sign and tone it has."""
        return self.as_of or self.word


def suites_of(doc: Document) -> Sequence[Suite]:
    """What was tested: the document's own suites, or one case that is its outcome."""
    if doc.suites:
        return doc.suites
    result: Literal["ok", "failure", "error"] = {"pass": "ok", "measured": "ok", "fail": "failure"}.get(
        tone(doc.sign), "error"
    )  # type: ignore[assignment]
    case = Case(doc.name, result, doc.word, doc.headline, doc.headline if result == "ok" else "")
    return [Suite(doc.name, f"plimsoll.{doc.kind.replace(' ', '')}", [case])]
