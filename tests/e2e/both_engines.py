"""Drive one load by the Python engine or by the compiled one, in this process, as a worker would: for tests that hold
the two against each other. The server is a script of ``tests/raw_server.py`` on the same loop.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.generator.issuer import Issuer, Load, never
from plimsoll.harness.generator.native import NativeRun, attach
from plimsoll.harness.generator.recorder import Recorder
from plimsoll.harness.generator.supply import portions
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import Endpoint
from plimsoll.harness.transport.http.http_pool import HttpClient
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.blocks import cut as pieces
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Phase, Records, Status, concat
from plimsoll.slo.records.trace_ids import TraceIds
from tests.raw_server import Script, raw_server

ENGINES = ("python", "native")
MS = 1_000_000
#: Columns in which the engines agree value for value; of the times only the sign and the order.
EXACT = (
    "status",
    "code",
    "bytes_in",
    "bytes_out",
    "n_chunks",
    "n_in",
    "n_in_from",
    "n_out",
    "payload_ix",
    "phase",
    "tokens_from",
    "stamp",
    "attempts",
)
TIMES = (
    "ready_ns",
    "sent_ns",
    "headers_ns",
    "first_byte_ns",
    "first_token_ns",
    "last_token_ns",
    "done_ns",
    "connect_ns",
)


@dataclass
class Ran:
    """What one engine made of a load: rows by phase, query and sample, and what the server saw of it."""

    rows: list[dict[str, Any]]
    records: Records
    stats: dict[str, Any]
    aborted: str | None
    max_duration_hit: bool
    ids: list[str] = field(default_factory=list)
    peak: int = 0


def closed(
    queries: int,
    slots: int = 1,
    samples: int = 1,
    payloads: int = 1,
    min_duration_ns: int = 0,
    max_duration_ns: int | None = None,
) -> Plan:
    """A closed loop of so many queries; with a minimum of time instead if ``min_duration_ns`` is given."""
    rows = 3
    most = None if min_duration_ns else queries
    return Plan(
        due_ns=np.zeros(rows, np.int64),
        query_id=np.arange(rows),
        offsets=np.arange(rows + 1) * samples,
        sample_ix=np.tile(np.arange(samples), rows),
        payload_ix=np.arange(rows * samples) % payloads,
        after=np.full(rows, -1),
        stop=Stop(
            min_queries=queries, min_duration_ns=min_duration_ns, max_duration_ns=max_duration_ns, max_queries=most
        ),
        seed=1,
        open_loop=False,
        cyclic=True,
        max_in_flight=slots,
    )


def opened(
    due_ms: Sequence[float],
    samples: int = 1,
    limit: int | None = None,
    payloads: int = 1,
    max_duration_ns: int | None = None,
) -> Plan:
    """An open loop with these due times, each query of so many samples."""
    n = len(due_ms)
    return Plan(
        due_ns=np.array([int(at * MS) for at in due_ms], np.int64),
        query_id=np.arange(n),
        offsets=np.arange(n + 1) * samples,
        sample_ix=np.tile(np.arange(samples), n),
        payload_ix=np.arange(n * samples) % payloads,
        after=np.full(n, -1),
        stop=Stop(min_queries=0, min_duration_ns=0, max_duration_ns=max_duration_ns),
        seed=1,
        open_loop=True,
        max_in_flight=limit,
    )


#: So many samples a portion has where requests come with their rows; None: they are shared.
PORTION: int | None = None


class Stock:
    """A supply whose portions are all there."""

    def __init__(self, lane: Blocks, make: Callable[[], Any]) -> None:
        self._portions, self._make = portions(lane, PORTION or 1), make
        self.next = next(self._portions, None)
        self.late_ns: list[int] = []

    def take(self) -> tuple[Plan, list[Any]] | None:
        piece, self.next = self.next, next(self._portions, None)
        return piece and (piece, [self._make() for _ in range(piece.n_samples)])

    def unready(self, late_ns: int, came: bool) -> None:
        self.late_ns.append(late_ns)


def stocks(plan: Plan, warmup: Plan | None, make: Callable[[], Any]) -> dict[int, Stock]:
    """Of each phase, where there are portions."""
    of = {Phase.MEASURE: plan, Phase.WARMUP: warmup}
    return {int(at): Stock(pieces(lane), make) for at, lane in of.items() if lane is not None and PORTION}


@dataclass
class Way:
    """How to drive: ``protocol`` with its ``options``, fields of ``Target``, and what a worker's spec says besides."""

    plan: Plan
    warmup: Plan | None = None
    protocol: str = "http"
    options: dict[str, Any] = field(default_factory=lambda: {"body_text": "hello"})
    target: dict[str, Any] = field(default_factory=dict)
    connections: int = 0
    lead_ms: int = 30
    outstanding: int = 100_000
    addresses: Callable[[Endpoint], tuple[Any, ...]] | None = None
    stop_after_ms: float = 0.0
    give_up_after_ms: float = 0.0
    cancel_ns: Sequence[int] | None = None
    traces: TraceIds | None = None


