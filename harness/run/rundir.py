"""The run directory: where a run's files are, how it is sealed, how it is opened again.

Sealing turns the workers' segments into ``requests.parquet`` and ``chunks.parquet``, adds a row for every planned
sample that no worker accounts for, and writes what makes the run repeatable. Each file appears whole or not at all,
``manifest.json`` last, and only then do the segments go: killed between any two of them, the directory can be sealed
again (``harness/run/salvage.py``). Verdicts and reports can be recomputed from a sealed directory for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import yaml

from plimsoll.documents import files
from plimsoll.documents.text import plain
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import spilled
from plimsoll.harness.host.manifest import checked
from plimsoll.harness.process import arrays
from plimsoll.harness.process.writing import tidy, whole, write_json
from plimsoll.harness.run import mixture, originals, retention
from plimsoll.harness.sealing import accounts, plan_file
from plimsoll.harness.sealing.gathered import Gathered
from plimsoll.harness.sealing.labelling import Known
from plimsoll.harness.sealing.sealing import Missing, Rows
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Blocks, cut
from plimsoll.scenarios.plan.plan import Dealing, Plan
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.slo.records import records as rec
from plimsoll.slo.records import tables
from plimsoll.slo.records.labels import LabelTable, sent_by
from plimsoll.slo.records.queries import with_deadline
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.records.trace_ids import TraceIds
from plimsoll.slo.validity.accounts import Sums, sums
from plimsoll.slo.validity.generator import GeneratorFacts

GENERATOR_SCHEMA = "plimsoll.generator/1"
#: What a run has on disk before its first query, for whoever has to seal it (``harness/run/ahead.py``).
BEGUN = "begun.json"
#: Rows of larger files than this, in bytes together, have their large arrays on disk.
_LARGE = 8 << 20
#: What a class of a mix has of its own, besides its scenario and plan.
_OF_CLASS = ("manifest", "generator")
#: The report of a run whose rows stayed with its agents.
LEFT = "parts.json"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run directory."""

    path: Path

    @property
    def segments(self) -> Path:
        return self.path / "segments"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def worker_log(self) -> Path:
        return self.path / "worker.log"

    def file(self, name: str) -> Path:
        return self.path / name


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed run as it is on disk. ``notes`` tell the user what was done differently; ``whole``: on a disk.

    ``kept``: what was made of its chunk times before they were dropped; None: none were. ``classes``: of a mix, what
    the generator of each class knows, by its name.
    """

    directory: RunDirectory
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    records: Records
    facts: GeneratorFacts
    notes: tuple[str, ...] = ()
    whole: bool = True
    kept: retention.Kept | None = None
    classes: Mapping[str, GeneratorFacts] = field(default_factory=dict)

    @property
    def told_apart(self) -> Records:
        """Its records; of a run of several agents with who sent each."""
        agents = [one for one in self.manifest.get("agents") or () if one.get("shards")]
        if not agents:
            return self.records
        sent = [(str(one["name"]), str(one.get("region") or ""), one["shards"]) for one in agents]
        return self.records.labelled(sent_by(self.records.labels, self.records["worker"], sent))


def create(path: Path) -> RunDirectory:
    """Make an empty run directory. Raises HarnessFault if the path is taken or can't be written.

    The logs of a start that failed there are no run: they make room for the next.
    """
    directory = RunDirectory(path)
    logs = (directory.worker_log, directory.server_log)
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = set(path.iterdir())
        if held <= set(logs):
            for log in held:
                log.unlink()
        else:
            raise HarnessFault(f"--out: {path} is not empty. Name a new folder, or delete that one")
        directory.segments.mkdir()
    except OSError as error:
        raise HarnessFault(f"--out: cannot make {path} ({error.strerror}). Name a folder that you may write") from None
    return directory


def seal(
    directory: RunDirectory,
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    plan: Plan | Blocks,
    members: Sequence[Member],
    facts: GeneratorFacts,
    chosen: Callable[[IntArray], BoolArray] | None = None,
    dealing: Dealing = "turns",
    answers: Callable[[Path], None] | None = None,
    payloads: LabelTable | None = None,
    source: PayloadSource | None = None,
) -> Sealed:
    """Gather every segment and write the run directory; if that disk is full, write it elsewhere and say where.

    ``chosen(query_ids)`` tells which queries the scenario cancelled on purpose; ``dealing``: how the members got
    theirs; ``answers`` writes what else belongs into the directory: it goes where the run goes; ``payloads``: labels of
    each payload; ``source``: where they are from.
    """
    tidy(directory.path)
    folders = [directory.segments]
    for member in members:
        folders += [Path(name) for name in (member.done or {}).get("folders", ()) if Path(name) != directory.segments]
    folders += [path for path in spilled(directory.segments, str(manifest["run_id"])) if path not in folders]
    pieces = plan if isinstance(plan, Blocks) else cut(plan)
    pieces = replace(pieces, known=pieces.extent())
    parts = [records for member in members for records in member.segments]
    share, width = plan_file.Share.of(manifest), max(1, pieces.extent().widest)
    mine, shards = (pieces, 0) if share is None else (share.part(pieces), share.shards)
    known = Known(mine, payloads, width, source, manifest.get("phases") or ())
    gathered = Gathered(folders, parts, width, known.names)
    t0_ns = int(manifest["t0_monotonic_ns"])
    missing = Missing(mine, members, gathered, t0_ns, dealing, shards)
    rows = Rows(gathered, mine, members, missing, chosen, known, facts.interrupted)
    cyclic = pieces.head.cyclic
    lost = _lost_in_closed_loop(members, gathered.rows) if cyclic else ()
    facts = replace(
        facts,
        worker_faults=(*facts.worker_faults, *lost),
        disk_faults=(*facts.disk_faults, *gathered.faults),
    )
    sealed = Sealed(directory, manifest, scenario, rec.empty(), facts)
    client_stats = [(member.done or {}).get("client", {}) for member in members]
    more = {} if share is None else {"members": [_said(member, t0_ns) for member in members]}
    write = partial(_write, plan=pieces, client_stats=client_stats, answers=answers, rows=rows, more=more)
    try:
        write(sealed)
    except OSError as error:
        sealed = _sealed_elsewhere(sealed, write, error)
    arrays.let_go()
    if sealed.whole:
        make_room(sealed.directory.path, in_memory=0)
    records = tables.load(sealed.directory.path) if sealed.whole else rec.concat([*rows])
    sealed = replace(sealed, facts=rows.facts(sealed.facts))
    if sealed.whole:  # first of all: sealed elsewhere, with no manifest here, this one would seem to be unsealed
        _forget(directory)
    for folder in folders if not gathered.faults and sealed.whole else []:
        shutil.rmtree(folder, ignore_errors=True)
    _drop_empty_logs(directory)
    return replace(sealed, records=with_deadline(records, facts.frame_deadline_ns))


def _drop_empty_logs(directory: RunDirectory) -> None:
    for log in (directory.worker_log, directory.server_log):
        with contextlib.suppress(OSError):  # read-only by now
            if log.is_file() and not log.stat().st_size:
                log.unlink()


def _said(member: Member, t0_ns: int) -> dict[str, Any]:
    """What whoever brings an agent's rows home needs to know of each of its workers."""
    died_ns = None if member.died_ns is None else member.died_ns - t0_ns
    return {"index": member.index, "done": member.done, "died_ns": died_ns}


