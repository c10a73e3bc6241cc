"""Segments hold a worker's rows on disk while the run goes on, each whole or not there at all.

``SegmentWriter`` is the worker's thread that writes and renames; a full disk sends segments to another folder and says
so, and rows that no disk takes stay in memory. ``read_segments`` is the coordinator's side. Whoever writes there holds
the folder (``hold``), so that nobody seals a run that goes on (``claim``), and leaves its last message beside its
segments (``keep_done``): without one, rows may be missing. Nothing is judged here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import re
import stat
import tempfile
import threading
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plimsoll.documents import files
from plimsoll.harness.process.writing import whole
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import COLUMNS, RAGGED, SESSION_COLUMNS, Records, SessionTable, contradiction, freeze
from plimsoll.slo.validity.accounts import digests

_MAGIC = b"plimsoll-segment/2\n"
#: A column of one value may stand for so many rows: far more than a segment has.
_MOST_ALIKE = 1 << 22
#: Of rows that no disk takes, a worker holds so many bytes, as segments would have them, and then sends no more.
MOST_UNWRITTEN, _ROW = 16 << 20, 200
#: An array of a label is called so.
_LABEL = "label."
_DONE = re.compile(r"w(\d{3,6})\.done")


def hold(folder: Path) -> int | None:
    """Say for as long as the returned descriptor is open that somebody writes here; None where the file system knows no
    locks.

    Raises OSError if the folder is not there.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def claim(folder: Path) -> int:
    """Have the folder alone until the descriptor is closed. Raises OSError, BlockingIOError while others hold it."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise
    except OSError:
        pass  # no locks on this file system: whoever asks looks at the process as well
    return held


def _spill_prefix(folder: Path, run_id: str) -> str:
    mark = hashlib.sha256(f"{run_id} {folder.resolve()}".encode()).hexdigest()[:16]
    return f"plimsoll-spill-{mark}-"


def spilled(folder: Path, run_id: str) -> list[Path]:
    """Where workers of this run wrote once ``folder`` took no more, if they did; nobody's folders but ours.

    A worker that was killed has said so to nobody: the names say whose they are.
    """
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_spill_prefix(folder, run_id)}*")):
        with contextlib.suppress(OSError):
            there = path.lstat()
            if stat.S_ISDIR(there.st_mode) and there.st_uid == os.getuid():
                found.append(path)
    return found


def keep_done(folder: Path, worker: int, message: Mapping[str, Any]) -> None:
    """Write a worker's last message beside its segments. Raises OSError."""
    whole(folder / f"w{worker:03d}.done", json.dumps(message).encode())


def read_done(folder: Path) -> dict[int, dict[str, Any]]:
    """The last messages of the workers that came to their end, by worker. One that can't be read counts as none."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("w*.done")):
        name = _DONE.fullmatch(path.name)
        try:
            message = json.loads(files.read_text(path))
        except (OSError, ValueError, RecursionError):
            continue
        if name is not None and isinstance(message, dict):
            found[int(name[1])] = message
    return found


class SegmentWriter:
    """A thread that writes segments and renames each into place; ``notes`` says what had to be done differently.

    ``full``: no disk takes rows, and memory should hold no more of them: whoever sends should end.
    """

    def __init__(self, folder: Path, worker: int, run_id: str = "") -> None:
        self._folder = folder
        self._run_id = run_id
        self._worker = worker
        self._queue: SimpleQueue[Records | None] = SimpleQueue()
        self._spill: Path | None = None
        self.count = 0
        self.lost: list[int] = []
        self.faults: list[str] = []
        self.digest = 0
        self.notes: list[str] = []
        self.unwritten: list[Records] = []
        self.full = False
        self.folders = [str(folder)]
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)
        self._thread.start()

    def put(self, records: Records) -> None:
        self._queue.put(records)

    def close(self) -> None:
        """Write what is queued and stop."""
        self._queue.put(None)
        self._thread.join()

    @property
    def account(self) -> dict[str, Any]:
        """What was handed over, once it is closed: rows' digest, segments, and the numbers that no file has."""
        return {"digest": self.digest, "segments": self.count, "unwritten": self.lost}

    def _run(self) -> None:
        try:
            while (records := self._queue.get()) is not None:
                self._take(records)
        except BaseException as error:  # noqa: BLE001 - nobody sees a thread die: the run is INVALID, and says of what
            self.faults.append(_died(f"worker {self._worker}: the thread that writes segments ended", error))

    def _take(self, records: Records) -> None:
        number = self.count
        name = segment_name(self._worker, number)
        self.count += 1
        try:
            self.digest = (self.digest + sum(digests(records).values())) % (1 << 64)
            write_segment(self._folder / name, records)
        except OSError as error:
            self._write_elsewhere(name, records, error)
        except Exception as error:  # noqa: BLE001 - a defect costs one segment, and the run says so
            self.lost.append(number)
            self.faults.append(_died(f"segment {name} with {len(records)} rows could not be written", error))

    def _write_elsewhere(self, name: str, records: Records, error: OSError) -> None:
        try:
            if self._spill is None:
                self._spill = Path(tempfile.mkdtemp(prefix=_spill_prefix(self._folder, self._run_id)))
                self.folders.append(str(self._spill))
                self.notes.append(
                    f"segments could not be written to {self._folder} ({error.strerror or error}); from then on they "
                    f"went to {self._spill}. Free some space there before the next run"
                )
            write_segment(self._spill / name, records)
        except OSError as second:
            self.lost.append(self.count - 1)
            self.unwritten.append(records)  # the worker hands these to the coordinator over its pipe
            self.notes.append(
                f"segment {name} with {len(records)} rows could not be written to {self._folder} "
                f"({error.strerror or error}) nor to the temporary folder ({second.strerror or second}); they were "
                "kept in memory"
            )
            held = sum(len(one) * _ROW + one.chunk_ns.nbytes for one in self.unwritten)
            if held > MOST_UNWRITTEN and not self.full:
                self.full = True
                self.faults.append(
                    f"worker {self._worker} ended the run: no disk takes its rows ({error.strerror or error}), and it "
                    f"held {held >> 20} MiB of them. Make room and measure again"
                )


