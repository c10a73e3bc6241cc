"""``plimsoll replay``: the load of a run, or of a trace file, once more. A short way to write ``run --kind replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags as shared
from plimsoll.harness.verbs.flags import Confidence, FormatOption, Goodput, Json, PresetOption, ProductionRate, Slo


def replay(
    recording: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_TRACE", help="A run directory, or a trace file (Mooncake, Azure, JSONL, CSV)."),
    ],
    speed: Annotated[float | None, typer.Option(help="So many times as fast as it was recorded.")] = None,
    window: Annotated[str | None, typer.Option(metavar="A..B", help="Only this part of it: 10m..20m.")] = None,
    max_queries: Annotated[int | None, typer.Option(metavar="N", help="Only its first N queries.")] = None,
    url: Annotated[str | None, typer.Option(help="The endpoint. Default: the run's; else the bundled server.")] = None,
    protocol: Annotated[str | None, typer.Option(help="How to talk to it. Default: as the run did.")] = None,
    model: Annotated[str | None, typer.Option(help="Model name to ask for. Default: the run's.")] = None,
    option: shared.ProtocolOption = None,
    workers: shared.Workers = None,
    retries: shared.Retries = None,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run directory (default: runs/NAME-TIME).")] = None,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Repeat a recording: the same times (and lengths, or samples), faster if asked."""
    from plimsoll.harness.run.job import one_on_stdout, prepare
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.one_run import run_job
    from plimsoll.harness.verbs.run import pairs, staff_of, yaml_values

    base = _scenario_of(Path(recording))
    flags: dict[str, Any] = {
        "kind": "replay", "trace": str(Path(recording).resolve()), "speed": speed, "window": window,
        "max_queries": max_queries, "url": url, "protocol": protocol, "model": model, "workers": workers,
        "retries": retries, "warmup": warmup, "timeout": timeout,
        "options": yaml_values(pairs(option or [], "=", "--option")) or None,
    }  # fmt: skip
    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    staff, problems = staff_of(live, locust_master, expect_workers, locust_wait, locust_web)
    if problems := [*one_on_stdout(format or [], json_), *problems]:
        raise HarnessFault(problems)
    prepared = prepare(base, flags, asked, format or [], out)  # type: ignore[arg-type]
    raise typer.Exit(run_job(prepared, as_json=json_, staff=staff))


def _scenario_of(recording: Path) -> str | None:
    """The scenario that a run left in its directory: target, samples and objectives come from it."""
    if not recording.exists():
        raise HarnessFault(f"{recording}: does not exist. Give a run directory or a trace file")
    written = recording / "scenario.yaml"
    return str(written) if written.is_file() else None


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command()(replay)
