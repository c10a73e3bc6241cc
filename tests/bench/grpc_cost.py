"""``python -m tests.bench.grpc_cost``: what a gRPC call and a streamed message cost the client, and what its stamps are
worth.

Four clients in one run, interleaved, the client on one core and the server on another: grpcio (``grpc.aio``), the
``h2`` library on our stream, and our own HTTP/2, on one shared connection and with a connection for each call. CPU is
that of the whole client process (grpcio has threads), settling included. Each message carries the instant of its write,
so the error of an arrival needs no log: recorded minus written.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import GrpcRequest
from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient
from plimsoll.scenarios.samples.payload import Payload
from tests.bench.grpc_h2 import H2Client
from tests.bench.grpc_origin import REQUEST, RESPONSE
from tests.bench.pinned import two_cores
from tests.grpcio_client import OfficialClient

CLIENTS = ("grpcio", "h2", "ours", "ours, own connections")
ROUNDS = 5
FRAME_NS = 20_000_000


class Ask:
    """Asks for so many messages, the first so late, so far apart; with ``frames``, as a live call that sends 20 ms
    frames.
    """

    def __init__(self, count: int, first_ns: int, gap_ns: int, frames: int = 0) -> None:
        asked = REQUEST.pack(count, first_ns + (frames + 5) * FRAME_NS, gap_ns)
        if not frames:
            self._request = GrpcRequest("/bench.Svc/Ask", (asked,), server_streaming=count > 1)
            return
        due = (0, *(FRAME_NS * (i + 1) for i in range(frames)))
        audio = (bytes(640),) * frames  # 16 kHz, 16 bits
        self._request = GrpcRequest("/bench.Svc/Ask", (asked, *audio), due, -1, 1, None, True, True, frame_ns=FRAME_NS)

    def encode(self, payload: Payload) -> GrpcRequest:
        return self._request

    def settle(self, exchange: Exchange) -> None:
        """Nothing to settle."""


def client_of(name: str, target: Target, clock: LoopClock, ask: Ask) -> Any:
    if name == "grpcio":
        return OfficialClient(target, clock, ask)
    if name == "h2":
        return H2Client(target, clock, ask)
    return GrpcClient(replace(target, options={"own_connection": "own" in name}), clock, ask)


class Load:
    """``in_flight`` calls at once (``rate`` 0), or calls at a rate, until ``total`` are done.

    Exchanges are settled as they end.
    """

    def __init__(self, client: Any, clock: LoopClock, total: int, in_flight: int, rate: float) -> None:
        self._client, self._clock = client, clock
        self._total, self._in_flight, self._rate = total, in_flight, rate
        self._sent = 0
        self._done = asyncio.get_running_loop().create_future()
        self._request = client.encode(Payload())
        self.finished: list[Exchange] = []

    async def run(self) -> None:
        if self._rate:
            self._start_ns = self._clock.now_ns() + 1_000_000
            self._tick()
        else:
            for _ in range(self._in_flight):
                self._send()
        await self._done

    def _tick(self) -> None:
        while self._sent < self._total:
            due = self._start_ns + int(self._sent * 1e9 / self._rate)
            if due > self._clock.now_ns():
                self._clock.wake_at(due, self._tick)
                return
            self._send()

    def _send(self) -> None:
        exchange = Exchange(self._sent, 0, 0, 0, self._request)
        self._sent += 1
        exchange.on_done = self._over
        exchange.ready_ns = self._clock.now_ns()
        self._client.send(exchange, b"bench-%d-0" % exchange.query_id)

    def _over(self, exchange: Exchange) -> None:
        self._client.settle(exchange)
        self.finished.append(exchange)
        if len(self.finished) == self._total:
            self._done.set_result(None)
        elif not self._rate and self._sent < self._total:
            self._send()


def errors_us(exchanges: list[Exchange]) -> dict[str, float]:
    """Recorded minus written, in us: of first messages and of all."""
    firsts, each = [], []
    for exchange in exchanges:
        begin = 0
        for i, (t_ns, end) in enumerate(zip(exchange.mark_ns, exchange.mark_end, strict=True)):
            written, _ = RESPONSE.unpack_from(exchange.body, begin)
            begin = end
            each.append(t_ns - written)
            if i == 0:
                firsts.append(t_ns - written)
    found = {}
    for name, values in (("first", firsts), ("all", each)):
        for q in (50, 99):
            found[f"{name}_p{q}"] = float(np.percentile(values, q)) / 1000
    return found


def lag_us(exchanges: list[Exchange]) -> float:
    """p99 of how late frames were written; 0 without any."""
    lags = [lag for exchange in exchanges if exchange.session is not None for lag in exchange.session.frame_lag_ns]
    return float(np.percentile(lags, 99)) / 1000 if lags else 0.0


async def one(
    name: str, port: int, count: int, gap_ns: int, total: int, in_flight: int, rate: float, frames: int = 0
) -> dict[str, Any]:
    """One run of one client."""
    clock = LoopClock(asyncio.get_running_loop())
    ask = Ask(count, gap_ns and 5_000_000, gap_ns, frames)
    client = client_of(name, Target(f"127.0.0.1:{port}", "bench"), clock, ask)
    await client.open(in_flight or 16)
    if not frames:
        await Load(client, clock, min(total, 500), in_flight or 16, rate).run()
    gc.collect()
    gc.freeze()
    gc.disable()
    load = Load(client, clock, total, in_flight, rate)
    cpu, began = time.process_time_ns(), time.monotonic_ns()
    await load.run()
    cpu, took = time.process_time_ns() - cpu, time.monotonic_ns() - began
    bad = [exchange for exchange in load.finished if exchange.status or len(exchange.mark_ns) != count]
    assert not bad, (bad[0].status, bad[0].error, len(bad[0].mark_ns))
    await client.close()
    clock.close()
    return {
        "cpu_us_per_call": cpu / 1000 / total,
        "cpu_us_per_message": cpu / 1000 / total / count,
        "per_s": total * count * 1e9 / took,
        "cpu": cpu / took,
        "cpu_us_per_frame": cpu / 1000 / total / frames if frames else 0.0,
        "frame_lag_p99": lag_us(load.finished),
        **errors_us(load.finished),
    }


@contextmanager
def origin(core: int) -> Iterator[int]:
    """The server, pinned."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.grpc_origin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(process.pid, {core})
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


