"""Our gRPC transport against servers that do what a good one would never do: each byte is the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from plimsoll.harness.wire.grpc_messages import prefixed
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    frame,
    reset_frame,
    settings_frame,
)
from plimsoll.slo.records.records import Stamp, Status
from tests.e2e.grpc_bench import GrpcBench, grpc_bench, messages, stream, unary
from tests.raw_server import leave, raw_server

pytestmark = pytest.mark.e2e
HELLO = settings_frame()
LIMITED = settings_frame((3, 100))
BLOCK = b"\x88" + literal("content-type", b"application/grpc")
ANSWER = frame(HEADERS, END_HEADERS, 1, BLOCK)


def good(number: int) -> bytes:
    """A whole answer on this stream."""
    end = frame(HEADERS, END_HEADERS | END_STREAM, number, literal("grpc-status", b"0"))
    return frame(HEADERS, END_HEADERS, number, BLOCK) + frame(DATA, 0, number, prefixed(b"ok")) + end


ENDED = frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("grpc-status", b"0"))
GOOD = good(1)
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


def goaway(last: int, code: int, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


async def call_of(reader: asyncio.StreamReader) -> int:
    """The stream of the next call, once it has half-closed."""
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] in (DATA, HEADERS) and head[4] & END_STREAM:
            return int.from_bytes(head[5:], "big")


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: bytes = HELLO) -> None:
    await reader.readexactly(len(PREFACE))
    writer.write(hello)


def says(*parts: bytes | float, hello: bytes = HELLO, close: bool = False) -> Script:
    """Answers the first call of each connection with these bytes; a number is a pause in seconds."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await greet(reader, writer, hello)
        await call_of(reader)
        for part in parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                writer.write(part)
        await writer.drain()
        if close:
            writer.close()
        else:
            await asyncio.sleep(5)

    return script


def play(body: Callable[[GrpcBench], Awaitable[None]], script: Script, **options: Any) -> None:
    async def main() -> None:
        async def serve(_: bytes, reader: Any, writer: Any, number: int) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await script(reader, writer, number)

        async with raw_server(serve, eager=True) as url, grpc_bench(url, **options) as bench:
            await body(bench)

    uvloop.run(main())


def page(code: bytes, kind: bytes = b"text/html") -> bytes:
    block = literal(":status", code) + literal("content-type", kind)
    return frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, b"<html> Bad\n Gateway </html>")


@pytest.mark.parametrize(
    ("answer", "status", "code", "text"),
    [
        (page(b"502"), Status.HTTP, 502, "HTTP 502, text/html instead of gRPC: <html> Bad Gateway </html>"),
        (page(b"503"), Status.REFUSED, 503, "HTTP 503, text/html instead of gRPC: <html>"),
        (page(b"200"), Status.PROTOCOL, 200, "HTTP 200, text/html instead of gRPC: <html>"),
        (
            frame(HEADERS, END_HEADERS, 1, literal(":status", b"404")) + frame(DATA, END_STREAM, 1, b"no"),
            Status.HTTP,
            404,
            "HTTP 404, no content-type instead of gRPC: no",
        ),
        (
            frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(":status", b"403")),
            Status.HTTP,
            403,
            "HTTP 403, no content-type instead of gRPC",
        ),
        (
            frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK + literal("grpc-status", b"7")),
            Status.GRPC,
            7,
            "gRPC PERMISSION_DENIED",
        ),
        (
            ANSWER + frame(DATA, END_STREAM, 1, prefixed(b"m")),
            Status.PROTOCOL,
            -1,
            "the call ended without a grpc-status",
        ),
        (ANSWER + ENDED, Status.PROTOCOL, 0, "the call succeeded with 0 messages"),
        (ANSWER + frame(DATA, 0, 1, b"\x01\x00\x00\x00\x01x") + ENDED, Status.PROTOCOL, -1, "is compressed although"),
        (
            ANSWER + frame(DATA, 0, 1, b"\x00\xff\xff\xff\xffx"),
            Status.PROTOCOL,
            -1,
            "larger than target.options.max_message",
        ),
        (ANSWER + frame(DATA, END_STREAM, 1, prefixed(b"cut")[:-1]), Status.PROTOCOL, -1, "in the middle of a message"),
        (ANSWER + frame(0x0, 0, 7, b"x"), Status.PROTOCOL, -1, "stream 7, which was never begun"),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xfe"), Status.PROTOCOL, -1, "a header block can't be decoded"),
        (reset_frame(1, 2), Status.GRPC, 13, "RST_STREAM INTERNAL_ERROR (gRPC INTERNAL)"),
        (reset_frame(1, 11), Status.REFUSED, 8, "RST_STREAM ENHANCE_YOUR_CALM (gRPC RESOURCE_EXHAUSTED)"),
        (reset_frame(1, 7), Status.REFUSED, 14, "RST_STREAM REFUSED_STREAM (gRPC UNAVAILABLE)"),
        (reset_frame(1, 8), Status.GRPC, 1, "RST_STREAM CANCEL (gRPC CANCELLED)"),
        (b"\xff" * 40, Status.PROTOCOL, -1, "a frame of 16777215 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_no_success_says_why(answer: bytes, status: Status, code: int, text: str) -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.status, exchange.code) == (status, code)
        assert text in str(exchange.error)

    play(body, says(answer))


def test_what_came_before_a_cut_is_kept_and_the_cut_message_is_not() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(stream())
        assert (exchange.status, messages(exchange)) == (Status.PROTOCOL, [b"one", b"two"])
        assert exchange.body == b"onetwo"
        assert exchange.error == "connection closed in the middle of the response"

    data = prefixed(b"one") + prefixed(b"two") + prefixed(b"three")[:-2]
    play(body, says(ANSWER, frame(DATA, 0, 1, data), 0.02, close=True))


def test_a_cut_before_any_answer_says_so() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.status, exchange.error) == (Status.PROTOCOL, "connection closed before any answer")

    play(body, says(0.03, close=True))


