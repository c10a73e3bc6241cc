"""``plimsoll run``, ``replay`` and ``agent``: send load by a scenario or a recording, or a share of another host's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags as shared
from plimsoll.harness.verbs.flags import (
    Confidence,
    FormatOption,
    Goodput,
    Json,
    PresetOption,
    ProductionRate,
    Quiet,
    Slo,
)

if TYPE_CHECKING:
    from plimsoll.harness.series.one_run import Staff


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a library scenario."),
    ] = None,
    url: shared.Url = None,
    protocol: shared.Protocol = None,
    model: shared.Model = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="server, sessions, concurrency, single_stream, multi_stream, offline or replay. Default: server, or "
            "what --concurrency or --trace mean.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="accuracy sends each sample once and compares the answers. Default: performance."
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The answers that an accuracy run expects: JSON Lines of id, expected."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="R", help="Queries per second, of kind server. Default: 1.")
    ] = None,
    arrival: shared.Arrival = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Requests in flight, of kind concurrency. Default: 8.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="A recording to repeat, times and lengths (kind replay).")
    ] = None,
    speed: Annotated[float | None, typer.Option(metavar="X", help="How many times as fast. Default: 1.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="A..B", help="Only this part of the recording: 10m..20m.")
    ] = None,
    prehistory: shared.Prehistory = None,
    spread: shared.Spread = False,
    load: shared.Load = None,
    share_depth: shared.ShareDepth = None,
    sessions: shared.Sessions = None,
    trace_format: shared.TraceFormat = None,
    time_unit: shared.TimeUnit = None,
    column: shared.Column = None,
    cancel: shared.Cancel = None,
    duration: Annotated[
        str | None,
        typer.Option(metavar="D", help="Send for at least this long: 20s, 5m. Default: 10s and 100 queries."),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Send at least this many queries; in a closed loop without --duration exactly so many."
        ),
    ] = None,
    max_duration: Annotated[
        str | None, typer.Option(metavar="D", help="Stop after this, whatever else was asked. Default: no limit.")
    ] = None,
    prompt_tokens: shared.PromptTokens = None,
    output_tokens: shared.OutputTokens = None,
    calibrate_tokens: shared.CalibrateTokens = False,
    seed: shared.Seed = None,
    workers: shared.Workers = None,
    retries: shared.Retries = None,
    keep: shared.Keep = None,
    keep_answers: shared.KeepAnswers = False,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
    connect_timeout: shared.ConnectTimeout = None,
    header: shared.Header = None,
    api_key_env: shared.ApiKeyEnv = None,
    api_key_file: shared.ApiKeyFile = None,
    option: shared.ProtocolOption = None,
    pace: shared.Pace = None,
    ca_file: shared.CaFile = None,
    insecure: shared.Insecure = False,
    locust_master: shared.LocustMaster = None,
    expect_workers: shared.ExpectWorkers = None,
    locust_wait: shared.LocustWait = None,
    locust_web: shared.LocustWeb = None,
    leave_rows: shared.LeaveRows = False,
    live: shared.Live = None,
    server_metrics: shared.ServerMetrics = None,
    server_pid: shared.ServerPid = None,
    allow_commands: shared.AllowCommands = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run directory. Default: runs/NAME-TIME.")] = None,
    format: FormatOption = None,
    json_: Json = False,
    quiet: Quiet = False,
    exit_map: shared.ExitMap = None,
) -> None:
    """Send load by a scenario, measure, judge, and leave a run directory with report.html."""
    from plimsoll.harness.process.writing import one_on_stdout
    from plimsoll.harness.run.job import prepare
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.one_run import run_job

    flags: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "kind": kind, "mode": mode, "reference": reference,
        "rate": rate, "arrival": arrival, "trace": trace, "speed": speed, "window": window, "cancel": cancel,
        "prehistory": prehistory, "spread": spread or None, "load": load, "share_depth": share_depth,
        "sessions": sessions,
        **read_as(trace_format, time_unit, column),
        "concurrency": concurrency, "duration": duration, "queries": queries, "max_duration": max_duration,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "seed": seed, "workers": workers,
        "retries": retries, "keep": keep, "answers": keep_answers or None,
        "warmup": warmup, "timeout": timeout, "connect_timeout": connect_timeout, "api_key_env": api_key_env,
        "api_key_file": api_key_file, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": paced(yaml_values(pairs(option or [], "=", "--option")), pace) or None,
    }  # fmt: skip
    served = bool(server_metrics or server_pid)
    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate, served=served)
    staff, problems = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, leave_rows, (server_metrics, server_pid)
    )
    found = [*one_on_stdout(format or [], json_, quiet), *problems]
    prepared = prepare(scenario, flags, asked, format or [], out, (), calibrate_tokens, found, allow_commands)
    if leave_rows:
        from plimsoll.harness.distributed.left import check

        check(prepared)
    raise shared.leave(run_job(prepared, as_json=json_, quiet=quiet, staff=staff), exit_map)


def replay(
    recording: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_TRACE", help="A run directory, or a trace file (Mooncake, Azure, JSONL, CSV)."),
    ],
    speed: Annotated[float | None, typer.Option(help="How many times as fast as it was recorded.")] = None,
    window: Annotated[str | None, typer.Option(metavar="A..B", help="Only this part of it: 10m..20m.")] = None,
    prehistory: shared.Prehistory = None,
    spread: shared.Spread = False,
    load: shared.Load = None,
    share_depth: shared.ShareDepth = None,
    sessions: shared.Sessions = None,
    part: shared.Part = None,
    trace_format: shared.TraceFormat = None,
    time_unit: shared.TimeUnit = None,
    column: shared.Column = None,
    describe: Annotated[bool, typer.Option("--describe", help="Say what is in it, and send nothing.")] = False,
    reference: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Compare the answers with those that this run kept.")
    ] = None,
    compare: shared.Compare = None,
    differs: shared.Differs = None,
    max_queries: Annotated[int | None, typer.Option(metavar="N", help="Only its first N queries.")] = None,
    url: Annotated[str | None, typer.Option(help="The endpoint. Default: the run's; else the bundled server.")] = None,
    protocol: Annotated[str | None, typer.Option(help="How to talk to it. Default: as the run did.")] = None,
    model: Annotated[str | None, typer.Option(help="Model name to ask for. Default: the run's.")] = None,
    option: shared.ProtocolOption = None,
    seed: shared.Seed = None,
    workers: shared.Workers = None,
    retries: shared.Retries = None,
    keep: shared.Keep = None,
    keep_answers: shared.KeepAnswers = False,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
    calibrate_tokens: shared.CalibrateTokens = False,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    locust_master: shared.LocustMaster = None,
    expect_workers: shared.ExpectWorkers = None,
    locust_wait: shared.LocustWait = None,
    locust_web: shared.LocustWeb = None,
    live: shared.Live = None,
    server_metrics: shared.ServerMetrics = None,
    server_pid: shared.ServerPid = None,
    allow_commands: shared.AllowCommands = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run directory. Default: runs/NAME-TIME.")] = None,
    format: FormatOption = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a recording: the same times (and lengths, or samples), faster if asked."""
    from plimsoll.harness.process.writing import one_on_stdout
    from plimsoll.harness.run.job import prepare
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.one_run import run_job

    base = _scenario_of(Path(recording))
    shape: dict[str, Any] = {
        "trace": str(Path(recording).resolve()), "speed": speed, "window": window, "prehistory": prehistory,
        "spread": spread or None, "load": load, "share_depth": share_depth, "seed": seed,
        "sessions": sessions, "part": part,
        **read_as(trace_format, time_unit, column),
    }  # fmt: skip
    if describe:
        from plimsoll.harness.outlook.recorded import describe as say

        with shared.errors_too(json_):
            say(shape, format or [], json_)
        return
    flags: dict[str, Any] = {
        **shape, "kind": "replay",
        "max_queries": max_queries, "url": url, "protocol": protocol, "model": model, "workers": workers,
        "retries": retries, "keep": keep, "warmup": warmup, "timeout": timeout,
        "answers": keep_answers or reference is not None or None,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    served = bool(server_metrics or server_pid)
    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate, served=served)
    staff, problems = staff_of(
        live, locust_master, expect_workers, locust_wait, locust_web, asked=(server_metrics, server_pid)
    )
    found = [*one_on_stdout(format or [], json_, quiet), *problems]
    if reference is None and (compare or differs):
        found.append("--compare, --differs: only with --reference. Add it, or leave these out")
    if reference is not None:
        from plimsoll.harness.series.comparison.shadow_session import held_against

        sent = partial(prepare, base, flags, asked, (), out, (), calibrate_tokens, allow_commands=allow_commands)
        raise typer.Exit(
            held_against(sent, reference, (compare or "exact", differs or "1%"), format or [], found, json_, staff)
        )
    prepared = prepare(base, flags, asked, format or [], out, (), calibrate_tokens, found, allow_commands)
    raise typer.Exit(run_job(prepared, as_json=json_, quiet=quiet, staff=staff))


