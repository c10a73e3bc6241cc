"""What the arguments of a comparison name, as arms: a run directory, a folder or glob of them, an interleaved
comparison, or a baseline file.

Refused are runs of one argument that are no replications of each other, the same run twice, and sides whose loads
differ; other hosts are told. Runs that are INVALID or full of failures stay in: leaving them out is how a comparison is
made to lie.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import kept
from plimsoll.harness.run.retention import lost
from plimsoll.harness.run.rundir import Sealed
from plimsoll.harness.run.salvage import is_run, open_run
from plimsoll.harness.series.comparison import baseline, interleave
from plimsoll.harness.series.comparison.baseline import Likeness, likeness
from plimsoll.harness.series.comparison.interleave import Interleaving
from plimsoll.harness.series.ledger import differences
from plimsoll.slo.comparison.arms import Arm, Reading, RunSample, sample
from plimsoll.slo.comparison.quantity import Quantity
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import Records
from plimsoll.slo.validity.mixed import assess_run

if TYPE_CHECKING:
    from plimsoll.slo.server.server_side import ServerSide


@dataclass(frozen=True, slots=True)
class Found:
    """One run directory on disk, or (``folder`` None) a run that could not be made: ``error`` says why."""

    folder: Path | None
    pair: int | None = None
    error: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One argument: its runs on disk, or a baseline file."""

    name: str
    runs: tuple[Found, ...] = ()
    baseline: baseline.Baseline | None = None
    level: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """One side, measured: the arm, what its runs were asked to do, and the limits that make a request good.

    ``started_ns``: when each run that was made began, on the wall clock; empty for a baseline file.
    """

    arm: Arm
    likenesses: tuple[Likeness, ...]
    limits: tuple[str, ...]
    started_ns: tuple[int, ...] = ()


def find(texts: Sequence[str]) -> tuple[Side, ...]:
    """The sides that the arguments name, base first. Raises HarnessFault with every error."""
    if len(texts) == 1 and (Path(texts[0]) / interleave.FILE).is_file():
        return of_interleaving(Path(texts[0]))
    errors: list[str] = []
    sides: list[Side] = []
    for text in texts:
        try:
            sides.append(_side(text))
        except HarnessFault as fault:
            errors += fault.errors
    names = [side.name for side in sides]
    for position, side in enumerate(sides):
        if names.count(side.name) > 1:  # two folders of one name: the whole text tells them apart
            sides[position] = Side(texts[position], side.runs, side.baseline)
    if errors:
        raise HarnessFault(errors)
    return tuple(sides)


def of_interleaving(out: Path, level: str = "", plan: Interleaving | None = None) -> tuple[Side, ...]:
    """The arms of an ``interleave.json`` (or of ``plan``), at one of its loads.

    Raises HarnessFault where no round is whole.
    """
    plan = plan or interleave.read(out)
    loads = [str(one.get("label", "")) for one in plan.levels]
    if not level and any(loads):
        raise HarnessFault(
            f"{out}: it is a bake-off at the loads {', '.join(loads)}. Judge it with `plimsoll bakeoff FILE --again "
            f"--out {out}`, or compare two arms at one load: '{out}/runs/*-{plan.names[0]}-{loads[0]}'"
        )
    slots = [slot for slot in plan.slots if slot.level == level]
    missing = sum(1 for slot in slots if slot.state == "pending")
    whole = [n for n in range(1, plan.repeats + 1) if all(s.state != "pending" for s in slots if s.round == n)]
    if not whole:
        raise HarnessFault(f"{out}: no round is complete, {missing} of {len(slots)} runs are to be made. Add --resume")
    sides: list[Side] = []
    for name in plan.names:
        # A round that was cut short would give one arm more runs than the other: only whole rounds count.
        own = [slot for slot in slots if slot.arm == name and slot.round in whole]
        found = [
            Found(out / slot.folder, slot.round, name=slot.folder)
            if slot.state == "done"
            else Found(None, slot.round, slot.error, slot.folder)
            for slot in own
        ]
        sides.append(Side(name, tuple(found), level=level))
    return tuple(sides)


