"""HTTP/1.1 responses by llhttp: bytes in, an exchange filled. No socket, no clock: the time comes with the bytes.

Chunked, content-length and close-delimited bodies, interim (1xx) responses, early close. The body is kept as it is
and each read leaves one mark (time, body length); nothing in it is interpreted here. What a server can make us keep
is bounded: the limits below, and nothing else is kept.
"""

from __future__ import annotations

import httptools

from plimsoll.harness.exchange import Exchange

#: A response larger than this is given up: it is a mistake, and it would take the worker's memory with it.
MAX_BODY = 256 * 1024 * 1024
#: Headers and trailers of one response, together.
MAX_HEADERS = 256
#: All bytes before the body: status line, headers, and interim responses with theirs. Also the most that a server may
#: send from one byte of body to the next (chunk extensions, trailers), where it is counted in whole reads.
MAX_HEAD = 64 * 1024
#: What a reader without an exchange holds; nothing is fed to it then.
_NOTHING, _NONE = bytearray(), list[tuple[bytes, bytes]]()


class WireError(Exception):
    """The bytes are not HTTP/1.1, with the reason."""


class ResponseReader:
    """Reads the responses of one connection, one after the other.

    ``start(exchange)`` before each request, then ``feed`` for each read: true when the response is complete.
    """

    __slots__ = (
        "_body",
        "_exchange",
        "_final",
        "_framed",
        "_head",
        "_headers",
        "_parser",
        "_quiet",
        "_quiet_at",
        "complete",
        "keep_alive",
    )

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._body = bytearray()
        self._headers: list[tuple[bytes, bytes]] = []
        self._final = False
        self._framed = False
        self._head = False
        self._quiet = 0
        self._quiet_at = -1
        self.complete = True
        self.keep_alive = True

    def start(self, exchange: Exchange, head: bool = False) -> None:
        """Expect the response to this exchange. ``head``: it answers HEAD, so it has no body whatever it says."""
        self._exchange = exchange
        self._body = exchange.body
        self._headers = exchange.headers
        self._final = False
        self._framed = False
        self._head = head
        self._quiet_at = -1
        self.complete = False

    def feed(self, data: memoryview | bytes, t_ns: int) -> bool:
        """Take bytes that arrived at ``t_ns``. True when the response is complete.

        Raises WireError for anything that isn't a response, and for bytes nobody asked for.
        """
        exchange = self._exchange
        if exchange is None or self.complete or self._parser is None:
            raise WireError("the server sent bytes that answer no request")
        if exchange.first_byte_ns < 0:
            exchange.first_byte_ns = t_ns
        exchange.bytes_in += len(data)
        before = len(self._body)
        try:
            if exchange.bytes_in > MAX_HEAD and not self._final:
                data = self._feed_head(self._parser, data, exchange.bytes_in - len(data))
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._stamp(exchange, t_ns, before)
            raise WireError("the server switched protocols (101) unasked") from None
        except httptools.HttpParserError as error:
            self._stamp(exchange, t_ns, before)
            cause = error.__cause__ or error.__context__
            text = str(cause) if isinstance(cause, WireError) else f"not HTTP/1.1: {error}"
            if isinstance(cause, MemoryError):
                text = "this worker has no memory left for the response. Lower the concurrency, or give it more memory"
            # The old exception's traceback holds this frame, and with it the whole body: no collector would find it.
            cause = None
            raise WireError(text) from None
        size = len(self._body)
        if size > before:
            exchange.mark_ns.append(t_ns)
            exchange.mark_end.append(size)
        elif exchange.headers_ns >= 0 and not self.complete:
            self._count_quiet(len(data), size)
        if self._final and exchange.headers_ns < 0:
            exchange.headers_ns = t_ns
        return self.complete

    def _stamp(self, exchange: Exchange, t_ns: int, before: int) -> None:
        """A read that ends in an error: what was good of it arrived all the same."""
        if len(self._body) > before:
            exchange.mark_ns.append(t_ns)
            exchange.mark_end.append(len(self._body))
        if self._final and exchange.headers_ns < 0:
            exchange.headers_ns = t_ns

    def _feed_head(
        self, parser: httptools.HttpResponseParser, data: memoryview | bytes, before: int
    ) -> memoryview | bytes:
        """Feed what the limit leaves for the head, of which ``before`` bytes have been read; gives the rest of
        ``data``.

        So the limit is exact, however the bytes were split. Raises WireError if the head doesn't end within it.
        """
        allowed = max(0, MAX_HEAD - before)
        parser.feed_data(data[:allowed])
        if not self._final:
            raise WireError(f"the head of the response is larger than {MAX_HEAD >> 10} KiB")
        return data[allowed:]

    def _count_quiet(self, count: int, size: int) -> None:
        """A read inside the body brought none of it: framing only, which llhttp may be keeping."""
        if self._quiet_at != size:
            self._quiet_at = size
            self._quiet = 0
        self._quiet += count
        if self._quiet > MAX_HEAD:
            raise WireError(f"more than {MAX_HEAD >> 10} KiB of chunk framing or trailers without a byte of body")

    def eof(self) -> bool:
        """The server closed its side. True if that ends the response properly (a close-delimited body)."""
        if self.complete:
            return True
        self.keep_alive = False
        self.complete = self._final and not self._framed
        return self.complete

    def let_go(self) -> None:
        """The response is complete: nothing of it is held while the connection waits for its next request."""
        self._exchange = None
        self._body = _NOTHING
        self._headers = _NONE

    def close(self) -> None:
        """Let go of the parser (it holds us: a cycle that no collector would find during a run)."""
        self._parser = None
        self.let_go()  # a connection's timers outlive it

    # -- called by llhttp ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._final:
            raise WireError("the server sent a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._headers
        headers.append((name, value))
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        if len(headers) > MAX_HEADERS:
            raise WireError(f"more than {MAX_HEADERS} response headers and trailers")

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        code = parser.get_status_code()
        if code < 200:  # an interim response: the real one follows
            self._headers.clear()
            self._framed = False
            return
        self._final = True
        exchange = self._exchange
        if exchange is not None:
            exchange.code = code
        self.keep_alive = parser.should_keep_alive()
        if code in (204, 304):
            self._framed = True
        if self._head:
            self.complete = True
            self.keep_alive = False  # llhttp would wait for the body that the headers announce

    def on_body(self, data: bytes) -> None:
        body = self._body
        body += data
        if len(body) > MAX_BODY:
            raise WireError(f"the response is larger than {MAX_BODY >> 20} MiB")

    def on_message_complete(self) -> None:
        if self._final:
            self.complete = True
