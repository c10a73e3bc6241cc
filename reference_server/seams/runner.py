"""The seam between the scheduler and the device: one step on a batch gives the next tokens.

``ScriptedRunner`` has known costs and no tensors; it stands in for the device wherever the step loop itself
is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plimsoll.reference_server.values.tokenizer import EOS


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


class ScriptedRunner:
    """Tokens that follow from the position, at a cost of ``step_s + token_s * tokens`` a step."""

    def __init__(
        self,
        *,
        step_s: float = 0.0,
        token_s: float = 0.0,
        sleep: Callable[[float], None] | None = None,
        fail_on: Callable[[Sequence[Chunk]], bool] | None = None,
    ) -> None:
        self._step_s = step_s
        self._token_s = token_s
        self._sleep = sleep
        self._fail_on = fail_on

    def warm_up(self) -> None:
        """There is nothing to warm."""

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """Letters a..z by position, and the end of the sequence at position 1000 where that is allowed."""
        if self._fail_on is not None and self._fail_on(chunks):
            raise RuntimeError("the script says that this step fails")
        if self._sleep is not None:
            self._sleep(self._step_s + self._token_s * sum(len(chunk.tokens) for chunk in chunks))
        return [_letter(chunk) for chunk in chunks if chunk.sample]

    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """A unit vector along the axis that the length names."""
        return [[1.0 if axis == len(prompt) % 8 else 0.0 for axis in range(8)] for prompt in prompts]


def _letter(chunk: Chunk) -> int:
    position = chunk.start + len(chunk.tokens)
    return EOS if chunk.allow_eos and position >= 1000 else ord("a") + position % 26
