"""A run's tables, the same in a terminal and in a comment: objectives, attainment, answers, metrics, speech, stages and failures."""

from __future__ import annotations

from plimsoll.reports.document import Block, Cell, Column, Facts, On, Row, Sentence, Table
from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sections.accuracy import Accuracy
from plimsoll.reports.sections.anatomy import Anatomy, heads, note, rows
from plimsoll.reports.sections.speech import Speech, facts, tables
from plimsoll.reports.sentences import words
from plimsoll.reports.wording import units

#: The width at which each percentile of a table of metrics has room, by place: the columns stay as even as can be.
_ROOM = (0, 72, 83, 0, 94, 61)
_WRITTEN = On.MARKDOWN


def objectives(report: Report) -> list[Block]:
    """What was judged, and what its bounds are."""
    columns = [
        Column("", right=False),
        Column("objective", right=False, titled="Objective"),
        Column("observed", titled="Observed"),
        Column("limit", titled="Limit", least_width=88),  # the objective says its limit
        Column(units.bounds(report.confidence), least_width=88),
        Column("n"),
        Column("n needed"),
    ]
    told = [Sentence(words.bounds_note(report), fine=True, on=_WRITTEN)] if words.bounded(report) else []
    table = Table(columns, [Row(_objective(result)) for result in report.verdict.objectives], title="Objectives")
    return [table, *told]


def _objective(result: ObjectiveResult) -> list[str | Cell]:
    limit = units.NOTHING if result.threshold is None else units.limit(result.threshold, result.unit)
    return [
        Cell(result.outcome, result.outcome),
        words.named(result),
        words.observed(result),
        f"{words.expression(result.operator)} {limit}",
        words.interval(result),
        units.count(result.n),
        words.needed(result),
    ]


def attainments(report: Report) -> Table:
    """How many requests met each limit on a request."""
    columns = [
        Column("limit for every request", right=False, titled="Limit for every request"),
        Column("met", on=On.TERMINAL),
        Column("of", on=On.TERMINAL),
        Column("met", on=_WRITTEN),
        Column("share"),
    ]
    made = []
    for part in report.verdict.request_objectives:
        met, n = units.count(part.met), units.count(part.n)
        share = units.NOTHING if part.attainment is None else units.percent(part.attainment)
        made.append(Row([words.expression(part.objective), met, n, f"{met} of {n}", share]))
    return Table(columns, made, title="A request is good when it met all of these")


def answers(accuracy: Accuracy) -> Table:
    """Answers against their references."""
    answered = words.answered(accuracy)
    columns = [Column("metric", right=False, titled=f"Answers ({answered})"), Column(""), Column("", right=False)]
    return Table(columns, [Row(row) for row in words.answers(accuracy)], title=f"Answers: {answered}")


def metrics(report: Report) -> list[Block]:
    """The metrics that a person wants, and the generator's own error beside them."""
    found: list[Block] = []
    for shown in words.metric_tables(report, brief=True):
        columns = [Column("", right=False, titled=shown.title), Column("n")]
        columns += [Column(head, least_width=_ROOM[place]) for place, (_, head) in enumerate(shown.columns)]
        made = []
        for name, metric in shown.metrics.items():
            made.append(
                Row([name, units.count(metric.n), *(words.cell(metric, metric.unit, k) for k, _ in shown.columns)])
            )
            some = metric.of_ok if metric.failed else None
            if some is not None and some.n:
                cells = [words.cell(some, metric.unit, key) for key, _ in shown.columns]
                made.append(Row(["successful only", units.count(some.n), *cells], "sub"))
        found.append(Table(columns, made, title=shown.title))
    return [*found, Sentence(words.own_error(report), fine=True)]


def speech(part: Speech, confidence: float) -> list[Block]:
    """Words, playback and audio of the whole run."""
    found: list[Block] = [Facts(facts(part), title="Speech")]
    for one in tables(part, confidence):
        columns = [Column(one.head[0], right=False), *map(Column, one.head[1:])]
        found.append(Sentence("", lead=one.title, on=_WRITTEN))
        found.append(Table(columns, [Row(row) for row in one.rows], title=one.title))
        found.append(Sentence(one.note, fine=True))
    return found


def anatomy(part: Anatomy) -> list[Block]:
    """Where the time goes, by stage; the parts of a stage are a detail."""
    columns = [Column("stage", right=False, titled="Stage")]
    columns += [column for head in heads(part) for column in (Column(head), Column("", titled="share"))]
    made = []
    for row in rows(part):
        cells = [cell for pair in zip(row.values, row.shares, strict=True) for cell in pair]
        made.append(Row([("\u2003" if row.part else "") + row.name, *cells], "part" if row.part else ""))
    return [
        Table(columns, [row for row in made if not row.class_], title="Where the time goes", on=On.TERMINAL),
        Table(columns, made, on=_WRITTEN),
        Sentence(note(part), on=_WRITTEN),
    ]


def failures(report: Report) -> Table:
    """How many requests failed in which way."""
    columns = [
        Column("status", right=False, titled="Status"),
        Column("error", right=False, titled="Error"),
        Column("requests", titled="Requests"),
    ]
    return Table(columns, [Row(row) for row in words.failures(report)], title="Failures")
