"""The step loop: order, cancellation, failure and shutdown; nothing left behind by ten thousand requests; and spans of
an answer that add up, on a clock that only work moves.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

import pytest

from plimsoll.reference_server.engine.engine import Closed, Engine, Step, Ticket
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import EngineAnswer, LanguageModel
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.seams.models import Ask, Chunk, Runner, Script
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.stream import Stopped, StopSink
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from tests.scripted_runner import ScriptedRunner


def with_engine(runner: Runner, play: Callable[[Engine], Coroutine[None, None, None]], *, max_batch: int = 4) -> None:
    async def main() -> None:
        scheduler = Scheduler(KvBlocks(64, 4), max_batch=max_batch, queue_limit=8, max_context=200)
        engine = Engine(scheduler, runner)
        await engine.start()
        try:
            await asyncio.wait_for(play(engine), 10)
        finally:
            await engine.stop()

    asyncio.run(main())


async def drain(ticket: Ticket) -> list[Step]:
    steps = [await ticket.steps.get()]
    while not steps[-1].finish:
        steps.append(await ticket.steps.get())
    return steps


def test_each_request_gets_its_tokens_in_order_and_an_end() -> None:
    async def play(engine: Engine) -> None:
        tickets = [engine.submit([1] * n, max_new=5, ignore_eos=True) for n in (3, 9, 1)]
        for ticket, n in zip(tickets, (3, 9, 1), strict=True):
            steps = await drain(ticket)
            assert [step.token for step in steps] == [ord("a") + (n + i) % 26 for i in range(5)]
            assert [step.finish for step in steps] == ["", "", "", "", "length"]
            assert ticket.queued_ns <= ticket.started_ns <= ticket.first_ns
        assert engine.scheduler.blocks.used == 0

    with_engine(ScriptedRunner(), play)


def test_a_cancelled_request_frees_its_blocks_at_once_even_during_a_step() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Gated:
        def warm_up(self) -> None: ...

        def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
            return []

        def step(self, chunks: Sequence[Chunk]) -> list[int]:
            entered.set()
            assert leave.wait(10)
            return [ord("x")] * sum(chunk.sample for chunk in chunks)

    async def play(engine: Engine) -> None:
        gone, stays = engine.submit([1] * 40, max_new=5), engine.submit([1] * 8, max_new=1)
        await asyncio.to_thread(entered.wait, 10)
        used = engine.scheduler.blocks.used
        engine.cancel(gone)
        assert engine.scheduler.blocks.used == used - 10  # the step is still under way
        leave.set()
        assert (await drain(stays))[-1].token == ord("x")
        assert gone.steps.empty()
        assert engine.scheduler.blocks.used == 0

    with_engine(Gated(), play)


def test_a_failing_step_fails_its_requests_and_not_the_server(caplog: pytest.LogCaptureFixture) -> None:
    runner = ScriptedRunner(fail_on=lambda chunks: any(len(chunk.tokens) == 7 for chunk in chunks))

    async def play(engine: Engine) -> None:
        with caplog.at_level(logging.CRITICAL):
            (step,) = await drain(engine.submit([1] * 7, max_new=5))
        assert step.finish == "error"
        assert "the script says that this step fails" in step.error
        assert engine.scheduler.blocks.used == 0
        assert (await drain(engine.submit([1] * 6, max_new=2)))[-1].finish == "length"

    with_engine(runner, play)


def test_the_end_of_the_sequence_ends_it_unless_it_is_ignored() -> None:
    class Ending:
        def warm_up(self) -> None: ...

        def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
            return []

        def step(self, chunks: Sequence[Chunk]) -> list[int]:
            return [257 if chunk.allow_eos else ord("n") for chunk in chunks if chunk.sample]

    async def play(engine: Engine) -> None:
        assert await drain(engine.submit([1], max_new=5)) == [Step(-1, "stop")]
        ignored = await drain(engine.submit([1], max_new=5, ignore_eos=True))
        assert [step.token for step in ignored] == [ord("n")] * 5
        at_least = await drain(engine.submit([1], max_new=5, min_new=3))
        assert [step.token for step in at_least] == [ord("n")] * 3 + [-1]

    with_engine(Ending(), play)


def test_whoever_waits_at_the_end_is_told() -> None:
    async def main() -> None:
        engine = Engine(Scheduler(KvBlocks(64, 4), max_batch=4, queue_limit=8, max_context=200), ScriptedRunner())
        ticket = engine.submit([1], max_new=3)
        await engine.stop()
        assert (await ticket.steps.get()).error == "the server is shutting down"
        with pytest.raises(Closed):
            engine.submit([1], max_new=3)
        with pytest.raises(Closed):
            await engine.embed([[1]])

    asyncio.run(main())


def test_whoever_waits_for_a_vector_at_the_end_is_told() -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(_: float) -> None:
        entered.set()
        assert leave.wait(10)

    async def main() -> None:
        runner = ScriptedRunner(sleep=wait)
        engine = Engine(Scheduler(KvBlocks(64, 4), max_batch=4, queue_limit=8, max_context=200), runner)
        await engine.start()
        engine.submit([1], max_new=3)
        await asyncio.to_thread(entered.wait, 10)
        vector = asyncio.create_task(engine.embed([[1]]))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        leave.set()
        await stopping
        with pytest.raises(Closed):
            await vector

    asyncio.run(main())


def test_a_step_never_waits_for_the_event_loop() -> None:
    n_steps = 0
    far = threading.Event()

    def count(_: float) -> None:
        nonlocal n_steps
        n_steps += 1
        if n_steps == 20:
            far.set()

    async def play(engine: Engine) -> None:
        ticket = engine.submit([1], max_new=30, ignore_eos=True)
        assert far.wait(10)  # the event loop stands still here
        assert len(await drain(ticket)) == 30

    with_engine(ScriptedRunner(sleep=count), play)


def test_vectors_are_computed_while_steps_go_on() -> None:
    async def play(engine: Engine) -> None:
        ticket = engine.submit([1], max_new=100, ignore_eos=True)
        vectors = await engine.embed([[1] * n for n in (1, 2, 3)])
        assert [vector.index(1.0) for vector in vectors] == [1, 2, 3]
        assert len(await drain(ticket)) == 100

    with_engine(ScriptedRunner(), play)


def test_a_runner_that_gives_too_few_tokens_fails_the_requests_and_not_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Short:
        def __init__(self) -> None:
            self.n_steps = 0

        def warm_up(self) -> None: ...

        def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
            return []

        def step(self, chunks: Sequence[Chunk]) -> list[int]:
            self.n_steps += 1
            return [] if self.n_steps == 1 else [ord("x")] * len(chunks)

    async def play(engine: Engine) -> None:
        with caplog.at_level(logging.CRITICAL):
            (step,) = await drain(engine.submit([1], max_new=5))
        assert step.error.startswith("the step failed: StopIteration")
        assert engine.scheduler.blocks.used == engine.n_tickets == 0
        assert len(await drain(engine.submit([1], max_new=2))) == 2

    with_engine(Short(), play)


def test_an_engine_that_can_no_longer_plan_tells_all_and_takes_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def play(engine: Engine) -> None:
        def fail(_: int) -> None:
            raise RuntimeError("no plan")

        with caplog.at_level(logging.CRITICAL):
            with engine._changed:  # nothing is planned before all are there
                engine.scheduler.before_plan = fail
                tickets = [engine.submit([1], max_new=3) for _ in range(6)]  # four places
            for ticket in tickets:
                assert (await drain(ticket))[-1].error == "the engine failed: RuntimeError: no plan"
        assert engine.scheduler.blocks.used == engine.scheduler.n_waiting == engine.n_tickets == 0
        await asyncio.to_thread(engine._thread.join, 10)
        with pytest.raises(Closed):
            engine.submit([1], max_new=3)
        # The whole server says so, to readiness probes too: only a new start mends it.
        service = Service(None, None, None, None, 1, startup=Startup(ready=True), llm=LanguageModel(engine))  # type: ignore[arg-type]
        refused = service.closed()
        assert refused is not None
        assert (refused.status, refused.code) == (503, "failed")
        assert "no plan. The server must be started again" in refused.message
        assert not service.ready
        with pytest.raises(RequestError, match="no plan"):
            await LanguageModel(engine).embed([[1]], Script())

    with_engine(ScriptedRunner(), play)


def test_the_wait_of_vectors_is_their_queue() -> None:
    """On a clock that moves only while the device works: 7 ms a vector."""
    now = [0]

    class Vectors(ScriptedRunner):  # one method differs
        def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
            now[0] += 7_000_000
            return [[1.0] for _ in prompts]

    async def main() -> None:
        scheduler = Scheduler(KvBlocks(64, 4), max_batch=4, queue_limit=8, max_context=200)
        engine = Engine(scheduler, Vectors(), now_ns=lambda: now[0])
        await engine.start()
        with engine._changed:  # both are asked for before either begins
            asked = [asyncio.create_task(engine.embed([[1], [2]][: i + 1], stages)) for i, stages in enumerate(told)]
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        await engine.stop()

    told = [Stages(), Stages()]
    asyncio.run(main())
    assert [stages.spans_ns["inference"] for stages in told] == [7_000_000, 14_000_000]
    assert told[0].spans_ns["queue"] == 0
    assert told[1].spans_ns["queue"] == 7_000_000


# -- ten thousand requests ------------------------------------------------------------------------------------------

N_REQUESTS, N_CLIENTS = 10_000, 120
OURS = (Ask, Chunk, EngineAnswer, Generation, Step, Ticket)


class GaveUp(Exception):
    """The client is gone."""


class Sink:
    """A client that leaves after so many tokens."""

    def __init__(self, patience: int) -> None:
        self.left = patience

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise GaveUp


async def request(model: LanguageModel, chooser: random.Random) -> str:
    late = chooser.random() < 0.1
    wanted = Ask(
        [chooser.randrange(3)] * chooser.randrange(1, 60),
        chooser.randrange(1, 16),
        TruthRow("id", "llm", 0),
        ignore_eos=True,
        priority=chooser.randrange(-3, 4),
        deadline_ns=time.monotonic_ns() + chooser.randrange(1, 30_000_000) if late else -1,
    )
    try:
        answer = model.ask(wanted)
    except RequestError as error:
        return str(error.code)
    try:
        if chooser.random() < 0.1:
            async with asyncio.timeout(chooser.random() * 0.01):
                await answer.ready()
        else:
            await answer.ready()
        finish = await answer.play(Sink(chooser.randrange(1, 40)))
        assert finish.n_new == wanted.max_new
        return finish.reason
    except RequestError as error:
        return f"{error.code} before"
    except StreamFailure as error:
        return f"{error.code} after"
    except (GaveUp, TimeoutError) as error:
        return type(error).__name__
    finally:
        answer.close()


def living() -> Counter[str]:
    gc.collect()
    return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in OURS)


def test_ten_thousand_requests_that_end_in_every_way_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    ends: Counter[str] = Counter()
    before = living()

    async def main() -> None:
        failing = random.Random(1)
        runner = ScriptedRunner(fail_on=lambda _: failing.random() < 0.004)
        blocks = KvBlocks(60, 4, reuse_prefixes=True)
        scheduler = Scheduler(blocks, max_batch=16, queue_limit=112, max_context=76, step_tokens=64)
        model = LanguageModel(Engine(scheduler, runner))
        await model.engine.start()

        async def client(number: int) -> None:
            chooser = random.Random(number)
            for _ in range(number, N_REQUESTS, N_CLIENTS):
                ends[await request(model, chooser)] += 1
                await asyncio.sleep(0)

        async with asyncio.timeout(300):
            await asyncio.gather(*(client(number) for number in range(N_CLIENTS)))
        assert model.engine.n_tickets == scheduler.n_running == scheduler.n_waiting == blocks.used == 0
        assert scheduler.n_preempted > 0
        assert scheduler.n_cached > 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await model.engine.stop()

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(main())
    assert sum(ends.values()) == N_REQUESTS
    expected = {"length", "queue_full", "deadline_exceeded before", "deadline_exceeded after", "GaveUp", "TimeoutError"}
    assert expected <= set(ends), ends
    assert any(end.startswith("step_failed") for end in ends), ends
    assert ends["length"] > N_REQUESTS / 2, ends
    assert living() == before


# -- stages ---------------------------------------------------------------------------------------------------------

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
