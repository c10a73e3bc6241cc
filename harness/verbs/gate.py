"""``plimsoll gate`` and ``plimsoll report``: judge a run directory again. Both send nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.flags import (
    By,
    Confidence,
    ExitMap,
    FormatOption,
    Goodput,
    Json,
    PresetOption,
    ProductionRate,
    Quiet,
    Slo,
    leave,
)

if TYPE_CHECKING:
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.run.rundir import Sealed


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
    exit_map: ExitMap = None,
) -> None:
    """Judge a run again, against these objectives or its own, and exit by the verdict. Sends nothing."""
    from plimsoll.harness.run.promises import Asked

    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    raise leave(_judge_again(run_dir, asked, format or [], json_, quiet=quiet), exit_map)


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="A run directory; with --agent-folder more folders of agents may follow."),
    ] = None,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    format: FormatOption = None,
    json_: Json = False,
    quiet: Quiet = False,
    by: By = None,
    trace_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Link the slowest requests to their traces: http://jaeger:16686/trace/{trace_id}. Default: what the "
            "run was told (--option trace_url=URL).",
        ),
    ] = None,
    spans: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Take the stages of requests from the spans of their traces: OTLP in JSON, as an OpenTelemetry "
            "collector's file exporter writes it, packed by gzip or not. Repeatable.",
        ),
    ] = None,
    budget: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A latency budget by hop instead of the scenario's own: hops in YAML."),
    ] = None,
    agent_folder: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Add the rows that an agent kept in this folder (run --leave-rows, or its master was gone), without "
            "a RUN to a new one. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The new run directory. Default: runs/agents-ID.")
    ] = None,
) -> None:
    """Recompute a run's report from its records, rewrite report.json and report.html, and print it. Seals a run that
    was cut off.
    """
    from plimsoll.harness.run.promises import Asked

    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    run_dir = _the_run(runs or [], agent_folder or [], out)
    labels = [label.strip() for label in by.split(",")] if by is not None else []
    _judge_again(
        run_dir,
        asked,
        format or [],
        json_,
        rewrite=True,
        quiet=quiet,
        by=labels,
        trace_url=trace_url,
        spans=spans or [],
        budget=budget,
    )


def _the_run(runs: list[Path], agent_folders: list[Path], out: Path | None) -> Path:
    """The run directory that is meant, with what agents hold brought into it. Raises HarnessFault."""
    if not agent_folders:
        if len(runs) != 1:
            raise HarnessFault(
                f"RUN: give one run directory, not {len(runs)}. Several are compared by `plimsoll compare`"
            )
        if out is not None:
            raise HarnessFault("--out: only --agent-folder makes a run directory")
        return runs[0]
    from plimsoll.harness.run.salvage import agents_among, gathered

    more, own = agents_among(runs)
    if len(own) > 1:
        raise HarnessFault(
            f"RUN: {', '.join(map(str, own))}: give one run directory, the master's, and folders of its agents"
        )
    return gathered(own[0] if own else None, [*agent_folders, *more], out)


def _judge_again(
    run_dir: Path,
    asked: Asked,
    format_texts: list[str],
    as_json: bool,
    rewrite: bool = False,
    quiet: bool = False,
    by: Sequence[str] = (),
    trace_url: str | None = None,
    spans: Sequence[Path] = (),
    budget: Path | None = None,
) -> int:
    from plimsoll.harness.process.writing import one_on_stdout
    from plimsoll.harness.run.job import traces_error
    from plimsoll.harness.run.judged import conclude, judge, publish, read_formats
    from plimsoll.harness.run.promises import again, kept
    from plimsoll.harness.run.salvage import open_run

    sealed = open_run(run_dir, left=True)
    for note in sealed.notes:
        print(f"warning: {note}", file=sys.stderr)
    promises, errors = again(asked, sealed)
    outputs, problems = read_formats(format_texts)
    problems += one_on_stdout(format_texts, as_json, quiet)
    problems += _unknown(by, sealed)
    if trace_url is not None:
        problems += [f"--trace-url: {error}"] if (error := traces_error(trace_url)) else []
        if "traceparent" not in sealed.manifest:
            problems.append(f"--trace-url: requests of {run_dir} carried no trace context. Leave it out")
    if spans:
        sealed, wrong = _told_by(spans, sealed)
        problems += wrong
    if budget is not None:
        sealed, wrong = _with_budget(budget, sealed)
        problems += wrong
    if errors or problems:
        raise HarnessFault(errors + problems)
    if not rewrite and not (promises.slos or any(one.scope == "run" for one in promises.objectives)):
        raise HarnessFault(f"{run_dir}: no objective to judge by, neither here nor in the run. Give --slo or --preset")
    own = rewrite and not asked.any_objective and promises.to_json() == kept(sealed).to_json()
    result = (conclude if own else judge)(sealed, promises, by)
    if trace_url is not None:
        result = result.model_copy(update={"slowest": result.slowest.model_copy(update={"trace_url": trace_url})})
    written = publish(
        result, sealed.directory if rewrite else None, outputs, as_json=as_json, quiet=quiet, sealed=sealed
    )
    if not written:
        raise HarnessFault("not every file could be written (see above). Make room, or name another place")
    return result.exit_code or 0


def _with_budget(file: Path, sealed: Sealed) -> tuple[Sealed, list[str]]:
    """The run with the hops of a file, which may be a scenario's, and what is wrong with them."""
    from plimsoll.documents.text import written
    from plimsoll.slo.objectives.objective import ObjectiveError, read_text
    from plimsoll.slo.verdict.hops import parse_hops

    try:
        documents = list(written(read_text(file)))
        errors = [f"{file}:{one.line}: {one.what}" for found in documents for one in found.errors]
        value = documents[0].value if len(documents) == 1 else None
        hops = value.get("budget", value) if isinstance(value, dict) else None
        if not errors and not (isinstance(hops, dict) and hops and not any(map(_nested, hops.values()))):
            errors = [f"{file}: no hops. Write each with its limit, such as queue: 20ms"]
        if errors or not isinstance(hops, dict):
            return sealed, [f"--budget {text}" for text in errors]
        parse_hops(hops)
    except ObjectiveError as error:
        return sealed, [f"--budget {text if str(file) in text else f'{file}: {text}'}" for text in error.errors]
    return replace(sealed, scenario={**sealed.scenario, "budget": hops}), []


