"""From a file's lines to a recording's rows: what formats have in common.

A format makes of a line a mapping of columns of ``Recording`` to values: a session's key and a label's text are what
the file has, ``ids`` are those of the prompt's blocks. What is not of a column is an error with its line; nothing is
left out that the format does not name.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation, Overflow
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples import csv_blocks
from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.lines import LONGEST, bounded, each_line, told
from plimsoll.scenarios.samples.recording import (
    CANCELLED,
    FAILED,
    OK,
    OPTIONAL,
    REFUSED,
    STATUSES,
    STEP,
    TIMEOUT,
    Recording,
    key_of,
)
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT

Row = dict[str, Any]
Name = str | None
S, MS = 1_000_000_000, 1_000_000

#: The longest length that is believed, the bytes of plain lines that are read at once, and the ids in memory.
MOST, _PLAIN, _IDS, _WIDEST = 10_000_000, 1 << 22, 1 << 20, (1 << 63) - 1
#: The largest file that is one JSON value: it is read whole.
_WHOLE = 1 << 28
#: A date and time of this age and the next one, which 64 bits hold in ns. numpy would take "now" and "NaT" too.
_MOMENT = re.compile(r"(?:19|20|21)\d\d-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)?", re.ASCII)
#: Of the first line, where no key of an object is looked for.
_LINE = 1_000_000
#: How text begins that has two or four bytes a letter, with a mark or without. The names are iconv's.
_WIDE = re.compile(
    rb"(?P<UTF_32>\xff\xfe\0\0|\0\0\xfe\xff)|(?P<UTF_16>\xff\xfe|\xfe\xff)"
    rb"|(?P<UTF_16LE>(?:[\x01-\x7f]\0){4})|(?P<UTF_16BE>(?:\0[\x01-\x7f]){4})",
    re.DOTALL,
)
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zX": "xz", b"PK\x03\x04": "zip"}


class Columns(BaseModel):
    """What the columns (CSV) or keys (JSON Lines) of a file of yours are called, and which of any file to leave out."""

    model_config = STRICT
    time: str = Field(default="time", min_length=1, description="When: a number of `time_unit`, or an ISO 8601 text.")
    input_tokens: str = Field(
        default="input_tokens", min_length=1, description="Prompt length; the column may be absent."
    )
    output_tokens: str = Field(default="output_tokens", min_length=1, description="Answer length; likewise.")
    session: Name = Field(default=None, min_length=1, description="Whose turns belong together: any text or number.")
    turn: Name = Field(default=None, min_length=1, description="Which turn of its session, from 1; else by time.")
    think: Name = Field(default=None, min_length=1, description="From the end of the turn before, in `time_unit`.")
    status: Name = Field(default=None, min_length=1, description="ok, failed, timeout, refused, cancelled, or HTTP's.")
    gave_up: Name = Field(default=None, min_length=1, description="When the client cancelled, after its start.")
    latency: Name = Field(default=None, min_length=1, description="As it was measured then, in `time_unit`.")
    ttft: Name = Field(default=None, min_length=1, description="To the first token, likewise.")
    images: Name = Field(default=None, min_length=1, description="Pictures in the prompt.")
    attempt: Name = Field(default=None, min_length=1, description="0 for the first, 1 for its first repetition.")
    labels: tuple[str, ...] = Field(default=(), strict=False, description="Texts with few values, kept by name.")
    ignore: tuple[str, ...] = Field(default=(), strict=False, description="Left out: else a column would be lost.")
    cumulative: bool | None = Field(default=None, description="Lengths of a turn contain the turns before it.")


@dataclass(frozen=True, slots=True)
class Head:
    """How a file begins. ``entry``: its first line as an object, else empty; ``columns``: as the head of CSV."""

    path: Path
    first: str
    text: str
    entry: Mapping[str, Any]
    columns: tuple[str, ...]


@dataclass(slots=True)
class Reading:
    """One file on its way into a recording. ``where`` names the scenario's key, ``other`` the format it looks like,
    ``part`` the class of a run."""

    path: Path
    where: str
    names: Columns
    unit_ns: int
    errors: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    other: str | None = None
    part: str | None = None

    def lines(self, make: Callable[[dict[str, Any]], Row | None]) -> Iterator[tuple[int, Row]]:
        """What ``make`` makes of each line's object, with its number; None: it is no request."""

        def made(entry: Any, where: str) -> tuple[int, Row | None]:
            return int(where.rpartition(":")[2]), make(_object(entry))

        for number, row in each_line(self.path, made, self.errors, opened):
            if row is not None:
                yield number, row

    def texts(self, make: Callable[[str], Row]) -> Iterator[tuple[int, Row]]:
        """What ``make`` makes of each line that is not empty, with its number."""
        with opened(self.path) as file:
            for number, line in enumerate(bounded(file, self.path), 1):
                text = line.decode("utf-8", errors="replace").strip()
                try:
                    if text:
                        yield number, make(text)
                except ValueError as error:
                    self.say(number, error)

    def say(self, line: int, problem: object, what: str = "") -> None:
        """One problem more."""
        told(self.errors, f"{self.path}:{what}{line}: {problem}")

    def wanted(self, takes: Mapping[str, Take]) -> dict[str, Take]:
        """Those that the user doesn't leave out, by their name in the file or in a recording."""
        out = {*self.names.ignore}
        return {
            name: take
            for name, take in takes.items()
            if take.needed or not out & {name, take.to[take.to.find(":") + 1 :]}
        }

    def require(self, keys: Collection[str], known: Iterable[str]) -> None:
        """Raise ValueError, once for each, where these keys hold what nobody would read."""
        if not {*keys}.difference(known):
            return
        losing = [key for key in keys if key not in known and key not in self.names.ignore and key not in self.lost]
        self.lost.update(losing)
        if losing:
            also = f" This looks like {self.other}: give that format, or " if self.other else " Name it in columns, or "
            raise ValueError(
                f"{', '.join(_plain(key) for key in losing[:10])} would be lost.{also}leave it out: columns.ignore: "
                f"[{', '.join(_plain(key) for key in losing[:10])}]."
            )


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() and c != "\ufffd" else "?" for c in str(name))[:60]


