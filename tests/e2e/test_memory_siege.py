"""Servers that want our memory, against every wire, inside 512 MB: nothing dies, every sample has its row, and the peak
is measured.

Processes that may have no more data than that (``RLIMIT_DATA``, so a quarter of it is the budget of answers in flight)
are client and server for all cases, one after the other; the tests read what it found. Nearly every case sends 25
samples at once and gives them 1 s. Bound: 90 s on a quiet machine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import gzip
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from itertools import count, groupby, repeat
from pathlib import Path
from typing import Any

import pytest
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.recorder import Recorder
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.held import binary_cost
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    frame,
    settings_frame,
)
from plimsoll.slo.records.records import Records, Status, concat
from tests.e2e.both_engines import Way, drive, opened
from tests.e2e.plimsoll import ROOT
from tests.e2e.test_conformance_wire import options_of
from tests.unit.harness.test_clients_conformance import PAYLOAD

pytestmark = pytest.mark.e2e
LIMIT = 512 << 20
AT_ONCE = 25
TIMEOUT_NS = 1_000_000_000
KIB, MIB = 1 << 10, 1 << 20
Pieces = Iterator[bytes]

# -- what servers say over HTTP/1.1 -------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
JSON, SSE, NDJSON, SOUND = b"application/json", b"text/event-stream", b"application/x-ndjson", b"audio/pcm"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def without_end(kind: bytes, data: bytes) -> Pieces:
    yield OK + b"content-type: %b\r\n" % kind + CHUNKED
    yield from repeat(chunk(data))


def whole(kind: bytes, data: bytes, extra: bytes = b"", code: bytes = b"200 OK") -> Pieces:
    yield b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n" % (code, kind, extra, len(data))
    for at in range(0, len(data), 256 * KIB):
        yield data[at : at + 256 * KIB]


def headers() -> Pieces:
    yield OK
    yield from repeat(b"x-a: b\r\n" * 4000)


def long_header() -> Pieces:
    yield OK + b"x-a: "
    yield from repeat(b"b" * 64 * KIB)


def interim() -> Pieces:
    yield from repeat((b"HTTP/1.1 103 Early Hints\r\nlink: " + b"a" * 900 + b"\r\n\r\n") * 64)


def trailers() -> Pieces:
    yield OK + CHUNKED + chunk(b"{}") + b"0\r\n"
    yield from repeat(b"x-a: b\r\n" * 4000)


def extensions() -> Pieces:
    yield OK + CHUNKED + b"5;"
    yield from repeat(b"a" * 64 * KIB)


def tiny_chunks() -> Pieces:
    yield OK + b"content-type: text/event-stream\r\n" + CHUNKED
    yield from [b"1\r\n\n\r\n" * 4000] * 10
    yield b"0\r\n\r\n"


HTTP: dict[str, Callable[[], Pieces]] = {
    "a body without end": partial(without_end, JSON, b"0" * 256 * KIB),
    "headers without end": headers,
    "a header without end": long_header,
    "interim responses without end": interim,
    "trailers without end": trailers,
    "a chunk extension without end": extensions,
    "a million tiny chunks": tiny_chunks,
    "a line without end": partial(without_end, SSE, b"data: " + b"a" * 256 * KIB),
    "a JSON line without end": partial(without_end, NDJSON, b"{" + b'"a":"' + b"a" * 256 * KIB),
    "events without end": partial(without_end, SSE, b"data: {}\n\n" * 26_000),
    "the shortest events": partial(whole, SSE, b"data:\n\n" * 600_000),
    "the shortest lines": partial(whole, NDJSON, b"{}\n" * 1_400_000),
    "the shortest values": partial(whole, JSON, b"[" + b"{}," * 1_400_000 + b"{}]"),
    "an object of little objects": partial(whole, JSON, b'{"a":[' + b'{"":0},' * 600_000 + b"0]}"),
    "deep nesting": partial(whole, JSON, b"[" * 4 * MIB),
    "deep nesting in an event": partial(whole, SSE, b"data: " + b'{"a":' * MIB + b"\n\n"),
    "a compressed bomb": partial(whole, JSON, gzip.compress(bytes(128 * MIB), 9), b"content-encoding: gzip\r\n"),
    "sound without end": partial(without_end, SOUND, bytes(256 * KIB)),
    "sound of 3 MB": partial(whole, SOUND, bytes(3 * MIB)),
}


def complaints() -> Pieces:
    """An error with a text and stages like no other, as long as they may be."""
    number = next(_NUMBERS)
    stages = b", ".join(b"s%dx%d;dur=%d" % (number, i, i) for i in range(3000))
    text = (b"hold %d of the ship is full. " % number) * 2500
    yield from whole(JSON, b'{"error": {"message": "%b"}}' % text, b"server-timing: %b\r\n" % stages, b"500 Full")


_NUMBERS = count()
#: Of these what the wire itself says; one dialect shows it, in both engines.
WIRE = list(HTTP)[:7]
#: dialect -> what it is told besides.
DIALECTS = {
    "openai-chat": ["a line without end", "events without end", "the shortest events", "deep nesting in an event"],
    "openai-responses": ["events without end", "the shortest events", "deep nesting in an event"],
    "ollama-chat": ["a JSON line without end", "the shortest lines", "deep nesting"],
    "openai-embeddings": ["the shortest values", "an object of little objects", "deep nesting", "a compressed bomb"],
    "kserve-v2": ["an object of little objects", "a compressed bomb"],
    "http": ["an object of little objects", "deep nesting", "a compressed bomb"],
    "openai-speech": ["sound without end", "sound of 3 MB"],
}

# -- over WebSocket -----------------------------------------------------------------------------------------------


def message(data: bytes, opcode: int = 0x81) -> bytes:
    return bytes((opcode, 127)) + len(data).to_bytes(8, "big") + data


def announced() -> Pieces:
    yield b"\x82\x7f" + (250 * MIB).to_bytes(8, "big")
    yield from repeat(bytes(256 * KIB))


def fragments(size: int, per_piece: int) -> Pieces:
    yield message(b"a" * size, 0x01)
    yield from repeat(message(b"a" * size, 0x00) * per_piece)


def handshake() -> Pieces:
    yield b"HTTP/1.1 101 Switching Protocols\r\n"
    yield from repeat(b"x-a: b\r\n" * 4000)


LIVE: dict[str, Callable[[], Pieces]] = {
    "a huge message": announced,
    "fragments without end": partial(fragments, 64 * KIB, 4),
    "empty fragments without end": partial(fragments, 0, 6000),
    "messages without end": lambda: repeat(message(b"a" * 256 * KIB, 0x82)),
    "little messages without end": lambda: repeat(b"\x81\x02{}" * 4000),
    "messages of little values": lambda: iter([message(b"[" + b"{}," * 300_000 + b"{}]")] * 4 + [b"\x88\x00"]),
    "deep nesting in a message": lambda: iter([message(b"[" * MIB)] * 4 + [b"\x88\x00"]),
    "headers of the handshake without end": handshake,
}
SESSIONS = ("deepgram-listen", "openai-realtime", "websocket")

# -- over gRPC ----------------------------------------------------------------------------------------------------

BLOCK = b"\x88" + literal("content-type", b"application/grpc")


def begun(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, BLOCK)


def data(stream: int, body: bytes) -> bytes:
    return b"".join(frame(DATA, 0, stream, body[at : at + 16_000]) for at in range(0, len(body), 16_000))


def over(stream: int, *more: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, literal("grpc-status", b"0") + b"".join(more))


def endless_call(body: bytes, stream: int, first: bytes = b"") -> Pieces:
    yield begun(stream) + first
    yield from repeat(data(stream, body))


def one_message(body: bytes, stream: int) -> Pieces:
    yield begun(stream) + data(stream, b"\0" + len(body).to_bytes(4, "big") + body)
    yield over(stream)


def continued(stream: int) -> Pieces:
    yield frame(HEADERS, 0, stream, BLOCK) + frame(CONTINUATION, 0, stream, literal("a", b"b" * 1000)) * 200
    yield from repeat(frame(CONTINUATION, 0, stream, literal("a", b"b" * 1000) * 8))


def blocks(stream: int) -> Pieces:
    yield from repeat(frame(HEADERS, END_HEADERS, stream, b"\x08\x03103" + literal("link", bytes(8000))))


def big_trailers(stream: int) -> Pieces:
    yield begun(stream) + over(stream, *[literal("a", b"b" * 15_000)] * 16)


CALLS: dict[str, Callable[[int], Pieces]] = {
    "a huge message": lambda n: endless_call(bytes(16_000) * 8, n, data(n, b"\0" + (60 * MIB).to_bytes(4, "big"))),
    "messages without end": partial(endless_call, (b"\0" + (15_995).to_bytes(4, "big") + bytes(15_995)) * 8),
    "empty messages without end": partial(endless_call, bytes(15_000) * 4),
    ": metadata without end": continued,
    "blocks of metadata without end": blocks,
    "trailers larger than a frame": big_trailers,
    "a message of little messages": partial(one_message, b"\x2a\x00" * 1_000_000),
}
RPCS = ("kserve-v2-grpc", "triton-stream", "riva-asr", "riva-tts")
#: Floods of which a second takes many to settle: against one protocol each.
SLOW = {"empty messages without end": "kserve-v2-grpc", "little messages without end": "websocket"}


# -- the server ---------------------------------------------------------------------------------------------------


class Besieger:
    """Says one thing to whoever connects, in the language that it is spoken to in."""

    def __init__(self, http: Any = None, live: Any = None, call: Any = None) -> None:
        self.http, self.live, self.call = http, live, call

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            begin = await reader.readexactly(3)
            if begin == PREFACE[:3]:
                await self._speak_http2(reader, writer)
                return
            head = begin + await reader.readuntil(b"\r\n\r\n")
            if b"upgrade: websocket" not in head.lower():
                await self._pour(writer, self.http())
                while self.http is complaints and await reader.readuntil(b"\r\n\r\n"):  # the request has no body
                    await self._pour(writer, self.http())
            else:
                if self.live is not handshake:
                    writer.write(accepted(head))
                await self._pour(writer, self.live())
            while await reader.read(65_536):
                pass
        writer.transport.abort()

    async def _pour(self, writer: asyncio.StreamWriter, pieces: Pieces) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async def _speak_http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PREFACE) - 3)
        writer.write(settings_frame((3, 100)))
        pouring: list[asyncio.Task[None]] = []
        try:
            while True:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] == HEADERS:
                    pouring.append(asyncio.create_task(self._pour(writer, self.call(int.from_bytes(head[5:], "big")))))
        finally:
            for task in pouring:
                task.cancel()
            await asyncio.gather(*pouring, return_exceptions=True)


def accepted(head: bytes) -> bytes:
    key = next(
        line.split(b":")[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
    )
    answer = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    asked = [line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-protocol")]
    chosen = b"".join(b"%b\r\n" % line.split(b",")[0] for line in asked)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-accept: %b\r\n%b\r\n" % (answer, chosen)
    )


# -- the besieged -------------------------------------------------------------------------------------------------


async def samples(name: str, url: str, n: int, texts: int = 10_000, **more: Any) -> Records:
    """Send ``n`` samples at once by the Python engine, as a worker would, and settle them."""
    spec = protocols()[name]
    more = {"timeout_ns": TIMEOUT_NS, "options": options_of(spec), **more}
    clock = LoopClock(asyncio.get_running_loop())
    where = url.replace("http", "grpc") if spec.grpc else url
    client = spec.build(Target(where, name, "m", **more), clock)
    cut: list[Records] = []
    recorder = Recorder(clock, client.settle, lambda: 1 << 62, cut.append, 0)
    recorder.cost = binary_cost if spec.grpc else recorder.cost
    recorder.said.left = texts
    recorder.t0_ns = clock.now_ns()
    request = client.encode(PAYLOAD)
    await client.open(0)
    try:
        for number in range(n):
            exchange = Exchange(number, 0, 0, clock.now_ns(), request)
            exchange.on_done = recorder.finished
            exchange.ready_ns = clock.now_ns()
            client.send(exchange, b"run-%d-0" % number)
        del exchange
        async with asyncio.timeout(20):
            while recorder.rows < n:
                await asyncio.sleep(0.005)
        recorder.flush()
        assert recorder.faults == [], recorder.faults[:1]
    finally:
        await client.close()
        clock.close()
    return concat(cut)


async def natively(name: str, url: str, n: int) -> Records:
    way = Way(opened([0] * n), protocol=name, options={}, target={"timeout_ns": TIMEOUT_NS})
    ran = await drive("native", url, way)
    assert ran.aborted is None, ran.aborted
    return ran.records


def besieged(server: Besieger, attempt: Callable[[str], Awaitable[Records]]) -> dict[str, Any]:
    """One case: how its rows ended, what was said of them, and how much memory the process had at most."""

    async def main() -> Records:
        faults: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(str(context)))
        tasks: set[asyncio.Task[None]] = set()

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with contextlib.suppress(asyncio.CancelledError):
                await server.serve(reader, writer)
            writer.transport.abort()

        listener = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        try:
            return await attempt(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not faults, faults[:2]

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    gc.disable()  # as in a worker
    begun_s = time.monotonic()
    try:
        records = uvloop.run(main())
    finally:
        gc.enable()
        gc.collect()
    texts = [text for text in records.errors if text]
    return {
        "rows": len(records),
        "statuses": Counter(Status(int(code)).name for code in records["status"]),
        "errors": sorted({text[:300] for text in texts})[:4],
        "distinct": len(set(texts)),
        "chars": sum(map(len, texts)),
        "timing_chars": sum(map(len, records.timings)),
        "peak": int(next(line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")).split()[1])
        * KIB,
        "data": int(next(line for line in Path("/proc/self/status").open() if line.startswith("VmData")).split()[1])
        * KIB,
        "seconds": round(time.monotonic() - begun_s, 2),
    }


def cases() -> Iterator[tuple[str, Besieger, Callable[[str], Awaitable[Records]]]]:
    """(name, server, what is tried against it)."""
    for dialect, told in DIALECTS.items():
        for flood in [*WIRE, *told] if dialect == "openai-chat" else told:
            yield f"{dialect}: {flood}", Besieger(HTTP[flood]), lambda url, d=dialect: samples(d, url, AT_ONCE)  # type: ignore[misc]
    for flood in [*WIRE, *DIALECTS["openai-chat"]]:
        yield f"native: {flood}", Besieger(HTTP[flood]), lambda url: natively("openai-chat", url, AT_ONCE)
    ask = {"options": {"method": "GET"}, "max_connections": AT_ONCE, "timeout_ns": 30_000_000_000}
    yield "http: complaints", Besieger(complaints), lambda url: samples("http", url, 1500, 400, **ask)
    for name in SESSIONS:
        for flood, live in LIVE.items():
            if SLOW.get(flood, name) != name:
                continue
            yield f"{name}: {flood}", Besieger(live=live), lambda url, p=name: samples(p, url, AT_ONCE)  # type: ignore[misc]
    for name in RPCS:
        for flood, call in CALLS.items():
            if SLOW.get(flood, name) != name:
                continue
            yield f"{name}: {flood}", Besieger(call=call), lambda url, p=name: samples(p, url, AT_ONCE)  # type: ignore[misc]
    endless = Besieger(HTTP["a body without end"], LIVE["messages without end"], CALLS["messages without end"])
    for spec in protocols().values():
        if spec.needs_url and spec.name not in (*DIALECTS, *SESSIONS, *RPCS):
            yield f"{spec.name}: without end", endless, lambda url, p=spec.name: samples(p, url, 4)  # type: ignore[misc]


def child() -> None:
    """The cases, those against one protocol in one process, which may have no more memory than that: a JSON line
    each.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    failed = 0
    for _, group in groupby(cases(), lambda case: case[0].split(":")[0]):
        told = [case for case in group if len(sys.argv) < 2 or sys.argv[1] in case[0]]
        if not told:
            continue
        if not (pid := os.fork()):
            code = 1
            try:
                for name, server, attempt in told:
                    print(json.dumps({"case": name, **besieged(server, attempt)}), flush=True)
                code = 0
            except Exception:  # noqa: BLE001 - a forked process ends here, whatever it was
                traceback.print_exc()
            finally:
                os._exit(code)
        failed += os.waitpid(pid, 0)[1] != 0
    sys.exit(failed > 0)


