"""Which tokens of which sequences are computed in the next step: continuous batching. Pure: no torch, no
clock, no I/O.

A step takes one token of every sequence that is decoding, then fills a fixed token budget with pieces of
prompts (chunked prefill), so a long prompt slows decoding by a bounded amount and never stops it. Sequences
are served first come, first served; nobody overtakes at admission. When blocks run out the youngest sequence
gives its own back and is recomputed later; the oldest therefore always finishes, and so in turn does
everyone. It refuses work that could never finish: a sequence must fit into the whole cache on its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reference_server.kv_blocks import KvBlocks, OutOfBlocks
from reference_server.runner import Chunk
from reference_server.tokenizer import EOS


class QueueFull(Exception):
    """The waiting queue has reached its limit."""


class TooLong(Exception):
    """The sequence can't fit into the context or into the cache, even alone."""


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence on its way: its tokens so far and how many of them have been computed."""

    sequence_id: int
    tokens: list[int]
    max_new: int
    min_new: int = 0
    ignore_eos: bool = False
    n_prompt: int = field(init=False)
    n_computed: int = 0
    n_cached: int = 0
    n_preempted: int = 0

    def __post_init__(self) -> None:
        self.n_prompt = len(self.tokens)

    @property
    def n_new(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.n_prompt

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are still to be computed; 1 while decoding."""
        return len(self.tokens) - self.n_computed


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step gave one sequence: a token (or -1 for none) and why it ended ("" while it goes on)."""

    sequence_id: int
    token: int
    finish: str


class Scheduler:
    """Waiting and running sequences, and the plan of each step."""

    def __init__(
        self,
        blocks: KvBlocks,
        *,
        max_batch: int,
        queue_limit: int,
        max_context: int,
        step_tokens: int = 256,
    ) -> None:
        if min(max_batch, max_context, step_tokens) < 1 or queue_limit < 0:
            raise ValueError("max_batch, max_context and step_tokens must be at least 1, queue_limit at least 0")
        self.blocks = blocks
        self.max_batch = max_batch
        self.queue_limit = queue_limit
        self.max_context = min(max_context, blocks.n_blocks * blocks.block_size)
        self.step_tokens = step_tokens
        self.n_preempted = 0
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []

    @property
    def n_waiting(self) -> int:
        """Sequences not yet admitted, or sent back."""
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        """Sequences that own blocks."""
        return len(self._running)

    def submit(self, generation: Generation) -> None:
        """Queue a sequence. Raises TooLong or QueueFull."""
        if not generation.tokens or generation.max_new < 1:
            raise ValueError("a sequence needs at least one prompt token and one token to generate")
        if len(generation.tokens) + generation.max_new > self.max_context:
            raise TooLong
        if self._would_wait(generation) > self.queue_limit:
            raise QueueFull
        self._waiting.append(generation)

    def cancel(self, sequence_id: int) -> bool:
        """Forget a sequence and free its blocks at once; False when it isn't (or no longer) here."""
        for generation in self._running:
            if generation.sequence_id == sequence_id:
                self._running.remove(generation)
                self.blocks.close(sequence_id)
                return True
        for generation in self._waiting:
            if generation.sequence_id == sequence_id:
                self._waiting.remove(generation)
                return True
        return False

    def plan(self) -> list[Chunk]:
        """Chunks of the next step, at most one per sequence; empty only when there is nothing to do."""
        chunks = self._plan_decodes()
        # Prompts get what decoding left of the budget, and always something, so that neither can starve the
        # other.
        budget = max(self.step_tokens - len(chunks), min(self.step_tokens, self.blocks.block_size))
        for generation in self._running:
            if generation.remaining > 1 and budget > 0:
                budget -= self._add(chunks, generation, budget)
        while budget > 0 and self._admit():
            budget -= self._add(chunks, self._running[-1], budget)
        return chunks

    def commit(self, chunks: Sequence[Chunk], tokens: Sequence[int]) -> list[Emission]:
        """Take in a step's result; sequences cancelled meanwhile are passed over. Finished ones give back
        their blocks.
        """
        running = {generation.sequence_id: generation for generation in self._running}
        emissions = []
        sampled = iter(tokens)
        for chunk in chunks:
            token = next(sampled) if chunk.sample else -1
            generation = running.get(chunk.sequence_id)
            if generation is None:
                continue
            generation.n_computed += len(chunk.tokens)
            self.blocks.publish(chunk.sequence_id, generation.tokens, generation.n_computed)
            if chunk.sample:
                emissions.append(self._extend(generation, token))
        return emissions

    def _extend(self, generation: Generation, token: int) -> Emission:
        generation.tokens.append(token)
        finish = ""
        if token == EOS and not generation.ignore_eos:
            token, finish = -1, "stop"
        elif generation.n_new >= generation.max_new:
            finish = "length"
        if finish:
            self.cancel(generation.sequence_id)
        return Emission(generation.sequence_id, token, finish)

    def _plan_decodes(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for generation in list(self._running):  # oldest first, so a victim has never been planned already
            if generation.n_computed == 0 or generation.remaining > 1:
                continue
            while generation in self._running:
                try:
                    self.blocks.grow(generation.sequence_id, len(generation.tokens))
                except OutOfBlocks:
                    self._preempt_youngest()
                else:
                    self._add(chunks, generation, 1)
                    break
        return chunks

    def _preempt_youngest(self) -> None:
        victim = self._running.pop()
        self.blocks.close(victim.sequence_id)
        victim.n_computed = 0
        victim.n_preempted += 1
        self.n_preempted += 1
        self._waiting.appendleft(victim)  # it is older than all who wait: running is in order of arrival

    def _would_wait(self, newcomer: Generation) -> int:
        """How many would wait with the newcomer after the next step's admissions; only these count as queued."""
        n_running, room = len(self._running), self.blocks.available
        queue = [*self._waiting, newcomer]
        for position, generation in enumerate(queue):
            need = self.blocks.blocks_for(len(generation.tokens))
            if n_running >= self.max_batch or need + n_running > room:
                return len(queue) - position
            n_running += 1
            room -= need
        return 0

    def _admit(self) -> bool:
        if not self._waiting or len(self._running) >= self.max_batch:
            return False
        generation = self._waiting[0]
        try:
            # One spare block for each running sequence: without it a newcomer is sent back at the next step.
            cached = self.blocks.open(generation.sequence_id, generation.tokens, reserve=len(self._running))
        except OutOfBlocks:
            return False
        self._waiting.popleft()
        generation.n_computed = cached
        generation.n_cached = max(generation.n_cached, cached) if generation.n_preempted == 0 else generation.n_cached
        self._running.append(generation)
        return True

    def _add(self, chunks: list[Chunk], generation: Generation, budget: int) -> int:
        n = min(generation.remaining, budget)
        start = generation.n_computed
        chunks.append(
            Chunk(
                sequence_id=generation.sequence_id,
                tokens=generation.tokens[start : start + n],
                start=start,
                blocks=self.blocks.table(generation.sequence_id),
                sample=n == generation.remaining,
                allow_eos=not generation.ignore_eos and generation.n_new >= generation.min_new,
            )
        )
        return n
