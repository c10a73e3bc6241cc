"""Document: what a run, a search, a sweep and the like say to people, as a few kinds of blocks.

``reports/documents`` turns each result into one, and every format renders any. Nothing is computed or escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Flag, auto
from typing import Any, Literal, TypeVar

from markupsafe import Markup

from plimsoll.reports.svg.plot import Chart
from plimsoll.reports.wording.signs import level
from plimsoll.slo.records.foreign import printable

T = TypeVar("T")


class On(Flag):
    """Where a block or a column is shown: a page has room for everything, a comment and a terminal have not."""

    PAGE = auto()
    TERMINAL = auto()
    MARKDOWN = auto()
    WRITTEN = TERMINAL | MARKDOWN
    ALL = PAGE | TERMINAL | MARKDOWN


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than its text. ``outcome``: its sign stands before it; ``links``: (address, name).

    ``aside``: what stands beside an outcome, and on a page beside any text; ``code``: the name of the thing, behind the
    text on a page. ``under``: a second line in a terminal, which a narrower one than ``under_least_width`` goes
    without.
    """

    text: str
    outcome: str = ""
    aside: str = ""
    strong: bool = False
    links: Sequence[tuple[str, str]] = ()
    hint: str = ""
    code: str = ""
    under: str = ""
    under_least_width: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """``titled``: its head on a page and in Markdown, where that differs; a terminal narrower than ``least_width`` goes
    without it.

    ``names``: it names the row. ``words``: it holds sentences. ``folds``: its head may go into two lines. ``room``: so
    many characters in a terminal at least.
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
    room: int | None = None

    def titled_head(self) -> str:
        """The head on a page and in Markdown."""
        return self.head.replace("\n", " ") if self.titled is None else self.titled


@dataclass(frozen=True, slots=True)
class Row:
    """One cell for each column. ``class_``: how the page sets it off; ``sub`` belongs to the row above it."""

    cells: Sequence[str | Cell]
    class_: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """``title`` is the terminal's, for elsewhere a section has one. ``notes`` stand under it, ``fine`` on the page
    only.

    ``look``: a class of the page's style sheet.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    fine: str = ""
    look: str = ""
    on: On = On.ALL


def table(
    items: Iterable[T],
    *columns: tuple[Column, Callable[[T], str | Cell]],
    set_off: Callable[[T], str] = lambda one: "",
    **more: Any,
) -> Table:
    """A row for each of the items: each column stands beside what it shows of one. ``set_off``: the row's class;
    ``more``: as of a ``Table``.
    """
    rows = [Row([show(one) for _, show in columns], set_off(one)) for one in items]
    return Table([column for column, _ in columns], rows, **more)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A paragraph; ``lead``: its first words, in bold. ``fine``: small print. ``outcome``: its sign stands before it on
    a page.

    In a terminal, ``close`` stands right under the block before it, and one narrower than ``least_width`` goes without
    it.
    """

    text: str
    lead: str = ""
    fine: bool = False
    outcome: str = ""
    close: bool = False
    least_width: int = 0
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that can be copied."""

    text: str
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values; ``title`` is the terminal's."""

    pairs: Sequence[tuple[str, str | Command]]
    title: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Notes:
    """A list of sentences under a title."""

    texts: Sequence[str]
    title: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Marked:
    """Lines of a terminal, each behind a sign of its own: (sign, style, text)."""

    lines: Sequence[tuple[str, str, str]]
    close: bool = False
    on: On = On.TERMINAL


@dataclass(frozen=True, slots=True)
class Warnings:
    """What to know before anything is quoted."""

    texts: Sequence[str]
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit. ``bad``: it is one to look at."""

    name: str
    value: str
    more: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """The key figures, large."""

    tiles: Sequence[Quantity]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers in one line, each followed by its name; ``under``: a sentence below them."""

    numbers: Sequence[Quantity]
    under: str = ""
    on: On = On.WRITTEN


