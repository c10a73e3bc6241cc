"""Seal what a killed run left: its directory, what its agents hold, or both. ``open_run`` opens any run directory.

The last sign of life, begun.json's or the last segment's, stands for the time of the kill. The run is INVALID by the
fact ``cut_off``; everything else is as if its own coordinator had sealed it. A run that is still going on is left
alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.documents import files
from plimsoll.documents.text import plain
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import claim, read_done, read_segment, read_segments, segment_files, spilled
from plimsoll.harness.process.writing import whole, write_json
from plimsoll.harness.run import ahead, mixture
from plimsoll.harness.run.ahead import Begun
from plimsoll.harness.run.rundir import (
    BEGUN,
    RunDirectory,
    Sealed,
    create,
    is_left,
    join,
    open_sealed,
    seal,
    write_scenario,
)
from plimsoll.harness.sealing import plan_file
from plimsoll.harness.sealing.accounts import ended, last_words
from plimsoll.harness.sealing.labelling import read_again
from plimsoll.harness.sealing.plan_file import Share
from plimsoll.harness.sealing.sealing import made_up
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records

#: Workers whose coordinator was killed have so long to write what they have.
PATIENCE_S = 15.0
#: Between two signs of life of a coordinator, and between two segments of a worker that outlived it, at most about so
#: long.
_SIGN_NS, _SEGMENT_NS = 500_000_000, 1_000_000_000
#: Where a worker writes whose run directory is full.
_SPILL = "plimsoll-spill-"
_OURS = re.compile(r"w\d{3,6}(-\d{6,9}(-\d{3,9})?\.(seg|partial)|\.done)|outputs-w\d{3,6}\.jsonl")
_BROKEN = (
    OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip


def is_run(path: Path) -> bool:
    """A run directory, sealed or cut off."""
    return (path / "manifest.json").is_file() or (path / BEGUN).is_file() or _is_mix(path)


def _is_mix(path: Path) -> bool:
    return any(path.glob(f"{mixture.FOLDER}/*/{BEGUN}")) or any(path.glob(f"{mixture.FOLDER}/*/manifest.json"))


def open_run(path: Path, left: bool = False) -> Sealed:
    """Open a run directory; one that was cut off is sealed first. ``left``, and HarnessFault, as of ``open_sealed``."""
    if not (path / "manifest.json").is_file():
        if _is_mix(path):
            return _whole_mix(RunDirectory(path))
        begun = ahead.read(path)
        if begun is not None:
            if begun.manifest.get("leave_rows") and begun.announced and not segment_files(path / "segments"):
                raise HarnessFault(
                    f"{path}: the run was cut off, and its rows stayed with its agents. Copy the folders that they "
                    f"named here, and bring them together: plimsoll report {path} --agent-folder DIR, once for each"
                )
            return _sealed(RunDirectory(path), begun)
        if (path / "segments").is_dir() and not (path / "attempts").is_dir():
            if segment_files(path / "segments"):
                raise HarnessFault(
                    f"{path}: the segments hold rows of a run, but {BEGUN}, which names the run, is missing. Restore "
                    "it, or run again"
                )
            raise HarnessFault(
                f"{path}: the plan of this run is missing. Either it was cut off before that, and nothing was sent, "
                "or it has only just begun, or the disk was full (a warning said so). Run it again"
            )
    return open_sealed(path, left)


def _whole_mix(directory: RunDirectory) -> Sealed:
    """Seal a run of several classes that was cut off, each class first. Raises HarnessFault."""
    try:
        scenario = plain(files.read_text(directory.file("scenario.yaml")))
        names = list(scenario["mix"])
    except _BROKEN as error:
        what = " ".join(str(error).split())[:300] or type(error).__name__
        raise HarnessFault(
            f"{directory.path}: this run was cut off, and its scenario.yaml is no mix ({what})"
        ) from None
    folders = {name: directory.path / mixture.FOLDER / name for name in names}
    if any((one / "manifest.json").is_file() and not (one / "requests.parquet").is_file() for one in folders.values()):
        raise HarnessFault(  # the rows of its classes are together: it was whole once
            f"{directory.path}: this run of several classes was sealed, and its manifest.json is gone since. Put it "
            "back, or run again"
        )
    return join(directory, scenario, {name: open_run(folder) for name, folder in folders.items()})


def _sealed(directory: RunDirectory, begun: Begun) -> Sealed:
    """Seal a directory that its own coordinator did not. Raises HarnessFault."""
    held = _claimed(directory.segments, begun)
    try:
        if directory.file("manifest.json").is_file():  # whoever held it has sealed it
            with suppress(OSError):
                directory.segments.rmdir()
            return open_sealed(directory.path)
        if not directory.file(BEGUN).is_file():
            raise HarnessFault(f"{directory.path}: another command has just sealed this run in a folder of its own")
        try:
            return _sealed_alone(directory, begun)
        except _BROKEN as error:
            what = " ".join(str(error).split())[:300] or type(error).__name__
            raise HarnessFault(
                f"{directory.path}: this run was cut off, and what it left can't be sealed ({what})"
            ) from None
    finally:
        os.close(held)


def _claimed(folder: Path, begun: Begun) -> int:
    """The folder for us alone, once whoever outlived its coordinator has ended. Raises HarnessFault."""
    until = time.monotonic() + PATIENCE_S
    process = begun.process
    who = f"{process.who}, pid {process.pid} on {process.host}"
    while not process.lives():
        try:
            folder.mkdir(exist_ok=True)  # somebody else who seals it removes it at the end
            return claim(folder)
        except (BlockingIOError, FileNotFoundError):
            if time.monotonic() > until:
                raise HarnessFault(
                    f"{folder.parent}: the run is still going on ({who}: its workers outlived it), or another command "
                    "is sealing it. Wait until that is over"
                ) from None
            time.sleep(0.05)
        except OSError as error:
            raise HarnessFault(
                f"{folder}: the run was cut off, and this folder of it can't be opened ({error.strerror}). Put back "
                "what belongs there, or remove it, which loses the rows in it"
            ) from None
    raise HarnessFault(f"{folder.parent}: the run is still going on ({who}). Wait until it is over")


def _sealed_alone(directory: RunDirectory, begun: Begun) -> Sealed:
    scenario = plain(files.read_text(directory.file("scenario.yaml")))
    if not isinstance(scenario, dict):
        raise ValueError("scenario.yaml holds no mapping")
    plan = plan_file.load(directory.path, begun.manifest)
    manifest = dict(begun.manifest)
    if not begun.announced:
        manifest |= {"t0_wall_ns": begun.seen_ns, "t0_monotonic_ns": 0, "started_at": _iso(begun.seen_ns)}
    of_locust = scenario.get("kind") == "locust"  # streaming users: no worker of ours
    members = [] if of_locust else _members(directory, begun)
    facts = replace(ended(begun.facts, members), cut_off=_cut_off(directory, begun, plan.extent(), members))
    answers, notes = None, tuple[str, ...]()
    if scenario.get("mode") == "accuracy" or scenario.get("answers"):
        answers, notes = _gather_outputs(directory, scenario, plan.whole(), manifest)
    payloads, source, told = read_again(scenario)
    chosen = _chosen(scenario, plan.extent())
    sealed = seal(directory, manifest, scenario, plan, members, facts, chosen, begun.dealing, answers, payloads, source)
    if sealed.directory != directory:
        _keep_promises(directory, sealed.directory)
    return replace(sealed, notes=(*sealed.notes, *notes, *told))


def _chosen(scenario: Mapping[str, Any], plan: Extent) -> Callable[[IntArray], BoolArray] | None:
    """Which queries the scenario cancels on purpose, as ``seal`` wants to know it."""
    if not scenario.get("cancel"):
        return None
    section: cancellation.Section | None
    if scenario["cancel"] == "recorded":
        from plimsoll.scenarios.spec import parse

        section = parse(scenario).cancels
    else:
        section = cancellation.CancelSection.model_validate(scenario["cancel"])
    return partial(cancellation.chosen, section, int(scenario["seed"]), plan)


def _iso(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _members(directory: RunDirectory, begun: Begun) -> list[Member]:
    """The workers by what they left; their last messages name folders that only a living coordinator may trust."""
    # They are read as they are; of a run that was moved, none is.
    known = spilled(directory.segments, str(begun.manifest["run_id"]))
    for message in read_done(directory.segments).values():
        names = message.get("folders")
        for name in names if isinstance(names, list) else ():
            there = Path(str(name))
            if there not in known and there.name.startswith(_SPILL) and there.parent == Path(tempfile.gettempdir()):
                _bring(there, directory.segments)
    done = {index: last_words(said) for index, said in read_done(directory.segments).items()}
    life_ns = -1  # before t0: nothing was sent
    if begun.announced:
        t0_ns = int(begun.manifest["t0_monotonic_ns"])
        life_ns = (_life_ns(directory, begun) - int(begun.manifest["t0_wall_ns"]) + t0_ns) or -1
    members = []
    for index in begun.mine if "share" in begun.manifest else range(int(begun.manifest["workers"])):
        said = done.get(index)
        members.append(Member(index, done=said, died_ns=None if said is not None else life_ns))
    return members


def _life_ns(directory: RunDirectory, begun: Begun) -> int:
    """Wall clock by which everybody was dead: what was due before may have been sent. Signs of life are not given all
    the time.

    Segments that came much later than the coordinator's last sign were copied since.
    """
    folders = [directory.segments, *spilled(directory.segments, str(begun.manifest["run_id"]))]
    times = [path.stat().st_mtime_ns for folder in folders for path in segment_files(folder)]
    wrote = max((ns for ns in times if ns - begun.seen_ns < PATIENCE_S * 1e9), default=0)
    return max(begun.seen_ns + _SIGN_NS, wrote + _SEGMENT_NS if wrote > begun.seen_ns else 0)


def _cut_off(directory: RunDirectory, begun: Begun, plan: Extent, members: Sequence[Member]) -> str:
    """Who was killed, when, and what that cost, in words."""
    process = begun.process
    who = f"{process.who} (pid {process.pid}) was killed or died"
    if not begun.announced:
        return f"{who} before the first query"
    after = (begun.seen_ns - int(begun.manifest["t0_wall_ns"])) / 1e9
    when = f"{after:.1f} s after t0" if after >= 0 else f"{-after:.1f} s before t0"
    if plan.open_loop and plan.n_samples:
        when += f", of {plan.last_ns / 1e9:.1f} s planned"
    return f"{who} {when}, before the run was sealed; {_cost(directory, begun, members)}"


def _cost(directory: RunDirectory, begun: Begun, members: Sequence[Member]) -> str:
    cut = [member.index for member in members if member.done is None]
    if not members:
        return "what its workers had not sent it is missing: at most the last second of their rows"
    if not cut and any((member.done or {}).get("orphaned") for member in members):
        return "its workers stopped then and wrote every row that they had"
    if not cut:
        return "its workers had come to their end, and no row is missing"
    here = {int(path.name[1:].partition("-")[0]) for path in segment_files(directory.segments)} | {*begun.mine}
    silent = [index for index in cut if index not in here]
    told = [f"at most the last second of rows is missing of worker{_many(cut)}"]
    if begun.manifest.get("agents") or begun.agent:
        told.append("rows that an agent did not hand over are in its folder on its host: add that with --agent-folder")
    if silent and begun.manifest.get("agents"):
        told.append(f"of worker{_many(silent)} there is no row")
    return "; ".join(told)


def _many(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:8])) + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")
    return f"{'s' * (len(indices) > 1)} {shown}"


def _gather_outputs(
    directory: RunDirectory, scenario: Mapping[str, Any], plan: Plan, manifest: Mapping[str, Any]
) -> tuple[Callable[[Path], None] | None, tuple[str, ...]]:
    # What reads answers, which only an accuracy run keeps.
    from plimsoll.harness.generator.outputs import gather
    from plimsoll.scenarios.samples.reference import references
    from plimsoll.scenarios.spec import ScenarioError, parse
    from plimsoll.slo.peers.loadgen import QUANTILES

    try:
        known = parse(dict(scenario), str(scenario.get("name", "")))
        accuracy = known.mode == "accuracy"
        expected = references(known.source_object(), known.reference) if accuracy else None
        run_id, first = str(manifest["run_id"]), int(manifest.get("first_query_id", 0))
        return gather(directory.segments, plan, run_id, expected, accuracy and known.kind in QUANTILES, first), ()
    except (ScenarioError, HarnessFault, OSError) as error:
        return None, (f"the answers were not gathered ({error})",)


# -- what agents hold ---------------------------------------------------------------------------------------------


def agents_among(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Of these folders, those that agents left and the others. Raises HarnessFault."""
    of_agents = [folder for folder in folders if (begun := ahead.read(folder)) is not None and begun.agent]
    return of_agents, [folder for folder in folders if folder not in of_agents]


