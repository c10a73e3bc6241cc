"""The language model as front-ends see it: the engine's tokens as text, its refusals as replies. No tensors
here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from reference_server.answers import Ask, Finish, Script, Sink
from reference_server.engine import Engine, Step, Ticket
from reference_server.errors import RequestError, StreamFailure
from reference_server.scheduler import QueueFull, TooLong
from reference_server.stages import DECODE, PREFILL, QUEUE, Stages
from reference_server.tokenizer import Bytes, Decoding, Tokenizer


class LanguageModel:
    """An engine behind the model seam."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer | None = None) -> None:
        self.engine = engine
        self.tokenizer: Tokenizer = tokenizer or Bytes()

    @property
    def name(self) -> str:
        """What requests call it."""
        return "llm"

    @property
    def max_context(self) -> int:
        """Most tokens of a prompt and its continuation together."""
        return self.engine.scheduler.max_context

    def ask(self, ask: Ask) -> EngineAnswer:
        """Queue a prompt. Raises RequestError: 400 when it is too long, 503 when the queue is full."""
        try:
            ticket = self.engine.submit(ask.prompt, max_new=ask.max_new, min_new=ask.min_new, ignore_eos=ask.ignore_eos)
        except TooLong:
            raise RequestError(
                400,
                f"prompt of {len(ask.prompt)} tokens and max_tokens of {ask.max_new} exceed the context of "
                f"{self.max_context} tokens. Shorten the prompt or lower max_tokens",
                param="max_tokens",
                code="context_length_exceeded",
            ) from None
        except QueueFull:
            limit = self.engine.scheduler.queue_limit
            raise RequestError(
                503,
                f"the queue is full: {self.engine.scheduler.n_waiting} requests wait, the limit is {limit}",
                kind="server_error",
                code="queue_full",
                retry_after_s=1,
            ) from None
        return EngineAnswer(self.engine, ticket, ask.stages, self.tokenizer.decoding())

    async def embed(self, prompts: Sequence[Sequence[int]], script: Script) -> list[list[float]]:
        """One unit-length vector per prompt."""
        return await self.engine.embed(prompts)


class EngineAnswer:
    """One sequence's tokens as they come."""

    def __init__(self, engine: Engine, ticket: Ticket, stages: Stages, decoding: Decoding) -> None:
        self._engine = engine
        self._ticket = ticket
        self._stages = stages
        self._decoding = decoding
        self._first: Step | None = None

    async def ready(self) -> None:
        """Return when the first token is there: only then are queue and prefill times known."""
        self._first = await self._ticket.steps.get()
        if self._first.error:
            raise RequestError(500, self._first.error, kind="server_error", code="step_failed")
        ticket = self._ticket
        self._stages.add(QUEUE, ticket.started_ns - ticket.queued_ns)
        self._stages.add(PREFILL, ticket.first_ns - ticket.started_ns)

    async def play(self, sink: Sink) -> Finish:
        """Tokens into the sink as the engine delivers them."""
        decoder = self._decoding
        n_new = 0
        step = self._first
        while True:
            if step is None:
                step = await self._ticket.steps.get()
            if step.error:
                raise StreamFailure(step.error)
            if step.token >= 0:
                n_new += 1
                text = decoder.feed(step.token)
                sink.token(text + decoder.flush() if step.finish else text, 1, -1)
            if step.finish:
                self._stages.add(DECODE, time.monotonic_ns() - self._ticket.first_ns)
                return Finish(step.finish, n_new, self._ticket.generation.n_cached)
            step = None

    def close(self) -> None:
        """Cancel what is left."""
        self._engine.cancel(self._ticket)
