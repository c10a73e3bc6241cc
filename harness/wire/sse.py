"""Server-sent events, bytes in and events out, by the letter of the WHATWG event-stream rules (HTML, section 9.2).

``SseParser`` is the reference: any split of the bytes gives the same events; ``decode`` splits a whole body at C speed
and gives exactly the same. An event happens at the read that delivers the first byte of the blank line that ends it (a
CR ends a line, so a reader already has the event then). Neither interprets the data: no JSON here, no ``[DONE]``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

#: An event larger than this (bytes from the end of the previous event) is refused: nobody streams that.
MAX_EVENT = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseError(Exception):
    """An event larger than the limit. ``events`` holds those completed by the same ``feed`` before it."""

    def __init__(self, message: str, events: list[SseEvent]) -> None:
        super().__init__(message)
        self.events = events


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event. ``data`` is raw: invalid UTF-8 is the reader's to replace. ``name`` is b"" if
    not given, ``last_id`` the sticky last event id, ``t_ns`` the time of the read that completed it.
    """

    data: bytes
    t_ns: int
    name: bytes = b""
    last_id: bytes = b""


@dataclass(frozen=True, slots=True)
class SseTail:
    """What was left at the end of the stream. ``rest`` holds the bytes after the last line end."""

    open_event: bool
    rest: bytes

    @property
    def truncated(self) -> bool:
        """The stream was cut inside an event or inside a line."""
        return self.open_event or bool(self.rest)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole stream taken apart.

    ``payloads[i]`` is the data of event i, ``times[i]`` (int64[n], ns) its arrival, ``names[i]`` its
    event name, or ``names`` is None when no event has one. ``truncated`` says that the stream was cut
    inside an event and ``tail`` what was left of it; ``comments`` counts comment lines; ``error`` is the
    text of an ``SseError``, after which nothing was read.
    """

    payloads: list[bytes]
    times: IntArray
    names: list[bytes] | None = None
    truncated: bool = False
    tail: bytes = b""
    comments: int = 0
    error: str | None = None


#: A stream that was taken apart otherwise: whole, and with nothing left.
EMPTY = Decoded([], np.empty(0, dtype=np.int64))


class SseParser:
    """The reference parser, sans I/O. ``comments`` counts comment lines, ``retry_ms`` is the last valid
    retry.
    """

    __slots__ = (
        "_closed",
        "_data",
        "_event_size",
        "_last_id",
        "_limit",
        "_line",
        "_name",
        "_seen_cr",
        "_started",
        "_touched",
        "comments",
        "retry_ms",
    )

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._line = bytearray()
        self._data = bytearray()
        self._name = b""
        self._last_id = b""
        self._touched = False
        self._seen_cr = False
        self._started = False
        self._closed = False
        self._event_size = 0
        self._limit = max_event
        self.comments = 0
        self.retry_ms = -1

    def feed(self, data: bytes, t_ns: int) -> list[SseEvent]:
        """The events that these bytes complete; all of them happened at ``t_ns``.

        Raises SseError when an event grows beyond ``max_event`` bytes; the parser then takes nothing more.
        """
        if self._closed:
            raise SseError("the stream was given up or closed before", [])
        events: list[SseEvent] = []
        if self._seen_cr and data:
            self._seen_cr = False
            if data[0] == 10:  # the LF of a CRLF that was split over two reads
                data = data[1:]
        start, size = 0, len(data)
        # LF and CR are looked for separately: find() runs at memchr speed.
        lf, cr = data.find(b"\n"), data.find(b"\r")
        while lf >= 0 or cr >= 0:
            by_cr = cr >= 0 and (lf < 0 or cr < lf)
            end = cr if by_cr else lf
            self._grow(end + 1 - start, events)
            self._line += data[start:end]
            start = end + 1
            if by_cr:
                if start == size:
                    self._seen_cr = True
                elif start == lf:
                    start += 1
                cr = data.find(b"\r", start)
            if lf >= 0 and lf < start:
                lf = data.find(b"\n", start)
            self._end_of_line(t_ns, events)
        self._grow(size - start, events)
        self._line += data[start:]
        return events

    def close(self) -> SseTail:
        """The stream has ended. What was not dispatched is discarded, as the rules ask; the tail says
        what it was.
        """
        self._closed = True
        rest = bytes(self._line)
        if not self._started and _BOM.startswith(rest[:3]) and len(rest) <= 3:
            rest = b""  # nothing but (part of) a byte order mark
        return SseTail(self._touched, rest)

    def _grow(self, count: int, events: list[SseEvent]) -> None:
        self._event_size += count
        if self._event_size > self._limit:
            self._closed = True
            raise SseError(f"an event is larger than {self._limit} bytes", events)

    def _end_of_line(self, t_ns: int, events: list[SseEvent]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(t_ns, events)
            return
        if line[0] == 58:
            self.comments += 1
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._touched = True
            self._data += value
            self._data += b"\n"
        elif field == b"event":
            self._touched = True
            self._name = value
        elif field == b"id":
            if b"\0" not in value:
                self._last_id = value
        elif field == b"retry" and value.isdigit() and len(value) < 19:
            self.retry_ms = int(value)

    def _dispatch(self, t_ns: int, events: list[SseEvent]) -> None:
        if self._data:  # an event name without data dispatches nothing
            events.append(SseEvent(bytes(self._data[:-1]), t_ns, self._name, self._last_id))
            self._data.clear()
        self._name = b""
        self._touched = False
        self._event_size = 0


def arrival_times(ends: IntArray, mark_ns: Sequence[int], mark_end: Sequence[int]) -> IntArray:
    """When byte ``ends[i] - 1`` arrived: the first mark that covers it. int64 ns. Every end must be
    covered.
    """
    marks = np.frombuffer(mark_ns if isinstance(mark_ns, array) else array("q", mark_ns), dtype=np.int64)
    if len(marks) == 1:
        return np.full(len(ends), marks[0], dtype=np.int64)
    covers = np.frombuffer(mark_end if isinstance(mark_end, array) else array("q", mark_end), dtype=np.int64)
    return marks[np.searchsorted(covers, ends)]


def decode(
    body: bytes | bytearray, mark_ns: Sequence[int], mark_end: Sequence[int], max_event: int = MAX_EVENT
) -> Decoded:
    """Take a whole stream apart. ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending).

    Bytes that no mark covers never arrived as far as anyone can say, and are ignored. Never raises: an
    oversized event ends the reading and is told in ``error``. Equal to the reference parser fed read by
    read.
    """
    size = mark_end[-1] if len(mark_end) else 0
    data = bytes(body) if size == len(body) else bytes(body[:size])
    if not data:
        return Decoded([], np.empty(0, dtype=np.int64))
    plain = _split_plain(data)
    if plain is not None:
        payloads, overhead, late = plain
        lengths = np.fromiter(map(len, payloads), dtype=np.int64, count=len(payloads)) + overhead
        # The size the reference counts leaves out the LF of a CRLF, so only clearly small events go this way.
        if int(lengths.max()) <= max_event:
            return Decoded(payloads, arrival_times(np.cumsum(lengths) - late, mark_ns, mark_end))
    named = _split_named(data) if plain is None else None
    if named is not None:
        payloads, names, lengths = named
        if int(lengths.max()) <= max_event:
            return Decoded(
                payloads, arrival_times(np.cumsum(lengths), mark_ns, mark_end), names if any(names) else None
            )
    return _by_reference(data, mark_ns, mark_end, max_event)


def _split_plain(data: bytes) -> tuple[list[bytes], int, int] | None:
    """(payloads, bytes of framing an event, bytes after the blank line's first) if every event is one
    data line.

    The proof that it equals the reference: splitting at ``EOL EOL data:`` accounts for two line ends an
    event, and there are no others in the stream, so no payload holds one; the prefix is the same for all.
    """
    eol = b"\n" if b"\r" not in data else b"\r\n"
    blank = eol + eol
    prefix = b"data: " if data.startswith(b"data: ") else b"data:"
    if not data.startswith(prefix) or not data.endswith(blank):
        return None
    payloads = data[len(prefix) : -len(blank)].split(blank + prefix)
    n = len(payloads)
    if data.count(b"\n") != 2 * n or (eol != b"\n" and data.count(b"\r") != 2 * n):
        return None
    if prefix == b"data:" and blank + b"data: " in data:
        return None  # mixed: one leading space belongs to the framing, not to the payload
    return payloads, len(prefix) + len(blank), len(eol) - 1


def _split_named(data: bytes) -> tuple[list[bytes], list[bytes], IntArray] | None:
    """(payloads, names, bytes each) if every event is one data line, after its name or without one, and lines end in
    LF.

    Split at blank lines, and then each part is looked at: it is ``event: N`` and ``data: P``, or ``data: P`` alone, so
    the reference would see the same. A part that begins with LF (two blank lines) is neither.
    """
    if not data.startswith(b"event: ") or not data.endswith(b"\n\n") or b"\r" in data:
        return None
    parts = data[:-2].split(b"\n\n")
    payloads: list[bytes] = []
    names: list[bytes] = []
    for part in parts:
        first, found, second = part.partition(b"\n")
        if not found:
            first, second = b"event: ", first
        if not (first.startswith(b"event: ") and second.startswith(b"data: ")) or b"\n" in second:
            return None
        names.append(first[7:])
        payloads.append(second[6:])
    return payloads, names, np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)) + 2


def _by_reference(data: bytes, mark_ns: Sequence[int], mark_end: Sequence[int], max_event: int) -> Decoded:
    parser = SseParser(max_event)
    events: list[SseEvent] = []
    error: str | None = None
    start = 0
    try:
        for t_ns, end in zip(mark_ns, mark_end, strict=True):
            events += parser.feed(data[start:end], t_ns)
            start = end
    except SseError as fault:
        events += fault.events
        error = str(fault)
    tail = parser.close()
    return Decoded(
        [event.data for event in events],
        np.array([event.t_ns for event in events], dtype=np.int64),
        [event.name for event in events] if any(event.name for event in events) else None,
        tail.truncated or error is not None,
        tail.rest,
        parser.comments,
        error,
    )
