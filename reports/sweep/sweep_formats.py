"""Every way to say a sweep: text, json, csv, markdown and html, each a pure function to bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from plimsoll.reports.sweep import sweep_page as page
from plimsoll.reports.sweep import sweep_text as text
from plimsoll.reports.sweep import sweep_words as say
from plimsoll.reports.sweep.sweep_curves import times_of
from plimsoll.reports.sweep.sweep_parts import SeriesPart, SweepPoint, SweepReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as safe
from plimsoll.reports.wording.escape import markdown_quotes, markdown_table

_PLAIN = (
    "x", "outcome", "unstable", "offered_per_s", "achieved_per_s", "goodput_per_s", "good_fraction",
    "output_tokens_per_s", "completion", "requests",
)  # fmt: skip
_QUANTILES = ("p50", "p90", "p99")
#: What a spreadsheet would run as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_json(report: SweepReport) -> bytes:
    """``sweep.json``: an infinite number is null, and there is no NaN."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n").encode()


def render_csv(report: SweepReport) -> bytes:
    """One row a point: its settings, its rates, and the percentiles of every time in nanoseconds (``inf``: failed)."""
    points = report.points
    times = list(dict.fromkeys(name for point in points for name in point.metrics))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"{name}_{q}_ns" for name in times for q in _QUANTILES]
    writer.writerow([*report.variables, *_PLAIN, *heads, "runs"])
    for point in points:
        plain = [getattr(point, name) for name in _PLAIN]
        values = [_cell(point, name, q) for name in times for q in _QUANTILES]
        settings = [point.settings.get(name, "") for name in report.variables]
        writer.writerow([_harmless(v) for v in (*settings, *plain, *values, " ".join(point.runs))])
    return out.getvalue().encode()


def _cell(point: SweepPoint, name: str, q: str) -> object:
    metric = point.metrics.get(name)
    if metric is None:
        return ""
    value = getattr(metric, q)
    return "inf" if value is None else value


def _harmless(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def render_markdown(report: SweepReport) -> bytes:
    """A comment for a pull request: the sentence and the table of each series."""
    blocks = [f"### {say.SYMBOLS[report.outcome]} {report.outcome}: {safe(report.name)}"]
    for series in report.series:
        if series.label:
            blocks.append(f"**{safe(series.label)}**")
        blocks += [safe(say.sentence(series, report)), _rows(series, report)]
    blocks += [
        f"**{safe(front.title)}**: on the front " + "; ".join(safe(p.name) for p in front.points if not p.dominated_by)
        for front in report.fronts
    ]
    blocks.append(markdown_quotes(report.warnings))
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _rows(series: SeriesPart, report: SweepReport) -> str:
    times = times_of(series.points)[:2]
    rows = []
    for point in series.points:
        rates = [units.rate(point.achieved_per_s), units.rate(say.good(point))]
        rows.append([safe(say.at(report.x, point.x)), *rates, *say.times(point, times), say.outcome(point)])
    heads = [safe(report.x), "answered", "good", *(f"{q} {say.short(name)}" for name in times for q in ("p50", "p99"))]
    return markdown_table([*heads, "outcome"], rows, "r" * len(heads) + "l")


#: By the name that ``--format NAME=PATH`` says.
FORMATS: Mapping[str, Callable[[SweepReport], bytes]] = MappingProxyType(
    {
        "csv": render_csv,
        "html": page.render,
        "json": render_json,
        "markdown": render_markdown,
        "text": text.render,
    }
)