def _nested(value: object) -> bool:
    return isinstance(value, dict | list)


def _told_by(spans: Sequence[Path], sealed: Sealed) -> tuple[Sealed, list[str]]:
    """The run with the stages that spans tell, of a trace those of all files, and what is wrong with them."""
    from plimsoll.documents import files
    from plimsoll.reports.wording.units import many
    from plimsoll.slo.records.spans import Span, SpansError, joined, read
    from plimsoll.slo.records.trace_ids import TraceIds

    ids, where = TraceIds.told(sealed.manifest), f"--spans {' '.join(map(str, spans))}"
    if ids is None:
        return sealed, [f"{where}: requests of {sealed.directory.path} carried no trace context. Leave it out"]
    traces, wrong = dict[str, list[Span]](), []
    for path in spans:
        try:
            for trace, found in read(files.read_bytes(path)).items():
                traces.setdefault(trace, []).extend(found)
        except OSError as error:
            wrong.append(f"--spans {path}: it can't be read ({files.why(error)}). Name a file of OTLP traces in JSON")
        except SpansError as error:
            wrong.append(f"--spans {path}: {error}")
    if wrong:
        return sealed, wrong
    records, n, late = joined(sealed.records, ids, traces)
    if not n:
        return sealed, [
            f"{where}: {many(len(traces), 'trace')}, and none is of a request of {sealed.directory.path}. Take the "
            f"spans of this run's time, and sample more of them (--option traceparent=100%)"
        ]
    more = f"; {late} spans began after their request's answer and are no stages of it" if late else ""
    print(f"{where}: stages of {n} of {int(records.planned.sum())} requests{more}", file=sys.stderr)
    return replace(sealed, records=records), []


def _unknown(by: Sequence[str], sealed: Sealed) -> list[str]:
    """Labels that no row has."""
    from plimsoll.slo.objectives.selector import OF_ROWS, has

    records = sealed.told_apart
    named = () if records.labels is None else records.labels.columns
    there = [*(label for label in named if has(label, records)), *OF_ROWS]
    return [
        f"--by {label or 'nothing'}: no row of {sealed.directory.path} has this label. There are {', '.join(there)}"
        for label in by
        if label not in OF_ROWS and not has(label, records)
    ]
