"""HTTP/1.1 reading: any split of the bytes gives the same exchange, and garbage raises only the documented error."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.wire.http1 import ResponseReader, WireError

bodies = st.binary(max_size=200)
cuts = st.lists(st.integers(0, 400), max_size=8)


def chunked(body: bytes, sizes: list[int]) -> bytes:
    out, at = b"", 0
    for size in sizes:
        piece = body[at : at + size]
        if piece:
            out += b"%x;ext=1\r\n%s\r\n" % (len(piece), piece)
        at += size
    if body[at:]:
        out += b"%X\r\n%s\r\n" % (len(body[at:]), body[at:])
    return out + b"0\r\nx-trailer: 1\r\n\r\n"


def read(data: bytes, at: list[int]) -> tuple[Exchange, ResponseReader]:
    reader = ResponseReader()
    exchange = Exchange(0, 0, 0, 0, None)
    reader.start(exchange)
    edges = [0, *sorted({min(cut, len(data)) for cut in at}), len(data)]
    for t, (start, end) in enumerate(itertools.pairwise(edges)):
        if end > start:
            reader.feed(memoryview(data)[start:end], 100 + t)
    return exchange, reader


@given(body=bodies, at=cuts, sizes=st.lists(st.integers(1, 60), max_size=6), interim=st.booleans())
def test_chunked_bodies_survive_any_split(body: bytes, at: list[int], sizes: list[int], interim: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nserver-timing: q;dur=1\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" if interim else b""
    exchange, reader = read(early + head + chunked(body, sizes), at)
    assert reader.complete
    assert reader.keep_alive
    assert (exchange.code, bytes(exchange.body)) == (200, body)
    assert exchange.headers == [(b"transfer-encoding", b"chunked"), (b"server-timing", b"q;dur=1")] or (
        (b"x-trailer", b"1") in exchange.headers
    )


@given(body=bodies, at=cuts)
def test_marks_say_how_much_had_arrived_by_when(body: bytes, at: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    exchange, reader = read(head + body, at)
    assert reader.complete
    assert list(exchange.mark_ns) == sorted(exchange.mark_ns)
    assert list(exchange.mark_end) == sorted(set(exchange.mark_end))
    assert (exchange.mark_end[-1] if body else 0) == len(body)
    assert exchange.first_byte_ns <= exchange.headers_ns
    assert exchange.bytes_in == len(head) + len(body)


@given(body=bodies, at=cuts)
def test_a_body_without_a_length_ends_with_the_connection(body: bytes, at: list[int]) -> None:
    exchange, reader = read(b"HTTP/1.1 200 OK\r\n\r\n" + body, at)
    assert not reader.complete
    assert reader.eof()
    assert not reader.keep_alive
    assert bytes(exchange.body) == body


@given(body=st.binary(min_size=1, max_size=50), missing=st.integers(1, 50))
def test_a_body_shorter_than_its_length_is_never_complete(body: bytes, missing: int) -> None:
    _, reader = read(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(body) + missing) + body, [])
    assert not reader.complete
    assert not reader.eof()


@given(data=st.binary(min_size=1, max_size=300), at=cuts)
def test_garbage_raises_only_the_documented_error(data: bytes, at: list[int]) -> None:
    try:
        read(data, at)
    except WireError:
        return
