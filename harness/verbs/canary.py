"""``plimsoll canary``: is the new one worse than the old, asked at the same time? Promote, or abort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.verbs import flags


def canary(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="What load; a file, perhaps with arms, or a library scenario.")
    ],
    url: Annotated[str | None, typer.Option(metavar="URL", help="The old one: the base.")] = None,
    canary: Annotated[str | None, typer.Option("--canary", metavar="URL", help="The new one.")] = None,
    steps: Annotated[
        str, typer.Option(metavar="P,P,...", help="The canary's share of the queries, step by step.")
    ] = "5%,25%,50%",
    step_time: Annotated[str, typer.Option(metavar="D", help="How long a step lasts, at most.")] = "5m",
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="Q", help="Compare this, e.g. 'p99(ttft) 25%': up to 25 % more is tolerated. Repeatable."),
    ] = None,
    promote: Annotated[
        str | None, typer.Option("--promote", "--on-promote", metavar="'COMMAND'", help="Run this if it may go on.")
    ] = None,
    abort: Annotated[
        str | None, typer.Option("--abort", "--on-abort", metavar="'COMMAND'", help="Run this if it may not.")
    ] = None,
    slo: flags.Slo = None,
    confidence: flags.Confidence = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second of both together (server).")] = None,
    protocol: flags.Protocol = None,
    model: flags.Model = None,
    seed: flags.Seed = None,
    workers: flags.Workers = None,
    warmup: flags.Warmup = None,
    timeout: flags.Timeout = None,
    header: flags.Header = None,
    api_key_env: flags.ApiKeyEnv = None,
    option: flags.ProtocolOption = None,
    ca_file: flags.CaFile = None,
    insecure: flags.Insecure = False,
    live: flags.Live = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run directory, with canary.json.")] = None,
    format: flags.Formats = None,
    json_: flags.Json = False,
) -> None:
    """Deal one load to two endpoints by lot and decide as it goes on: promote (exit 0), abort (1) or can't tell (3).

    The share of the new one grows step by step. The run ends as soon as it is decided.
    """
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.comparison.canary_session import Wanted
    from plimsoll.harness.series.comparison.canary_session import canary as decide
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.publish import duration
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "protocol": protocol, "model": model, "seed": seed, "workers": workers, "warmup": warmup, "timeout": timeout,
        "api_key_env": api_key_env, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    staff, errors = staff_of(live, None, None, None, None)
    step_ns = duration("--step-time", step_time, errors, 60_000_000_000)
    commands = {name: command for name, command in (("PROMOTE", promote), ("ABORT", abort)) if command}
    wanted = Wanted(
        scenario,
        url,
        canary,
        rate,
        load,
        steps,
        step_ns,
        metric or [],
        Asked(slo or [], confidence=confidence),
        commands,
    )
    raise typer.Exit(decide(wanted, Session(out, format or [], False, json_, staff, errors)))
