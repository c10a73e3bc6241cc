"""Reads ``/truth.bin``: the same rows as ``/truth``, many times faster."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

OUTCOMES = ("open", "ok", "cut")
_HEAD = struct.Struct("=5q4I")


@dataclass(frozen=True, slots=True)
class OracleRow:
    """One request as the oracle saw it, in nanoseconds of the monotonic clock; -1 means that it did not happen."""

    request_id: str
    received_ns: int
    """The request was complete."""
    first_due_ns: int
    itl_ns: int
    n_tokens: int
    """Token i is due at ``first_due_ns + i * itl_ns``, the end of the stream at ``i = n_tokens``."""
    stamps_ns: array[int]
    """Before and after the write of token 0, of token 1, and so on, in one flat array."""
    end_before_ns: int
    done_ns: int
    outcome: str


def read_truth(data: bytes) -> Iterator[OracleRow]:
    """The rows in ``data``, oldest request first. Raises ValueError when the last one is cut off."""
    at = 0
    while at < len(data):
        try:
            received, first_due, itl, end_before, done, n_tokens, n_written, outcome, id_len = _HEAD.unpack_from(
                data, at
            )
        except struct.error:
            raise ValueError(f"the truth ends in the middle of a row, at byte {at}. Fetch it again") from None
        id_at = at + _HEAD.size
        stamps_at = id_at + (id_len + 7) // 8 * 8
        at = stamps_at + 16 * n_written
        if at > len(data):
            raise ValueError(f"the truth ends in the middle of a row, at byte {id_at}. Fetch it again")
        name = data[id_at : id_at + id_len].decode("latin-1")
        stamps = array("q", data[stamps_at:at])
        yield OracleRow(name, received, first_due, itl, n_tokens, stamps, end_before, done, OUTCOMES[outcome])
