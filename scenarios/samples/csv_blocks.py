"""Plain CSV, a block at a time: whole numbers, decimal numbers of seconds and moments in UTC, without quotes or spaces.

Anything else is None, even where a reader line by line would take it: what this reads, that reads as the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plimsoll.scenarios.plan.plan import IntArray

_COUNT = r"^\d{1,8}$"
_MOMENT = r"^(19|20|21)\d\d-\d\d-\d\d[T ]\d\d:\d\d:[0-5]\d(\.\d{1,9})?$"


def columns(
    block: bytes, head: Sequence[str], time: str, counts: Mapping[str, str], unit_ns: int, most: int
) -> dict[str, IntArray | int] | None:
    """``at_ns`` of the column ``time``, and of each name in ``counts`` the column that it names, at most ``most`` each
    (-1 where there is no such column). None: the block is not plain.
    """
    import pyarrow as pa
    from pyarrow import csv

    if time not in head or b'"' in block or block.count(b"\r") != block.count(b"\r\n"):
        return None
    wanted = [name for name in (time, *counts.values()) if name in head]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=head, use_threads=False, block_size=len(block) + 1),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(
                column_types=dict.fromkeys(head, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
        found: dict[str, IntArray | int] = {"at_ns": _times(table.column(time), unit_ns)}
        for name, column in counts.items():
            found[name] = _whole(table.column(column), _COUNT) if column in head else -1
    except (pa.ArrowException, ValueError):
        return None
    return None if any(np.max(found[name], initial=0) > most for name in counts) else found


def _times(column: Any, unit_ns: int) -> IntArray:
    import pyarrow as pa
    from pyarrow import compute

    digits = len(str(unit_ns)) - 1
    if len(column) and column[0].as_py()[4:5] == "-":
        _require(column, _MOMENT)
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
