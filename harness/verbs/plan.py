"""``plimsoll plan``: how many requests, and how long, each objective takes. Sends nothing, writes nothing."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from plimsoll.harness.process import outlet
from plimsoll.harness.verbs.flags import Confidence, Goodput, Json, PresetOption, Slo, errors_too


def plan(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a library scenario."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="server, concurrency, single_stream, multi_stream or offline.")
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="R", help="Queries per second, of kind server.")] = None,
    arrival: Annotated[
        str | None, typer.Option(metavar="NAME", help="poisson, constant, gamma or loadgen, of kind server.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Requests in flight, of kind concurrency.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Send for at least this long: 20s, 5m.")] = None,
    queries: Annotated[int | None, typer.Option(metavar="N", help="Send at least this many queries.")] = None,
    max_duration: Annotated[
        str | None, typer.Option(metavar="D", help="Stop after this, whatever else was asked.")
    ] = None,
    output_tokens: Annotated[int | None, typer.Option(metavar="N", help="Length of the answers to ask for.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Everything random comes from it.")] = None,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    bad_share: Annotated[
        str | None,
        typer.Option(
            metavar="X",
            help="The true share of requests that break a limit: 0.2% or 0.002. Default: half of the allowed one.",
        ),
    ] = None,
    power: Annotated[
        str, typer.Option(metavar="X", help="How likely a run must be to pass, if that share is the true one.")
    ] = "90%",
    design_effect: Annotated[
        float,
        typer.Option(
            metavar="D", help="How many requests count as one because they depend on each other; a report says it."
        ),
    ] = 1.0,
    latency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="D", help="A latency to assume for a closed loop. Repeatable. Default: 100ms, 1s and 10s."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Say before a run how many requests and how long each objective takes. Sends nothing."""
    from plimsoll.harness.outlook.outlook import SCHEMA, Guesses, outlooks, read
    from plimsoll.harness.run.promises import Asked

    flags: dict[str, Any] = {
        "kind": kind, "rate": rate, "arrival": arrival, "concurrency": concurrency, "duration": duration,
        "queries": queries, "max_duration": max_duration, "output_tokens": output_tokens, "seed": seed,
    }  # fmt: skip
    asked = Asked(slo or [], goodput, preset or [], confidence)
    guesses = Guesses(bad_share, power, design_effect, latency or [])
    with errors_too(json_):
        question = read(scenario, flags, asked, guesses)
        found = outlooks(question)
    if json_:
        documents = {name: one.document() for name, one in found.items()}
        whole = documents.pop("", None)
        classes = {"schema": SCHEMA, "name": question.scenario.name, "classes": documents, "together": whole}
        typer.echo(json.dumps(classes if question.scenario.mix else whole, indent=1))
        return
    from plimsoll.harness.outlook.view import tables

    console = outlet.console()
    for part in (part for one in found.values() for part in tables(one)):
        console.print(part, highlight=False)
        console.print()
