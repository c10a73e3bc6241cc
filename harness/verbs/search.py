"""``plimsoll search``: the highest load at which the objectives hold, as an interval, and the run that confirms it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from plimsoll.harness.verbs import flags as of_target
from plimsoll.harness.verbs.flags import Confidence, Formats, Goodput, Json, PresetOption, Slo

_RECORDED = "A recording has its own times and no load that could be searched: replay it with `plimsoll run`"
_ACCURACY = "An accuracy run has no load that could be searched: give it to `plimsoll run`"
_MEANT: Mapping[str, str] = MappingProxyType(
    {
        "--rate": "A search finds the rate: give the first one to try with --start",
        "--concurrency": "A search finds the load: give --over concurrency, and the first one to try with --start",
        "--duration": "A search chooses how long it sends: give the shortest probe with --probe",
        "--max-duration": "A search chooses how long it sends: give the longest probe with --longest",
        "--queries": "A search chooses how much it sends: give the shortest probe with --probe",
        "--mode": _ACCURACY,
        "--reference": _ACCURACY,
        "--trace": _RECORDED,
        "--speed": _RECORDED,
        "--window": _RECORDED,
    }
)


def search(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a library scenario."),
    ] = None,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    over: Annotated[
        str | None, typer.Option(help="rate (open loop) or concurrency (closed loop). Default: as the scenario is.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="server or concurrency: the same as --over rate and --over concurrency.")
    ] = None,
    start: Annotated[float | None, typer.Option(help="The first load. Default: the scenario's.")] = None,
    lowest: Annotated[
        float | None, typer.Option(help="Try nothing below. Default: what the longest probe can judge; 1 at a time.")
    ] = None,
    highest: Annotated[float | None, typer.Option(help="Try nothing above; it is enough if that holds.")] = None,
    resolution: Annotated[str, typer.Option(metavar="SHARE", help="Stop when the two ends are this close.")] = "2%",
    probe: Annotated[str, typer.Option(metavar="D", help="How long the shortest probe sends.")] = "20s",
    longest: Annotated[
        str,
        typer.Option(
            metavar="8x",
            help="The longest probe: so many times the shortest, or a duration. While it seeks, half of it.",
        ),
    ] = "8x",
    cooldown: Annotated[str, typer.Option(metavar="D", help="Silence between two probes.")] = "2s",
    budget: Annotated[
        str, typer.Option(metavar="D", help="Begin no probe that would end after this; none: no limit.")
    ] = "30m",
    gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs of the endpoint: goodput per GPU too.")] = None,
    no_confirm: Annotated[
        bool, typer.Option("--no-confirm", help="Don't confirm the answer with a fresh run.")
    ] = False,
    url: of_target.Url = None,
    protocol: of_target.Protocol = None,
    model: of_target.Model = None,
    arrival: of_target.Arrival = None,
    prompt_tokens: of_target.PromptTokens = None,
    output_tokens: of_target.OutputTokens = None,
    seed: of_target.Seed = None,
    workers: of_target.Workers = None,
    retries: of_target.Retries = None,
    keep: of_target.Keep = None,
    warmup: of_target.Warmup = None,
    timeout: of_target.Timeout = None,
    connect_timeout: of_target.ConnectTimeout = None,
    header: of_target.Header = None,
    api_key_env: of_target.ApiKeyEnv = None,
    api_key_file: of_target.ApiKeyFile = None,
    option: of_target.ProtocolOption = None,
    pace: of_target.Pace = None,
    cancel: of_target.Cancel = None,
    ca_file: of_target.CaFile = None,
    insecure: of_target.Insecure = False,
    locust_master: of_target.LocustMaster = None,
    expect_workers: of_target.ExpectWorkers = None,
    locust_wait: of_target.LocustWait = None,
    locust_web: of_target.LocustWeb = None,
    live: of_target.Live = None,
    server_metrics: of_target.ServerMetrics = None,
    server_pid: of_target.ServerPid = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the probes and the result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what --out holds; finished probes are not repeated.")
    ] = False,
    format: Formats = None,
    json_: Json = False,
) -> None:
    """Find the highest load at which the objectives hold: bracket, bisect, confirm. The answer is an interval."""
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.ledger import Session
    from plimsoll.harness.series.search.question import Texts
    from plimsoll.harness.series.search.search_session import search_and_say
    from plimsoll.harness.verbs.run import paced, pairs, staff_of, yaml_values

    load: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "arrival": arrival, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "seed": seed, "workers": workers, "retries": retries, "keep": keep,
        "warmup": warmup,
        "timeout": timeout, "connect_timeout": connect_timeout, "api_key_env": api_key_env,
        "api_key_file": api_key_file, "ca_file": ca_file,
        "tls_verify": False if insecure else None, "headers": pairs(header or [], ":", "--header") or None,
        "cancel": cancel, "options": paced(yaml_values(pairs(option or [], "=", "--option")), pace) or None,
    }  # fmt: skip
    asked = Asked(slo or [], goodput, preset or [], confidence, served=bool(server_metrics or server_pid))
    texts = Texts(
        over, start, lowest, highest, resolution, probe, longest, cooldown, budget, gpus, not no_confirm, kind
    )
    given = {key: value for key, value in load.items() if value is not None}
    staff, errors = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, asked=(server_metrics, server_pid)
    )
    session = Session(out, format or [], resume, json_, staff, errors)
    raise typer.Exit(search_and_say(scenario, given, asked, texts, session))


class Command(of_target.Verb):
    """Flags of ``plimsoll run`` that set what a search looks for: whoever gives one is told which is meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse them by name; the parser would propose what is spelt alike."""
        for word in args:
            flag = word.partition("=")[0]
            if flag == "--":
                break
            if flag in _MEANT:
                ctx.fail(f"No such option: {flag}. {_MEANT[flag]}")
        return super().parse_args(ctx, args)
