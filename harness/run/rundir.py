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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from plimsoll.documents import files
from plimsoll.documents.text import plain
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import read_segments, segment_files, spilled
from plimsoll.harness.host.manifest import checked
from plimsoll.harness.process import arrays
from plimsoll.harness.process.writing import whole, write_json
from plimsoll.harness.run import accounts, plan_file
from plimsoll.harness.run.workforce import Member
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Dealing, Plan
from plimsoll.slo.records import cancelled, tables
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.queries import with_deadline
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, Status
from plimsoll.slo.validity.accounts import DIED, GONE, LOST, Sums, sums
from plimsoll.slo.validity.generator import GeneratorFacts

GENERATOR_SCHEMA = "plimsoll.generator/1"
#: What a run has on disk before its first query, for whoever has to seal it (``harness/run/ahead.py``).
BEGUN = "begun.json"
_UNSENT = "not sent before the run ended"
#: Errors of rows that stand for what nobody recorded.
_NOT_RECORDED = (_UNSENT, *LOST)


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
    """A sealed run as it is on disk. ``notes`` tell the user what was done differently; ``whole``: on a disk."""

    directory: RunDirectory
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    records: Records
    facts: GeneratorFacts
    notes: tuple[str, ...] = ()
    whole: bool = True


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
) -> Sealed:
    """Gather every segment and write the run directory; if that disk is full, write it elsewhere and say where.

    ``chosen(query_ids)`` tells which queries the scenario cancelled on purpose; ``dealing``: how the members got
    theirs; ``answers`` writes what else belongs into the directory: it goes where the run goes.
    """
    plan = plan.whole() if isinstance(plan, Blocks) else plan
    folders = [directory.segments]
    for member in members:
        folders += [Path(name) for name in (member.done or {}).get("folders", ()) if Path(name) != directory.segments]
    folders += [path for path in spilled(directory.segments, str(manifest["run_id"])) if path not in folders]
    names = {f"{path.name.partition('.')[0]}.seg" for folder in folders for path in segment_files(folder)}
    parts, unreadable = read_segments(folders)
    parts += [records for member in members for records in member.segments]
    measured = rec.concat(parts)
    missing = _missing(plan, members, measured, int(manifest["t0_monotonic_ns"]), dealing)
    facts = replace(facts, worker_faults=(*facts.worker_faults, *_lost_in_closed_loop(plan, members, measured)))
    facts = accounts.settled(facts, plan, members, *_came(measured, missing), names)
    records = rec.concat([measured, missing]) if len(missing) else measured
    records = records.select(np.lexsort((records["sample_ix"], records["query_id"], -records["phase"])))
    facts = _counted(replace(facts, disk_faults=(*facts.disk_faults, *unreadable)), records, plan)
    facts = replace(facts, plan_faults=tuple(plan_file.differences(records, plan)))
    if chosen is not None:
        records = cancelled.marked(records, chosen(records["query_id"]))
    sealed = Sealed(directory, manifest, scenario, records, facts)
    client_stats = [(member.done or {}).get("client", {}) for member in members]
    write = partial(_write, plan=plan, client_stats=client_stats, answers=answers)
    try:
        write(sealed)
    except OSError as error:
        sealed = _sealed_elsewhere(sealed, write, error)
    if sealed.whole:  # first of all: sealed elsewhere, with no manifest here, this one would seem to be unsealed
        _forget(directory)
    for folder in folders if not unreadable and sealed.whole else []:
        shutil.rmtree(folder, ignore_errors=True)
    for log in (directory.worker_log, directory.server_log):
        with contextlib.suppress(OSError):  # read-only by now
            if log.is_file() and not log.stat().st_size:
                log.unlink()
    return replace(sealed, records=with_deadline(records, facts.frame_deadline_ns))


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


def _counted(facts: GeneratorFacts, records: Records, plan: Plan) -> GeneratorFacts:
    """What only the whole run can count."""
    n_queries = len(np.unique(records["query_id"][records["phase"] == 0]))
    return replace(
        facts,
        planned=facts.planned or int((records["phase"] == 0).sum()),
        planned_queries=facts.planned_queries or n_queries,
        elapsed_ns=_elapsed_ns(records, n_queries),
        plan_samples=plan.n_samples if plan.open_loop else 0,
    )


def _lost_in_closed_loop(plan: Plan, members: Sequence[Member], measured: Records) -> list[str]:
    """A closed loop has no list to tell what a dead worker had on the wire: say at least how many there were."""
    notes = []
    for member in members if plan.cyclic else ():
        recorded = int((measured["worker"] == member.index).sum())
        sent = int(member.status.get("sent", 0))
        if member.done is None and sent > recorded:
            notes.append(f"worker {member.index} had sent at least {sent} requests, of which {recorded} were recorded")
    return notes


