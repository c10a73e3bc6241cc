"""Baseten's traces: Parquet with original latencies and what clients cancelled. A cancelled request was given up when
it ended. Rows without ``provided_session_id`` take ``poor_man_session_id``, where there is one.
"""

from typing import Any

import numpy as np

from plimsoll.scenarios.samples.recording import CANCELLED, OK, Recording, key_of
from plimsoll.scenarios.samples.rows import MOST, MS, Head, Reading, narrowed
from plimsoll.scenarios.samples.traces import Format
from plimsoll.scenarios.text.document import ScenarioError

_NEEDED = ("timestamp_start_unix_ms", "input_tokens", "output_tokens")
_MORE = (
    *("provided_session_id", "poor_man_session_id", "total_hashes", "block_size", "request_canceled"),
    *("duration_e2e_ms", "duration_ttft_ms", "model_name", "org_id"),
)
_LEAVES = ("prompt", "cached_tokens_reference", "features")
_ROWS = 1 << 12


def _detect(head: Head) -> bool:
    if not head.first.startswith("PAR1"):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(_NEEDED) <= set(pq.read_schema(head.path).names)
    except (OSError, pa.ArrowException):
        return False


def _read(reading: Reading, made: Recording) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = reading.path
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            lacking = [name for name in _NEEDED if name not in names]
            if lacking:
                raise ScenarioError([f"{path}: no column {', '.join(lacking)}. Give Baseten's trace."])
            reading.require(names, (*_NEEDED, *_MORE, *_LEAVES))
            wanted = [name for name in (*_NEEDED, *_MORE) if name in names and name not in reading.names.ignore]
            sizes, begin = set[int](), 0
            for batch in file.iter_batches(_ROWS, columns=wanted):
                _add(reading, made, {name: batch.column(name) for name in wanted}, begin, sizes)
                begin += batch.num_rows
    except (OSError, pa.ArrowException, TypeError, MemoryError) as error:
        raise ScenarioError([f"{path}: can't be read ({error}). Give a file that is whole."]) from None
    made.block_tokens = max(sizes, default=made.block_tokens)


def _add(reading: Reading, made: Recording, given: dict[str, Any], begin: int, sizes: set[int]) -> None:
    columns = {
        to: _numbers(reading, given, name, unit, begin)
        for name, to, unit in (
            ("timestamp_start_unix_ms", "at_ns", MS),
            ("input_tokens", "n_in", 1),
            ("output_tokens", "n_out", 1),
            ("duration_e2e_ms", "latency_ns", MS),
            ("duration_ttft_ms", "ttft_ns", MS),
        )
        if name in given
    }
    names = [name for name in ("provided_session_id", "poor_man_session_id") if name in given]
    if names:
        told = zip(*(given[name].to_pylist() for name in names), strict=True)
        columns["session"] = np.array([key_of(next((one for one in some if one is not None), None)) for some in told])
    if "request_canceled" in given:
        gone = np.array([bool(one) for one in given["request_canceled"].to_pylist()])
        columns["status"] = np.where(gone, CANCELLED, OK)
        columns["gave_up_ns"] = np.where(gone, columns.get("latency_ns", np.full(len(gone), -1)), -1)
    for name, label in (("model_name", "model"), ("org_id", "tenant")):
        if name in given:
            columns[f"label:{label}"] = np.array(made.codes(label, [str(t or "") for t in given[name].to_pylist()]))
    if "block_size" in given:
        sizes.update(size for size in given["block_size"].unique().to_pylist() if size)
        if len(sizes) > 1:
            raise ValueError(f"block_size is {max(sizes)} in one row and {min(sizes)} in another. Give files apart.")
    ids = [some or [] for some in given["total_hashes"].to_pylist()] if "total_hashes" in given else []
    if any(not isinstance(some, list) or not set(map(type, some)) <= {int} for some in ids):
        raise ValueError("total_hashes holds something else than lists of whole numbers. Leave it out: columns.ignore.")
    made.add(columns, [*map(narrowed, ids)])


def _numbers(reading: Reading, given: dict[str, Any], name: str, unit: int, begin: int) -> Any:
    """A column in ``unit``, -1 for none. Each row that has no number where it needs one is told."""
    values = given[name].to_pylist()
    found = np.full(len(values), -1, np.int64)
    for k, value in enumerate(values):
        if isinstance(value, int | float) and 0 <= value * unit < 2**62 and (unit > 1 or value <= MOST):
            found[k] = round(value * unit)
        elif value is not None or name in _NEEDED:
            reading.say(begin + k + 1, f"{name} is {value!r:.40}. Give a number from 0 up.", "row ")
    return found


FORMAT = Format(
    name="baseten",
    summary="Baseten's traces: Parquet with original latencies",
    unit="ms since 1970",
    sign="Parquet with timestamp_start_unix_ms",
    detect=_detect,
    read=_read,
    takes=(*_NEEDED, *_MORE),
    leaves=_LEAVES,
    columns=("session", "turn", "think_ns", "status", "gave_up_ns", "latency_ns", "ttft_ns"),
    labels=("model", "tenant"),
    block_tokens=64,
    cumulative=True,
)
