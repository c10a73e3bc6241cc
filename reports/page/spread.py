"""The page's maps: latency by time of the run, and by prompt length. Chooses titles, notes and sizes; drawing is in
``plimsoll.reports.svg``.
"""

from __future__ import annotations

from functools import partial

from plimsoll.reports.page.pictures import without_value
from plimsoll.reports.parts.chart_parts import ByPrompt, Heatmap
from plimsoll.reports.report import Report
from plimsoll.reports.svg.heat import LEVELS, heat
from plimsoll.reports.svg.lengths import ENOUGH_FOR_P99, lengths
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import short_of

#: Fewer requests than this make no map.
_ENOUGH = 40
_MAP = Canvas(1080, 300, left=66, right=16, top=12)
_MAP_NARROW = Canvas(420, 280, left=58, right=10, top=12)
_CLOUD = Canvas(1080, 300, left=66, right=24, top=14, bottom=38)
_CLOUD_NARROW = Canvas(420, 280, left=58, right=16, top=14, bottom=38)


def heat_chart(report: Report) -> Chart | None:
    """Latency by time: which share of the requests of each moment had which value."""
    data = report.charts.heatmap
    if data is None or data.n < _ENOUGH or len(data.failed) < 2:
        return None
    title = f"{_title(report, data.metric)}: every request by when it was due"
    note = (
        "Each column is one stretch of the run, deeper where a larger share of its requests lies"
        f"{_failed_note(report, data)}. Lines: p99 and p50 of the column; a line breaks where a failure is that percentile."
    )
    shares = [(f"heat-{depth}", units.percent(least, 2)) for depth, least in enumerate(LEVELS, start=1)]
    legend = [Key("p99", "heat-p99"), Key("p50", "heat-p50")]
    legend += [Key(f"{least} of a column and more", class_, "bar") for class_, least in shares[1::2]]
    return chart(title, note, legend, partial(heat, data, _heat_label(title, data)), _MAP, _MAP_NARROW)


def _failed_note(report: Report, data: Heatmap) -> str:
    lost = sum(data.failed)
    if not lost:
        return ""
    return f"; {without_value(report, lost)} {'is' if lost == 1 else 'are'} the row at the top"


def _heat_label(title: str, data: Heatmap) -> str:
    low, high = units.human(data.edges[0], data.unit), units.human(data.edges[-1], data.unit)
    return f"{title}. {units.many(data.n, 'request')} from {low} to {high}, {units.count(sum(data.failed))} failed"


def prompt_chart(report: Report) -> Chart | None:
    """A metric by the length of the prompt."""
    data = report.charts.by_prompt
    if data is None or data.n < _ENOUGH or not data.points:
        return None
    name = short_of(data.metric) if data.metric in ("ttft", "latency") else _title(report, data.metric)
    title = f"{name[0].upper()}{name[1:]} by prompt length"
    keys = [Key("p50", "s-p50"), Key("p90", "s-p90")]
    if any(part.n >= ENOUGH_FOR_P99 and part.p99 is not None for part in data.bins):
        keys.append(Key("p99", "s-p99"))
    keys.append(Key("some requests", "cloud-key", "dots"))
    if any(part.failed for part in data.bins):
        keys.append(Key("failures", "s-error", "cross"))
    return chart(
        title, _prompt_note(data), keys, partial(lengths, data, _prompt_label(title, data)), _CLOUD, _CLOUD_NARROW
    )


def _prompt_note(data: ByPrompt) -> str:
    who = "as planned, because the server counted none" if data.planned else "as the server counted them"
    note = (
        f"Input tokens {who}, in groups of equal ratio; p99 where a group has {ENOUGH_FOR_P99} requests. "
        f"{units.many(len(data.points), 'request')} of {units.count(data.n)} drawn, among them the slowest of each group."
    )
    if data.unknown:
        note += f" {units.many(data.unknown, 'request')} of unknown length are left out."
    return note


def _prompt_label(title: str, data: ByPrompt) -> str:
    parts = [
        f"{units.count(part.low)} to {units.count(part.high)} tokens: p50 {units.human(part.p50, data.unit)} "
        f"of {units.many(part.n, 'request')}"
        for part in data.bins
    ]
    return f"{title}. {'; '.join(parts)}"


def _title(report: Report, name: str) -> str:
    metric = report.metrics.get(name)
    return metric.title if metric is not None and metric.title else short_of(name)