#: name, messages a call, ns between them, calls, in flight (closed loop), rate (open loop), frames of 20 ms sent by
#: each.
CASES = (
    ("unary, 32 in flight", 1, 0, 3_000, 32, 0.0),
    ("unary, 500/s", 1, 0, 1_000, 0, 500.0),
    ("streams of 1,000 at once, 4 in flight", 1_000, 0, 100, 4, 0.0),
    ("streams of 20 every 10 ms, 50/s", 20, 10_000_000, 150, 0, 50.0),
    ("200 live calls of 150 frames, one begun every 5 ms", 1, 0, 200, 0, 200.0, 150),
)


def measure(name: str, case: tuple[Any, ...], core: int, port: int) -> dict[str, Any]:
    """One run in a process of its own, pinned."""
    arguments = [sys.executable, "-m", "tests.bench.grpc_cost", "--one", name, str(port), *map(str, case[1:])]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {core})
    try:
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return dict(json.loads(said))


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        port, count, gap_ns, total, in_flight = (int(text) for text in sys.argv[3:8])
        frames = int(sys.argv[9]) if len(sys.argv) > 9 else 0
        figures = uvloop.run(one(sys.argv[2], port, count, gap_ns, total, in_flight, float(sys.argv[8]), frames))
        print(json.dumps(figures))
        return 0
    cores = two_cores()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    columns = (
        "cpu_us_per_call", "cpu_us_per_message", "cpu_us_per_frame", "per_s", "cpu", "first_p50", "first_p99",
        "all_p50",
        "all_p99", "frame_lag_p99",
    )  # fmt: skip
    print("| case | client | " + " | ".join(columns) + " |\n|---|---|" + "---|" * len(columns))
    for case in (case for case in CASES if only in case[0]):
        live = len(case) > 6  # the h2 client has no schedule
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CLIENTS if not live or name != "h2"}
        for _ in range(rounds):
            for name, runs in found.items():
                with origin(cores.server) as port:
                    runs.append(measure(name, case, cores.client, port))
        for name, runs in found.items():
            cells = [f"{statistics.median(run[column] for run in runs):,.1f}" for column in columns]
            print(f"| {case[0]} | {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
