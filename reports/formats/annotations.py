"""Annotations for a CI log, in the workflow-command syntax of GitHub Actions: one line for the generator and each
objective.

FAIL and INVALID are errors, INCONCLUSIVE is a warning, PASS a notice. The runner reads them from standard output:
``--format annotations=-``.
"""

from __future__ import annotations

from plimsoll.reports.blocks.document import Case, Document, suites_of
from plimsoll.reports.documents import words
from plimsoll.reports.format import Format
from plimsoll.reports.report import Report
from plimsoll.reports.wording.phrases import sentence
from plimsoll.reports.wording.signs import level


def render(report: Report) -> bytes:
    """The lines, UTF-8."""
    run = report.run.scenario.name or report.run.id or "run"
    found = []
    if report.verdict.outcome == "INVALID":
        found.append(_line("error", f"{run}: INVALID", words.headline(report)))
    elif not report.verdict.objectives:
        loud = "error" if report.verdict.outcome == "FAIL" else "notice"
        found.append(_line(loud, f"{run}: {words.outcome(report)}", words.headline(report)))
    else:
        found += [
            _line(
                level(result.outcome).annotation,
                f"{run}: {result.outcome} {result.objective}",
                sentence(words.explain(result)),
            )
            for result in report.verdict.objectives
        ]
    return "".join(f"{line}\n" for line in found).encode()


def document(doc: Document) -> bytes:
    """A line for each case of a search, a comparison or the like, UTF-8."""
    cases = [case for suite in suites_of(doc) for case in suite.cases]
    lines = [
        _line(level(case.sign).annotation, " ".join([f"{doc.name}: {case.outcome}", *_own(case, doc)]), case.message)
        for case in cases
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _own(case: Case, doc: Document) -> list[str]:
    """The name of a case, unless it is the document's, which stands before it."""
    return [] if case.name == doc.name else [case.name]


def _line(level: str, title: str, message: str) -> str:
    """``::error title=T::M`` with what would end a line or a property written as the syntax asks."""
    return f"::{level} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMAT = Format(
    "annotations", ".annotations", "Workflow commands that annotate a CI run (GitHub Actions).", render, document
)
