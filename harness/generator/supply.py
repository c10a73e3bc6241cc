"""Requests that are more than a worker should hold: a process of its own (``python -m
plimsoll.harness.generator.supply``) encodes them in the order of the lane that sends them, some portions ahead.

The loop that sends never encodes and never waits for a request. One that comes late is counted, and such a run is
INVALID. Both processes cut the same plan into the same portions, so that only requests go over the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from plimsoll.harness.clock import Clock, LoopClock
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.habits import Habits
from plimsoll.harness.generator.issuer import in_order
from plimsoll.harness.process import child
from plimsoll.harness.protocols._discovery import protocol
from plimsoll.harness.secrecy.redaction import Guarded
from plimsoll.harness.transport.client import Client, Target
from plimsoll.scenarios.plan.blocks import Blocks, cut
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import ScenarioError, parse

#: So many different requests are shared whatever they weigh, and any number of them that weighs no more than this; of a
#: source of more samples than ``LISTED`` none is: a table of all would be the larger part.
FEW, HELD, LISTED = 4096, 1 << 28, 1 << 21
#: A portion has about so many bytes, at most so many samples, and so many portions wait for the loop.
PORTION_BYTES, PORTION, AHEAD = 1 << 21, 4096, 32
#: So many requests come over the pipe at once: to unpack them the interpreter is held no longer than it takes for them.
_AT_ONCE = 64
_TRIED = 32

#: A lane whose requests are due waits so long for the first of them, and a start for a process that neither gives
#: any nor runs: thousands of times what a portion takes, and the run is INVALID anyway.
PATIENCE_NS = 10_000_000_000

_TOO_SLOW = (
    "payloads were not ready: {n} times requests were due and not encoded yet, up to {late:.3g} s late. Lower the rate "
    "or the concurrency, add workers, or use fewer different payloads (source.count)"
)
_STALLED = (
    "payloads were not ready: the process that encodes requests gave none for {s:g} s. Is it stopped, or waiting for "
    "a disk? See that it can run, or use fewer different payloads (source.count)"
)
_LOST = (
    "the process that encodes requests {death} before it had encoded all. Who did not end it finds the cause in the "
    "worker's log, or (SIGKILL) in this host's memory: free some, or use fewer different payloads (source.count)"
)


def client_of(spec: Mapping[str, Any], clock: Clock, scenario: Scenario) -> Client:
    """The client that a worker's spec asks for, with its habits."""
    given, section = spec["target"], scenario.client
    pairs = {"headers": tuple(map(tuple, given["headers"])), "secrets": tuple(given["secrets"])}
    impair = given.get("impair") and {**given["impair"], "shard": spec["shard"]}
    target, build = Target(**{**given, **pairs, "impair": impair}), protocol(str(given["protocol"])).build
    client = build(target, clock)
    if section is None or not section.habitual:
        return client
    to = section.hedge and section.hedge.to
    other = build(replace(target, url=to), clock) if to else None
    return Habits(client, section, clock, scenario.seed, int(spec["shards"]), other)


def lanes(spec: Mapping[str, Any], scenario: Scenario, n_samples: int) -> tuple[Blocks, Blocks | None]:
    """The whole plan, and this worker's part of the warm-up."""
    plan, before = scenario.blocks(n_samples).held(), scenario.build_warmup(n_samples)
    index, shards = int(spec["shard"]), int(spec["shards"])
    warmup = cut(before) if isinstance(before, Plan) else before
    # A closed warm-up with fewer slots than workers is left to the first ones.
    if warmup is None or (warmup.head.cyclic and (warmup.head.max_in_flight or 1) < shards and index):
        return plan, None
    return plan, warmup.shard(index, shards, spec["dealing"])