async def drive(engine: str, url: str, way: Way) -> Ran:
    """The life of a worker from open to hand-over. Bounded at 20 s."""
    clock = LoopClock(asyncio.get_running_loop())
    client = protocols()[way.protocol].build(Target(url, way.protocol, "m", options=way.options, **way.target), clock)
    assert isinstance(client, HttpClient)
    if way.addresses is not None:
        found = await client.find()
        client._found = client.endpoint = Endpoint(found.host, found.port, way.addresses(found))
    n = 1 + max(int(plan.payload_ix.max(initial=0)) for plan in (way.plan, way.warmup) if plan is not None)
    requests = [client.encode(Payload(prompt="hi", n_in=7)) for _ in range(n)]
    delays = way.cancel_ns
    cancel = never if delays is None else lambda piece: np.array(delays)[piece.query_id]
    fed = stocks(way.plan, way.warmup, lambda: client.encode(Payload(prompt="hi", n_in=7)))
    before = None if way.warmup is None else pieces(way.warmup)
    load = Load(
        pieces(way.plan), before, [] if fed else requests, "run", way.outstanding, cancel, fed, traces=way.traces
    )
    native = await attach(client, load, engine)
    await (native or client).open(way.connections)
    cut: list[Records] = []
    issuers: list[Issuer] = []
    recorder = Recorder(clock, client.settle, lambda: issuers[0].next_due_ns(), cut.append, 0)
    issuers.append(Issuer(load, client, clock, recorder.finished))
    issuer: Issuer | NativeRun = native or issuers[0]
    recorder.t0_ns = time.monotonic_ns() + way.lead_ms * MS
    issuer.start(recorder.t0_ns)
    peak = await _until_over(issuer, recorder, way)
    if native is not None:
        native.finish(recorder)
    recorder.flush()
    assert recorder.faults == []
    stats = dict((native or client).stats())
    ran = Ran([], concat(cut), stats, issuer.aborted, issuer.max_duration_hit, peak=peak)
    if native is not None:
        native.close()
    await client.close()
    clock.close()
    ran.rows = rows_of(ran.records)
    return ran


async def _until_over(issuer: Issuer | NativeRun, recorder: Recorder, way: Way) -> int:
    begun = time.monotonic_ns()
    peak = 0
    stopped = False
    while True:
        after = (time.monotonic_ns() - begun) / MS
        assert after < 20_000, "the load does not end"
        if way.stop_after_ms and not stopped and after > way.stop_after_ms:
            stopped = True
            issuer.stop()
        if way.give_up_after_ms and after > way.give_up_after_ms:
            issuer.give_up(Status.UNFINISHED, "interrupted by the user")
            return peak
        in_flight = issuer.in_flight
        peak = max(peak, in_flight)
        if issuer.issued_all and not in_flight:
            return peak
        issuer.feed()
        if isinstance(issuer, NativeRun):
            issuer.work(recorder)
        await asyncio.sleep(0.002)


def rows_of(records: Records) -> list[dict[str, Any]]:
    """One dict a row, in order of phase, query and sample; times as they are."""
    order = np.lexsort((records["sample_ix"], records["query_id"], records["phase"]))
    names = ("query_id", "sample_ix", "due_ns", *EXACT, *TIMES)
    rows = []
    for at in order.tolist():
        row = {name: int(records[name][at]) for name in names}
        error = int(records["error"][at])
        row["error"] = records.errors[error] if error >= 0 else None
        rows.append(row)
    return rows


def against(engine: str, script: Callable[[], Script], way: Way, **server: Any) -> Ran:
    """Drive a fresh server by one engine; the request ids are those that the server read, in its order."""

    async def main() -> Ran:
        ids: list[str] = []
        play = script()

        async def noting(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            head = request.split(b"\r\n\r\n", 1)[0]
            ids.extend(line[14:].decode() for line in head.split(b"\r\n") if line.startswith(b"x-request-id: "))
            await play(request, reader, writer, number)

        async with raw_server(noting, **server) as url:
            ran = await drive(engine, url, way)
        ran.ids = ids
        return ran

    return uvloop.run(main())


def alike(python: Ran, native: Ran, but: Sequence[str] = ()) -> None:
    """Both engines made the same of it, except in the columns ``but`` (which the test explains)."""
    assert len(python.rows) == len(native.rows)
    exact = [name for name in ("query_id", "sample_ix", "error", *EXACT) if name not in but]
    times = [name for name in TIMES if name not in but]
    for one, other in zip(python.rows, native.rows, strict=True):
        assert [one[name] for name in exact] == [other[name] for name in exact], (one, other)
        assert [one[name] != -1 for name in times] == [other[name] != -1 for name in times], (one, other)
    for ran in (python, native):
        for row in ran.rows:
            if row["phase"] == 0:
                in_order(row)


def in_order(row: dict[str, Any]) -> None:
    """What happened of due, ready, sent, first byte, headers, tokens and done happened in this order."""
    names = ("due_ns", "ready_ns", "sent_ns", "first_byte_ns", "headers_ns", "done_ns")
    seen = [row[name] for name in names if row[name] != -1]
    assert seen == sorted(seen), row
    assert row["first_token_ns"] <= row["last_token_ns"] <= row["done_ns"], row


def saying(*pieces: bytes | float, close: bool = False, reset: bool = False) -> Callable[[], Script]:
    """A script that writes bytes and waits for seconds, then closes or resets or leaves the connection open."""

    async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                writer.write(piece)
                await writer.drain()
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(1, 13, linger)
            await asyncio.sleep(0.01)  # what was written is read first
        if close or reset:
            writer.close()

    return lambda: script


def both(script: Callable[[], Script], way: Way, but: tuple[str, ...] = (), **server: Any) -> tuple[Ran, Ran]:
    """The same load by both engines, compared."""
    python, native = (against(engine, script, way, **server) for engine in ENGINES)
    assert (python.stats["engine"], native.stats["engine"]) == ENGINES
    alike(python, native, but)
    assert sorted(python.ids) == sorted(native.ids)
    for ran in (python, native):
        assert len(ran.ids) <= sum(row["attempts"] for row in ran.rows), (
            "the server read a request that is on no record"
        )
    assert python.stats["retried_on_stale_connection"] == native.stats["retried_on_stale_connection"]
    return python, native
