"""Plain CSV, a block at a time: whole numbers, decimal numbers of seconds and moments in UTC, without quotes or spaces.

Anything else is None, even where a reader line by line would take it: what this reads, that reads as the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples.recording import key_of

_COUNT = r"^\d{1,8}$"
_MOMENT = r"^(19|20|21)\d\d-\d\d-\d\d[T ]\d\d:\d\d:[0-5]\d(\.\d{1,9})?(\+00:00|Z)?$"

Codes = Callable[[str, Sequence[str | None]], list[int]]


@dataclass(frozen=True, slots=True)
class Take:
    """What is made of a column of a file: which column of a recording, how it is read, in which unit, whether the file
    needs it, and whether a row may leave it blank.
    """

    to: str
    kind: Literal["time", "count", "span", "key", "text", "status"]
    unit_ns: int = 1
    needed: bool = False
    blank: bool = False


def columns(
    block: bytes, head: Sequence[str], takes: Mapping[str, Take], most: int, codes: Codes
) -> dict[str, Any] | None:
    """The columns of a recording that ``takes`` makes of those in ``head``, counts of at most ``most``; None: the block
    is not plain.
    """
    import pyarrow as pa
    from pyarrow import csv

    if b'"' in block or block.count(b"\r") != block.count(b"\r\n"):
        return None
    wanted = [name for name in takes if name in head]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=head, use_threads=False, block_size=len(block) + 1),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(
                column_types=dict.fromkeys(head, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
        found = {takes[name].to: _made(table.column(name), takes[name], most, codes) for name in wanted}
    except (pa.ArrowException, ValueError):
        return None
    return found


def _made(column: Any, take: Take, most: int, codes: Codes) -> IntArray:
    if take.kind == "time":
        return _times(column, take.unit_ns)
    if take.kind in ("key", "text"):
        return _texts(column, take, codes)
    if take.kind == "status":
        raise ValueError("words are read line by line")
    absent = None
    if take.blank:
        from pyarrow import compute

        empty = compute.equal(column, "")
        if compute.any(empty, min_count=0).as_py():
            absent = np.asarray(empty)
            column = compute.if_else(empty, "0", column)
    found = _whole(column, _COUNT) if take.kind == "count" else _times(column, take.unit_ns)
    if take.kind == "count" and np.max(found, initial=0) > most:
        raise ValueError("longer than any prompt")
    return found if absent is None else np.where(absent, -1, found)


def _texts(column: Any, take: Take, codes: Codes) -> IntArray:
    """Each text once: numbers of a label's, or keys of sessions."""
    found = column.combine_chunks().dictionary_encode()
    texts = found.dictionary.to_pylist()
    if any(text != text.strip() for text in texts):
        raise ValueError("spaces")
    values = [*map(key_of, texts)] if take.kind == "key" else codes(take.to.removeprefix("label:"), texts)
    return np.array(values, np.int64)[np.asarray(found.indices)] if texts else np.empty(0, np.int64)


def _times(column: Any, unit_ns: int) -> IntArray:
    import pyarrow as pa
    from pyarrow import compute

    digits = len(str(unit_ns)) - 1
    if len(column) and column[0].as_py()[4:5] == "-":
        _require(column, _MOMENT)
        if column[0].as_py().endswith(("Z", "+00:00")):  # of one file all, or pyarrow says no
            return np.asarray(compute.cast(column, pa.timestamp("ns", "UTC")).cast(pa.int64()))
        return np.asarray(compute.cast(column, pa.timestamp("ns")).cast(pa.int64()))
    if not digits:
        return _whole(column, r"^\d{1,18}$")
    _require(column, rf"^\d{{1,{19 - digits}}}(\.\d{{1,{digits}}})?$")
    exact = compute.cast(column, pa.decimal128(28, digits)).combine_chunks()
    halves = np.frombuffer(exact.buffers()[1], "<u8")[: 2 * len(exact)].reshape(-1, 2)
    if halves[:, 1].any() or (halves[:, 0] >= 1 << 62).any():
        raise ValueError("later than any clock shows")
    return halves[:, 0].astype(np.int64)


def _whole(column: Any, pattern: str) -> IntArray:
    import pyarrow as pa
    from pyarrow import compute

    _require(column, pattern)
    return np.asarray(compute.cast(column, pa.int64()))


def _require(column: Any, pattern: str) -> None:
    from pyarrow import compute

    if not compute.all(compute.match_substring_regex(column, pattern), min_count=0).as_py():
        raise ValueError(pattern)
