"""Every way to say a cold start: text, json, markdown and html, each a pure function to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from plimsoll.reports.coldstart import coldstart_page as page
from plimsoll.reports.coldstart import coldstart_text as text
from plimsoll.reports.coldstart import coldstart_words as say
from plimsoll.reports.coldstart.coldstart_parts import ColdstartReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as safe
from plimsoll.reports.wording.escape import markdown_quotes as quotes
from plimsoll.reports.wording.escape import markdown_table as table


def render_json(report: ColdstartReport) -> bytes:
    """``coldstart.json``: there is no NaN and no infinity in it."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def render_markdown(report: ColdstartReport) -> bytes:
    """A comment for a pull request."""
    rows = [
        [
            say.TITLES[part.quantity],
            *(units.human(value, "ns") for value in (part.median, part.least, part.greatest)),
            say.interval(part, report),
            units.NOTHING if part.first is None else units.human(part.first, "ns"),
        ]
        for part in report.spreads
    ]
    blocks = [
        f"### {say.SYMBOLS[report.outcome]} {report.outcome}: cold start",
        safe(say.headline(report)),
        table(["", "median", "least", "greatest", "interval", "first start"], rows, "lrrrrr") if rows else "",
        safe(say.certainty(report)),
        "\n".join(f"- {goal.outcome} {safe(goal.objective)}: {goal.kept} of {goal.of}" for goal in report.goals),
        quotes(report.warnings),
    ]
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


#: By the name that ``--format NAME=PATH`` says.
FORMATS: Mapping[str, Callable[[ColdstartReport], bytes]] = MappingProxyType(
    {"html": page.render, "json": render_json, "markdown": render_markdown, "text": text.render}
)
