"""The scripted model: every answer keeps its own absolute timetable, so what a client should measure is known.

Event i of an answer is due at ``start + ttft + i * itl``; start is the arrival, or the instant at which the answer
before in one of a limited number of slots was due to end, whichever is later. Lateness never adds up, so n slots are a
queue with n servers (M/D/n under Poisson arrivals, M/M/n with exponential times); it never trades exactness for
realism.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from plimsoll.reference_server.engine.batch_clock import BatchClock
from plimsoll.reference_server.seams.models import Ask, Finish, Script, Sink
from plimsoll.reference_server.values.durations import DECODE, INFERENCE, PREFILL, PREPROCESS, QUEUE, Stages
from plimsoll.reference_server.values.errors import unavailable
from plimsoll.reference_server.values.timetable import DeadlineWheel, Entry
from plimsoll.reference_server.values.tokenizer import Bytes, Tokenizer

_WORDS = (
    " the", " line", " is", " painted", " on", " her", " hull", " load", " no", " ship", " beyond", " it",
)  # fmt: skip
_DIMENSIONS = 64


class ScriptedModel:
    """Known times, known words."""

    def __init__(
        self,
        wheel: DeadlineWheel,
        *,
        ttft_ns: int,
        itl_ns: int,
        seed: int,
        n_slots: int | None = None,
        service: str = "constant",
        queue_limit: int = 256,
        max_context: int = 131_072,
        late_ns: Callable[[str, int, int], int] | None = None,
        rewords: Callable[[str, int], bool] | None = None,
        batches: BatchClock | None = None,
    ) -> None:
        """With ``batches`` the first token comes when the request's batch ends, which stands for the ttft."""
        self.wheel = wheel
        self.ttft_ns = ttft_ns
        self.itl_ns = itl_ns
        self.seed = seed
        self._max_context = max_context
        self._own_slots = self._n_slots = n_slots
        self._exponential = service == "exponential"
        self._queue_limit = queue_limit
        self.late_ns = late_ns
        self.rewords = rewords
        self.batches = batches
        self._n_busy = 0
        self._busy_ns = self._since_ns = 0
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._free_ns = [0] * (n_slots or 0)

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def max_context(self) -> int:
        return self._max_context

    @property
    def tokenizer(self) -> Tokenizer:
        return Bytes()

    @property
    def n_busy(self) -> int:
        return self._n_busy

    @property
    def busy_s(self) -> float:
        """How long at least one request has been worked at, in all."""
        return (self._busy_ns + (time.monotonic_ns() - self._since_ns if self._n_busy else 0)) / 1e9

    def _occupy(self, by: int) -> None:
        now_ns = time.monotonic_ns()
        if self._n_busy:
            self._busy_ns += now_ns - self._since_ns
        self._since_ns = now_ns
        self._n_busy += by

    @property
    def n_waiting(self) -> int:
        return len(self._waiting) if self.batches is None else self.batches.queue.n_waiting

    def ask(self, ask: Ask) -> ScriptedAnswer:
        """Admit a prompt. Raises RequestError when it is too long, or when too many wait for a slot."""
        full = self._n_slots is not None and self._n_busy >= self._n_slots
        if full and len(self._waiting) >= self._queue_limit:
            message = f"the queue is full: {len(self._waiting)} requests wait, the limit is {self._queue_limit}"
            raise unavailable(message, "queue_full")
        return ScriptedAnswer(self, ask)

    async def embed(
        self, prompts: Sequence[Sequence[int]], script: Script, stages: Stages | None = None
    ) -> list[list[float]]:
        """Vectors drawn from a generator seeded with the prompt, after the time to first token."""
        ttft_ns = self.ttft_ns if script.ttft_ns is None else script.ttft_ns
        due_ns = time.monotonic_ns() + ttft_ns
        vectors = [self._vector(prompt) for prompt in prompts]
        if self.batches is not None:
            begun_ns, due_ns = await self.batches.run(len(prompts), due_ns - ttft_ns)
            ttft_ns = due_ns - begun_ns
        await self.wheel.sleep_until(due_ns)
        if stages is not None:
            stages.add(INFERENCE, ttft_ns)
        return vectors

    def limit(self, n_slots: int | None) -> None:
        """From now on so many requests at a time, never more than its own; None: its own."""
        wanted = min((n for n in (self._own_slots, n_slots) if n is not None), default=None)
        if wanted == self._n_slots:
            return
        self._n_slots = wanted
        while self._waiting and (wanted is None or self._n_busy < wanted):
            turn = self._waiting.popleft()
            if not turn.done():
                self._occupy(1)
                turn.set_result(time.monotonic_ns())
        self._free_ns = [0] * max(0, (wanted or 0) - self._n_busy)

    async def take_slot(self) -> int:
        """Take a slot, in order of arrival. Returns since when it has been free, in monotonic ns; 0 for ever."""
        if self._n_slots is None or self._n_busy < self._n_slots:
            self._occupy(1)
            return heapq.heappop(self._free_ns) if self._free_ns else 0
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_slot(turn.result())  # it was handed over in the moment of giving up
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_slot(self, free_ns: int) -> None:
        """Pass a slot that is free since ``free_ns`` on to the next in line, or leave it; one too many is gone."""
        while self._waiting and (self._n_slots is None or self._n_busy <= self._n_slots):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(free_ns)
                return
        self._occupy(-1)
        if self._n_slots is not None and self._n_busy < self._n_slots:
            heapq.heappush(self._free_ns, free_ns)

    def stretch(self, request_id: str) -> float:
        """The factor on all times of a request: 1, or drawn by seed and request id from an exponential of mean 1."""
        if not self._exponential:
            return 1.0
        return -math.log1p(-random.Random(f"{self.seed}:{request_id}").random())

    def _vector(self, prompt: Sequence[int]) -> list[float]:
        generator = random.Random(f"{self.seed}:{list(prompt)}")
        values = [generator.gauss(0.0, 1.0) for _ in range(_DIMENSIONS)]
        length = math.sqrt(sum(value * value for value in values))
        return [value / length for value in values]


