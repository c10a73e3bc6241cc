"""plan.npz: the plan of a run as its directory keeps it, and whether the run beside it is the one that was planned.

The file holds everything that ``plan_fingerprint`` in manifest.json covers, so the fingerprint can be made again from
it; of a plan of more than ``MOST`` samples it holds the scalars and the extent, and scenario.yaml beside it makes the
rest again. A run that is not its plan's is INVALID, whoever changed which of the two.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, get_args
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np

from plimsoll.documents import files
from plimsoll.documents.text import plain
from plimsoll.harness.process.writing import whole
from plimsoll.harness.sealing.chained import Chain
from plimsoll.harness.sealing.planned import END, MEASURED, Columns, Cursor, Differences, keys
from plimsoll.scenarios.plan.blocks import Blocks, Extent, Survey, cut
from plimsoll.scenarios.plan.plan import ARRAYS, Dealing, IntArray, Plan, QueryLabels, Stop, dealt
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import BoolArray, Records
from plimsoll.slo.validity.generator import GeneratorFacts

NAME = "plan.npz"
#: More samples than this are kept by seed. They would cost 2 us each to write and 0.2 us to read; to make them again
#: costs 0.05 us.
MOST = 1 << 18
_SCALARS = ("seed", "open_loop", "cyclic", "max_in_flight", "first_id", "id_step")
#: An array of a label is called so.
_LABEL = "label."
_EXTENT = ("n_queries", "n_samples", "first_ns", "last_ns")
#: What of a scenario decides its plan.
_PLANNED_BY = ("name", "kind", "mode", "params", "stop", "seed")
#: What a damaged archive makes numpy and zipfile raise.
_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError, MemoryError, OverflowError, SyntaxError),
)
#: Rows that are held against the plan at a time.
_BLOCK = 1 << 17
Arrays = Mapping[str, IntArray]


def save(folder: Path, plan: Plan | Blocks) -> None:
    """Write the plan, whole or not at all, unless it is there already. Raises OSError."""
    pieces = plan if isinstance(plan, Blocks) else cut(plan)
    head, extent = pieces.head, pieces.extent()
    scalars: dict[str, Any] = {name: getattr(head, name) for name in _SCALARS} | {"stop": asdict(head.stop)}
    arrays: dict[str, Any] = {}
    if extent.n_samples > MOST and not bool((head.after >= 0).any()):  # those of sessions may come from data
        scalars["by_seed"] = {name: getattr(extent, name) for name in _EXTENT}
    else:
        made = pieces.whole()
        arrays = {name: getattr(made, name) for name in ARRAYS}
        if made.labels is not None:
            arrays |= {_LABEL + label: np.asarray(one, np.int64) for label, one in made.labels.columns.items()}
            scalars["texts"] = {label: list(texts) for label, texts in made.labels.texts.items()}
        if _is_there(folder / NAME, arrays, scalars):
            return
    arrays["scalars"] = np.array(json.dumps(scalars))
    whole(folder / NAME, lambda file: _pack(file, arrays))


def _pack(file: IO[bytes], arrays: Arrays) -> None:
    """As ``np.savez_compressed``, in a seventh of the time and with 3 % more bytes."""
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            member = BytesIO()
            np.save(member, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", member.getvalue())


def _is_there(path: Path, arrays: Arrays, scalars: Mapping[str, Any]) -> bool:
    """Beside a run that is being sealed: reading it takes a tenth of the time that writing it takes."""
    try:
        held, known = _read(path)
    except ValueError:
        return False
    return known == scalars and all(np.array_equal(held.get(name, ()), array) for name, array in arrays.items())


def load(folder: Path, manifest: Mapping[str, Any]) -> Blocks:
    """The plan that ``save`` wrote, its extent known. ``manifest`` has ``plan_fingerprint``, and ``source_samples`` of
    a plan by seed, whose scenario.yaml is in the folder, too.

    Raises ValueError for a damaged file, and for another plan.
    """
    arrays, scalars = _read(folder / NAME)
    if scalars is None:
        raise ValueError(f"{NAME} is no plan: it lacks its scalars")
    if "by_seed" in scalars:
        scenario = plain(files.read_text(folder / "scenario.yaml"))
        return _by_seed(scalars, scenario, manifest.get("source_samples"), manifest.get("plan_fingerprint")).pieces
    found = _in_memory(arrays, scalars).survey()
    if not any(manifest.get("plan_fingerprint") == one for one in _prints(found)):
        raise ValueError(f"{NAME} does not have the plan_fingerprint that the run began with")
    return found.pieces


@dataclass(frozen=True, slots=True)
class Share:
    """What of a plan one agent sends: the shards ``mine`` of ``shards``, as ``dealing`` deals them."""

    mine: tuple[int, ...]
    shards: int
    dealing: Dealing

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> Share | None:
        """That of a run directory; None: it holds the whole run. Raises ValueError."""
        told = manifest.get("share")
        if told is None:
            return None
        mine, shards, dealing = (told.get(name) for name in ("mine", "shards", "dealing"))
        numbers = isinstance(mine, list) and all(type(one) is int for one in (*mine, shards))
        if not numbers or dealing not in get_args(Dealing) or not all(0 <= one < shards for one in mine):
            raise ValueError("share of manifest.json names no shards of a plan")
        return Share(tuple(mine), shards, dealing)

    def part(self, plan: Blocks) -> Blocks:
        """The rows that it sends; of a closed loop all, as every shard has."""
        if plan.head.cyclic:
            return plan
        made = Blocks(partial(self._part, plan))
        return replace(made, known=made.extent())

    def _part(self, plan: Blocks) -> Iterator[Plan]:
        pieces = iter(plan)
        begun = [*islice(pieces, 2)]
        found = False
        for piece in chain(begun, pieces):
            owner = dealt(piece.query_id, self.shards, self.dealing)
            if len(begun) == 1 and piece.n_queries > 1:  # what waits for another goes where that goes
                owner = piece.owners(self.shards, self.dealing)[piece.offsets[:-1]]
            rows = np.flatnonzero(np.isin(owner, self.mine))
            if len(rows):
                found = True
                yield piece.select(rows, piece.max_in_flight)
        if not found:
            yield begun[0].select(np.empty(0, np.int64), begun[0].max_in_flight)


def _in_memory(arrays: Arrays, scalars: Mapping[str, Any]) -> Blocks:
    named = {name.removeprefix(_LABEL): array for name, array in arrays.items() if name.startswith(_LABEL)}
    own: dict[str, Any] = {name: array for name, array in arrays.items() if not name.startswith(_LABEL)}
    own |= {name: value for name, value in scalars.items() if name != "texts"}
    try:
        texts = {str(label): tuple(map(str, found)) for label, found in scalars.get("texts", {}).items()}
        labels = QueryLabels(named, texts) if named else None
        return cut(Plan(**{**own, "labels": labels, "stop": Stop(**scalars.get("stop", {}))}))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{NAME} is no plan: {str(error).rstrip('.')}") from None


def _by_seed(scalars: Mapping[str, Any], scenario: Any, n_samples: object, fingerprint: object) -> Survey:
    """The plan that scenario.yaml makes. Raises ValueError where it makes none, or another than was planned."""
    from plimsoll.scenarios.spec import ScenarioError, parse  # pydantic: few runs need it

    again = f"{NAME} holds its plan by seed, and scenario.yaml makes"
    if type(n_samples) is not int or n_samples < 1 or not isinstance(scenario, Mapping):
        raise ValueError(f"{again} no plan: it is no scenario, or manifest.json lacks source_samples")
    try:
        wanted = {name: scenario[name] for name in _PLANNED_BY if name in scenario}
        found = parse(wanted, "scenario.yaml").blocks(n_samples).held().survey()
    except ScenarioError as error:
        raise ValueError(f"{again} no plan any more ({'; '.join(error.errors).rstrip('.')})") from None
    head = found.pieces.head
    held = {name: getattr(head, name) for name in _SCALARS} | {"stop": asdict(head.stop)}
    held["by_seed"] = {name: getattr(found, name) for name in _EXTENT}
    if found.fingerprint != fingerprint or held != scalars:
        raise ValueError(
            f"{again} another one now, without the plan_fingerprint that the run began with: a file that it names was "
            "changed, or this version of Plimsoll makes other plans. Put the file back, or read the run with the "
            "version that manifest.json names"
        )
    return found


def _prints(plan: Survey) -> Iterator[str]:
    """Its fingerprint, and the one that it had until there were blocks (schema ``plimsoll.plan/1``)."""
    yield plan.fingerprint
    digest, head = hashlib.sha256(b"plimsoll.plan/1"), plan.pieces.whole()
    for item in [item for item in fields(head) if item.name != "labels"] if head.labels is None else ():
        value = getattr(head, item.name)
        if item.name in ARRAYS:
            data = np.asarray(value, dtype="<i8").tobytes()
        elif isinstance(value, Stop):
            data = "\0".join(f"{f.name}={getattr(value, f.name)}" for f in fields(value)).encode()
        else:
            data = str(value).encode()
        digest.update(f"\0{item.name}\0{len(data)}\0".encode())
        digest.update(data)
    yield digest.hexdigest()


def checked(facts: GeneratorFacts, records: Records, folder: Path, run: Mapping[str, Any]) -> GeneratorFacts:
    """The facts with what the plan's own file says: its samples, counted where they are, and what in the run is not as
    planned.

    ``run`` has ``plan_fingerprint``, ``source_samples`` and ``share`` (of the manifest), ``scenario``, and of that
    ``cancel`` and ``seed``. Raises ValueError for a file that can't be read.
    """
    arrays, scalars = _read(folder / NAME)
    # A plan of an earlier version has no scalars: its arrays can be held against the rows, and it has no fingerprint.
    unknown = {"open_loop": facts.open_loop, "cyclic": not facts.open_loop, "max_in_flight": 1, "seed": 0}
    found = []
    if scalars is None and facts.sent >= 0:  # who counted what was sent wrote scalars too
        found.append(f"{NAME} lacks its scalars")
    by_seed = (scalars or {}).get("by_seed")
    n_samples = len(arrays["sample_ix"]) if by_seed is None else by_seed["n_samples"]
    share = Share.of(run)
    fingerprint = run.get("plan_fingerprint")
    try:
        if by_seed is None:
            plan = _in_memory(arrays, scalars or unknown).survey()
        else:
            plan = _by_seed(scalars or {}, run.get("scenario"), run.get("source_samples"), fingerprint)
    except ValueError as error:
        found.append(str(error))
    else:
        if scalars and not any(fingerprint == one for one in _prints(plan)):
            found.append(f"{NAME} does not have the plan_fingerprint that manifest.json names")
        if plan.open_loop != facts.open_loop:
            loops = {True: "an open loop", False: "a closed one"}
            found.append(f"{NAME} is of {loops[plan.open_loop]}, generator.json of {loops[facts.open_loop]}")
        mine = plan.pieces if share is None else share.part(plan.pieces)
        n_samples = n_samples if share is None else mine.extent().n_samples
        different, unreached = differences(records, mine)
        found += different
        n_samples -= unreached
        found += _cancellation(records, plan, run)
    return replace(facts, plan_samples=n_samples if facts.open_loop else 0, plan_faults=tuple(found))


def differences(records: Records, plan: Plan | Blocks) -> tuple[list[str], int]:
    """What in the rows of the planned load is not of this plan, as ``Differences`` says it; and how many samples were
    never due.
    """
    pieces = plan if isinstance(plan, Blocks) else cut(plan)
    head, cursor = pieces.head, Cursor(pieces)
    found, chain = Differences(pieces, cursor.width), Chain.of(pieces)
    rows = _planned_rows(records)
    key = keys(rows[0], rows[1], cursor.width)
    if not head.cyclic and bool((key[1:] < key[:-1]).any()):  # no run of ours has them so
        order = np.lexsort((rows[1], rows[0]))
        rows, key = _taken(rows, order), key[order]
    begin, n = 0, len(key)
    while begin < n:
        end = min(begin + _BLOCK, n)
        while end < n and key[end] == key[end - 1]:
            end += 1
        samples = None if head.cyclic else cursor.until(MEASURED + int(key[end - 1]) + 1)
        if samples is not None and chain is not None:
            samples = chain.settled(samples, records)
        found.add(_taken(rows, slice(begin, end)), samples)
        begin = end
    if not head.cyclic:
        left = cursor.until(END)
        found.add(_taken(rows, slice(n, n)), left if chain is None else chain.settled(left, records))
    return found.texts(), 0 if chain is None else chain.unreached


def _planned_rows(records: Records) -> Columns:
    """The columns that a plan decides, of the rows of the planned load."""
    mask = records.planned
    rows: Columns = (records["query_id"], records["sample_ix"], records["payload_ix"], records["due_ns"])
    return rows if bool(mask.all()) else _taken(rows, mask)


def _taken(rows: Columns, which: IntArray | BoolArray | slice) -> Columns:
    query, sample, payload, due = (column[which] for column in rows)
    return query, sample, payload, due


def _read(path: Path) -> tuple[dict[str, IntArray], dict[str, Any] | None]:
    """The arrays of a plan's file, each a list of whole numbers (none of a plan by seed), and its scalars. Raises
    ValueError.
    """
    try:
        with files.opened(path) as file, np.load(file, allow_pickle=False) as archive:
            text = str(archive["scalars"]) if "scalars" in archive.files else None
            scalars = None if text is None else json.loads(text)
            by_seed = isinstance(scalars, dict) and "by_seed" in scalars
            names = [*ARRAYS, *(name for name in archive.files if name.startswith(_LABEL))]
            arrays = {} if by_seed else {name: np.asarray(archive[name]) for name in names}
    except _UNREADABLE as error:
        raise ValueError(f"{NAME}: {_said(error)}") from None
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != np.int64:
            raise ValueError(f"{NAME}: {name} is {array.dtype} of {array.ndim} dimensions, not a list of int64")
    if scalars is not None and not (isinstance(scalars, dict) and isinstance(scalars.get("stop"), dict)):
        raise ValueError(f"{NAME}: scalars is no mapping with a mapping stop")
    extent = scalars["by_seed"] if scalars and "by_seed" in scalars else dict.fromkeys(_EXTENT, 0)
    if not isinstance(extent, dict) or any(type(extent.get(name)) is not int for name in _EXTENT):
        raise ValueError(f"{NAME}: by_seed is no mapping of {', '.join(_EXTENT)}")
    return arrays, scalars


def _said(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is missing"
    return str(error) or type(error).__name__


def _cancellation(records: Records, plan: Extent, run: Mapping[str, Any]) -> list[str]:
    """Rows in the phase ``cancel`` are those that the scenario drew for it, and no others."""
    set_apart = cancelled.chosen(records)
    if not run.get("cancel"):
        count = int(set_apart.sum())
        return [f"{count} rows are in the phase cancel, and scenario.yaml cancels nothing"] if count else []
    if run["cancel"] == "recorded":  # by a file that may be gone
        return []
    from plimsoll.scenarios.plan.cancellation import CancelSection, chosen  # pydantic: few runs need it

    mask = records.planned
    section = CancelSection.model_validate(run["cancel"])
    drawn = chosen(section, int(run["seed"]), plan, records["query_id"][mask])
    wrong = int((drawn != set_apart[mask]).sum())
    return [f"{wrong} rows are not in the phase that the scenario's cancel drew them for"] if wrong else []
