"""Text spoken in pieces, as fast as they are asked for, many texts at a time through one thread. No torch.

The first piece is computed alone, then ever more at a time; nothing is computed for a listener who has stopped asking.
It refuses to speak more texts at a time than its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from plimsoll.reference_server.seams.models import Audio
from plimsoll.reference_server.speech.audio import encode
from plimsoll.reference_server.speech.tones import Unsayable, Utterance, normalise, symbols
from plimsoll.reference_server.values.durations import INFERENCE, PREPROCESS, QUEUE, WARM_UP, Stages, Startup
from plimsoll.reference_server.values.errors import RequestError, shutting_down, unavailable

MIN_RATE, MAX_RATE = 8000, 48_000
MIN_SPEED, MAX_SPEED = 0.25, 4.0
MAX_CHARACTERS = 4096
"""As OpenAI's speech route has it."""
PIECE_S = 0.06
Piece = TypeVar("Piece", Audio, bytes)
_MOST_PIECES = 16


class Synthesiser:
    """A voice whose texts share one thread."""

    def __init__(self, *, name: str = "synthesiser", limit: int = 256) -> None:
        self.name = name
        self.n_speaking = 0
        self._limit = limit
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._stopped = False

    async def speak(
        self, text: str, *, sample_rate: int = 24_000, speed: float = 1.0, stages: Stages | None = None
    ) -> AsyncGenerator[Audio, None]:
        """The text's audio in pieces of PIECE_S; close the iterator (``contextlib.aclosing``) to give up early.

        Raises RequestError at the first piece: 400 for a text, rate or speed that can't be, 503 when too many are being
        spoken; and 503 at any piece when the server stops.
        """
        stages = stages if stages is not None else Stages()
        self._admit()
        self.n_speaking += 1
        try:
            with stages.time(PREPROCESS):
                utterance = _utterance(text, sample_rate, speed)
            piece = max(1, round(PIECE_S * sample_rate))
            at, n_pieces = 0, 1
            while at < utterance.n_samples:
                starts = range(at, min(utterance.n_samples, at + n_pieces * piece), piece)
                for rendered in await self._render(utterance, starts, piece, stages):
                    yield rendered
                at += len(starts) * piece
                n_pieces = min(_MOST_PIECES, 2 * n_pieces)
        finally:
            self.n_speaking -= 1

    async def start(self, startup: Startup) -> None:
        with startup.phase(WARM_UP):
            warm = _utterance("warm", MIN_RATE, 1.0)
            await self._render(warm, range(0, warm.n_samples, 480), 480, Stages())

    async def stop(self) -> None:
        """End; whoever is still being served is told at the next piece."""
        self._stopped = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    async def _render(self, utterance: Utterance, starts: Sequence[int], piece: int, stages: Stages) -> list[Audio]:
        if self._stopped:
            raise shutting_down()
        queued_ns = time.monotonic_ns()

        def work() -> list[Audio]:
            begun_ns = time.monotonic_ns()
            rendered = [utterance.render(start, start + piece) for start in starts]
            stages.add(QUEUE, begun_ns - queued_ns)
            stages.add(INFERENCE, time.monotonic_ns() - begun_ns)
            return rendered

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _admit(self) -> None:
        if self._stopped:
            raise shutting_down()
        if self.n_speaking >= self._limit:
            message = f"{self._limit} texts are being spoken, the most this server speaks at once. Come back later"
            raise unavailable(message, "too_many_streams")


async def encoded(
    model: Synthesiser, text: str, encoding: str, sample_rate: int, speed: float, stages: Stages
) -> AsyncGenerator[bytes, None]:
    """The text's audio in pieces, as bytes. Raises what ``speak`` does; left early, it frees what it holds."""
    async with contextlib.aclosing(model.speak(text, sample_rate=sample_rate, speed=speed, stages=stages)) as pieces:
        async for audio in pieces:
            yield encode(encoding, audio)


async def beginning(first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    """All pieces, where the first was taken already, to see whether the text can be said."""
    yield first
    async for piece in rest:
        yield piece


def _utterance(text: str, sample_rate: int, speed: float) -> Utterance:
    if not MIN_RATE <= sample_rate <= MAX_RATE:
        message = f"sample_rate {sample_rate}: can't be spoken. Ask for {MIN_RATE} to {MAX_RATE} Hz"
        raise RequestError(400, message, param="sample_rate")
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise RequestError(400, f"speed {speed}: choose {MIN_SPEED} to {MAX_SPEED}", param="speed")
    if len(text) > MAX_CHARACTERS:
        message = f"input: {len(text)} characters. At most {MAX_CHARACTERS} are spoken at a time, send it in parts"
        raise RequestError(400, message, param="input", code="string_above_max_length")
    try:
        spelt = normalise(text)
    except Unsayable as error:
        raise RequestError(400, f"input: {error}", param="input", code="unsayable_character") from None
    if not spelt:
        raise RequestError(400, "input: holds nothing that can be said. Send some words", param="input")
    return Utterance(symbols(spelt), sample_rate, speed)
