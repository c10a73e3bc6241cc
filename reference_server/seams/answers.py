"""The seam between front-ends and models: a front-end asks, a model plays its answer into the front-end's
sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.stages import Stages
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
