"""A run directory of ours: the planned times of a schedule, the times at which slots came free in a closed loop, how
each request ended then, and whose turn it was. Of a run of several classes one is read, at its times in the run.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples.recording import CANCELLED, STATUSES, STEP, Recording
from plimsoll.scenarios.samples.rows import Reading
from plimsoll.scenarios.samples.traces import Format
from plimsoll.scenarios.text.document import ScenarioError

_TAKES = ("query_id", "sample_ix", "payload_ix", "due_ns", "n_in", "n_out", "phase")
#: Of a run that says so: how it ended, and when; what it cancelled on purpose was given up so long after its start.
_MORE = ("status", "done_ns", "first_token_ns", "ready_ns", "session", "turn", "class", "label_barge_in")
_WORDS = ("phase", "status", "class")


def _read(reading: Reading, made: Recording) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, classes, first_ns = reading.path, set[str](), list[int]()
    try:
        with pq.ParquetFile(path) as file:
            more = [name for name in _MORE if name in file.schema_arrow.names]
            for batch in file.iter_batches(STEP, columns=[*_TAKES, *more]):
                column = {name: _whole(batch.column(name), name) for name in (*_TAKES, *more) if name not in _WORDS}
                if "status" in more:
                    ended = batch.column("status").to_pylist()
                    column["status"] = np.array([STATUSES.index(str(one).lower()) for one in ended], np.int64)
                phase = np.array(batch.column("phase").to_pylist())
                if {"done_ns", "ready_ns", "status"} <= column.keys():
                    gone = (phase == "cancel") & (column["status"] == CANCELLED)
                    column["gave_up_ns"] = np.where(gone, column["done_ns"] - column.pop("ready_ns"), -1)
                # Rows of single attempts are what the client made of requests that have rows of their own.
                rows = (column["due_ns"] >= 0) & (phase != "warmup") & (phase != "attempt")
                first_ns += [int(column["due_ns"][rows].min())] if rows.any() else []
                if "class" in more:
                    names = np.array(batch.column("class").to_pylist())
                    classes |= {*names.tolist()}
                    rows &= names == reading.part
                column = {name: values[rows] for name, values in column.items()}
                column["at_ns"] = due = column.pop("due_ns")
                column |= {"barge_in_ns": column.pop("label_barge_in")} if "label_barge_in" in column else {}
                for name, to in (("done_ns", "latency_ns"), ("first_token_ns", "ttft_ns")):
                    if name in column:
                        at = column.pop(name)
                        column[to] = np.where(at >= 0, at - due, -1)
                made.add(column)
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, MemoryError) as error:
        raise ScenarioError(
            [f"{reading.where}: {path} can't be read ({error}). Give a sealed run directory."]
        ) from None
    if (classes or reading.part is not None) and reading.part not in classes:
        raise ScenarioError([f"{reading.where}: {path.parent} {_no_class(reading.part, classes)}"])
    if classes:
        made.origin_ns = min(first_ns)
    if not len(made):
        raise ScenarioError([f"{reading.where}: {path.parent} measured nothing. Give a run with requests."])


def _no_class(part: str | None, classes: Collection[str]) -> str:
    if not classes:
        return "is no run of several classes. Leave --class (params.part) out."
    said = "is a run of" if part is None else f"has no class {part}, but"
    return f"{said} {', '.join(sorted(classes))}. Name one: --class, or params.part."


def _whole(column: Any, name: str) -> IntArray:
    """A column of whole numbers. Raises ValueError for anything else."""
    if not str(column.type).startswith("int") or column.null_count:
        raise ValueError(f"column {name} holds {column.type}, with {column.null_count} empty: not whole numbers")
    values: IntArray = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


FORMAT = Format(
    name="run",
    summary="A run directory of ours",
    unit="ns",
    sign="a folder with requests.parquet",
    detect=lambda head: False,
    read=_read,
    takes=(*_TAKES, *_MORE),
    columns=("session", "turn", "think_ns", "status", "gave_up_ns", "barge_in_ns", "latency_ns", "ttft_ns"),
)
