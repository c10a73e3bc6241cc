"""Newline-delimited JSON framing: bytes in, lines out. What a line holds is not looked at here.

LF ends a line; a CR before it and other surrounding white space (space, tab) belong to the framing. Blank
lines are keep-alives and give nothing. A last line without its LF is given too, and flagged: the format's
writers disagree on whether it is complete, so the reader decides. A line happened at the read that
delivered its LF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from plimsoll.harness.wire.sse import IntArray, arrival_times

#: A line larger than this is refused.
MAX_LINE = 16 * 1024 * 1024
_SPACE = b" \t\r"


class NdjsonError(Exception):
    """A line larger than the limit. ``lines`` holds those completed by the same ``feed`` before it."""

    def __init__(self, message: str, lines: list[tuple[bytes, int]]) -> None:
        super().__init__(message)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Lines:
    """A whole stream taken apart: ``payloads[i]`` (no white space around it) arrived at ``times[i]``
    (int64[n], ns).

    ``unterminated``: the last payload had no LF. ``blank`` counts blank lines, ``error`` is the text of
    an ``NdjsonError``, after which nothing was read.
    """

    payloads: list[bytes]
    times: IntArray
    unterminated: bool = False
    blank: int = 0
    error: str | None = None


class NdjsonParser:
    """The reference parser, sans I/O: any split of the bytes gives the same lines. ``blank`` counts blank
    lines.
    """

    __slots__ = ("_closed", "_limit", "_line", "_t_ns", "blank")

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._line = bytearray()
        self._limit = max_line
        self._closed = False
        self._t_ns = -1
        self.blank = 0

    def feed(self, data: bytes, t_ns: int) -> list[tuple[bytes, int]]:
        """(line, time) of each line that these bytes complete.

        Raises NdjsonError when a line grows beyond ``max_line`` bytes; the parser then takes nothing more.
        """
        if self._closed:
            raise NdjsonError("the stream was given up or closed before", [])
        lines: list[tuple[bytes, int]] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._take(piece, lines)
            line = bytes(self._line).strip(_SPACE)
            self._line.clear()
            if line:
                lines.append((line, t_ns))
            else:
                self.blank += 1
        if rest:
            self._t_ns = t_ns
            self._take(rest, lines)
        return lines

    def close(self) -> tuple[bytes, int] | None:
        """The stream has ended: the unterminated last line and the time of its last byte, or None."""
        self._closed = True
        line = bytes(self._line).strip(_SPACE)
        return (line, self._t_ns) if line else None

    def _take(self, piece: bytes, lines: list[tuple[bytes, int]]) -> None:
        self._line += piece
        if len(self._line) > self._limit:
            self._closed = True
            raise NdjsonError(f"a line is larger than {self._limit} bytes", lines)


def decode(body: bytes | bytearray, mark_ns: Sequence[int], mark_end: Sequence[int], max_line: int = MAX_LINE) -> Lines:
    """Take a whole stream apart. ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending).

    Bytes that no mark covers are ignored. Never raises: an oversized line ends the reading and is told in
    ``error``. Equal to the reference parser fed read by read.
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
