"""``plimsoll coldstart``: how long from starting a server to its first answer, and to its usual latency?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.flags import (
    ApiKeyEnv,
    CaFile,
    Header,
    Insecure,
    Json,
    Model,
    OutputTokens,
    PromptTokens,
    Protocol,
    ProtocolOption,
    Seed,
    Timeout,
)


def coldstart(
    start: Annotated[str, typer.Option(metavar="'COMMAND'", help="Starts the server; run by the shell.")],
    url: Annotated[str, typer.Option(help="Where it will answer. Nothing may answer there before.")],
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Whose prompts to send; a file, or a library scenario.")
    ] = None,
    protocol: Protocol = None,
    model: Model = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Starts. 6 give an interval at 95 %.")] = 5,
    ready_timeout: Annotated[str, typer.Option(metavar="D", help="Give a start up after this.")] = "10m",
    path: Annotated[
        str | None, typer.Option(help="Health route to ask; else /health, /v2/health/ready or /ping.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(metavar="N", help="Requests after the first one (default 120), one at a time.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Or: send for this long.")] = None,
    rate: Annotated[float | None, typer.Option(help="Send them in an open loop at this rate.")] = None,
    stop: Annotated[
        str | None, typer.Option(metavar="'COMMAND'", help="Stops it before SIGTERM, e.g. 'docker stop NAME'.")
    ] = None,
    stop_timeout: Annotated[str, typer.Option(metavar="D", help="SIGKILL after this.")] = "30s",
    between: Annotated[
        str | None, typer.Option(metavar="'COMMAND'", help="Run before each start, e.g. to drop the page cache.")
    ] = None,
    cooldown: Annotated[str, typer.Option(metavar="D", help="Rest between a stop and the next start.")] = "1s",
    slo: Annotated[
        list[str] | None,
        typer.Option("--slo", metavar="'ready <= 60s'", help="What every start must keep. Repeatable."),
    ] = None,
    prompt_tokens: PromptTokens = None,
    output_tokens: OutputTokens = None,
    seed: Seed = None,
    timeout: Timeout = None,
    header: Header = None,
    api_key_env: ApiKeyEnv = None,
    option: ProtocolOption = None,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what --out holds; finished starts are not repeated.")
    ] = False,
    format: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="F=PATH", help="Also write it as html, json, markdown or text. Repeatable."),
    ] = None,
    json_: Json = False,
) -> None:
    """Start a server several times: time to ready, the first request, and the way to the steady state."""
    import sys

    from plimsoll.harness.run.job import one_on_stdout
    from plimsoll.harness.series.coldstart import asked
    from plimsoll.harness.series.coldstart.coldstart_output import coldstart as publish
    from plimsoll.harness.series.comparison.comparison_output import formats_of
    from plimsoll.harness.series.comparison.comparison_session import default_out
    from plimsoll.harness.verbs.run import pairs, yaml_values
    from plimsoll.reports.coldstart.coldstart_formats import FORMATS

    kept, errors = asked.goals(slo or [])
    given = {"--ready-timeout": ready_timeout, "--stop-timeout": stop_timeout, "--cooldown": cooldown}
    times, problems = asked.durations(given)
    errors += problems
    outputs, problems = formats_of(format or [], FORMATS, "a cold start")
    errors += [*problems, *one_on_stdout(format or [], json_)]
    if resume and out is None:
        errors.append("--resume: of which measurement? Give its --out")
    flags: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens,
        "seed": seed, "timeout": timeout, "api_key_env": api_key_env, "ca_file": ca_file,
        "tls_verify": False if insecure else None,
    }  # fmt: skip
    try:
        flags["headers"] = pairs(header or [], ":", "--header") or None
        flags["options"] = yaml_values(pairs(option or [], "=", "--option")) or None
    except HarnessFault as fault:
        errors += fault.errors
    wanted = asked.Wanted(
        start=start,
        stop=stop or "",
        between=between or "",
        scenario=scenario,
        flags=flags,
        curve=asked.curve_flags(requests, duration, rate),
        repeats=repeats,
        ready_timeout_ns=times.get("--ready-timeout", 1),
        path=path,
        cooldown_ns=times.get("--cooldown", 0),
        stop_timeout_ns=times.get("--stop-timeout", 1),
        goals=kept,
        command=tuple(asked.public_command(word) for word in sys.argv),
    )
    asked.check(wanted, errors)
    code = publish(wanted, out or default_out("coldstart"), outputs, resume=resume, as_json=json_)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(coldstart)
