"""Annotations for a CI log, in the workflow-command syntax of GitHub Actions: one line for the generator and each objective.

FAIL and INVALID are errors, INCONCLUSIVE is a warning, PASS a notice. The runner reads them from
standard output: ``--format annotations=-``.
"""

from __future__ import annotations

from types import MappingProxyType

from plimsoll.reports.document import Document, suites_of
from plimsoll.reports.format import Format
from plimsoll.reports.report import Report
from plimsoll.reports.sentences import words

_LEVEL = MappingProxyType({"PASS": "notice", "INCONCLUSIVE": "warning", "FAIL": "error", "INVALID": "error"})


def render(report: Report) -> bytes:
    """The lines, UTF-8."""
    run = report.run.scenario.name or report.run.id or "run"
    found = []
    if report.verdict.outcome == "INVALID":
        found.append(_line("error", f"{run}: INVALID", words.headline(report)))
    elif not report.verdict.objectives:
        level = "error" if report.verdict.outcome == "FAIL" else "notice"
        found.append(_line(level, f"{run}: {words.outcome(report)}", words.headline(report)))
    else:
        found += [
            _line(
                _LEVEL[result.outcome],
                f"{run}: {result.outcome} {result.objective}",
                words.sentence(words.explain(result)),
            )
            for result in report.verdict.objectives
        ]
    return "".join(f"{line}\n" for line in found).encode()


def document(doc: Document) -> bytes:
    """A line for each case of a search, a comparison or the like, UTF-8."""
    cases = [case for suite in suites_of(doc) for case in suite.cases]
    lines = [
        _line("notice" if case.result == "ok" else "error", f"{doc.name}: {case.outcome} {case.name}", case.message)
        for case in cases
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _line(level: str, title: str, message: str) -> str:
    """``::error title=T::M`` with what would end a line or a property written as the syntax asks."""
    return f"::{level} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMAT = Format(
    "annotations", ".annotations", "Workflow commands that annotate a CI run (GitHub Actions).", render, document
)