def _side(text: str) -> Side:
    name, equals, rest = text.partition("=")
    named = equals and "/" not in name and not Path(text).exists()
    if named and (not name.strip() or not name.isprintable()):
        raise HarnessFault(
            f"{text!r}: the name before = is empty or can't be printed. Write NAME=RUNS, or leave it out"
        )
    path_text = rest if named else text
    path = Path(path_text).expanduser()
    label = name if named else path.name or str(path)
    if path.is_file():
        if not baseline.is_baseline(path):
            raise HarnessFault(f"{text}: this file is no baseline. Give a run directory, or what --save-baseline wrote")
        found = baseline.load(path)
        return Side(name if named else found.arm.name, baseline=found)
    for whole in (path, path.parent) if path.name == "runs" else (path,):
        if (whole / interleave.FILE).is_file():
            arms = ", ".join(interleave.read(whole).names)
            raise HarnessFault(
                f"{text}: it holds the arms {arms}. Give {whole} alone, or one arm: '{whole}/runs/*-NAME'"
            )
    folders = _folders(path) if path.is_dir() else _globbed(path_text)
    if not folders:
        what = "there is no such run" if not path.is_dir() else "it holds no run directory"
        raise HarnessFault(
            f"{text}: {what}. Give what `plimsoll run` printed, a folder of such, a glob in quotes or a baseline"
        )
    if not named and glob.has_magic(label):
        label = label.strip("*?-_.[]") or path_text
    return Side(label, tuple(Found(folder, name=folder.name) for folder in folders))


def _folders(path: Path) -> list[Path]:
    if is_run(path):
        return [path]
    return _by_start(child for child in path.iterdir() if is_run(child))


def _globbed(pattern: str) -> list[Path]:
    # Path.glob takes no pattern that begins at the root.
    matches = [Path(found) for found in sorted(glob.glob(str(Path(pattern).expanduser())))]  # noqa: PTH207
    return _by_start(run for match in matches if match.is_dir() for run in _folders(match))


def _by_start(folders: object) -> list[Path]:
    def started(folder: Path) -> tuple[int, str]:
        try:
            return int(json.loads(files.read_bytes(folder / "manifest.json"))["t0_wall_ns"]), str(folder)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0, str(folder)  # it is read again, and complained about, when it is opened

    return sorted(folders, key=started)  # type: ignore[call-overload,no-any-return]


def read(
    sides: Sequence[Side], quantities: Sequence[Quantity], objectives: Sequence[Objective] | None
) -> tuple[Read, ...]:
    """Every side, measured. Raises HarnessFault with everything that can't be read, or be a replication.

    ``objectives``: None for each run's own. A comparison of single runs keeps what each knows of its own spread.
    """
    within = all(len(side.runs) == 1 for side in sides)
    errors: list[str] = []
    found: list[Read] = []
    seen: dict[str, str] = {}
    for side in sides:
        if side.baseline is not None:
            known = side.baseline
            found.append(Read(Arm(side.name, known.arm.runs), known.likenesses, known.limits))
        else:
            one, wrong = _measured(side, quantities, objectives, within)
            errors += wrong
            found.append(one)
    for arm in (measured.arm for measured in found):
        for run in arm.runs:
            if run.run in seen:
                errors.append(f"{run.directory or run.run}: this run is in {seen[run.run]} already. Give each run once")
            seen[run.run] = arm.name
    if errors:
        raise HarnessFault(errors)
    return tuple(found)


def _measured(
    side: Side, quantities: Sequence[Quantity], objectives: Sequence[Objective] | None, within: bool
) -> tuple[Read, list[str]]:
    errors: list[str] = []
    runs: list[RunSample] = []
    alike: list[tuple[str, Likeness]] = []
    limits: tuple[str, ...] = ()
    started: list[int] = []
    for item in side.runs:
        if item.folder is None:
            runs.append(_never_answered(item, quantities))
            started.append(started[-1] if started else 0)
            continue
        try:
            sealed = _opened(item.folder)
            own = kept(sealed).objectives if objectives is None else tuple(objectives)
        except HarnessFault as fault:
            errors += fault.errors
            continue
        if sealed.kept is not None and (missing := lost([one for one in own if one.scope == "request"], sealed.kept)):
            errors += [f"{item.folder}: {text}" for text in missing]
            continue
        limits = tuple(str(objective) for objective in own if objective.scope == "request")
        # Values are compared as they are, at one end: a late generator's are not the endpoint's.
        records = sealed.told_apart
        validity = assess_run(records, sealed.facts, sealed.classes, own, strict=True)
        runs.append(
            sample(
                records,
                quantities,
                validity,
                own,
                run=f"{sealed.manifest['run_id']}{sealed.manifest.get('class', '')}",  # arms of one run are two
                pair=item.pair,
                directory=str(item.folder),
                plan=str(sealed.manifest.get("plan_fingerprint", "")),
                within=within,
                side=_said(sealed, records),
            )
        )
        started.append(int(sealed.manifest.get("t0_wall_ns", 0)))
        alike.append((str(item.folder), likeness(sealed.scenario, sealed.manifest)))
    return Read(Arm(side.name, tuple(runs)), tuple(like for _, like in alike), limits, tuple(started)), errors


def _said(sealed: Sealed, records: Records) -> ServerSide | None:
    """What the server said of itself in a run; None: nobody asked, or what it said can't be read."""
    from plimsoll.harness.sealing.samples_file import server_of
    from plimsoll.slo.server.server_side import server_side

    served, _ = server_of(sealed.directory.path, sealed.manifest)
    return None if served is None else server_side(served, records)


