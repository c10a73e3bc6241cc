"""A run told apart by labels: the figures of every value side by side, and its course on the run's own time axis.

Labels of which rows have few values are told apart without being asked for (classes, backends, tenants); others where
``--by`` names them. A value that no measured row has, but the plan, has a row too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Figures, Folded, Row, Section, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.charts import Band, Timeline, banded, buckets_of
from plimsoll.reports.parts.measures import HEARD, LIVE, of_group
from plimsoll.reports.parts.parts import Metric, Number
from plimsoll.reports.svg.plot import Canvas, Chart, chart
from plimsoll.reports.svg.strip import Strip, band_layers, strip
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import catalogue, in_order, measure, short_of, title_of
from plimsoll.slo.objectives.goodput import per_second
from plimsoll.slo.objectives.selector import PHASE, Selector, Split, rows_of, split
from plimsoll.slo.records.labels import AGENT, REGION
from plimsoll.slo.records.records import Records, Status

#: A label of more values is told apart only where it is asked for; of more the rest is folded away on a page.
FEW, OPEN = 20, 12
#: Of so many values the course is drawn.
DRAWN = 8
#: The time axis of the charts over the run.
_WIDE, _NARROW = Canvas(1080, 110, left=66, right=16, top=10), Canvas(420, 110, left=58, right=10, top=10)
#: What a user waits for, in the order in which columns have room; a run has some of them.
_SHOWN = (*LIVE, *HEARD, "ttft", "latency", "tpot", "itl")


class Group(BaseModel, frozen=True, extra="forbid"):
    """The measured rows with one value of a label. ``metrics`` as of the whole run, failures counting as there."""

    requests: int = 0
    failed: int = Field(default=0, description="of them, those that were turned away too")
    refused: int = 0
    good: float | None = Field(default=None, description="share of them; null: there are none")
    requests_per_s: float = 0.0
    output_tokens_per_s: float | None = None
    metrics: dict[str, Metric] = Field(default_factory=dict)
    due: list[int] = Field(default_factory=list, description="by bucket of the timeline; empty: not drawn")
    bands: dict[str, Band] = Field(default_factory=dict, description="likewise, of what a user waits for")


Groups = Mapping[str, Group]


def labels_of(records: Records, by: Sequence[str]) -> dict[str, Split]:
    """What is told apart: what is asked for, and labels with few values."""
    table = records.labels
    known = [] if table is None else [name for name in table.columns if name in table.texts or name == "turn"]
    known = [name for name in known if name not in (AGENT, REGION)]  # the section on agents has these
    known = [name for name in known if name != "class" or "arm" not in known]  # arms are classes
    found = {label: split(label, records) for label in dict.fromkeys([*by, *known])}
    return {name: one for name, one in found.items() if name in by or 1 < len(one.values) <= FEW}


def untold(records: Records, by: Sequence[str]) -> list[str]:
    """Why what was asked for is not told apart."""
    return [f"not told apart by {label}: {why}" for label in by if (why := split(label, records).problem)]


def by_part(run: JudgedRun) -> dict[str, dict[str, Group]] | None:
    """None: no row has a label."""
    asked = {name: one for name, one in labels_of(run.records, run.by).items() if one.values}
    measured = run.records.measured()
    if not asked or not len(measured):
        return None
    known, wanted = catalogue(), {one.indicator for one in run.judged.objectives}
    names = [name for name, one in known.items() if one.group in ("answer", "speech") or name in wanted]
    there = [name for name in in_order(names) if measure(known[name], measured).n]
    return {label: _groups(run, measured, found, there) for label, found in asked.items()}


def _groups(run: JudgedRun, measured: Records, found: Split, names: Sequence[str]) -> dict[str, Group]:
    drawn = next((name for name in _SHOWN if name in names), "") if len(found.values) <= DRAWN else ""
    buckets, span_ns = buckets_of(measured), run.judged.goodput.span_ns
    good = run.judged.goodput.good[run.records.in_measure]

    def group(where: Selector) -> Group:
        rows = measured.select(among := rows_of(where, measured))  # not kept: parts of a large run are large
        n, ok = len(rows), int(rows.ok.sum())
        tokens = rows["n_out"][rows.ok & (rows["n_out"] >= 0)]
        bands, due, took_ns = {}, [], span_ns
        if n and any(one.label == PHASE for one in where):
            took_ns = int(rows["done_ns"].max()) - int(rows["due_ns"].min())
        if drawn and n:
            values, at = measure(catalogue()[drawn], rows, judged=True), buckets.index(rows["due_ns"])
            bands, due = (
                {drawn: banded(values.values, at[values.row], buckets.n, "ns")},
                np.bincount(at, minlength=buckets.n).tolist(),
            )
        return Group(
            requests=n,
            failed=n - ok,
            refused=int((rows["status"] == Status.REFUSED).sum()),
            good=float(good[among].mean()) if n else None,
            requests_per_s=_rounded(per_second(ok, took_ns)),
            output_tokens_per_s=_rounded(per_second(int(tokens.sum()), took_ns)) if len(tokens) else None,
            metrics=of_group(rows, names),
            due=due,
            bands=bands,
        )

    return {value: group(where) for value, where in zip(found.values, found.conditions, strict=True)}


def _rounded(rate: float) -> float:
    return float(f"{rate:.6g}")


# -- laid out ----------------------------------------------------------------------------------------------------------


def blocks(found: Mapping[str, Groups], report: Any) -> list[Block]:
    """A table for each label, and a small chart for each value, all on one time axis and one scale."""
    timeline: Timeline | None = report.charts.timeline
    tables: list[Block] = []
    pictures: list[Block] = []
    for label, groups in found.items():
        table = _table(label, groups)
        long = len(groups) > OPEN
        tables.append(Folded(f"By {label}: {units.many(len(groups), 'value')}", [table]) if long else table)
        if timeline is not None and sum(bool(group.bands) for group in groups.values()) > 1:
            pictures.append(Figures(partial(_charts, label, groups, timeline), bare=True, group="time"))
    return [Section(f"By {', '.join(found)}", [Card(tables), *(Card([one]) for one in pictures)])]


def _table(label: str, groups: Groups) -> Table:
    names = [name for name in _SHOWN if any(name in group.metrics for group in groups.values())][:3]
    refused = any(group.refused for group in groups.values())
    tokens = any(group.output_tokens_per_s is not None for group in groups.values())
    columns = [Column(label, right=False, names=True, room=12), Column("requests"), Column("failed")]
    columns += [Column("turned away")] if refused else []
    more = len("turned away   ") * refused  # that column takes as much from the others
    columns += [Column("good", least_width=84 + more), Column("per second", least_width=72 + more)]
    columns += [Column("tokens/s", least_width=96 + more)] if tokens else []
    for name in names:
        least = 0 if name == names[0] else 120 + more
        columns += [Column(f"{short_of(name)} {p}", least_width=least) for p in ("p50", "p99")]
    rows = []
    for value, group in groups.items():
        n = max(group.requests, 1)
        cells: list[str | Cell] = [value, units.count(group.requests), units.percent(group.failed / n, 3)]
        cells += [units.percent(group.refused / n, 3)] if refused else []
        cells += [units.NOTHING if group.good is None else units.percent(group.good, 3)]
        cells += [f"{group.requests_per_s:.4g}"]
        cells += (
            [units.NOTHING if group.output_tokens_per_s is None else f"{group.output_tokens_per_s:.4g}"]
            if tokens
            else []
        )
        for name in names:
            metric = group.metrics.get(name)
            cells += [units.NOTHING] * 2 if metric is None else [_value(metric.p50, metric), _value(metric.p99, metric)]
        rows.append(Row(cells))
    return Table(columns, rows, title=f"By {label}")


def _value(value: Number, metric: Metric) -> str:
    return units.INFINITE if value is None else units.human(value, metric.unit)


def _charts(label: str, groups: Groups, timeline: Timeline) -> list[Chart]:
    drawn = {value: group for value, group in groups.items() if group.bands}
    ends = [one.p99_ok or one.p99 for group in drawn.values() for one in group.bands.values()]
    finite = [v for line in ends for v in line if v is not None]
    reaches = float(max(finite, default=0.0))
    made = []
    for place, (value, group) in enumerate(drawn.items()):
        ((name, line),) = group.bands.items()
        layers = band_layers(name, line, group.due)
        title = f"{title_of(name)}: {label} {value}"
        data, last = Strip(title, "ns", layers, reaches=reaches), place == len(drawn) - 1
        draw = partial(strip, data, timeline, f"{title} over the run", x_labels=last)
        made.append(chart(title, "", [], draw, _WIDE, _NARROW))
    return made


SECTION = ReportSection("by", 84, by_part, blocks)
