"""CSV: one row per metric, in the units of ``report.json``. An infinite value is ``inf``; no value is an
empty cell.
"""

from __future__ import annotations

import csv
import io

from plimsoll.reports.document import Document
from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Metric, Number, Statistics
from plimsoll.reports.report import Report

_HEADER = (
    "metric",
    "rows",
    "unit",
    "n",
    "missing",
    "failed",
    "mean",
    "min",
    "p50",
    "p90",
    "p95",
    "p99",
    "p99.9",
    "max",
)
#: What a spreadsheet would run as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = ("mean", "min", "p50", "p90", "p95", "p99", "p99_9", "max")


def render(report: Report) -> bytes:
    """The table, RFC 4180, UTF-8; ``rows`` is ``all`` or ``ok`` (successful requests only), of word errors a slice."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_HEADER)
    for name, metric in report.metrics.items():
        counts: list[object] = [metric.n, metric.missing, metric.failed]
        writer.writerow([name, "all", metric.unit, *counts, *_cells(metric, metric.n)])
        if metric.of_ok is not None:
            writer.writerow([name, "ok", metric.unit, metric.of_ok.n, "", "", *_cells(metric.of_ok, metric.of_ok.n)])
    for row in _word_errors(report):
        writer.writerow(row)
    return out.getvalue().encode()


def document(doc: Document) -> bytes:
    """The rows that a document has for a spreadsheet, its heads first."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_harmless(value) for value in row] for row in doc.sheet)
    return out.getvalue().encode()


def _harmless(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _word_errors(report: Report) -> list[list[object]]:
    """The pooled word error rate, of all and by slice: n is words, ``failed`` errors, and the rate stands under ``mean``."""
    part = report.speech
    if part is None or part.wer is None:
        return []
    rates = [("all", part.wer), *((f"slice {one.name or '-'}", one.wer) for one in part.slices)]
    return [
        ["accuracy(wer)", rows, "ratio", one.words, "", one.errors, "" if one.rate is None else repr(one.rate)]
        + [""] * (len(_COLUMNS) - 1)
        for rows, one in rates
    ]


def _cells(statistics: Metric | Statistics, n: int) -> list[str]:
    return [_cell(getattr(statistics, column), n) for column in _COLUMNS]


def _cell(value: Number, n: int) -> str:
    if value is None:
        return "inf" if n else ""
    return repr(value)


FORMAT = Format("csv", ".csv", "the table of metrics, for spreadsheets", render, document)
