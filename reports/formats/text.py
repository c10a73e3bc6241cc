"""Text: the summary at the end of a run, for a terminal; without colour where there is none.

Fits 100 columns. Colour never carries meaning alone: every outcome has its word and its sign. The same
rendering serves the terminal (``render_terminal``, with the terminal's own width and colours) and the file
(plain).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Metric, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.accuracy import Accuracy
from plimsoll.reports.sections.anatomy import Anatomy, heads, rows
from plimsoll.reports.sections.speech import Speech, facts, tables
from plimsoll.reports.sentences import words
from plimsoll.reports.sentences.terminal_budgets import error_budgets
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import WIDTH, plain

_STYLES = MappingProxyType(
    {
        "PASS": "green",
        "FAIL": "red",
        "INCONCLUSIVE": "yellow",
        "INVALID": "magenta",
        "MEASURED": "blue",
        "VALID": "green",
    }
)
#: Narrower than this, the table of objectives goes without limits and bounds.
_ROOM_FOR_BOUNDS = 88
#: What a narrow terminal does without in a table of metrics, by place, first things first: the columns stay as even as can be.
_DROPPED = (4, 2, 1, 5)
_NONE: Mapping[str, str] = MappingProxyType({})


def render(report: Report) -> bytes:
    """The summary without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: Report, files: Mapping[str, str] = _NONE, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``; ``files`` are the written files by what they are, named last.

    A terminal narrower than ``WIDTH`` gets fewer percentiles rather than cut-off numbers.
    """
    parts: list[RenderableType] = [_banner(report)]
    if report.verdict.objectives:
        note = (
            [Text(words.bounds_note(report), style="dim")]
            if width >= _ROOM_FOR_BOUNDS and words.bounded(report)
            else []
        )
        parts.append(Group(_objectives(report, width), *note))
    if report.verdict.request_objectives:
        parts.append(_attainments(report))
    asked = [part for part in report.budgets if words.names_its_period(part.objective)]
    if asked:
        parts.append(error_budgets(asked, width))
    if report.accuracy is not None:
        parts.append(_answers(report.accuracy))
    parts.append(_flow(report))
    if report.metrics:
        tables = [_metrics(table, width) for table in words.metric_tables(report, brief=True)]
        parts.append(Group(_spaced(tables), Text(words.own_error(report), style="dim")))
    if report.speech is not None:
        parts += _speech(report.speech, report.confidence)
    if report.anatomy is not None:
        parts.append(_anatomy(report.anatomy))
    if report.counts.failed:
        parts.append(_errors(report))
    if report.warnings:
        parts.append(_list("Read with care", report.warnings, "yellow"))
    parts.append(_end(report, files))
    return _spaced(parts)


def _spaced(parts: Sequence[RenderableType]) -> Group:
    """With an empty line between them."""
    return Group(*[one for part in parts for one in (part, Text(""))][:-1])


def _anatomy(part: Anatomy) -> RenderableType:
    """Whole stages only: their parts are on the page."""
    table = _table("Where the time goes")
    table.add_column("stage")
    for head in heads(part):
        table.add_column(head, justify="right")
        table.add_column("", justify="right", style="dim")
    for row in rows(part):
        if not row.part:
            cells = [cell for pair in zip(row.values, row.shares, strict=True) for cell in pair]
            table.add_row(Text(row.name), *cells)
    return table


def _speech(part: Speech, confidence: float) -> list[RenderableType]:
    pairs = Table.grid(padding=(0, 2))
    for name, value in facts(part):
        pairs.add_row(Text(name, style="dim"), Text(value))
    found: list[RenderableType] = [Group(Text("Speech", style="bold"), Padding(pairs, (0, 0, 0, 1)))]
    for one in tables(part, confidence):
        table = _table(one.title)
        table.add_column(one.head[0], overflow="fold")
        for head in one.head[1:]:
            table.add_column(head, justify="right")
        for row in one.rows:
            table.add_row(*(Text(cell) for cell in row))
        found.append(Group(table, Text(one.note, style="dim")))
    return found


def _banner(report: Report) -> RenderableType:
    word = words.outcome(report)
    style = _STYLES[word]
    lines = [Text(words.headline(report))]
    title = " · ".join(
        part for part in (report.run.scenario.name, report.run.scenario.kind, report.run.target.url) if part
    )
    if title:
        lines.insert(0, Text(title, style="bold"))
    if report.validity.outcome == "INVALID":
        lines += [Text(f"- {words.sentence(reason)}") for reason in report.validity.reasons[1:]]
    if repeated := attempts.said(report.attempts):
        lines.append(Text(repeated))
    health = Text.assemble(
        ("Generator ", "dim"),
        (report.validity.outcome, _STYLES[report.validity.outcome]),
        (f": {words.health(report.validity)}.", "dim"),
    )
    return Panel(
        Group(*lines, health),
        title=Text(f" {words.symbol(word)} {word} ", style=f"bold reverse {style}"),
        title_align="left",
        border_style=style,
        box=box.HEAVY if word in ("FAIL", "INVALID") else box.ROUNDED,
    )


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )


def _objectives(report: Report, width: int) -> Table:
    table = _table("Objectives")
    table.add_column("", no_wrap=True)
    table.add_column("objective", overflow="fold", min_width=16)
    names = ["observed", "limit", units.bounds(report.confidence), "n", "n needed"]
    shown = names if width >= _ROOM_FOR_BOUNDS else ["observed", "n", "n needed"]  # the objective says its limit
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for result in report.verdict.objectives:
        cells = _objective(result)
        table.add_row(*cells[:2], *(cell for name, cell in zip(names, cells[2:], strict=True) if name in shown))
    return table


def _objective(result: ObjectiveResult) -> list[RenderableType]:
    sign = words.expression(result.operator)
    limit = units.NOTHING if result.threshold is None else f"{sign} {units.limit(result.threshold, result.unit)}"
    return [
        Text(f"{words.symbol(result.outcome)} {result.outcome}", style=_STYLES[result.outcome]),
        Text(words.named(result)),
        Text(words.observed(result), style="bold"),
        Text(limit),
        Text(words.interval(result)),
        Text(units.count(result.n)),
        Text(words.needed(result)),
    ]


def _attainments(report: Report) -> Table:
    table = _table("A request is good when it met all of these")
    table.add_column("limit for every request", overflow="fold")
    for name in ("met", "of", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in report.verdict.request_objectives:
        share = units.NOTHING if part.attainment is None else units.percent(part.attainment)
        met, n = units.count(part.met), units.count(part.n)
        table.add_row(Text(words.expression(part.objective)), met, n, share)
    return table


def _flow(report: Report) -> Text:
    flow, counts = report.throughput, report.counts
    total = counts.ok + counts.failed
    text = Text.assemble((units.rate(flow.requests_per_s), "bold"), " completed")
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        good = "" if flow.good_fraction is None else f" ({units.percent(flow.good_fraction)} of requests)"
        text.append_text(Text.assemble(" · ", (units.rate(flow.goodput_per_s), "bold"), f" good{good}"))
    if flow.output_tokens_per_s:
        text.append_text(Text.assemble(" · ", (units.rate(flow.output_tokens_per_s), "bold"), " output tokens"))
    style = "bold red" if counts.failed else "bold"
    return text.append_text(
        Text.assemble(" · ", (units.count(counts.failed), style), f" of {units.many(total, 'request')} failed")
    )


def _columns(table: words.MetricTable, width: int) -> tuple[tuple[str, str], ...]:
    """As many percentiles as fit: the name, n and each cell take about 20, 8 and 11 characters."""
    dropped = _DROPPED[: max(0, len(table.columns) - max(2, (width - 28) // 11))]
    return tuple(column for place, column in enumerate(table.columns) if place not in dropped)


def _answers(accuracy: Accuracy) -> Table:
    table = Table(
        title=f"Answers: {words.answered(accuracy)}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )
    table.add_column("metric")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    for row in words.answers(accuracy):
        table.add_row(*row)
    return table


def _metrics(shown: words.MetricTable, width: int) -> Table:
    columns = _columns(shown, width)
    table = _table(shown.title)
    table.add_column("", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for _, head in columns:
        table.add_column(head, justify="right", no_wrap=True)
    for name, metric in shown.metrics.items():
        table.add_row(Text(name), units.count(metric.n), *(_cell(metric, metric.unit, key) for key, _ in columns))
        if metric.failed and metric.of_ok is not None and metric.of_ok.n:
            cells = [words.cell(metric.of_ok, metric.unit, key) for key, _ in columns]
            table.add_row("  successful only", units.count(metric.of_ok.n), *cells, style="dim")
    return table


def _cell(metric: Metric, unit: str, column: str) -> Text:
    shown = words.cell(metric, unit, column)
    return Text(shown, style="red" if shown == units.INFINITE else "")


def _errors(report: Report) -> Table:
    table = _table("Failures")
    table.add_column("status", no_wrap=True)
    table.add_column("error", overflow="fold", ratio=1)
    table.add_column("requests", justify="right", no_wrap=True)
    for status, text, count in words.failures(report):
        table.add_row(Text(status, style="red"), Text(text), count)
    return table


def _list(title: str, texts: list[str], style: str) -> RenderableType:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style=style)
    rows.add_column(overflow="fold")
    for text in texts:
        rows.add_row("!", Text(text))
    return Group(Text(title, style="bold"), Padding(rows, (0, 0, 0, 1)))


def _end(report: Report, files: Mapping[str, str]) -> RenderableType:
    run = report.run
    seed = "" if run.seed is None else f"seed {run.seed}"
    plan = f"plan {run.plan_fingerprint}" if run.plan_fingerprint else ""
    facts = " · ".join(part for part in (f"run {run.id}" if run.id else "", seed, plan) if part)
    lines = [Text(f"Percentiles: {report.percentile_definition}.", style="dim")]
    if woken := words.host_timer(run.timer):
        lines.insert(0, Text(f"Host timer: {woken}.", style="dim"))
    if facts:
        lines.insert(0, Text(facts, style="dim"))
    if run.directory and not files:
        lines.append(Text(f"Records: {run.directory}"))
    lines += [Text(f"{what}: {where}") for what, where in files.items()]
    return Group(*lines)


FORMAT = Format("text", ".txt", "the summary a terminal shows, without colour", render)