@cache
def found() -> dict[str, dict[str, Any]]:
    """What the siege found, by case."""
    command = [sys.executable, "-m", "tests.e2e.test_memory_siege"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, cwd=ROOT)
    lines = [
        *map(json.loads, done.stdout.splitlines()),
        {"case": "the siege", "code": done.returncode, "said": done.stderr[-3000:]},
    ]
    return {line["case"]: line for line in lines}


def case_of(name: str) -> dict[str, Any]:
    assert name in found(), found()["the siege"]
    return found()[name]


NAMES = [name for name, _, _ in cases()]
#: What the rows of a case say, where it is the same on a machine of any speed.
SAYS = {
    "headers without end": "more than 256 response headers|the head of the response is larger than 64 KiB",
    "a header without end": "the head of the response is larger than 64 KiB",
    "interim responses": "the head of the response is larger than 64 KiB",
    "trailers without end": "more than 256 response headers and trailers",
    "a chunk extension": "more than 64 KiB of chunk framing|a chunk size is malformed",
    "the shortest": "to take it apart could need more than 64 MiB",
    "little objects": "to take it apart could need more than 64 MiB",
    "deep nesting in an event": "to take it apart could need more than 64 MiB",
    ": metadata without end": "a header block is larger than 64 KiB",
    "blocks of metadata": "more than 32 header blocks",
    "trailers larger": "16384 are allowed",
    "headers of the handshake": "no answer to a WebSocket handshake",
}
#: Cases that are no attack on whoever knows better than to look.
HARMLESS = ("sound of 3 MB", "http: a compressed bomb")


@pytest.mark.parametrize("name", NAMES)
def test_a_siege_ends_in_rows_that_say_why_and_inside_the_memory(name: str) -> None:
    case = case_of(name)
    assert case["peak"] < LIMIT
    assert case["rows"] == (1500 if "complaints" in name else 4 if name.endswith(": without end") else AT_ONCE)
    harmless = any(map(name.endswith, HARMLESS))
    expected = {"HTTP"} if "complaints" in name else {"OK" if harmless else "PROTOCOL", "TIMEOUT"}
    assert not harmless or "OK" in case["statuses"], case["errors"]
    assert set(case["statuses"]) <= expected, case["errors"]
    for flood, words in SAYS.items():
        if flood in name:
            assert all(re.search(words, text) for text in case["errors"] if "timeout" not in text), case["errors"]


def test_a_thousand_texts_like_no_other_are_kept_up_to_a_number_and_a_length() -> None:
    case = case_of("http: complaints")
    assert case["distinct"] == 401
    assert case["chars"] < 401 * 400
    assert 0 < case["timing_chars"] < 1500 * 1024
    assert any(text.startswith("(other texts)") for text in case["errors"])


if __name__ == "__main__":
    child()
