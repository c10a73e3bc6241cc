"""The language model on a CUDA device: the same tokens as on the CPU, alone and in a batch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler

if TYPE_CHECKING:
    from plimsoll.reference_server.device.torch_runner import TorchRunner

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(scope="module")
def cuda() -> None:
    torch = pytest.importorskip("torch", reason="the language model needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; torch finds none here")


def generate(runner: TorchRunner, prompts: list[list[int]], batch: int) -> list[list[int]]:
    kv = KvBlocks(runner.n_blocks, runner.block_size)
    scheduler = Scheduler(kv, max_batch=batch, queue_limit=99, max_context=1024)
    generations = [Generation(i, list(prompt), 32, ignore_eos=True) for i, prompt in enumerate(prompts)]
    for generation in generations:
        scheduler.submit(generation)
    while chunks := scheduler.plan():
        scheduler.commit(chunks, runner.step(chunks))
    return [generation.tokens[generation.n_prompt :] for generation in generations]


def runner_on(device: str, n_blocks: int | None) -> TorchRunner:
    from plimsoll.reference_server.device.torch_runner import TorchRunner, build
    from plimsoll.reference_server.values.durations import Startup

    built = build(
        "tiny",
        weights=None,
        device=device,
        block_size=16,
        n_blocks=n_blocks,
        max_batch=16,
        seed=3,
        threads=None,
        startup=Startup(),
    )
    assert isinstance(built.runner, TorchRunner)
    return built.runner


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chooser = random.Random(4)
    return [[chooser.randrange(32, 127) for _ in range(chooser.randrange(1, 300))] for _ in range(12)]


def test_greedy_output_is_the_same_alone_and_in_a_batch_on_the_device(prompts: list[list[int]]) -> None:
    runner = runner_on("cuda", None)
    alone = [generate(runner, [prompt], 1)[0] for prompt in prompts]
    assert generate(runner, prompts, 12) == generate(runner, prompts, 5) == alone


def test_the_device_gives_the_tokens_that_the_cpu_gives(prompts: list[list[int]]) -> None:
    assert generate(runner_on("cuda", 512), prompts, 8) == generate(runner_on("cpu", 512), prompts, 8)


def test_the_cache_is_sized_by_free_memory_and_no_larger_than_useful() -> None:
    runner = runner_on("cuda", None)
    assert 1 <= runner.n_blocks <= 16 * runner.shape.max_context // 16