def agent(
    locust_worker: Annotated[
        str, typer.Option(metavar="HOST[:PORT]", help="Where Locust's master is. Default: port 5557.")
    ],
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Load-generating processes of this host. Default: as the scenario says."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of this host in the run, unique there. Default: its own.")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(help="A label for reports, such as eu-west. Default: PLIMSOLL_REGION, if it is set."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one run.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where rows go that stay here (run --leave-rows). Default: runs."),
    ] = None,
) -> None:
    """Offer this host to distributed runs: wait for a master, send its share of the load, hand the records over."""
    from plimsoll.harness.distributed.bridge import MASTER, Standby, address, require_locust

    require_locust()
    given = {"--name": name, "--workers": workers, "--region": region, "--out": out}
    arguments = [f"{flag}={value}" for flag, value in given.items() if value]
    at = address(locust_worker, "--locust-worker", MASTER.replace("*", ""))
    raise typer.Exit(Standby(at, arguments, once, lambda text: typer.echo(text, err=True)).serve())


def staff_of(
    live: str | None,
    master: str | None,
    expected: int | None,
    wait: str | None,
    web: str | None,
    leave: bool = False,
    asked: tuple[list[str] | None, list[int] | None] = (None, None),
) -> tuple[Staff, list[str]]:
    """Who sends the runs of a session and who looks on, by its flags, and every error in them."""
    from plimsoll.harness.live.place import where
    from plimsoll.harness.series.one_run import ALONE, LivePage, Staff

    errors: list[str] = []
    made = ALONE
    try:
        made = Staff(page=LivePage(where(live)))
    except HarnessFault as fault:
        errors += fault.errors
    if any(asked):
        from plimsoll.harness.scraping.scraping import asking, watch

        about, problems = asking(asked[0] or [], asked[1] or [])
        errors += problems
        made = replace(made, scrape=partial(watch, about))
    given = {"--expect-workers": expected, "--locust-wait": wait, "--locust-web": web, "--leave-rows": leave or None}
    if master is None:
        if alone := [flag for flag, value in given.items() if value is not None]:
            errors.append(f"{', '.join(alone)}: only with --locust-master. Add it, or leave these out")
        return made, errors
    from plimsoll.harness.distributed.bridge import Bridge
    from plimsoll.harness.distributed.fleet import PATIENCE_S, Fleet
    from plimsoll.scenarios.text.fields import parse_duration

    try:
        patience_s = PATIENCE_S if wait is None else parse_duration(wait) / 1e9
    except ValueError as error:
        return made, [*errors, f"--locust-wait: {error}"]
    try:
        bridge = Bridge(master, web)
    except HarnessFault as fault:
        return made, [*errors, *fault.errors]
    fleet = partial(Fleet, bridge, expected or 1, patience_s, leave=leave)
    return replace(made, gather=fleet, watchers=(bridge,)), errors


