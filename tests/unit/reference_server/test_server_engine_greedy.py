"""Through the whole engine, among clients that come, leave, hurry and wait, a prompt's greedy answer is always the
same.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from plimsoll.reference_server.engine.engine import Engine, Ticket
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Scheduler

pytest.importorskip("torch", reason="the language model needs torch")

from plimsoll.reference_server.device.torch_runner import TorchRunner
from plimsoll.reference_server.models.presets import DecoderShape

SHAPE = DecoderShape(hidden=48, layers=2, heads=4, kv_heads=2, head_dim=16, feed_forward=80, max_context=256)
N_NEW = 20


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    return TorchRunner(SHAPE, block_size=8, n_blocks=24, max_tokens=1, seed=5)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chooser = random.Random(3)
    start = [chooser.randrange(32, 127) for _ in range(24)]
    return [
        start[: chooser.randrange(25)] + [chooser.randrange(32, 127) for _ in range(chooser.randrange(1, 70))]
        for _ in range(16)
    ]


async def tokens_of(ticket: Ticket) -> list[int]:
    tokens = []
    while True:
        step = await ticket.steps.get()
        assert not step.error
        tokens.append(step.token)
        if step.finish:
            return tokens


def answers(
    runner: TorchRunner, prompts: list[list[int]], *, batch: int, chunked: bool, reuse: bool, leave: bool
) -> tuple[list[list[int]], Scheduler]:
    scheduler = Scheduler(
        KvBlocks(runner.n_blocks, runner.block_size, reuse_prefixes=reuse),
        max_batch=batch,
        queue_limit=99,
        max_context=SHAPE.max_context,
        step_tokens=48,
        chunked_prefill=chunked,
    )
    chooser = random.Random(7)

    async def one(engine: Engine, prompt: list[int]) -> list[int]:
        hurry = chooser.randrange(-2, 3)
        if leave:  # a neighbour with the same prompt that goes away in the middle
            stranger = engine.submit(prompt, max_new=N_NEW, ignore_eos=True, priority=-hurry)
            await stranger.steps.get()
            engine.cancel(stranger)
        return await tokens_of(engine.submit(prompt, max_new=N_NEW, ignore_eos=True, priority=hurry))

    async def main() -> list[list[int]]:
        engine = Engine(scheduler, runner)
        await engine.start()
        try:
            async with asyncio.timeout(60):
                return await asyncio.gather(*(one(engine, prompt) for prompt in prompts))
        finally:
            await engine.stop()
            assert engine.n_tickets == scheduler.blocks.used == 0

    return asyncio.run(main()), scheduler


@pytest.mark.parametrize("chunked", [True, False], ids=["in pieces", "whole"])
@pytest.mark.parametrize("reuse", [False, True], ids=["no reuse", "prefix reuse"])
def test_greedy_output_is_the_same_whoever_else_is_served(
    runner: TorchRunner, prompts: list[list[int]], chunked: bool, reuse: bool
) -> None:
    alone, _ = answers(runner, prompts, batch=1, chunked=True, reuse=False, leave=False)
    together, scheduler = answers(runner, prompts, batch=9, chunked=chunked, reuse=reuse, leave=True)
    assert together == alone
    assert scheduler.n_preempted > 0
    assert (scheduler.n_cached > 0) == reuse
