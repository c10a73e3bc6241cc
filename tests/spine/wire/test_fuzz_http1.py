"""HTTP/1.1 under attack: any split of any response, broken ones, endless ones. Only WireError, and memory in bounds."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.wire import http1
from plimsoll.harness.wire.http1 import MAX_HEAD, MAX_HEADERS, ResponseReader, WireError

KIB = 1024

names = st.text("abcXYZ019-_!", min_size=1, max_size=12).map(str.encode)
values = st.text("ab :;,=\"'/\t~\x80\xff", max_size=30).map(lambda text: text.strip(" \t").encode("latin-1"))
#: Names that change how a response is framed are given by the strategies below, never by chance.
fields = st.lists(st.tuples(names.map(lambda name: b"x-" + name), values), max_size=6)
bodies = st.binary(max_size=300)
cuts = st.lists(st.integers(0, 1000), max_size=12)


@dataclass(frozen=True)
class Response:
    """A response as bytes, and what a reader must make of it."""

    data: bytes
    code: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    by_close: bool = False


def lines(pairs: list[tuple[bytes, bytes]], gap: bytes = b" ") -> bytes:
    return b"".join(name + b":" + gap + value + b"\r\n" for name, value in pairs)


def lower(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in pairs]


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Any valid response: interim ones before it, every framing, extensions and trailers, odd white space."""
    early = b"".join(
        b"HTTP/1.1 %d Wait\r\n%s\r\n" % (code, lines(draw(fields)))
        for code in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=3))
    )
    code = draw(st.sampled_from([200, 200, 201, 404, 429, 503]))
    gap = draw(st.sampled_from([b"", b" ", b"\t", b"   "]))
    head, body = draw(fields), draw(bodies)
    status = b"HTTP/1.1 %d%s\r\n" % (code, draw(st.sampled_from([b" OK", b" ", b" A long reason \xe9"])))
    start = early + status + lines(head, gap)
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    if framing == "length":
        length = b"%d" % len(body)
        data = start + b"Content-Length: " + length + b"\r\n\r\n" + body
        return Response(data, code, [*lower(head), (b"content-length", length)], body)
    if framing == "close":
        return Response(start + b"\r\n" + body, code, lower(head), body, by_close=True)
    trailers = draw(fields)
    extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
    pieces, at = [], 0
    for size in [*draw(st.lists(st.integers(1, 80), max_size=6)), len(body)]:
        if piece := body[at : at + size]:
            pieces.append(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece))
        at += size
    data = start + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n" + lines(trailers, gap) + b"\r\n"
    return Response(data, code, [*lower(head), (b"transfer-encoding", b"chunked"), *lower(trailers)], body)


def read(data: bytes, at: list[int], head: bool = False) -> tuple[Exchange, ResponseReader]:
    reader, exchange = ResponseReader(), Exchange(0, 0, 0, 0, None)
    reader.start(exchange, head)
    edges = [0, *sorted({cut for cut in at if cut < len(data)}), len(data)]
    for t_ns, (start, end) in enumerate(itertools.pairwise(edges), 100):
        if end > start:
            reader.feed(memoryview(data)[start:end], t_ns)
    return exchange, reader


def seen(exchange: Exchange, reader: ResponseReader) -> tuple[object, ...]:
    """All that a reader makes of a response but the times."""
    whole = reader.complete, reader.keep_alive, reader.eof()
    return (*whole, exchange.code, exchange.headers, bytes(exchange.body), exchange.bytes_in)


def attempt(data: bytes, at: list[int], head: bool = False) -> Exchange | None:
    """The exchange, or None after the documented error. Whatever happened, what was kept is in order."""
    try:
        exchange, reader = read(data, at, head)
    except WireError:
        return None
    assert list(exchange.mark_end) == sorted(set(exchange.mark_end))
    assert (exchange.mark_end[-1] if exchange.mark_end else 0) == len(exchange.body)
    assert len(exchange.mark_ns) == len(exchange.mark_end)
    if reader.complete:
        assert exchange.code >= 200
    return exchange