def _object(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError("not an object. Write one object a line.")
    return entry


def opened(path: Path) -> BinaryIO:
    """The file, unpacked where gzip packed it. Raises ScenarioError for what packs otherwise."""
    file = files.opened(path)
    magic = file.read(4)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        unpacked = gzip.GzipFile(fileobj=file)
        unpacked.myfileobj = file  # type: ignore[assignment]  # closed with it
        return cast(BinaryIO, unpacked)
    for begin, name in _PACKED.items():
        if magic.startswith(begin):
            file.close()
            raise ScenarioError([f"{path}: packed by {name}, which is not read here. Unpack it, or pack it with gzip."])
    return file


def head_of(path: Path) -> Head:
    with opened(path) as file:
        first = file.readline(_LINE)
        if first.startswith((b"{", codecs.BOM_UTF8 + b"{")) and not first.endswith(b"\n"):
            first += file.readline(LONGEST)  # its keys tell the format
        text = (first[: 1 << 16] + file.read(1 << 16))[: 1 << 16].decode("utf-8-sig", errors="replace")
    if wide := _WIDE.match(first):
        name = str(wide.lastgroup).replace("_", "-")
        raise ScenarioError([f"{path}: is {name} text, and UTF-8 is read. Convert it: iconv -f {name} -t UTF-8 {path}"])
    line = first.decode("utf-8-sig", errors="replace").strip()
    entry: Any = None
    with suppress(ValueError, RecursionError):
        entry = json.loads(line) if line.startswith("{") else None
    names: list[str] = []
    with suppress(csv.Error):
        names = [] if line.startswith(("{", "[")) else next(csv.reader([line], skipinitialspace=True), [])
    return Head(
        path, line[:_LINE], text, entry if isinstance(entry, dict) else {}, tuple(name.strip() for name in names)
    )


# -- rows -------------------------------------------------------------------------------------------------------------


def keep(reading: Reading, rows: Iterable[tuple[int, Row]], made: Recording, tree: Tree | None = None) -> None:
    """All of them into the recording."""
    batch: list[tuple[int, Row]] = []
    ids = 0
    for numbered in rows:
        batch.append(numbered)
        ids += len(numbered[1].get("ids") or numbered[1].get("said") or ())
        if len(batch) >= STEP // 4 or ids >= _IDS:
            _add(reading, batch, made, tree)
            batch, ids = [], 0
    if batch:
        _add(reading, batch, made, tree)


def _add(reading: Reading, batch: Sequence[tuple[int, Row]], made: Recording, tree: Tree | None) -> None:
    rows = [row for _, row in batch]
    names = set().union(*rows) - {f"label:{name}" for name in reading.names.ignore}
    names -= {"ids", "said"}
    columns: dict[str, Any] = {name: [row.get(name, -1) for row in rows] for name in names}
    for name in names:
        if name in ("session", "parent"):
            columns[name] = [key_of(None if value == -1 else value) for value in columns[name]]
        elif name.startswith("label:"):
            texts = [None if value in (-1, None, "") else str(value)[:1000] for value in columns[name]]
            columns[name] = made.codes(name[6:], texts)
        else:
            columns[name] = _numbers(reading, batch, name, columns[name])
    ids = [row.get("ids") or () for row in rows] if made.blocks else ()
    if tree is not None:
        for k, problem in tree.wrong(ids):
            reading.say(batch[k][0], problem)
    made.add(columns, ids, [row.get("said") for row in rows])


def _numbers(reading: Reading, batch: Sequence[tuple[int, Row]], name: str, values: list[int]) -> IntArray:
    """A column of whole numbers; each row whose number has no room in it is told."""
    most = (1 << 31) - 1 if OPTIONAL.get(name) == "<i4" else _WIDEST >> 1
    try:
        found = np.array(values, np.int64)
        wide = np.flatnonzero((found > most) | (found < -most)).tolist()
    except OverflowError:
        wide = [k for k, value in enumerate(values) if abs(value) > most]
    for k in wide:
        reading.say(batch[k][0], f"{name} is {values[k]}, which no recording has. Give a number below {most:,}.")
        values[k] = -1
    return np.array(values, np.int64) if wide else found


class Tree:
    """Every block has one block before it, so that its id says all that is before it too.

    Ids from 0 to 2^28 are looked at, each against its first row, in a file without a name: memory does not grow.
    """

    _MOST = 1 << 28

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="plimsoll-")  # noqa: SIM115 - it lives as long as this
        self._size = 0
        self._before: IntArray = np.empty(0, np.int64)

    def __del__(self) -> None:
        self._file.close()

    def wrong(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[int, str]]:
        """Rows that say something else than one before, and what."""
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(sizes.sum()))
        flat[(flat < 0) | (flat >= self._MOST)] = -1
        if not len(flat):
            return
        before = np.append(-1, flat[:-1]) + 3  # 0: never seen; 2: an id that is not looked at
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        before[starts] = 1
        self._grow(int(flat.max()) + 1)
        at = np.flatnonzero((flat >= 0) & (before != 2))
        new = at[self._before[flat[at]] == 0]
        self._before[flat[new][::-1]] = before[new][::-1]  # of several in this batch the first
        bad = at[self._before[flat[at]] != before[at]]
        rows = np.repeat(np.arange(len(sizes)), sizes)
        for row in np.unique(rows[bad]).tolist():
            block = int(flat[bad[rows[bad] == row][0]])
            yield (
                row,
                f"hash_ids: block {block} followed another block before, and an id stands for all that is before it: "
                "this file is corrupt. Get it anew, or leave hash_ids out.",
            )

    def _grow(self, n: int) -> None:
        if n > self._size:
            self._size = max(2 * self._size, n, 1 << 16)
            self._file.truncate(self._size * 8)
            self._before = np.asarray(np.memmap(self._file, np.int64, "r+", shape=(self._size,)))


