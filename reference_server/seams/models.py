"""The seams between front-ends, models and devices. No torch here.

A front-end asks and a text model plays its answer into a sink; a batch model computes samples side by side; a
recogniser turns audio into words and a synthesiser words into audio; a runner computes one step. Audio is float32 in
[-1, 1], mono; its times are seconds since the first sample of the session, never wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.tensors import Tensor, TensorSpec
from plimsoll.reference_server.values.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Script:
    """What a request says should happen to it. None means: as the server is set. Token positions are -1 for
    never.
    """

    ttft_ns: int | None = None
    itl_ns: int | None = None
    stall_ns: int = 0
    stall_at: int = -1
    tokens_per_event: int = 1
    error_at: int = -1
    cut_at: int = -1
    status: int | None = None
    omit_usage: bool = False
    omit_done: bool = False

    @property
    def needs_timetable(self) -> bool:
        """Does it ask for timing that only the scripted model can keep?"""
        given = self.ttft_ns is not None or self.itl_ns is not None or self.tokens_per_event != 1
        return given or self.stall_ns > 0 or self.stall_at >= 0


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to be continued."""

    prompt: list[int]
    max_new: int
    row: TruthRow
    min_new: int = 0
    ignore_eos: bool = False
    script: Script = field(default_factory=Script)
    priority: int = 0
    """Lower goes first, as vLLM has it."""
    deadline_ns: int = -1
    """Instant of ``time.monotonic_ns()`` after which nobody wants the answer; -1 for none."""
    n_samples: int = 1
    """How many places it takes in a batch of scripted time."""
    stages: Stages = field(default_factory=Stages)
    """Filled by the model: queue and prefill once ``ready``, the rest when the answer has been played."""


@dataclass(frozen=True, slots=True)
class Finish:
    """How an answer ended."""

    reason: str
    n_new: int
    n_cached: int = 0


class Sink(Protocol):
    """Where the tokens of an answer go."""

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """``n_tokens`` more tokens, together ``text``; due at that instant, or -1 where no timetable says so.

        Raises StreamFailure or StreamCut when the script has the answer end here.
        """


class Answer(Protocol):
    """One answer under way."""

    async def ready(self) -> None:
        """Return when the header may be sent: queue and prefill are in the stages of the ask. Raises RequestError."""

    async def play(self, sink: Sink) -> Finish:
        """Put every token into the sink. Raises StreamFailure, and what the sink raises."""

    def close(self) -> None:
        """Give up whatever the answer holds; called once, finished or not."""


class TextModel(Protocol):
    """A model that continues prompts."""

    @property
    def name(self) -> str:
        """What requests call it."""

    @property
    def max_context(self) -> int:
        """Most tokens of a prompt and its continuation together."""

    @property
    def tokenizer(self) -> Tokenizer:
        """How text becomes this model's tokens."""

    def ask(self, ask: Ask) -> Answer:
        """Admit a prompt. Raises RequestError when it is refused."""

    async def embed(
        self, prompts: Sequence[Sequence[int]], script: Script, stages: Stages | None = None
    ) -> list[list[float]]:
        """One unit-length vector per prompt; queue and inference are added to the stages."""


class BatchModel(Protocol):
    """A model whose samples can be computed side by side.

    A request holds one or more samples. ``preprocess`` and ``postprocess`` run per request, in worker threads, several
    at a time; ``forward`` runs in one thread, on samples of several requests. What a sample and a result are is the
    model's own business.
    """

    @property
    def name(self) -> str:
        """What requests call it."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What a request must hold; a leading -1 is the number of samples."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What a reply holds."""

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``forward``."""

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        """The samples of a request whose tensors were checked against ``inputs``; parts are timed as
        ``preprocess.PART``.

        Raises RequestError 400 for contents that are no good (a JPEG that can't be decoded, an index out of range).
        """

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        """One result per sample, in order; parts are timed as ``inference.forward.PART``."""

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        """The reply's tensors from the results of one request; parts are timed as ``postprocess.PART``."""


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

    ``speech_started`` and ``speech_ended`` carry no words and where the speech began or ended. ``partial`` is the
    utterance so far and may change; ``final`` is the whole utterance and does not. ``end_s`` of a partial or final is
    how far the audio had been heard. ``speech_ended`` comes just before its ``final``; speech without a word has none,
    and a very long utterance has several, all but the last without an end.
    """

    kind: Literal["speech_started", "partial", "final", "speech_ended"]
    start_s: float
    end_s: float
    words: tuple[Word, ...] = ()

    @property
    def text(self) -> str:
        """The words with single spaces."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence to be computed in one step.

    ``start`` is the position of the first; ``blocks`` covers all positions up to the last; with ``sample``
    the step also yields the token that follows; without ``allow_eos`` that token is never the end of the
    sequence.
    """

    sequence_id: int
    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    sample: bool
    allow_eos: bool


class Runner(Protocol):
    """Runs steps; called from one thread at a time, never from the event loop's."""

    def warm_up(self) -> None:
        """Pay once-only costs before the first request."""

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """Compute all chunks; the next token of each chunk that has ``sample``, in the order given."""

    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """One unit-length vector per prompt."""
