"""``plimsoll capacity``: how many replicas does a load take, and what do they cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.verbs.flags import Json


def capacity(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out of a search or of a sweep, or one run.")],
    target_rate: Annotated[float, typer.Option(metavar="R", help="Requests per second to carry, at their peak.")],
    price: Annotated[float | None, typer.Option(metavar="P", help="What one replica costs an hour.")] = None,
    headroom: Annotated[str, typer.Option(metavar="H", help="How full a replica may be with all of them up.")] = "70%",
    one_down: Annotated[str, typer.Option(metavar="H", help="How full with one of them lost.")] = "85%",
    growth: Annotated[str, typer.Option(metavar="G", help="By how much the target will grow, e.g. 30%.")] = "0%",
    gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs of one replica (default: the search's).")] = None,
    currency: Annotated[str, typer.Option(help="Of the price.")] = "USD",
    series: Annotated[str | None, typer.Option(metavar="LABEL", help="Which series of a sweep.")] = None,
    servers: Annotated[
        int, typer.Option(metavar="C", help="Requests that a replica serves at a time: adds M/M/c to the overlay.")
    ] = 1,
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format", metavar="F=PATH", help="Also: annotations, html, json, junit, markdown or text. Repeatable."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Size and price a fleet by the lower end of a measured capacity, with queueing theory as a sanity check."""
    import sys

    from plimsoll.harness.series.capacity import capacity_plan as plan
    from plimsoll.harness.series.ledger import Session
    from plimsoll.reports.documents.capacity import FORMATS

    outputs, errors = Session(formats=format or [], as_json=json_).outputs(FORMATS, "a capacity plan")
    asked = plan.Asked(
        target_per_s=target_rate,
        headroom=plan.share("--headroom", headroom, errors),
        one_down=plan.share("--one-down", one_down, errors),
        growth=plan.growth(growth, errors),
        price=price,
        currency=currency,
        gpus=gpus,
        servers=servers,
        series=series,
    )
    plan.check(asked, errors)
    raise typer.Exit(plan.plan(folder, asked, outputs, " ".join(sys.argv), as_json=json_))


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(capacity)
