"""Many streams heard at once: resampled, through one filter bank and one search, turn by turn in one thread. No torch.

A turn takes at most TURN_S of audio from each stream, so that a long file does not hold up live speech, and at most
``max_batch`` streams. It begins as soon as the last one is over. No more streams are opened than the limit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.speech import resample
from plimsoll.reference_server.speech.resample import MAX_RATE, MIN_RATE, RATE, Kernel, Resampler, kernel
from plimsoll.reference_server.speech.transcript import (
    FRAME_S,
    MIN_ENDPOINT_FRAMES,
    MIN_FRAMES,
    Search,
    Transcript,
    clipped,
)
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

Float = npt.NDArray[np.float64]

HOP = 48
WINDOW = 192
"""Samples at 8 kHz: a frame of 24 ms every 6 ms."""
_HALF = WINDOW // 2
_TAIL = WINDOW + (MIN_FRAMES + 2) * HOP
"""Silence that lets the last symbol end."""
_log = logging.getLogger(__name__)
TURN_S = 0.384
_MAX_ENDPOINTING_MS = 60_000
_KERNELS_KEPT = 8


class FilterBank(Protocol):
    """How strong each tone is."""

    def shares(self, samples: Float) -> tuple[Float, Float]:
        """Of whole 16-bit values at 8 kHz [B, WINDOW + (T - 1) x HOP]: each low tone's share of the low tones' energy
        [B, T, 14], and of the high ones' [B, T, 7]. A frame's shares are the same bits in any batch."""

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``shares``."""


@dataclass(slots=True, eq=False)
class Ear:
    """One stream between two turns: samples short of a frame, and how far it was heard."""

    row: int
    sample_rate: int
    resampler: Resampler
    transcript: Transcript
    samples: Float = field(default_factory=lambda: np.zeros(_HALF))
    n_frames: int = 0

    @property
    def heard_s(self) -> float:
        return round(self.resampler.n_in / self.sample_rate, 4)


@dataclass(slots=True, eq=False)
class Piece:
    """Audio of one stream in a turn; ``ending`` is "", "flush" or "finish"."""

    ear: Ear
    audio: Audio
    ending: str = ""
    heard: list[Heard] = field(default_factory=list)


