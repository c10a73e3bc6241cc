"""Trace: prompts of recorded lengths, and of recorded likeness where the recording tells it.

Row i of the trace (in order of time) is sample i: a prompt of its length, asking for an answer of its length. Where
rows have ids of their prompt's blocks (Mooncake's ``hash_ids``, one per 512 tokens) each id has a text of its own, so
that prompts share exactly the prefixes that the recorded ones shared; without ids no two prompts are alike. A recorded
length of 0 is asked for as 1, and an unknown one takes the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.payload import Payload, require_index
from plimsoll.scenarios.samples.prefixes import Chain
from plimsoll.scenarios.samples.recording import Recording, Trace
from plimsoll.scenarios.samples.traces import BLOCK_TOKENS, Columns, Format, Unit, read
from plimsoll.scenarios.samples.words import text
from plimsoll.scenarios.text.fields import STRICT, FileName


class TraceSource(BaseModel):
    """The same file as ``params.trace`` of kind ``replay``, read the same way."""

    model_config = STRICT
    kind: Literal["trace"] = "trace"
    path: FileName = Field(description="A trace file, or a run directory; relative to the scenario file's folder.")
    format: Format = Field(default="auto", description="auto, mooncake, azure, jsonl, csv or run.")
    columns: Columns = Field(default_factory=Columns, description="Names of the columns, of formats jsonl and csv.")
    time_unit: Unit = Field(default="s", description="Unit of a time that is a number, of jsonl and csv.")
    prompt_tokens: int = Field(
        default=200, ge=1, le=10_000_000, description="Length of prompts whose length is unknown."
    )
    output_tokens: int | None = Field(
        default=None, ge=1, le=10_000_000, description="Tokens to ask for where unknown; null leaves it to the server."
    )
    max_prompt_tokens: int | None = Field(default=None, ge=1, description="Longer prompts are cut to this.")
    max_output_tokens: int | None = Field(default=None, ge=1, description="Longer answers are asked for as this.")
    unit: Literal["tokens", "bytes"] = Field(default="tokens", description="bytes: prompt lengths are exact bytes.")
    tokens_per_word: float = Field(default=1.3, gt=0.1, le=20, description="Of the endpoint's tokenizer, about.")
    added_tokens: int = Field(
        default=0, ge=0, le=100_000, description="What the endpoint adds to each prompt (a template).", exclude_if=not_
    )


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Makes each prompt when it is asked for; the same index gives the same prompt."""

    params: TraceSource
    seed: int
    recording: Recording

    def __len__(self) -> int:
        return len(self.recording)

    @property
    def shares(self) -> bool:
        """The recording tells what prompts had in common."""
        return self.recording.blocks

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        row, params = self.recording.rows(index, index + 1), self.params
        length = self._length(row)
        texts = [
            self._text(f"row {index}" if block is None else f"block {block}", tokens)
            for block, tokens in _parts(row, max(length - params.added_tokens, 1))
        ]
        unknown = -1 if params.output_tokens is None else params.output_tokens
        n_out = _length(int(row.n_out[0]), unknown, params.max_output_tokens)
        glue = " " if params.unit == "tokens" else ""
        return Payload(prompt=glue.join(texts), n_in=length, max_output_tokens=n_out)

    def chain(self, index: int) -> Chain:
        """Its blocks, and what they leave of its length."""
        row = self.recording.rows(index, index + 1)
        return _parts(row, self._length(row))

    def lengths(self, payload_ix: IntArray) -> IntArray:
        """``n_in`` of these."""
        n_in, params = self.recording.lengths(payload_ix), self.params
        n_in = np.where(n_in < 0, params.prompt_tokens, np.maximum(n_in, 1))
        return n_in if params.max_prompt_tokens is None else np.minimum(n_in, params.max_prompt_tokens)

    def _length(self, row: Trace) -> int:
        return _length(int(row.n_in[0]), self.params.prompt_tokens, self.params.max_prompt_tokens)

    def _text(self, name: str, length: int) -> str:
        return text(child(self.seed, name), length, self.params.unit, self.params.tokens_per_word)


def _parts(row: Trace, length: int) -> Chain:
    """So many tokens of a row, by block."""
    parts: list[tuple[int | None, int]] = []
    for block in row.blocks[0] if row.blocks is not None else ():
        if length > 0:
            parts.append((block, min(length, BLOCK_TOKENS)))
        length -= BLOCK_TOKENS
    return [*parts, (None, length)] if length > 0 else parts


def _length(known: int, otherwise: int, most: int | None) -> int:
    length = max(known, 1) if known >= 0 else otherwise
    return length if most is None else min(length, most)


def _build(params: TraceSource, seed: int) -> _Prompts:
    recording = read(Path(params.path), "source.path", params.format, params.columns, params.time_unit)
    return _Prompts(params, child(seed, "trace"), recording)


SOURCE = Source(
    name="trace",
    summary="Prompts and answers of recorded lengths, with the prefixes that the recorded ones shared.",
    params=TraceSource,
    build=_build,
    sample_file='{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'
    '{"timestamp": 900, "input_length": 40, "output_length": 8, "hash_ids": [2]}\n',
)