def _forget(directory: RunDirectory) -> None:
    with contextlib.suppress(OSError):
        directory.file(BEGUN).unlink(missing_ok=True)


def _sealed_elsewhere(sealed: Sealed, write: Callable[[Sealed], None], error: OSError) -> Sealed:
    """The run in the first other folder that takes it; where none does, it is judged from memory and INVALID."""
    path = sealed.directory.path
    tried = []
    for place in _other_places(path):
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="plimsoll-run-", dir=place))
            note = f"the run could not be sealed in {path} ({error.strerror}); it is in {folder}"
            facts = replace(sealed.facts, disk_notes=(*sealed.facts.disk_notes, note))
            moved = replace(sealed, directory=RunDirectory(folder), facts=facts, notes=(note,))
            write(moved)
            for name in (originals.NAME, "server.samples"):
                if (path / name).is_file():
                    with files.opened(path / name) as beside:
                        whole(folder / name, partial(shutil.copyfileobj, beside))
            return moved
        except OSError as second:
            tried.append(f"{place} ({second.strerror})")
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    fault = (
        f"the run could not be sealed in {path} ({error.strerror}), nor in {', '.join(tried)}: it was judged from "
        f"memory, and what the workers wrote is left in {sealed.directory.segments}"
    )
    facts = replace(sealed.facts, disk_faults=(*sealed.facts.disk_faults, fault))
    return replace(sealed, facts=facts, notes=(fault,), whole=False)


