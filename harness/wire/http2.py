"""The client's side of one HTTP/2 connection (RFC 9113): streams, windows, settings, pings, GOAWAY. Sans-I/O: bytes
come in by ``feed(data, t_ns)`` and go out by the ``write`` it was made with; no socket, no clock, no header
compression.

We announce a header table of 0 bytes, so that every header block can be decoded alone, later, and windows so large that
no stream of an inference endpoint waits for us. What the server announces is honoured: its windows, its frame size, its
limit on concurrent streams (``room``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from plimsoll.harness.wire.http2_frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    PING,
    PREFACE,
    SETTINGS,
    FrameReader,
    WireError,
    frame,
    goaway_frame,
    head,
    reset_frame,
    settings_frame,
    window_frame,
)

_DEFAULT_WINDOW = 65_535
#: So many pings and settings in a row, without a frame for any call between them, are a flood.
MAX_ANSWERS = 10_000
_UNLIMITED = 1 << 30
#: The connection's window is refilled when this much of it is used.
_REFILL = 1 << 30
#: Stream ids are odd and end at 2^31 - 1: a connection with none left is done.
_LAST_ID = MAX_WINDOW - 2
#: Written by a client before anything else.
OPENING = (
    PREFACE
    + settings_frame((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, MAX_WINDOW))
    + window_frame(0, MAX_WINDOW - _DEFAULT_WINDOW)
)
_SETTINGS_ACK = frame(SETTINGS, 1, 0)


class StreamSink(Protocol):
    """Who is told what happens on a stream. After ``end`` and after ``on_reset`` it hears nothing more."""

    def on_headers(self, block: bytes, end: bool, t_ns: int) -> None: ...

    def on_data(self, data: memoryview, end: bool, t_ns: int) -> None:
        """``data`` is only valid during the call."""
        ...

    def on_reset(self, code: int, t_ns: int) -> None: ...


class ConnectionSink(Protocol):
    """Who is told what happens to the connection itself."""

    def on_settings(self, t_ns: int) -> None:
        """The server's settings came: the first ones make the connection usable, later ones may make room."""
        ...

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None:
        """The server takes no more streams; it has not begun and will not begin any above ``last``."""
        ...


class _Nobody:
    """The sink of a closed session."""

    __slots__ = ()

    def on_settings(self, t_ns: int) -> None: ...

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None: ...


_NOBODY: ConnectionSink = _Nobody()


def _unwritten(data: bytes) -> int:
    """What a closed session writes goes nowhere."""
    return -1


class Sending:
    """A stream as its sender sees it: what the windows have not let through yet."""

    __slots__ = ("closed", "closing", "id", "queue", "queued", "sink", "window")

    def __init__(self, number: int, window: int, sink: StreamSink) -> None:
        self.id = number
        self.window = window
        self.sink = sink
        self.queue: deque[memoryview] = deque()
        self.queued = 0  # bytes in it
        self.closing = False  # half-close once it is empty
        self.closed = False  # our END_STREAM is written


