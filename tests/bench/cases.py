"""What is measured: one function a case, each returns microseconds of this process's CPU per unit of work."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.harness.generator.recorder import Recorder
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols.null import NullClient
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.dialect import HttpRequest
from plimsoll.harness.transport.http.http_pool import HttpClient
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.statistics.distribution import encode, hdr_counts
from tests.bench.grpc_cases import GRPC_CASES
from tests.bench.live_cases import LIVE_CASES
from tests.bench.loopback import TOKENS, served, stream
from tests.bench.native_cases import NATIVE_CASES
from tests.virtual_time import VirtualClock


def calibration() -> float:
    """A fixed piece of pure Python: what makes figures of two machines comparable."""
    begun = time.process_time()
    total = 0
    for k in range(300_000):
        total += k & 7
    return (time.process_time() - begun) / 300_000 * 1e6


def issue_and_record() -> float:
    """Issuer, null client and recorder, per query: our own overhead with no network."""
    n = 20_000
    scenario = with_flags(None, protocol="null", kind="server", rate=1000.0, queries=n)
    plan: Plan = scenario.build(16)
    clock = VirtualClock()
    client = NullClient(clock)
    rows: list[int] = []
    issuer: Issuer
    recorder = Recorder(clock, client.settle, lambda: issuer.next_due_ns(), lambda r: rows.append(len(r)), 0)
    requests = [Payload(n_in=1)] * 16
    issuer = Issuer(Load(cut(plan), None, requests, "bench"), client, clock, recorder.finished)
    begun = time.process_time()
    issuer.start(clock.now_ns())
    clock.run()
    recorder.flush()
    spent = time.process_time() - begun
    if sum(rows) != n:
        raise RuntimeError(f"{sum(rows)} rows of {n}")
    return spent / n * 1e6


def settle_token_event() -> float:
    """Taking a finished chat stream apart, per token event."""
    client = protocols()["openai-chat"].build(Target("http://127.0.0.1:1", "openai-chat", "m"), None)
    body = stream().split(b"\r\n\r\n", 1)[1]
    plain = b"".join(part for part in body.split(b"\r\n") if part.startswith(b"data"))
    rounds = 60
    begun = time.process_time()
    for _ in range(rounds):
        exchange = Exchange(0, 0, 0, 0, HttpRequest(b"", b""))
        exchange.code, exchange.status, exchange.body = 200, 0, bytearray(plain)
        exchange.headers = [(b"content-type", b"text/event-stream")]
        step = len(plain) // 64
        exchange.mark_end = array("q", [*range(step, len(plain), step), len(plain)])
        exchange.mark_ns = array("q", range(len(exchange.mark_end)))
        client.settle(exchange)
    spent = time.process_time() - begun
    if exchange.n_out != TOKENS:
        raise RuntimeError(f"{exchange.n_out} tokens of {TOKENS}")
    return spent / rounds / TOKENS * 1e6


def _drive(path: str, requests: int, connections: int, settle: bool) -> float:
    with served() as (url, _):
        return uvloop.run(_closed_loop(url, path, requests, connections, settle))


async def _closed_loop(url: str, path: str, requests: int, connections: int, settle: bool) -> float:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    target = Target(url, "openai-chat", "m", options={"path": path})
    client: Any = protocols()["openai-chat"].build(target, clock)
    assert isinstance(client, HttpClient)
    request = client.encode(Payload(prompt="hello"))
    await client.open(connections)
    over = loop.create_future()
    state = [0, 0]

    def done(exchange: Exchange) -> None:
        state[1] += 1
        if settle:
            client.settle(exchange)
            if exchange.n_out != TOKENS:
                over.set_exception(RuntimeError(str(exchange.error)))
        if state[0] < requests:
            send()
        elif state[1] == requests:
            over.set_result(None)

    def send() -> None:
        exchange = Exchange(state[0], 0, 0, 0, request)
        state[0] += 1
        exchange.on_done = done
        exchange.ready_ns = clock.now_ns()
        client.send(exchange, b"bench-0-0")

    begun = time.process_time()
    for _ in range(connections):
        send()
    await asyncio.wait_for(over, 60)
    spent = time.process_time() - begun
    await client.close()
    clock.close()
    return spent / requests * 1e6


def small_request() -> float:
    """One small HTTP request and its answer over 64 kept-alive connections, stamped, not parsed."""
    return _drive("/plain", 20_000, 64, settle=False)


def sse_token_event() -> float:
    """One token event of a chat stream: received, stamped, parsed and counted."""
    return _drive("/stream", 300, 16, settle=True) / TOKENS


def encode_histogram() -> float:
    """An HdrHistogram of a million values, per value."""
    import numpy as np

    values = np.random.default_rng(1).lognormal(17, 1, 1_000_000).astype(np.int64)
    begun = time.process_time()
    encode(hdr_counts(values)[0])
    return (time.process_time() - begun) / len(values) * 1e6


CASES: Mapping[str, Callable[[], float]] = MappingProxyType(
    {
        "issue_and_record": issue_and_record,
        "settle_token_event": settle_token_event,
        "small_request": small_request,
        "sse_token_event": sse_token_event,
        "encode_histogram": encode_histogram,
        **NATIVE_CASES,
        **LIVE_CASES,
        **GRPC_CASES,
    }
)