def portion_of(client: Client, source: PayloadSource, needed: npt.NDArray[np.bool_]) -> int | None:
    """How many samples a portion has; None: these requests are shared, made before the run. Raises HarnessFault."""
    which, listed = np.flatnonzero(needed), len(needed) <= LISTED
    if not len(which) or (listed and len(which) <= FEW):
        return None
    tried = [client.encode(source.payload(int(ix))) for ix in which[:: max(1, len(which) // _TRIED)]]
    try:
        mean = sum(len(pickle.dumps(request)) for request in tried) / len(tried)
    except (pickle.PicklingError, TypeError, AttributeError):  # of an outside package: they can't leave this process
        return None
    return None if listed and mean * len(which) <= HELD else int(min(max(PORTION_BYTES // mean, 1), PORTION))


def portions(lane: Blocks, most: int) -> Iterator[Plan]:
    """Rows of at most so many samples; a query of more of them in an open loop becomes several rows."""
    for piece in in_order(lane) if lane.head.cyclic else lane:
        if not piece.cyclic and piece.n_queries and int(np.diff(piece.offsets).max()) > most:
            piece = _split(piece, most)
        if not piece.n_queries:
            yield piece
        row = 0
        while row < piece.n_queries:
            end = int(np.searchsorted(piece.offsets, piece.offsets[row] + most, side="right")) - 1
            end = max(row + 1, end)
            yield piece.select(np.arange(row, end), piece.max_in_flight)
            row = end


def _split(piece: Plan, most: int) -> Plan:
    sizes = np.diff(piece.offsets)
    parts = -(-sizes // most)
    row = np.repeat(np.arange(piece.n_queries), parts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    offsets = np.append(piece.offsets[row] + place * most, piece.n_samples)
    queries = {name: getattr(piece, name)[row] for name in ("due_ns", "query_id", "after")}
    return replace(piece, **queries, offsets=offsets, check=False)


class Fed:
    """A lane's supply (``plimsoll.harness.generator.issuer.Supply``) from such a process."""

    def __init__(self, spec: Mapping[str, Any], lane: Blocks, warmup: bool, portion: int) -> None:
        self._portions = portions(lane, portion)
        self.next: Plan | None = next(self._portions, None)
        self.faults: list[str] = []
        self._lost: list[str] = []
        self._late, self._worst_ns, self._waits_ns = 0, 0, 0
        self._ready: queue.Queue[list[Any] | None] = queue.Queue(AHEAD)
        self._ended = False
        self._process = child.piped(child.command("plimsoll.harness.generator.supply"))
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: reading says so
            self._process.stdin.write(json.dumps({**spec, "warmup": warmup, "portion": portion}).encode() + b"\n")
            self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        requests: list[Any] = []
        try:
            with pipe:
                while isinstance(part := pickle.load(pipe), tuple):
                    last, some = part
                    requests += some
                    if last:
                        self._ready.put(requests)
                        requests = []
            self.faults += part or []
        except Exception as error:  # noqa: BLE001 - whatever damage does to a pickle
            try:
                how = child.death(self._process.wait(timeout=1))
            except subprocess.TimeoutExpired:
                how = f"gave what is no request ({error!r:.200})"
            self._lost.append(_LOST.format(death=how))
        self._ready.put(None)

    def wait(self) -> None:
        """Until what is sent first is ready. Raises HarnessFault where it can't be."""
        seen, since_ns = self._progress(), time.monotonic_ns()
        while self.next is not None and self._reader.is_alive() and not self._ready.full() and not self._lost:
            time.sleep(0.002)
            if (now := self._progress()) != seen:
                seen, since_ns = now, time.monotonic_ns()
            elif time.monotonic_ns() - since_ns > PATIENCE_NS:
                self._lost.append(_STALLED.format(s=PATIENCE_NS / 1e9))
        if self.faults or self._lost:
            self._process.kill()  # one that is stopped would stay
            raise HarnessFault([*self.faults, *(f"nothing was sent: {one}" for one in self._lost)])

    def _progress(self) -> tuple[int, object]:
        """What changes while the process works: to build a large source takes long, and it gives nothing meanwhile."""
        try:
            ran: object = Path(f"/proc/{self._process.pid}/schedstat").read_bytes()
        except OSError:
            ran = time.monotonic_ns()  # this kernel doesn't say
        return self._ready.qsize(), ran

    def take(self) -> tuple[Plan, list[Any]] | None:
        """The next portion, if it is ready."""
        piece = self.next
        if piece is None or self._ended:
            return None
        try:
            requests = self._ready.get_nowait()
        except queue.Empty:
            return None
        if requests is None:
            self._ended = True
            return None
        self.next, self._waits_ns = next(self._portions, None), 0
        return piece, requests

    @property
    def failed(self) -> bool:
        """No more will come, though more is planned."""
        return self._ended and self.next is not None

    def unready(self, late_ns: int, came: bool) -> None:
        """As ``Supply`` says. After ``PATIENCE_NS`` no more is waited for."""
        self._late, self._worst_ns = self._late + came, max(self._worst_ns, late_ns)
        self._waits_ns = 0 if came else late_ns
        if self._waits_ns > PATIENCE_NS and not self._ended:
            self._ended = True
            self._lost.append(_STALLED.format(s=PATIENCE_NS / 1e9))

    def close(self) -> list[str]:
        """End it. What went wrong, in words."""
        faults = [*self.faults, *self._lost] if self.failed else []
        n = self._late + (self._waits_ns > 0)
        self._process.kill()
        self._process.wait()
        while self._reader.is_alive():
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.01)
        return [_TOO_SLOW.format(n=n, late=self._worst_ns / 1e9)] * (n > 0) + faults


def _encoded(spec: Mapping[str, Any], scenario: Scenario, client: Client, say: Callable[[Any], None]) -> None:
    source = scenario.source_object()
    plan, before = lanes(spec, scenario, len(source))
    lane = before if spec["warmup"] else plan.shard(int(spec["shard"]), int(spec["shards"]), spec["dealing"])
    assert lane is not None
    for piece in portions(lane, int(spec["portion"])):
        wanted = piece.payload_ix.tolist()
        for at in range(0, max(1, len(wanted)), _AT_ONCE):
            some = [client.encode(source.payload(ix)) for ix in wanted[at : at + _AT_ONCE]]
            say((at + _AT_ONCE >= len(wanted), some))
    say(None)


async def _run(spec: Mapping[str, Any], say: Callable[[Any], None]) -> None:
    try:
        scenario = parse(spec["scenario"], spec["where"])
        _encoded(spec, scenario, client_of(spec, LoopClock(asyncio.get_running_loop()), scenario), say)
    except (HarnessFault, ScenarioError) as fault:
        say(fault.errors)


def _say(pipe: BinaryIO, what: Any) -> None:
    pickle.dump(what, pipe, protocol=5)
    if not isinstance(what, tuple) or what[0]:
        pipe.flush()


def main() -> int:
    """Entry point of ``python -m plimsoll.harness.generator.supply``."""
    gc.disable()  # requests make no circles
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # whoever sends wakes first
    pipe = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)  # a stray print goes to the log
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)
    with contextlib.suppress(BrokenPipeError):  # the worker needs no more
        asyncio.run(_run(json.loads(sys.stdin.readline()), lambda what: _say(pipe, what)))
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
