"""``plimsoll compare``: is the new one worse than the old? ``plimsoll bakeoff``: which of several is best?

``plimsoll canary``: is it worse, asked at the same time? Promote, or abort.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags
from plimsoll.harness.verbs.flags import ComparisonFormat, Formats, Json, Slo, errors_too


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BASE CANDIDATE...",
            help="Each a run directory, a folder of them, a glob in quotes, or a baseline file; NAME=... names it. "
            "Or alone the --out of an interleaved comparison.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="Q", help="Compare this, e.g. 'p99(ttft)' or 'p99(ttft) 10%'. Repeatable."),
    ] = None,
    tolerance: Annotated[str, typer.Option(metavar="P", help="A change up to this is of no interest.")] = "5%",
    share_tolerance: Annotated[
        str, typer.Option(metavar="P", help="A change of a share up to so many points is of no interest.")
    ] = "1%",
    confidence: Annotated[
        str | None, typer.Option(metavar="C", help="How sure each interval must be. Default: 0.95.")
    ] = None,
    slo: Slo = None,
    despite: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Compare although the load differs here, e.g. params.rate. Repeatable."),
    ] = None,
    proof: Annotated[
        bool, typer.Option("--proof", help="Pass only if a regression beyond the tolerance is ruled out.")
    ] = False,
    single_run: Annotated[
        bool, typer.Option("--single-run", help="Judge one run against one, blind to what differs between runs.")
    ] = False,
    save_baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the last side as a baseline file, if it is no regression."),
    ] = None,
    aa: Annotated[
        bool, typer.Option("--aa", help="All runs are of one endpoint: how often would this gate cry regression?")
    ] = False,
    interleave: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Make the runs: this scenario against each --arm in turn, A B B A."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL[,KEY=VALUE...]",
            help="An endpoint to interleave; URL may be `bundled`. The first one is the base. Repeatable.",
        ),
    ] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="Runs of each arm. Default: 5.")] = None,
    cooldown: Annotated[str | None, typer.Option(metavar="D", help="Silence between runs. Default: 2s.")] = None,
    resume: flags.Resume = False,
    kind: Annotated[str | None, typer.Option(help="As in `run`, like the options below.")] = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second (server).")] = None,
    arrival: Annotated[str | None, typer.Option(help="poisson, constant, gamma or loadgen (server).")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests kept in flight (concurrency).")] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Issue for at least this long.")] = None,
    queries: Annotated[int | None, typer.Option(metavar="N", help="Issue at least this many queries.")] = None,
    max_duration: Annotated[
        str | None, typer.Option(metavar="D", help="Stop issuing after this, whatever else was asked.")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(metavar="N", help="Prompt length.")] = None,
    output_tokens: Annotated[int | None, typer.Option(metavar="N", help="Answer length asked for.")] = None,
    seed: Annotated[int | None, typer.Option(help="Each round's seed is derived from it.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Load-generating processes.")] = None,
    warmup: Annotated[str | None, typer.Option(metavar="D", help="Load before each measured run.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="D", help="Give a request up after this.")] = None,
    retries: flags.Retries = None,
    locust_master: flags.LocustMaster = None,
    expect_workers: flags.ExpectWorkers = None,
    locust_wait: flags.LocustWait = None,
    locust_web: flags.LocustWeb = None,
    live: flags.Live = None,
    server_metrics: flags.ServerMetrics = None,
    server_pid: flags.ServerPid = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for comparison.json and .html, and for interleaved runs.")
    ] = None,
    format: ComparisonFormat = None,
    json_: Json = False,
    exit_map: flags.ExitMap = None,
) -> None:
    """Compare runs with a base, run by run, and exit by the outcome: 0 no regression, 1 regression, 3 can't tell, 4
    invalid.

    With --interleave the runs are made first.
    """
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.comparison.comparison_session import Wanted, of_interleaved, of_runs, question
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.verbs.run import staff_of

    load: dict[str, Any] = {
        "kind": kind, "rate": rate, "arrival": arrival, "concurrency": concurrency, "duration": duration,
        "queries": queries, "max_duration": max_duration, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "seed": seed, "workers": workers, "retries": retries, "warmup": warmup, "timeout": timeout,
    }  # fmt: skip
    asked = Asked(slo=slo or [], confidence=confidence, limits_alone=True)
    made, errors = question(
        metric or [], asked, tolerance, share_tolerance, despite or [], single_run=single_run, proof=proof
    )
    staff, problems = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, asked=(server_metrics, server_pid)
    )
    load = {key: value for key, value in load.items() if value is not None}
    if interleave is not None and interleave.startswith("-"):  # the next flag was taken for its value
        raise HarnessFault(
            "--interleave: no scenario. Write `plimsoll compare --interleave chat.yaml --arm a=URL --arm b=URL`"
        )
    if interleave is None:
        given = {"--arm": arm, "--repeats": repeats, "--cooldown": cooldown, "--resume": resume or None}
        given |= {"--live": live, "--locust-master": locust_master, "--server-metrics": server_metrics}
        given |= {f"--{key.replace('_', '-')}": value for key, value in load.items()}
        errors += [f"{flag}: only --interleave makes runs" for flag, value in given.items() if value is not None]
    elif runs:
        errors.append(
            f"{', '.join(runs)}: --interleave makes its own runs. Leave these out, or compare them without it"
        )
    session = Session(out, format or [], resume, json_, staff, [*errors, *problems])
    wanted = Wanted(made, session, save_baseline, aa)
    if interleave is None:
        raise flags.leave(of_runs(runs or [], wanted), exit_map)
    times = 5 if repeats is None else repeats
    raise flags.leave(of_interleaved(interleave, load, asked, arm or [], times, cooldown or "2s", wanted), exit_map)


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
    server_metrics: flags.ServerMetrics = None,
    server_pid: flags.ServerPid = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the result.")] = None,
    resume: flags.Resume = False,
    again: Annotated[
        bool, typer.Option("--again", help="Judge what --out holds once more, by this file. Sends nothing.")
    ] = False,
    format: Formats = None,
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
    staff, errors = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, asked=(server_metrics, server_pid)
    )
    raise typer.Exit(bake_off(found, Session(out, format or [], resume, json_, staff, errors), again=again))


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
    slo: Slo = None,
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
    format: Formats = None,
    json_: Json = False,
    exit_map: flags.ExitMap = None,
) -> None:
    """Deal one load to two endpoints by lot and decide as it goes on: promote (exit 0), abort (1) or can't tell (3).

    The share of the new one grows step by step. The run ends as soon as it is decided.
    """
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.comparison.canary_session import Wanted
    from plimsoll.harness.series.comparison.canary_session import canary as decide
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.search.question import lasting
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "protocol": protocol, "model": model, "seed": seed, "workers": workers, "warmup": warmup, "timeout": timeout,
        "api_key_env": api_key_env, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    staff, errors = staff_of(live, None, None, None, None)
    step_ns = max(1, lasting("--step-time", step_time, errors))
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
    raise flags.leave(decide(wanted, Session(out, format or [], False, json_, staff, errors)), exit_map)


def shadow(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="An open loop: its queries go to both, each at the same instant.")
    ],
    url: flags.Url = None,
    shadow: Annotated[str | None, typer.Option("--shadow", metavar="URL", help="What is looked at, unjudged.")] = None,
    compare: flags.Compare = None,
    differs: flags.Differs = None,
    slo: Slo = None,
    confidence: flags.Confidence = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second to each of them (server).")] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Send for at least this long.")] = None,
    queries: Annotated[int | None, typer.Option(metavar="N", help="Send at least this many to each.")] = None,
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run directory, with drift.json.")] = None,
    format: Formats = None,
    json_: Json = False,
    exit_map: flags.ExitMap = None,
) -> None:
    """Send each query to two endpoints at once, judge the first, and say how often and how the second's answers differ.

    The shadow's times are compared query by query. Neither they nor its failures touch the verdict on the primary.
    """
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.comparison.shadow_session import shadow as send_both
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "protocol": protocol, "model": model, "seed": seed, "workers": workers, "warmup": warmup, "timeout": timeout,
        "duration": duration, "queries": queries,
        "api_key_env": api_key_env, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    staff, errors = staff_of(live, None, None, None, None)
    session = Session(out, format or [], False, json_, staff, errors)
    asked = Asked(slo or [], confidence=confidence)
    how = compare or "exact", differs or "1%"
    raise flags.leave(send_both(scenario, rate, (url, shadow), load, asked, how, session), exit_map)