def test_headers_in_pieces_padding_and_pings_in_between_are_read() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.error, messages(exchange)) == (None, [b"ok"])
        assert exchange.headers[0] == (b"content-type", b"application/grpc")
        assert exchange.server_timing == "queue;dur=1"

    pieces = frame(HEADERS, 0, 1, BLOCK[:4]) + frame(CONTINUATION, END_HEADERS, 1, BLOCK[4:])
    padded = frame(DATA, 8, 1, b"\x03" + prefixed(b"ok") + bytes(3))
    ended = frame(
        HEADERS, END_HEADERS | END_STREAM, 1, literal("grpc-status", b"0") + literal("server-timing", b"queue;dur=1")
    )
    play(body, says(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103"), pieces, frame(PING, 0, 0, bytes(8)), padded, ended))


def test_a_call_above_the_last_of_a_goaway_is_sent_again_on_another_connection_but_only_once() -> None:
    async def first_goes_away(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer)
        await call_of(reader)
        writer.write(goaway(0, 0) if number == 1 else GOOD)
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.error, messages(exchange)) == (None, [b"ok"])
        stats = bench.client.stats()
        assert (stats["retried_on_stale_connection"], stats["connections_opened"]) == (1, 2)

    play(body, first_goes_away)

    async def never(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.CONNECT
        assert "GOAWAY ENHANCE_YOUR_CALM (too_many_pings)" in str(exchange.error)

    play(never, says(goaway(0, 11, b"too_many_pings")))


def test_a_call_up_to_the_last_of_a_goaway_goes_on_and_the_next_one_takes_another_connection() -> None:
    async def body(bench: GrpcBench) -> None:
        for _ in range(2):
            exchange = await bench.call(unary())
            assert (exchange.error, messages(exchange)) == (None, [b"ok"])
        stats = bench.client.stats()
        assert (stats["connections_opened"], stats["goaways"]) == (2, 2)
        assert not bench.client._draining

    play(body, says(goaway(1, 0), 0.02, GOOD))


def test_a_cut_after_a_goaway_names_it() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.PROTOCOL
        assert "connection closed before any answer: GOAWAY INTERNAL_ERROR (oops)" in str(exchange.error)

    play(body, says(goaway(1, 2, b"oops"), 0.02, close=True))


def test_a_server_that_limits_streams_gets_a_refused_call_again() -> None:
    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer, LIMITED)
        for _ in range(2):
            writer.write(reset_frame(await call_of(reader), 7))
        writer.write(good(await call_of(reader)))
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.error, messages(exchange)) == (None, [b"ok"])
        stats = bench.client.stats()
        assert (stats["retried_on_refused_stream"], stats["calls_refused_and_retried"]) == (2, 1)

    play(body, script)


