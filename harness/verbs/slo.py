"""``plimsoll slo``: check a file of objectives, and write one to begin with. Nothing is sent or judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.flags import Json, errors_too

slo = typer.Typer(help="Files of objectives: OpenSLO documents and lists of our own.", no_args_is_help=True)


@slo.command("check")
def slo_check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An OpenSLO document, or a list of objectives.")],
    json_: Json = False,
) -> None:
    """Check a file of objectives: every error at once, and what it promises in plain words. Sends nothing."""
    from plimsoll.slo.objectives import openslo
    from plimsoll.slo.objectives.objective import ObjectiveError, load_file

    with errors_too(json_):
        try:
            if openslo.recognise(file):
                _show_documents(openslo.load(file), json_)
                return
            texts = [str(objective) for objective in load_file(file)]
        except ObjectiveError as error:
            raise HarnessFault(error.errors) from None
    if json_:
        typer.echo(
            json.dumps({"file": str(file), "objectives": texts, "slos": [], "outside": [], "warnings": []}, indent=1)
        )
        return
    typer.echo(f"{file}: {len(texts)} objective{'s' * (len(texts) != 1)}. Fine")
    for text in texts:
        typer.echo(f"  {text}")


def _show_documents(loaded: object, as_json: bool) -> None:
    from plimsoll.slo.objectives.openslo import Loaded
    from plimsoll.slo.objectives.openslo import promise as words

    assert isinstance(loaded, Loaded)
    if as_json:
        whole = {
            "file": loaded.file,
            "objectives": [],
            "slos": [words.as_json(slo) for slo in loaded.slos],
            "outside": [{"name": one.name, "type": one.type, "why": one.why} for one in loaded.outside],
            "warnings": list(loaded.warnings),
        }
        typer.echo(json.dumps(whole, indent=1))
        return
    console = Console(soft_wrap=True, highlight=False)
    kinds = ", ".join(f"{count} {kind}" for kind, count in loaded.kinds.items())
    console.print(f"{escape(loaded.file)}: {kinds}. Fine")
    for slo in loaded.slos:
        console.print(f"\n[bold]{escape(slo.name)}[/bold]  {escape(slo.title if slo.title != slo.name else '')}")
        for what, text in words.lines(slo):
            console.print(f"  {what:<12}  {escape(text)}")
    for one in loaded.outside:
        console.print(f"\n[bold]can't be judged here[/bold]: {escape(one.why)}")
    for warning in loaded.warnings:
        console.print(f"\n[bold]warning[/bold]: {escape(warning)}")


@slo.command("init")
def slo_init(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where to write it; never over an existing file. Default: slo.yaml."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as FILE.")] = None,
) -> None:
    """Write a commented OpenSLO file to begin with."""
    from plimsoll.harness.process.writing import new
    from plimsoll.slo.objectives.openslo import starter

    if file is not None and out is not None:
        raise HarnessFault(f"FILE {file} and --out {out}: keep one of the two")
    out = file or out or Path("slo.yaml")
    try:
        new(out, starter())
    except FileExistsError:
        raise HarnessFault(f"{out}: exists already. Remove it, or name another file with --out") from None
    except OSError as error:
        raise HarnessFault(f"{out}: can't be written ({error.strerror}). Name another file with --out") from None
    typer.echo(f"Written to {out}. Change it, then: plimsoll slo check {out}")


@slo.command("presets")
def slo_presets(json_: Json = False) -> None:
    """List the published limits that --preset takes, with what each asks of a run and where its sources disagree."""
    from plimsoll.slo.objectives.presets import listing, table

    typer.echo(json.dumps({"presets": listing()}, indent=1) if json_ else table(), nl=json_)