def gathered(run: Path | None, folders: Sequence[Path], out: Path | None) -> Path:
    """Bring what agents' folders hold into the run directory of their master; without one, into a new one. Returns it.

    Raises HarnessFault with everything that does not fit; nothing was changed then.
    """
    if run is not None and (is_left(run) or (ahead.read(run) and any(map(_is_part, folders)))):
        return _collected(_home(run), folders, out)
    found = {folder: ahead.read(folder) for folder in folders}
    errors = [
        f"--agent-folder {folder}: no folder of an agent (it has no {BEGUN})"
        + (": the agent sealed it, and its master's run directory must be given too" if _is_part(folder) else "")
        for folder, begun in found.items()
        if begun is None
    ]
    agents = {folder: begun for folder, begun in found.items() if begun is not None}
    whole_already = run is not None and (run / "manifest.json").is_file()  # killed as it tidied up, it has both
    own = ahead.read(run) if run is not None and not whole_already else None
    sealed = open_sealed(run) if run is not None and own is None else None  # its coordinator outlived the agents
    runs = {str(begun.manifest["run_id"]) for begun in (*agents.values(), *([own] if own is not None else []))}
    if sealed is not None:
        runs.add(str(sealed.manifest.get("run_id")))
    if len(runs) > 1:
        errors.append(f"these are of different runs: {', '.join(sorted(runs))}. Give the folders of one")
    if own is not None and out is not None:
        errors.append(f"--out {out}: {run} was cut off, and such a run is sealed in its own folder. Leave --out out")
    if sealed is not None and sealed.kept is not None:
        errors.append(
            f"{run}: it has dropped chunk times, so no rows can join it. Leave it out: seal the folders alone"
        )
    if errors:
        raise HarnessFault(errors)
    for folder, begun in [*agents.items(), *([(run, own)] if run is not None and own is not None else [])]:
        # A run that goes on would take in what is brought, as nobody's rows.
        os.close(_claimed(folder / "segments", begun))
    if sealed is not None:
        return _with_more(
            sealed, list(agents), out or sealed.directory.path.with_name(f"{sealed.directory.path.name}-with-agents")
        )
    if run is None:
        first = next(iter(agents))
        run = _master_of(first, agents[first], out or Path("runs") / f"agents-{runs.pop()}")
    for folder in agents:
        for source in _sources(folder):
            _bring(source, run / "segments")
    return run