def _other_places(path: Path) -> tuple[Path, ...]:
    """Folders that may be on another disk, or in memory (the last)."""
    named = (os.environ.get("TMPDIR") or "/tmp", "~", ".", path.parent, "/var/tmp", "/dev/shm")
    found = []
    for name in named:
        with contextlib.suppress(OSError, RuntimeError):  # no home, or a working directory that is gone
            found.append(Path(name).expanduser().absolute())
    return tuple(dict.fromkeys(found))


def _lost_in_closed_loop(members: Sequence[Member], rows: Mapping[int, int]) -> list[str]:
    """A closed loop has no list to tell what a dead worker had on the wire: say at least how many there were."""
    notes = []
    for member in members:
        recorded = rows.get(member.index, 0)
        sent = int(member.status.get("sent", 0))
        if member.done is None and sent > recorded:
            notes.append(f"worker {member.index} had sent at least {sent} requests, of which {recorded} were recorded")
    return notes


def request_ids(run_id: str, records: Records) -> list[str]:
    """The ``x-request-id`` of every row: ``<run>-<query_id>-<sample_ix>``; warm-up rows have a ``w`` after the run."""
    found: list[str] = tables.request_ids(run_id, records).to_pylist()
    return found


def _write(
    sealed: Sealed,
    plan: Plan | Blocks,
    client_stats: Sequence[Mapping[str, Any]],
    answers: Callable[[Path], None] | None = None,
    rows: Rows | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write the run directory from ``rows``, whose counts go into the facts; None: from the records as they are.
    ``more``: of generator.json.
    """
    directory = sealed.directory
    if answers is not None:
        answers(directory.path)
    blocks = tables.blocks_of(sealed.records) if rows is None else rows
    run_id, traces = str(sealed.manifest["run_id"]), TraceIds.told(sealed.manifest)

    def write_chunks(requests: IO[bytes]) -> None:
        whole(directory.file("chunks.parquet"), partial(tables.write, blocks, run_id, requests, traces=traces))

    whole(directory.file("requests.parquet"), write_chunks)
    plan_file.save(directory.path, plan)
    facts, columns = (sealed.facts, sums(sealed.records)) if rows is None else (rows.facts(sealed.facts), rows.sums)
    generator = {"schema": GENERATOR_SCHEMA, "facts": facts.to_json(), "clients": list(client_stats)}
    generator |= {"run_id": sealed.manifest["run_id"], "columns": columns, **more}
    write_json(directory.file("generator.json"), generator)
    scenario = write_scenario(directory, sealed.scenario)
    manifest = {**sealed.manifest, "scenario_sha256": _digest(scenario), **_promised(directory)}
    write_json(directory.file("manifest.json"), manifest)  # last: a directory with a manifest is whole


def _promised(directory: RunDirectory) -> dict[str, str]:
    """What promises.json is, where it is there: whoever edits it changes what the run is judged by."""
    path = directory.file("promises.json")
    return {"promises_sha256": hashlib.sha256(files.read_bytes(path)).hexdigest()} if path.is_file() else {}


def write_scenario(directory: RunDirectory, scenario: Mapping[str, Any]) -> str:
    """Write scenario.yaml, whole or not at all, and return its text. Raises OSError."""
    text = yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True)
    whole(directory.file("scenario.yaml"), text.encode())
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def join(directory: RunDirectory, scenario: Mapping[str, Any], parts: Mapping[str, Sealed]) -> Sealed:
    """Bring the rows of all classes of a mix, each sealed already, into the run's own files, and out of theirs. Where
    the disk takes no more, the run is judged from memory.
    """
    manifest = mixture.manifest_of({name: one.manifest for name, one in parts.items()}, scenario)
    classes = {name: one.facts for name, one in parts.items()}
    records = mixture.whole({name: (one.manifest, one.records) for name, one in parts.items()})
    notes = tuple(f"class {name}: {note}" for name, one in parts.items() for note in one.notes)
    sealed = Sealed(directory, manifest, scenario, records, mixture.facts_of(classes), notes, classes=classes)
    run_id, traces = str(manifest["run_id"]), TraceIds.told(manifest)

    def write_chunks(requests: IO[bytes]) -> None:
        blocks = tables.blocks_of(records)
        whole(directory.file("chunks.parquet"), partial(tables.write, blocks, run_id, requests, traces=traces))

    try:
        whole(directory.file("requests.parquet"), write_chunks)
        generator = {"schema": GENERATOR_SCHEMA, "facts": sealed.facts.to_json(), "run_id": run_id}
        write_json(directory.file("generator.json"), generator)
        digest = _digest(write_scenario(directory, scenario))
        write_json(directory.file("manifest.json"), {**manifest, "scenario_sha256": digest, **_promised(directory)})
    except OSError as error:
        fault = (
            f"the run could not be sealed in {directory.path} ({error.strerror}): each class is, in {mixture.FOLDER}"
        )
        classes = {name: replace(one, disk_faults=(*one.disk_faults, fault)) for name, one in classes.items()}
        facts = mixture.facts_of(classes)
        return replace(sealed, facts=facts, classes=classes, notes=(*notes, fault), whole=False)
    for name, one in parts.items():
        if one.directory.path == directory.path / mixture.FOLDER / name:
            for file in ("requests.parquet", "chunks.parquet"):
                one.directory.file(file).unlink(missing_ok=True)
    shutil.rmtree(directory.segments, ignore_errors=True)
    _drop_empty_logs(directory)
    return sealed


def make_room(path: Path, in_memory: int = arrays.IN_MEMORY) -> None:
    """Have large arrays live on disk from now on, for what this thread or task does, where the rows in ``path`` fill
    large files; so many bytes of them ``in_memory``: none of what lasts, as columns do. Raises OSError.
    """
    if sum(file.stat().st_size for file in path.glob("*.parquet")) > _LARGE:
        arrays.on_disk(path, in_memory)


def is_left(path: Path) -> bool:
    """A whole run directory whose rows stayed with its agents."""
    return (path / LEFT).is_file() and _has_manifest(path)


def write_left(sealed: Sealed, plan: Blocks, document: Mapping[str, Any]) -> None:
    """Write the directory of a run whose rows stay with its agents: the ``document`` has its report. Raises OSError."""
    directory, data = sealed.directory, json.dumps({"schema": retention.SCHEMA, "columns": {}, **document}).encode()
    whole(directory.file(LEFT), data)
    plan_file.save(directory.path, plan)
    generator = {"schema": GENERATOR_SCHEMA, "facts": sealed.facts.to_json(), "run_id": sealed.manifest["run_id"]}
    write_json(directory.file("generator.json"), generator)
    text = write_scenario(directory, sealed.scenario)
    digests = {"scenario_sha256": _digest(text), "left_sha256": hashlib.sha256(data).hexdigest()}
    write_json(directory.file("manifest.json"), {**sealed.manifest, **digests})
    _forget(directory)
    shutil.rmtree(directory.segments, ignore_errors=True)
    _drop_empty_logs(directory)


def _opened_left(directory: RunDirectory, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> Sealed:
    data = files.read_bytes(directory.file(LEFT))
    if hashlib.sha256(data).hexdigest() != manifest.get("left_sha256"):
        raise ValueError(f"{LEFT} is not the one that was sealed (left_sha256 in manifest.json)")
    held = retention.Kept.model_validate_json(data)
    facts = GeneratorFacts.from_json(json.loads(files.read_bytes(directory.file("generator.json"))).get("facts"))
    return Sealed(directory, manifest, scenario, rec.empty(), facts, kept=held)


def away(path: Path, manifest: Mapping[str, Any]) -> HarnessFault:
    """Of a run whose rows stayed with its agents."""
    folders = ", ".join(f"{one['folder']} of {one['name']}" for one in manifest["left"])
    return HarnessFault(
        f"{path}: the rows of this run stayed with its agents ({folders}), and this needs them. Copy those folders "
        f"here, and bring them together: plimsoll report {path} --agent-folder DIR, once for each"
    )


def open_sealed(path: Path, left: bool = False) -> Sealed:
    """Open a sealed run directory. ``left``: also one whose rows stayed with its agents, with the report that was made
    there. Raises HarnessFault naming what is missing or unreadable.
    """
    directory = RunDirectory(path)
    if not directory.file("manifest.json").is_file():
        if other := whole_attempt(path):
            raise HarnessFault(f"{path}: not a whole run directory (no manifest.json): {other}")
        raise HarnessFault(
            f"{path}: not a run directory (no manifest.json). Give the folder that `plimsoll run` printed"
        )
    try:
        manifest = json.loads(files.read_bytes(directory.file("manifest.json")))
        generator = json.loads(files.read_bytes(directory.file("generator.json")))
        text = files.read_text(directory.file("scenario.yaml"))
        scenario = plain(text)
        for name, held in (("manifest.json", manifest), ("generator.json", generator), ("scenario.yaml", scenario)):
            checked(name, held)
        if "left" in manifest and not left:
            raise away(path, manifest)
        if "left" in manifest:
            return _opened_left(directory, manifest, scenario)
        manifest = with_attempts(manifest, path)
        make_room(path, in_memory=0)
        found = Sealed(directory, manifest, scenario, rec.empty(), GeneratorFacts.from_json(generator.get("facts")))
        if "classes" in manifest:
            return _opened_mix(found, text)
        return _checked(found, generator, text)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarnessFault(f"{path}: this run directory is damaged or from another version ({error})") from None


def _checked(sealed: Sealed, generator: Mapping[str, Any], text: str, rows: Records | None = None) -> Sealed:
    """The run with its rows, or with these of its class, held against what was sealed. ``text``: of scenario.yaml."""
    path, manifest, scenario, facts = sealed.directory.path, sealed.manifest, sealed.scenario, sealed.facts
    counted, columns = Sums(), generator.get("columns")
    held = retention.read(path) if rows is None else None
    if rows is None and "class" in manifest and not (path / "requests.parquet").is_file():
        if tables.kept_mark(whole_run := path.parent.parent):
            raise HarnessFault(
                f"{path}: the run that this is a class of dropped chunk times, and has the figures of each class. "
                f"See them with: plimsoll report {whole_run}"
            )
        rows = mixture.part(tables.load(whole_run), manifest)
    if rows is not None and rows.chunks.dropped:  # held against what stayed with all classes together
        columns = {name: value for name, value in (columns or {}).items() if name not in rec.CHUNKED}
        generator = {**generator, "columns": columns}
    names = set(columns or ()) if rows is not None else tables.names(path)
    if rows is None:
        records = tables.load(path, counted.add if isinstance(columns, dict) else None)
    else:
        records = rows
        counted.add(records)
    asked = {"cancel": scenario.get("cancel"), "seed": scenario.get("seed")}
    asked |= {name: manifest.get(name) for name in ("plan_fingerprint", "source_samples", "share")}
    asked["scenario"] = scenario
    facts = plan_file.checked(facts, records, path, asked)
    if held is not None:
        records = records.forgotten()
        generator = {**generator, "columns": {**(columns or {}), **held.columns}}
    changed = accounts.faults_of(counted.texts(), names, generator, manifest.get("run_id"))
    facts = replace(facts, plan_faults=(*facts.plan_faults, *changed, *_scenario_changed(manifest, text)))
    return replace(sealed, records=with_deadline(records, facts.frame_deadline_ns), facts=facts, kept=held)


def _scenario_changed(manifest: Mapping[str, Any], text: str) -> list[str]:
    fault = "scenario.yaml is not the one that was sealed (scenario_sha256 in manifest.json)"
    return [] if manifest.get("scenario_sha256", _digest(text)) == _digest(text) else [fault]


def _opened_mix(sealed: Sealed, text: str) -> Sealed:
    """A run of several classes, each held against what was sealed of it."""
    path = sealed.directory.path
    counted, kept, found, n = Sums(), retention.read(path), dict[str, GeneratorFacts](), 0
    records = tables.load(path, None if kept is None else counted.add)
    records = records if kept is None else records.forgotten()
    if not isinstance(sealed.manifest["classes"], list) or not sealed.manifest["classes"]:
        raise ValueError("manifest.json names no classes")
    for name in sealed.manifest["classes"]:
        directory = RunDirectory(path / mixture.FOLDER / name)
        manifest, generator = (json.loads(files.read_bytes(directory.file(f"{one}.json"))) for one in _OF_CLASS)
        own = files.read_text(directory.file("scenario.yaml"))
        scenario = plain(own)
        for what, held in (("manifest.json", manifest), ("generator.json", generator), ("scenario.yaml", scenario)):
            checked(what, held)
        if manifest.get("class") != name or manifest.get("run_id") != sealed.manifest.get("run_id"):
            raise ValueError(f"{mixture.FOLDER}/{name} is no class of this run")
        rows, facts = mixture.part(records, manifest), GeneratorFacts.from_json(generator.get("facts"))
        one = _checked(Sealed(directory, manifest, scenario, rows, facts), generator, own, rows)
        found[name], n = one.facts, n + len(rows)
    faults = _scenario_changed(sealed.manifest, text)
    faults += [f"{len(records) - n} rows are of no class"] if n != len(records) else []
    if kept is not None:
        left = {name: text for name, text in counted.texts().items() if name in rec.CHUNKED}
        faults += accounts.faults_of(left, rec.CHUNKED, {"columns": kept.columns}, None)
    first = next(iter(found))
    found[first] = replace(found[first], plan_faults=(*found[first].plan_faults, *faults))
    return replace(sealed, records=records, facts=mixture.facts_of(found), classes=found, kept=kept)


#: The folder of earlier attempts, in the run directory of the last one.
ATTEMPTS = "attempts"
_OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")


def with_attempts(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The manifest, in which each earlier attempt says whether it is still ``kept`` below the run directory.

    Raises ValueError where the manifest notes something else than attempts.
    """
    attempts = manifest.get(ATTEMPTS)
    if attempts is None:
        return dict(manifest)
    if not isinstance(attempts, list):
        raise ValueError("attempts of manifest.json is no list")
    found = []
    for place, one in enumerate(attempts, 1):
        if not (isinstance(one, dict) and _is_attempt(one)):
            raise ValueError(f"attempt {place} in manifest.json is no attempt: number, outcome and reasons")
        found.append({**one, "kept": _has_manifest(folder / ATTEMPTS / str(one["number"]))})
    return {**manifest, ATTEMPTS: found}


def whole_attempt(folder: Path) -> str:
    """What to open instead of a run directory whose last attempt was cut off; "" for nothing."""
    there = [one for one in (folder / ATTEMPTS).glob("*") if one.name.isdecimal() and _has_manifest(one)]
    if not there:
        return ""
    last = max(there, key=lambda one: int(one.name))
    said = f"its last attempt did not come to its end, and attempt {last.name} is whole"
    return f"{said}. Give {last} to read that one, or run it again"


def _has_manifest(folder: Path) -> bool:
    return (folder / "manifest.json").is_file()


def _is_attempt(one: Mapping[str, Any]) -> bool:
    number, reasons = one.get("number"), one.get("reasons", [])
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and number >= 1
        and one.get("outcome", "INVALID") in _OUTCOMES
        and isinstance(reasons, list)
        and all(isinstance(text, str) for text in reasons)
    )
