"""Dynamic batching for models of fixed outputs: the asyncio part, which drives what ``batch_queue`` decides.

A request's stages add up to the time from its call to its reply: ``queue`` is whatever is not ``preprocess``,
``inference`` or ``postprocess``. What fails in a worker thread fails one request, a batch that fails fails the requests
in it, and the server lives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plimsoll.reference_server.engine.batch_queue import Batch, BatchQueue, DrainRate, Line, Place, QueueFull, WrongSize
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.seams.models import BatchModel
from plimsoll.reference_server.values.durations import (
    INFERENCE,
    POSTPROCESS,
    PREPROCESS,
    QUEUE,
    WARM_UP,
    Stages,
    Startup,
)
from plimsoll.reference_server.values.errors import RequestError, shutting_down, unavailable
from plimsoll.reference_server.values.tensors import Tensor, checked, n_samples
from plimsoll.reference_server.values.timetable import DeadlineWheel

DISPATCH, FORWARD = "inference.dispatch", "inference.forward"
_MAX_WORKERS = 4

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Request:
    """One request between its admission and its results."""

    place: Place
    computed: asyncio.Future[None]
    samples: Sequence[Any] = ()
    results: list[Any] = field(default_factory=list)
    inference: Stages = field(default_factory=Stages)

    def fail(self, error: RequestError) -> None:
        if not self.computed.done():
            self.computed.set_exception(error)
            self.computed.exception()  # seen: nobody may be waiting any more


class Batcher:
    """One model and its queue."""

    def __init__(
        self,
        model: BatchModel,
        *,
        max_batch: int,
        max_wait_ns: int,
        queue_limit: int,
        synchronise: int = 1,
        window: str = "dynamic",
        startup: Startup | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.model = model
        self.n_batches = 0
        self._queue = BatchQueue(
            max_batch=max_batch,
            max_wait_ns=max_wait_ns,
            queue_limit=queue_limit,
            synchronise=synchronise,
            window=window,
        )
        self._max_wait_ns = max_wait_ns
        self._startup = startup or Startup()
        self._metrics = metrics or Metrics()
        self._metrics.queue(model.name, lambda: self.n_waiting, self._age_s)
        self._drain = DrainRate()
        self._workers = _Workers(min(_MAX_WORKERS, len(os.sched_getaffinity(0))), model.name)
        self._device = ThreadPoolExecutor(1, thread_name_prefix=f"{model.name}-forward")
        self._requests: dict[Place, _Request] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._wheel: DeadlineWheel | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def n_waiting(self) -> int:
        return self._queue.n_waiting

    def widen(self, by_ns: int) -> None:
        """From now on batches wait so much longer to fill than they were set to; 0 is as set."""
        self._queue.max_wait_ns = self._max_wait_ns + max(0, by_ns)
        self._wake.set()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        with self._startup.phase(WARM_UP):
            await loop.run_in_executor(self._device, self.model.warm_up, self._queue.max_batch)
        self._wheel = DeadlineWheel(loop)
        self._task = asyncio.create_task(self._run(self._wheel), name=f"batcher-{self.model.name}")

    async def stop(self) -> None:
        self._stopping = True
        for request in list(self._requests.values()):
            if request.place.n_left > 0:
                request.fail(shutting_down())
        self._wake.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._idle.wait()  # those of the last batch are still being finished
        if self._wheel is not None:
            self._wheel.close()
        for pool in (self._device, self._workers.pool):
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)

    async def infer(
        self, tensors: Sequence[Tensor], stages: Stages, *, priority: int = 0, deadline_ns: int = -1
    ) -> Sequence[Tensor]:
        begun_ns = time.monotonic_ns()
        by_name = checked(tensors, self.model.inputs)
        place = self._admit(n_samples(by_name, self.model.inputs), begun_ns, priority, deadline_ns)
        request = _Request(place, asyncio.get_running_loop().create_future())
        self._requests[place] = request
        self._idle.clear()
        spans = Stages({QUEUE: 0})
        try:
            left_s = None if deadline_ns < 0 else (deadline_ns - begun_ns) / 1e9
            async with asyncio.timeout(left_s):
                outputs = await self._answer(request, by_name, spans)
        except TimeoutError:
            raise self._missed(begun_ns) from None
        finally:
            self._queue.leave(place)
            del self._requests[place]
            if not self._requests:
                self._idle.set()
        known_ns = sum(ns for name, ns in spans.spans_ns.items() if "." not in name)
        spans.add(QUEUE, time.monotonic_ns() - begun_ns - known_ns)
        for name, ns in spans.spans_ns.items():
            stages.add(name, ns)
        self._metrics.stage(self.model.name, spans)
        return outputs

    async def _answer(self, request: _Request, by_name: Mapping[str, Tensor], spans: Stages) -> Sequence[Tensor]:
        place = request.place

        def prepare() -> tuple[Sequence[Any], Stages]:
            return _timed(PREPROCESS, lambda own: self.model.preprocess(by_name, own))

        def finish() -> tuple[Sequence[Tensor], Stages]:
            return _timed(POSTPROCESS, lambda own: self.model.postprocess(request.results, own))

        request.samples = await self._beside(place, prepare, spans, 400, "preprocess_failed")
        if self._stopping:
            raise shutting_down()
        if len(request.samples) != place.n:
            raise _failed(f"{len(request.samples)} samples were made of {place.n}")
        self._queue.ready(place, time.monotonic_ns())
        self._wake.set()
        await request.computed
        for name, ns in request.inference.spans_ns.items():
            spans.add(name, ns)
        return await self._beside(place, finish, spans, 500, "step_failed")

    async def _beside(
        self, place: Place, work: Callable[[], tuple[_T, Stages]], spans: Stages, status: int, code: str
    ) -> _T:
        """Do one request's own work in a worker thread; what fails there fails this request alone."""
        try:
            done, own = await self._workers.run(place, work, lambda: self._stopping and place.n_left > 0)
        except RequestError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails this request only
            _log.exception("%s: one request failed beside the batches", self.model.name)
            kind = "invalid_request_error" if status == 400 else "server_error"
            message = f"the request's tensors can't be worked on: {type(error).__name__}: {error}"
            raise RequestError(status, message, kind=kind, code=code) from None
        for name, ns in own.spans_ns.items():
            spans.add(name, ns)
        return done

    def _admit(self, n: int, now_ns: int, priority: int, deadline_ns: int) -> Place:
        queue = self._queue
        if self._task is None:
            message = f"model {self.model.name!r} is starting. Ask /health"
            raise self._refused(unavailable(message, "starting"))
        if self._stopping:
            raise self._refused(shutting_down())
        if 0 <= deadline_ns <= now_ns:
            raise self._refused(_too_late(now_ns))
        try:
            return queue.admit(n, now_ns, priority=priority, deadline_ns=deadline_ns)
        except WrongSize as error:
            message = f"inputs: hold {n} samples; {error}. Send another number of rows"
            raise RequestError(400, message, param="inputs", code="invalid_tensor") from None
        except QueueFull:
            message = f"the queue is full: {queue.n_waiting} samples wait, the limit is {queue.queue_limit}"
            again_s = self._drain.retry_after_s(queue.n_waiting)
            raise self._refused(unavailable(message, "queue_full", again_s)) from None

    async def _run(self, wheel: DeadlineWheel) -> None:
        while not self._stopping:
            batch = self._queue.take(time.monotonic_ns())
            for place in batch.expired:
                self._requests[place].fail(self._missed(place.admitted_ns))
            if batch.shares:
                await self._compute(batch)
                continue
            self._wake.clear()
            due_ns = self._queue.due_ns()
            alarm = wheel.at(due_ns, self._ring) if due_ns is not None else None
            await self._wake.wait()
            if alarm is not None:
                alarm.cancel()

    def _ring(self, _due_ns: int) -> None:
        self._wake.set()

    async def _compute(self, batch: Batch) -> None:
        holders = [(self._requests[share.place], share) for share in batch.shares]
        samples = [sample for request, s in holders for sample in request.samples[s.first : s.first + s.n]]
        begun_ns, own = time.monotonic_ns(), Stages({INFERENCE: 0})

        def forward() -> Sequence[Any]:
            own.add(DISPATCH, time.monotonic_ns() - begun_ns)
            with own.time(FORWARD):
                results = self.model.forward(samples, own)
            if len(results) != len(samples):
                raise RuntimeError(f"the model gave {len(results)} results for {len(samples)} samples")
            return results

        try:
            results = await asyncio.get_running_loop().run_in_executor(self._device, forward)
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails these requests only
            _log.exception("%s: a batch of %d samples failed", self.model.name, len(samples))
            for request, _ in holders:
                self._queue.leave(request.place)
                request.fail(_failed(f"{type(error).__name__}: {error}"))
            return
        finally:
            self._queue.done()
        inference_ns = time.monotonic_ns() - begun_ns
        own.add(INFERENCE, inference_ns)
        self.n_batches += 1
        self._drain.add(len(samples), inference_ns)
        self._metrics.batch(self.model.name, len(samples), self._queue.max_batch, own.spans_ns.get(FORWARD, 0) / 1e9)
        at = 0
        for request, share in holders:
            request.results += results[at : at + share.n]
            for name, ns in own.spans_ns.items():
                request.inference.add(name, ns)
            at += share.n
            if len(request.results) == request.place.n and not request.computed.done():
                request.computed.set_result(None)

    def _refused(self, error: RequestError) -> RequestError:
        self._metrics.rejected(self.model.name, error.code or "")
        return error

    def _missed(self, begun_ns: int) -> RequestError:
        self._metrics.deadline_missed(self.model.name)
        return _too_late(begun_ns)

    def _age_s(self) -> float:
        oldest_ns = self._queue.oldest_ns()
        return 0.0 if oldest_ns is None else (time.monotonic_ns() - oldest_ns) / 1e9


