"""HTML: one file for people, with nothing to fetch. Opens offline, prints, follows the reader's light or dark theme.

Refuses to judge: every number and word comes from the report. Every string of the user's is escaped.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from plimsoll.reports.blocks.document import Document, On
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format
from plimsoll.reports.svg.curves import legend_mark
from plimsoll.reports.svg.plot import Key
from plimsoll.reports.wording import signs

if TYPE_CHECKING:
    from plimsoll.reports.documents.live import LiveReport

_TYPED = re.compile(r"`([^`\n]+)`")
#: Between a number and its unit, where no line may end.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|min|h|[KMG]iB)(?!\w))")


def document(doc: Document) -> bytes:
    """The page of a document, UTF-8."""
    named = {"doc": doc, "tone": signs.tone(doc.sign), "plimsoll": doc.plimsoll, "footer": doc.footer}
    more = Markup(_source(f"assets/{doc.style}.css")) if doc.style else ""
    return _render("document.html.j2", {**named, "more_css": more})


def live_page(report: LiveReport) -> bytes:
    """The whole live page with the look of this moment in it, UTF-8."""
    from plimsoll.reports.documents.live import content

    more = {"more_css": Markup(_source("assets/dashboard.css")), "live_js": Markup(_source("assets/dashboard.js"))}
    return _render("dashboard.html.j2", {**content(report), "plimsoll": report.run.plimsoll, **more})


def live_look(report: LiveReport) -> str:
    """What changes: the inside of the page's ``main``, in parts that the script puts in place of the old ones."""
    from plimsoll.reports.documents.live import content

    return _render("dashboard_look.html.j2", content(report)).decode("utf-8")


def _render(template: str, named: Mapping[str, Any]) -> bytes:
    """One of the templates beside this file with the values that it names, the style sheet and the script."""
    return _environment().get_template(template).render(named).encode("utf-8")


class _Compiled(FileSystemBytecodeCache):
    """Templates compiled, where Python keeps compiled modules; where nothing can be kept each run compiles. They are
    compiled again when a template or Jinja changes; after a change of the options below, delete them.
    """

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                super().dump_bytecode(bucket)


@cache
def _environment() -> Environment:
    """Made once: the live page is rendered every second, and compiling its templates costs more than filling them."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(str(Path(__file__).parent / "__pycache__"), f"%s.jinja2-{version('jinja2')}"),
    )
    environment.filters |= {"said": said, "moment": _moment, "parted": _parted}
    # Our own files, not the user's: the only text that is placed unescaped besides the drawings.
    environment.globals.update(
        css=Markup(_source("assets/report.css")),
        js=Markup(_source("assets/report.js")),
        window_js=Markup(re.sub("^ +", "", _source("assets/window.js"), flags=re.MULTILINE)),
        more_css="",
        symbol=signs.mark,
        tone_of=signs.tone,
        mark=_mark,
        on=lambda part: bool(part.on & On.PAGE),
        kind_of=lambda block: type(block).__name__,
        anchor=lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
    )
    return environment


def said(text: str) -> Markup:
    """Prose of ours in which `backticks` stand around what is typed: escaped, and set as code."""
    return Markup(_TYPED.sub(r"<code>\1</code>", _UNIT.sub("\xa0", str(escape(text)))))


def _moment(text: str) -> str:
    """A time as ISO 8601 writes it, to the second."""
    return text.replace("T", " ").replace("+00:00", " UTC").removesuffix("Z").partition(".")[0]


def _parted(value: str) -> tuple[str, str]:
    """A number and its unit, which a tile sets small."""
    number, _, unit = value.partition(" ")
    return (number[:-2], "/s") if not unit and number.endswith("/s") else (number, unit)


def _source(name: str) -> str:
    return files("plimsoll.reports.formats").joinpath(name).read_text(encoding="utf-8")


def _mark(key: Key) -> Markup:
    return legend_mark(key.class_, key.mark)


FORMAT = Format(
    "html", ".html", "a self-contained page with charts, for reading and sharing", by(document, On.ALL), document
)
