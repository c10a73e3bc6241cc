"""Where answers go: server-sent events written one by one and stamped, or text kept for one reply.

Bytes are handed to the transport directly, framed here, because each event must be one write and its two
stamps must lie on either side of it. That holds on asyncio's own transports, which try the socket at once;
uvloop's put writes off to the end of the loop's turn, where no stamp can see them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from reference_server.errors import StreamCut, StreamFailure
from reference_server.truth import TruthRow

_MAX_UNSENT = 4 << 20


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
        self._n_tokens = 0

    def event(self, data: bytes) -> None:
        """Write one whole event, not counted as a token."""
        self._transport.write(self._frame(data))

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Write one token event and stamp it."""
        struck(self._n_tokens, self._error_at, self._cut_at)
        self._n_tokens += n_tokens
        if not text:
            return  # half a character: nothing to show yet
        frame = self._frame(self._render(text))
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
        """All text so far."""
        return "".join(self._parts)

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Keep the text."""
        struck(self._n_tokens, self._error_at, self._cut_at)
        if self.first_ns < 0:
            self.first_ns = time.monotonic_ns()
        self._n_tokens += n_tokens
        self._parts.append(text)


def struck(position: int, error_at: int, cut_at: int) -> None:
    """Raise what the script has for the token at ``position``, if anything."""
    if 0 <= cut_at <= position:
        raise StreamCut("the script cuts the connection here")
    if 0 <= error_at <= position:
        raise StreamFailure("the script fails the answer here")
