"""Every way to say a comparison: text, json, markdown, junit and html, each a pure function to bytes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from types import MappingProxyType

from plimsoll.reports.comparison import comparison_page as comparison_page
from plimsoll.reports.comparison import comparison_text as comparison_text
from plimsoll.reports.comparison import comparison_words as say
from plimsoll.reports.comparison.comparison_parts import CandidatePart, ComparisonReport
from plimsoll.reports.wording import units
from plimsoll.reports.wording.escape import markdown as safe
from plimsoll.reports.wording.escape import markdown_quotes as quotes
from plimsoll.reports.wording.escape import markdown_table as table
from plimsoll.reports.wording.escape import xml as clean

_ICONS = MappingProxyType(
    {
        "IMPROVEMENT": "✅",
        "INDISTINGUISHABLE": "✅",
        "INCONCLUSIVE": "❔",
        "REGRESSION": "❌",
        "INVALID": "⛔",
        "RANKED": "ℹ️",
    }
)


def render_json(report: ComparisonReport) -> bytes:
    """``comparison.json``: an infinite number is null, and there is no NaN."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n").encode()


def render_markdown(report: ComparisonReport) -> bytes:
    """A comment for a pull request: outcome and effects first, the rest folded away."""
    blocks = [f"### {_ICONS[say.word(report)]} {say.word(report)}: {safe(report.title)}", safe(say.headline(report))]
    for candidate in report.candidates:
        blocks += [
            f"**{safe(candidate.name)}** against {safe(report.base.name)}: {candidate.outcome}",
            _effects(candidate, report),
        ]
        within = [say.within(e, e.one_run) for e in candidate.effects if e.one_run is not None]
        if within:
            blocks.append("Within this pair of runs only:\n\n" + "\n".join(f"- {safe(text)}" for text in within))
    for ranking in report.rankings:
        rows = [[say.tier(p), safe(p.name), units.human(p.value, ranking.unit, 4)] for p in ranking.places]
        blocks.append(table(["Tier", "Arm", safe(ranking.quantity)], rows, "rlr"))
        blocks.append("\n".join(f"- {safe(note)}" for note in say.ranked(ranking)))
    if report.costs:
        rows = [[safe(c.name), say.PER[c.per], say.money(c), units.rate(c.per_s)] for c in report.costs]
        blocks.append(
            table(
                ["Arm", "A million", f"costs{f' {safe(report.currency)}' if report.currency else ''}", "throughput"],
                rows,
                "llrr",
            )
        )
    blocks += [
        f"**{safe(front.title)}**: on the front " + ", ".join(safe(p.name) for p in front.points if not p.dominated_by)
        for front in report.fronts
    ]
    if report.false_alarms is not None:
        blocks.append(f"**A/A**: {safe(say.alarms(report.false_alarms))}")
    blocks += [quotes(report.warnings)]
    runs = "\n".join(
        f"- {safe(arm.name)}: {units.many(len(arm.runs), 'run')}"
        + "".join(f", {safe(r.run)}" for r in arm.runs if r.run)
        for arm in (report.base, *report.arms)
    )
    blocks.append(f"<details><summary>The runs</summary>\n\n{runs}\n\n</details>")
    return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _effects(candidate: CandidatePart, report: ComparisonReport) -> str:
    rows = [
        [
            f"{_ICONS[e.outcome]} {e.outcome}",
            safe(e.quantity),
            say.value(e, e.base),
            say.value(e, e.candidate),
            safe(say.change(e)),
            safe(say.interval(e)),
            units.NOTHING if e.missing else safe(say.p_value(e.adjusted_p)),
        ]
        for e in candidate.effects
    ]
    shown = table(
        ["", "Quantity", "base", "candidate", "change", say.together(candidate, report), "adjusted p"], rows, "llrrrrr"
    )
    reasons = "\n".join(f"- {safe(reason)}" for reason in candidate.reasons)
    return f"{shown}\n\n<details><summary>Why</summary>\n\n{reasons}\n\n</details>" if reasons else shown


def render_junit(report: ComparisonReport) -> bytes:
    """Each quantity of each candidate a test case; REGRESSION and INCONCLUSIVE are failures, INVALID is an error."""
    root = ET.Element("testsuites", {"name": "plimsoll compare"})
    totals = [0, 0, 0]
    for candidate in report.candidates:
        suite = ET.SubElement(root, "testsuite", {"name": clean(f"{candidate.name} against {report.base.name}")})
        cases: list[tuple[str, str, str]] = [(e.quantity, e.outcome, e.why) for e in candidate.effects]
        if candidate.outcome == "INVALID" or not cases:
            cases = [
                ("comparison", candidate.outcome, "\n".join(candidate.reasons)),
                *((n, "INVALID", w) for n, _, w in cases),
            ]
        failures = sum(outcome in ("REGRESSION", "INCONCLUSIVE") for _, outcome, _ in cases)
        errors = sum(outcome == "INVALID" for _, outcome, _ in cases)
        counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors)}
        suite.attrib.update(counts | {"skipped": "0", "time": "0"})
        for name, outcome, why in cases:
            place = {"classname": clean(f"plimsoll.compare.{candidate.name}"), "name": clean(name), "time": "0"}
            case = ET.SubElement(suite, "testcase", place)
            if outcome in ("REGRESSION", "INCONCLUSIVE", "INVALID"):
                tag = "error" if outcome == "INVALID" else "failure"
                ET.SubElement(case, tag, {"type": outcome, "message": clean(why)})
            else:
                ET.SubElement(case, "system-out").text = clean(f"{outcome}: {why}")
        totals = [a + b for a, b in zip(totals, (len(cases), failures, errors), strict=True)]
    if not report.candidates:
        suite = ET.SubElement(
            root, "testsuite", {"name": "plimsoll compare", "tests": "1", "failures": "1", "errors": "0"}
        )
        case = ET.SubElement(suite, "testcase", {"classname": "plimsoll.compare", "name": "comparison", "time": "0"})
        ET.SubElement(case, "failure", {"type": report.outcome, "message": "nothing was compared"})
        totals = [1, 1, 0]
    root.attrib.update({"tests": str(totals[0]), "failures": str(totals[1]), "errors": str(totals[2])})
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


#: By the name that ``--format NAME=PATH`` says.
FORMATS: Mapping[str, Callable[[ComparisonReport], bytes]] = MappingProxyType(
    {
        "html": comparison_page.render,
        "json": render_json,
        "junit": render_junit,
        "markdown": render_markdown,
        "text": comparison_text.render,
    }
)
