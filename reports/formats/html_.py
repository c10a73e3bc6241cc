"""HTML: one file for people, with nothing to fetch. Opens offline, prints, follows the reader's light or
dark theme.

Refuses to judge: every number and word comes from the report. Every string of the user's is escaped.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from reports import words
from reports.format import Format
from reports.page import content
from reports.report import Report
from reports.svg.curves import legend_mark
from reports.svg.plot import Key


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    here = files("reports.formats")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(here.joinpath("report.html.j2").read_text(encoding="utf-8"))
    # Our own files, not the user's: the only text that is placed unescaped besides the drawings.
    page = template.render(
        content(report),
        css=Markup(here.joinpath("assets", "report.css").read_text(encoding="utf-8")),
        js=Markup(here.joinpath("assets", "report.js").read_text(encoding="utf-8")),
        symbol=words.symbol,
        mark=_mark,
    )
    return page.encode("utf-8")


def _mark(key: Key) -> Markup:
    return legend_mark(key.class_, key.mark)


FORMAT = Format("html", ".html", "a self-contained page with charts, for reading and sharing", render)