def _opened(folder: Path) -> Sealed:
    """A run directory whose descriptions are what a comparison reads. Raises HarnessFault."""
    sealed = open_run(folder)
    manifest, scenario = sealed.manifest, sealed.scenario
    if not isinstance(manifest, dict) or not isinstance(scenario, dict) or "run_id" not in manifest:
        raise HarnessFault(
            f"{folder}: manifest.json or scenario.yaml is damaged or from another version. Restore it, or leave this "
            "run out"
        )
    return sealed


def _never_answered(item: Found, quantities: Sequence[Quantity]) -> RunSample:
    """A run that could not be made because nobody answered: the worst value of everything."""
    readings = {}
    for quantity in quantities:
        worst = 0.0 if quantity.better == "higher" else 1.0 if quantity.unit == "ratio" else float("inf")
        readings[str(quantity)] = Reading(worst, 1, 1)
    return RunSample(
        run=f"{item.name} (never made)", readings=readings, pair=item.pair, unstable=item.error, requests=1, failed=1
    )


def unlike(found: Sequence[Read], despite: Sequence[str]) -> tuple[str, ...]:
    """Warnings about every candidate that is not quite like the base.

    Raises HarnessFault with all that forbids comparing.
    """
    errors: list[str] = []
    warnings: list[str] = []
    base = found[0]
    for side in found:
        pairs = list(zip((run.directory or run.run for run in side.arm.runs), side.likenesses, strict=False))
        errors += of_one_side(side.arm.name, pairs, despite)
    for other in found[1:]:
        forbids, told = compare(base.arm.name, base.likenesses, other.arm.name, other.likenesses, despite)
        errors += forbids
        warnings += told
        if base.limits != other.limits:
            warnings.append(
                f"good means {', '.join(base.limits) or 'answered'} in {base.arm.name}, "
                f"{', '.join(other.limits) or 'answered'} in {other.arm.name}. Give --slo to judge both alike"
            )
    if errors:
        raise HarnessFault(list(dict.fromkeys(errors)))
    return tuple(dict.fromkeys(warnings))


def compare(
    base_name: str, base: Sequence[Likeness], name: str, other: Sequence[Likeness], despite: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """What keeps the runs of two sides from being compared, and how else they are unlike, which is told.

    ``despite``: key paths of the load (``params.rate``, or ``params`` for all below) that may differ; told all the
    same.
    """
    if not base or not other:
        return [], []
    errors: list[str] = []
    warnings: list[str] = []
    for path, left, right in differences(base[0].load, other[0].load):
        text = f"{path}: {_show(left)} in {base_name}, {_show(right)} in {name}"
        if allowed(path, despite):
            warnings.append(f"not like for like, as asked: {text}")
        else:
            errors.append(f"{text}. Compare runs of one load, or add --despite {path}")
    for path, left, right in differences(base[0].asked, other[0].asked):
        warnings.append(f"target.{path} differs: {_show(left)} in {base_name}, {_show(right)} in {name}")
    for path, left, right in differences(base[0].host, other[0].host):
        warnings.append(
            f"another host: {path} is {_show(left)} in {base_name}, {_show(right)} in {name}; a difference may be the "
            "host's"
        )
    if base[0].plimsoll != other[0].plimsoll:
        warnings.append(f"Plimsoll {base[0].plimsoll} made {base_name}, {other[0].plimsoll} made {name}")
    if {run.workers for run in base} != {run.workers for run in other}:
        warnings.append(f"{base_name} and {name} were made with different numbers of workers")
    return errors, warnings


def of_one_side(name: str, runs: Sequence[tuple[str, Likeness]], despite: Sequence[str] = ()) -> list[str]:
    """Errors where the runs of one side are not replications of each other."""
    if not runs:
        return []
    first, reference = next((one for one in runs if one[1].model), runs[0])
    errors = []
    for run, other in runs:
        # Another address may be another replica; another model or protocol is another thing. A run whose endpoint died
        # before it named its model has none, and is of no other.
        was = {**reference.load, "target": {**reference.asked, "model": reference.model}}
        now = {**other.load, "target": {**other.asked, "model": other.model or reference.model}}
        errors += [
            f"{name}: {run} is no replication of {first}: {path}: {_show(right)} v. {_show(left)}. Take one of them out"
            for path, left, right in differences(was, now)
            if not allowed(path, despite)
        ]
    return errors


def allowed(path: str, despite: Sequence[str]) -> bool:
    """A difference at this key path was asked for."""
    return any(path == key or path.startswith((f"{key}.", f"{key}[")) for key in despite)


def _show(value: Any) -> str:
    text = json.dumps(value)
    return "nothing" if value is None else text if len(text) <= 60 else f"{text[:57]}..."
