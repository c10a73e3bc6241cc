"""Faults of the server's own machinery: settings that change for as long as they act, steps that take longer or fail.

Each lever remembers how its model was set and goes back to that. Extra time of a step is slept, not burnt, so that it
costs what the fault says on any machine and the load generator beside it keeps its cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.reference_server.engine.batcher import Batcher
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.misfortune.faults import UNBEGUN, Faults, Placed
from plimsoll.reference_server.seams.models import BatchModel, Chunk, Runner
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.timetable import DeadlineWheel, Entry, Fire

LEVER_FAULTS = frozenset({"slots", "queue_build_up", "batch_window", "prefill_stall", "kv_thrash"})


Lever = Callable[[int], None]
"""Sets one part of the server as the faults that act at an instant want it."""
_HOLDER = "misfortune"
"""The owner of the KV blocks that are taken away: no sequence, whose owners are numbers."""


class Levers:
    """All levers of one server, and the timers of its faults."""

    def __init__(self, wheel: DeadlineWheel, faults: Faults) -> None:
        self._wheel = wheel
        self._faults = faults
        self._levers: list[Lever] = []
        self._edge: Entry | None = None
        self._stalls: dict[str, Entry] = {}

    def attach(self, lever: Lever) -> None:
        """Take a lever into the row, and set it."""
        self._levers.append(lever)
        lever(time.monotonic_ns())

    def changed(self, now_ns: int) -> None:
        """The faults in force are others, or their times began: set everything anew."""
        self._stall(self._faults.present)
        self._pull(now_ns)

    def _pull(self, now_ns: int) -> None:
        for lever in self._levers:
            lever(now_ns)
        if self._edge is not None:
            self._edge.cancel()
        edges = [placed.next_edge_ns(now_ns) for placed in self._faults.present if placed.fault.name in LEVER_FAULTS]
        due_ns = min((edge for edge in edges if edge is not None), default=None)
        self._edge = None if due_ns is None else self._wheel.at(due_ns, self._at_edge)

    def _at_edge(self, due_ns: int) -> None:
        self._edge = None
        self._pull(max(due_ns, time.monotonic_ns()))

    def _stall(self, present: Sequence[Placed]) -> None:
        stalls = {placed.fault_id: placed for placed in present if placed.fault.name == "stall"}
        for fault_id in self._stalls.keys() - stalls.keys():
            self._stalls.pop(fault_id).cancel()
        for fault_id, placed in stalls.items():
            if fault_id not in self._stalls and placed.origin_ns != UNBEGUN:
                at_ns = placed.origin_ns + placed.fault.duration_ns("at")
                self._stalls[fault_id] = self._wheel.at(at_ns, _freezer(self._wheel, placed, at_ns))


def _freezer(wheel: DeadlineWheel, placed: Placed, at_ns: int) -> Fire:
    """Stop the whole event loop for a while: nothing is read, nothing written, and all timetables move on by it."""
    for_ns, every_ns = placed.fault.duration_ns("for"), placed.fault.duration_ns("every")

    def fire(due_ns: int) -> int | None:
        nonlocal at_ns
        placed.hit()
        while (left_ns := due_ns + for_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        wheel.postpone(for_ns)
        at_ns += every_ns
        return at_ns if every_ns > 0 else None

    return fire


class SchedulerLever:
    """The language model's scheduler: how many at a time, prompts whole or in pieces, how many blocks."""

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        """It is called by the scheduler from now on: there is a plan whenever there is something to do."""
        self._scheduler = scheduler
        self._faults = faults
        self._max_batch = scheduler.max_batch
        self._chunked_prefill = scheduler.chunked_prefill
        self._n_held = 0
        scheduler.before_plan = self.settle

    def settle(self, now_ns: int) -> None:
        """Set the scheduler as the faults want it; called just before each plan."""
        slots = self._faults.acting("queue_build_up", now_ns)
        whole = self._faults.acting("prefill_stall", now_ns)
        thrash = self._faults.acting("kv_thrash", now_ns)
        self._scheduler.max_batch = min([self._max_batch, *(placed.fault.whole("slots") for placed in slots)])
        self._scheduler.chunked_prefill = self._chunked_prefill and not whole
        # Alone a sequence has the whole cache again, so that the first in rank always finishes.
        keep = min((placed.fault.number("keep") for placed in thrash), default=1.0)
        self._hold(int((1.0 - keep) * self._scheduler.blocks.n_blocks) if self._scheduler.n_running > 1 else 0)
        for placed in (*slots, *whole, *thrash):
            placed.hit()

    def _hold(self, wanted: int) -> None:
        blocks = self._scheduler.blocks
        if wanted < self._n_held:
            blocks.close(_HOLDER)
            self._n_held = 0
        n_held = min(wanted, self._n_held + blocks.available)
        if n_held <= self._n_held:
            return
        if self._n_held > 0:
            blocks.grow(_HOLDER, n_held * blocks.block_size)
        else:
            blocks.open(_HOLDER, [-1] * (n_held * blocks.block_size))
        self._n_held = n_held


