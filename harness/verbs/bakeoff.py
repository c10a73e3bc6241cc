"""``plimsoll bakeoff``: which of several endpoints is best, by one file and a ranking that may say: none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags
from plimsoll.harness.verbs.flags import Json, errors_too


def bakeoff(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The bake-off file (YAML).")],
    init: Annotated[bool, typer.Option("--init", help="Write a commented file to begin with, and stop.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the file and say what would run. Sends nothing.")
    ] = False,
    retries: flags.Retries = None,
    locust_master: flags.LocustMaster = None,
    expect_workers: flags.ExpectWorkers = None,
    locust_wait: flags.LocustWait = None,
    locust_web: flags.LocustWeb = None,
    live: flags.Live = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the result.")] = None,
    resume: flags.Resume = False,
    again: Annotated[
        bool, typer.Option("--again", help="Judge what --out holds once more, by this file. Sends nothing.")
    ] = False,
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="F=PATH",
            help="Also the comparison at the deciding load: annotations, html, json, junit, markdown or text. Repeatable.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Send one load to several endpoints in turn, several times, and rank them: tiers, cost, Pareto charts."""
    from plimsoll.harness.process.writing import new
    from plimsoll.harness.series.comparison import bakeoff_file as file_format
    from plimsoll.harness.series.comparison.bakeoff_session import bake_off, say_plan
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.verbs.run import staff_of

    if init:
        try:
            new(file, file_format.STARTER)
        except OSError as error:
            raise HarnessFault(
                f"{file}: cannot be written ({error.strerror}). Name a file that does not exist"
            ) from None
        typer.echo(f"written to {file}: fill in the endpoints, then `plimsoll bakeoff {file} --check`")
        return
    with errors_too(json_ and check):
        found = file_format.load(file)
        if retries is not None:
            found = found.model_copy(update={"load": {**found.load, "retries": retries}})
        if check:
            say_plan(found, json_)
            return
    staff, errors = staff_of(live, locust_master, expect_workers, locust_wait, locust_web)
    raise typer.Exit(bake_off(found, Session(out, format or [], resume, json_, staff, errors), again=again))


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(bakeoff)
