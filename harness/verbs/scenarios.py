"""``plimsoll scenarios``: the ready-made scenarios, and a check of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.process import outlet
from plimsoll.harness.verbs.flags import Json, errors_too

scenarios = typer.Typer(help="Ready-made scenarios and the scenario file format.", no_args_is_help=True)


@scenarios.command("list")
def scenarios_list(json_: Json = False) -> None:
    """The ready-made scenarios."""
    from plimsoll.scenarios.ready_made import summaries

    found = summaries()
    if json_:
        typer.echo(json.dumps(found, indent=1))
        return
    from rich.table import Table

    table = Table("name", "kind", "what it is for", box=None)
    for one in found:
        table.add_row(one["name"], one["kind"], one["description"])
    outlet.console().print(table)


@scenarios.command("show")
def scenarios_show(name: Annotated[str, typer.Argument(help="A library scenario.")], json_: Json = False) -> None:
    """Print a ready-made scenario, to be saved and changed."""
    from plimsoll.documents import files
    from plimsoll.scenarios.spec import library, load

    with errors_too(json_):
        scenario = load(name)  # says what is wrong, and what names there are
    if json_:
        typer.echo(json.dumps(scenario.to_mapping(), indent=1))
    else:
        typer.echo(files.read_text(library().get(name, Path(name))), nl=False)


@scenarios.command("schema")
def scenarios_schema(json_: Json = False) -> None:  # it is JSON either way
    """The JSON schema of scenario files, for editors."""
    from plimsoll.scenarios.spec import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@scenarios.command("check")
def scenarios_check(path: Annotated[str, typer.Argument(help="A scenario file.")], json_: Json = False) -> None:
    """Check a scenario file: every error at once; sends nothing."""
    from plimsoll.harness.run.job import check_file
    from plimsoll.harness.sealing.labelling import of_payloads
    from plimsoll.slo.records.labels import NO_LABELS

    with errors_too(json_):
        scenario = check_file(path)
        held = {name: one.source_object() for name, one in scenario.classes.items()}
        plans = {name: one.blocks(len(held[name])).survey() for name, one in scenario.classes.items()}
        known = {name: of_payloads(one, held[name]) or NO_LABELS for name, one in scenario.classes.items()}
    if json_:
        prints = {name: plan.fingerprint for name, plan in plans.items()}
        found = {"plan_fingerprints": prints} if scenario.mix else {"plan_fingerprint": prints[""]}
        typer.echo(json.dumps({"scenario": scenario.to_mapping(), **found}, indent=1))
        return
    for name, plan in plans.items():
        one, columns = scenario.classes[name], known[name].columns
        what = "a closed loop" if plan.cyclic else f"{plan.n_samples:,} samples in {plan.n_queries:,} queries"
        typer.echo(f"{path}: {f'class {name}: ' if name else ''}{one.kind}, {what}. Fine")
        for label, place in (one.labels or {}).items():
            values = {*columns[label].tolist()} - {-1} if label in columns else None
            typer.echo(f"  label {label}: {place}" + ("" if values is None else f", {len(values):,} values"))
