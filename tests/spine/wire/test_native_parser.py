"""The compiled response parser against the one by llhttp, and under attack: any split, garbage, endless lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.native import header_list
from plimsoll.harness.wire.http1 import MAX_HEAD, MAX_HEADERS, ResponseReader, WireError
from tests.spine.wire.test_fuzz_http1 import Response, cuts, responses

engine = pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")

KIB = 1024


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in at if cut < len(data)}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(responses(), cuts)
def test_any_split_of_any_response_gives_that_response(response: Response, at: list[int]) -> None:
    found = engine.read_response(pieces(response.data, at), False, response.by_close)
    complete, error, code, keep_alive, _, head, body, _ = found
    assert (complete, error, code, body) == (True, None, response.code, response.body)
    assert header_list(head) == response.headers
    assert bool(keep_alive) is not response.by_close


@given(responses(), cuts, st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=3), st.booleans())
def test_what_both_parsers_take_they_take_alike(
    response: Response, at: list[int], changes: list[tuple[int, bytes]], head_request: bool
) -> None:
    """Mutated responses: ours may be stricter or laxer in what it refuses, never different in what it reads."""
    data = bytearray(response.data)
    for where, what in changes:
        data[where : where + len(what)] = what
    complete, error, code, _, _, head, body, _ = engine.read_response(pieces(bytes(data), at), head_request, True)
    reader, exchange = ResponseReader(), Exchange(0, 0, 0, 0, None)
    reader.start(exchange, head_request)
    try:
        for piece in pieces(bytes(data), at):
            if piece:
                reader.feed(piece, 1)
        whole = reader.eof()
    except WireError:
        return
    if error is None and complete and whole:
        assert (code, body) == (exchange.code, bytes(exchange.body))
        assert header_list(head) == [(name, value.strip(b" \t")) for name, value in exchange.headers]


@given(st.binary(max_size=400), cuts, st.booleans())
@example(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", [], False)
@example(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n", [], False)
@example(b"HTTP/1.1 200 OK\r\n: x\r\n\r\n", [], False)
@example(b"HTTP/1.1 200 OK\r\n\r\n\r\n", [], False)
@example(b"\r\n\r\nHTTP/1.1 204 No\r\n\r\n", [1, 3], False)
def test_garbage_is_refused_in_documented_words(data: bytes, at: list[int], http: bool) -> None:
    text = b"HTTP/1.1 200 OK\r\n" + data if http else data
    complete, error, *_, memory = engine.read_response(pieces(text, at), False, False)
    assert error is None or error in engine.WIRE_ERRORS
    assert not (complete and error)
    assert memory <= 2 * (len(text) + KIB)


@given(responses(), st.integers(0, 2000))
def test_a_cut_response_is_incomplete_unless_the_close_ends_it(response: Response, length: int) -> None:
    cut = response.data[: min(length, len(response.data) - 1)]
    complete, error, code, *_ = engine.read_response([cut], False, True)
    assert error is None
    assert not complete or (response.by_close and code == response.code)


START = b"HTTP/1.1 200 OK\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "endless", "wrong"),
    [
        (b"HTTP/1.1 200 ", b"O" * KIB, "head of the response is larger"),
        (START + b"x: ", b"y" * KIB, "head of the response is larger"),
        (START, b"x: y\r\n", "headers|head of the response is larger"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "head of the response is larger"),
        (CHUNKED + b"5;", b"z" * KIB, "chunk size"),
        (CHUNKED + b"0\r\nx: ", b"y" * KIB, "trailers"),
        (CHUNKED + b"0\r\n", b"x: y\r\n", "headers|trailers"),
        (CHUNKED, b"0" * KIB, "chunk size"),
    ],
)
def test_endless_framing_is_given_up_within_the_limit(first: bytes, endless: bytes, wrong: str) -> None:
    many = [first, *[endless] * (4 * MAX_HEAD // len(endless) + MAX_HEADERS)]
    _, error, *_, memory = engine.read_response(many, False, False)
    assert error is not None
    assert any(word in error for word in wrong.split("|"))
    assert memory <= 4 * MAX_HEAD


def test_an_endless_body_is_given_up_at_the_limit() -> None:
    piece = b"b" * (1 << 20)
    _, error, *_, memory = engine.read_response([START + b"\r\n", *[piece] * 300], False, False)
    assert error == "the response is larger than 256 MiB"
    assert memory <= 512 << 20


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx", "Content-Length is not one number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "both Content-Length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n", "a second response"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n", "101"),
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"SSH-2.0-OpenSSH\r\n", "status line"),
        (b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n", "header is malformed"),
        (b"HTTP/1.1 200 OK\r\nname: a\r\n folded\r\n\r\n", "header is malformed"),
        (CHUNKED + b"5\r\nabcdeX\r\n", "does not end where its size says"),
        (CHUNKED + b"x\r\n", "a chunk size is malformed"),
    ],
)
def test_broken_responses_are_named(data: bytes, error: str) -> None:
    for at in ([], list(range(len(data)))):
        assert error in engine.read_response(pieces(data, at), False, False)[1]


@pytest.mark.parametrize("code", [204, 304])
def test_a_response_without_a_body_ends_with_its_head(code: int) -> None:
    found = engine.read_response([b"HTTP/1.1 %d X\r\ncontent-length: 5\r\n\r\n" % code], False, False)
    assert found[:4] == (True, None, code, 1)


def test_a_close_asked_for_is_heard() -> None:
    assert engine.read_response([START + b"Connection: x, Close\r\ncontent-length: 0\r\n\r\n"], False, False)[3] == 0
    assert engine.read_response([b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"], False, False)[3] == 0
    kept = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n"
    assert engine.read_response([kept], False, False)[3] == 1
