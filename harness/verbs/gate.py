"""``plimsoll gate`` and ``plimsoll report``: judge a run directory again. Both send nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import HarnessFault
from harness.verbs.flags import Confidence, FormatOption, Goodput, Json, PresetOption, ProductionRate, Quiet, Slo

if TYPE_CHECKING:
    from harness.promises import Asked


def gate(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    format: FormatOption = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge a run again, against these objectives or its own, and exit by the verdict. Sends nothing."""
    from harness.promises import Asked

    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    raise typer.Exit(_judge_again(run_dir, asked, format or [], json_, quiet=quiet))


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    format: FormatOption = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Recompute a run's report from its records, rewrite report.json and report.html, and print it."""
    from harness.promises import Asked

    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    _judge_again(run_dir, asked, format or [], json_, rewrite=True, quiet=quiet)


def _judge_again(
    run_dir: Path, asked: Asked, format_texts: list[str], as_json: bool, rewrite: bool = False, quiet: bool = False
) -> int:
    from harness.job import one_on_stdout, read_formats
    from harness.promises import again
    from harness.rundir import open_sealed
    from harness.session import judge, publish

    sealed = open_sealed(run_dir)
    promises, errors = again(asked, sealed)
    outputs, problems = read_formats(format_texts)
    problems += one_on_stdout(format_texts, as_json, quiet)
    if errors or problems:
        raise HarnessFault(errors + problems)
    if not rewrite and not (promises.slos or any(one.scope == "run" for one in promises.objectives)):
        raise HarnessFault(f"{run_dir}: no objective to judge by, neither here nor in the run. Give --slo or --preset")
    result = judge(sealed, promises)
    written = publish(result, sealed.directory if rewrite else None, outputs, as_json=as_json, quiet=quiet)
    if not written:
        raise HarnessFault("not every file could be written (see the warning above). Make room, or name another place")
    return result.exit_code or 0


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command()(gate)
    app.command()(report)
