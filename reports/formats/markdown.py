"""Markdown for a comment on a pull request: verdict and objectives first, the rest folded away.

GitHub's dialect. Every string of the user's is escaped: it can neither break a table nor become a link or a
tag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plimsoll.reports.document import (
    Block,
    Card,
    Cell,
    Command,
    Document,
    Facts,
    Folded,
    Notes,
    On,
    Section,
    Sentence,
    Table,
)
from plimsoll.reports.format import Format
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.sentences import budget_words, tables, words
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as _safe
from plimsoll.reports.wording.escape import markdown_quotes
from plimsoll.reports.wording.escape import markdown_table as _table
from plimsoll.reports.wording.signs import icon


def render(report: Report) -> bytes:
    """The comment, UTF-8."""
    word = words.outcome(report)
    title = report.run.scenario.name or report.run.id or "load test"
    blocks = [f"### {icon(word)} {word}: {_safe(title)}", _safe(words.headline(report))]
    blocks.append(_safe(attempts.said(report.attempts)))  # an empty block is left out
    if report.validity.outcome == "INVALID":
        blocks.append("\n".join(f"- {_safe(reason)}" for reason in report.validity.reasons))
    if report.verdict.objectives:
        blocks += _blocks(tables.objectives(report))
    if report.verdict.request_objectives:
        blocks += _blocks([tables.attainments(report)])
    asked = [part for part in report.budgets if words.names_its_period(part.objective)]
    if asked:
        blocks.append(_budgets(asked))
    if report.accuracy is not None:
        blocks += _blocks([tables.answers(report.accuracy)])
    blocks.append(_flow(report))
    if report.warnings:
        blocks.append(markdown_quotes(report.warnings))
    if report.metrics:
        definition = f"Percentiles: {_safe(report.percentile_definition)}."
        blocks.append(_folded("Metrics", "\n\n".join([*_blocks(tables.metrics(report)), definition])))
    if report.speech is not None:
        blocks.append(_folded("Speech", "\n\n".join(_blocks(tables.speech(report.speech, report.confidence)))))
    if report.anatomy is not None:
        blocks.append(_folded("Where the time goes", "\n\n".join(_blocks(tables.anatomy(report.anatomy)))))
    if report.counts.failed:
        blocks.append(
            _folded(f"Failures ({units.count(report.counts.failed)})", "\n\n".join(_blocks([tables.failures(report)])))
        )
    blocks.append(_folded("How to repeat it", _provenance(report)))
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def document(doc: Document) -> bytes:
    """A search, a comparison or the like as a comment, UTF-8."""
    blocks = [f"### {icon(doc.sign)} {doc.word}: {_safe(doc.name)}", _safe(doc.headline), *_blocks(doc.blocks)]
    blocks += [markdown_quotes(doc.warnings), *_blocks(doc.appendix)]
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _blocks(blocks: Sequence[Block]) -> list[str]:
    return [text for block in blocks if block.on & On.MARKDOWN for text in _said(block) if text]


def _said(block: Block) -> list[str]:
    """The paragraphs of a block."""
    match block:
        case Section() | Card():
            return _blocks(block.blocks)
        case Table():
            return _table_of(block)
        case Sentence():
            return [(f"**{_safe(block.lead)}**" if block.lead else "") + _safe_behind(block)]
        case Facts():
            return ["\n".join(f"- {_safe(name)}: {_safe(value)}" for name, value in block.pairs)]
        case Notes():
            return [_safe(block.title), "\n".join(f"- {_safe(text)}" for text in block.texts)]
        case Folded():
            return [_folded(_safe(block.summary), "\n\n".join(_blocks(block.blocks)))]
        case Command():
            return [_code(block.text)]
    return []  # a picture


def _safe_behind(block: Sentence) -> str:
    """The text behind its first words, with the blank that may stand between them."""
    return (" " if block.text.startswith(" ") else "") + _safe(block.text)


def _table_of(block: Table) -> list[str]:
    shown = [(index, column) for index, column in enumerate(block.columns) if column.on & On.MARKDOWN]
    rows = [[_cell_of(row.cells[index]) for index, _ in shown] for row in block.rows]
    for cells, row in zip(rows, block.rows, strict=True):
        cells[0] = f"↳ {cells[0]}" if row.class_ == "sub" else cells[0]
    heads = [_safe(column.titled_head()) for _, column in shown]
    table = _table(heads, rows, "".join("r" if column.right else "l" for _, column in shown))
    return [table, "\n".join(f"- {_safe(text)}" for text in block.notes)]


def _cell_of(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _safe(cell)
    if cell.outcome:
        return f"{icon(cell.outcome)} {cell.text}" + (f" {_safe(cell.aside)}" if cell.aside else "")
    return f"**{_safe(cell.text)}**" if cell.strong else _safe(cell.text)


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


FORMAT = Format("markdown", ".md", "a comment for a pull request", render, document)
