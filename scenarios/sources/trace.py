"""Trace: prompts of recorded lengths, and of recorded likeness where the recording tells it.

Row i of the trace (in order of time) is sample i: a prompt of its length, asking for an answer of its length. Where
rows have ids of their prompt's blocks (Mooncake's ``hash_ids``, one per 512 tokens) each id has a text of its own, so
that prompts share exactly the prefixes that the recorded ones shared; without ids no two prompts are alike. A recorded
length of 0 is asked for as 1, and an unknown one takes the default; of a log, which knows bytes only, the prompt has
as many. Sample i + n k, of a trace of n rows, is copy k of row i: as long, with other words behind the first
``share_depth`` tokens. A row that has its own words is sent with them.
"""

from dataclasses import dataclass, replace
from operator import not_
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.conversations import Conversations, Picked, history_of
from plimsoll.scenarios.samples.payload import Payload, require_index
from plimsoll.scenarios.samples.prefixes import Chain
from plimsoll.scenarios.samples.recording import Recording, Trace
from plimsoll.scenarios.samples.reshaping import SHARED_TOKENS
from plimsoll.scenarios.samples.traces import Columns, FormatName, Unit, read
from plimsoll.scenarios.samples.words import text
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName


class TraceSource(BaseModel):
    """The same file as ``params.trace`` of kind ``replay``, read the same way."""

    model_config = STRICT
    kind: Literal["trace"] = "trace"
    path: FileName = Field(description="A trace file, or a run directory; relative to the scenario file's folder.")
    format: FormatName = Field(default="auto", description="auto, or a format of recordings.")
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
    copies: int = Field(default=1, ge=1, le=1000, description="As many as `params.load` asks for, rounded up.")
    share_depth: int = Field(
        default=SHARED_TOKENS,
        ge=0,
        description="Copies of a prompt begin alike up to here, in tokens, to whole blocks.",
    )
    tokens_per_word: float = Field(default=1.3, gt=0.1, le=20, description="Of the endpoint's tokenizer, about.")
    added_tokens: int = Field(
        default=0, ge=0, le=100_000, description="What the endpoint adds to each prompt (a template).", exclude_if=not_
    )


@dataclass(frozen=True, slots=True)
class Prompts:
    """Makes each prompt when it is asked for; the same index gives the same prompt."""

    params: TraceSource
    seed: int
    recording: Recording
    by_session: bool = False

    def __len__(self) -> int:
        return len(self.recording) * self.params.copies

    @property
    def shares(self) -> bool:
        """The recording tells what prompts had in common."""
        return (self.recording.blocks or self._grows) and not self.recording.worded

    @property
    def whole(self) -> bool:
        """A turn's prompt contains what its session said before."""
        return self.recording.cumulative

    @property
    def carries(self) -> frozenset[str]:
        """What is in the recording's requests that not every protocol has: messages, tools, priority."""
        return frozenset(self.recording.carries)

    @property
    def _grows(self) -> bool:
        return self.by_session and self.recording.cumulative

    def turns(self, history: str) -> Conversations:
        """By session, each turn as it was recorded. Raises ValueError where it would be sent twice."""
        recording = self.recording
        history_of(recording.cumulative, history)
        session = recording.column("session", 0, len(recording))
        whose = np.where(session < 0, recording.n_sessions + np.arange(len(session)), session)
        order = np.argsort(whose, kind="stable")
        begins = np.flatnonzero(np.append(True, (np.diff(session[order]) != 0) | (session[order][1:] < 0)))
        think = np.maximum(recording.column("think_ns", 0, len(recording))[order], 0)
        think[begins] = 0
        made = replace(self, by_session=True)
        return Conversations(Picked(made, order), np.append(begins, len(order)), think)

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        row, params = self._row(index), self.params
        said = self.recording.said(index % len(self.recording))
        unknown = -1 if params.output_tokens is None else params.output_tokens
        n_out = _length(int(row.n_out[0]), unknown, params.max_output_tokens)
        fields = said.get("fields", {})
        if "messages" in said or "prompt" in said:
            messages, n_in = tuple(said["messages"]) if "messages" in said else None, int(row.n_in[0])
            return Payload(said.get("prompt"), messages, n_in=n_in, max_output_tokens=n_out, fields=fields)
        length, unit = self._length(row)
        texts = [
            self._text(name or f"row {index}", tokens, unit)
            for name, tokens in self._parts(row, max(length - params.added_tokens, 1), index)
        ]
        glue = " " if unit == "tokens" else ""
        n_in = length if unit == params.unit else -1  # a log knows bodies only
        return Payload(prompt=glue.join(texts), n_in=n_in, max_output_tokens=n_out, fields=fields)

    def chain(self, index: int) -> Chain:
        """Its blocks, and what they leave of its length."""
        row = self._row(index)
        return self._parts(row, self._length(row)[0], index)

    def lengths(self, payload_ix: IntArray) -> IntArray:
        """``n_in`` of these."""
        n_in, params = self.recording.lengths(payload_ix % len(self.recording)), self.params
        n_in = np.where(n_in < 0, params.prompt_tokens, np.maximum(n_in, 1))
        return n_in if params.max_prompt_tokens is None else np.minimum(n_in, params.max_prompt_tokens)

    def _row(self, index: int) -> Trace:
        number = index % len(self.recording)
        return self.recording.rows(number, number + 1)

    def _length(self, row: Trace) -> tuple[int, Literal["tokens", "bytes"]]:
        n_in, params = int(row.n_in[0]), self.params
        if n_in < 0 and row.bytes_in is not None and row.bytes_in[0] >= 0:
            return max(int(row.bytes_in[0]), 1), "bytes"
        return _length(n_in, params.prompt_tokens, params.max_prompt_tokens), params.unit

    def _parts(self, row: Trace, length: int, index: int) -> list[tuple[str | None, int]]:
        """So many tokens of a row, by block, or as its session's; blocks of a copy have names of their own behind the
        shared depth.
        """
        copy, size = index // len(self.recording), self.recording.block_tokens
        kept = self.params.share_depth // size
        parts: list[tuple[str | None, int]] = []
        if self._grows and row.blocks is None and row.session is not None and row.session[0] >= 0:
            return [(f"session {row.session[0]} copy {copy}", length)]
        for place, block in enumerate(row.blocks[0] if row.blocks is not None else ()):
            if length <= 0:
                break
            own = f" copy {copy}" if copy and place >= kept else ""
            parts.append((f"block {block}{own}", min(length, size)))
            length -= size
        return [*parts, (None, length)] if length > 0 else parts

    def _text(self, name: str, length: int, unit: Literal["tokens", "bytes"]) -> str:
        return text(child(self.seed, name), length, unit, self.params.tokens_per_word)


def _length(known: int, otherwise: int, most: int | None) -> int:
    length = max(known, 1) if known >= 0 else otherwise
    return length if most is None else min(length, most)


def _build(params: TraceSource, seed: int) -> Prompts:
    recording = read(Path(params.path), "source.path", params.format, params.columns, params.time_unit)
    if recording.knows("images"):
        raise ScenarioError(
            [
                f"source.path: {params.path} has pictures in its prompts, and source trace makes texts only. Give a "
                "source of pictures (image), which takes the times alone, or leave their column out: columns.ignore."
            ]
        )
    return Prompts(params, child(seed, "trace"), recording)


SOURCE = Source(
    name="trace",
    summary="Prompts and answers of recorded lengths, with the prefixes that the recorded ones shared.",
    params=TraceSource,
    build=_build,
    sample_file='{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'
    '{"timestamp": 900, "input_length": 40, "output_length": 8, "hash_ids": [2]}\n',
)