def _sources(folder: Path) -> list[Path]:
    """Where an agent's workers wrote: in its folder, and elsewhere once that was full."""
    begun, segments = ahead.read(folder), folder / "segments"
    return [segments, *(spilled(segments, str(begun.manifest["run_id"])) if begun is not None else ())]


def _with_more(sealed: Sealed, folders: Sequence[Path], out: Path) -> Path:
    """The same run in a new directory, with the rows that agents have and it lacks. Raises HarnessFault."""
    rows = sealed.records
    plan = plan_file.load(sealed.directory.path, sealed.manifest)
    parts, unreadable = read_segments([source for folder in folders for source in _sources(folder)])
    if unreadable:
        print(*(f"warning: {text}" for text in unreadable), sep="\n", file=sys.stderr)
    width = int(max([rows["sample_ix"].max(initial=0), *(part["sample_ix"].max(initial=0) for part in parts)])) + 1
    keys = _keys(rows, width)
    never = made_up(rows)
    told = _told(folders)
    parts = [part.select(~np.isin(_keys(part, width), keys[~never])) for part in parts]
    brought = np.concatenate([_keys(part, width) for part in parts]) if parts else keys[:0]
    outdated = never & (np.isin(keys, brought) | np.isin(rows["worker"], [*told]))  # better is known now
    more = rec.concat([_unmarked(rows.select(~outdated)), *parts])
    said = f"{len(brought)} rows were brought from the folders of agents afterwards"
    faults = tuple(
        text for text in sealed.facts.account_faults if not any(text.startswith(f"worker {index} ") for index in told)
    )
    facts = replace(sealed.facts, worker_faults=(*sealed.facts.worker_faults, said), account_faults=faults)
    n_workers = max(int(sealed.manifest.get("workers") or 1), int(more["worker"].max(initial=0)) + 1)
    members = [
        Member(index, done=told.get(index, {}), segments=[more] if index == 0 else []) for index in range(n_workers)
    ]
    scenario, manifest = dict(sealed.scenario), dict(sealed.manifest)
    chosen, (payloads, source) = _chosen(scenario, plan.extent()), _told_again(scenario)
    made = seal(create(out), manifest, scenario, plan, members, facts, chosen, payloads=payloads, source=source)
    _keep_promises(sealed.directory, made.directory)
    return made.directory.path


