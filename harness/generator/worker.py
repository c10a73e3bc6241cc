"""One worker process (``python -m plimsoll.harness.generator.worker``): a spec comes on stdin, segments go to disk,
status lines to stdout.

It recomputes the plan, takes its shard, encodes its payloads (very many of them are encoded beside it, ``supply.py``),
opens connections, freezes the garbage collector, says ``ready`` with the plan's fingerprint, waits for t0 and runs.
Secrets come over stdin only. When stdin closes, the coordinator is gone and the worker stops.

Messages in: ``spec`` (first line), ``go {t0_ns}``, ``stop``, ``drop {status, error}``. Messages out: ``ready``,
``fault``, ``status``, ``segment`` (only when no disk takes it), ``done``.
"""

from __future__ import annotations

import gc
import os

if __name__ == "__main__":
    gc.disable()  # ``Worker.run`` collects once and freezes what there is
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # to look for those of strangers takes 10 ms

import asyncio
import base64
import contextlib
import io
import json
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.habits import Habits
from plimsoll.harness.generator.issuer import Issuer, Load, Supply
from plimsoll.harness.generator.labels import Capture
from plimsoll.harness.generator.native import NativeRun, attach
from plimsoll.harness.generator.recorder import FRESH, TIMING_CHARS, Recorder, spread
from plimsoll.harness.generator.segments import SegmentWriter, dump_segment, hold, keep_done
from plimsoll.harness.generator.sessions import NO_HISTORY, Affinity, Manners, Turns, calls, reader, script
from plimsoll.harness.generator.supply import Fed, client_of, lanes, portion_of
from plimsoll.harness.host import limits
from plimsoll.harness.process import outlet
from plimsoll.harness.process.vitals import AHEAD_NS, Vitals
from plimsoll.harness.protocols._discovery import protocol
from plimsoll.harness.secrecy.redaction import Guarded, masked
from plimsoll.harness.transport.client import Client
from plimsoll.harness.transport.held import binary_cost, text_cost
from plimsoll.harness.transport.http.http_pool import Prepared
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Blocks, Measure
from plimsoll.scenarios.plan.plan import Fingerprint, Plan
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.spec import ScenarioError, parse
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.records.records import FloatArray, Phase, Records, Status
from plimsoll.slo.records.trace_ids import TraceIds

if TYPE_CHECKING:
    from plimsoll.harness.generator.outputs import OutputLog

STATUS_NS = 250_000_000


class Voice:
    """The way to the coordinator: the process's original stdout, which nobody else can print on."""

    def __init__(self) -> None:
        # Nobody may listen any more: what was measured is kept all the same.
        self._pipe = outlet.stream(os.dup(1), "utf-8")
        os.dup2(2, 1)  # a stray print, ours or a plug-in's, goes to the log and breaks no message

    def __call__(self, message: Mapping[str, Any]) -> None:
        if message["type"] in ("fault", "done"):  # the others hold no words of anybody's
            # Names of ours stay: rows are looked for there.
            kept = {"folders": message["folders"]} if "folders" in message else {}
            message = {**masked(message), **kept}
        self._pipe.write(json.dumps(message) + "\n")
        self._pipe.flush()