def taken(entry: Mapping[str, Any], takes: Mapping[str, Take]) -> Row:
    """A row of the columns that an object has."""
    return {take.to: value_of(entry, name, take) for name, take in takes.items() if take.needed or name in entry}


def value_of(entry: Mapping[str, Any], name: str, take: Take) -> Any:
    """One column of it. Raises ValueError for a value that can't be."""
    if take.kind == "time":
        return time_of(entry, name, take.unit_ns)
    value = entry.get(name)
    if take.kind in ("key", "text"):
        return value if value is None or type(value) is int else str(value).strip()
    if take.blank and value in (None, ""):
        return -1
    if take.kind == "span":
        return span(value, name, take.unit_ns)
    return status_of(value, name) if take.kind == "status" else count_of(entry, name)


def time_of(entry: Mapping[str, Any], key: str, unit_ns: int) -> int:
    """Nanoseconds from whatever the file counts from. A text that is no number is a date and time."""
    value = entry.get(key)
    if type(value) is int and abs(value) < 2**32:
        return value * unit_ns
    if value is None or isinstance(value, bool):
        raise ValueError(f"{key} is missing. Give the time of each request, or name its column in columns.time.")
    try:
        exact = Decimal(str(value).strip()) * unit_ns
    except InvalidOperation:
        pass
    except Overflow:
        raise ValueError(f"{key} is {value!r:.60}, which no clock shows. Give a time.") from None
    else:
        if not exact.is_finite() or abs(exact) >= 2**62:
            raise ValueError(f"{key} is {value!r:.60}, which no clock shows. Give a time.")
        return round(exact)
    written = str(value).strip().removesuffix("Z").removesuffix("+00:00")
    try:
        if _MOMENT.fullmatch(written) is None:
            raise ValueError
        stamp = np.datetime64(written, "ns")
    except ValueError:
        raise ValueError(
            f"{key} is {value!r:.60}, neither a number nor a date and time in UTC. Write 2026-01-31 12:00:00.5."
        ) from None
    return int(stamp.astype(np.int64))