def test_a_connection_that_was_closed_while_idle_costs_no_call() -> None:
    writers = []

    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer)
        await call_of(reader)
        writers.append(writer)
        writer.write(GOOD)
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        for attempts in (1, 2):
            exchange = await bench.call(unary())
            assert (exchange.error, messages(exchange), exchange.attempts) == (None, [b"ok"], attempts)
            leave(writers[-1], b"")  # no loop has a turn before the next call is written: it is never read
        assert bench.client.stats()["retried_on_stale_connection"] == 1

    play(body, script)


def test_a_call_that_the_server_read_is_never_made_again() -> None:
    calls = []

    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer)
        while True:
            stream = await call_of(reader)
            calls.append(stream)
            if len(calls) == 2:
                writer.close()
                return
            writer.write(good(stream))

    async def body(bench: GrpcBench) -> None:
        assert (await bench.call(unary())).error is None
        second = await bench.call(unary())
        assert (second.status, second.attempts) == (Status.PROTOCOL, 1)
        assert "connection closed before any answer" in str(second.error)
        assert (len(calls), bench.client.stats()["retried_on_stale_connection"]) == (2, 0)

    play(body, script)


def test_an_http1_server_is_named_as_one() -> None:
    async def script(reader: Any, writer: Any, number: int) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.CONNECT
        assert "does not speak HTTP/2, it answered 'HTTP/1.1 400 Bad Request'" in str(exchange.error)

    play(body, script)


@pytest.mark.parametrize(
    ("protocols", "text"),
    [([], "the server chose no protocol by ALPN; only h2 was offered"), (["h2"], "")],
)
def test_tls_needs_a_server_that_chooses_h2(protocols: list[str], text: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if protocols:
        context.set_alpn_protocols(protocols)

    async def main() -> None:
        async def serve(_: bytes, reader: Any, writer: Any, number: int) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await says(GOOD)(reader, writer, number)

        async with (
            raw_server(serve, eager=True, tls=context) as url,
            grpc_bench(url, ca_file=str(tmp_path / "ca.pem")) as bench,
        ):
            exchange = await bench.call(unary())
        assert exchange.status == (Status.CONNECT if text else Status.OK)
        assert text in str(exchange.error)

    uvloop.run(main())


def test_a_server_that_says_nothing_is_given_up_after_the_connect_timeout() -> None:
    async def script(reader: Any, writer: Any, number: int) -> None:
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.CONNECT
        assert exchange.error == "no HTTP/2 settings from the server after 0.1 s (connect timeout)"

    play(body, script, connect_timeout_ns=100_000_000)


def test_a_cancelled_call_that_never_got_a_connection_ends_once() -> None:
    async def script(reader: Any, writer: Any, number: int) -> None:
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange, done = bench.start(unary())
        bench.client.cancel(exchange, int(Status.CANCELLED), "dropped")
        bench.client.cancel(exchange, int(Status.CANCELLED), "again")
        assert (await done).error == "dropped"

    play(body, script)


@pytest.mark.alone
@pytest.mark.parametrize("own", [False, True])
def test_an_arrival_is_stamped_when_the_server_wrote_however_late_the_loop_is(own: bool) -> None:
    wrote: list[int] = []

    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer)
        await call_of(reader)
        writer.write(ANSWER)
        await asyncio.sleep(0.02)
        wrote.append(time.monotonic_ns())
        writer.write(frame(DATA, 0, 1, prefixed(b"x")))
        await asyncio.sleep(0)
        time.sleep(0.05)  # the loop, which is the client's too, is late: the message lies in the kernel
        writer.write(ENDED)
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        await asyncio.sleep(0.05)  # Linux begins to stamp in the background
        exchange = await bench.call(stream())
        assert exchange.stamp == Stamp.KERNEL
        assert -100_000 < exchange.mark_ns[0] - wrote[0] < 10_000_000
        assert exchange.done_ns - exchange.mark_ns[0] > 35_000_000

    play(body, script, own_connection=own)


@pytest.mark.alone
def test_what_arrived_before_our_own_write_is_stamped_before_it() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer)
        await call_of(reader)
        writers.append(writer)
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange, _ = bench.start(stream())
        while not writers:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # Linux begins to stamp in the background
        os.write(writers[0].get_extra_info("socket").fileno(), ANSWER + frame(DATA, 0, 1, prefixed(b"x")))
        time.sleep(0.03)
        second, _ = bench.start(unary())  # written while the answer lies unread
        while not exchange.mark_ns:
            await asyncio.sleep(0.001)
        assert exchange.stamp == Stamp.KERNEL
        assert second.sent_ns - exchange.mark_ns[0] > 25_000_000

    play(body, script)