class Worker:
    """Everything one worker owns, from spec to done."""

    def __init__(self, spec: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]) -> None:
        self._spec = spec
        self._say = say
        self._index = int(spec["shard"])
        self._scenario = parse(spec["scenario"], spec["where"])
        self._protocol = protocol(str(spec["target"]["protocol"]))  # now, before connections take every descriptor
        self._faults: list[str] = []
        self._fed: dict[int, Fed] = {}
        self._notes_of_sessions: Callable[[], list[str]] = list
        self._t0 = asyncio.Event()
        self._t0_ns = 0
        self._drop: tuple[int, str] | None = None
        self._stopping = False
        self._orphaned = False
        hold(Path(spec["segments"]))  # to the end of this process, which may outlive its coordinator

    # -- set-up -------------------------------------------------------------------------------------------------

    def _load(self, client: Client, clock: LoopClock) -> tuple[Load, str]:
        scenario = self._scenario
        source = scenario.source_object()
        if lacking := self._protocol.lacking(source):
            raise HarnessFault(lacking)
        n = len(source)
        plan, before = lanes(self._spec, scenario, n)
        shards, dealing = int(self._spec["shards"]), self._spec["dealing"]
        needed = np.zeros(n, np.bool_)
        for piece in before or ():
            needed[piece.payload_ix] = True
        whole, part = Fingerprint(), Measure()

        def seen() -> Iterator[Plan]:
            for piece in plan:
                whole.add(piece)
                yield piece

        for piece in Blocks(seen).shard(self._index, shards, dealing):  # one pass for everything
            part.add(piece)
            needed[piece.payload_ix] = True
        fingerprint = whole.hex()
        mine = replace(plan.shard(self._index, shards, dealing), known=part.extent()).held()
        requests: list[Any] = []
        sessions = bool((mine.head.after >= 0).any())  # such a plan is one piece
        portion = None if sessions else portion_of(client, source, needed)
        if portion is None:
            requests = [client.encode(source.payload(ix)) if sent else None for ix, sent in enumerate(needed.tolist())]
        else:
            lanes_of = {Phase.MEASURE: mine} | ({} if before is None else {Phase.WARMUP: before})
            self._fed = {int(at): Fed(self._spec, lane, at == Phase.WARMUP, portion) for at, lane in lanes_of.items()}
            for fed in self._fed.values():
                fed.wait()
        cancel = partial(cancellation.rows, scenario.cancels, scenario.seed)
        run_id = str(self._spec["run_id"])
        feeds: dict[int, Supply] = {**self._fed}
        turns = None
        if sessions:
            manners = self._manners(client, source, requests, run_id)
            feeds[int(Phase.MEASURE)] = turns = Turns(mine.head, requests, manners, cancel(mine.head), clock)
            self._notes_of_sessions = manners.affinity.notes
        most, first = int(self._spec["max_outstanding"]), int(self._spec.get("first_query", 0))
        load = Load(mine, before, requests, run_id, most, cancel, feeds, turns, first, self._traces(run_id))
        return load, fingerprint

    def _traces(self, run_id: str) -> TraceIds | None:
        sampled = self._spec["target"].get("traceparent")
        return None if sampled is None else TraceIds.of(run_id, sampled)

    def _manners(self, client: Client, source: PayloadSource, requests: Sequence[Any], run_id: str) -> Manners:
        """How the sessions of this scenario behave. Raises HarnessFault."""
        kind = kinds()[self._scenario.kind]
        found = kind.settled(self._scenario.params, lambda: source)
        params = dict.fromkeys(type(found).model_fields) | found.model_dump()
        affinity = Affinity(params["affinity"], run_id, int(self._spec.get("first_query", 0)))
        if params["affinity"] is not None and not all(isinstance(one, Prepared) for one in requests if one is not None):
            raise HarnessFault("params.affinity: only requests over HTTP can carry it. Leave it out for this protocol")
        goes_on = params["on_failure"] == "continue"
        spec, options = self._protocol, self._scenario.target.options
        held = calls(client, requests, params, spec.name)
        if params["history"] != "live" or held is not None:
            return Manners(affinity, goes_on, calls=held)
        if not spec.history:
            raise HarnessFault(NO_HISTORY.format(name=spec.name, why=""))
        scripts = [
            one and script(client, source.payload(ix), spec.name, spec.history == "text")
            for ix, one in enumerate(requests)
        ]
        return Manners(affinity, goes_on, scripts, reader(options, spec.answers))

    def _outputs(self) -> OutputLog | None:
        """Where answers are kept, if they are."""
        if not self._scenario.keeps_answers:
            return None
        from plimsoll.harness.generator.outputs import OutputLog

        target = self._scenario.target
        log = OutputLog(Path(self._spec["segments"]), self._index, target.options, self._protocol.answers)
        log.share(int(self._spec["shards"]))
        return log

    def _cost(self, client: Client, outputs: OutputLog | None) -> Callable[[Exchange], int] | None:
        """How much memory taking an answer apart needs; None where most of them aren't."""
        if self._protocol.grpc:
            return binary_cost
        plain = getattr(client, "plain", None)
        return text_cost if outputs is not None or plain is None or plain() is None else None

    # -- the run ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Prepare, say ready, wait for t0, run, drain, hand everything over."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_fault)
        clock = LoopClock(loop)
        client = client_of(self._spec, clock, self._scenario)
        load, fingerprint = self._load(client, clock)
        outputs, framed = self._outputs(), str(self._spec["target"]["options"].get("framing", ""))
        response, degraded = getattr(client, "response", None), self._scenario.degraded
        capture = Capture(self._scenario.labels or {}, framed, response, degraded)
        looked_into = outputs is not None or bool(capture)
        native = await attach(client, load, str(self._spec["target"].get("engine", "auto")), looked_into)
        await (native or client).open(connections_ahead(load.plan))
        writer = SegmentWriter(Path(self._spec["segments"]), self._index, str(self._spec["run_id"]))
        issuers: list[Issuer] = []
        settle = client.settle if outputs is None else outputs.after(client.settle, getattr(client, "answer", None))
        settle = capture.after(settle)
        settle = client.after(settle, capture.after(client.settle)) if isinstance(client, Habits) else settle
        if load.turns is not None:
            settle = load.turns.settling(settle)
        recorder = Recorder(clock, settle, lambda: issuers[0].next_due_ns(), writer.put, self._index)
        recorder.timing_chars = TIMING_CHARS // int(self._spec["shards"])
        recorder.said.share(int(self._spec["shards"]))
        recorder.cost = self._cost(client, outputs)
        recorder.others = others_of(self._spec.get("live", ()))
        issuers.append(Issuer(load, client, clock, recorder.finished))
        if isinstance(client, Habits):
            client.on_attempt, client.excess = recorder.finished, issuers[0].abort
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._say({"type": "ready", "fingerprint": fingerprint, "pid": os.getpid()})
        await self._t0.wait()
        recorder.t0_ns = self._t0_ns
        vitals = Vitals(clock)
        clock.wake_at(self._t0_ns - AHEAD_NS, vitals.begin)
        issuer = native or issuers[0]
        if native is not None:
            clock.wake_at(self._t0_ns - AHEAD_NS, native.watch)
        issuer.start(self._t0_ns)
        await self._until_over(issuer, recorder, writer, clock)
        measured = vitals.end()
        if native is not None:
            measured |= native.vitals()
            native.finish(recorder)
        recorder.flush()
        recorder.notes += [f"worker {self._index}: {note}" for note in capture.notes()]
        writer.close()
        if outputs is not None:
            outputs.close()
            self._faults += outputs.faults
        self._faults += [f"worker {self._index}: {fault}" for fed in self._fed.values() for fault in fed.close()]
        self._status(issuer, recorder)
        self._hand_over(issuer, recorder, writer, {**measured, "client": (native or client).stats()})
        if native is not None:
            native.close()
        await client.close()
        clock.close()

    def _hand_over(
        self, issuer: Issuer | NativeRun, recorder: Recorder, writer: SegmentWriter, measured: Mapping[str, Any]
    ) -> None:
        for records in writer.unwritten:
            buffer = io.BytesIO()
            dump_segment(buffer, records)
            self._say({"type": "segment", "data": base64.b64encode(buffer.getvalue()).decode()})
        done = {
            "type": "done",
            "aborted": issuer.aborted,
            "max_duration_hit": issuer.max_duration_hit,
            "faults": self._faults + recorder.faults + writer.faults,
            "account": {
                "sent": issuer.sent + recorder.attempts,
                "rows": recorder.rows + recorder.attempts,
                **writer.account,
            },
            "disk_notes": writer.notes + recorder.notes + self._notes_of_sessions(),
            "folders": writer.folders,
            "max_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "orphaned": self._orphaned,
            **measured,
        }
        if not writer.unwritten:  # of a killed coordinator this file is what says that no row is missing
            with contextlib.suppress(OSError):
                keep_done(Path(self._spec["segments"]), self._index, {**masked(done), "folders": writer.folders})
        self._say(done)

    async def _until_over(
        self, issuer: Issuer | NativeRun, recorder: Recorder, writer: SegmentWriter, clock: LoopClock
    ) -> None:
        said_ns = 0
        drain_ns = int(self._spec["drain_ns"])
        drained_by = 0
        while True:
            now = clock.now_ns()
            if now - said_ns > STATUS_NS:
                said_ns = now
                self._status(issuer, recorder)
            if self._stopping or writer.full or any(fed.failed for fed in self._fed.values()):
                issuer.stop()
            if self._drop is not None:
                issuer.give_up(Status(self._drop[0]), self._drop[1])
            if issuer.issued_all:
                drained_by = drained_by or now + drain_ns
                if not issuer.in_flight:
                    return
                if now > drained_by:
                    issuer.give_up(
                        Status.UNFINISHED, f"still in flight {drain_ns / 1e9:g} s after the last query (drain)"
                    )
                    return
            issuer.feed()
            recorder.tick()
            if isinstance(issuer, NativeRun) and issuer.work(recorder):
                await asyncio.sleep(0)  # there is more: but messages first
                continue
            # Coarse on purpose: nothing that is timed waits here.
            await asyncio.sleep(0.005 if issuer.issued_all else 0.02)

    def _status(self, issuer: Issuer | NativeRun, recorder: Recorder) -> None:
        fresh = recorder.take_fresh()
        self._say(
            {
                "type": "status",
                "sent": issuer.sent,
                "done": recorder.rows,
                "failed": recorder.failed,
                "measured": recorder.measured,
                "bad": recorder.bad,
                "in_flight": issuer.in_flight,
                **{name: spread(getattr(fresh, name)) for name in FRESH},
                **({"others": {name: spread(values) for name, values in fresh.others.items()}} if fresh.others else {}),
            }
        )

    # -- control ------------------------------------------------------------------------------------------------

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._told, json.loads(line))
        loop.call_soon_threadsafe(self._told, {"type": "orphaned"})

    def _told(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "go":
            self._t0_ns = int(message["t0_ns"])
            self._t0.set()
        elif kind == "stop":
            self._stopping = True
        elif kind == "drop":
            self._stopping = True
            self._drop = (int(message["status"]), str(message["error"]))
        elif kind == "orphaned":
            if not self._t0.is_set():
                os._exit(1)
            self._stopping = self._orphaned = True
            self._drop = (int(Status.UNFINISHED), "the coordinator was gone")

    def _loop_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error else str(context.get("message"))
        if len(self._faults) < 5:
            self._faults.append(f"worker {self._index}: an error in the event loop: {text}")


def others_of(names: Sequence[str]) -> Callable[[Records], Mapping[str, FloatArray]] | None:
    """What these metrics of outside packages find in rows, for the live display; None for no metric.

    One that fails is left out: the report tells of it.
    """
    if not names:
        return None
    from plimsoll.slo.metrics.indicator import catalogue, lately

    left = {name: one for name, one in catalogue().items() if name in names}

    def found(records: Records) -> dict[str, FloatArray]:
        values: dict[str, FloatArray] = {}
        for name, one in [*left.items()]:
            try:
                values[name] = lately(one, records)
            except PluginError:
                del left[name]
        return values

    return found


def connections_ahead(plan: Blocks) -> int:
    """How many connections a worker opens before its first request: connecting is not the endpoint's latency.

    One for each request that a closed loop's slots send at once; a second's worth of an open loop's, at most 256, or up
    to 8 that ten seconds use: one that nobody used for long would block a process of a server that has one for each
    connection.
    """
    extent = plan.extent()
    if extent.cyclic:
        most = extent.stop.max_queries
        queries = extent.max_in_flight or 1
        return max(1, min(queries, queries if most is None else most) * extent.widest)
    slots = extent.max_in_flight
    if slots is None:
        span = max(1, extent.last_ns - extent.first_ns) if extent.n_queries > 1 else 1
        rate = extent.n_queries / (span / 1e9)
        slots = int(min(256, max(1, rate, min(8, 10 * rate))))
    return min(slots, max(1, extent.n_samples))


def main() -> int:
    """Entry point of ``python -m plimsoll.harness.generator.worker``."""
    import uvloop

    outlet.install()  # its log may be on a full disk
    limits.raise_file_limit()
    # The segment thread must not keep the interpreter lock from the sending loop for the default 5 ms.
    sys.setswitchinterval(0.0001)
    say = Voice()
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)
    spec = json.loads(sys.stdin.readline())
    try:
        worker = Worker(spec, say)
        uvloop.run(worker.run())
    except HarnessFault as fault:
        say({"type": "fault", "errors": fault.errors, "code": int(fault.code)})
        return int(fault.code)
    except (ScenarioError, PluginError) as error:
        say({"type": "fault", "errors": error.errors, "code": 2})
        return 2
    os._exit(0)  # the listener thread still waits on stdin


if __name__ == "__main__":
    sys.exit(main())
