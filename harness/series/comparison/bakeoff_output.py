"""Publish a bake-off: bakeoff.json and .html as the whole, a comparison of each load beside them, tables on stdout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.series.comparison.bakeoff_file import Bakeoff
from plimsoll.harness.series.comparison.bakeoff_session import AtLevel, Baked, bake, judge
from plimsoll.harness.series.comparison.comparison_output import (
    Output,
    as_written,
    formats_of,
    say,
    say_drawn,
    write,
    write_pair,
)
from plimsoll.harness.series.comparison.comparison_session import default_out
from plimsoll.harness.series.comparison.rounds import check, public_command
from plimsoll.reports.comparison import comparison_document as documents
from plimsoll.reports.comparison.comparison_formats import FORMATS
from plimsoll.reports.comparison.comparison_parts import ComparisonReport
from plimsoll.reports.comparison.comparison_text import render_terminal
from plimsoll.reports.wording import units

SCHEMA = "plimsoll.bakeoff/1"


def say_plan(bakeoff: Bakeoff, as_json: bool) -> None:
    """What a bake-off would run, after checking everything that can be checked without sending. Raises HarnessFault."""
    plan = check(bakeoff.contest())
    levels = [str(level["label"]) for level in plan.levels if level["label"]]
    if as_json:
        runs = [
            {"number": s.number, "round": s.round, "level": s.level, "arm": s.arm, "seed": s.seed} for s in plan.slots
        ]
        say(
            json.dumps({"name": bakeoff.name, "arms": list(plan.names), "levels": levels, "runs": runs}, indent=1)
            + "\n"
        )
        return
    loads = f" at {len(levels)} loads ({', '.join(levels)})" if levels else ""
    say(f"{bakeoff.name}: {', '.join(plan.names)}{loads}, {plan.repeats} times: {len(plan.slots)} runs. Fine\n")


def bake_off(
    bakeoff: Bakeoff, out: Path | None, format_texts: Sequence[str], *, resume: bool, again: bool, as_json: bool
) -> int:
    """Make the runs (not ``again``), judge, publish. Returns the exit code; raises HarnessFault."""
    outputs, errors = formats_of(format_texts)
    if out is None and (resume or again):
        errors.append(f"{'--resume' if resume else '--again'}: of which bake-off? Give its --out")
    if resume and again:
        errors.append("--again judges runs that are made, --resume makes the rest. Give one of them")
    if errors:
        raise HarnessFault(errors)
    folder = out or default_out("bakeoff")
    baked = judge(bakeoff, folder) if again else bake(bakeoff, folder, resume=resume)
    if baked is None:
        return int(ExitCode.INTERRUPTED)
    return _publish(baked, folder, outputs, as_json)


def _publish(baked: Baked, out: Path, outputs: Sequence[Output], as_json: bool) -> int:
    command = " ".join(public_command(baked.bakeoff.arms))
    reports = [_report(baked, level, command) for level in baked.levels]
    deciding = baked.deciding if baked.deciding is not None else 0
    whole = reports[deciding].model_copy(
        update={
            "title": _title(baked),
            "fronts": list(baked.fronts),
            "exit_code": baked.exit_code,
            "warnings": [*_without_place(baked), *reports[deciding].warnings],
        }
    )
    remedy = "make room and judge again: --again"
    written = [write(output.path, output.render(whole), remedy) for output in outputs]
    if len(reports) > 1:
        for level, report in zip(baked.levels, reports, strict=True):
            written += write_pair(report, out, f"comparison-{level.label}")
    document = _document(baked, reports, whole)
    written.append(
        write(out / "bakeoff.json", (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode(), remedy)
    )
    written.append(write(out / "bakeoff.html", FORMATS["html"](whole), remedy))
    code = document["exit_code"] = as_written(whole, written).exit_code
    if as_json:
        say(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        say_drawn(lambda width: Group(*_drawn(baked), render_terminal(whole, width)))
        if written[-1]:
            say(f"\nReport: {out / 'bakeoff.html'}\n")
    return code


def _title(baked: Baked) -> str:
    if baked.deciding is None:
        return f"{baked.bakeoff.name}: no load at which a ranking means anything"
    label = baked.levels[baked.deciding].label
    return f"{baked.bakeoff.name}{f', ranked at {label}' if label else ''}"


def _report(baked: Baked, level: AtLevel, command: str) -> ComparisonReport:
    return documents.build(
        level.comparison,
        level.arms[0],
        level.arms[1:],
        title=f"{baked.bakeoff.name} {level.label}".strip(),
        rankings=level.rankings,
        costs=level.costs,
        currency=baked.bakeoff.currency,
        warnings=[text for text in level.warnings if text not in level.comparison.warnings],
        plimsoll=package_version(),
        command=command,
    )


def _document(baked: Baked, reports: Sequence[ComparisonReport], whole: ComparisonReport) -> dict[str, Any]:
    levels = [
        {
            "level": level.label,
            "sound": level.sound,
            "passed": {arm.name: count for arm, count in zip(level.arms, level.passed, strict=True)},
            "rankings": [documents.ranking_part(ranking).model_dump(mode="json") for ranking in level.rankings],
            "comparison": report.document(),
        }
        for level, report in zip(baked.levels, reports, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "name": baked.bakeoff.name,
        "currency": baked.bakeoff.currency,
        "exit_code": baked.exit_code,
        "deciding_level": None if baked.deciding is None else baked.levels[baked.deciding].label,
        "levels": levels,
        "fronts": whole.document()["fronts"],
    }


def _drawn(baked: Baked) -> list[RenderableType]:
    """Every load in a table; the rankings follow from the report's own renderer."""
    title = Text(f"{baked.bakeoff.name}: median of the runs at each load", style="bold")
    return [title, _loads(baked), Text("")]


def _without_place(baked: Baked) -> list[str]:
    """Why an arm has dashes at a load: each reason once."""
    said = {
        f"{f'{level.label}, ' if level.label else ''}{name}: {reason}"
        for level in baked.levels
        for ranking in level.rankings
        for name, reason in ranking.excluded
    }
    return sorted(said)


def _loads(baked: Baked) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("load", "arm"):
        table.add_column(name, no_wrap=True)
    quantities = [ranking.quantity for ranking in baked.levels[0].rankings]
    for name in ("passed", *map(str, quantities)):  # a head breaks before its bracket, never within a word
        head = name.replace("(", "\n(")
        table.add_column(head, justify="right", min_width=max(map(len, head.splitlines())))
    for level in baked.levels:
        for arm, passed in zip(level.arms, level.passed, strict=True):
            values = []
            for ranking in map(documents.ranking_part, level.rankings):
                at = [place.value for place in ranking.places if place.name == arm.name]
                values.append(units.human(at[0], ranking.unit, 4) if at else units.NOTHING)
            table.add_row(level.label or "-", Text(arm.name), f"{passed} of {len(arm.runs)}", *values)
    return table
