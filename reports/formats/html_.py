"""HTML: one file for people, with nothing to fetch. Opens offline, prints, follows the reader's light or
dark theme.

Refuses to judge: every number and word comes from the report. Every string of the user's is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from plimsoll.reports.document import Document, On
from plimsoll.reports.format import Format
from plimsoll.reports.page.content import content
from plimsoll.reports.report import Report
from plimsoll.reports.svg.curves import legend_mark
from plimsoll.reports.svg.plot import Key
from plimsoll.reports.wording import signs

_TYPED = re.compile(r"`([^`\n]+)`")


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    found = content(report)
    return render_page("report.html.j2", {**found, "tone": signs.tone(found["word"]), "plimsoll": report.run.plimsoll})


def document(doc: Document) -> bytes:
    """The page of a document, UTF-8."""
    named = {"doc": doc, "tone": signs.tone(doc.sign), "plimsoll": doc.plimsoll, "footer": doc.footer}
    return render_page("document.html.j2", {**named, "more_css": Markup(_source(f"assets/{doc.style}.css"))})


def render_page(template: str, named: Mapping[str, Any]) -> bytes:
    """One of the templates beside this file with the values that it names, the style sheet and the script."""
    return _environment().get_template(template).render(named).encode("utf-8")


@cache
def _environment() -> Environment:
    """Made once: the live page is rendered every second, and compiling its templates costs more than filling them."""
    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["said"] = said
    # Our own files, not the user's: the only text that is placed unescaped besides the drawings.
    environment.globals.update(
        css=Markup(_source("assets/report.css")),
        js=Markup(_source("assets/report.js")),
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
    return Markup(_TYPED.sub(r"<code>\1</code>", str(escape(text))))


def _source(name: str) -> str:
    return files("plimsoll.reports.formats").joinpath(name).read_text(encoding="utf-8")


def _mark(key: Key) -> Markup:
    return legend_mark(key.class_, key.mark)


FORMAT = Format("html", ".html", "a self-contained page with charts, for reading and sharing", render, document)
