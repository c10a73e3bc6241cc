"""``plimsoll overload``: what the endpoint does with more than it can do, and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.verbs import flags
from plimsoll.harness.verbs.flags import Confidence, FormatOption, Goodput, Json, PresetOption, Slo


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
    url: flags.Url = None,
    protocol: flags.Protocol = None,
    model: flags.Model = None,
    seed: flags.Seed = None,
    workers: flags.Workers = None,
    retries: flags.Retries = None,
    warmup: flags.Warmup = None,
    timeout: flags.Timeout = None,
    header: flags.Header = None,
    api_key_env: flags.ApiKeyEnv = None,
    option: flags.ProtocolOption = None,
    ca_file: flags.CaFile = None,
    insecure: flags.Insecure = False,
    live: flags.Live = None,
    server_metrics: flags.ServerMetrics = None,
    server_pid: flags.ServerPid = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the search and the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search that --out holds.")] = False,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Send more than the endpoint can do, step by step, and then less: what stays of its goodput, and does it come
    back?
    """
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.publish import duration
    from plimsoll.harness.series.search.overload_session import Wanted
    from plimsoll.harness.series.search.overload_session import overload as go
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "seed": seed, "workers": workers, "retries": retries,
        "warmup": warmup, "timeout": timeout, "api_key_env": api_key_env, "ca_file": ca_file,
        "tls_verify": False if insecure else None, "headers": pairs(header or [], ":", "--header") or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    staff, errors = staff_of(live, None, None, None, None, asked=(server_metrics, server_pid))
    lasting = {flag: duration(flag, text, errors, 1) for flag, text in (("--step-time", step_time), ("--after", after))}
    errors += [f"{flag}: nothing takes no time. Give for example 20s" for flag, ns in lasting.items() if not ns]
    given = {key: value for key, value in load.items() if value is not None}
    asked = Asked(slo or [], goodput, preset or [], confidence, served=bool(server_metrics or server_pid))
    wanted = Wanted(scenario, line, from_, steps, lasting["--step-time"], lasting["--after"], given, asked)
    raise typer.Exit(go(wanted, Session(out, format or [], resume, json_, staff, errors)))