class _Workers:
    """A few threads and one line before them, in the order in which batches are filled."""

    def __init__(self, n: int, name: str) -> None:
        self.pool = ThreadPoolExecutor(n, thread_name_prefix=f"{name}-worker")
        self._n_free = n
        self._line = Line()
        self._turns: dict[Place, asyncio.Future[None]] = {}

    async def run(self, place: Place, work: Callable[[], _T], unwanted: Callable[[], bool]) -> _T:
        """Do ``work`` in a thread when it is this request's turn. Raises what it raises; 503 when it is unwanted."""
        if self._n_free > 0 and not self._line.by_age:
            self._n_free -= 1
        else:
            await self._turn(place)
        if unwanted():
            self._free()
            raise shutting_down()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()

        def ended(job: Future[_T]) -> None:
            self._free()
            error = job.exception()
            if answer.cancelled():
                return
            if error is None:
                answer.set_result(job.result())
            else:
                answer.set_exception(error)

        def ended_there(job: Future[_T]) -> None:
            loop.call_soon_threadsafe(ended, job)

        # The thread is free when the work has ended, even if nobody waits for it any more.
        self.pool.submit(work).add_done_callback(ended_there)
        return await answer

    async def _turn(self, place: Place) -> None:
        turn = self._turns[place] = asyncio.get_running_loop().create_future()
        self._line.join(place)
        try:
            await turn
        except asyncio.CancelledError:
            self._line.leave(place)
            if not turn.cancelled():  # its turn had just come
                self._free()
            raise
        finally:
            del self._turns[place]

    def _free(self) -> None:
        self._n_free += 1
        self._call_next()

    def _call_next(self) -> None:
        while self._n_free > 0 and self._line.by_age:
            place = self._line.turn()[0]
            self._line.leave(place)
            turn = self._turns[place]
            if not turn.cancelled():
                self._n_free -= 1
                turn.set_result(None)


def _timed(stage: str, work: Callable[[Stages], _T]) -> tuple[_T, Stages]:
    own = Stages({stage: 0})
    with own.time(stage):
        done = work(own)
    return done, own


def _failed(reason: str) -> RequestError:
    return RequestError(500, f"the batch failed: {reason}", kind="server_error", code="step_failed")


def _too_late(begun_ns: int) -> RequestError:
    waited_ms = (time.monotonic_ns() - begun_ns) / 1e6
    message = f"the deadline passed before the answer, {waited_ms:.1f} ms after the request came"
    return RequestError(504, message, kind="server_error", code="deadline_exceeded")
