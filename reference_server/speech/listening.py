"""Many streams heard at once: whatever audio waits is taken together, turn by turn, through one thread. No torch.

A turn takes at most TURN_S of audio from each stream, so that a long file doesn't hold up live speech, and at most ``max_batch`` streams.
A turn begins as soon as the last one is over: while one is computed the next one fills, and an idle listener waits for nobody. It refuses
to open more streams than its limit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from plimsoll.reference_server.speech import resample
from plimsoll.reference_server.speech.hearing import Ear, Hearing, Piece
from plimsoll.reference_server.speech.resample import MAX_RATE, MIN_RATE, Kernel
from plimsoll.reference_server.speech.seam import Audio, Heard, Listener
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.stages import INFERENCE, POSTPROCESS, PREPROCESS, QUEUE, Stages
from plimsoll.reference_server.values.startup import WARM_UP, Startup

_log = logging.getLogger(__name__)
TURN_S = 0.384
_MAX_ENDPOINTING_MS = 60_000
_KERNELS_KEPT = 8


@dataclass(slots=True, eq=False)
class _Job:
    """Audio of one stream that waits to be heard, and what was heard of it so far."""

    stream: _Stream
    audio: Audio
    ending: str
    done: asyncio.Future[list[Heard]]
    queued_ns: int
    at: int = 0
    heard: list[Heard] = field(default_factory=list)

    def piece(self) -> Piece:
        """What the next turn takes."""
        n = int(TURN_S * self.stream.ear.sample_rate)
        audio = self.audio[self.at : self.at + n]
        self.at += n
        return Piece(self.stream.ear, audio, self.ending if self.is_over else "")

    @property
    def is_over(self) -> bool:
        """Has all of its audio been taken?"""
        return self.at >= len(self.audio)


class _Stream:
    """One listener."""

    __slots__ = ("_owner", "closed", "ear", "finished", "running", "stages")

    def __init__(self, owner: BatchedRecogniser, ear: Ear) -> None:
        self._owner = owner
        self.ear = ear
        self.stages = Stages()
        self.closed = False
        self.finished = False
        self.running = False

    async def feed(self, audio: Audio) -> Sequence[Heard]:
        """Hear more audio; what there is to say now, in order. Raises RequestError: 400 for samples that are no numbers, 503 at the end."""
        if not np.isfinite(audio).all():
            raise RequestError(
                400, "audio: holds samples that are no numbers. Send finite samples in [-1, 1]", param="audio"
            )
        return await self._owner.hear(self, audio, "")

    async def flush(self) -> Sequence[Heard]:
        """End the utterance under way, if any, with a final; the stream goes on."""
        return await self._owner.hear(self, np.zeros(0, np.float32), "flush")

    async def finish(self) -> Sequence[Heard]:
        """The audio is over: whatever is still to be said. Nothing the second time."""
        if self.finished:
            return []
        heard = await self._owner.hear(self, np.zeros(0, np.float32), "finish")
        self.finished = True
        return heard

    def close(self) -> None:
        """Give up the row; finished or not; harmless when repeated."""
        self._owner.release(self)


class BatchedRecogniser:
    """A recogniser whose streams share one thread."""

    def __init__(self, hearing: Hearing, *, name: str = "recogniser", max_batch: int = 32) -> None:
        self.name = name
        self._hearing = hearing
        self._max_batch = max_batch
        self._free = list(range(hearing.n_rows))[::-1]
        self._jobs: list[_Job] = []
        self._streams: set[_Stream] = set()
        self._kernels: dict[int, Kernel] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def n_open(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    @property
    def n_waiting(self) -> int:
        """Pieces of audio in the queue."""
        return len(self._jobs)

    def listen(
        self, sample_rate: int, *, interim: bool = True, endpointing_ms: int = 300, single_utterance: bool = False
    ) -> Listener:
        """Start a stream. Raises RequestError: 400 for a rate or an endpointing out of range, 503 when too many streams are open."""
        if not MIN_RATE <= sample_rate <= MAX_RATE:
            message = f"sample_rate {sample_rate}: can't be heard. Send {MIN_RATE} to {MAX_RATE} Hz"
            raise RequestError(400, message, param="sample_rate")
        if not 0 <= endpointing_ms <= _MAX_ENDPOINTING_MS:
            message = f"endpointing_ms {endpointing_ms}: choose 0 to {_MAX_ENDPOINTING_MS}"
            raise RequestError(400, message, param="endpointing_ms")
        if self._stopped:
            raise _stopping()
        if not self._free:
            raise RequestError(
                503,
                f"{self._hearing.n_rows} streams are open, the most this server hears at once. Come back later",
                kind="server_error",
                code="too_many_streams",
                retry_after_s=1,
            )
        row = self._free.pop()
        endpointing = None if single_utterance else endpointing_ms
        stream = _Stream(self, self._hearing.open(row, sample_rate, self._kernel(sample_rate), endpointing, interim))
        self._streams.add(stream)
        return stream

    async def start(self, startup: Startup) -> None:
        """Warm up, then begin to serve."""
        with startup.phase(WARM_UP):
            await asyncio.get_running_loop().run_in_executor(self._pool, self._hearing.warm_up, self._max_batch)
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        """End after the running turn; whoever still waits is told."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for job in self._jobs:
            if not job.done.done():
                job.done.set_exception(_stopping())
        self._jobs = []

    async def hear(self, stream: _Stream, audio: Audio, ending: str) -> list[Heard]:
        """Queue audio and wait until it was heard. Raises RequestError 503 when the server stops, RuntimeError for a closed stream."""
        if self._stopped:
            raise _stopping()
        if stream.closed or stream.finished:
            raise RuntimeError("the stream is over. Listen anew")
        job = _Job(stream, audio, ending, asyncio.get_running_loop().create_future(), time.monotonic_ns())
        self._jobs.append(job)
        self._wake.set()
        return await job.done

    def release(self, stream: _Stream) -> None:
        """Free a stream's row, at the end of the running turn if it is in there."""
        if stream in self._streams:
            stream.closed = True
            self._streams.discard(stream)
            mine = [job for job in self._jobs if job.stream is stream]
            self._jobs = [job for job in self._jobs if job.stream is not stream]
            for job in mine:
                job.done.cancel()
            if not stream.running:
                self._free.append(stream.ear.row)

    def _kernel(self, sample_rate: int) -> Kernel:
        if sample_rate not in self._kernels:
            while len(self._kernels) >= _KERNELS_KEPT:
                del self._kernels[next(iter(self._kernels))]
            self._kernels[sample_rate] = resample.kernel(sample_rate)
        return self._kernels[sample_rate]

    async def _run(self) -> None:
        while True:
            jobs = self._next_turn()
            if not jobs:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._turn(jobs)
            finally:
                for job in jobs:
                    job.stream.running = False
                    if job.stream.closed:
                        self._free.append(job.stream.ear.row)

    def _next_turn(self) -> list[_Job]:
        """The oldest jobs, one a stream at most; a job whose asker is gone is dropped."""
        taken: dict[_Stream, _Job] = {}
        left = []
        for job in self._jobs:
            if job.done.done():
                continue
            if len(taken) < self._max_batch and job.stream not in taken:
                taken[job.stream] = job
                job.stream.running = True
            else:
                left.append(job)
        self._jobs = left
        return list(taken.values())

    async def _turn(self, jobs: list[_Job]) -> None:
        """Hear the next piece of each job. What raises fails these streams, not the server."""
        begun_ns = time.monotonic_ns()
        pieces = [job.piece() for job in jobs]
        running = asyncio.get_running_loop().run_in_executor(self._pool, self._hearing.hear, pieces)
        try:
            spans = await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait((running,))
            for job in jobs:
                _fail(job, _stopping())
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails these requests only
            _log.exception("a turn of %d streams failed", len(jobs))
            for job in jobs:
                _fail(job, RequestError(500, f"hearing failed: {type(error).__name__}: {error}", kind="server_error"))
            return
        over_ns = time.monotonic_ns()
        again = []
        for job, piece in zip(jobs, pieces, strict=True):
            job.heard += piece.heard
            for name, ns in zip(
                (QUEUE, PREPROCESS, INFERENCE, POSTPROCESS), (begun_ns - job.queued_ns, *spans), strict=True
            ):
                job.stream.stages.add(name, ns)
            job.queued_ns = over_ns
            if not job.is_over and not job.stream.closed:
                again.append(job)
            elif not job.done.done():
                job.done.set_result(job.heard)
        self._jobs += again


def _fail(job: _Job, error: RequestError) -> None:
    if not job.done.done():
        job.done.set_exception(error)


def _stopping() -> RequestError:
    return RequestError(503, "the server is shutting down", kind="server_error", code="shutting_down", retry_after_s=1)
