"""``plimsoll coldstart``: how long from starting a server to its first answer, and to its usual latency?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.flags import (
    ApiKeyEnv,
    CaFile,
    ExpectWorkers,
    Formats,
    Header,
    Insecure,
    Json,
    Live,
    LocustMaster,
    LocustWait,
    LocustWeb,
    Model,
    OutputTokens,
    PromptTokens,
    Protocol,
    ProtocolOption,
    Seed,
    Timeout,
)


def coldstart(
    start: Annotated[
        str, typer.Option(metavar="'COMMAND'", help="The command that starts the server, run by the shell.")
    ],
    url: Annotated[str, typer.Option(help="Where the server will answer; nothing may answer there before.")],
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="Whose prompts to send; a file, or a library scenario.")
    ] = None,
    protocol: Protocol = None,
    model: Model = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="How many starts; 6 give an interval at 95 %.")] = 5,
    ready_timeout: Annotated[str, typer.Option(metavar="D", help="Give a start up after this.")] = "10m",
    path: Annotated[
        str | None, typer.Option(help="Health route to ask; else /health, /v2/health/ready or /ping.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(metavar="N", help="Requests after the first one, one at a time. Default: 120.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="D", help="Send for this long instead of a number of requests.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Send them in an open loop, so many a second.")] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            metavar="'COMMAND'", help="A command that stops the server before SIGTERM is sent, e.g. 'docker stop NAME'."
        ),
    ] = None,
    stop_timeout: Annotated[
        str, typer.Option(metavar="D", help="Kill a server (SIGKILL) that has not stopped after this.")
    ] = "30s",
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
    retries: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Repeat a start that is INVALID by the generator alone, at most N times. Default: 0."
        ),
    ] = None,
    timeout: Timeout = None,
    header: Header = None,
    api_key_env: ApiKeyEnv = None,
    option: ProtocolOption = None,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    locust_master: LocustMaster = None,
    expect_workers: ExpectWorkers = None,
    locust_wait: LocustWait = None,
    locust_web: LocustWeb = None,
    live: Live = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what --out holds; finished starts are not repeated.")
    ] = False,
    format: Formats = None,
    json_: Json = False,
) -> None:
    """Start a server several times: time to ready, the first request, and the way to the steady state."""
    import sys

    from plimsoll.harness.run.job import default_out
    from plimsoll.harness.secrecy.secrets import public_shell
    from plimsoll.harness.series.coldstart import coldstart_flags as cold
    from plimsoll.harness.series.coldstart.coldstart_session import coldstart as measure
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.publish import duration as read
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values
    from plimsoll.reports.documents.coldstart import FORMATS

    kept, errors = cold.goals(slo or [])
    staff, wrong = staff_of(live, locust_master, expect_workers, locust_wait, locust_web)
    session = Session(out, format or [], resume, json_, staff, wrong)
    outputs, problems = session.outputs(FORMATS, "a cold start")
    errors += problems
    if resume and out is None:
        errors.append("--resume: of which measurement? Give its --out")
    flags: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "seed": seed, "timeout": timeout, "api_key_env": api_key_env, "ca_file": ca_file,
        "tls_verify": False if insecure else None,
    }  # fmt: skip
    try:
        flags["headers"] = pairs(header or [], ":", "--header") or None
        flags["options"] = yaml_values(pairs(option or [], "=", "--option")) or None
    except HarnessFault as fault:
        errors += fault.errors
    wanted = cold.Wanted(
        start=start,
        stop=stop or "",
        between=between or "",
        scenario=scenario,
        flags=flags,
        curve=cold.curve_flags(requests, duration, rate),
        repeats=repeats,
        ready_timeout_ns=read("--ready-timeout", ready_timeout, errors, 1),
        path=path,
        cooldown_ns=read("--cooldown", cooldown, errors),
        stop_timeout_ns=read("--stop-timeout", stop_timeout, errors, 1),
        goals=kept,
        command=tuple(public_shell(word) for word in sys.argv),
        retries=retries,
    )
    cold.check(wanted, errors)
    raise typer.Exit(measure(wanted, out or default_out("coldstart"), outputs, session))
