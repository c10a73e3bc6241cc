"""Which tokens of which sequences are computed in the next step: continuous batching. Pure: instants are arguments.

A step takes one token of every sequence that is decoding, then fills a fixed budget with pieces of prompts; when blocks
run out the last in rank gives its own back and is recomputed later. Rank is the instant of arrival plus ``ageing_ns``
for each level of priority and never changes: the first in rank is never sent back, so nobody starves.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plimsoll.reference_server.engine.kv_blocks import KvBlocks, OutOfBlocks
from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.values.tokenizer import EOS

LEAST = 8
"""Departures that make a rate."""
_WINDOW = 64
_RETRY_S = range(1, 61)
_SURE = 2.0
"""A deadline is out of reach when it would be missed even by a queue that drains so many times faster than measured."""
PRIORITIES = range(-100, 101)
"""Levels there are. A bound, since a level without one could buy any amount of waiting."""
AGEING_NS = 1_000_000_000


class Drain:
    """The departures of the present spell of queueing."""

    def __init__(self) -> None:
        self._departed_ns: deque[int] = deque(maxlen=_WINDOW)

    def departed(self, now_ns: int, *, n_waiting: int) -> None:
        """Somebody's answer ended while ``n_waiting`` others waited; without any, what was measured is history."""
        if n_waiting == 0:
            self._departed_ns.clear()
        else:
            self._departed_ns.append(now_ns)

    def wait_s(self, n: int, now_ns: int) -> float | None:
        """How long ``n`` departures take at the measured rate; None while that is unknown."""
        if len(self._departed_ns) < LEAST:
            return None
        # Up to now, not to the last departure: a queue that stands still gets slower by the minute.
        span_s = max(now_ns - self._departed_ns[0], 1) / 1e9
        return n * span_s / (len(self._departed_ns) - 1)

    def retry_after_s(self, n_waiting: int, now_ns: int) -> int:
        """When those who wait now will have been served: whole seconds, from 1 to 60; 1 while the rate is unknown."""
        wait_s = self.wait_s(n_waiting, now_ns)
        if wait_s is None:
            return _RETRY_S[0]
        return min(max(math.ceil(wait_s), _RETRY_S[0]), _RETRY_S[-1])

    def too_late(self, n_ahead: int, deadline_ns: int, now_ns: int) -> bool:
        """Would ``n_ahead`` who are served first make the deadline pass, even at twice the measured rate?"""
        if deadline_ns < 0 or n_ahead == 0:
            return False
        wait_s = self.wait_s(n_ahead, now_ns)
        return wait_s is not None and wait_s / _SURE > (deadline_ns - now_ns) / 1e9


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
    priority: int = 0
    queued_ns: int = 0
    """When it came."""
    deadline_ns: int = -1
    """When it is of no use any more; -1 for never."""
    n_prompt: int = field(init=False)
    n_computed: int = 0
    n_cached: int = 0
    n_preempted: int = 0
    waiting_ns: int = field(init=False)
    """Since when it waits, while it waits."""
    queue_ns: int = 0
    """How long it has waited in all, the time after being sent back included."""
    rank: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.n_prompt = len(self.tokens)
        self.waiting_ns = self.queued_ns
        self.rank = (self.queued_ns, self.sequence_id)

    @property
    def n_new(self) -> int:
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


def _rank(generation: Generation) -> tuple[int, int]:
    return generation.rank


