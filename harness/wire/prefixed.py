"""Length-prefixed framing: each message is its length as four bytes, then so many bytes. What a message holds is not looked at.

A message happened at the read that delivered its last byte. What is left at the end without its whole length was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll.harness.wire.sse import IntArray, arrival_times

#: A message larger than this is refused: a length that long is text read as a number, or the wrong byte order.
MAX_MESSAGE = 16 * 1024 * 1024
_PREFIX = 4


@dataclass(frozen=True, slots=True)
class Messages:
    """A whole stream taken apart: ``payloads[i]`` arrived at ``times[i]`` (int64[n], ns). ``truncated``: the last one was cut.

    ``error``: a message beyond the limit, after which nothing was read.
    """

    payloads: list[bytes]
    times: IntArray
    truncated: bool = False
    error: str | None = None


def decode(
    body: bytes | bytearray,
    mark_ns: Sequence[int],
    mark_end: Sequence[int],
    byte_order: Literal["big", "little"] = "big",
    max_message: int = MAX_MESSAGE,
) -> Messages:
    """Take a whole stream apart. ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending). Never raises."""
    size = mark_end[-1] if len(mark_end) else 0
    payloads: list[bytes] = []
    ends: list[int] = []
    at, error = 0, None
    while at + _PREFIX <= size:
        length = int.from_bytes(body[at : at + _PREFIX], byte_order)
        if length > max_message:
            error = f"a message of {length} bytes is announced, more than {max_message}: is byte_order right?"
            break
        if at + _PREFIX + length > size:
            break
        payloads.append(bytes(body[at + _PREFIX : at + _PREFIX + length]))
        at += _PREFIX + length
        ends.append(at)
    if not ends:
        return Messages([], np.empty(0, dtype=np.int64), at < size, error)
    return Messages(payloads, arrival_times(np.array(ends, dtype=np.int64), mark_ns, mark_end), at < size, error)