def slots_lever(model: ScriptedModel, faults: Faults) -> Lever:
    """The scripted model's slots: the fewest that any fault says."""

    def pull(now_ns: int) -> None:
        limits = [fault.whole("n") for fault in faults.named("slots")]
        for placed in faults.acting("queue_build_up", now_ns):
            limits.append(placed.fault.whole("slots"))
            placed.hit()
        model.limit(min(limits, default=None))

    return pull


def window_lever(batcher: Batcher, faults: Faults) -> Lever:
    """A batcher's longest wait: longer by the sum of what the faults say."""

    def pull(now_ns: int) -> None:
        acting = faults.acting("batch_window", now_ns)
        batcher.widen(sum(placed.fault.duration_ns("by") for placed in acting))
        for placed in acting:
            placed.hit()

    return pull


class OutOfMemory(RuntimeError):
    """The device has no room for a sequence of that length."""


class SlowedSteps:
    """How much longer a step takes than it took. Clock and sleep are given, so that it is tested in no time."""

    def __init__(
        self,
        faults: Faults,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.faults = faults
        self.clock = clock
        self._sleep = sleep

    def lengthen(self, begun_ns: int, members: Sequence[str]) -> None:
        """Sleep for what the faults add to a step that began then and had those members (sequences, samples)."""
        now_ns = self.clock()
        extra_ns = 0
        for placed in self.faults.acting("noisy_neighbour", now_ns):
            extra_ns += round((placed.fault.number("factor") - 1.0) * (now_ns - begun_ns))
            placed.hit()
        for placed in self.faults.acting("straggler", now_ns):
            if any(placed.marks(member) for member in members):
                extra_ns += placed.fault.duration_ns("by")
                placed.hit()
        if extra_ns > 0:
            self._sleep(extra_ns / 1e9)

    def jitter(self) -> None:
        """Sleep for what the faults add to one step's tokens."""
        for placed in self.faults.acting("jitter", self.clock()):
            placed.hit()
            self._sleep(placed.wait_ns() / 1e9)


class MisfortuneRunner:
    """A runner under the faults of its server. Its warm-up is the runner's: the cold start has its own fault."""

    def __init__(self, runner: Runner, slowed: SlowedSteps) -> None:
        self._runner = runner
        self._slowed = slowed
        self.warm_up = runner.warm_up

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """The runner's tokens, perhaps later. Raises OutOfMemory when a sequence is longer than ``long_oom`` allows."""
        begun_ns = self._slowed.clock()
        longest = max((chunk.start + len(chunk.tokens) for chunk in chunks), default=0)
        for placed in self._slowed.faults.acting("long_oom", begun_ns):
            if longest > placed.fault.whole("tokens"):
                placed.hit()
                raise OutOfMemory(f"out of memory at a sequence of {longest} tokens (scripted fault: long_oom)")
        tokens = self._runner.step(chunks)
        self._slowed.lengthen(begun_ns, [str(chunk.sequence_id) for chunk in chunks])
        self._slowed.jitter()
        return tokens

    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        begun_ns = self._slowed.clock()
        vectors = self._runner.embed(prompts)
        self._slowed.lengthen(begun_ns, ())
        return vectors


class MisfortuneModel:
    """A batch model under the faults of its server: only its batches are struck."""

    def __init__(self, model: BatchModel, slowed: SlowedSteps) -> None:
        self._model = model
        self._slowed = slowed
        self._n_samples = 0
        self.name, self.inputs, self.outputs = model.name, model.inputs, model.outputs
        self.warm_up, self.preprocess, self.postprocess = model.warm_up, model.preprocess, model.postprocess

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        """The model's results, perhaps later. Samples are numbered in the order in which they are computed."""
        begun_ns = self._slowed.clock()
        results = self._model.forward(samples, stages)
        members = [str(self._n_samples + i) for i in range(len(samples))]
        self._n_samples += len(samples)
        self._slowed.lengthen(begun_ns, members)
        return results
