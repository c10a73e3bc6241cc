"""Servers that would take our memory or our processor with them: the row is kept, it says why, and nothing is left
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import uvloop

import plimsoll.harness.transport.live.websocket_session
import plimsoll.harness.transport.rpc.rpc_stream
import plimsoll.harness.wire.grpc_messages
from plimsoll.harness.transport import held
from plimsoll.harness.transport.live.dialogue import Message, Script
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2_frames import DATA, END_HEADERS, HEADERS, PING, frame, settings_frame
from plimsoll.slo.records.records import Status
from tests.e2e.grpc_bench import GrpcBench, messages, stream, unary
from tests.e2e.test_grpc_misfortune import ANSWER, GOOD, goaway, greet, says
from tests.e2e.test_grpc_misfortune import play as call_against
from tests.e2e.test_websocket_transport import Bench, Peer, answer_and_finish, one
from tests.e2e.test_websocket_transport import play as talk_to
from tests.raw_server import Script as RawScript
from tests.raw_server import raw_server

pytestmark = pytest.mark.e2e
ASK = Script("/talk", frames=(Message(b"hello", True),), due_ns=(0,))
MS = 1_000_000


# -- WebSocket ----------------------------------------------------------------------------------------------------


def test_a_message_that_would_never_end_is_refused_by_its_announced_length() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        await peer.text(b"half")
        peer.writer.write(b"\x82\x7f" + (1 << 40).to_bytes(8, "big") + bytes(1000))
        await peer.writer.drain()
        await peer.more()

    exchange, _ = one(ASK, serve, timeout_ns=2000 * MS)
    assert exchange.status == Status.PROTOCOL
    assert "1099511627776 bytes" in str(exchange.error)
    assert exchange.body == b"half"


def test_more_messages_than_a_session_may_have_end_it_and_those_before_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plimsoll.harness.transport.live.websocket_session, "MAX_MESSAGES", 1000)

    async def serve(peer: Peer) -> None:
        await peer.until()
        peer.writer.write(b"\x82\x00" * 5000)  # empty ones: two bytes each
        await peer.writer.drain()
        await peer.more()

    exchange, _ = one(ASK, serve, timeout_ns=2000 * MS)
    assert (exchange.status, len(exchange.mark_ns)) == (Status.PROTOCOL, 1001)
    assert "or 1000 messages in one session" in str(exchange.error)


def test_a_server_that_pings_and_never_reads_fills_no_memory() -> None:
    async def serve(peer: Peer) -> None:
        await peer.until()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not peer.writer.is_closing():
            peer.writer.write((b"\x89\x7d" + bytes(125)) * 2000)
            await peer.writer.drain()

    exchange, _ = one(ASK, serve, timeout_ns=8000 * MS)
    assert exchange.status == Status.PROTOCOL
    assert "sends pings and does not read the answers" in str(exchange.error)


def test_messages_that_are_never_whole_count_in_the_budget_of_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library keeps what has come of a message until it is whole."""
    monkeypatch.setattr(held, "MOST", 16 << 20)

    async def serve(peer: Peer) -> None:
        await peer.until()
        peer.writer.write(b"\x82\x7f" + (200 << 20).to_bytes(8, "big"))
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                peer.writer.write(bytes(1 << 20))
                await peer.writer.drain()

    exchange, _ = one(ASK, serve, timeout_ns=5000 * MS)
    assert exchange.status == Status.PROTOCOL
    assert "held more than 16 MiB together" in str(exchange.error)
    assert exchange.bytes_in < 40 << 20


def test_sessions_leave_nothing_behind_while_the_collector_is_off() -> None:
    async def refuses(peer: Peer, head: bytes) -> None:
        peer.writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        await peer.writer.drain()

    async def silent(peer: Peer) -> None:
        await peer.until_closed()

    async def body(bench: Bench) -> None:
        await bench.talk()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await bench.talk()
            await asyncio.sleep(0.06)  # the connect timeouts are over: nobody waits for these sessions
            kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
        finally:
            gc.enable()
        for kind in ("Session", "Stream", "Player", "ClientProtocol", "Response"):
            assert kinds[kind] <= 1, (kind, kinds[kind])

    quick = {"connect_timeout_ns": 50 * MS, "timeout_ns": 10 * MS}
    talk_to(ASK, answer_and_finish, body, connect_timeout_ns=50 * MS)
    talk_to(ASK, answer_and_finish, body, connect_timeout_ns=50 * MS, raw=refuses)
    talk_to(ASK, silent, body, **quick)


# -- gRPC ---------------------------------------------------------------------------------------------------------


