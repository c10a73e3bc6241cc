"""HTTP/2 frames (RFC 9113 section 4 and 6), from the client's side: bytes in, whole frames out. No socket, no state of
streams, no header compression: a header block is passed on as it is.

A frame is passed on when its last byte has come, with that byte's time, so that any split of the bytes gives the same
frames. What a server can make us keep is bounded: one frame, and one header block with its continuations.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Protocol

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
#: Flags: ACK is END_STREAM's bit.
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
#: Settings.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
#: Error codes by number (RFC 9113 section 7).
ERRORS = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 3, 6, 7, 8
ENHANCE_YOUR_CALM = 11
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: The largest frame that we take: the protocol's own default, which we don't raise.
MAX_FRAME = 16_384
#: The largest header block, continuations included.
MAX_BLOCK = 64 * 1024
MAX_WINDOW = (1 << 31) - 1
_BLOCK_FLAGS = END_HEADERS | PADDED | PRIORITISED
HEAD = Struct(">HBBBI")  # length (24 bits), type, flags, stream


class WireError(Exception):
    """The bytes break HTTP/2, with the reason; ``code`` is the error code for our GOAWAY."""

    def __init__(self, text: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.code = code


def error_name(code: int) -> str:
    """``"CANCEL"`` for 8; ``"error 99"`` for what the RFC doesn't know."""
    return ERRORS[code] if code < len(ERRORS) else f"error {code}"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame, ready to write."""
    return head(kind, flags, stream, len(payload)) + payload


def head(kind: int, flags: int, stream: int, length: int) -> bytes:
    """The nine bytes before a frame's payload."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)


