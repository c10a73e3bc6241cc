"""The command line: verbs over run directories. stdout is the result, stderr is progress and errors.

Exit codes: 0 pass, 1 an objective failed, 2 usage or configuration, 3 inconclusive, 4 invalid run, 5 endpoint
unreachable, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from harness.errors import HarnessFault
from harness.exit_codes import OF_OUTCOME, ExitCode

#: A defect in Plimsoll itself (sysexits.h EX_SOFTWARE): none of the verdicts' codes.
INTERNAL = 70

app = typer.Typer(
    name="plimsoll",
    help="Load testing and SLO conformance for inference endpoints: true latencies, honest verdicts.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
scenarios_app = typer.Typer(help="Ready-made scenarios and the scenario file format.", no_args_is_help=True)
app.add_typer(scenarios_app, name="scenarios")


def _version(value: bool) -> None:
    if value:
        from harness.manifest import package_version

        typer.echo(f"plimsoll {package_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Load testing and SLO conformance for inference endpoints: true latencies, honest verdicts."""


Slo = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="EXPR_OR_FILE",
        help="An objective such as 'p99(ttft) <= 200ms', or a YAML file of objectives. Repeatable; replaces the file's.",
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="F=PATH", help="Also write the report in format F. Repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


@app.command()
def run(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="A scenario file, or the name of a library scenario."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="The endpoint. Without it the bundled reference server is started and stopped."),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="How to talk to it, e.g. openai-chat, kserve-v2, http.")] = None,
    model: Annotated[str | None, typer.Option(help="Model name to ask for.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="single_stream, multi_stream, server, offline or concurrency.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second (server).")] = None,
    arrival: Annotated[str | None, typer.Option(help="poisson, constant, gamma or loadgen (server).")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests kept in flight (concurrency).")] = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Issue for at least this long: 20s, 5m.")] = None,
    queries: Annotated[int | None, typer.Option(metavar="N", help="Issue at least this many queries.")] = None,
    max_duration: Annotated[str | None, typer.Option(metavar="D", help="Stop issuing after this, whatever.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(metavar="N", help="Prompt length.")] = None,
    output_tokens: Annotated[int | None, typer.Option(metavar="N", help="Answer length asked for.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random comes from it.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Load-generating processes.")] = None,
    slo: Slo = None,
    warmup: Annotated[str | None, typer.Option(metavar="D", help="Load before the measured run, not judged.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="D", help="Give a request up after this.")] = None,
    connect_timeout: Annotated[str | None, typer.Option(metavar="D", help="Give a connection up after this.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="Extra header; ${env:NAME} is filled in. Repeatable."),
    ] = None,
    api_key_env: Annotated[str | None, typer.Option(metavar="NAME", help="Variable that holds the API key.")] = None,
    api_key_file: Annotated[str | None, typer.Option(metavar="PATH", help="File that holds the API key.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="K=V", help="A protocol option (V is YAML). Repeatable."),
    ] = None,
    ca_file: Annotated[str | None, typer.Option(metavar="PATH", help="Extra certificate authorities (PEM).")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Don't check the server's certificate.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run directory (default: runs/NAME-TIME).")] = None,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Send load by a scenario, measure, judge, and leave a run directory with report.html."""
    from harness.job import prepare
    from harness.session import run_job

    flags: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "kind": kind, "rate": rate, "arrival": arrival,
        "concurrency": concurrency, "duration": duration, "queries": queries, "max_duration": max_duration,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "seed": seed, "workers": workers,
        "warmup": warmup, "timeout": timeout, "connect_timeout": connect_timeout, "api_key_env": api_key_env,
        "api_key_file": api_key_file, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": _pairs(header or [], ":", "--header") or None,
        "options": _yaml_values(_pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    prepared = prepare(scenario, flags, slo or [], format or [], out)  # type: ignore[arg-type]
    raise typer.Exit(run_job(prepared, as_json=json_))


@app.command()
def gate(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    slo: Slo = None,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Judge a run again, against these objectives or its own, and exit by the verdict. Sends nothing."""
    raise typer.Exit(_judge_again(run_dir, slo or [], format or [], json_))


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    slo: Slo = None,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Recompute a run's report from its records, rewrite report.json and report.html, and print it."""
    _judge_again(run_dir, slo or [], format or [], json_, rewrite=True)


def _judge_again(run_dir: Path, slo: list[str], format_texts: list[str], as_json: bool, rewrite: bool = False) -> int:
    from harness.job import read_formats, read_objectives
    from harness.rundir import open_sealed
    from harness.session import judge, publish

    sealed = open_sealed(run_dir)
    _, objectives, errors = read_objectives(slo or list(sealed.scenario.get("objectives", ())))
    outputs, problems = read_formats(format_texts)
    if errors or problems:
        raise HarnessFault(errors + problems)
    result = judge(sealed, objectives)
    written = publish(result, sealed.directory if rewrite else None, outputs, as_json=as_json)
    if not written:
        raise HarnessFault("not every file could be written (see the warning above). Make room, or name another place")
    return int(OF_OUTCOME[result.verdict.outcome])


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="HTTP port; 0 picks a free one.")] = 8000,
    model: Annotated[list[str] | None, typer.Option(help="llm or scripted. Repeatable.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    preset: Annotated[str | None, typer.Option(help="Size of the llm.")] = None,
    ttft: Annotated[str | None, typer.Option(metavar="D", help="Time to first token (scripted).")] = None,
    itl: Annotated[str | None, typer.Option(metavar="D", help="Time between tokens (scripted).")] = None,
    fault: Annotated[list[str] | None, typer.Option(metavar="NAME[=ARGS]", help="Scripted misfortune.")] = None,
    queue_limit: Annotated[int | None, typer.Option(help="Requests that may wait before 503.")] = None,
    max_batch: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the weights.")] = None,
) -> None:
    """Start the bundled reference server and serve until Ctrl-C."""
    import os

    from harness.bundled import default_model

    arguments = ["--host", host, "--http-port", str(http_port), "--device", device]
    for name in model or [default_model()]:
        arguments += ["--model", name]
    single = {
        "--preset": preset,
        "--ttft": ttft,
        "--itl": itl,
        "--queue-limit": queue_limit,
        "--max-batch": max_batch,
    }
    for flag, value in {**single, "--seed": seed}.items():
        if value is not None:
            arguments += [flag, str(value)]
    for text in fault or []:
        arguments += ["--fault", text]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "reference_server", *arguments])


@scenarios_app.command("list")
def scenarios_list(json_: Json = False) -> None:
    """The ready-made scenarios."""
    from scenarios.spec import library, load

    found = {name: load(name) for name in library()}
    if json_:
        rows = [{"name": name, "kind": s.kind, "description": s.description} for name, s in found.items()]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("name", "kind", "what it is for", box=None)
    for name, item in found.items():
        table.add_row(name, item.kind, item.description)
    Console().print(table)


@scenarios_app.command("show")
def scenarios_show(name: Annotated[str, typer.Argument(help="A library scenario.")], json_: Json = False) -> None:
    """Print a ready-made scenario, to be saved and changed."""
    from scenarios.spec import library, load

    scenario = load(name)  # says what is wrong, and what names there are
    if json_:
        typer.echo(json.dumps(scenario.to_mapping(), indent=1))
    else:
        path = library().get(name, Path(name))
        typer.echo(path.read_text(encoding="utf-8"), nl=False)


@scenarios_app.command("schema")
def scenarios_schema(json_: Json = False) -> None:  # it is JSON either way
    """The JSON schema of scenario files, for editors."""
    from scenarios.spec import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@scenarios_app.command("check")
def scenarios_check(path: Annotated[str, typer.Argument(help="A scenario file.")], json_: Json = False) -> None:
    """Check a scenario file: every error at once; sends nothing."""
    from harness.job import check_file

    scenario = check_file(path)
    plan = scenario.build(len(scenario.source_object()))
    if json_:
        typer.echo(json.dumps({"scenario": scenario.to_mapping(), "plan_fingerprint": plan.fingerprint()}, indent=1))
        return
    what = "a closed loop" if plan.cyclic else f"{plan.n_samples:,} samples in {plan.n_queries:,} queries"
    typer.echo(f"{path}: {scenario.kind}, {what}. Fine")


@app.command()
def calibrate(
    budget: Annotated[str, typer.Option(metavar="D", help="Time to spend, about; 5s to 10m.")] = "30s",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table here, not to the cache.")] = None,
    json_: Json = False,
) -> None:
    """Measure what this machine can do honestly, and write the table that `run` compares its scenarios with."""
    from harness.calibrate import calibrate, parse_budget
    from harness.calibration_view import tables
    from harness.capability import table_path

    path = out or table_path()
    found = calibrate(parse_budget(budget), path, lambda text: print(text, file=sys.stderr))
    if json_:
        typer.echo(found.model_dump_json(indent=1))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=100)
        console.print(*tables(found), f"Written to {path}", sep="\n\n", highlight=False)


@app.command()
def metrics(json_: Json = False) -> None:
    """Every metric with its unit and definition."""
    from slo.indicator import catalogue

    found = catalogue()
    if json_:
        rows = [{"name": m.name, "unit": m.unit, "better": m.better, "formula": m.formula} for m in found.values()]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("metric", "unit", "better", "formula", box=None)
    for item in found.values():
        table.add_row(item.name, item.unit, item.better, item.formula)
    Console().print(table)


@app.command()
def readiness(
    url: Annotated[str, typer.Argument(help="The endpoint.")],
    timeout: Annotated[str, typer.Option(metavar="D", help="Give up after this.")] = "60s",
    json_: Json = False,
) -> None:
    """Wait until an endpoint accepts connections. Exit 0 when it does, 5 when it doesn't in time."""
    from harness.client import Target
    from harness.coordinator import wait_ready
    from scenarios.durations import parse_duration

    try:
        limit_ns = parse_duration(timeout)
    except ValueError as error:
        raise HarnessFault(f"--timeout: {error}") from None
    seconds = asyncio.run(wait_ready(Target(url, "http"), limit_ns / 1e9))
    if json_:
        typer.echo(json.dumps({"url": url, "ready_after_s": seconds}))
    else:
        typer.echo(f"{url} accepted a connection after {seconds:.2f} s")


def _pairs(texts: list[str], separator: str, flag: str) -> dict[str, str]:
    wrong = [text for text in texts if separator not in text]
    if wrong:
        shape = "'NAME: VALUE'" if separator == ":" else "K=V"
        # The value may be a secret that was mistyped, so it is not repeated.
        raise HarnessFault(
            f"{flag}: {len(wrong)} of {len(texts)} not written as {shape}. Put a {separator!r} between the two"
        )
    return {name.strip(): value.strip() for name, _, value in (text.partition(separator) for text in texts)}


def _yaml_values(pairs: dict[str, str]) -> dict[str, Any]:
    import yaml

    try:
        return {name: yaml.safe_load(value) for name, value in pairs.items()}
    except yaml.YAMLError as error:
        raise HarnessFault(f"--option: a value is not YAML ({error}). Quote it") from None


def main() -> None:
    """Entry point of the ``plimsoll`` command: errors become one clear message each and an exit code."""
    from scenarios.errors import ScenarioError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that can't draw boxes still gets its verdict
    try:
        app()
    except ScenarioError as error:
        _complain(error.errors)
        sys.exit(ExitCode.USAGE)
    except HarnessFault as fault:
        _complain(fault.errors)
        sys.exit(fault.code)
    except KeyboardInterrupt:
        _complain(["interrupted"])
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)  # whoever read a listing has had enough of it; verdicts are printed by session.publish
    except Exception:  # noqa: BLE001 - the interpreter's own exit code for this, 1, would say that an objective failed
        traceback.print_exc()
        _complain(["the above is a bug in Plimsoll: please report it with the command you ran"])
        sys.exit(INTERNAL)


def _complain(errors: list[str]) -> None:
    for text in errors:
        print(f"error: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
