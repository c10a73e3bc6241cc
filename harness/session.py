"""One session of the user's: run the job with live progress, judge it, publish the reports, choose the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from harness.accuracy import scores_of
from harness.coordinator import Coordinator, Outcome
from harness.exit_codes import OF_OUTCOME, ExitCode
from harness.foresight import Foreseen, foresee
from harness.job import STDOUT, FormatTarget, Prepared
from harness.progress import LiveDisplay, Progress
from harness.promises import FILE as PROMISES
from harness.promises import Promises, keep
from harness.rundir import RunDirectory, Sealed
from harness.watcher import Watcher
from harness.workforce import Workforce
from reports import report as reporting
from reports.format import formats
from reports.report import Report


def run_job(
    prepared: Prepared, *, as_json: bool, watchers: Sequence[Watcher] = (), workforce: Workforce | None = None
) -> int:
    """Run, judge, publish. Returns the exit code.

    Raises HarnessFault for what went wrong before the first query.
    """
    outcome = carry_out(prepared, watchers=watchers, workforce=workforce)
    result = judge(outcome.sealed, prepared.promises)
    written = publish(result, outcome.sealed.directory, prepared.outputs, as_json=as_json)
    if as_json or not written:
        _notice(Console(stderr=True), f"run directory: {outcome.sealed.directory.path}")
    code = ExitCode.INTERRUPTED if outcome.interrupted else OF_OUTCOME[result.verdict.outcome]
    return int(code) if written or code else int(ExitCode.USAGE)


def carry_out(
    prepared: Prepared, label: str = "", watchers: Sequence[Watcher] = (), workforce: Workforce | None = None
) -> Outcome:
    """Send the load and seal the run directory, with progress on stderr. Judges and prints no result.

    ``label`` stands before the scenario's name in the progress display; ``watchers`` look on besides it; ``workforce`` sends
    (None: processes of this host). Raises HarnessFault for what went wrong before the first query.
    """
    scenario = prepared.job.scenario
    console = Console(stderr=True)
    display = LiveDisplay(console, f"{label}{scenario.name} ({scenario.kind})")
    notice = partial(_notice, console)
    _keep(prepared.promises, prepared.job.directory, notice)
    try:
        # What this host can hold says nothing of the hosts of a fleet.
        foreseen = foresee(prepared.job) if workforce is None else Foreseen((), {})
        for text in foreseen.warnings:
            notice(f"warning: {text}")
        job = replace(prepared.job, foreseen=foreseen.manifest)
        outcome = asyncio.run(Coordinator(job, notice, (Progress(display), *watchers), workforce).run())
    except BaseException:
        _tidy(prepared.job.directory)
        raise
    finally:
        display.close()
    for note in outcome.sealed.notes:
        notice(f"warning: {note}")
    if outcome.sealed.directory != prepared.job.directory:
        _keep(prepared.promises, outcome.sealed.directory, notice)
    return outcome


def _keep(promises: Promises, directory: RunDirectory, notice: Callable[[str], None]) -> None:
    """Before the load: a run that fills the disk has its promises all the same."""
    try:
        keep(promises, directory)
    except OSError as error:
        notice(
            f"warning: the objectives could not be written to {directory.path} ({error.strerror}); give them to gate again"
        )


def _notice(console: Console, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: that must not cost the run
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def judge(sealed: Sealed, promises: Promises) -> Report:
    """The report of a sealed run against these promises."""
    manifest = {**sealed.manifest, "directory": str(sealed.directory.path)}
    return reporting.build(
        manifest,
        sealed.scenario,
        sealed.records,
        sealed.facts,
        promises.objectives,
        promises.confidence,
        slos=promises.slos,
        production_per_s=promises.production_per_s,
        notes=_notes(sealed, promises),
        accuracy=scores_of(sealed.directory),
    )


def _notes(sealed: Sealed, promises: Promises) -> tuple[str, ...]:
    """What the reader should know about the promises: odd places of documents, runs too short for a preset's name."""
    facts, kind = sealed.facts, str(sealed.scenario.get("kind", ""))
    if sealed.scenario.get("mode") == "accuracy":  # it is as long as there are samples
        return promises.notes
    done = facts.planned if kind == "offline" else facts.planned_queries
    return (
        *promises.notes,
        *(text for one in promises.presets for text in one.shortfalls(kind, facts.elapsed_ns, done)),
    )


def publish(result: Report, directory: RunDirectory | None, outputs: Sequence[FormatTarget], *, as_json: bool) -> bool:
    """Write report.json and report.html into the directory, every asked-for format, and the result to stdout.

    False if a file could not be written; a warning names it.
    """
    wanted = [(output.path, output.format) for output in outputs]
    whole = [_write(path, form.render(result)) for path, form in wanted]
    if directory is not None:
        whole.append(write_report(result, directory))
    _say(result, directory if all(whole) else None, as_json)
    return all(whole)


def write_report(result: Report, directory: RunDirectory) -> bool:
    """Write report.json and report.html. False if one could not be written; a warning names it."""
    known = formats()
    written = [_write(directory.file(f"report.{name}"), known[name].render(result)) for name in ("json", "html")]
    return all(written)


def _say(result: Report, directory: RunDirectory | None, as_json: bool) -> None:
    if sys.stdout is None:  # started with it closed
        return
    try:
        _print(result, directory, as_json)
    except OSError as error:  # its reader has had enough, or its disk is full: the verdict's exit code stands
        if not isinstance(error, BrokenPipeError):
            print(f"warning: the result could not be printed ({error.strerror})", file=sys.stderr)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for the interpreter's last flush


def _print(result: Report, directory: RunDirectory | None, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(formats()["json"].render(result).decode())
    else:
        from reports.formats.text import render_terminal

        console = Console()
        if not console.is_terminal:
            console = Console(width=100)  # a log or a pipe has no width of its own
        with console.capture() as printed:  # rich ends the process itself, with 1, when a pipe is closed
            console.print(render_terminal(result, _files(directory), console.width))
        sys.stdout.write(printed.get())
    sys.stdout.flush()


def _files(directory: RunDirectory | None) -> dict[str, str]:
    if directory is None:
        return {}
    return {"Report": str(directory.file("report.html")), "Records": str(directory.path)}


def _write(path: Path, data: bytes) -> bool:
    """A full disk costs the new file, not an older one, nor the result that is still to be printed."""
    partial = path.with_name(path.name + ".partial")
    try:
        if path == STDOUT:
            sys.stdout.write(data.decode("utf-8", "replace"))
            sys.stdout.flush()
            return True
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe
            return True
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        print(
            f"warning: {path} could not be written ({error.strerror}); free some space and run `plimsoll report`",
            file=sys.stderr,
        )
        return False
    return True


def _tidy(directory: RunDirectory) -> None:
    """Nothing was measured: leave no empty run directory behind, but keep a log that says something."""
    for log in (directory.worker_log, directory.server_log):
        if log.exists() and not log.stat().st_size:
            log.unlink()
    if not any(directory.segments.glob("*")):
        directory.file(PROMISES).unlink(missing_ok=True)
    try:
        directory.segments.rmdir()
        directory.path.rmdir()
    except OSError:
        return  # it holds something: that is the user's to read