def _died(what: str, error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f", at {Path(where[0].filename).name}:{where[0].lineno}" if where else ""
    return f"{what}: {type(error).__name__}: {error}{at} (a defect: report it with worker.log)"


def segment_name(worker: int, number: int) -> str:
    """The file of one segment of a worker's."""
    return f"w{worker:03d}-{number:06d}.seg"


def write_segment(path: Path, records: Records) -> None:
    """Write one segment, on disk when this returns: it exists whole or not at all. Raises OSError."""
    whole(path, lambda file: dump_segment(file, records), sync=True)


def dump_segment(file: IO[bytes], records: Records) -> None:
    """Write one segment's bytes: magic, header length, JSON header, the arrays as they lie in memory, CRC-32 of it all.

    A column of one value is written as that value: half of them are, and copying is most of what a segment costs.
    Not .npz: zipfile is Python code, and its hold of the interpreter lock delayed the sending loop by up to 5 ms.
    """
    arrays = {**records.columns, "chunk_ns": records.chunk_ns, "chunk_offsets": records.chunk_offsets}
    if records.session is not None:
        arrays |= _session_arrays(records.session)
    if records.labels is not None:
        arrays |= {_LABEL + label: places for label, places in records.labels.columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    arrays = {name: array[:1] if _is_constant(array) else array for name, array in arrays.items()}
    layout = [(name, array.dtype.str, len(array), lengths[name]) for name, array in arrays.items()]
    texts = {"errors": list(records.errors), "timings": list(records.timings)}
    if records.session is not None:
        texts["slices"] = list(records.session.slices)
    labelled = {} if records.labels is None else {"labels": dict(records.labels.texts)}
    header = json.dumps({"arrays": layout, **texts, **labelled}).encode()
    check = 0
    columns = [np.ascontiguousarray(array).data.cast("B") if len(array) else b"" for array in arrays.values()]
    for data in (_MAGIC, len(header).to_bytes(8, "little"), header, *columns):
        check = zlib.crc32(data, check)
        file.write(data)
    file.write(check.to_bytes(4, "little"))


def _session_arrays(session: SessionTable) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a session table under names that no other column has."""
    arrays: dict[str, npt.NDArray[np.generic]] = {f"session.{name}": session.columns[name] for name in SESSION_COLUMNS}
    for name in RAGGED:
        arrays[f"values.{name}"], arrays[f"offsets.{name}"] = session.ragged[name]
    return arrays


def _session_table(arrays: dict[str, npt.NDArray[np.generic]], slices: list[str]) -> SessionTable:
    """The session table of what ``_session_arrays`` made."""
    columns = {name: arrays[f"session.{name}"].astype(np.int64) for name in SESSION_COLUMNS}
    ragged = {
        name: (arrays[f"values.{name}"].astype(np.int64), arrays[f"offsets.{name}"].astype(np.int64)) for name in RAGGED
    }
    return freeze(columns, ragged, slices)


def _is_constant(array: npt.NDArray[np.generic]) -> bool:
    return len(array) > 1 and bool(array[0] == array[-1]) and bool((array == array[0]).all())


def read_segment(path: Path) -> Records:
    """Read one segment back. Raises OSError, or ValueError if it is damaged."""
    return load_segment(files.read_bytes(path))


def load_segment(data: bytes) -> Records:
    """Read what ``dump_segment`` wrote. Raises ValueError if it is damaged or holds anything but rows of ours."""
    body, check = memoryview(data)[:-4], data[-4:]
    if not data.startswith(_MAGIC) or zlib.crc32(body).to_bytes(4, "little") != check:
        raise ValueError("not a whole segment")
    records = _records(body)
    if problem := contradiction(records):
        raise ValueError(problem)
    return records


def mapped_segment(path: Path) -> tuple[Records, bytes]:
    """A segment that ``load_segment`` has found whole, and the CRC-32 at its end: its columns stay in the file until
    they are used. A column of one value is a broadcast of it.

    Raises OSError, or ValueError where the file is another one by now.
    """
    with files.opened(path) as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("not a whole segment")
    return _records(data[:-4]), bytes(data[-4:])


def _records(body: memoryview) -> Records:
    """The rows in a segment's bytes without the CRC. Raises ValueError."""
    at = len(_MAGIC) + 8
    end = at + int.from_bytes(body[len(_MAGIC) : at], "little")
    try:
        header = json.loads(bytes(body[at:end]))
    except RecursionError:
        raise ValueError("its header is nested too deep") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no mapping")
    texts = {name: _texts(header, name) for name in ("errors", "timings", *(["slices"] if "slices" in header else []))}
    layout: Any = header.get("arrays")
    named = [str(one[0]) for one in layout if one] if "labels" in header and isinstance(layout, list) else []
    named = [name for name in named if name.startswith(_LABEL)]
    arrays = _arrays(layout, body[end:], "slices" in texts, named)
    session = _session_table(arrays, list(texts["slices"])) if "slices" in texts else None
    columns = {name: arrays[name] for name in COLUMNS}
    labels = None
    if named:
        words: Any = header["labels"]
        tables = {label: _texts(words, label) for label in words} if isinstance(words, dict) else {}
        places = {name.removeprefix(_LABEL): arrays[name].astype(np.int64) for name in named}
        labels = LabelTable(places, tables, len(columns["status"]))
    chunk_ns, offsets = (arrays[name].astype(np.int64, copy=False) for name in ("chunk_ns", "chunk_offsets"))
    return Records(columns, chunk_ns, offsets, texts["errors"], texts["timings"], session, None, labels)


def _texts(header: dict[str, Any], name: str) -> tuple[str, ...]:
    found = header.get(name)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{name} is no list of texts")
    return tuple(found)


def _arrays(
    layout: object, body: memoryview, has_session: bool, labels: Sequence[str]
) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a segment by name, if they are ours, of our types and lengths. Raises ValueError."""
    wanted = {**COLUMNS, "chunk_ns": "i8", "chunk_offsets": "i8", **dict.fromkeys(labels, "i8")}
    if has_session:
        names = [f"session.{name}" for name in SESSION_COLUMNS]
        names += [f"{kind}.{name}" for name in RAGGED for kind in ("values", "offsets")]
        wanted |= dict.fromkeys(names, "i8")
    entries: list[Any] = layout if isinstance(layout, list) else []
    named = [str(entry[0]) if isinstance(entry, list) and entry else "" for entry in entries]
    if sorted(named) != sorted(wanted):  # in any order
        raise ValueError("its columns are not those of this version")
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    at = 0
    for entry in entries:
        dtype = wanted[str(entry[0])]
        if len(entry) != 4 or entry[1] != np.dtype(dtype).str or not all(type(n) is int and n >= 0 for n in entry[2:]):
            raise ValueError(f"{entry[0]} is not laid out as this version does")
        name, _, count, length = entry
        if count != length and not (count == 1 < length <= _MOST_ALIKE):
            raise ValueError(f"{name} has {count} values for {length} rows")
        if count * np.dtype(dtype).itemsize > len(body) - at:
            raise ValueError(f"{name} goes on after the end")
        array = np.frombuffer(body, dtype=dtype, count=count, offset=at)
        at += array.nbytes
        arrays[name] = array if count == length else np.ndarray(length, array.dtype, array, 0, (0,))  # a broadcast
    if at != len(body):
        raise ValueError("there is more in it than its columns")
    if (
        len({len(array) for name, array in arrays.items() if name in COLUMNS or name.startswith(("session.", _LABEL))})
        != 1
    ):
        raise ValueError("its columns are of different lengths")
    return arrays


def read_segments(folders: Sequence[Path]) -> tuple[list[Records], list[str]]:
    """All segments in these folders, in worker and time order, and a message for each that can't be read.

    One whose writer was killed before it was renamed counts where it is whole all the same.
    """
    faults: list[str] = []
    return [records for *_, records in each_segment(folders, faults)], faults


def each_segment(folders: Sequence[Path], faults: list[str]) -> Iterator[tuple[Path, bytes, Records]]:
    """One after another what ``read_segments`` gives together, with their files and the CRC-32 in them; ``faults``
    takes the messages.
    """
    for path in sorted((path for folder in folders for path in segment_files(folder)), key=lambda path: path.name):
        try:
            data = files.read_bytes(path)
            found = path, data[-4:], load_segment(data)
        except (OSError, ValueError, KeyError, MemoryError) as error:
            torn = path.suffix == ".partial"
            what = "was cut off as it was written" if torn else f"is unreadable ({error or 'no memory for it'})"
            faults.append(f"segment {path} {what}: its rows are missing")
        else:
            yield found


def segment_files(folder: Path) -> list[Path]:
    """The segments in a folder, and what a killed writer left of one in the place of it."""
    if not folder.is_dir():
        return []
    whole = list(folder.glob("w*.seg"))
    there = {path.stem for path in whole}
    return [*whole, *(path for path in folder.glob("w*.partial") if path.name.partition(".")[0] not in there)]