class Scheduler:
    """Waiting and running sequences, both in order of rank, and the plan of each step."""

    def __init__(
        self,
        blocks: KvBlocks,
        *,
        max_batch: int,
        queue_limit: int,
        max_context: int,
        step_tokens: int = 256,
        chunked_prefill: bool = True,
        continuous: bool = True,
        kv_cache: str = "paged",
        eos: frozenset[int] = frozenset({EOS}),
        ageing_ns: int = AGEING_NS,
    ) -> None:
        """Without ``chunked_prefill`` prompts are computed whole, in steps of their own; without ``continuous`` nobody
        joins a batch that runs: the next one begins when the last member of this one has ended. ``kv_cache``: ``paged``
        gives blocks as tokens come; ``asked`` keeps room from the start for the prompt and all tokens asked for,
        ``longest`` for a whole context.
        """
        if min(max_batch, max_context, step_tokens) < 1 or queue_limit < 0:
            raise ValueError("max_batch, max_context and step_tokens must be at least 1, queue_limit at least 0")
        self.blocks = blocks
        self.max_batch = max_batch
        self.queue_limit = queue_limit
        self.max_context = min(max_context, blocks.n_blocks * blocks.block_size)
        self.step_tokens = step_tokens
        self.chunked_prefill = chunked_prefill
        self.continuous = continuous
        self._kv_cache = kv_cache
        self._kv_waste = 0.0
        self._roster: set[int] = set()
        """Of a batch that runs to its end: who belongs to it."""
        self.eos = eos
        self.ageing_ns = ageing_ns
        self.before_plan: Callable[[int], None] | None = None
        """Called with the instant of each plan just before it is made: it may change what the plan goes by."""
        self.n_preempted = 0
        self.n_cached = 0
        self._waiting: list[Generation] = []
        self._running: list[Generation] = []

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def kv_waste(self) -> float:
        """Of the cells that sequences held after the last step: the share in which there is nothing, yet or ever. Any
        thread may ask.
        """
        return self._kv_waste if self._running else 0.0

    def waiting_since_ns(self) -> int:
        """Since when the one waits that waits longest; -1 when nobody does."""
        return min((generation.waiting_ns for generation in self._waiting), default=-1)

    def n_ahead(self, priority: int, queued_ns: int) -> int:
        """How many of those who wait go before a newcomer and have no place in the next step."""
        rank_ns = queued_ns + priority * self.ageing_ns
        return self._kept(self._waiting[: bisect_right(self._waiting, rank_ns, key=lambda waiting: waiting.rank[0])])

    @property
    def n_kept(self) -> int:
        """How many wait for want of room, and not just for the next step."""
        return self._kept(self._waiting)

    def submit(self, generation: Generation) -> None:
        """Queue a sequence. Raises TooLong or QueueFull."""
        if not generation.tokens or generation.max_new < 1:
            raise ValueError("a sequence needs at least one prompt token and one token to generate")
        if generation.priority not in PRIORITIES:
            raise ValueError(f"priority {generation.priority}: choose from {PRIORITIES[0]} to {PRIORITIES[-1]}")
        if len(generation.tokens) + generation.max_new > self.max_context:
            raise TooLong
        generation.rank = (generation.queued_ns + generation.priority * self.ageing_ns, generation.sequence_id)
        if self._would_wait(generation) > self.queue_limit:
            raise QueueFull
        insort(self._waiting, generation, key=_rank)

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

    def expire(self, now_ns: int) -> list[int]:
        """Forget all whose deadline has passed, waiting or running, and free their blocks; who they were."""
        late = [g.sequence_id for g in (*self._running, *self._waiting) if 0 <= g.deadline_ns <= now_ns]
        for sequence_id in late:
            self.cancel(sequence_id)
        return late

    def plan(self, now_ns: int = 0) -> list[Chunk]:
        """Chunks of the next step, at most one per sequence; empty only when there is nothing to do."""
        if self.before_plan is not None:
            self.before_plan(now_ns)
        if not self.continuous and not self._running:
            self._roster = {generation.sequence_id for generation in self._waiting[: self.max_batch]}
        if not self.chunked_prefill:
            chunks = self._plan_whole_prompts(now_ns)
            return chunks or self._plan_decodes(now_ns)
        chunks = self._plan_decodes(now_ns)
        # Prompts get what decoding left of the budget, and always something, so that neither can starve the
        # other.
        budget = max(self.step_tokens - len(chunks), min(self.step_tokens, self.blocks.block_size))
        for generation in self._running:
            if budget > 0 and generation.remaining > 1:
                budget -= self._add(chunks, generation, budget)
        while budget > 0 and (admitted := self._admit(now_ns)) is not None:
            budget -= self._add(chunks, admitted, budget)
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
        held = sum(len(self.blocks.table(g.sequence_id)) for g in self._running) * self.blocks.block_size
        self._kv_waste = 1 - sum(g.n_computed for g in self._running) / held if held else 0.0
        return emissions

    def _extend(self, generation: Generation, token: int) -> Emission:
        generation.tokens.append(token)
        finish = ""
        if token in self.eos and not generation.ignore_eos:
            token, finish = -1, "stop"
        elif generation.n_new >= generation.max_new:
            finish = "length"
        if finish:
            self.cancel(generation.sequence_id)
        return Emission(generation.sequence_id, token, finish)

    def _plan_whole_prompts(self, now_ns: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        budget = self.step_tokens
        for generation in self._running:  # begun in pieces, before prompts were to be whole
            if generation.remaining > 1:
                budget -= self._add(chunks, generation, generation.remaining)
        while budget > 0 and (admitted := self._admit(now_ns)) is not None:
            budget -= self._add(chunks, admitted, admitted.remaining)
        return chunks

    def _plan_decodes(self, now_ns: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        size = self.blocks.block_size
        place = 0
        while place < len(self._running):  # in order of rank, so a victim has never been planned already
            generation = self._running[place]
            place += 1
            start = generation.n_computed
            if start == 0 or len(generation.tokens) - start != 1:
                continue
            # Only a token that begins a block needs room; asking for each would double the time between two steps.
            if start % size == 0 and not self._make_room(generation, now_ns):
                continue
            chunks.append(self._chunk(generation, start, 1))
        return chunks

    def _make_room(self, generation: Generation, now_ns: int) -> bool:
        """Room for its next token, taken from the last in rank where there is none; False when that is itself."""
        while True:
            try:
                self.blocks.grow(generation.sequence_id, len(generation.tokens))
            except OutOfBlocks:
                if self._preempt_last(now_ns) is generation:
                    return False
            else:
                return True

    def _preempt_last(self, now_ns: int) -> Generation:
        victim = self._running.pop()
        self.blocks.close(victim.sequence_id)
        victim.n_computed = 0
        victim.n_preempted += 1
        victim.waiting_ns = now_ns
        self.n_preempted += 1
        insort(self._waiting, victim, key=_rank)
        return victim

    def _would_wait(self, newcomer: Generation) -> int:
        """How many would wait with the newcomer after the next step's admissions; only these count as queued."""
        place = bisect_right(self._waiting, newcomer.rank, key=_rank)
        return self._kept([*self._waiting[:place], newcomer, *self._waiting[place:]])

    def _kept(self, queue: Sequence[Generation]) -> int:
        closed = not self.continuous and bool(self._running)
        n_running, room = self.max_batch if closed else len(self._running), self.blocks.available
        for position, generation in enumerate(queue):
            need = self.blocks.blocks_for(self._room(generation))
            if n_running >= self.max_batch or need + self._spare(n_running) > room:
                return len(queue) - position
            n_running += 1
            room -= need
        return 0

    def _room(self, generation: Generation) -> int:
        """Tokens that a sequence gets blocks for when it is admitted."""
        if self._kv_cache == "paged":
            return len(generation.tokens)
        return generation.n_prompt + generation.max_new if self._kv_cache == "asked" else self.max_context

    def _spare(self, n_running: int) -> int:
        """One spare block for each running sequence that grows: without it a newcomer is sent back at the next step."""
        return n_running if self._kv_cache == "paged" else 0

    def _admit(self, now_ns: int) -> Generation | None:
        if not self._waiting or len(self._running) >= self.max_batch:
            return None
        generation = self._waiting[0]
        if not self.continuous and generation.sequence_id not in self._roster:
            return None
        try:
            spare, room = self._spare(len(self._running)), self._room(generation)
            cached = self.blocks.open(generation.sequence_id, generation.tokens, reserve=spare, room=room)
        except OutOfBlocks:
            return None
        del self._waiting[0]
        generation.queue_ns += max(0, now_ns - generation.waiting_ns)
        generation.n_computed = cached
        if generation.n_preempted == 0:
            generation.n_cached = cached
            self.n_cached += cached
        insort(self._running, generation, key=_rank)
        return generation

    def _add(self, chunks: list[Chunk], generation: Generation, budget: int) -> int:
        n = min(generation.remaining, budget)
        chunks.append(self._chunk(generation, generation.n_computed, n))
        return n

    def _chunk(self, generation: Generation, start: int, n: int) -> Chunk:
        tokens, sequence_id = generation.tokens, generation.sequence_id
        return Chunk(
            sequence_id,
            tokens[start : start + n],
            start,
            self.blocks.table(sequence_id),
            start + n == len(tokens),
            not generation.ignore_eos and len(tokens) - generation.n_prompt >= generation.min_new,
        )
