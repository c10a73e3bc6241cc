"""The compiled engine does what the Python engine does: every response that a server may give, to both, row by row.

The servers are scripted, the loads small; a row must agree in status, error text, code, bytes, counts and in which of
its times happened, the server must have read the same request ids, and times must be in order. Where the engines differ
on purpose the test says so. Real time, about ten seconds. Connections and schedules are in test_engines_pool.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.e2e.both_engines import ENGINES, Way, against, alike, both, closed, opened, saying
from tests.raw_server import Script, answer

pytestmark = pytest.mark.e2e
pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")

OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# -- responses ------------------------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    """An answer whose head has so many bytes."""
    return answer(extra=b"x: " + b"y" * (size - len(answer(b"", b"x: \r\n"))) + b"\r\n", body=b"")


COMPLETE = {
    "keep-alive": saying(answer()),
    "connection: close": saying(answer(extra=b"connection: close\r\n"), close=True),
    "in two pieces": saying(OK + b"content-length: 5\r\n\r\nwor", 0.01, b"ld"),
    "chunked": saying(CHUNKED + b"3\r\nabc\r\n", 0.01, b"2;x=y\r\nde\r\n0\r\nx-t: z\r\n\r\n"),
    "a byte a time": saying(*(bytes([byte]) for byte in CHUNKED + b"1\r\na\r\n0\r\n\r\n")),
    "until close": saying(OK + b"\r\nuntil", 0.01, b" close", close=True),
    "HTTP/1.0": saying(b"HTTP/1.0 200 OK\r\n\r\nold", close=True),
    "interim": saying(b"HTTP/1.1 100 Continue\r\n\r\n", 0.005, b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n", answer(b"z")),
    "204": saying(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304": saying(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n"),
    "500": saying(answer(b"broken", status=b"500 Oops")),
    "429": saying(answer(b"later", b"retry-after: 1\r\n", b"429 Too Many")),
    "redirect": saying(answer(b"", b"location: http://other/\r\n", b"302 Found")),
    "server-timing": saying(answer(b"x", b"server-timing: a;dur=3\r\n")),
    "gzip": saying(answer(b'{"a": 1}', b"content-encoding: gzip\r\n")),
    "an error in a 200": saying(answer(b'{"error": "out of tokens"}')),
    "an escaped error": saying(answer(b'{"err\\u006fr": "out of tokens"}')),
    "an empty error": saying(answer(b'{"error": null}')),
    "slow drip": saying(CHUNKED, *([b"1\r\na\r\n", 0.004] * 20), b"0\r\n\r\n"),
    "empty lines before the status line": saying(b"\r\n\r\n" + answer()),
    "an empty line after the body": saying(answer() + b"\r\n"),
    "as many headers as there may be": saying(answer(extra=b"x: y\r\n" * 255)),
    "a head as large as it may be": saying(padded(65_536)),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_response_makes_the_same_row(name: str) -> None:
    python, native = both(COMPLETE[name], Way(closed(3)))
    assert python.stats["connections_opened"] == native.stats["connections_opened"]
    assert [row["connect_ns"] >= 0 for row in python.rows] == [row["connect_ns"] >= 0 for row in native.rows]
    assert python.ids == native.ids == ["run-0-0", "run-1-0", "run-2-0"]


def test_a_head_request_has_no_body_and_the_native_engine_keeps_its_connection() -> None:
    """On purpose: llhttp would wait for the body that the headers announce, so the Python engine hangs up after
    each.
    """
    options = {"method": "HEAD"}
    for length in (b"999", b"999999999999"):
        script = saying(OK + b"content-length: %s\r\n\r\n" % length)
        python, native = both(script, Way(closed(2), options=options), but=("connect_ns",))
        assert {row["status"] for row in native.rows} == {Status.OK}
        assert (python.stats["connections_opened"], native.stats["connections_opened"]) == (2, 1)


CUT = {
    "closed before any answer": saying(0.02, close=True),
    "reset before any answer": saying(reset=True),
    "closed in the status line": saying(OK[:9], close=True),
    "closed in the head": saying(OK, close=True),
    "closed in the body": saying(OK + b"content-length: 50\r\n\r\ncut", close=True),
    "closed in a chunk": saying(CHUNKED + b"3\r\nabc\r\n", close=True),
    "reset in the body": saying(OK + b"content-length: 50\r\n\r\ncut", reset=True),
    "reset in a body until close": saying(OK + b"\r\ncut", reset=True),
    "a transfer coding without end": saying(OK + b"transfer-encoding: gzip\r\n\r\nxyz", close=True),
    "a second response": saying(answer() + answer()),
    "101": saying(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    "an oversized head": saying(OK + b"x: " + b"y" * 70_000 + b"\r\n\r\n"),
    "a head of interim responses": saying(b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000),
    "empty lines without end": saying(b"\r\n" * 40_000),
    "one header too many": saying(answer(extra=b"x: y\r\n" * 256)),
    "a head one byte too large": saying(padded(65_537)),
}


@pytest.mark.parametrize("name", CUT)
def test_a_broken_response_makes_the_same_row_with_the_same_words(name: str) -> None:
    # However many bytes of the endless ones were read when they were given up is chance.
    but = (
        ("bytes_in",) if name in ("an oversized head", "a head of interim responses", "empty lines without end") else ()
    )
    python, _ = both(CUT[name], Way(closed(2)), but)
    assert {row["status"] for row in python.rows} == {Status.CONNECT if name.startswith("reset") else Status.PROTOCOL}


GARBAGE = {
    "no HTTP": saying(b"SSH-2.0-OpenSSH\r\n", close=True),
    "a status line without a code": saying(b"HTTP/1.1 OK\r\n\r\n"),
    "a header without a name": saying(OK + b": x\r\n\r\n"),
    "a space after a name": saying(OK + b"a : x\r\ncontent-length: 0\r\n\r\n"),
    "two lengths": saying(OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx"),
    "no number": saying(OK + b"content-length: 1x\r\n\r\nx"),
    "both framings": saying(OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
    "a chunk size that is none": saying(CHUNKED + b"x\r\n"),
    "an endless chunk size": saying(CHUNKED + b"f" * 40 + b"\r\n"),
    "a chunk that does not end": saying(CHUNKED + b"3\r\nabcd\r\n"),
    "a line feed in the status line": saying(b"HTTP/1.1 200 OK\nx: y\r\ncontent-length: 0\r\n\r\n"),
    "zeros": saying(b"\0" * 100),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_the_same_failure_in_each_parsers_own_words(name: str) -> None:
    """On purpose: after "not HTTP/1.1: " llhttp says its own texts, and it says them later or earlier in the bytes."""
    python, native = both(GARBAGE[name], Way(closed(2)), ("error", "headers_ns", "code"))
    for row in (*python.rows, *native.rows):
        assert row["status"] == Status.PROTOCOL
        assert row["error"].startswith("not HTTP/1.1: ")


def test_bytes_that_answer_nothing_cost_the_connection_and_no_request() -> None:
    both(saying(answer(), 0.01, b"HTTP/1.1 408 Request Timeout\r\n\r\n", 0.02), Way(opened([0, 60, 120])))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    data = b'{"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": null}]}' % text.encode()
    return chunk(b"data: %s\n\n" % data)


LAST = b"0\r\n\r\n"
DONE = chunk(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n') + LAST
SSE = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAMS = {
    "whole": saying(SSE, *(piece for i in range(8) for piece in (event(f"w{i}"), 0.002)), DONE),
    "in one write": saying(SSE + event("a") * 30 + DONE),
    "cut": saying(SSE, event("a"), 0.005, event("b"), close=True),
    "reset": saying(SSE, event("a"), 0.005, event("b"), reset=True),
    "ended without its end": saying(SSE, event("a"), b"0\r\n\r\n"),
    "an event in halves": saying(SSE, event("half")[:30], 0.01, event("half")[30:], DONE),
    "garbage after an event": saying(SSE, event("a"), 0.01, b"zz\r\n"),
    "garbage in the same read": saying(SSE + event("a") + b"zz\r\n"),
    "an error event": saying(SSE, event("a"), 0.005, chunk(b'data: {"error": "overload"}\n\n') + LAST),
    "no event": saying(SSE, LAST),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_the_same_tokens_and_as_many_chunks(name: str) -> None:
    but = ("error",) if name.startswith("garbage") else ()
    python, native = both(STREAMS[name], Way(closed(2), protocol="openai-chat", options={}), but)
    assert len(python.records.chunk_ns) == len(native.records.chunk_ns)


# -- bodies ---------------------------------------------------------------------------------------------------


def test_a_large_upload_arrives_whole_and_a_large_download_too() -> None:
    sizes: list[int] = []

    def taking() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            sizes.append(len(request.split(b"\r\n\r\n", 1)[1]))
            writer.write(answer(b"y" * (64 << 20) if number == 1 and len(sizes) % 2 else b"ok"))

        return script

    python, _ = both(taking, Way(closed(2), options={"body_text": "x" * (16 << 20)}))
    assert sizes == [16 << 20] * 4
    assert {row["status"] for row in python.rows} == {Status.OK}
    assert python.rows[0]["bytes_in"] > 64 << 20


@pytest.mark.parametrize("close", [True, False])
def test_an_answer_before_the_whole_request_was_sent_is_the_answer(close: bool) -> None:
    def refusing() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            await reader.read(1000)
            extra = b"connection: close\r\n" if close else b""
            writer.write(answer(b"too large", extra, b"413 Payload Too Large"))
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.close()

        return script

    python, native = (
        against(engine, refusing, Way(closed(2), options={"body_text": "x" * 8_000_000}), eager=True)
        for engine in ENGINES
    )
    alike(python, native)
    assert {(row["status"], row["code"]) for row in native.rows} == {(Status.HTTP, 413)}


def test_an_error_is_found_wherever_it_lies_in_the_blocks_of_a_body() -> None:
    """The compiled engine keeps a body in blocks and looks for the error's name itself: over their seams too."""

    def growing() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            query = int(request.split(b"x-request-id: run-", 1)[1].split(b"-")[0])
            base = 990 if query < 30 else 5070
            body = b'{"pad": "%s", "error": "no"}' % (b"x" * (base - 12 + query % 30))
            for cut in range(0, len(body), 700 if query % 2 else 100_000):
                writer.write(
                    (answer(body)[: -len(body)] if cut == 0 else b"") + body[cut : cut + 700 if query % 2 else None]
                )
                await asyncio.sleep(0)
            if query % 2:
                await writer.drain()

        return script

    python, _ = both(growing, Way(closed(60)), but=("connect_ns",))
    assert {(row["status"], row["error"]) for row in python.rows} == {(Status.HTTP, "no")}
