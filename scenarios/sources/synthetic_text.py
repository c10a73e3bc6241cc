"""Synthetic text: prompts of seeded English words with the lengths you ask for, and no meaning.

No two prompts are alike, unless ``shared`` gives groups of them one beginning or ``repeat`` has some sent again as a
whole.

The number of tokens is approximate, because the endpoint's tokenizer is not known: a prompt of N tokens has N /
``tokens_per_word`` words (``--calibrate-tokens`` measures that number). For a byte-level tokenizer use ``unit: bytes``,
where lengths are exact.
"""

from dataclasses import dataclass
from operator import not_
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.plan.lengths import Length, draw_lengths
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.payload import Payload, require_index
from plimsoll.scenarios.samples.prefixes import UNIFORM, Chain, Popularity, Shared, drawn, originals
from plimsoll.scenarios.samples.words import marked, text
from plimsoll.scenarios.text.fields import STRICT


class SyntheticText(BaseModel):
    """Lengths are a number or for example {dist: lognormal, mean: 200, stdev: 100, max: 2000}."""

    model_config = STRICT
    kind: Literal["synthetic_text"] = "synthetic_text"
    prompt_tokens: Length = Field(default=200, description="Prompt length, in units of `unit`.")
    output_tokens: Length | None = Field(default=64, description="Tokens to ask for; null leaves it to the server.")
    count: int = Field(default=512, ge=1, le=1_000_000, description="How many different prompts.")
    shared_prefix_tokens: int = Field(default=0, ge=0, le=10_000_000, description="Every prompt starts with these.")
    shared: Shared | None = Field(
        default=None,
        description="Beginnings that prompts share: {groups: 20, tokens: 2000, popularity: zipf 1.1}; null: none.",
        exclude_if=not_,
    )
    repeat: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the prompts that are copies of others.", exclude_if=not_
    )
    repeat_popularity: Popularity = Field(
        default=UNIFORM, description="Of what is copied: uniform, or zipf S.", exclude_if=UNIFORM.__eq__
    )
    bust: bool = Field(
        default=False, description="A marker of its own begins each prompt, in place of as much text.", exclude_if=not_
    )
    unit: Literal["tokens", "bytes"] = Field(default="tokens", description="bytes: prompt lengths are exact bytes.")
    tokens_per_word: float = Field(default=1.3, gt=0.1, le=20, description="Of the endpoint's tokenizer, about.")
    added_tokens: int = Field(
        default=0, ge=0, le=100_000, description="What the endpoint adds to each prompt (a template).", exclude_if=not_
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        sharing = [name for name in ("shared", "shared_prefix_tokens", "repeat") if getattr(self, name)]
        if self.bust and sharing:
            raise ValueError(f"bust lets no two prompts begin alike, and {sharing[0]} does. Keep one of them")
        if "shared" in sharing and "shared_prefix_tokens" in sharing:
            raise ValueError("shared and shared_prefix_tokens are both given. Keep shared, which has groups")
        return self


@dataclass(frozen=True, slots=True)
class _Texts:
    """Makes each prompt when it is asked for; the same index gives the same prompt. ``groups``: of each sample, whose
    beginning it has; ``originals``: whose prompt.
    """

    params: SyntheticText
    seed: int
    prompt_lengths: IntArray
    output_lengths: IntArray
    groups: IntArray
    originals: IntArray

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def shares(self) -> bool:
        """Prompts begin alike on purpose."""
        return bool(self.params.shared or self.params.shared_prefix_tokens or self.params.repeat)

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        (_, shared), (_, own) = self.chain(index)
        params, original = self.params, int(self.originals[index])
        group = int(self.groups[original])
        prefix = self._text(f"prefix {group}" if group else "prefix", shared)
        tail = self._text(f"prompt {original}", max(own - params.added_tokens, min(own, 1)))
        glue = " " if prefix and tail and params.unit == "tokens" else ""
        prompt = prefix + glue + tail
        if params.bust:
            prompt = marked(prompt, child(self.seed, f"marker {index}"))
        return Payload(prompt=prompt, n_in=shared + own, max_output_tokens=int(self.output_lengths[original]))

    def chain(self, index: int) -> Chain:
        """What it has in common with its group, and the rest."""
        params, original = self.params, int(self.originals[index])
        own = int(self.prompt_lengths[original])
        shared = min(params.shared_prefix_tokens, own) if params.shared is None else params.shared.tokens
        own -= shared if params.shared is None else 0
        return (("group", int(self.groups[original])), shared), (original if params.repeat else None, own)

    def lengths(self, payload_ix: IntArray) -> IntArray:
        """``n_in`` of these."""
        in_front = 0 if self.params.shared is None else self.params.shared.tokens
        return self.prompt_lengths[self.originals[payload_ix]] + in_front

    def _text(self, name: str, length: int) -> str:
        if not length:
            return ""
        made = text(child(self.seed, name), length, self.params.unit, self.params.tokens_per_word)
        return made[:-1] + "." if made.endswith(" ") else made


def _build(params: SyntheticText, seed: int) -> _Texts:
    seed, n = child(seed, "synthetic_text"), params.count
    prompts = draw_lengths(params.prompt_tokens, child(seed, "prompt lengths"), n)
    if params.output_tokens is None:
        outputs = np.full(n, -1)
    else:
        outputs = draw_lengths(params.output_tokens, child(seed, "output lengths"), n)
    shared = params.shared or Shared(tokens=1)
    groups = drawn(shared.popularity, shared.groups, child(seed, "groups"), n)
    return _Texts(params, seed, prompts, outputs, groups, originals(params.repeat, params.repeat_popularity, seed, n))


SOURCE = Source(
    name="synthetic_text",
    summary="Prompts of seeded English words, with fixed or random lengths.",
    params=SyntheticText,
    build=_build,
)