@dataclass(frozen=True, slots=True)
class Reading:
    """One large number, and what it is held against."""

    value: str
    against: str
    before: str = ""
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Drawings:
    """Small pictures, each under its label; they are drawn when the page is made."""

    draw: Sequence[tuple[str, Callable[[], Markup | None]]]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Figures:
    """Charts, each in a card of its own with what is to be said of it; two stand side by side where ``paired``.

    A function draws them when the page is made. ``bare``: without a card; those of one ``group`` are read off together.
    """

    charts: Sequence[Chart] | Callable[[], Sequence[Chart]]
    notes: Sequence[str] = ()
    paired: bool = False
    bare: bool = False
    group: str = ""
    on: On = On.PAGE

    def drawn(self) -> Sequence[Chart]:
        return self.charts() if callable(self.charts) else self.charts


@dataclass(frozen=True, slots=True)
class Brush:
    """Where a script of the page says what a part of the run was like, by the ``columns`` that are made with it."""

    columns: Callable[[], Any]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Folded:
    """Details that are opened on demand; a terminal can't."""

    summary: str
    blocks: Sequence[Block]
    on: On = On.PAGE | On.MARKDOWN


@dataclass(frozen=True, slots=True)
class Card:
    """Blocks that stand together on a page, under their name and outcome where they have any.

    ``code``: a name that could be typed; ``aside``: what is said beside it; ``look``: a class of the page's style
    sheet.
    """

    blocks: Sequence[Block]
    name: str = ""
    outcome: str = ""
    code: str = ""
    aside: str = ""
    look: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks side by side on a page. ``look``: cards, or gauges beside their facts."""

    blocks: Sequence[Block]
    columns: int = 2
    look: Literal["cards", "gauges"] = "cards"
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with its heading; elsewhere its blocks follow each other. ``folded``: its name where Markdown
    folds it away.

    ``look``: a class of the page's style sheet.
    """

    title: str
    blocks: Sequence[Block]
    folded: str = ""
    look: str = ""
    on: On = On.ALL


Block = (
    Table | Sentence | Facts | Notes | Marked | Warnings | Tiles | Line | Reading | Drawings | Figures | Command | Brush
    | Folded | Card | Grid | Section
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was tested, for JUnit and annotations. ``as_of``: the word that it is as loud as, where that is
    another than its outcome. ``details``: what stands under the message of one that did not pass.
    """

    name: str
    outcome: str
    message: str
    output: str = ""
    as_of: str = ""
    details: str = ""

    @property
    def sign(self) -> str:
        """The word whose level it has."""
        return self.as_of or self.outcome


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

    ``more``: a second sentence under the headline. ``lines``: (text, style) of the terminal's card, which stands last
    where ``card_last``. ``page_notes`` stand with the warnings of a page. ``appendix`` stands behind the warnings in
    Markdown. ``sheet``: the rows of a CSV file. ``told``: what a CI log is told, where that is not every case.
    ``properties``: what a single run is known by; only a run has them.
    """

    kind: str
    word: str
    name: str
    headline: str
    blocks: Sequence[Block]
    title: str = ""
    heading: str = ""
    as_of: str = ""
    more: str = ""
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
    told: Sequence[Case] = ()
    properties: Sequence[tuple[str, str]] = ()

    @property
    def sign(self) -> str:
        """The word whose sign and tone it has."""
        return self.as_of or self.word


def suites_of(doc: Document) -> Sequence[Suite]:
    """What was tested: the document's own suites, or one case that is its outcome."""
    if doc.suites:
        return doc.suites
    case = Case(doc.name, doc.word, doc.headline, doc.headline if level(doc.sign).result == "ok" else "", doc.as_of)
    return [Suite(doc.name, f"plimsoll.{doc.kind.replace(' ', '')}", [case])]


def harmless(value: Any) -> Any:
    """A document, or a part of one, in which no text can steer what shows it: whatever a user or a server called a
    thing, its control characters are gone.
    """
    if isinstance(value, str):
        return type(value)(printable(value))  # a drawing stays one: nothing that it is escaped by is touched
    if isinstance(value, dict):
        return {harmless(name): harmless(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(one) for one in value] if isinstance(value, list) else tuple(harmless(one) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: harmless(getattr(value, field.name)) for field in fields(value)})
    return value
