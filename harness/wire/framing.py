"""This module takes a body apart into messages, in any framing; it does not look at what a message holds.

``sse`` (harness/wire/sse.py), ``ndjson``, ``lines`` (the same lines, of text), ``chunks`` (each network read is a
message: all that can be known where a server marks nothing) and ``length-prefixed``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from plimsoll.harness.wire import sse
from plimsoll.harness.wire.sse import IntArray, arrival_times

Framing = Literal["sse", "ndjson", "lines", "chunks", "length-prefixed"]
#: Framings whose messages are text as it is, never JSON.
PLAIN_TEXT = frozenset({"lines", "chunks"})
#: A message or line larger than this is refused: a length that long is text read as a number, or the wrong byte order.
MAX_MESSAGE = MAX_LINE = 16 * 1024 * 1024
_PREFIX = 4
_SPACE = b" \t\r"


@dataclass(frozen=True, slots=True)
class Stream:
    """A body taken apart by any framing: ``payloads[i]`` arrived at ``times[i]``, with the event name ``names[i]``
    where any has one. ``broken`` ends the reading, ``cut`` says that the last message is torn.
    """

    payloads: list[bytes]
    times: IntArray
    names: list[bytes] | None = None
    broken: str | None = None
    cut: str | None = None


def take_apart(
    body: bytes | bytearray,
    mark_ns: array[int],
    mark_end: array[int],
    framing: str,
    byte_order: Literal["big", "little"] = "big",
) -> Stream:
    """The messages of a body. ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending). Never raises."""
    if framing == "sse":
        decoded = sse.decode(body, mark_ns, mark_end)
        cut = "stream cut inside an event" if decoded.truncated else None
        return Stream(decoded.payloads, decoded.times, decoded.names, decoded.error, cut)
    if framing == "length-prefixed":
        messages = decode_messages(body, mark_ns, mark_end, byte_order)
        cut = "stream cut inside a message" if messages.truncated else None
        return Stream(messages.payloads, messages.times, None, messages.error, cut)
    if framing == "chunks":
        reads = [bytes(body[begin:end]) for begin, end in pairwise((0, *mark_end))]
        return Stream(reads, np.array(mark_ns, dtype=np.int64))
    # A last line without its LF is taken: had it been cut, it would not be JSON (and of text nobody can tell).
    lines = decode_lines(body, mark_ns, mark_end)
    return Stream(lines.payloads, lines.times, None, lines.error)


@dataclass(frozen=True, slots=True)
class Messages:
    """A whole stream taken apart: ``payloads[i]`` arrived at ``times[i]`` (int64[n], ns). ``truncated``: the last one
    was cut.

    ``error``: a message beyond the limit, after which nothing was read.
    """

    payloads: list[bytes]
    times: IntArray
    truncated: bool = False
    error: str | None = None


def decode_messages(
    body: bytes | bytearray,
    mark_ns: Sequence[int],
    mark_end: Sequence[int],
    byte_order: Literal["big", "little"] = "big",
    max_message: int = MAX_MESSAGE,
) -> Messages:
    """Each message is its length as four bytes, then so many bytes; it happened at the read that delivered its last
    one.

    ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending). Never raises.
    """
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


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines taken apart: ``payloads[i]`` (no white space around it) arrived at ``times[i]`` (int64[n], ns).

    ``unterminated``: the last payload had no LF. ``blank`` counts blank lines. ``error``: a line beyond the limit,
    after which nothing was read.
    """

    payloads: list[bytes]
    times: IntArray
    unterminated: bool = False
    blank: int = 0
    error: str | None = None


def decode_lines(
    body: bytes | bytearray, mark_ns: Sequence[int], mark_end: Sequence[int], max_line: int = MAX_LINE
) -> Lines:
    """LF ends a line; a CR before it and other white space around it (space, tab) belong to the framing, and blank
    lines are keep-alives.

    A last line without its LF is given too, and flagged: the format's writers disagree on whether it is complete, so
    the reader decides. A line happened at the read that delivered its LF. ``body[:mark_end[i]]`` had arrived by
    ``mark_ns[i]`` (both ascending); bytes that no mark covers are ignored. Never raises.
    """
    size = mark_end[-1] if len(mark_end) else 0
    data = bytes(body) if size == len(body) else bytes(body[:size])
    if not data:
        return Lines([], np.empty(0, dtype=np.int64))
    raw = data.split(b"\n")
    error = None
    if len(data) > max_line and max(map(len, raw)) > max_line:
        raw = [*raw[: next(i for i, line in enumerate(raw) if len(line) > max_line)], b""]
        error = f"a line is larger than {max_line} bytes"
    ends = np.fromiter(accumulate(len(line) + 1 for line in raw), dtype=np.int64, count=len(raw))
    ends[-1] -= 1  # the last piece has no LF
    stripped = [line.strip(_SPACE) for line in raw]
    unterminated = bool(stripped[-1])
    kept = np.fromiter(map(bool, stripped), dtype=np.bool_, count=len(stripped))
    payloads = [line for line in stripped if line]
    times = arrival_times(ends[kept], mark_ns, mark_end)
    blank = len(raw) - 1 - (len(payloads) - unterminated)
    return Lines(payloads, times, unterminated, blank, error)
