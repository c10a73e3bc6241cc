"""Markdown for a comment on a pull request: verdict and objectives first, the rest folded away.

GitHub's dialect. Every string of the user's is escaped: it can neither break a table nor become a link or a
tag.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Metric, ObjectiveResult, Statistics
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.anatomy import Anatomy, heads, note, rows
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.sections.speech import Speech, facts, tables
from plimsoll.reports.sentences import budget_words, words
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as _safe
from plimsoll.reports.wording.escape import markdown_quotes
from plimsoll.reports.wording.escape import markdown_table as _table

_ICONS = MappingProxyType({"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⛔", "MEASURED": "ℹ️"})


def render(report: Report) -> bytes:
    """The comment, UTF-8."""
    word = words.outcome(report)
    title = report.run.scenario.name or report.run.id or "load test"
    blocks = [f"### {_ICONS[word]} {word}: {_safe(title)}", _safe(words.headline(report))]
    blocks.append(_safe(attempts.said(report.attempts)))  # an empty block is left out
    if report.validity.outcome == "INVALID":
        blocks.append("\n".join(f"- {_safe(reason)}" for reason in report.validity.reasons))
    if report.verdict.objectives:
        blocks.append(_objectives(report))
    if report.verdict.request_objectives:
        blocks.append(_attainments(report))
    asked = [part for part in report.budgets if words.names_its_period(part.objective)]
    if asked:
        blocks.append(_budgets(asked))
    if report.accuracy is not None:
        rows = [[_safe(cell) for cell in row] for row in words.answers(report.accuracy)]
        blocks.append(_table([f"Answers ({words.answered(report.accuracy)})", "", ""], rows, "lrl"))
    blocks.append(_flow(report))
    if report.warnings:
        blocks.append(markdown_quotes(report.warnings))
    if report.metrics:
        blocks.append(_folded("Metrics", _metrics(report)))
    if report.speech is not None:
        blocks.append(_folded("Speech", _speech(report.speech, report.confidence)))
    if report.anatomy is not None:
        blocks.append(_folded("Where the time goes", _anatomy(report.anatomy)))
    if report.counts.failed:
        blocks.append(_folded(f"Failures ({units.count(report.counts.failed)})", _errors(report)))
    blocks.append(_folded("How to repeat it", _provenance(report)))
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _speech(part: Speech, confidence: float) -> str:
    blocks = ["\n".join(f"- {_safe(name)}: {_safe(value)}" for name, value in facts(part))]
    for one in tables(part, confidence):
        rows = [[_safe(cell) for cell in row] for row in one.rows]
        blocks.append(
            f"**{_safe(one.title)}**\n\n"
            + _table([_safe(cell) for cell in one.head], rows, "l" + "r" * (len(one.head) - 1))
        )
        blocks.append(_safe(one.note))
    return "\n\n".join(blocks)


def _anatomy(part: Anatomy) -> str:
    head = ["Stage", *(cell for name in heads(part) for cell in (_safe(name), "share"))]
    lines = [
        [
            ("\u2003" if row.part else "") + _safe(row.name),
            *(c for pair in zip(row.values, row.shares, strict=True) for c in pair),
        ]
        for row in rows(part)
    ]
    return _table(head, lines, "l" + "r" * (len(head) - 1)) + f"\n\n{_safe(note(part))}"


def _objectives(report: Report) -> str:
    rows = [_objective(result) for result in report.verdict.objectives]
    heads = ["", "Objective", "Observed", "Limit", units.bounds(report.confidence), "n", "n needed"]
    note = f"\n\n{_safe(words.bounds_note(report))}" if words.bounded(report) else ""
    return _table(heads, rows, "llrrrrr") + note


def _objective(result: ObjectiveResult) -> list[str]:
    limit = units.NOTHING if result.threshold is None else units.limit(result.threshold, result.unit)
    return [
        f"{_ICONS[result.outcome]} {result.outcome}",
        _safe(words.named(result)),
        words.observed(result),
        f"{words.expression(result.operator)} {limit}".replace("<", "\\<").replace(">", "\\>"),
        words.interval(result),
        units.count(result.n),
        words.needed(result),
    ]


def _attainments(report: Report) -> str:
    rows = [
        [
            _safe(words.expression(part.objective)),
            f"{units.count(part.met)} of {units.count(part.n)}",
            units.NOTHING if part.attainment is None else units.percent(part.attainment),
        ]
        for part in report.verdict.request_objectives
    ]
    return _table(["Limit for every request", "met", "share"], rows, "lrr")


def _budgets(parts: list[BudgetPart]) -> str:
    """What the run would have spent of each budget, and what its alerts would have done."""
    rows = [
        [
            _safe(budget_words.title(part)),
            budget_words.share(part.sli),
            budget_words.burn(part.burn),
            units.NOTHING if part.spent_by_time is None else units.percent(part.spent_by_time, 3),
            units.NOTHING if part.spent_by_events is None else units.percent(part.spent_by_events, 3),
            _gone(part),
        ]
        for part in parts
    ]
    table = _table(["Error budget", "SLI", "burn", "spent by time", "by events", "gone in"], rows, "lrrrrr")
    said = [f"- {_safe(f'{part.name}: {text}')}" for part in parts for _, text in budget_words.sayings(part)]
    return table + "\n\n" + "\n".join(said)


def _gone(part: BudgetPart) -> str:
    if part.burn is None:
        return units.NOTHING
    return "never" if part.exhausted_in_ns is None else budget_words.span(part.exhausted_in_ns)


def _flow(report: Report) -> str:
    flow, counts = report.throughput, report.counts
    facts = [f"**{units.rate(flow.requests_per_s)}** completed"]
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        facts.append(f"**{units.rate(flow.goodput_per_s)}** good")
    if flow.output_tokens_per_s:
        facts.append(f"**{units.rate(flow.output_tokens_per_s)}** output tokens")
    facts.append(f"**{units.count(counts.failed)}** of {units.many(counts.ok + counts.failed, 'request')} failed")
    return " · ".join(facts) + f"  \nGenerator {report.validity.outcome}: {_safe(words.health(report.validity))}"


def _metrics(report: Report) -> str:
    tables = "\n\n".join(_of_metrics(table) for table in words.metric_tables(report, brief=True))
    return f"{tables}\n\n{_safe(words.own_error(report))}\n\nPercentiles: {_safe(report.percentile_definition)}."


def _of_metrics(shown: words.MetricTable) -> str:
    rows = []
    for name, metric in shown.metrics.items():
        rows.append([_safe(name), units.count(metric.n), *_cells(metric, metric.unit, shown)])
        if metric.failed and metric.of_ok is not None and metric.of_ok.n:
            rows.append(["↳ successful only", units.count(metric.of_ok.n), *_cells(metric.of_ok, metric.unit, shown)])
    return _table([shown.title, "n", *(head for _, head in shown.columns)], rows, "l" + "r" * (len(shown.columns) + 1))


def _cells(part: Metric | Statistics, unit: str, shown: words.MetricTable) -> list[str]:
    return [words.cell(part, unit, key) for key, _ in shown.columns]


def _errors(report: Report) -> str:
    rows = [[_safe(status), _safe(text), count] for status, text, count in words.failures(report)]
    return _table(["Status", "Error", "Requests"], rows, "llr")


def _provenance(report: Report) -> str:
    run = report.run
    facts = [
        ("Run", run.id),
        ("Started", run.started_at),
        ("Target", run.target.url),
        ("Seed", "" if run.seed is None else str(run.seed)),
        ("Plan fingerprint", run.plan_fingerprint),
        ("Plimsoll", run.plimsoll),
        ("Host timer", words.host_timer(run.timer)),
        ("Command", run.command),
    ]
    return "\n".join(
        f"- {name}: {_code(value) if name == 'Command' else _safe(value)}" for name, value in facts if value
    )


def _code(text: str) -> str:
    """A code span that can be copied as it stands (CommonMark 6.1: a fence longer than any run of backticks inside)."""
    flat = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{space}{flat}{space}{fence}"


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


FORMAT = Format("markdown", ".md", "a comment for a pull request", render)