def _missing(plan: Plan, members: Sequence[Member], measured: Records, t0_ns: int, dealing: Dealing) -> Records:
    """Rows for planned samples that no worker recorded.

    UNFINISHED where a worker that died had come to their due time, so that it may have sent them, and where one says
    that it recorded more than came; UNSENT otherwise.
    """
    if plan.cyclic:
        return rec.empty()
    width = int(plan.sample_ix.max(initial=0)) + 1
    query = np.repeat(plan.query_id, np.diff(plan.offsets))
    have = measured["phase"] == 0
    seen = measured["query_id"][have] * width + measured["sample_ix"][have]
    left = ~np.isin(query * width + plan.sample_ix, seen)
    n = int(left.sum())
    dead = np.array([member.done is None for member in members], dtype=bool)
    owner = plan.owners(max(1, len(members)), dealing)[left]
    due = np.repeat(plan.due_ns, np.diff(plan.offsets))[left]
    until = np.array([(member.died_ns or t0_ns) - t0_ns for member in members])
    lost = dead[owner] & (due <= until[owner])
    taken = np.zeros(n, dtype=bool)
    for member in members:
        taken[np.flatnonzero(owner == member.index)[: accounts.gone(member, measured)]] = True
    errors = [
        DIED if died else GONE if away else _UNSENT for died, away in zip(lost.tolist(), taken.tolist(), strict=True)
    ]
    return rec.from_columns(
        n,
        query_id=query[left],
        sample_ix=plan.sample_ix[left],
        payload_ix=plan.payload_ix[left],
        due_ns=due,
        status=np.where(lost | taken, int(Status.UNFINISHED), int(Status.UNSENT)),
        worker=owner,
        errors=errors,
    )


def made_up(records: Records) -> BoolArray:
    """Which rows stand for what nobody recorded."""
    texts = [at for at, text in enumerate(records.errors) if text in _NOT_RECORDED]
    if not texts:
        return np.zeros(len(records), dtype=bool)
    never = np.isin(records["status"], (Status.UNFINISHED, Status.UNSENT)) & (records["phase"] != Phase.WARMUP)
    found: BoolArray = never & np.isin(records["error"], texts)
    return found


def _came(measured: Records, missing: Records) -> tuple[Records, Records]:
    """Rows that somebody recorded, and those that stand for others (a run sealed again has both in ``measured``)."""
    earlier = made_up(measured)
    return (
        (measured.select(~earlier), rec.concat([missing, measured.select(earlier)]))
        if earlier.any()
        else (measured, missing)
    )


def _elapsed_ns(records: Records, n_queries: int) -> int:
    """What LoadGen compares with min_duration: when the last query was due; of a single query, when it was over."""
    have = records["phase"] == 0
    times = records["due_ns" if n_queries > 1 else "done_ns"][have]
    return max(0, int(times.max(initial=0)))


def request_ids(run_id: str, records: Records) -> list[str]:
    """The ``x-request-id`` of every row: ``<run>-<query_id>-<sample_ix>``; warm-up rows have a ``w`` after the run."""
    rows = zip(records["query_id"].tolist(), records["sample_ix"].tolist(), records["phase"].tolist(), strict=True)
    return [f"{run_id}{'w' if phase == Phase.WARMUP else ''}-{query}-{sample}" for query, sample, phase in rows]


def _write(
    sealed: Sealed, plan: Plan, client_stats: Sequence[Mapping[str, Any]], answers: Callable[[Path], None] | None = None
) -> None:
    import pyarrow.parquet as pq

    directory = sealed.directory
    if answers is not None:
        answers(directory.path)
    ids = request_ids(str(sealed.manifest["run_id"]), sealed.records)
    requests, chunks = tables.to_tables(sealed.records, ids)
    for name, table in (("requests.parquet", requests), ("chunks.parquet", chunks)):
        whole(directory.file(name), partial(pq.write_table, table, compression="zstd"))
    plan_file.save(directory.path, plan)
    generator = {"schema": GENERATOR_SCHEMA, "facts": sealed.facts.to_json(), "clients": list(client_stats)}
    generator |= {"run_id": sealed.manifest["run_id"], "columns": sums(sealed.records)}
    write_json(directory.file("generator.json"), generator)
    scenario = write_scenario(directory, sealed.scenario)
    manifest = {**sealed.manifest, "scenario_sha256": _digest(scenario)}
    write_json(directory.file("manifest.json"), manifest)  # last: a directory with a manifest is whole


def write_scenario(directory: RunDirectory, scenario: Mapping[str, Any]) -> str:
    """Write scenario.yaml, whole or not at all, and return its text. Raises OSError."""
    text = yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True)
    whole(directory.file("scenario.yaml"), text.encode())
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


#: Rows of larger files than this, in bytes together, have their large arrays on disk.
_LARGE = 8 << 20


def open_sealed(path: Path) -> Sealed:
    """Open a sealed run directory. Raises HarnessFault naming what is missing or unreadable."""
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
        manifest = with_attempts(manifest, path)
        facts = GeneratorFacts.from_json(generator.get("facts"))
        counted = Sums()
        if sum(file.stat().st_size for file in path.glob("*.parquet")) > _LARGE:
            arrays.on_disk(path)
        records = tables.load(path, counted.add if isinstance(generator.get("columns"), dict) else None)
        asked = {"cancel": scenario.get("cancel"), "seed": scenario.get("seed")}
        asked |= {name: manifest.get(name) for name in ("plan_fingerprint", "source_samples")} | {"scenario": scenario}
        facts = plan_file.checked(facts, records, path, asked)
        changed = accounts.faults_of(counted.texts(), tables.names(path), generator, manifest.get("run_id"))
        facts = replace(facts, plan_faults=(*facts.plan_faults, *changed))
        if manifest.get("scenario_sha256", _digest(text)) != _digest(text):
            fault = "scenario.yaml is not the one that was sealed (scenario_sha256 in manifest.json)"
            facts = replace(facts, plan_faults=(*facts.plan_faults, fault))
        records = with_deadline(records, facts.frame_deadline_ns)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarnessFault(f"{path}: this run directory is damaged or from another version ({error})") from None
    return Sealed(directory, manifest, scenario, records, facts)


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
