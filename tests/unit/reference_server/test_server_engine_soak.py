"""Ten thousand requests that end in every way there is leave nothing behind: no block, no ticket, no task, no
object.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections import Counter

import pytest

from plimsoll.reference_server.engine.engine import Engine, Step, Ticket
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import EngineAnswer, LanguageModel
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.seams.models import Ask, Chunk
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from tests.scripted_runner import ScriptedRunner

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
