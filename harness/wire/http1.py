"""HTTP/1.1 responses by llhttp: bytes in, an exchange filled. No socket, no clock: the time comes with the bytes.

Chunked, content-length and close-delimited bodies, interim (1xx) responses, early close. The body is kept as it is
and each read leaves one mark (time, body length); nothing in it is interpreted here.
"""

from __future__ import annotations

import httptools

from harness.exchange import Exchange

#: A response larger than this is given up: it is a mistake, and it would take the worker's memory with it.
MAX_BODY = 256 * 1024 * 1024
MAX_HEADERS = 256


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
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise WireError("the server switched protocols (101) unasked") from None
        except httptools.HttpParserError as error:
            cause = error.__cause__ or error.__context__
            text = str(cause) if isinstance(cause, WireError) else f"not HTTP/1.1: {error}"
            # The old exception's traceback holds this frame, and with it the whole body: no collector would find it.
            cause = None
            raise WireError(text) from None
        if self._final and exchange.headers_ns < 0:
            exchange.headers_ns = t_ns
        size = len(self._body)
        if size > before:
            exchange.mark_ns.append(t_ns)
            exchange.mark_end.append(size)
        return self.complete

    def eof(self) -> bool:
        """The server closed its side. True if that ends the response properly (a close-delimited body)."""
        if self.complete:
            return True
        self.keep_alive = False
        self.complete = self._final and not self._framed
        return self.complete

    def close(self) -> None:
        """Let go of the parser (it holds us: a cycle that no collector would find during a run)."""
        self._parser = None
        self._exchange = None

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
            raise WireError(f"more than {MAX_HEADERS} response headers")

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
