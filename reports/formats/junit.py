"""JUnit XML: the generator's validity and each objective of a run, or each case of a search, a comparison or the like,
as a test case, for what already shows test results.

Nothing but PASS is green: FAIL and INCONCLUSIVE are failures. An INVALID run is one error, that of the generator; its
objectives are skipped, for there was nothing to hold them against. Where its lateness leaves one objective open and
another fails for certain, the open one is an error.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from plimsoll.reports.blocks.document import Case, Document, Suite, suites_of
from plimsoll.reports.documents.run import by
from plimsoll.reports.format import Format
from plimsoll.reports.wording.escape import xml as _clean
from plimsoll.reports.wording.signs import Result, level


def document(doc: Document) -> bytes:
    """Each case of the document, UTF-8."""
    suites = suites_of(doc)
    seconds = [one.seconds for one in suites if one.seconds is not None]
    time = {"time": f"{sum(seconds):.3f}"} if seconds else {}
    totals = _totals([case for one in suites for case in one.cases])
    if doc.properties:
        root = ET.Element("testsuites", {"name": "plimsoll", **totals, **time})
    else:
        del totals["skipped"]
        root = ET.Element("testsuites", {"name": f"plimsoll {doc.kind}", **time, **totals})
    for one in suites:
        _suite(root, one, doc)
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _suite(root: ET.Element, one: Suite, doc: Document) -> None:
    time = "0" if one.seconds is None else f"{one.seconds:.3f}"
    suite = ET.SubElement(root, "testsuite", {"name": _clean(one.name), **_totals(one.cases), "time": time})
    if doc.properties:
        if doc.started_at:
            suite.set("timestamp", _clean(doc.started_at))
        properties = ET.SubElement(suite, "properties")
        for key, value in doc.properties:
            ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for index, tested in enumerate(one.cases):
        case = ET.SubElement(suite, "testcase", {"classname": _clean(one.class_name), "name": _clean(tested.name)})
        if not index or not doc.properties:
            case.set("time", "0" if index else time)  # all cases judge the same load, which is counted once
        result = level(tested.sign).result
        if result != "ok":
            kind = {} if result == "skipped" else {"type": tested.outcome}
            trouble = ET.SubElement(case, result, {**kind, "message": _clean(tested.message)})
            trouble.text = _clean(tested.details) or None
        if tested.output:
            ET.SubElement(case, "system-out").text = _clean(tested.output)


def _totals(cases: Sequence[Case]) -> dict[str, str]:
    results = [level(case.sign).result for case in cases]
    kinds: dict[str, Result] = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(cases)), **{name: str(results.count(kind)) for name, kind in kinds.items()}}


FORMAT = Format("junit", ".xml", "JUnit XML, each objective a test case", by(document), document)
