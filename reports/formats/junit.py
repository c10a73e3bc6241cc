"""JUnit XML: the generator's validity and each objective as a test case, for what already shows test results.

Nothing but PASS is green: FAIL and INCONCLUSIVE are failures. An INVALID run is one error, that of the generator; its
objectives are skipped, for there was nothing to hold them against. Where its lateness leaves one objective open and
another fails for certain, the open one is an error.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from plimsoll.reports.blocks.document import Case, Document, suites_of
from plimsoll.reports.documents import words
from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.wording.escape import xml as _clean
from plimsoll.reports.wording.signs import Result, level


def render(report: Report) -> bytes:
    """The document, UTF-8."""
    results = report.verdict.objectives
    invalid = report.validity.outcome == "INVALID"
    failures = sum(result.outcome in ("FAIL", "INCONCLUSIVE") for result in results)
    left_out = sum(result.outcome == "INVALID" for result in results)
    skipped, errors = (left_out, 1) if invalid else (0, left_out)
    name = f"plimsoll.{report.run.scenario.name or report.run.id or 'run'}"
    seconds = f"{report.throughput.span_ns / 1e9:.3f}"
    totals = {
        "tests": str(len(results) + 1),
        "failures": str(failures),
        "errors": str(errors),
        "skipped": str(skipped),
        "time": seconds,
    }
    root = ET.Element("testsuites", {"name": "plimsoll", **totals})
    suite = ET.SubElement(root, "testsuite", {"name": _clean(name), **totals})
    if report.run.started_at:
        suite.set("timestamp", _clean(report.run.started_at))
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(report):
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    first = _case(suite, name, "the load generator kept its promise")
    first.set("time", seconds)  # of the one run that all cases judge; theirs would be counted again
    if invalid:
        _trouble(first, "error", "INVALID", words.headline(report), report.validity.reasons)
    for result in results:
        _objective(suite, name, result, report)
    return _written(root)


def document(doc: Document) -> bytes:
    """Each case of a search, a comparison or the like, UTF-8."""
    name, seconds = f"plimsoll {doc.kind}", [one.seconds for one in doc.suites if one.seconds is not None]
    root = ET.Element("testsuites", {"name": name, **({"time": f"{sum(seconds):.3f}"} if seconds else {})})
    for one in suites_of(doc):
        time = "0" if one.seconds is None else f"{one.seconds:.3f}"
        totals = _totals(one.cases)
        suite = ET.SubElement(root, "testsuite", {"name": _clean(one.name), **totals, "time": time})
        for index, tested in enumerate(one.cases):
            case = _case(suite, one.class_name, tested.name)
            case.set("time", "0" if index else time)  # all cases judge the same load, which is counted once
            result = level(tested.sign).result
            if result == "skipped":
                ET.SubElement(case, "skipped", {"message": _clean(tested.message)})
            elif result != "ok":
                _trouble(case, result, tested.outcome, tested.message, [])
            if tested.output:
                ET.SubElement(case, "system-out").text = _clean(tested.output)
    totals = _totals([case for one in suites_of(doc) for case in one.cases])
    root.attrib.update({name: value for name, value in totals.items() if name != "skipped"})
    return _written(root)


def _totals(cases: Sequence[Case]) -> dict[str, str]:
    results = [level(case.sign).result for case in cases]
    kinds: dict[str, Result] = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(cases)), **{name: str(results.count(kind)) for name, kind in kinds.items()}}


def _written(root: ET.Element) -> bytes:
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _properties(report: Report) -> list[tuple[str, str]]:
    run = report.run
    facts = [
        ("verdict", words.outcome(report)),
        ("run", run.id),
        ("target", run.target.url),
        ("plan_fingerprint", run.plan_fingerprint),
        ("percentiles", report.percentile_definition),
    ]
    return [(key, value) for key, value in facts if value]


def _objective(suite: ET.Element, name: str, result: ObjectiveResult, report: Report) -> None:
    case = _case(suite, name, result.objective)
    text = words.explain(result)
    if result.outcome == "INVALID":
        why = "the generator was too late to tell" if result.bracket else "the run is invalid, so nothing was shown"
        if report.validity.outcome == "INVALID":
            ET.SubElement(case, "skipped", {"message": why}).text = _clean(text)
        else:
            _trouble(case, "error", "INVALID", why, [text])
    elif result.outcome != "PASS":
        _trouble(case, "failure", result.outcome, text, [result.reason] if result.reason else [])
    else:
        ET.SubElement(case, "system-out").text = _clean(text)


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": _clean(group), "name": _clean(name)})


def _trouble(case: ET.Element, tag: str, kind: str, message: str, details: list[str]) -> None:
    element = ET.SubElement(case, tag, {"type": kind, "message": _clean(message)})
    element.text = _clean("\n".join(details)) or None


FORMAT = Format("junit", ".xml", "JUnit XML, each objective a test case", render, document)
