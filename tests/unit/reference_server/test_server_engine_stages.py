"""The anatomy of an answer of the language model, on a clock that only work moves: each span lies in its stage, and
they add up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from plimsoll.reference_server.engine.engine import Engine
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.seams.models import Ask, Chunk
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.transports.stream import Stopped, StopSink
from tests.scripted_runner import ScriptedRunner

PROMPT_NS, TOKEN_NS, TEXT_NS, WAIT_NS = 1_000_000, 20_000, 300, 7_000_000


@dataclass
class Clock:
    """Moved by whoever works."""

    now_ns: int = 1_000_000_000

    def read(self) -> int:
        return self.now_ns


@dataclass
class Turns:
    """Steps and texts that take their time one after the other: the next step begins when the sink allows it."""

    clock: Clock
    may_step: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    text: str = ""

    def warm_up(self) -> None: ...

    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        return []

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        assert self.may_step.acquire(timeout=10)
        self.clock.now_ns += sum(PROMPT_NS if len(chunk.tokens) > 1 else TOKEN_NS for chunk in chunks)
        return ScriptedRunner().step(chunks)

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        self.clock.now_ns += TEXT_NS
        self.text += text
        self.may_step.release()


def language_model(runner: Turns | ScriptedRunner, clock: Clock, n_blocks: int = 64) -> LanguageModel:
    scheduler = Scheduler(KvBlocks(n_blocks, 4), max_batch=4, queue_limit=8, max_context=n_blocks * 4, step_tokens=4)
    return LanguageModel(Engine(scheduler, runner, now_ns=clock.read), now_ns=clock.read)


def ask(n_prompt: int, max_new: int) -> Ask:
    return Ask([1] * n_prompt, max_new, TruthRow("id", "llm", 0), ignore_eos=True)


def test_each_span_lies_in_its_stage_and_they_add_up_to_the_answer() -> None:
    clock = Clock()
    turns = Turns(clock)

    async def main() -> None:
        model = language_model(turns, clock)
        wanted = ask(12, 5)  # three pieces of four
        begun_ns = clock.now_ns
        answer = model.ask(wanted)  # nothing steps yet: it waits
        clock.now_ns += WAIT_NS
        await model.engine.start()
        for _ in range(3):
            turns.may_step.release()
        await answer.ready()
        assert wanted.stages.spans_ns == {"queue": WAIT_NS, "prefill": 3 * PROMPT_NS}
        finish = await answer.play(turns)
        assert (finish.reason, finish.n_new, len(turns.text)) == ("length", 5, 5)
        assert wanted.stages.spans_ns == {
            "queue": WAIT_NS,
            "prefill": 3 * PROMPT_NS,
            "decode": 4 * TOKEN_NS,
            "postprocess": 5 * TEXT_NS,
        }
        assert sum(wanted.stages.spans_ns.values()) == clock.now_ns - begun_ns
        answer.close()
        await model.engine.stop()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_an_answer_that_a_text_ends_has_its_whole_anatomy() -> None:
    clock = Clock()
    turns = Turns(clock)

    async def main() -> None:
        model = language_model(turns, clock)
        wanted = ask(4, 9)
        begun_ns = clock.now_ns
        answer = model.ask(wanted)
        await model.engine.start()
        turns.may_step.release()
        await answer.ready()
        with pytest.raises(Stopped):
            await answer.play(StopSink(turns, ["g"]))  # "e", "f", "g"
        assert turns.text == "ef"
        spans = wanted.stages.spans_ns
        assert (spans["decode"], spans["postprocess"]) == (2 * TOKEN_NS, 2 * TEXT_NS)
        assert sum(spans.values()) == clock.now_ns - begun_ns
        answer.close()
        turns.may_step.release()
        await model.engine.stop()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_the_wait_after_being_sent_back_is_queue_and_not_decode() -> None:
    clock = Clock()

    def spend(_: float) -> None:
        clock.now_ns += TOKEN_NS

    class Quiet:
        def token(self, text: str, n_tokens: int, due_ns: int) -> None: ...

    async def main() -> None:
        model = language_model(ScriptedRunner(sleep=spend), clock, n_blocks=6)
        asks = [ask(4, 18) for _ in range(2)]  # six blocks each, and there are six
        begun_ns = clock.now_ns
        answers = [model.ask(wanted) for wanted in asks]
        await model.engine.start()

        async def play(number: int) -> None:
            await answers[number].ready()
            await answers[number].play(Quiet())

        await asyncio.gather(play(0), play(1))
        assert model.engine.scheduler.n_preempted == 1
        first, second = (wanted.stages.spans_ns for wanted in asks)
        assert (first["queue"], second["queue"] > 5 * TOKEN_NS) == (0, True)
        # The second went on after the first had ended, and computed its 4 + n tokens again in pieces of four.
        assert sum(second.values()) == clock.now_ns - begun_ns
        assert second["decode"] + second["prefill"] < 18 * TOKEN_NS + 6 * TOKEN_NS
        await model.engine.stop()

    asyncio.run(asyncio.wait_for(main(), 10))