class Hearing:
    """A filter bank and the search states of ``n_rows`` streams."""

    def __init__(self, bank: FilterBank, n_rows: int) -> None:
        self.n_rows = n_rows
        self._bank = bank
        self._search = Search(n_rows)

    def open(self, row: int, sample_rate: int, coefficients: Kernel, endpointing_ms: int | None, interim: bool) -> Ear:
        """A fresh stream in a row that no other one holds."""
        self._search.reset(row, 0)
        frames = (
            None if endpointing_ms is None else max(MIN_ENDPOINT_FRAMES, math.ceil(endpointing_ms / 1000 / FRAME_S))
        )
        return Ear(row, sample_rate, Resampler(coefficients), Transcript(frames, interim))

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``hear``."""
        self._bank.warm_up(max_batch)
        noise = np.random.default_rng(0).normal(0, 0.1, RATE // 2).astype(np.float32)
        warm = Hearing(self._bank, 1)
        warm.hear([Piece(warm.open(0, RATE, kernel(RATE), 300, True), noise, "finish")])

    def hear(self, pieces: Sequence[Piece]) -> tuple[int, int, int]:
        """Fill in what each piece has to say. Nanoseconds of preprocessing, inference and postprocessing."""
        begun_ns = time.monotonic_ns()
        samples = [self._samples(piece) for piece in pieces]
        order = sorted(range(len(pieces)), key=lambda i: -_n_frames(len(samples[i])))
        order = [i for i in order if _n_frames(len(samples[i]))]
        resampled_ns = time.monotonic_ns()
        notes: dict[int, Float] = {}
        if order:
            n_frames = np.array([_n_frames(len(samples[i])) for i in order])
            batch = np.zeros((len(order), WINDOW + (int(n_frames[0]) - 1) * HOP))
            for place, i in enumerate(order):
                n = min(len(samples[i]), batch.shape[1])
                batch[place, :n] = samples[i][:n]
            low, high = self._bank.shares(batch)
            rows = np.array([pieces[i].ear.row for i in order])
            noted = self._search.advance(rows, low, high, n_frames)
            notes = {i: noted[place, : n_frames[place]] for place, i in enumerate(order)}
        inferred_ns = time.monotonic_ns()
        for i, piece in enumerate(pieces):
            self._say(piece, samples[i], notes.get(i))
        return resampled_ns - begun_ns, inferred_ns - resampled_ns, time.monotonic_ns() - inferred_ns

    def _samples(self, piece: Piece) -> Float:
        """What the stream has to offer the bank; at an ending silence follows."""
        ear = piece.ear
        parts = [ear.samples, ear.resampler.feed(piece.audio)]
        if piece.ending == "finish":
            parts.append(ear.resampler.finish())
        ear.samples = np.concatenate(parts)
        return np.concatenate((ear.samples, np.zeros(_TAIL))) if piece.ending else ear.samples

    def _say(self, piece: Piece, samples: Float, notes: Float | None) -> None:
        ear = piece.ear
        whole = _n_frames(len(ear.samples))
        ear.samples = ear.samples[whole * HOP :]
        ear.n_frames += whole
        if notes is not None:
            piece.heard += ear.transcript.take(notes)
        if piece.ending:
            piece.heard += ear.transcript.finish()
            piece.heard = [clipped(heard, ear.heard_s) for heard in piece.heard]
            # What was heard under the silence must not be heard again: the stream goes on behind it.
            ear.samples = np.zeros(len(ear.samples))
            self._search.reset(ear.row, ear.n_frames)
            ear.transcript.restart(ear.n_frames)


def _n_frames(n_samples: int) -> int:
    return 0 if n_samples < WINDOW else (n_samples - WINDOW) // HOP + 1


@dataclass(slots=True, eq=False)
class _Job:
    """Audio of one stream that waits to be heard, and what was heard of it so far."""

    stream: Listener
    audio: Audio
    ending: str
    done: asyncio.Future[list[Heard]]
    queued_ns: int
    at: int = 0
    heard: list[Heard] = field(default_factory=list)

    def piece(self) -> Piece:
        n = int(TURN_S * self.stream.ear.sample_rate)
        audio = self.audio[self.at : self.at + n]
        self.at += n
        return Piece(self.stream.ear, audio, self.ending if self.is_over else "")

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.audio)


class Listener:
    """One stream of audio being listened to, by one call after the other; ``stages`` say where the time went."""

    __slots__ = ("_owner", "closed", "ear", "finished", "running", "stages")

    def __init__(self, owner: Recogniser, ear: Ear) -> None:
        self._owner = owner
        self.ear = ear
        self.stages = Stages()
        self.closed = False
        self.finished = False
        self.running = False

    async def feed(self, audio: Audio) -> Sequence[Heard]:
        """Hear more audio; what there is to say now, in order. Raises RequestError: 400 for samples that are no
        numbers, 503 at the end."""
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
        self._owner.release(self)


class Recogniser:
    """A recogniser whose streams share one thread."""

    def __init__(self, hearing: Hearing, *, name: str = "recogniser", max_batch: int = 32) -> None:
        self.name = name
        self._hearing = hearing
        self._max_batch = max_batch
        self._free = list(range(hearing.n_rows))[::-1]
        self._jobs: list[_Job] = []
        self._streams: set[Listener] = set()
        self._kernels: dict[int, Kernel] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def n_open(self) -> int:
        return len(self._streams)

    @property
    def n_waiting(self) -> int:
        return len(self._jobs)

    def listen(
        self, sample_rate: int, *, interim: bool = True, endpointing_ms: int = 300, single_utterance: bool = False
    ) -> Listener:
        """Start a stream. Raises RequestError: 400 for a rate or an endpointing out of range, 503 at the limit."""
        if not MIN_RATE <= sample_rate <= MAX_RATE:
            message = f"sample_rate {sample_rate}: can't be heard. Send {MIN_RATE} to {MAX_RATE} Hz"
            raise RequestError(400, message, param="sample_rate")
        if not 0 <= endpointing_ms <= _MAX_ENDPOINTING_MS:
            message = f"endpointing_ms {endpointing_ms}: choose 0 to {_MAX_ENDPOINTING_MS}"
            raise RequestError(400, message, param="endpointing_ms")
        if self._stopped:
            raise shutting_down()
        if not self._free:
            message = f"{self._hearing.n_rows} streams are open, the most this server hears at once. Come back later"
            raise unavailable(message, "too_many_streams")
        row = self._free.pop()
        endpointing = None if single_utterance else endpointing_ms
        stream = Listener(self, self._hearing.open(row, sample_rate, self._kernel(sample_rate), endpointing, interim))
        self._streams.add(stream)
        return stream

    async def start(self, startup: Startup) -> None:
        with startup.phase(WARM_UP):
            await asyncio.get_running_loop().run_in_executor(self._pool, self._hearing.warm_up, self._max_batch)
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for job in self._jobs:
            if not job.done.done():
                job.done.set_exception(shutting_down())
        self._jobs = []

    async def hear(self, stream: Listener, audio: Audio, ending: str) -> list[Heard]:
        """Queue audio and wait until it was heard. Raises RequestError 503 at the end of the server."""
        if self._stopped:
            raise shutting_down()
        if stream.closed or stream.finished:
            raise RuntimeError("the stream is over. Listen anew")
        job = _Job(stream, audio, ending, asyncio.get_running_loop().create_future(), time.monotonic_ns())
        self._jobs.append(job)
        self._wake.set()
        return await job.done

    def release(self, stream: Listener) -> None:
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
        taken: dict[Listener, _Job] = {}
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
                _fail(job, shutting_down())
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
