"""``plimsoll calibrate`` and ``plimsoll metrics``: what this machine can measure honestly, and what can be measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from plimsoll.harness.process import outlet
from plimsoll.harness.verbs.flags import Json


def calibrate(
    budget: Annotated[str, typer.Option(metavar="D", help="Time to spend, about; 5s to 10m.")] = "30s",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table here, not to the cache.")] = None,
    json_: Json = False,
) -> None:
    """Measure what this machine can do honestly, and write the table that `run` compares its scenarios with."""
    from plimsoll.harness.calibration.probes import calibrate, parse_budget, tables
    from plimsoll.harness.host.calibration_table import table_path

    path = out or table_path()
    found = calibrate(parse_budget(budget), path, lambda text: print(text, file=sys.stderr))
    if json_:
        typer.echo(found.model_dump_json(indent=1))
    else:
        outlet.console().print(*tables(found), f"Written to {path}", sep="\n\n", highlight=False)


def metrics(json_: Json = False) -> None:
    """Every metric with its unit and definition."""
    from plimsoll.slo.metrics.indicator import catalogue

    found = catalogue()
    if json_:
        rows = [{"name": m.name, "unit": m.unit, "better": m.better, "formula": m.formula} for m in found.values()]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("metric", "unit", "better", "formula", box=None)
    for item in found.values():
        table.add_row(item.name, item.unit, item.better, item.formula)
    outlet.console().print(table)