@given(responses(), cuts)
def test_any_split_of_any_response_gives_what_was_sent(response: Response, at: list[int]) -> None:
    exchange, reader = read(response.data, at)
    assert seen(exchange, reader) == seen(*read(response.data, []))
    assert reader.complete  # eof() has been called
    assert (exchange.code, bytes(exchange.body)) == (response.code, response.body)
    assert exchange.headers == response.headers
    assert reader.keep_alive is not response.by_close


@given(responses())
def test_one_byte_at_a_time_is_a_split_like_any_other(response: Response) -> None:
    assert seen(*read(response.data, list(range(len(response.data))))) == seen(*read(response.data, []))


@given(responses(), st.integers(0, 2000), cuts)
def test_a_response_cut_short_is_never_complete_unless_its_close_ends_it(
    response: Response, keep: int, at: list[int]
) -> None:
    data = response.data[: min(keep, len(response.data) - 1)]
    exchange, reader = read(data, at)
    assert not reader.complete
    if not response.by_close or exchange.headers_ns < 0:
        assert not reader.eof()
    assert response.body.startswith(bytes(exchange.body))


mutations = st.lists(
    st.tuples(
        st.integers(0, 1000), st.sampled_from(["flip", "drop", "put", "swap"]), st.binary(min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=5,
)


def mutate(data: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    out = bytearray(data)
    for where, what, junk in changes:
        at = where % (len(out) + 1)
        if what == "put":
            out[at:at] = junk
        elif what == "drop":
            del out[at : at + len(junk)]
        elif what == "flip":
            out[at : at + 1] = bytes(byte ^ junk[0] for byte in out[at : at + 1])
        else:
            out[at : at + len(junk)] = junk
    return bytes(out)


@given(responses(), mutations, cuts, st.booleans())
def test_a_damaged_response_gives_a_result_or_the_documented_error(
    response: Response, changes: list[tuple[int, str, bytes]], at: list[int], head: bool
) -> None:
    attempt(mutate(response.data, changes), at, head)


TOKENS = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n", b"HTTP/2 200\r\n", b"HTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.1 304 Not\r\ncontent-length: 9\r\n\r\n",
    b"HTTP/1.1 99999999999999999999 X\r\n", b"HTTP/1.1 -1 X\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b":", b" ",
    b"content-length: 5\r\n", b"content-length: 6\r\n", b"content-length: -1\r\n", b"content-length: 1,1\r\n",
    b"content-length: 99999999999999999999999\r\n", b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"transfer-encoding: chunked, identity\r\n", b"connection: close\r\n", b"connection: keep-alive, upgrade\r\n",
    b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"fffffffffffffffff\r\n", b"-1\r\n", b"0x3\r\n", b"3;\r\n",
    b" folded\r\n", b"x: 1\r\n", b": none\r\n", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS) | st.binary(max_size=4), max_size=14).map(b"".join), cuts, st.booleans())
