"""The seam between speech models and front-ends: audio in, what was heard out; text in, audio out. No torch here.

Audio is float32 in [-1, 1], mono. Times are seconds of audio since the session's first sample, never wall time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.values.stages import Stages
from plimsoll.reference_server.values.startup import Startup

Audio = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Word:
    """One word and where it lies in the audio."""

    text: str
    start_s: float
    end_s: float
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Heard:
    """One thing that a listener has to say.

    ``speech_started`` and ``speech_ended`` carry no words and where the speech began or ended. ``partial`` is the utterance so far and may
    change; ``final`` is the whole utterance and does not. ``end_s`` of a partial or final is how far the audio had been heard. ``speech_ended``
    comes just before its ``final``; speech without a word has none, and a very long utterance has several, all but the last without an end.
    """

    kind: Literal["speech_started", "partial", "final", "speech_ended"]
    start_s: float
    end_s: float
    words: tuple[Word, ...] = ()

    @property
    def text(self) -> str:
        """The words with single spaces."""
        return " ".join(word.text for word in self.words)


class Listener(Protocol):
    """One stream of audio being listened to. Calls are made one after the other."""

    @property
    def stages(self) -> Stages:
        """Where the time went so far: queue, preprocess (resampling), inference, postprocess (words)."""

    async def feed(self, audio: Audio) -> Sequence[Heard]:
        """Hear more audio; what there is to say now, in order."""

    async def flush(self) -> Sequence[Heard]:
        """End the utterance under way, if any, with a final; the stream goes on."""

    async def finish(self) -> Sequence[Heard]:
        """The audio is over: whatever is still to be said."""

    def close(self) -> None:
        """Give up whatever the stream holds; finished or not; harmless when repeated."""


class Recogniser(Protocol):
    """A model that listens."""

    @property
    def name(self) -> str:
        """What requests call it."""

    def listen(
        self, sample_rate: int, *, interim: bool = True, endpointing_ms: int = 300, single_utterance: bool = False
    ) -> Listener:
        """Start a stream; ``endpointing_ms`` of silence end an utterance; ``single_utterance``: only ``finish`` and ``flush`` do.

        Raises RequestError: 400 for a sample rate that can't be heard, 503 when too many streams are open.
        """

    async def start(self, startup: Startup) -> None:
        """Warm up (a phase of ``startup``), then begin to serve."""

    async def stop(self) -> None:
        """End; whoever is still being served is told (RequestError 503)."""


class Synthesiser(Protocol):
    """A model that speaks."""

    @property
    def name(self) -> str:
        """What requests call it."""

    def speak(
        self, text: str, *, sample_rate: int = 24_000, speed: float = 1.0, stages: Stages | None = None
    ) -> AsyncIterator[Audio]:
        """The text's audio in pieces, each as soon as it is ready, faster than it plays; ``contextlib.aclosing`` gives up early.

        Raises RequestError before the first piece: 400 for text that is empty, too long or has characters that can't be said,
        503 when too many are being spoken.
        """

    async def start(self, startup: Startup) -> None:
        """Warm up (a phase of ``startup``), then begin to serve."""

    async def stop(self) -> None:
        """End; whoever is still being served is told (RequestError 503)."""
