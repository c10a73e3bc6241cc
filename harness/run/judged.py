"""A sealed run and its verdict: judge it, publish the report, choose the exit code. Nothing is sent here."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.host.manifest import absent
from plimsoll.harness.process import outlet, writing
from plimsoll.harness.process.writing import Output, formats_of
from plimsoll.harness.run import mixture, originals, retention
from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed, away, make_room
from plimsoll.reports import report as reporting
from plimsoll.reports.documents.words import verdict_line
from plimsoll.reports.format import formats, unusable
from plimsoll.reports.parts.provenance import attempts_part
from plimsoll.reports.report import Report
from plimsoll.scenarios.text.fields import sampled
from plimsoll.slo.judge import judge as slo_judge
from plimsoll.slo.objectives.objective import ObjectiveError
from plimsoll.slo.verdict.accuracy import Scores, joined
from plimsoll.slo.verdict.hops import Hop, parse_hops


def conclude(sealed: Sealed, promises: Promises, by: Sequence[str] = ()) -> Report:
    """``judge`` a run by the promises that it was made with, and then drop what it was told not to keep."""
    report, keep = judge(sealed, promises, by), str(sealed.scenario.get("keep", "all"))
    records, path = sealed.records, sealed.directory.path
    if sealed.kept is not None:
        with contextlib.suppress(OSError):
            retention.forget(*_folders(sealed))  # killed as it did so, or on a disk that took no more
    if keep == "all" or sealed.kept is not None or not sealed.whole or sealed.facts.plan_faults:
        return report
    try:
        sampled(keep)
    except ValueError as error:
        raise HarnessFault(f"{path}: scenario.yaml is damaged or from another version (keep: {error})") from None
    kept = retention.rows_to_keep(keep, records, promises, int(sealed.manifest["seed"]))
    said = retention.stated(keep, records, kept)
    result = report.model_copy(update={"run": report.run.model_copy(update={"kept": said})})
    document = {"facts": _facts(sealed), "promises": promises.to_json(), "report": result.document()}
    try:
        for folder, first in _answered(sealed).items():
            from plimsoll.harness.generator.outputs import leave

            leave(folder / retention.ANSWERS, folder, records.select(kept & records.in_measure), first)
        retention.drop(path, records, kept, document)
    except OSError as error:
        with contextlib.suppress(OSError):
            for folder in _answered(sealed):
                (folder / retention.ANSWERS).unlink(missing_ok=True)
        note = f"keep {keep}: everything is still there, because {path} takes no files ({error.strerror})"
        return report.model_copy(update={"warnings": [*report.warnings, note]})
    with contextlib.suppress(OSError):
        retention.forget(*_folders(sealed))
    return result


def _facts(sealed: Sealed) -> dict[str, object]:
    """What its verdict is made by, beside the rows; of a mix, of each class."""
    classes = {name: one.to_json() for name, one in sealed.classes.items()}
    return {**sealed.facts.to_json(), **({"classes": classes} if classes else {})}


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
    same = kept.judged_by(_facts(sealed))
    if same and kept.promises == promises.to_json():
        return _as_stored(kept.report, sealed)
    if "left" in sealed.manifest:
        raise away(sealed.directory.path, sealed.manifest)
    if not same:
        fault = f"{retention.FILE} was made from another generator.json or other rows than are here"
        classes = {name: replace(one, plan_faults=(*one.plan_faults, fault)) for name, one in sealed.classes.items()}
        facts = replace(sealed.facts, plan_faults=(*sealed.facts.plan_faults, fault))
        sealed = replace(sealed, facts=facts, classes=classes)
    elif errors := retention.limits_lost(promises, kept):
        raise HarnessFault([f"{sealed.directory.path}: {text}" for text in errors])
    return retention.completed(_judged(sealed, promises), promises, kept)


def _as_stored(report: Report, sealed: Sealed) -> Report:
    """The report, of the folder in which the run and its earlier attempts are now."""
    attempts = attempts_part(sealed.manifest, report.verdict.outcome, report.verdict.reasons)
    run = report.run.model_copy(update={"directory": str(sealed.directory.path)})
    return report.model_copy(update={"run": run, "attempts": attempts})


def without_copies(sealed: Sealed) -> Sealed:
    """What the verdict is about: a run without the classes that were sent beside the others."""
    copies = {name for name, one in (sealed.scenario.get("mix") or {}).items() if one.get("copied")}
    judged = {name: facts for name, facts in sealed.classes.items() if name not in copies}
    if not judged or len(judged) == len(sealed.classes):
        return sealed
    rows = mixture.only(sealed.records, tuple(judged))
    facts = mixture.facts_of(judged) if len(judged) > 1 else next(iter(judged.values()))
    return replace(sealed, records=rows, facts=facts, classes=judged if len(judged) > 1 else {})


def _judged(sealed: Sealed, promises: Promises, by: Sequence[str] = ()) -> Report:
    manifest = {**sealed.manifest, "directory": str(sealed.directory.path)}
    told = replace(promises, notes=notes(sealed, promises), hops=_hops(sealed))
    with contextlib.suppress(OSError):
        make_room(sealed.directory.path)  # a run is sealed in a task of its own
    served, fault = None, None
    if any((sealed.directory.path / name).is_file() for name in ("server.samples", "server.parquet")):
        from plimsoll.harness.sealing.samples_file import server_of  # what reads series, which hardly any run has

        served, fault = server_of(sealed.directory.path, manifest)
    told = told if fault is None else replace(told, notes=(*told.notes, fault))
    heard = without_copies(sealed)
    records = heard.told_apart
    judged = slo_judge(
        records, heard.facts, told, _scores(sealed), retention.merged(sealed.kept), heard.classes, served,
        _moments(sealed),
    )  # fmt: skip
    recorded = originals.load(sealed.directory.path)
    report = reporting.build(manifest, sealed.scenario, records, judged, recorded, by)
    return exiting(report, OF_OUTCOME[report.verdict.outcome])


def _moments(sealed: Sealed) -> dict[str, int]:
    """What a recovery may be counted from, in ns from t0: events, as they began, and phases, as they ended."""
    happened = {str(one["name"]): int(one["begun_ns"]) for one in sealed.manifest.get("events") or ()}
    told = sealed.manifest.get("phases") or ()
    ended = {str(name): int(end) for (name, _), (_, end) in itertools.pairwise(told) if name}
    return {name: at for name, at in happened.items() if at >= 0} | {
        name: at for name, at in ended.items() if name not in happened
    }


def _hops(sealed: Sealed) -> tuple[Hop, ...]:
    try:
        return parse_hops(sealed.scenario.get("budget") or {})
    except (ObjectiveError, TypeError, AttributeError) as error:
        where = f"{sealed.directory.path}: scenario.yaml is damaged or from another version"
        raise HarnessFault(f"{where} ({str(error)[:200]})") from None


def _scores(sealed: Sealed) -> Scores | None:
    folders = _answered(sealed)
    if not folders:
        return None
    from plimsoll.harness.generator.outputs import scores_of  # what reads answers, which no other run keeps

    found = [(first, scores_of(folder)) for folder, first in folders.items()]
    known = [replace(one, keys=one.keys + np.array([first, 0])) for first, one in found if one and one.keys is not None]
    return joined(known) if known else None


def _folders(sealed: Sealed) -> tuple[Path, ...]:
    """Its own, and of a mix those of its classes."""
    path = sealed.directory.path
    return path, *(path / mixture.FOLDER / name for name in sealed.classes)


def _answered(sealed: Sealed) -> dict[Path, int]:
    """Where its answers are, of a mix those of each class that keeps any, and what ids of queries begin at there."""
    path, modes = sealed.directory.path, [(None, sealed.scenario)]
    if sealed.classes:
        modes = [(name, {**sealed.scenario, **one}) for name, one in sealed.scenario["mix"].items()]
    return {
        path if name is None else path / mixture.FOLDER / name: place * mixture.IDS
        for place, (name, one) in enumerate(modes)
        if one.get("mode") == "accuracy" or one.get("answers")
    }


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


def _rendered(name: str, result: Report, sealed: Sealed | None = None) -> bytes:
    """The report in one format, which is loaded only now."""
    one = formats()[name]
    if one.rows is not None and sealed is not None:
        return one.rows(result, sealed.records, sealed.manifest)
    return one.render(result)


def publish(
    result: Report,
    directory: RunDirectory | None,
    outputs: Sequence[Output],
    *,
    as_json: bool,
    quiet: bool = False,
    unwritten: int = ExitCode.USAGE,
    sealed: Sealed | None = None,
) -> bool:
    """Write report.json and report.html into the directory, every asked-for format, and the result (``quiet``: one
    line) to stdout. ``sealed``: the run, for formats that show its rows.

    False if a file could not be written; a warning names it, and ``unwritten`` is then the exit code that is printed.
    """
    whole = [_write(output.path, partial(output.render, result, sealed)) for output in outputs]
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
