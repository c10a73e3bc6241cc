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

from plimsoll.reports.format import Format
from plimsoll.reports.page.content import content
from plimsoll.reports.report import Report
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.curves import legend_mark
from plimsoll.reports.svg.plot import Key

_TYPED = re.compile(r"`([^`\n]+)`")


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    return render_page("report.html.j2", content(report))


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
        symbol=words.symbol,
        mark=_mark,
    )
    return environment


def said(text: str) -> Markup:
    """Prose of ours in which `backticks` stand around what is typed: escaped, and set as code."""
    return Markup(_TYPED.sub(r"<code>\1</code>", str(escape(text))))


def _source(name: str) -> str:
    return files("plimsoll.reports.formats").joinpath(name).read_text(encoding="utf-8")


def _mark(key: Key) -> Markup:
    return legend_mark(key.class_, key.mark)


FORMAT = Format("html", ".html", "a self-contained page with charts, for reading and sharing", render)