def settings_frame(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame of (setting, value) pairs."""
    body = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in pairs)
    return frame(SETTINGS, 0, 0, body)


def reset_frame(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def window_frame(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def goaway_frame(code: int, text: str) -> bytes:
    """We open no stream that the server might have begun: the last stream id is 0."""
    return frame(GOAWAY, 0, 0, bytes(4) + code.to_bytes(4, "big") + text.encode("utf-8", "replace")[:200])


class Frames(Protocol):
    """Who is told of frames. Payload views are only valid during the call. Any of these may raise WireError."""

    def on_data(self, stream: int, data: memoryview, size: int, end: bool, t_ns: int) -> None:
        """``data`` without its padding; ``size`` with it, as flow control counts."""
        ...

    def on_headers(self, stream: int, block: bytes, end: bool, t_ns: int) -> None:
        """A whole header block, continuations joined."""
        ...

    def on_reset(self, stream: int, code: int, t_ns: int) -> None: ...

    def on_settings(self, pairs: list[tuple[int, int]], ack: bool, t_ns: int) -> None: ...

    def on_ping(self, data: bytes, ack: bool) -> None: ...

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None: ...

    def on_window(self, stream: int, increment: int) -> None: ...


class FrameReader:
    """Cuts one connection's bytes into frames. After a WireError it must not be fed again."""

    __slots__ = ("_begun", "_block", "_block_end", "_block_stream", "_need", "_rest", "_sink")

    def __init__(self, sink: Frames) -> None:
        self._sink = sink
        self._rest = bytearray()
        self._need = 0  # the frame in _rest is complete with this many bytes
        self._begun = False
        self._block = bytearray()
        self._block_stream = 0
        self._block_end = False

    def feed(self, data: memoryview | bytes, t_ns: int) -> None:
        """Take bytes that arrived at ``t_ns``. Raises WireError for anything that a server may not send."""
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._need:
                return
            self._rest = bytearray()
        view = memoryview(rest or data)
        if not self._begun:
            _refuse_http1(view)
        size, at = len(view), 0
        sink, unpack = self._sink, HEAD.unpack_from
        while size - at >= 9:
            high, low, kind, flags, stream = unpack(view, at)
            length = high << 8 | low
            if length > MAX_FRAME:
                raise WireError(f"the server sent a frame of {length} bytes; {MAX_FRAME} are allowed", FRAME_SIZE_ERROR)
            start = at + 9
            end = start + length
            if end > size:
                self._need = 9 + length
                break
            if kind == DATA and not flags & PADDED and stream and not self._block_stream and self._begun:
                sink.on_data(stream & MAX_WINDOW, view[start:end], length, flags & END_STREAM != 0, t_ns)
            elif (
                kind == HEADERS
                and flags & _BLOCK_FLAGS == END_HEADERS
                and stream
                and not self._block_stream
                and self._begun
            ):
                sink.on_headers(stream & MAX_WINDOW, bytes(view[start:end]), flags & END_STREAM != 0, t_ns)
            else:
                self._other(kind, flags, stream & MAX_WINDOW, view[start:end], t_ns)
            at = end
        else:
            self._need = 9
        if at < size:
            self._rest += view[at:]

    def _other(self, kind: int, flags: int, stream: int, body: memoryview, t_ns: int) -> None:
        if not self._begun:
            if kind != SETTINGS or flags & ACK:
                raise WireError("the server's first frame is not SETTINGS: it does not speak HTTP/2")
            self._begun = True
        if self._block_stream and (kind != CONTINUATION or stream != self._block_stream):
            raise WireError("the server interrupted a header block with another frame")
        if kind in (DATA, HEADERS, RST_STREAM, CONTINUATION) and not stream:
            raise WireError(f"the server sent a frame of type {kind} on stream 0")
        if kind == DATA:
            data = _unpad(body) if flags & PADDED else body
            self._sink.on_data(stream, data, len(body), flags & END_STREAM != 0, t_ns)
        elif kind == HEADERS:
            self._block_stream, self._block_end = stream, flags & END_STREAM != 0
            block = _unpad(body) if flags & PADDED else body
            if flags & PRIORITISED:
                if len(block) < 5:
                    raise WireError("a HEADERS frame is shorter than its priority", FRAME_SIZE_ERROR)
                block = block[5:]
            self._add_block(block, flags, t_ns)
        elif kind == CONTINUATION:
            if not self._block_stream:
                raise WireError("the server sent a CONTINUATION of nothing")
            self._add_block(body, flags, t_ns)
        elif kind == PUSH_PROMISE:
            raise WireError("the server pushed a stream, which was switched off")
        else:
            self._control(kind, flags, stream, body, t_ns)

    def _add_block(self, part: memoryview, flags: int, t_ns: int) -> None:
        if len(self._block) + len(part) > MAX_BLOCK:
            raise WireError(f"a header block is larger than {MAX_BLOCK >> 10} KiB", ENHANCE_YOUR_CALM)
        if not part and not flags & END_HEADERS:
            raise WireError("the server sent an empty piece of a header block", ENHANCE_YOUR_CALM)
        self._block += part
        if flags & END_HEADERS:
            stream, block = self._block_stream, bytes(self._block)
            self._block_stream = 0
            self._block.clear()
            self._sink.on_headers(stream, block, self._block_end, t_ns)

    def _control(self, kind: int, flags: int, stream: int, body: memoryview, t_ns: int) -> None:
        size = len(body)
        if (
            (kind in (RST_STREAM, WINDOW_UPDATE) and size != 4)
            or (kind == PING and size != 8)
            or (kind == GOAWAY and size < 8)
            or (kind == SETTINGS and (size % 6 or (flags & ACK and size)))
        ):
            raise WireError(f"the server sent a frame of type {kind} with {size} bytes", FRAME_SIZE_ERROR)
        if kind in (SETTINGS, PING, GOAWAY) and stream:
            raise WireError(f"the server sent a frame of type {kind} on a stream")
        if kind == RST_STREAM:
            self._sink.on_reset(stream, int.from_bytes(body, "big"), t_ns)
        elif kind == SETTINGS:
            pairs = [unpack_from(">HI", body, i) for i in range(0, size, 6)]
            self._sink.on_settings([(name, value) for name, value in pairs], flags & ACK != 0, t_ns)
        elif kind == PING:
            self._sink.on_ping(bytes(body), flags & ACK != 0)
        elif kind == GOAWAY:
            last, code = unpack_from(">II", body)
            text = bytes(body[8:208]).decode("utf-8", "replace")
            self._sink.on_goaway(last & MAX_WINDOW, code, text, t_ns)
        elif kind == WINDOW_UPDATE:
            increment = int.from_bytes(body, "big") & MAX_WINDOW
            self._sink.on_window(stream, increment)
        # PRIORITY says nothing to a client, and unknown types are to be ignored (RFC 9113 section 5.5).


def _unpad(body: memoryview) -> memoryview:
    if not body or body[0] >= len(body):
        raise WireError("a frame is shorter than its padding")
    return body[1 : len(body) - body[0]]


def _refuse_http1(data: memoryview) -> None:
    """A server of the older protocol answers our preface with a line of text, whose first bytes would be a length."""
    if bytes(data[:5]) == b"HTTP/"[: len(data)] and len(data) >= 5:
        line = bytes(data[:80]).split(b"\r", 1)[0].decode("latin-1")
        text = "".join(char if char.isprintable() else "?" for char in line)
        raise WireError(f"the server does not speak HTTP/2, it answered {text!r}: is this its HTTP/1.1 port?")
