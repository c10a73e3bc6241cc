"""The compiled engine's hot path and the Python that is left around it, per unit of work; none where it isn't compiled.

``native_*`` drive the engine over loopback and count the processor time of all threads; the others are single steps of
taking its rows apart, without a socket.
"""

from __future__ import annotations

import asyncio
import socket
import time
from array import array
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.generator import native
from plimsoll.harness.generator.issuer import Load
from plimsoll.harness.generator.recorder import Recorder
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Client, Target
from plimsoll.harness.transport.endpoint import Endpoint
from plimsoll.harness.transport.http.http_pool import HttpClient
from plimsoll.harness.wire import fold
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.spec import with_flags
from tests.bench.loopback import TOKENS, served, stream
from tests.virtual_time import VirtualClock

_CHAT_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _body() -> bytes:
    """A stream's events without chunk sizes, as the engine hands them over."""
    lines = stream().split(b"\r\n\r\n", 1)[1].split(b"\r\n")
    return b"".join(line for line in lines if line.startswith(b"data"))


def _marks(size: int, reads: int) -> tuple[array[int], array[int]]:
    return array("q", range(1000, 1000 + reads)), array("q", [size * (k + 1) // reads for k in range(reads)])


def fold_token_event() -> float:
    """Finding the events of a stream and their times, per token event: ``fold.read`` alone."""
    search = fold.load_fold()
    assert search is not None
    body = _body()
    mark_ns, mark_end = _marks(len(body), 64)
    rounds = 500
    begun = time.process_time()
    for _ in range(rounds):
        found = fold.read(body, mark_ns, mark_end, search)
    spent = time.process_time() - begun
    if found is None or len(found.scan.output) != TOKENS:
        raise RuntimeError("the stream was not folded")
    return spent / rounds / TOKENS * 1e6


def _idle_run(protocol: str) -> tuple[native.NativeRun, Client]:
    """A NativeRun that is never started: for its row conversion."""
    client: Any = protocols()[protocol].build(Target("http://127.0.0.1:1", protocol, "m"), None)
    plan = with_flags(None, protocol="null", kind="concurrency", concurrency=1, queries=1).build(1)
    load = Load(cut(plan), None, [client.encode(Payload(prompt="hello"))], "bench")
    endpoint = Endpoint("127.0.0.1", 1, ((int(socket.AF_INET), ("127.0.0.1", 1)),))
    return native.NativeRun(client, endpoint, load), client


def _rows(n: int, **values: int) -> native.Matrix:
    matrix = np.zeros((n, len(native.ROW)), dtype=np.int64)
    matrix[:, native.ROW.index("query_id")] = np.arange(n)
    matrix[:, native.ROW.index("code")] = 200
    for name, value in values.items():
        matrix[:, native.ROW.index(name)] = value
    return matrix


def _recorder(settle: Callable[[Any], None]) -> Recorder:
    return Recorder(VirtualClock(), settle, lambda: 1 << 62, lambda records: None, 0)


def native_plain_row() -> float:
    """A row that needs no settling, from the engine's matrix to records and live progress."""
    run, client = _idle_run("http")
    recorder = _recorder(client.settle)
    matrix, rounds = _rows(5000, settled=1, done_ns=9), 20
    begun = time.process_time()
    for _ in range(rounds):
        recorder.keep_records(run._records(matrix, 1, 0))
        recorder.take_fresh()
    spent = time.process_time() - begun
    run.close()
    return spent / rounds / len(matrix) * 1e6


def native_stream_row() -> float:
    """A streamed response, from the engine's bytes to a settled exchange and a recorded row; per response."""
    run, client = _idle_run("openai-chat")
    body = _body()
    mark_ns, mark_end = _marks(len(body), 64)
    one = _CHAT_HEAD + body + mark_ns.tobytes() + mark_end.tobytes()
    n = 300
    sizes = {"head_len": len(_CHAT_HEAD), "body_len": len(body), "n_marks": len(mark_ns)}
    matrix, blob = _rows(n, status=0, done_ns=2000, **sizes), one * n
    recorder = _recorder(client.settle)
    begun = time.process_time()
    for exchange in run._exchanges(matrix, blob):
        recorder.keep(exchange)
    spent = time.process_time() - begun
    run.close()
    if recorder.failed or exchange.n_out != TOKENS:
        raise RuntimeError(str(exchange.error))
    return spent / n * 1e6


async def _drive(protocol: str, path: str, requests: int, slots: int) -> float:
    with served() as (url, _):
        clock = LoopClock(asyncio.get_running_loop())
        client: Any = protocols()[protocol].build(Target(url, protocol, "m", options={"path": path}), clock)
        assert isinstance(client, HttpClient)
        plan = with_flags(None, protocol="null", kind="concurrency", concurrency=slots, queries=requests, duration="0s")
        load = Load(plan.blocks(16), None, [client.encode(Payload(prompt="hello"))] * 16, "bench")
        run = await native.attach(client, load, "native")
        assert run is not None
        rows: list[int] = []
        recorder = Recorder(clock, client.settle, lambda: 1 << 62, lambda r: rows.append(int(r.ok.sum())), 0)
        await run.open(slots)
        begun = time.process_time()
        run.start(time.monotonic_ns())
        while not (run.issued_all and not run.in_flight):
            run.work(recorder)
            await asyncio.sleep(0.01)
        run.finish(recorder)
        recorder.flush()
        spent = time.process_time() - begun
        run.close()
        await client.close()
        clock.close()
    if sum(rows) < requests:
        raise RuntimeError(f"{sum(rows)} good rows of {requests}")
    return spent / sum(rows) * 1e6


def native_small_request() -> float:
    """As ``small_request``, by the compiled engine, recorded as well."""
    return uvloop.run(_drive("http", "/plain", 20_000, 64))


def native_sse_token_event() -> float:
    """As ``sse_token_event``, by the compiled engine, recorded as well."""
    return uvloop.run(_drive("openai-chat", "/stream", 600, 16)) / TOKENS


NATIVE_CASES: Mapping[str, Callable[[], float]] = MappingProxyType(
    {
        "fold_token_event": fold_token_event,
        "native_plain_row": native_plain_row,
        "native_stream_row": native_stream_row,
        "native_small_request": native_small_request,
        "native_sse_token_event": native_sse_token_event,
    }
    if native.available()
    else {}
)
