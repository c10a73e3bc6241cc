"""``plimsoll agent``: offer this host to distributed runs."""

from __future__ import annotations

from typing import Annotated

import typer


def agent(
    locust_worker: Annotated[
        str, typer.Option(metavar="HOST[:PORT]", help="Where Locust's master is (port 5557 unless given).")
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Load-generating processes of this host (default: as the scenario says)."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name in the run (default: the host's); unique in it.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one run.")] = False,
) -> None:
    """Offer this host to distributed runs: wait for a master, send its share of the load, hand the records over."""
    from plimsoll.harness.distributed.bridge import MASTER, Standby, address, require_locust

    require_locust()
    arguments = [*([f"--name={name}"] if name else []), *([f"--workers={workers}"] if workers else [])]
    at = address(locust_worker, "--locust-worker", MASTER.replace("*", ""))
    raise typer.Exit(Standby(at, arguments, once, lambda text: typer.echo(text, err=True)).serve())


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(agent)