def _is_part(folder: Path) -> bool:
    """An agent has sealed its rows there."""
    try:
        return "share" in json.loads(files.read_bytes(folder / "manifest.json"))
    except (OSError, ValueError, TypeError):
        return False


def _home(run: Path) -> Sealed:
    """The run without rows, as its master left it: judged, or killed before that. Raises HarnessFault."""
    begun = ahead.read(run)
    if is_left(run) or begun is None:
        return open_sealed(run, left=True)
    os.close(_claimed(run / "segments", begun))
    who = f"{begun.process.who} (pid {begun.process.pid})"
    facts = replace(begun.facts, cut_off=f"{who} was killed or died after the load, before the run was judged")
    return Sealed(RunDirectory(run), begun.manifest, plain(files.read_text(run / "scenario.yaml")), rec.empty(), facts)


def _collected(home: Sealed, folders: Sequence[Path], out: Path | None) -> Path:
    """The run whose rows stayed with its agents, in a new directory, as if they had come home. Raises HarnessFault."""
    run, parts = home.directory.path, {folder: open_run(folder) for folder in folders}
    errors, given = [], set[int]()
    for folder, part in parts.items():
        share, known = Share.of(part.manifest), ("run_id", "plan_fingerprint")
        if share is None or any(part.manifest.get(name) != home.manifest.get(name) for name in known):
            errors.append(
                f"--agent-folder {folder}: no agent left it of the run in {run}. Give the folders of that run"
            )
        elif part.facts.plan_faults:
            errors.append(f"--agent-folder {folder}: not as it was sealed ({'; '.join(part.facts.plan_faults)})")
        elif given & {*share.mine}:
            errors.append(f"--agent-folder {folder}: another folder has its rows too. Give each agent's once")
        given |= {*share.mine} if share is not None else set()
    errors += [
        f"the rows of agent {one['name']} are not among these: add --agent-folder with a copy of its "
        + one.get("folder", "folder")
        for one in home.manifest.get("left", home.manifest.get("agents", ()))
        if not {*one["shards"]} <= given and not one["lost"]
    ]
    if errors:
        raise HarnessFault(errors)
    manifest = {
        name: value for name, value in home.manifest.items() if name not in ("left", "left_sha256", "leave_rows")
    }
    t0_ns, members = int(manifest["t0_monotonic_ns"]), [Member(index) for index in range(int(manifest["workers"]))]
    for folder, part in parts.items():
        came, worker = ~made_up(part.records), part.records["worker"]
        for one in json.loads(files.read_bytes(folder / "generator.json"))["members"]:
            member, died_ns = members[one["index"]], one["died_ns"]
            member.done = last_words(one["done"])
            member.died_ns = None if died_ns is None else t0_ns + died_ns
            mine = came & (worker == member.index)  # workers in their order: each numbers its warm-up from 0
            member.segments.append(_unmarked(part.records if bool(mine.all()) else part.records.select(mine)))
    spoilt = (text for part in parts.values() for text in part.facts.disk_faults)
    facts = home.facts if home.facts.cut_off is None else ended(home.facts, members)
    facts = replace(facts, disk_faults=(*home.facts.disk_faults, *spoilt))
    plan, scenario = plan_file.load(run, manifest), home.scenario
    made = create(out or run.with_name(f"{run.name}-with-agents"))
    for name in ("promises.json", "intervals.hlog"):
        if (run / name).is_file():
            _copy(run / name, made.file(name))
    chosen = _chosen(scenario, plan.extent())
    dealing, (payloads, source) = manifest["dealing"], _told_again(scenario)
    return seal(made, manifest, scenario, plan, members, facts, chosen, dealing, None, payloads, source).directory.path