def test_more_messages_than_a_call_may_have_end_it_and_those_before_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.harness.wire.grpc_messages, "MAX_MESSAGES", 1000)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(stream())
        assert exchange.status == Status.PROTOCOL
        assert exchange.error == "one call has more than 1000 messages"
        assert len(messages(exchange)) > 1000

    call_against(body, says(ANSWER, frame(DATA, 0, 1, bytes(5 * 3000))), timeout_ns=2000 * MS)


def test_a_call_without_end_counts_in_the_budget_of_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 16 << 20)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(stream())
        assert exchange.status == Status.PROTOCOL
        assert "held more than 16 MiB together" in str(exchange.error)
        assert 16 << 20 < exchange.bytes_in < 40 << 20
        assert not exchange.body

    message = frame(DATA, 0, 1, b"\0" + (16379).to_bytes(4, "big") + bytes(16379))
    call_against(body, says(ANSWER, *[message * 16] * 250), timeout_ns=5000 * MS)


def test_header_blocks_without_end_are_not_kept_without_end() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.PROTOCOL
        assert (
            exchange.error
            == f"the server sent more than {plimsoll.harness.transport.rpc.rpc_stream.MAX_BLOCKS} header blocks for "
            "one call"
        )

    interim = frame(HEADERS, END_HEADERS, 1, b"\x08\x03103" + literal("link", bytes(1000)))
    call_against(body, says(interim * 500), timeout_ns=2000 * MS)


@pytest.mark.parametrize("flood", [frame(PING, 0, 0, bytes(8)), settings_frame((4, 65_535))], ids=["ping", "settings"])
def test_a_flood_that_wants_answers_and_gives_none_ends_the_connection(flood: bytes) -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.PROTOCOL
        assert "pings and settings with nothing for a call" in str(exchange.error)

    call_against(body, says(flood * 20_000), timeout_ns=5000 * MS)


def test_pings_between_messages_are_no_flood() -> None:
    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert (exchange.error, messages(exchange)) == (None, [b"ok"])

    pings = frame(PING, 0, 0, bytes(8)) * 6000
    call_against(body, says(pings, GOOD[: len(ANSWER)], pings, GOOD[len(ANSWER) :]), timeout_ns=5000 * MS)


def test_a_server_that_takes_no_call_and_says_goodbye_is_not_connected_to_for_ever() -> None:
    async def script(reader: Any, writer: Any, number: int) -> None:
        await greet(reader, writer, settings_frame((3, 0)))
        await asyncio.sleep(0.005)
        writer.write(goaway(0, 0))
        await asyncio.sleep(5)

    async def body(bench: GrpcBench) -> None:
        exchange = await bench.call(unary())
        assert exchange.status == Status.CONNECT
        assert "the server refused the call on two connections" in str(exchange.error)
        assert bench.client.stats()["connections_opened"] <= 3

    call_against(body, script, timeout_ns=1000 * MS)


# -- secrets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refusal", "close"])
def test_a_key_in_the_url_or_a_header_that_the_server_says_back_is_not_in_the_error(how: str) -> None:
    said = b"bad key: query-secret-1 header-secret-2"

    async def raw(peer: Peer, head: bytes) -> None:
        if how == "refusal":
            peer.writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
            return
        await peer.accept(head)
        peer.protocol.send_close(1008, said.decode())
        await peer.flush()

    async def main() -> str:
        async def serve(head: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            await raw(Peer(reader, writer), head)

        async with raw_server(serve) as url:
            bench = Bench(f"{url}/?api_key=query-secret-1", ASK, headers=(("x-api-key", "header-secret-2"),))
            await bench.client.open(0)
            try:
                exchange = await bench.talk()
                bench.client.settle(exchange)
            finally:
                await bench.client.close()
                bench.clock.close()
        return str(exchange.error)

    error = uvloop.run(main())
    assert "bad key: [redacted] [redacted]" in error


# -- all of them together -----------------------------------------------------------------------------------------

UNDER_A_LIMIT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, 512 << 20))
from tests.e2e.both_engines import Way, against, opened
from tests.e2e.test_hostile_transports import endless
ran = against(sys.argv[1], endless, Way(opened([0] * 25), target={"timeout_ns": 8_000_000_000}))
print(len(ran.rows), sum(row["error"].startswith("the answers in flight held more than 128 MiB") for row in ran.rows))
"""


def endless() -> RawScript:
    """An answer that never ends, as fast as it is read."""

    async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"40000\r\n" + bytes(1 << 18) + b"\r\n")
                await writer.drain()

    return script


@pytest.mark.parametrize("engine", ["python", "native"])
def test_25_answers_without_end_fit_into_512_mb(engine: str) -> None:
    """Client and server in one process that may have no more: the budget is a quarter of it."""
    command = [sys.executable, "-c", UNDER_A_LIMIT, engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows, given_up = map(int, done.stdout.split())
    assert rows == 25
    assert given_up >= 10, "the others met their time-out on a slow machine"
