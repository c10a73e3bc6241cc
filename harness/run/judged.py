"""A sealed run and its verdict: judge it, publish the report, choose the exit code. Nothing is sent here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.host.manifest import absent
from plimsoll.harness.process import outlet, writing
from plimsoll.harness.process.writing import Output, formats_of
from plimsoll.harness.run import originals, retention
from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed, away, make_room
from plimsoll.reports import report as reporting
from plimsoll.reports.documents.words import verdict_line
from plimsoll.reports.format import formats, unusable
from plimsoll.reports.parts.provenance import attempts_part
from plimsoll.reports.report import Report
from plimsoll.scenarios.text.fields import sampled
from plimsoll.slo.judge import judge as slo_judge
from plimsoll.slo.verdict.accuracy import Scores


def conclude(sealed: Sealed, promises: Promises, by: Sequence[str] = ()) -> Report:
    """``judge`` a run by the promises that it was made with, and then drop what it was told not to keep."""
    report, keep = judge(sealed, promises, by), str(sealed.scenario.get("keep", "all"))
    records, path = sealed.records, sealed.directory.path
    if sealed.kept is not None:
        with contextlib.suppress(OSError):
            retention.forget(path)  # killed as it did so, or on a disk that took no more
    if keep == "all" or sealed.kept is not None or not sealed.whole or sealed.facts.plan_faults:
        return report
    try:
        sampled(keep)
    except ValueError as error:
        raise HarnessFault(f"{path}: scenario.yaml is damaged or from another version (keep: {error})") from None
    kept = retention.rows_to_keep(keep, records, promises, int(sealed.manifest["seed"]))
    said = retention.stated(keep, records, kept)
    result = report.model_copy(update={"run": report.run.model_copy(update={"kept": said})})
    document = {"facts": sealed.facts.to_json(), "promises": promises.to_json(), "report": result.document()}
    try:
        if sealed.scenario.get("mode") == "accuracy":
            from plimsoll.harness.generator.outputs import leave

            leave(path / retention.ANSWERS, path, records.select(kept & records.in_measure))
        retention.drop(path, records, kept, document)
    except OSError as error:
        with contextlib.suppress(OSError):
            (path / retention.ANSWERS).unlink(missing_ok=True)
        note = f"keep {keep}: everything is still there, because {path} takes no files ({error.strerror})"
        return report.model_copy(update={"warnings": [*report.warnings, note]})
    with contextlib.suppress(OSError):
        retention.forget(path)
    return result


def judge(sealed: Sealed, promises: Promises, by: Sequence[str] = ()) -> Report:
    """The report of a sealed run against these promises, split ``by`` labels. Raises HarnessFault for one that what was
    dropped decides.
    """
    if (kept := sealed.kept) is None:
        return _judged(sealed, promises, by)
    if untold := [label for label in by if label not in (kept.report.by or {})]:
        raise HarnessFault(
            f"--by {', '.join(untold)}: {sealed.directory.path} dropped times that figures are of, and was not told "
            "apart so before. Leave --by out, or measure with --keep all"
        )
    same = kept.judged_by(sealed.facts.to_json())
    if same and kept.promises == promises.to_json():
        return _as_stored(kept.report, sealed)
    if "left" in sealed.manifest:
        raise away(sealed.directory.path, sealed.manifest)
    if not same:
        fault = f"{retention.FILE} was made from another generator.json or other rows than are here"
        sealed = replace(sealed, facts=replace(sealed.facts, plan_faults=(*sealed.facts.plan_faults, fault)))
    elif errors := retention.limits_lost(promises, kept):
        raise HarnessFault([f"{sealed.directory.path}: {text}" for text in errors])
    return retention.completed(_judged(sealed, promises), promises, kept)


def _as_stored(report: Report, sealed: Sealed) -> Report:
    """The report, of the folder in which the run and its earlier attempts are now."""
    attempts = attempts_part(sealed.manifest, report.verdict.outcome, report.verdict.reasons)
    run = report.run.model_copy(update={"directory": str(sealed.directory.path)})
    return report.model_copy(update={"run": run, "attempts": attempts})


def _judged(sealed: Sealed, promises: Promises, by: Sequence[str] = ()) -> Report:
    manifest = {**sealed.manifest, "directory": str(sealed.directory.path)}
    told = replace(promises, notes=notes(sealed, promises))
    with contextlib.suppress(OSError):
        make_room(sealed.directory.path)  # a run is sealed in a task of its own
    served, fault = None, None
    if any((sealed.directory.path / name).is_file() for name in ("server.samples", "server.parquet")):
        from plimsoll.harness.sealing.samples_file import server_of  # what reads series, which hardly any run has

        served, fault = server_of(sealed.directory.path, manifest)
    told = told if fault is None else replace(told, notes=(*told.notes, fault))
    judged = slo_judge(
        sealed.records, sealed.facts, told, _scores(sealed), retention.merged(sealed.kept), sealed.classes, served
    )
    recorded = originals.load(sealed.directory.path)
    report = reporting.build(manifest, sealed.scenario, sealed.records, judged, recorded, by)
    return exiting(report, OF_OUTCOME[report.verdict.outcome])


def _scores(sealed: Sealed) -> Scores | None:
    if sealed.scenario.get("mode") != "accuracy":
        return None
    from plimsoll.harness.generator.outputs import scores_of  # what reads answers, which no other run keeps

    return scores_of(sealed.directory.path)


def exiting(report: Report, code: int) -> Report:
    """The same report, with this exit code."""
    return report.model_copy(update={"exit_code": int(code)})


def notes(sealed: Sealed, promises: Promises) -> tuple[str, ...]:
    """What the reader should know about the promises: odd places of documents, runs too short for a preset's name."""
    facts, kind = sealed.facts, str(sealed.scenario.get("kind", ""))
    if sealed.scenario.get("mode") == "accuracy":  # it is as long as there are samples
        return (*promises.notes, *absent(sealed.manifest))
    done = facts.planned if kind == "offline" else facts.planned_queries
    return (
        *promises.notes,
        *absent(sealed.manifest),
        *(text for one in promises.presets for text in one.shortfalls(kind, facts.elapsed_ns, done)),
    )


