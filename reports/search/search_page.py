"""A search as one self-contained page: the answer, the picture that explains it, and every probe with its own report.

Places what the document holds; decides and fetches nothing.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.search import picture
from plimsoll.reports.search import search_words as say
from plimsoll.reports.search.search_parts import SearchReport
from plimsoll.reports.wording import units


def render(report: SearchReport) -> bytes:
    """The page, UTF-8."""
    return render_page("search.html.j2", content(report))


def content(report: SearchReport) -> dict[str, Any]:
    """Everything the template names."""
    return {
        "more_css": Markup(files("plimsoll.reports.formats").joinpath("assets/search.css").read_text(encoding="utf-8")),
        "symbol": lambda word: say.SYMBOLS.get(word, "•"),
        "report": report,
        "headline": say.headline(report),
        "next_step": say.next_step(report),
        "reasons": say.unsaid(report),
        "facts": say.facts(report),
        "meta": _meta(report),
        "charts": picture.charts(report),
        "probes": [
            {
                "number": probe.number,
                "load": say.load(report, probe.load),
                "purpose": probe.purpose,
                "outcome": probe.outcome,
                "cut": probe.cut,
                "why": say.why(probe),
                "n": units.count(probe.n),
                "achieved": units.rate(probe.achieved_per_s),
                "goodput": units.rate(probe.goodput_per_s),
                "seconds": f"{probe.took_ns / 1e9:.0f}",
                "seed": str(probe.seed),
                "rest": probe.rest,
                "link": quote(f"{probe.run}/report.html"),
                "run": probe.run,
            }
            for probe in report.probes
        ],
        "footer": f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    }


def _meta(report: SearchReport) -> list[str]:
    cooldown = report.question.get("cooldown")
    budget = "" if report.budget_ns is None else f", budget {units.duration(report.budget_ns)}"
    return [
        f"over the {report.variable} · {units.many(len(report.probes), 'probe')} in {units.duration(report.spent_ns)}{budget}"
        f" · {say.sure(report)} in each" + (f" · {cooldown} of silence between two" if cooldown else ""),
        "; ".join(report.objectives),
    ]