class ScriptedAnswer:
    """One timetable."""

    def __init__(self, model: ScriptedModel, ask: Ask) -> None:
        script = ask.script
        self._model = model
        self._ask = ask
        stretch = model.stretch(ask.row.request_id)
        self._ttft_ns = round(stretch * (model.ttft_ns if script.ttft_ns is None else script.ttft_ns))
        self._itl_ns = round(stretch * (model.itl_ns if script.itl_ns is None else script.itl_ns))
        self._start_ns = ask.row.received_ns
        self._has_slot = False
        self._over_ns: int | None = None
        self._entry: Entry | None = None

    async def ready(self) -> None:
        batches = self._model.batches
        if batches is None:
            free_ns = await self._model.take_slot()
            self._has_slot = True
            self._start_ns = max(self._start_ns, free_ns)
        else:
            self._start_ns, end_ns = await batches.run(self._ask.n_samples, self._start_ns)
            self._ttft_ns = end_ns - self._start_ns
        stages = self._ask.stages
        waited_ns = self._start_ns - self._ask.row.received_ns
        read_ns = stages.spans_ns.get(PREPROCESS, 0)  # the timetable runs while the request is read
        stages.add(QUEUE, waited_ns - read_ns)
        stages.add(PREFILL, self._ttft_ns - max(0, read_ns - waited_ns))

    async def play(self, sink: Sink) -> Finish:
        """Write each event from the timer's own wake-up."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        n_new, step = self._ask.max_new, self._ask.script.tokens_per_event
        position, rewords = 0, self._model.rewords
        self._skipped = int(rewords is not None and rewords(self._ask.row.request_id, time.monotonic_ns()))
        planned_ns = self.due_ns(0) + self._late_ns(0, time.monotonic_ns())

        def fire(due_ns: int) -> int | None:
            nonlocal position, planned_ns
            n_tokens = min(step, n_new - position)
            self._over_ns = due_ns
            try:
                sink.token(self._text(position, n_tokens), n_tokens, due_ns)
            except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
                if not ended.done():
                    ended.set_exception(error)
                return None
            position += n_tokens
            if position < n_new:
                self._over_ns = None
                planned_ns = max(planned_ns, self.due_ns(position) + self._late_ns(position, due_ns))
                return planned_ns
            if not ended.done():
                ended.set_result(None)
            return None

        self._entry = self._model.wheel.at(planned_ns, fire)
        try:
            await ended
        finally:  # the sink may have had enough before the end
            self._ask.stages.add(DECODE, self.due_ns(min(position, n_new - 1)) - self.due_ns(0))
        return Finish("length", n_new)

    def close(self) -> None:
        """Stop the timetable and pass on the slot."""
        if self._entry is not None:
            self._entry.cancel()
        if self._has_slot:
            self._has_slot = False
            self._model.give_slot(time.monotonic_ns() if self._over_ns is None else self._over_ns)

    def due_ns(self, position: int) -> int:
        """When the event that begins with token ``position`` is due."""
        script = self._ask.script
        due_ns = self._start_ns + self._ttft_ns + position // script.tokens_per_event * self._itl_ns
        stalled = script.stall_at >= 0 and position >= script.stall_at
        return due_ns + script.stall_ns if stalled else due_ns

    def _late_ns(self, position: int, now_ns: int) -> int:
        late_ns = self._model.late_ns
        return 0 if late_ns is None else late_ns(self._ask.row.request_id, position, now_ns)

    def _text(self, position: int, n_tokens: int) -> str:
        first = self._model.seed + position + self._skipped
        return "".join(_WORDS[(first + i) % len(_WORDS)] for i in range(n_tokens))