@example(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", [], False)
@example(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", [], False)
def test_what_is_nearly_http_gives_a_result_or_the_documented_error(data: bytes, at: list[int], head: bool) -> None:
    attempt(data, at, head)


def test_after_an_error_the_reader_goes_on_refusing() -> None:
    for bad in (b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"a" * MAX_HEAD):
        reader = ResponseReader()
        reader.start(Exchange(0, 0, 0, 0, None))
        for data in (bad, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"):
            with pytest.raises(WireError):
                reader.feed(data, 1)


# -- endless --------------------------------------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
#: name -> (how it begins, what then never ends)
ENDLESS = {
    "status line": (b"HTTP/1.1 200 O", b"k"),
    "line ends before the status line": (b"", b"\r\n"),
    "header name": (b"HTTP/1.1 200 OK\r\n", b"n"),
    "header value": (b"HTTP/1.1 200 OK\r\nx: ", b"v"),
    "white space before a header value": (b"HTTP/1.1 200 OK\r\nx:", b" "),
    "number of headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim responses with headers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    "chunk size": (CHUNKED, b"0"),
    "chunk extension name": (CHUNKED + b"3;", b"e"),
    "chunk extension value": (CHUNKED + b"3;a=", b"e"),
    "quoted chunk extension": (CHUNKED + b'3;a="', b"e"),
    "later chunk extension": (CHUNKED + b"3\r\nabc\r\n3;a=", b"e"),
    "trailer name": (CHUNKED + b"0\r\n", b"t"),
    "trailer value": (CHUNKED + b"0\r\nx: ", b"t"),
    "number of trailers": (CHUNKED + b"3\r\nabc\r\n0\r\n", b"a: b\r\n"),
}


def feed_all(reader: ResponseReader, pieces: Iterable[bytes]) -> None:
    for t_ns, piece in enumerate(pieces):
        reader.feed(piece, t_ns)


@pytest.mark.parametrize("piece_size", [1000, 64 * KIB, 256 * KIB])
@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_nothing_before_between_or_after_the_body_may_be_endless(name: str, piece_size: int) -> None:
    """Of 100 MB offered the reader takes under two limits and a read, and keeps no more than that."""
    begin, rest = ENDLESS[name]
    piece = rest * (piece_size // len(rest) + 1)
    reader, exchange = ResponseReader(), Exchange(0, 0, 0, 0, None)
    tracemalloc.start()
    try:
        reader.start(exchange)
        with pytest.raises(WireError, match=r"64 KiB|more than 256|not HTTP"):
            feed_all(reader, itertools.chain([begin or piece], itertools.repeat(piece, 100_000_000 // len(piece))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert exchange.bytes_in <= len(begin) + 2 * MAX_HEAD + len(piece)
    assert peak < 2 * (MAX_HEAD + len(piece)) + 64 * KIB  # llhttp's pieces are joined: the old and the new copy
    assert len(exchange.headers) <= MAX_HEADERS + 1


def test_an_endless_body_is_given_up_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_BODY", 1 << 20)
    piece = b"b" * 64 * KIB
    for begin, framed in ((b"HTTP/1.1 200 OK\r\n\r\n", piece), (CHUNKED, b"%x\r\n%s\r\n" % (len(piece), piece))):
        reader, exchange = ResponseReader(), Exchange(0, 0, 0, 0, None)
        reader.start(exchange)
        with pytest.raises(WireError, match="larger than 1 MiB"):
            feed_all(reader, itertools.chain([begin], itertools.repeat(framed, 1000)))
        assert len(exchange.body) <= (1 << 20) + len(piece)


@given(st.integers(-3, 3), cuts, st.booleans())
def test_the_limit_of_the_head_is_exact_however_it_is_split(beyond: int, at: list[int], interim: bool) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" if interim else b""
    begin, end = early + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: ", b"\r\n\r\n"
    head = begin + b"v" * (MAX_HEAD + beyond - len(begin) - len(end)) + end
    # The cuts are counted from the end of the head as well as from the beginning: both are where splits could matter.
    exchange = attempt(head + b"ok", at + [len(head) + 2 - cut for cut in at if cut])
    assert (exchange is not None) is (beyond <= 0)
    assert exchange is None or bytes(exchange.body) == b"ok"


def test_a_body_may_come_slowly_and_in_many_chunks() -> None:
    """A limit on framing must not add up over a long stream."""
    reader, exchange = ResponseReader(), Exchange(0, 0, 0, 0, None)
    reader.start(exchange)
    reader.feed(CHUNKED, 0)
    extension = b";" + b"e" * 1000
    for t_ns in range(200):
        reader.feed(b"1" + extension, 3 * t_ns)
        reader.feed(b"\r\n", 3 * t_ns + 1)
        reader.feed(b"x\r\n", 3 * t_ns + 2)
    assert reader.feed(b"0\r\n\r\n", 1000)
    assert bytes(exchange.body) == b"x" * 200
    assert exchange.bytes_in > 3 * MAX_HEAD


def test_the_framing_of_one_response_does_not_count_for_the_next() -> None:
    reader = ResponseReader()
    for _ in range(5):
        exchange = Exchange(0, 0, 0, 0, None)
        reader.start(exchange)
        for data in (CHUNKED, b"1;" + b"e" * (40 * KIB), b"\r\nx\r\n", b"0;" + b"e" * (40 * KIB)):
            assert not reader.feed(data, 1)
        assert reader.feed(b"\r\n\r\n", 2)
        assert (bytes(exchange.body), reader.keep_alive) == (b"x", True)
