"""Recorded load: files of when requests came and how long they were, read into arrays.

Formats: Mooncake's JSON Lines (``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids`` of blocks of 512
prompt tokens), Azure's LLM trace (CSV of TIMESTAMP, ContextTokens, GeneratedTokens), JSON Lines and CSV with columns
you name, and a run directory of ours (``requests.parquet``: the planned times of a schedule, the times at which slots
came free in a closed loop). Requests are put in order of time, those of one moment in the order of the file. Nothing is
thinned out or made up: a line that can't be read is an error with its number.
"""

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation, Overflow
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from functools import lru_cache, partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples import csv_blocks
from plimsoll.scenarios.samples.lines import cap, each_line, told
from plimsoll.scenarios.samples.recording import BLOCKS, FILE, RUN, STEP, Recording
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, missing

Format = Literal["auto", "mooncake", "azure", "jsonl", "csv", "run"]
Unit = Literal["s", "ms", "us", "ns"]
UNIT_NS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
#: Tokens of the prompt that one of Mooncake's hash ids stands for.
BLOCK_TOKENS = 512

#: The longest length in tokens that is believed, and bytes of plain lines that are read at once.
_MOST, _PLAIN = 10_000_000, 1 << 22
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
#: A date and time of this age and the next one, which 64 bits hold in ns. numpy would take "now" and "NaT" too.
_MOMENT = re.compile(r"(?:19|20|21)\d\d-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)?", re.ASCII)
_RUN = ("query_id", "sample_ix", "payload_ix", "due_ns", "n_in", "n_out", "phase")


#: When a request came, its two lengths, and its prompt's blocks.
_Request = tuple[int, int, int, tuple[int, ...] | None]


class Columns(BaseModel):
    """What the columns (CSV) or keys (JSON Lines) of a file of yours are called."""

    model_config = STRICT
    time: str = Field(default="time", min_length=1, description="When: a number of `time_unit`, or an ISO 8601 text.")
    input_tokens: str = Field(
        default="input_tokens", min_length=1, description="Prompt length; the column may be absent."
    )
    output_tokens: str = Field(default="output_tokens", min_length=1, description="Answer length; likewise.")


def read(path: Path, where: str, form: Format = "auto", columns: Columns | None = None, unit: Unit = "s") -> Recording:
    """The trace at ``path``; ``where`` is the scenario's key that names it.

    Raises ``ScenarioError`` with every problem.
    """
    if path.is_dir() and form in ("auto", "run"):
        file = path / "requests.parquet"
        if not file.is_file():
            raise ScenarioError(
                [f"{where}: {path} is no run directory (no requests.parquet). Give one, or a trace file."]
            )
        return _read(file, where, "run", Columns(), unit, _stamp(file))
    problem = missing(path, where)
    if problem:
        raise ScenarioError([problem])
    if form == "run":
        raise ScenarioError(
            [f"{where}: {path} is a file. Give the folder that `plimsoll run` left, or another format."]
        )
    found = _format(path) if form == "auto" else form
    return _read(path, "", found, columns or Columns(), unit, _stamp(path))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=2)
def _read(path: Path, where: str, form: str, columns: Columns, unit: Unit, stamp: object) -> Recording:
    """The file as it was at ``stamp``: a scenario's times and its prompts are of one reading."""
    made = Recording({"run": RUN, "mooncake": BLOCKS}.get(form, FILE))
    made.form = form
    errors: list[str] = []
    try:
        if form == "run":
            _run(path, where, made)
        elif form in ("azure", "csv"):
            azure = form == "azure"
            _check_head(path, _AZURE if azure else (columns.time,))
            names = Columns(**dict(zip(Columns.model_fields, _AZURE, strict=True))) if azure else columns
            _read_csv(path, names, UNIT_NS["s" if azure else unit], made, errors)
        else:
            of = _mooncake if form == "mooncake" else partial(_named, columns=columns, unit_ns=UNIT_NS[unit])
            _keep(each_line(path, lambda entry, where: of(_object(entry)), errors), made)
        if not len(made) and not errors:
            errors = [f"{path}: no requests in it. Give a trace with at least one."]
        if errors:
            raise ScenarioError(cap(errors, str(path)))
        return made.sealed()
    except OSError as error:
        if error.errno not in (ENOSPC, EFBIG, EDQUOT, EROFS):
            raise
        raise ScenarioError(
            [
                f"{path}: {tempfile.gettempdir()} does not take it in order of time ({error.strerror}). Make "
                "room there, or set TMPDIR."
            ]
        ) from None


def _keep(requests: Iterator[_Request], made: Recording) -> None:
    while some := [*islice(requests, STEP)]:
        at, n_in, n_out, ids = zip(*some, strict=True)
        columns = {"at_ns": at, "n_in": n_in, "n_out": n_out}
        if not made.blocks:
            made.add(columns)
        else:
            made.add(columns, [one or () for one in ids])


