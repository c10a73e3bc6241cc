"""``plimsoll hook``: a rollout controller asks, and a run answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.verbs import flags


def hook(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="What load, with objectives; a file, or a library scenario.")
    ],
    url: flags.Url = None,
    slo: flags.Slo = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8080,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY,...", help="What a call may set: url, model, rate, concurrency, duration, queries."),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with the token that calls must bring.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run directories.")] = Path("runs"),
    exit_map: flags.ExitMap = None,
) -> None:
    """Run the scenario whenever a rollout controller asks, and answer by the verdict: Flagger's webhooks at /flagger,
    Argo Rollouts' web metrics at /argo. Until Ctrl-C.
    """
    from plimsoll.harness.live.place import Place
    from plimsoll.harness.series.rollout import answer

    place = Place(host, port)
    raise typer.Exit(answer(scenario, url, slo or [], allow or [], token_env, place, out, exit_map or {}))
