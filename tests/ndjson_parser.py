"""A parser of lines that takes them piece by piece: any split of the bytes must give what ``framing.decode_lines``
gives of the whole.
"""

from __future__ import annotations

from plimsoll.harness.wire.framing import MAX_LINE

_SPACE = b" \t\r"


class NdjsonError(Exception):
    """A line larger than the limit. ``lines`` holds those completed by the same ``feed`` before it."""

    def __init__(self, message: str, lines: list[tuple[bytes, int]]) -> None:
        super().__init__(message)
        self.lines = lines


class NdjsonParser:
    """The reference parser. ``blank`` counts blank
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
