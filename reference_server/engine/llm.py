"""The language model as front-ends see it: the engine's tokens as text, its refusals as replies. No tensors here.

An answer's stages add up to the time from asking to the last token played: ``queue`` is all waiting for a place, that
after being sent back included; ``prefill`` the rest up to the first token; ``postprocess`` the time in which tokens
became text and were handed on; ``decode`` what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plimsoll.reference_server.engine.engine import (
    DEADLINE,
    STEP_FAILED,
    STOPPING,
    Closed,
    Engine,
    Step,
    Ticket,
    Unreachable,
)
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scheduler import PRIORITIES, QueueFull, TooLong
from plimsoll.reference_server.seams.models import Ask, Finish, Script, Sink
from plimsoll.reference_server.values.durations import DECODE, POSTPROCESS, PREFILL, QUEUE, Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure, too_long, unavailable
from plimsoll.reference_server.values.tokenizer import Bytes, Decoding, Tokenizer

_STATUS = {STEP_FAILED: 500, DEADLINE: 504, STOPPING: 503}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hard bounds in tokens, whatever the context would hold; None for no other bound than that."""

    max_prompt: int | None = None
    max_output: int | None = None


class LanguageModel:
    """An engine behind the model seam."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer | None = None,
        *,
        bounds: Bounds | None = None,
        metrics: Metrics | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.engine = engine
        self.tokenizer: Tokenizer = tokenizer or Bytes()
        self.metrics = metrics or Metrics()
        self.detour: Callable[[Sequence[int]], LanguageModel | None] | None = None
        """Another model that some prompts go to instead."""
        self.now_ns = now_ns
        self._bounds = bounds or Bounds()
        self.metrics.queue(self.name, lambda: engine.scheduler.n_waiting, engine.queue_age_s)

    @property
    def name(self) -> str:
        return "llm"

    @property
    def max_context(self) -> int:
        return self.engine.scheduler.max_context

    def ask(self, ask: Ask) -> EngineAnswer:
        """Queue a prompt. Raises RequestError: 400 when it or its answer would be too long or its priority doesn't
        exist, 503 when the queue is full or too slow for the deadline, 504 when the deadline has passed."""
        other = self.detour(ask.prompt) if self.detour is not None else None
        if other is not None:
            return other.ask(ask)
        self._check(ask)
        engine = self.engine
        try:
            ticket = engine.submit(
                ask.prompt,
                max_new=ask.max_new,
                min_new=ask.min_new,
                ignore_eos=ask.ignore_eos,
                priority=ask.priority,
                deadline_ns=ask.deadline_ns,
            )
        except TooLong:
            raise too_long(len(ask.prompt), ask.max_new, self.max_context) from None
        except QueueFull:
            scheduler = engine.scheduler
            full = f"the queue is full: {scheduler.n_waiting} requests wait, the limit is {scheduler.queue_limit}"
            raise self._busy(full, "queue_full") from None
        except Unreachable:
            late = "the queue drains too slowly for the deadline. Allow more time or come back later"
            raise self._busy(late, "deadline_unreachable") from None
        except Closed:
            raise self._closed() from None
        return EngineAnswer(self, ticket, ask.stages)

    async def embed(
        self, prompts: Sequence[Sequence[int]], script: Script, stages: Stages | None = None
    ) -> list[list[float]]:
        """One unit-length vector per prompt. Raises RequestError: 400 when one is too long."""
        for prompt in prompts:
            self._check_prompt(len(prompt), "input")
        try:
            return await self.engine.embed(prompts, stages)
        except Closed:
            raise self._closed() from None

    def _closed(self) -> RequestError:
        if self.engine.failure:
            return self._busy(f"{self.engine.failure}. The server must be started again", STEP_FAILED)
        return self._busy("the server is shutting down. Ask another", STOPPING)

    def _check(self, ask: Ask) -> None:
        self._check_prompt(len(ask.prompt), "prompt")
        limit = self._bounds.max_output
        if limit is not None and ask.max_new > limit:
            message = f"max_tokens of {ask.max_new} exceeds this server's --max-output of {limit}. Lower max_tokens"
            raise RequestError(400, message, param="max_tokens", code="output_too_long")
        if ask.priority not in PRIORITIES:
            message = f"priority {ask.priority}: choose from {PRIORITIES[0]} (first) to {PRIORITIES[-1]} (last)"
            raise RequestError(400, message, param="priority", code="invalid_priority")
        if 0 <= ask.deadline_ns <= self.now_ns():
            message = "the deadline had passed before the request was read. Allow more time"
            raise RequestError(504, message, kind="server_error", code=DEADLINE)

    def _check_prompt(self, n_prompt: int, param: str) -> None:
        limit = self._bounds.max_prompt
        if limit is not None and n_prompt > limit:
            message = f"{param} of {n_prompt} tokens exceeds this server's --max-prompt of {limit}. Shorten it"
            raise RequestError(400, message, param=param, code="prompt_too_long")

    def _busy(self, message: str, code: str) -> RequestError:
        return unavailable(message, code, self.engine.retry_after_s())


class EngineAnswer:
    """One sequence's tokens as they come."""

    def __init__(self, model: LanguageModel, ticket: Ticket, stages: Stages) -> None:
        self._model = model
        self._engine = model.engine
        self._ticket = ticket
        self._stages = stages
        self._decoding: Decoding = model.tokenizer.decoding()
        self._first: Step | None = None

    async def ready(self) -> None:
        """Return when the first token is there: only then are queue and prefill times known."""
        step = await self._next()
        if step.error:
            retry_s = self._engine.retry_after_s() if step.code == STOPPING else None
            status = _STATUS[step.code]
            raise RequestError(status, step.error, kind="server_error", code=step.code, retry_after_s=retry_s)
        self._first = step
        self._stages.add(QUEUE, step.queue_ns)
        self._stages.add(PREFILL, step.at_ns - self._ticket.queued_ns - step.queue_ns)

    async def play(self, sink: Sink) -> Finish:
        """Tokens into the sink as the engine delivers them."""
        now_ns = self._model.now_ns
        first = step = self._first or await self._next()
        n_new = text_ns = 0
        try:
            while True:
                if step.error:
                    said = f"{step.error}, after {n_new} tokens"
                    raise StreamFailure(said, status=_STATUS[step.code], code=step.code)
                if step.token >= 0:
                    n_new += 1
                    begun_ns = now_ns()
                    try:
                        text = self._decoding.feed(step.token)
                        sink.token(text + self._decoding.flush() if step.finish else text, 1, -1)
                    finally:
                        text_ns += now_ns() - begun_ns
                if step.finish:
                    break
                step = await self._next()
        finally:  # the sink may have had enough, at a text that ends the answer: that one has an anatomy too
            again_ns = max(0, step.queue_ns - first.queue_ns)
            self._stages.add(QUEUE, again_ns)
            self._stages.add(DECODE, now_ns() - first.at_ns - again_ns - text_ns)
            self._stages.add(POSTPROCESS, text_ns)
        return Finish(step.finish, n_new, self._ticket.generation.n_cached)

    def close(self) -> None:
        self._engine.cancel(self._ticket)

    async def _next(self) -> Step:
        step = await self._ticket.steps.get()
        if step.code == DEADLINE:
            self._model.metrics.deadline_missed(self._model.name)
        return step
