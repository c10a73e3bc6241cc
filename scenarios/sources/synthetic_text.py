"""Synthetic text: prompts of seeded English words with the lengths you ask for. No two prompts alike, no meaning.

The number of tokens is approximate, because the endpoint's tokenizer is not known: a prompt of N tokens has N /
``tokens_per_word`` words. For a byte-level tokenizer use ``unit: bytes``, where lengths are exact.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.lengths import Length, draw_lengths
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.payload import Payload, require_index
from plimsoll.scenarios.samples.words import text
from plimsoll.scenarios.text.fields import STRICT


class SyntheticText(BaseModel):
    """Lengths are a number or for example {dist: lognormal, mean: 200, stdev: 100, max: 2000}."""

    model_config = STRICT
    kind: Literal["synthetic_text"] = "synthetic_text"
    prompt_tokens: Length = Field(default=200, description="Prompt length, in units of `unit`.")
    output_tokens: Length | None = Field(default=64, description="Tokens to ask for; null leaves it to the server.")
    count: int = Field(default=512, ge=1, le=1_000_000, description="How many different prompts.")
    shared_prefix_tokens: int = Field(default=0, ge=0, le=10_000_000, description="Every prompt starts with these.")
    unit: Literal["tokens", "bytes"] = Field(default="tokens", description="bytes: prompt lengths are exact bytes.")
    tokens_per_word: float = Field(default=1.3, gt=0.1, le=20, description="Of the endpoint's tokenizer, about.")


@dataclass(frozen=True, slots=True)
class _Texts:
    """Makes each prompt when it is asked for; the same index gives the same prompt."""

    params: SyntheticText
    seed: int
    prompt_lengths: IntArray
    output_lengths: IntArray

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        length = int(self.prompt_lengths[index])
        shared = min(self.params.shared_prefix_tokens, length)
        prefix = self._text("prefix", shared)
        own = self._text(f"prompt {index}", length - shared)
        glue = " " if prefix and own and self.params.unit == "tokens" else ""
        return Payload(prompt=prefix + glue + own, n_in=length, max_output_tokens=int(self.output_lengths[index]))

    def _text(self, name: str, length: int) -> str:
        if not length:
            return ""
        made = text(child(self.seed, name), length, self.params.unit, self.params.tokens_per_word)
        return made[:-1] + "." if made.endswith(" ") else made


def _build(params: SyntheticText, seed: int) -> _Texts:
    seed = child(seed, "synthetic_text")
    prompts = draw_lengths(params.prompt_tokens, child(seed, "prompt lengths"), params.count)
    if params.output_tokens is None:
        outputs = np.full(params.count, -1)
    else:
        outputs = draw_lengths(params.output_tokens, child(seed, "output lengths"), params.count)
    return _Texts(params, seed, prompts, outputs)


SOURCE = Source(
    name="synthetic_text",
    summary="Prompts of seeded English words, with fixed or random lengths.",
    params=SyntheticText,
    build=_build,
)
