"""Annotations for a CI log, in the workflow-command syntax of GitHub Actions: one line for each objective of a run, or
for the run where nothing was judged, and for each case of a search, a comparison or the like.

FAIL and INVALID are errors, INCONCLUSIVE is a warning, PASS a notice. The runner reads them from standard output:
``--format annotations=-``.
"""

from plimsoll.reports.blocks.document import Case, Document, suites_of
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format
from plimsoll.reports.wording.signs import level


def document(doc: Document) -> bytes:
    """A line for each case of the document, or for what it has to tell, UTF-8."""
    cases = doc.told or [case for suite in suites_of(doc) for case in suite.cases]
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
    "annotations", ".annotations", "Workflow commands that annotate a CI run (GitHub Actions).", by(document), document
)
