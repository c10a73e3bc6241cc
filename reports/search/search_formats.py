"""Every way to say a search: text, json, markdown, junit and html, each a pure function to bytes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from types import MappingProxyType

from plimsoll.reports.search import search_page as search_page
from plimsoll.reports.search import search_text as search_text
from plimsoll.reports.search import search_words as say
from plimsoll.reports.search.search_parts import SearchReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as safe
from plimsoll.reports.wording.escape import markdown_quotes as quotes
from plimsoll.reports.wording.escape import markdown_table as table
from plimsoll.reports.wording.escape import xml as clean

_ICONS = MappingProxyType(
    {"FOUND": "✅", "PASS": "✅", "NONE": "❌", "FAIL": "❌", "INVALID": "⛔", "UNREACHABLE": "⛔"}
)
_UNDECIDED = "❔"


def render_json(report: SearchReport) -> bytes:
    """``search.json``: an infinite number is null, and there is no NaN."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def render_markdown(report: SearchReport) -> bytes:
    """A comment for a pull request: the answer first, the probes folded away."""
    blocks = [
        f"### {_ICONS.get(report.outcome, _UNDECIDED)} {report.outcome}: {safe(report.name)}",
        safe(say.headline(report)),
        "\n".join(f"- {safe(name)}: {safe(value)}" for name, value in say.facts(report)),
        quotes(say.unsaid(report), ""),
        safe(say.next_step(report)),
    ]
    rows = [
        [
            str(p.number),
            say.load(report, p.load),
            p.purpose,
            f"{_ICONS.get(p.outcome, _UNDECIDED)} {p.outcome}",
            safe(say.why(p)),
            f"{p.took_ns / 1e9:.0f}",
        ]
        for p in report.probes
    ]
    if rows:
        shown = table(["", "load", "probe", "outcome", "why", "seconds"], rows, "rrlllr")
        blocks.append(f"<details><summary>{units.many(len(rows), 'probe')}</summary>\n\n{shown}\n\n</details>")
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def render_junit(report: SearchReport) -> bytes:
    """One test case: FOUND succeeds, NONE fails, anything else is an error. What each probe said goes to its output."""
    totals = {"tests": "1", "failures": "0", "errors": "0", "skipped": "0"}
    seconds = f"{report.spent_ns / 1e9:.3f}"
    root = ET.Element("testsuites", {"name": "plimsoll search", "time": seconds})
    suite = ET.SubElement(root, "testsuite", {"name": clean(report.name), "time": seconds})
    case = ET.SubElement(
        suite, "testcase", {"classname": "plimsoll.search", "name": clean(report.name), "time": seconds}
    )
    if report.outcome != "FOUND":
        tag = "failure" if report.outcome == "NONE" else "error"
        totals["failures" if tag == "failure" else "errors"] = "1"
        ET.SubElement(case, tag, {"type": report.outcome, "message": clean(say.headline(report))})
    lines = [f"{report.outcome}: {say.headline(report)}", *(search_text.line(probe, report) for probe in report.probes)]
    ET.SubElement(case, "system-out").text = clean("\n".join(lines))
    for element in (root, suite):
        element.attrib.update(totals)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


#: By the name that ``--format NAME=PATH`` says.
FORMATS: Mapping[str, Callable[[SearchReport], bytes]] = MappingProxyType(
    {
        "html": search_page.render,
        "json": render_json,
        "junit": render_junit,
        "markdown": render_markdown,
        "text": search_text.render,
    }
)