def pairs(texts: list[str], separator: str, flag: str) -> dict[str, str]:
    """``NAME: VALUE`` or ``K=V`` texts of a repeatable flag. Raises HarnessFault."""
    wrong = [text for text in texts if separator not in text]
    if wrong:
        shape = "'NAME: VALUE'" if separator == ":" else "K=V"
        # The value may be a secret that was mistyped, so it is not repeated.
        raise HarnessFault(
            f"{flag}: {len(wrong)} of {len(texts)} not written as {shape}. Put a {separator!r} between the two"
        )
    return {name.strip(): value.strip() for name, _, value in (text.partition(separator) for text in texts)}


def yaml_values(given: dict[str, str]) -> dict[str, Any]:
    """Options by name; ``audio.frame=20ms`` is ``frame`` inside ``audio``. Raises HarnessFault."""
    from plimsoll.documents.text import plain

    found: dict[str, Any] = {}
    try:
        for name, text in given.items():
            *rooms, last = name.split(".")
            place = found
            for room in rooms:
                inner = place.setdefault(room, {})
                if not isinstance(inner, dict):
                    raise HarnessFault(f"--option {name}: {room} is given a value too. Keep one of the two")
                place = inner
            place[last] = plain(text)
    except ValueError as error:
        raise HarnessFault(f"--option: a value is {error}. Quote it") from None
    return found


def read_as(form: str | None, unit: str | None, columns: list[str] | None) -> dict[str, Any]:
    """The flags on how a recording is read. Raises HarnessFault."""
    return {"format": form, "time_unit": unit, "columns": yaml_values(pairs(columns or [], "=", "--column")) or None}


def paced(options: dict[str, Any], pace: str | None) -> dict[str, Any]:
    """The options with ``--pace`` among them. Raises HarnessFault where they say something else already."""
    if pace is None:
        return options
    audio = options.setdefault("audio", {})
    if not isinstance(audio, dict) or audio.setdefault("pace", pace) != pace:
        raise HarnessFault("--pace and --option audio.pace differ. Keep one of the two")
    return options


def _scenario_of(recording: Path) -> str | None:
    """The scenario that a run left in its directory: target, samples and objectives come from it."""
    if not recording.exists():
        raise HarnessFault(f"{recording}: does not exist. Give a run directory or a trace file")
    written = recording / "scenario.yaml"
    return str(written) if written.is_file() else None
