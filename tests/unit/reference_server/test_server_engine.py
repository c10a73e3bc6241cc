"""The step loop with a runner of known behaviour: order, cancellation, failure, shutdown."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence

import pytest

from plimsoll.reference_server.engine.engine import Closed, Engine, Step, Ticket
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.seams.models import Chunk, Runner, Script
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import RequestError
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
