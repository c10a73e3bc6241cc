"""The step loop: scheduler, then runner, then each request's queue.

Steps run in one thread of their own, so the event loop stays free to accept and to write. Planning and
committing happen on the event loop between two steps; that is why a cancelled sequence can give back its
blocks at once: nothing hands them out again before the running step is over. A step that raises fails the
requests in it, not the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from reference_server.runner import Chunk, Runner
from reference_server.scheduler import Generation, Scheduler

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """News of one sequence: a token (-1 for none), why it ended ("" while it goes on), or what failed."""

    token: int
    finish: str
    error: str = ""


class Ticket:
    """One submitted sequence as its requester sees it."""

    __slots__ = ("first_ns", "generation", "queued_ns", "started_ns", "steps")

    def __init__(self, generation: Generation, queued_ns: int) -> None:
        self.generation = generation
        self.queued_ns = queued_ns
        self.started_ns = -1
        self.first_ns = -1
        self.steps: asyncio.Queue[Step] = asyncio.Queue()


class Engine:
    """One scheduler and one runner, stepping while there is work."""

    def __init__(
        self, scheduler: Scheduler, runner: Runner, *, on_step: Callable[[float, int], None] | None = None
    ) -> None:
        """``on_step(seconds, tokens computed)`` is called after each step."""
        self.scheduler = scheduler
        self._runner = runner
        self._on_step = on_step
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._tickets: dict[int, Ticket] = {}
        self._n_submitted = 0
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Warm up, then begin to step."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._runner.warm_up)
        self._loop_task = asyncio.create_task(self._run(), name="engine")

    async def stop(self) -> None:
        """End after the running step; whoever still waits is told."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        for ticket in list(self._tickets.values()):
            self._fail(ticket, "the server is shutting down")
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    def submit(self, prompt: list[int], *, max_new: int, min_new: int = 0, ignore_eos: bool = False) -> Ticket:
        """Queue a prompt. Raises TooLong or QueueFull."""
        self._n_submitted += 1
        generation = Generation(self._n_submitted, list(prompt), max_new, min_new, ignore_eos)
        self.scheduler.submit(generation)
        ticket = Ticket(generation, time.monotonic_ns())
        self._tickets[generation.sequence_id] = ticket
        self._wake.set()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Forget a sequence and free its blocks now; harmless when it has ended."""
        sequence_id = ticket.generation.sequence_id
        if self._tickets.pop(sequence_id, None) is not None:
            self.scheduler.cancel(sequence_id)

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """One unit-length vector per prompt, computed between two steps."""
        loop = asyncio.get_running_loop()
        vectors: list[list[float]] = []
        for prompt in prompts:  # one by one: a large batch must not hold up the steps of the others
            vectors += await loop.run_in_executor(self._pool, self._runner.embed, (prompt,))
        return vectors

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            chunks = self.scheduler.plan()
            if not chunks:
                self._wake.clear()
                await self._wake.wait()
                continue
            begun_ns = time.monotonic_ns()
            self._note_start(chunks, begun_ns)
            try:
                tokens = await loop.run_in_executor(self._pool, self._runner.step, chunks)
            except Exception as error:  # noqa: BLE001 - whatever it is, it fails these requests only
                _log.exception("a step of %d sequences failed", len(chunks))
                self._fail_all(chunks, f"the step failed: {type(error).__name__}: {error}")
                continue
            now_ns = time.monotonic_ns()
            self._deliver(chunks, tokens, now_ns)
            if self._on_step is not None:
                self._on_step((now_ns - begun_ns) / 1e9, sum(len(chunk.tokens) for chunk in chunks))

    def _note_start(self, chunks: Sequence[Chunk], now_ns: int) -> None:
        for chunk in chunks:
            ticket = self._tickets[chunk.sequence_id]
            if ticket.started_ns < 0:
                ticket.started_ns = now_ns

    def _deliver(self, chunks: Sequence[Chunk], tokens: Sequence[int], now_ns: int) -> None:
        for emission in self.scheduler.commit(chunks, tokens):
            ticket = self._tickets[emission.sequence_id]
            if ticket.first_ns < 0:
                ticket.first_ns = now_ns
            if emission.finish:
                del self._tickets[emission.sequence_id]
            ticket.steps.put_nowait(Step(emission.token, emission.finish))

    def _fail_all(self, chunks: Sequence[Chunk], error: str) -> None:
        for chunk in chunks:
            ticket = self._tickets.get(chunk.sequence_id)
            if ticket is not None:
                self._fail(ticket, error)

    def _fail(self, ticket: Ticket, error: str) -> None:
        self.cancel(ticket)
        ticket.steps.put_nowait(Step(-1, "error", error))
