"""Where answers go: server-sent events written one by one and stamped, or text kept for one reply.

Bytes are handed to the transport directly, framed here, because each event must be one write and its two
stamps must lie on either side of it. That holds on asyncio's own transports, which try the socket at once;
uvloop's put writes off to the end of the loop's turn, where no stamp can see them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence

from plimsoll.reference_server.seams.models import Sink
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.errors import StreamCut, StreamFailure

_MAX_UNSENT = 4 << 20


def sse(value: object) -> bytes:
    """One server-sent event of JSON."""
    return b"data: %b\n\n" % json.dumps(value).encode()


class EventSink:
    """Writes events to one connection. ``chunked`` frames them as HTTP/1.1 chunks."""

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        row: TruthRow,
        render: Callable[[str], bytes],
        *,
        chunked: bool,
        error_at: int = -1,
        cut_at: int = -1,
    ) -> None:
        self._transport = transport
        self._row = row
        self._render = render
        self._chunked = chunked
        self._error_at = error_at
        self._cut_at = cut_at
        self._may_break = error_at >= 0 or cut_at >= 0
        self._n_tokens = 0
        self.kept: list[bytes] | None = None
        """Every event written, where somebody wants them kept."""

    @property
    def n_tokens(self) -> int:
        """Tokens so far, those of the event being rendered included."""
        return self._n_tokens

    def event(self, data: bytes) -> None:
        """Write one whole event, not counted as a token."""
        self._transport.write(self._frame(data))

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        if self._may_break:
            struck(self._n_tokens, self._error_at, self._cut_at)
        self._n_tokens += n_tokens
        if not text:
            return  # half a character: nothing to show yet
        self.stamped(self._render(text), due_ns)

    def stamped(self, data: bytes, due_ns: int = -1) -> None:
        """Write one whole event that counts as output, and stamp it. Raises ConnectionError when the client is gone."""
        if self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        frame = self._frame(data)
        before_ns = time.monotonic_ns()
        self._transport.write(frame)
        after_ns = time.monotonic_ns()
        row = self._row
        row.before_ns.append(before_ns)
        row.after_ns.append(after_ns)
        if due_ns >= 0:
            row.due_ns.append(due_ns)
        if self._transport.get_write_buffer_size() > _MAX_UNSENT:
            raise StreamCut("the client reads too slowly")

    def _frame(self, data: bytes) -> bytes:
        if self.kept is not None:
            self.kept.append(data)
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data


class TextSink:
    """Keeps the text of an answer that is sent in one piece; remembers when its first token was there."""

    def __init__(self, *, error_at: int = -1, cut_at: int = -1) -> None:
        self._error_at = error_at
        self._cut_at = cut_at
        self._n_tokens = 0
        self._parts: list[str] = []
        self.first_ns = -1

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        struck(self._n_tokens, self._error_at, self._cut_at)
        if self.first_ns < 0:
            self.first_ns = time.monotonic_ns()
        self._n_tokens += n_tokens
        self._parts.append(text)


class Stopped(Exception):
    """One of the texts that end an answer came up."""


class StopSink:
    """Passes an answer on up to the first of some texts; what may yet become one of them is held back."""

    def __init__(self, sink: Sink, stops: Sequence[str]) -> None:
        self._sink = sink
        self._stops = stops
        self._held = ""
        self._n_held = 0
        self._due_ns = -1
        self.n_tokens = 0

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Pass on what is certain. Raises Stopped when a text that ends the answer is whole."""
        self.n_tokens += n_tokens
        self._due_ns = due_ns
        self._n_held += n_tokens
        self._held += text
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        if found:
            self._pass_on(min(found))
            raise Stopped
        self._pass_on(len(self._held) - self._n_open())

    def flush(self) -> None:
        """The answer ended by itself: what was held back is part of it."""
        self._pass_on(len(self._held))

    def _pass_on(self, n_characters: int) -> None:
        text, self._held = self._held[:n_characters], self._held[n_characters:]
        if text:
            n_tokens, self._n_held = self._n_held, 0
            self._sink.token(text, n_tokens, self._due_ns)

    def _n_open(self) -> int:
        """Length of the longest end of the held text that one of the stops begins with."""
        longest = max(map(len, self._stops)) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-n:]) for stop in self._stops):
                return n
        return 0


def struck(position: int, error_at: int, cut_at: int) -> None:
    """Raise what the script has for the token at ``position``, if anything."""
    if 0 <= cut_at <= position:
        raise StreamCut("the script cuts the connection here")
    if 0 <= error_at <= position:
        raise StreamFailure("the script fails the answer here")
