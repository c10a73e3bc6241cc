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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples.lines import cap, read_lines
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, missing

Format = Literal["auto", "mooncake", "azure", "jsonl", "csv", "run"]
Unit = Literal["s", "ms", "us", "ns"]
UNIT_NS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
#: Tokens of the prompt that one of Mooncake's hash ids stands for.
BLOCK_TOKENS = 512

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


@dataclass(frozen=True, slots=True)
class Trace:
    """One row per request, in order of time.

    ``at_ns`` int64[n] from the first request, which is at 0; ``n_in`` and ``n_out`` int64[n] in tokens, -1 unknown;
    ``query`` int64[n]: rows with the same one belong to one query (of several samples); ``payload_ix`` int64[n]: the
    sample of its source that a run of ours sent, else None; ``blocks``: per row the ids of its prompt's blocks, else
    None.
    """

    at_ns: IntArray
    n_in: IntArray
    n_out: IntArray
    query: IntArray
    payload_ix: IntArray | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.at_ns)


def read(path: Path, where: str, form: Format = "auto", columns: Columns | None = None, unit: Unit = "s") -> Trace:
    """The trace at ``path``; ``where`` is the scenario's key that names it.

    Raises ``ScenarioError`` with every problem.
    """
    if path.is_dir() and form in ("auto", "run"):
        return _run(path, where)
    problem = missing(path, where)
    if problem:
        raise ScenarioError([problem])
    if form == "run":
        raise ScenarioError(
            [f"{where}: {path} is a file. Give the folder that `plimsoll run` left, or another format."]
        )
    named = columns or Columns()
    found = _format(path) if form == "auto" else form
    of = {"mooncake": _mooncake, "azure": _azure}.get(found, partial(_named, columns=named, unit_ns=UNIT_NS[unit]))
    if found in ("azure", "csv"):
        _check_head(path, _AZURE if found == "azure" else (named.time,))
        made, errors = _read_csv(path, of)
    else:
        made, errors = read_lines(path, lambda entry, where: of(_object(entry)))
    if not made and not errors:
        errors = [f"{path}: no requests in it. Give a trace with at least one."]
    if errors:
        raise ScenarioError(cap(errors, str(path)))
    return _in_order(made)


def _in_order(made: list[_Request]) -> Trace:
    at, n_in, n_out = (np.array([row[i] for row in made], np.int64) for i in range(3))
    order = np.argsort(at, kind="stable")
    blocks = tuple(made[i][3] or () for i in order.tolist()) if any(row[3] for row in made) else None
    at = at[order]
    return Trace(at - at[0], n_in[order], n_out[order], np.arange(len(made)), blocks=blocks)


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


def _read_csv(path: Path, make: Callable[[Mapping[str, Any]], _Request]) -> tuple[list[_Request], list[str]]:
    """As ``read_lines``, of a file whose first line names the columns."""
    made: list[_Request] = []
    errors: list[str] = []
    with _text(path) as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        while True:
            try:
                made.append(make({key: value for key, value in next(rows).items() if key is not None}))
            except StopIteration:
                break
            except csv.Error as error:
                errors.append(f"{path}:{rows.line_num}: not CSV ({error}). Write one request a line.")
                break
            except ValueError as error:
                errors.append(f"{path}:{rows.line_num}: {error}")
    return made, errors


def _mooncake(entry: Mapping[str, Any]) -> _Request:
    at, n_in = _time(entry, "timestamp", UNIT_NS["ms"]), _count(entry, "input_length")
    ids = entry.get("hash_ids")
    if ids is None:
        return at, n_in, _count(entry, "output_length"), None
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ValueError("hash_ids is not a list of whole numbers. Give the ids of its blocks, or leave it out.")
    return at, n_in, _count(entry, "output_length"), tuple(ids)


def _azure(entry: Mapping[str, Any]) -> _Request:
    time, n_in, n_out = _AZURE
    return _time(entry, time, UNIT_NS["s"]), _count(entry, n_in), _count(entry, n_out), None


def _named(entry: Mapping[str, Any], columns: Columns, unit_ns: int) -> _Request:
    lengths = [_count(entry, name) if name in entry else -1 for name in (columns.input_tokens, columns.output_tokens)]
    return _time(entry, columns.time, unit_ns), lengths[0], lengths[1], None


def _time(entry: Mapping[str, Any], key: str, unit_ns: int) -> int:
    """Nanoseconds from whatever the file counts from. A text that is no number is a date and time."""
    value = entry.get(key)
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
    if not 0 <= number <= 10_000_000:
        raise ValueError(f"{key} is {value!r:.60}, not a length in tokens. Give a whole number from 0 up.")
    return number


def _run(path: Path, where: str) -> Trace:
    file = path / "requests.parquet"
    if not file.is_file():
        raise ScenarioError([f"{where}: {path} is no run directory (no requests.parquet). Give one, or a trace file."])
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file, columns=list(_RUN))
        phase = np.array(table.column("phase").to_pylist())
        column = {name: _whole(table.column(name), name) for name in _RUN if name != "phase"}
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, MemoryError) as error:
        raise ScenarioError([f"{where}: {file} can't be read ({error}). Give a sealed run directory."]) from None
    rows = np.flatnonzero((phase != "warmup") & (column["due_ns"] >= 0))
    if not len(rows):
        raise ScenarioError([f"{where}: {path} measured nothing. Give a run with requests."])
    order = rows[np.lexsort((column["sample_ix"][rows], column["query_id"][rows], column["due_ns"][rows]))]
    due = column["due_ns"][order]
    return Trace(
        due - due[0],
        column["n_in"][order],
        column["n_out"][order],
        column["query_id"][order],
        column["payload_ix"][order],
    )


def _whole(column: Any, name: str) -> IntArray:
    """A column of whole numbers. Raises ValueError for anything else."""
    if not str(column.type).startswith("int") or column.null_count:
        raise ValueError(f"column {name} holds {column.type}, with {column.null_count} empty: not whole numbers")
    values: IntArray = column.to_numpy().astype(np.int64)
    return values
