"""Every way to say a capacity plan: text, json, markdown and html, each a pure function to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from plimsoll.reports.capacity import capacity_page as page
from plimsoll.reports.capacity import capacity_text as text
from plimsoll.reports.capacity import capacity_words as say
from plimsoll.reports.capacity.capacity_parts import CapacityReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as safe
from plimsoll.reports.wording.escape import markdown_quotes as quotes
from plimsoll.reports.wording.escape import markdown_table as table


def render_json(report: CapacityReport) -> bytes:
    """The document: there is no NaN and no infinity in it."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def render_markdown(report: CapacityReport) -> bytes:
    """A note for a pull request or a planning document."""
    rows = [
        [
            f"**{row.replicas}**"
            if report.sized is not None and row.replicas == report.sized.replicas
            else f"{row.replicas}",
            units.percent(row.utilisation, 3),
            units.INFINITE if row.one_down is None else units.percent(row.one_down, 3),
            "yes" if row.headroom_kept and row.one_down_kept else "no",
            safe(say.money_of(row.per_hour, report)),
        ]
        for row in report.rows
    ]
    costs = [
        [say.cost_name(cost), *(safe(say.money_of(value, report)) for value in (cost.full, cost.target))]
        for cost in report.costs
    ]
    blocks = [
        f"### {report.outcome}: {safe(say.headline(report))}",
        safe(say.binding(report.sized, report)) if report.sized is not None else "",
        safe(say.sensitivity(report)),
        table(["Replicas", "utilisation", "one down", "both rules", "an hour"], rows, "rrrlr") if rows else "",
        table(["What it costs", "fully used", "at the target rate"], costs, "lrr") if costs else "",
        safe(say.laws(report)),
        quotes(report.warnings),
    ]
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


#: By the name that ``--format NAME=PATH`` says.
FORMATS: Mapping[str, Callable[[CapacityReport], bytes]] = MappingProxyType(
    {"html": page.render, "json": render_json, "markdown": render_markdown, "text": text.render}
)