def _told_again(scenario: Mapping[str, Any]) -> tuple[LabelTable | None, PayloadSource | None]:
    payloads, source, problems = read_again(scenario)
    if problems:
        print(*(f"warning: {text}" for text in problems), sep="\n", file=sys.stderr)
    return payloads, source


def _keep_promises(source: RunDirectory, target: RunDirectory) -> None:
    if (promises := source.file("promises.json")).is_file():
        _copy(promises, target.file("promises.json"))


def _told(folders: Sequence[Path]) -> dict[int, dict[str, Any]]:
    """What the workers of agents said at their end, for their accounts: the facts of a sealed run have the rest."""
    said = {
        index: last_words(message) for folder in folders for index, message in read_done(folder / "segments").items()
    }
    return {index: {"account": words["account"]} for index, words in said.items() if words and words.get("account")}


def _keys(rows: Records, width: int) -> IntArray:
    """A number for each row that no other row of its run has: rows of the warm-up are numbered below zero."""
    keys = rows["query_id"] * width + rows["sample_ix"]
    return np.where(rows["phase"] == Phase.WARMUP, -1 - keys, keys)


def _unmarked(rows: Records) -> Records:
    """As they were recorded, before those that were cancelled on purpose were set apart."""
    phase = rows["phase"].copy()
    phase[phase == Phase.CANCEL] = 0
    return replace(rows, columns={**rows.columns, "phase": phase})


def _master_of(folder: Path, begun: Begun, out: Path) -> Path:
    """A run directory as the master would have left it at once, from what one of its agents was told."""
    directory = create(out)
    plan = plan_file.load(folder, begun.manifest)
    plan_file.save(out, plan)
    write_scenario(directory, plain(files.read_text(folder / "scenario.yaml")))
    document = json.loads(files.read_bytes(folder / BEGUN))
    document["manifest"].pop("share", None)  # of a whole run now
    write_json(directory.file(BEGUN), document)
    return out


def _bring(source: Path, target: Path) -> None:
    """Copy what a worker wrote and the target lacks, each file whole or not at all. Raises OSError."""
    for path in sorted(source.iterdir()) if source.is_dir() else []:
        if not _OURS.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            continue
        there = target / path.name
        if there.exists() and (path.suffix != ".seg" or _whole(there)):
            continue
        _copy(path, there)


def _copy(source: Path, target: Path) -> None:
    """A file, whole or not at all. Raises OSError."""
    with source.open("rb") as file:
        whole(target, partial(shutil.copyfileobj, file))


def _whole(path: Path) -> bool:
    try:
        read_segment(path)
    except _BROKEN:
        return False
    return True