def count_of(entry: Mapping[str, Any], key: str) -> int:
    """A number from 0 up."""
    value = entry.get(key)
    try:
        number = -1 if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= MOST:
        raise ValueError(f"{key} is {value!r:.60}, not a length in tokens. Give a whole number from 0 up.")
    return number


def span(value: Any, key: str, unit_ns: int) -> int:
    """A duration in ns; -1: none is given."""
    if value is None or value == "":
        return -1
    try:
        exact = Decimal(str(value).strip()) * unit_ns
        if not isinstance(value, bool) and exact.is_finite() and 0 <= exact < 2**62:
            return round(exact)
    except (InvalidOperation, Overflow):
        pass
    raise ValueError(f"{key} is {value!r:.60}, not a duration. Give a number from 0 up, or none.")


def blocks_of(entry: Mapping[str, Any], key: str, n_in: int, tokens: int) -> list[int] | None:
    """Ids of the prompt's blocks, one for each so many tokens of it. Raises ValueError."""
    ids = entry.get(key)
    if ids is None:
        return None
    if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
        raise ValueError(f"{key} is not a list of whole numbers. Give the ids of its blocks, or leave it out.")
    if tokens and n_in >= 0 and len(ids) != -(-n_in // tokens):
        raise ValueError(
            f"{key} has {len(ids)} ids, and {n_in} tokens are {-(-n_in // tokens)} blocks of {tokens}: this file is "
            f"corrupt, or of another format. Get it anew, or leave {key} out."
        )
    return narrowed(ids)


def block_tokens_of(entry: Mapping[str, Any], key: str, sizes: set[int]) -> int:
    """How many tokens one id of a block stands for, which is the same all over the file; ``sizes``: what it was."""
    found = count_of(entry, key)
    if not found:
        raise ValueError(f"{key} is 0, and a block has tokens. Give a whole number from 1 up.")
    sizes.add(found)
    if len(sizes) > 1:
        raise ValueError(f"{key} is {max(sizes)} here and {min(sizes)} elsewhere. Give files apart.")
    return found


def narrowed(ids: list[int]) -> list[int]:
    """Ids of 63 bits; hashes of more lose the rest, which leaves those of a recording different."""
    return [i & _WIDEST for i in ids] if ids and (max(ids) > _WIDEST or min(ids) < -_WIDEST) else ids


#: What a status is written as.
WORDS = {"failed": FAILED} | {name: code for code, name in enumerate(STATUSES)}


def status_of(value: Any, key: str) -> int:
    """How it ended, of a word or a number of HTTP's."""
    word = str(value).strip().lower()
    if word in WORDS:
        return WORDS[word]
    if word.isascii() and word.isdigit() and 100 <= int(word) <= 599:
        return http_status(int(word))
    near = difflib.get_close_matches(word, WORDS, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"{key} is {value!r:.60}.{hint} Write one of {', '.join(WORDS)}, or a status of HTTP.")


def http_status(code: int) -> int:
    """What a response of this status is: 429 and 503 refuse, 408 and 504 are time-outs, 499 is a client that left."""
    special = {429: REFUSED, 503: REFUSED, 408: TIMEOUT, 504: TIMEOUT, 499: CANCELLED}
    return special.get(code, OK if code < 400 else FAILED)


# -- CSV --------------------------------------------------------------------------------------------------------------

Finish = Callable[[dict[str, Any]], None]


def read_csv(
    reading: Reading,
    made: Recording,
    takes: Mapping[str, Take],
    leaves: Iterable[str] = (),
    finish: Finish | None = None,
) -> None:
    """Blocks of plain lines at once; from the first other one on line by line, which says what is wrong with it."""
    with opened(reading.path) as file:
        first = file.readline(LONGEST)
        try:
            head = next(csv.reader([first.decode("utf-8-sig", errors="replace")], skipinitialspace=True), [])
        except csv.Error as error:
            raise ScenarioError([f"{reading.path}:1: not CSV ({error}). End each line with a line feed."]) from None
        head = [name.strip() for name in head]
        _check_head(reading, head, takes, leaves)
        takes = reading.wanted(takes)
        at, number, plain = 0, 0, b'"' not in first and len(set(head)) == len(head)
        while plain:
            at = file.tell()
            block = file.read(_PLAIN) + file.readline(LONGEST)
            whole = len(block) < LONGEST
            columns = csv_blocks.columns(block, head, takes, MOST, made.codes) if whole else None
            if columns is None:
                break
            if finish is not None:
                finish(columns)
            made.add(columns)
            number += block.count(b"\n")
        file.seek(at)
        text = TextIOWrapper(file, encoding="utf-8" if at else "utf-8-sig", errors="replace", newline="")
        rows = csv.DictReader(bounded(text, reading.path), head, skipinitialspace=True)
        found = _each_row(reading, rows, number + 1 if at else 0, takes)
        keep(reading, ((line, _finished(row, finish)) for line, row in found), made)


def _finished(row: Row, finish: Finish | None) -> Row:
    if finish is None:
        return row
    columns: dict[str, Any] = {name: np.array([value]) for name, value in row.items() if isinstance(value, int)}
    finish(columns)
    return row | {name: int(values[0]) for name, values in columns.items()}


def _check_head(reading: Reading, head: Sequence[str], takes: Mapping[str, Take], leaves: Iterable[str]) -> None:
    """One error for a column that is nowhere, or for nobody, not one for each line."""
    for at, name in enumerate(head):
        if name and name in head[:at]:
            both = f"columns {head.index(name) + 1} and {at + 1} are both called {name!r:.60}"
            raise ScenarioError([f"{reading.path}:1: {both}. Give each a name of its own."])
    lacking = [name for name, take in takes.items() if take.needed and name not in head]
    if lacking:
        there = _plain(", ".join(head[:10])[:100]) if any(head) else "nothing"
        raise ScenarioError(
            [
                f"{reading.path}:1: no column {', '.join(lacking)} in the first line, which has {there}. Name yours in "
                "columns, or give a trace."
            ]
        )
    try:
        reading.require([name for name in head if name], {*takes, *leaves})
    except ValueError as error:
        raise ScenarioError([f"{reading.path}:1: {error}"]) from None


def _each_row(
    reading: Reading, rows: csv.DictReader[str], before: int, takes: Mapping[str, Take]
) -> Iterator[tuple[int, Row]]:
    """As ``Reading.lines``, of a file whose first line names the columns."""
    begun = before > 0
    while True:
        try:
            if not begun:
                begun = bool(next(rows))
            entry = {key: value for key, value in next(rows).items() if key is not None}
            yield before + rows.line_num, taken(entry, takes)
        except StopIteration:
            return
        except csv.Error as error:
            reading.say(before + rows.line_num, f"not CSV ({error}). Write one request a line.")
            return
        except ScenarioError:
            raise
        except ValueError as error:
            reading.say(before + rows.line_num, error)


def documents(reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects one a line; of a file whose first line is none, all of it as one. Raises ScenarioError."""
    with opened(reading.path) as file:
        first = file.readline(_WHOLE)
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            data = first + file.read(_WHOLE)
            if len(data) >= _WHOLE:
                told = f"more than {_WHOLE >> 20} MiB in one JSON value. Write one a line."
                raise ScenarioError([f"{reading.path}: {told}"]) from None
            try:
                yield 1, _object(json.loads(data))
            except (ValueError, RecursionError) as error:
                raise ScenarioError([f"{reading.path}: not JSON ({error}). Give a file that is whole."]) from None
            return
    yield from reading.lines(lambda entry: entry)