class Session:
    """One connection. ``write`` takes bytes and gives the time of the write."""

    __slots__ = (
        "_first_window",
        "_frame_size",
        "_held",
        "_next_id",
        "_reader",
        "_received",
        "_settled",
        "_sink",
        "_streams",
        "_window",
        "_write",
        "answers",
        "limit",
        "usable",
    )

    def __init__(self, write: Callable[[bytes], int], sink: ConnectionSink) -> None:
        self._write = write
        self._sink = sink
        self._reader: FrameReader | None = FrameReader(self)
        self._streams: dict[int, Sending] = {}
        self._held: dict[int, Sending] = {}  # those that a window has held back, in the order in which it did
        self._next_id = 1
        self._window = _DEFAULT_WINDOW  # what we may still send on the connection
        self._first_window = _DEFAULT_WINDOW  # of a new stream
        self._frame_size = MAX_FRAME
        self._received = 0
        self._settled = False
        self.answers = 0
        self.limit = _UNLIMITED  # of concurrent streams
        self.usable = False  # the server's settings have come and it has not said goodbye

    @property
    def room(self) -> int:
        """How many more streams may be begun now."""
        if not self.usable or self._next_id > _LAST_ID:
            return 0
        return self.limit - len(self._streams)

    @property
    def limited(self) -> bool:
        """The server has announced a limit of concurrent streams."""
        return self.limit < _UNLIMITED

    @property
    def exhausted(self) -> bool:
        """No stream id is left."""
        return self._next_id > _LAST_ID

    def open(self) -> None:
        self._write(OPENING)

    def close(self) -> None:
        """Let go of everything (the reader and our sink hold us: cycles that no collector would find during a run)."""
        self._reader = None
        self._sink, self._write = _NOBODY, _unwritten
        self._streams.clear()
        self._held.clear()
        self.usable = False

    def feed(self, data: memoryview | bytes, t_ns: int) -> None:
        """Take bytes that arrived at ``t_ns``. Raises WireError; the connection is then of no more use."""
        if self._reader is not None:
            self._reader.feed(data, t_ns)

    # -- sending ------------------------------------------------------------------------------------------------

    def begin(self, sink: StreamSink, block: bytes, data: bytes, end: bool) -> tuple[Sending, int, int]:
        """Begin a stream: headers, and as much of ``data`` as the windows allow. Gives the stream, the time of the
        write and the bytes written or kept for later. Only call it while there is ``room``.
        """
        number = self._next_id
        self._next_id += 2
        stream = Sending(number, self._first_window, sink)
        self._streams[number] = stream
        size, most = len(data), self._frame_size
        if 0 < size <= most and size <= self._window and size <= self._first_window and len(block) <= most:
            self._window -= size
            stream.window -= size
            stream.closed = end
            text = b"".join(
                (
                    head(HEADERS, END_HEADERS, number, len(block)),
                    block,
                    head(DATA, END_STREAM if end else 0, number, size),
                    data,
                )
            )
            return stream, self._write(text), len(text)
        pieces = [block[i : i + most] for i in range(0, len(block), most)]
        nothing = END_STREAM if end and not size else 0
        text = frame(HEADERS, nothing | (END_HEADERS if len(pieces) == 1 else 0), number, pieces[0])
        for i, piece in enumerate(pieces[1:], 2):
            text += frame(CONTINUATION, END_HEADERS if i == len(pieces) else 0, number, piece)
        stamp = self._write(text)
        if nothing:
            stream.closed = True
        elif size:
            self.send(stream, data, end)
        return stream, stamp, len(text) + size

    def send(self, stream: Sending, data: bytes, end: bool) -> int:
        """Write a stream's bytes as far as the windows allow, and keep the rest. The time of the write, -1 if it all
        waits.

        ``end`` half-closes after them.
        """
        if stream.closed or stream.closing:
            return -1
        size = len(data)
        if not stream.queue and 0 < size <= self._frame_size and size <= stream.window and size <= self._window:
            stream.window -= size
            self._window -= size
            stream.closed = end
            return self._write(head(DATA, END_STREAM if end else 0, stream.id, size) + data)
        stream.closing = end
        if size:
            stream.queue.append(memoryview(data))
            stream.queued += size
        return self._pump(stream)

    def _pump(self, stream: Sending) -> int:
        """Write what the windows allow of what a stream keeps."""
        pieces: list[bytes | memoryview] = []
        queue = stream.queue
        while queue:
            data = queue[0]
            size = min(len(data), self._frame_size, stream.window, self._window)
            if size <= 0:
                break
            if size == len(data):
                queue.popleft()
            else:
                queue[0] = data[size:]
            stream.queued -= size
            stream.window -= size
            self._window -= size
            last = stream.closing and not queue
            stream.closed = stream.closed or last
            pieces += (head(DATA, END_STREAM if last else 0, stream.id, size), data[:size])
        if stream.closing and not stream.closed and not queue:
            stream.closed = True
            pieces.append(head(DATA, END_STREAM, stream.id, 0))
        if queue:
            self._held[stream.id] = stream
        return self._write(b"".join(pieces)) if pieces else -1

    def reset(self, stream: Sending, code: int = CANCEL) -> None:
        """Abandon a stream: RST_STREAM. Its sink hears nothing more."""
        if self._streams.pop(stream.id, None) is not None:
            stream.closed = True
            stream.queue.clear()
            self._write(reset_frame(stream.id, code))

    def forget(self, stream: Sending) -> None:
        """The server will not begin this stream: nothing need be said about it."""
        self._streams.pop(stream.id, None)
        stream.closed = True
        stream.queue.clear()

    def refuse(self, error: WireError) -> None:
        """Tell the server why we hang up."""
        self._write(goaway_frame(error.code, str(error)))

    # -- called by the reader -----------------------------------------------------------------------------------

    def on_data(self, stream: int, data: memoryview, size: int, end: bool, t_ns: int) -> None:
        self._received += size
        if self._received >= _REFILL:
            self._write(window_frame(0, self._received))
            self._received = 0
        found = self._streams.get(stream)
        if found is None:
            self._check_id(stream)
            return
        if size:
            self.answers = 0
        if end:
            self._finish(found)
        found.sink.on_data(data, end, t_ns)

    def on_headers(self, stream: int, block: bytes, end: bool, t_ns: int) -> None:
        found = self._streams.get(stream)
        if found is None:
            self._check_id(stream)
            return
        self.answers = 0
        if end:
            self._finish(found)
        found.sink.on_headers(block, end, t_ns)

    def _finish(self, stream: Sending) -> None:
        """The server has said all.

        If we have not, it doesn't want to hear it: the stream is taken off the connection.
        """
        del self._streams[stream.id]
        if not stream.closed:
            stream.closed = True
            stream.queue.clear()
            self._write(reset_frame(stream.id, CANCEL))

    def _check_id(self, stream: int) -> None:
        """A frame of a stream that we gave up is late; one of a stream that we never began is wrong."""
        if stream >= self._next_id or not stream & 1:
            raise WireError(f"the server sent a frame for stream {stream}, which was never begun")

    def on_reset(self, stream: int, code: int, t_ns: int) -> None:
        found = self._streams.pop(stream, None)
        if found is None:
            self._check_id(stream)
            return
        found.closed = True
        found.queue.clear()
        found.sink.on_reset(code, t_ns)

    def on_settings(self, pairs: list[tuple[int, int]], ack: bool, t_ns: int) -> None:
        if ack:
            return
        for name, value in dict(pairs).items():  # of one that is said often, the last counts
            if name == MAX_CONCURRENT_STREAMS:
                self.limit = value
            elif name == INITIAL_WINDOW_SIZE:
                self._resize(value)
            elif name == MAX_FRAME_SIZE:
                if not MAX_FRAME <= value < 1 << 24:
                    raise WireError(f"the server's MAX_FRAME_SIZE is {value}")
                self._frame_size = value
        self._answer(_SETTINGS_ACK)
        if not self._settled:
            self._settled = self.usable = True
        self._sink.on_settings(t_ns)
        self._pump_all()

    def _resize(self, value: int) -> None:
        if value > MAX_WINDOW:
            raise WireError(f"the server's INITIAL_WINDOW_SIZE is {value}", FLOW_CONTROL_ERROR)
        change = value - self._first_window
        self._first_window = value
        for stream in self._streams.values():
            stream.window += change
            if stream.window > MAX_WINDOW:
                raise WireError("the server's settings overflow a window", FLOW_CONTROL_ERROR)

    def on_ping(self, data: bytes, ack: bool) -> None:
        if not ack:
            self._answer(frame(PING, 1, 0, data))

    def _answer(self, text: bytes) -> None:
        self.answers += 1
        if self.answers > MAX_ANSWERS:
            what = f"{MAX_ANSWERS} pings and settings with nothing for a call"
            raise WireError(f"the server sent {what}", ENHANCE_YOUR_CALM)
        self._write(text)

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None:
        self.usable = False
        self._sink.on_goaway(last, code, text, t_ns)

    def on_window(self, stream: int, increment: int) -> None:
        if not stream:
            self._window += increment
            if not increment or self._window > MAX_WINDOW:
                raise WireError(f"the server moved the connection's window by {increment}", FLOW_CONTROL_ERROR)
            self._pump_all()
            return
        found = self._streams.get(stream)
        if found is None:
            self._check_id(stream)
            return
        found.window += increment
        if not increment or found.window > MAX_WINDOW:
            raise WireError(f"the server moved the window of stream {stream} by {increment}", FLOW_CONTROL_ERROR)
        if found.queue:
            self._pump(found)

    def _pump_all(self) -> None:
        """The connection's window has grown: those that wait go on, in the order in which they began to."""
        for stream in list(self._held.values()):
            if stream.queue:
                self._pump(stream)
            if not stream.queue:
                self._held.pop(stream.id, None)