def read_formats(texts: Sequence[str]) -> tuple[tuple[Output, ...], list[str]]:
    """The ``--format`` flags of one run, and every error in them."""
    known = {name: partial(_rendered, name) for name in formats()}
    return formats_of(texts, known, unusable=unusable(texts))


def _rendered(name: str, result: Report) -> bytes:
    """The report in one format, which is loaded only now."""
    return formats()[name].render(result)


def publish(
    result: Report,
    directory: RunDirectory | None,
    outputs: Sequence[Output],
    *,
    as_json: bool,
    quiet: bool = False,
    unwritten: int = ExitCode.USAGE,
) -> bool:
    """Write report.json and report.html into the directory, every asked-for format, and the result (``quiet``: one
    line) to stdout.

    False if a file could not be written; a warning names it, and ``unwritten`` is then the exit code that is printed.
    """
    whole = [_write(output.path, partial(output.render, result)) for output in outputs]
    if directory is not None:
        whole.append(write_report(result, directory))
    if not all(whole):
        result = exiting(result, unwritten)
    if as_json:
        outlet.say(_rendered("json", result).decode())
    elif quiet:
        outlet.say(f"{verdict_line(result)}\n")
    else:
        from plimsoll.reports.documents.run import render_terminal

        files = _files(directory if all(whole) else None)
        outlet.draw(lambda width: render_terminal(result, files, width))
    return all(whole)


def write_report(result: Report, directory: RunDirectory) -> bool:
    """Write report.json and report.html. False if one could not be written; a warning names it."""
    writing.tidy(directory.path)
    written = [
        _write(directory.file(f"report.{name}"), partial(_rendered, name, result), False) for name in ("json", "html")
    ]
    return all(written)


def _files(directory: RunDirectory | None) -> dict[str, str]:
    if directory is None:
        return {}
    return {"Report": str(directory.file("report.html")), "Records": str(directory.path)}


def _write(path: Path, made: Callable[[], bytes], named: bool = True) -> bool:
    return writing.result(path, made, "free some space and run `plimsoll report`", named=named)
