"""``plimsoll sweep``: a grid of loads and settings, and the curves through its points. ``plimsoll capacity``: how many
replicas a load takes by such curves, and what they cost. ``plimsoll overload``: what more than it can do makes of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.verbs import flags as shared
from plimsoll.harness.verbs.flags import (
    Confidence,
    FormatOption,
    Formats,
    Goodput,
    Json,
    PresetOption,
    Slo,
    SweepFormat,
)


def sweep(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a library scenario."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="rate=1,2,5 or concurrency=1..64*2 or prompt_tokens=128,1024; rate{class=NAME} of a mix; source.KEY, "
            "option.NAME, model, and server.NAME of the bundled server too. Repeatable: every combination is a point.",
        ),
    ] = None,
    url: shared.Url = None,
    protocol: shared.Protocol = None,
    model: shared.Model = None,
    kind: Annotated[str | None, typer.Option(help="server or concurrency; by default what varies says it.")] = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second of every point (server).")] = None,
    arrival: shared.Arrival = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests kept in flight at every point.")] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Each run issues for at least this long.")] = None,
    queries: Annotated[
        int | None, typer.Option(metavar="N", help="Each run issues at least this many queries.")
    ] = None,
    max_duration: Annotated[str | None, typer.Option(metavar="D", help="Stop a run's issuing after this.")] = None,
    prompt_tokens: shared.PromptTokens = None,
    output_tokens: shared.OutputTokens = None,
    seed: shared.Seed = None,
    workers: shared.Workers = None,
    retries: shared.Retries = None,
    keep: shared.Keep = None,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
    connect_timeout: shared.ConnectTimeout = None,
    header: shared.Header = None,
    api_key_env: shared.ApiKeyEnv = None,
    api_key_file: shared.ApiKeyFile = None,
    option: shared.ProtocolOption = None,
    pace: shared.Pace = None,
    cancel: shared.Cancel = None,
    ca_file: shared.CaFile = None,
    insecure: shared.Insecure = False,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="Runs of each point. Default: 1.")] = None,
    cooldown: Annotated[str | None, typer.Option(metavar="D", help="Silence between runs. Default: 2s.")] = None,
    all_points: Annotated[
        bool, typer.Option("--all", help="Run the points above a saturated load too; they are left out otherwise.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Say what would run, and how long it takes. Sends nothing.")
    ] = False,
    locust_master: shared.LocustMaster = None,
    expect_workers: shared.ExpectWorkers = None,
    locust_wait: shared.LocustWait = None,
    locust_web: shared.LocustWeb = None,
    live: shared.Live = None,
    server_metrics: shared.ServerMetrics = None,
    server_pid: shared.ServerPid = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what --out holds; finished runs are not repeated.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Judge what --out holds once more, by these objectives. Sends nothing.")
    ] = False,
    format: SweepFormat = None,
    json_: Json = False,
) -> None:
    """Send load at every point of a grid: throughput-latency curves, the knee, the line of the SLO, Pareto fronts."""
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.sweep import sweep_session
    from plimsoll.harness.verbs.run import paced, pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "kind": kind, "rate": rate, "arrival": arrival,
        "concurrency": concurrency, "duration": duration, "queries": queries, "max_duration": max_duration,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "seed": seed, "workers": workers,
        "warmup": warmup, "timeout": timeout, "connect_timeout": connect_timeout, "api_key_env": api_key_env,
        "api_key_file": api_key_file, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "retries": retries, "keep": keep, "cancel": cancel,
        "options": paced(yaml_values(pairs(option or [], "=", "--option")), pace) or None,
    }  # fmt: skip
    served = bool(server_metrics or server_pid)
    asked = Asked(slo or [], goodput, preset or [], confidence, limits_alone=True, served=served)
    staff, errors = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, asked=(server_metrics, server_pid)
    )
    session = Session(out, format or [], resume, json_, staff, errors)
    wanted = sweep_session.Wanted(scenario, vary or [], load, asked, repeats, cooldown, again, all_points, session)
    if check:
        sweep_session.say_grid(wanted)
        return
    raise typer.Exit(sweep_session.sweep(wanted))


def capacity(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out of a search or of a sweep, or one run.")],
    target_rate: Annotated[float, typer.Option(metavar="R", help="Requests per second to carry, at their peak.")],
    price: Annotated[float | None, typer.Option(metavar="P", help="What one replica costs an hour.")] = None,
    headroom: Annotated[str, typer.Option(metavar="H", help="How full a replica may be with all of them up.")] = "70%",
    one_down: Annotated[
        str, typer.Option(metavar="H", help="How full a replica may be with one of them lost.")
    ] = "85%",
    growth: Annotated[str, typer.Option(metavar="G", help="By how much the target will grow, e.g. 30%.")] = "0%",
    gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs of one replica. Default: the search's.")] = None,
    currency: Annotated[str, typer.Option(help="Currency of the price.")] = "USD",
    series: Annotated[str | None, typer.Option(metavar="LABEL", help="Which series of a sweep.")] = None,
    servers: Annotated[
        int, typer.Option(metavar="C", help="Requests that a replica serves at a time: adds M/M/c to the overlay.")
    ] = 1,
    format: Formats = None,
    json_: Json = False,
) -> None:
    """Size and price a fleet by the lower end of a measured capacity, with queueing theory as a sanity check."""
    import shlex
    import sys

    from plimsoll.harness.series import capacity_plan as plan
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
    raise typer.Exit(plan.plan(folder, asked, outputs, shlex.join(sys.argv), as_json=json_))


def overload(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A scenario file of kind server or of a mix, or a library one.")
    ],
    line: Annotated[
        float | None, typer.Option(metavar="RATE", help="The line, per second. Default: it is searched for first.")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="A folder of `plimsoll search` that found the line.")
    ] = None,
    steps: Annotated[
        str, typer.Option(metavar="X,X,...", help="The load, as multiples of the line; then the first one again.")
    ] = "0.5,1,1.5,2,3",
    step_time: Annotated[str, typer.Option(metavar="D", help="How long each step lasts.")] = "20s",
    after: Annotated[str, typer.Option(metavar="D", help="How long the first load is sent again at the end.")] = "60s",
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    url: shared.Url = None,
    protocol: shared.Protocol = None,
    model: shared.Model = None,
    seed: shared.Seed = None,
    workers: shared.Workers = None,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
    header: shared.Header = None,
    api_key_env: shared.ApiKeyEnv = None,
    option: shared.ProtocolOption = None,
    ca_file: shared.CaFile = None,
    insecure: shared.Insecure = False,
    live: shared.Live = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the search and the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search that --out holds.")] = False,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Send more than the endpoint can do, step by step, then less: how much it still does, and does it come back?"""
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.search.overload_session import Wanted
    from plimsoll.harness.series.search.overload_session import overload as go
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "seed": seed, "workers": workers, "warmup": warmup,
        "timeout": timeout, "api_key_env": api_key_env, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    given = {key: value for key, value in load.items() if value is not None}
    asked = Asked(slo or [], goodput, preset or [], confidence)
    staff, errors = staff_of(live, None, None, None, None)
    wanted = Wanted(scenario, line, from_, steps, step_time, after, given, asked)
    raise typer.Exit(go(wanted, Session(out, format or [], resume, json_, staff, errors)))