def _format(path: Path) -> str:
    """By the first line, which every format begins in its own way."""
    with files.opened(path) as file:
        line = file.readline(1_000_000).decode("utf-8-sig", errors="replace").strip()
    if not line.startswith("{"):
        return "azure" if set(_AZURE) <= {part.strip() for part in line.split(",")} else "csv"
    try:
        keys = set(json.loads(line))
    except (ValueError, RecursionError):
        return "jsonl"
    return "mooncake" if {"timestamp", "input_length", "output_length"} <= keys else "jsonl"


def _check_head(path: Path, needed: Sequence[str]) -> None:
    """One error for a column that is nowhere, not one for each line."""
    with _text(path) as file:
        try:
            head = [name.strip() for name in next(csv.reader(file), [])]
        except csv.Error:
            head = []
    lacking = [name for name in needed if name not in head]
    if lacking:
        there = (
            "".join(c if c.isprintable() and c != "\ufffd" else "?" for c in ", ".join(head[:10])[:100]) or "nothing"
        )
        raise ScenarioError(
            [
                f"{path}:1: no column {', '.join(lacking)} in the first line, which has {there}. Name yours in "
                "columns, or give a trace."
            ]
        )


def _text(path: Path) -> TextIOWrapper:
    return TextIOWrapper(files.opened(path), encoding="utf-8-sig", errors="replace", newline="")


def _object(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError("not an object. Write one object a line.")
    return entry


def _read_csv(path: Path, names: Columns, unit_ns: int, made: Recording, errors: list[str]) -> None:
    """Blocks of plain lines at once; from the first other one on line by line, which says what is wrong with it."""
    with files.opened(path) as file:
        first = file.readline()
        try:
            head = next(csv.reader([first.decode("utf-8-sig", errors="replace")], skipinitialspace=True), [])
        except csv.Error as error:
            raise ScenarioError([f"{path}:1: not CSV ({error}). End each line with a line feed."]) from None
        at, number, plain = 0, 0, b'"' not in first and len(set(head)) == len(head)
        counts = {"n_in": names.input_tokens, "n_out": names.output_tokens}
        while plain:
            at = file.tell()
            block = file.read(_PLAIN) + file.readline()
            columns = csv_blocks.columns(block, head, names.time, counts, unit_ns, _MOST)
            if columns is None:
                break
            made.add(columns)
            number += block.count(b"\n")
        file.seek(at)
        text = TextIOWrapper(file, encoding="utf-8" if at else "utf-8-sig", errors="replace", newline="")
        rows = csv.DictReader(text, head if at else None, skipinitialspace=True)
        of = partial(_named, columns=names, unit_ns=unit_ns)
        _keep(_each_row(path, rows, number + 1 if at else 0, of, errors), made)


def _each_row(
    path: Path,
    rows: "csv.DictReader[str]",
    before: int,
    make: Callable[[Mapping[str, Any]], _Request],
    errors: list[str],
) -> Iterator[_Request]:
    """As ``each_line``, of a file whose first line names the columns."""
    while True:
        try:
            yield make({key: value for key, value in next(rows).items() if key is not None})
        except StopIteration:
            return
        except csv.Error as error:
            told(errors, f"{path}:{before + rows.line_num}: not CSV ({error}). Write one request a line.")
            return
        except ValueError as error:
            told(errors, f"{path}:{before + rows.line_num}: {error}")


def _mooncake(entry: Mapping[str, Any]) -> _Request:
    at, n_in = _time(entry, "timestamp", UNIT_NS["ms"]), _count(entry, "input_length")
    ids = entry.get("hash_ids")
    if ids is None:
        return at, n_in, _count(entry, "output_length"), None
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ValueError("hash_ids is not a list of whole numbers. Give the ids of its blocks, or leave it out.")
    return at, n_in, _count(entry, "output_length"), tuple(ids)


def _named(entry: Mapping[str, Any], columns: Columns, unit_ns: int) -> _Request:
    lengths = [_count(entry, name) if name in entry else -1 for name in (columns.input_tokens, columns.output_tokens)]
    return _time(entry, columns.time, unit_ns), lengths[0], lengths[1], None


def _time(entry: Mapping[str, Any], key: str, unit_ns: int) -> int:
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


def _count(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    try:
        number = -1 if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= _MOST:
        raise ValueError(f"{key} is {value!r:.60}, not a length in tokens. Give a whole number from 0 up.")
    return number


def _run(path: Path, where: str, made: Recording) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(STEP, columns=list(_RUN)):
                column = {name: _whole(batch.column(name), name) for name in _RUN if name != "phase"}
                rows = (column["due_ns"] >= 0) & ~np.isin(batch.column("phase").to_pylist(), ["warmup"])
                column["at_ns"] = column.pop("due_ns")
                made.add({name: values[rows] for name, values in column.items()})
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, MemoryError) as error:
        raise ScenarioError([f"{where}: {path} can't be read ({error}). Give a sealed run directory."]) from None
    if not len(made):
        raise ScenarioError([f"{where}: {path.parent} measured nothing. Give a run with requests."])


def _whole(column: Any, name: str) -> IntArray:
    """A column of whole numbers. Raises ValueError for anything else."""
    if not str(column.type).startswith("int") or column.null_count:
        raise ValueError(f"column {name} holds {column.type}, with {column.null_count} empty: not whole numbers")
    values: IntArray = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return values
