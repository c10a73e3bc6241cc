"""The step loop: scheduler, then runner, then each request's queue, in one thread that never waits for the event loop.

The event loop submits and cancels under a lock that is never held while a step runs. A cancelled sequence gives back
its blocks at once, even during a step: nothing hands them out before the next plan. A step that raises fails the
requests in it, not the server.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from plimsoll.reference_server.engine.scheduler import Drain, Generation, Scheduler
from plimsoll.reference_server.seams.models import Chunk, Runner
from plimsoll.reference_server.values.durations import INFERENCE, QUEUE, Stages

STEP_FAILED, DEADLINE, STOPPING = "step_failed", "deadline_exceeded", "shutting_down"
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Unreachable(Exception):
    """The queue drains too slowly for the deadline."""


class Closed(Exception):
    """The engine has stopped, or is about to."""


@dataclass(frozen=True, slots=True)
class Step:
    """News of one sequence: a token (-1 for none), why it ended ("" while it goes on), or what failed and its code."""

    token: int
    finish: str
    error: str = ""
    code: str = ""
    at_ns: int = field(default=-1, compare=False)
    """When the step ended."""
    queue_ns: int = field(default=0, compare=False)
    """How long the sequence had waited by then."""


@dataclass(frozen=True, slots=True)
class StepNews:
    """What a step was: for counters."""

    seconds: float
    gap_s: float
    """Since the step before ended, when there was work all the time; 0 for the first of a burst."""
    n_computed: int
    """Tokens computed, prompts included."""
    n_new: int
    """Tokens generated."""
    n_sequences: int
    max_batch: int


class Ticket:
    """One submitted sequence as its requester sees it. ``queued_ns``, ``started_ns`` (first planned) and ``first_ns``
    (first token) are -1 until they happen."""

    __slots__ = ("expiry", "first_ns", "generation", "queued_ns", "started_ns", "steps")

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.queued_ns = generation.queued_ns
        self.started_ns = -1
        self.first_ns = -1
        self.steps: asyncio.Queue[Step] = asyncio.Queue()
        self.expiry: asyncio.TimerHandle | None = None


_News = list[tuple[Ticket, Step]]


class Engine:
    """One scheduler and one runner, stepping while there is work."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        on_step: Callable[[StepNews], None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.scheduler = scheduler
        self.drain = Drain()
        self._runner = runner
        self._on_step = on_step
        self._now_ns = now_ns
        self._changed = threading.Condition()
        """Guards the scheduler, the drain, the tickets and the jobs; notified when there is something to do."""
        self._tickets: dict[int, Ticket] = {}
        self._jobs: deque[tuple[Callable[[], None], Future[Any]]] = deque()
        self._numbers = itertools.count(1)
        self._closing = False
        self.failure = ""
        """Why nothing can be served any more: planning itself failed."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        warm = self._between_steps(self._runner.warm_up)
        self._thread.start()
        await asyncio.wrap_future(warm)

    async def stop(self) -> None:
        """End after the running step; whoever still waits is told."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        for ticket in list(self._tickets.values()):
            self.cancel(ticket)
            ticket.steps.put_nowait(Step(-1, "error", "the server is shutting down", STOPPING))

    @property
    def n_tickets(self) -> int:
        return len(self._tickets)

    def submit(
        self,
        prompt: Sequence[int],
        *,
        max_new: int,
        min_new: int = 0,
        ignore_eos: bool = False,
        priority: int = 0,
        deadline_ns: int = -1,
    ) -> Ticket:
        """Queue a prompt. Raises TooLong, QueueFull, Unreachable or Closed."""
        now_ns = self._now_ns()
        with self._changed:
            if self._closing:
                raise Closed
            if self.drain.too_late(self.scheduler.n_ahead(priority, now_ns), deadline_ns, now_ns):
                raise Unreachable
            generation = Generation(
                next(self._numbers), list(prompt), max_new, min_new, ignore_eos, priority, now_ns, deadline_ns
            )
            self.scheduler.submit(generation)
            ticket = Ticket(generation)
            self._tickets[generation.sequence_id] = ticket
            self._changed.notify()
        if deadline_ns >= 0:
            self._watch(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Forget a sequence and free its blocks now; harmless when it has ended."""
        if ticket.expiry is not None:
            ticket.expiry.cancel()
        with self._changed:
            sequence_id = ticket.generation.sequence_id
            if self._tickets.pop(sequence_id, None) is not None:
                with self._departures():
                    self.scheduler.cancel(sequence_id)

    def retry_after_s(self) -> int:
        """In how many seconds those who wait now will have been served."""
        with self._changed:
            return self.drain.retry_after_s(self.scheduler.n_waiting, self._now_ns())

    def queue_age_s(self) -> float:
        """How long the one has waited that waits longest; 0 when nobody does."""
        with self._changed:
            since_ns = self.scheduler.waiting_since_ns()
            return (self._now_ns() - since_ns) / 1e9 if since_ns >= 0 else 0.0

    async def embed(self, prompts: Sequence[Sequence[int]], stages: Stages | None = None) -> list[list[float]]:
        """One unit-length vector per prompt, computed between two steps; the wait for them is the queue."""
        vectors: list[list[float]] = []
        told = stages if stages is not None else Stages()
        for prompt in prompts:  # one by one: a large batch must not hold up the steps of the others
            asked_ns = self._now_ns()
            begun_ns, found, ended_ns = await asyncio.wrap_future(self._between_steps(partial(self._embed, prompt)))
            told.add(QUEUE, begun_ns - asked_ns)
            told.add(INFERENCE, ended_ns - begun_ns)
            vectors += found
        return vectors

    def _embed(self, prompt: Sequence[int]) -> tuple[int, list[list[float]], int]:
        begun_ns = self._now_ns()
        return begun_ns, self._runner.embed((prompt,)), self._now_ns()

    def _between_steps(self, work: Callable[[], _T]) -> Future[_T]:
        """Have the thread do it before its next step. Raises Closed, at once or from the future."""
        done: Future[_T] = Future()

        def job() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
                done.set_exception(error)

        with self._changed:
            if self._closing:
                raise Closed
            self._jobs.append((job, done))
            self._changed.notify()
        return done

    def _run(self) -> None:
        news: _News = []
        told: StepNews | None = None
        ended_ns = -1
        try:
            while True:
                worked = self._do_job()
                with self._changed:
                    if self._closing:
                        return
                    news += self._expired()
                    chunks = self._plan()
                self._tell(news, told)  # only now: the next step is ready to go when the event loop gets busy
                news, told = [], None
                if chunks:
                    news, told, ended_ns = self._step(chunks, ended_ns)
                elif not worked:
                    ended_ns = -1
                    with self._changed:
                        self._changed.wait_for(self._has_work)
        except Exception as error:  # noqa: BLE001 - nothing can be served any more, and all are told
            _log.exception("the step loop has ended")
            with self._changed:
                self.failure = f"the engine failed: {type(error).__name__}: {error}"
                news += self._fail(list(self._tickets), self.failure)
        finally:
            with self._changed:
                self._closing = True
                for _, done in self._jobs:
                    if done.set_running_or_notify_cancel():
                        done.set_exception(Closed())
                self._jobs.clear()
            self._tell(news, told)

    def _has_work(self) -> bool:
        return self._closing or bool(self._jobs) or self.scheduler.n_waiting + self.scheduler.n_running > 0

    def _do_job(self) -> bool:
        with self._changed:
            job = self._jobs.popleft()[0] if self._jobs and not self._closing else None
        if job is not None:
            job()
        return job is not None

    def _plan(self) -> list[Chunk]:
        now_ns = self._now_ns()
        chunks = self.scheduler.plan(now_ns)
        for chunk in chunks:
            ticket = self._tickets[chunk.sequence_id]
            if ticket.started_ns < 0:
                ticket.started_ns = now_ns
        return chunks

    def _step(self, chunks: Sequence[Chunk], ended_ns: int) -> tuple[_News, StepNews | None, int]:
        begun_ns = self._now_ns()
        try:
            tokens = self._runner.step(chunks)
            now_ns = self._now_ns()
            with self._changed:
                news = self._commit(chunks, tokens, now_ns)
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails these requests only
            _log.exception("a step of %d sequences failed", len(chunks))
            with self._changed:
                planned = [chunk.sequence_id for chunk in chunks]
                return self._fail(planned, f"the step failed: {type(error).__name__}: {error}"), None, -1
        told = StepNews(
            (now_ns - begun_ns) / 1e9,
            (begun_ns - ended_ns) / 1e9 if ended_ns >= 0 else 0.0,
            sum(len(chunk.tokens) for chunk in chunks),
            len(tokens),
            len(chunks),
            self.scheduler.max_batch,
        )
        return news, told, now_ns

    def _commit(self, chunks: Sequence[Chunk], tokens: Sequence[int], now_ns: int) -> _News:
        news: _News = []
        with self._departures(now_ns):
            emissions = self.scheduler.commit(chunks, tokens)
        for emission in emissions:
            ticket = self._tickets[emission.sequence_id]
            if ticket.first_ns < 0:
                ticket.first_ns = now_ns
            if emission.finish:
                del self._tickets[emission.sequence_id]
            queue_ns = ticket.generation.queue_ns
            news.append((ticket, Step(emission.token, emission.finish, at_ns=now_ns, queue_ns=queue_ns)))
        return news

    def _fail(self, sequence_ids: Sequence[int], error: str) -> _News:
        news: _News = []
        for sequence_id in sequence_ids:
            ticket = self._tickets.pop(sequence_id, None)
            if ticket is not None:
                self.scheduler.cancel(sequence_id)
                news.append((ticket, Step(-1, "error", error, STEP_FAILED)))
        return news

    def _expired(self) -> _News:
        now_ns, step = self._now_ns(), Step(-1, "error", "the deadline has passed", DEADLINE)
        with self._departures(now_ns):
            late = self.scheduler.expire(now_ns)
        return [(self._tickets.pop(sequence_id), step) for sequence_id in late]

    @contextmanager
    def _departures(self, now_ns: int | None = None) -> Iterator[None]:
        """Have the drain know of the places that come free, however they do."""
        n_running, n_kept = self.scheduler.n_running, self.scheduler.n_kept
        yield
        for _ in range(n_running - self.scheduler.n_running):
            self.drain.departed(now_ns or self._now_ns(), n_waiting=n_kept)

    def _watch(self, ticket: Ticket) -> None:
        """Ask again at the deadline: a step may be long, and the queue may stand still."""
        left_s = max(0, ticket.generation.deadline_ns - self._now_ns()) / 1e9
        ticket.expiry = asyncio.get_running_loop().call_later(left_s, self._expire_now, ticket)

    def _expire_now(self, ticket: Ticket) -> None:
        with self._changed:
            news = self._expired()
            early = ticket.generation.sequence_id in self._tickets
        self._deliver(news, None)
        if early:
            self._watch(ticket)

    def _tell(self, news: _News, told: StepNews | None) -> None:
        """Have the event loop deliver; a loop that is gone has nobody who listens."""
        if (news or told is not None) and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, news, told)

    def _deliver(self, news: _News, told: StepNews | None) -> None:
        for ticket, step in news:
            if step.finish and ticket.expiry is not None:
                ticket.expiry.cancel()
            ticket.steps.put_nowait(step)
        if told is not None and self._on_step is not None:
            self._on_step(told)
