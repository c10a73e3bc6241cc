"""A device whose batches take a scripted time, ``fixed + each * B`` for B samples: the arithmetic without a GPU.

``batch_queue`` decides who goes together. A batch begins when it was due, or when the one before it was to end if that
is later, and not when Python gets round to it: lateness never adds up, and the same arrivals give the same times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll.reference_server.engine.batch_queue import BatchQueue, Place, QueueFull, WrongSize
from plimsoll.reference_server.values.errors import unavailable
from plimsoll.reference_server.values.timetable import Fire

Told = Callable[[int, int], None]
"""Called with when the first batch of a request began and when its last one is to end, in monotonic nanoseconds."""


class BatchClock:
    """One such device and its queue."""

    def __init__(
        self,
        at: Callable[[int, Fire], object],
        queue: BatchQueue,
        *,
        fixed_ns: int,
        each_ns: int,
        on_batch: Callable[[int, float], None],
    ) -> None:
        """``at`` calls at an instant, as a wheel of deadlines does; ``on_batch`` is told each batch's size and
        seconds.
        """
        self._at = at
        self._fixed_ns = fixed_ns
        self._each_ns = each_ns
        self._on_batch = on_batch
        self.queue = queue
        self._told: dict[Place, tuple[Told, int]] = {}
        self._free_ns = 0
        self._last_ns = 0
        self._busy = False

    def arrive(self, n: int, now_ns: int, told: Told) -> Place:
        """A request of ``n`` samples came. Raises QueueFull or WrongSize."""
        place = self.queue.admit(n, now_ns)
        self.queue.ready(place, now_ns)
        self._told[place] = told, -1
        self._last_ns = now_ns
        self._go_on(now_ns)
        return place

    async def run(self, n: int, arrived_ns: int) -> tuple[int, int]:
        """Wait until the last batch of a request has begun: when the first one did, and when the last one ends.

        Raises RequestError 503 when too many wait.
        """
        begun: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        def told(start_ns: int, end_ns: int) -> None:
            if not begun.done():
                begun.set_result((start_ns, end_ns))

        try:
            place = self.arrive(n, arrived_ns, told)
        except (QueueFull, WrongSize) as error:
            message = str(error) or f"the queue is full: {self.queue.n_waiting} samples wait"
            raise unavailable(message, "queue_full") from None
        try:
            return await begun
        finally:
            self.queue.leave(place)
            self._told.pop(place, None)

    def _go_on(self, now_ns: int) -> None:
        due_ns = self.queue.due_ns()
        if due_ns is None or self._busy:
            return
        if self.queue.full:
            due_ns = max(due_ns, self._last_ns)  # who came last has filled it
        start_ns = max(due_ns, self._free_ns)
        if start_ns > now_ns:
            self._at(start_ns, self._go_on)
            return
        batch = self.queue.take(start_ns)
        end_ns = self._free_ns = start_ns + self._fixed_ns + self._each_ns * batch.n
        self._busy = True
        self._on_batch(batch.n, (end_ns - start_ns) / 1e9)
        for share in batch.shares:
            told, first_ns = self._told[share.place]
            first_ns = start_ns if first_ns < 0 else first_ns
            self._told[share.place] = told, first_ns
            if share.place.n_left == 0:
                told(first_ns, end_ns)
        self._at(end_ns, self._done)

    def _done(self, due_ns: int) -> None:
        self._busy = False
        self.queue.done()
        self._go_on(due_ns)
