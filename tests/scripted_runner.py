"""A runner of known costs and no tensors: it stands in for the device wherever the step loop itself is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.values.tokenizer import EOS


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
