"""The levers of each model: what ``queue_build_up``, ``slots``, ``prefill_stall``, ``kv_thrash`` and ``batch_window`` set.

Each remembers how its model was set and goes back to that; none starts or ends a request itself.
"""

from __future__ import annotations

from typing import Protocol

from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.misfortune.faults import Faults

_HOLDER = "misfortune"
"""The owner of the KV blocks that are taken away: no sequence, whose owners are numbers."""


class Slotted(Protocol):
    """A model that works on so many requests at a time."""

    def limit(self, n_slots: int | None) -> None:
        """From now on so many; None: no limit."""


class Windowed(Protocol):
    """A batcher whose batches wait to fill."""

    def widen(self, by_ns: int) -> None:
        """From now on so much longer than it was set to."""


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


class SlotsLever:
    """The scripted model's slots."""

    def __init__(self, model: Slotted, faults: Faults) -> None:
        self._model = model
        self._faults = faults

    def pull(self, now_ns: int) -> None:
        """The fewest that any fault says."""
        limits = [fault.whole("n") for fault in self._faults.named("slots")]
        for placed in self._faults.acting("queue_build_up", now_ns):
            limits.append(placed.fault.whole("slots"))
            placed.hit()
        self._model.limit(min(limits, default=None))


class WindowLever:
    """A batcher's longest wait."""

    def __init__(self, batcher: Windowed, faults: Faults) -> None:
        self._batcher = batcher
        self._faults = faults

    def pull(self, now_ns: int) -> None:
        """Longer by the sum of what the faults say."""
        acting = self._faults.acting("batch_window", now_ns)
        self._batcher.widen(sum(placed.fault.duration_ns("by") for placed in acting))
        for placed in acting:
            placed.hit()
