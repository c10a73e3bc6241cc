"""Greedy output and every matrix product are the same alone and in company, whatever the batch looks like."""

from __future__ import annotations

import random

import pytest

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler

torch = pytest.importorskip("torch", reason="the language model needs torch")

from plimsoll.reference_server.device import torch_runner  # noqa: E402
from plimsoll.reference_server.device.torch_runner import TorchRunner  # noqa: E402
from plimsoll.reference_server.models.decoder import Decoder  # noqa: E402
from plimsoll.reference_server.models.grids import seeded_linear, to_grid  # noqa: E402
from plimsoll.reference_server.models.presets import DECODERS, DecoderShape  # noqa: E402
from plimsoll.reference_server.seams.models import Chunk  # noqa: E402

SHAPE = DecoderShape(hidden=48, layers=2, heads=4, kv_heads=2, head_dim=16, feed_forward=80, max_context=256)
N_BLOCKS = 48


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    return TorchRunner(SHAPE, block_size=8, n_blocks=N_BLOCKS, max_tokens=1, seed=5)


def generate(
    runner: TorchRunner, prompts: list[list[int]], n_new: int, *, batch: int, budget: int, blocks: int, reuse: bool
) -> tuple[list[list[int]], int]:
    kv = KvBlocks(blocks, runner.block_size, reuse_prefixes=reuse)
    scheduler = Scheduler(kv, max_batch=batch, queue_limit=99, max_context=256, step_tokens=budget)
    generations = [Generation(i, list(prompt), n_new, ignore_eos=True) for i, prompt in enumerate(prompts)]
    for generation in generations:
        scheduler.submit(generation)
    while chunks := scheduler.plan():
        scheduler.commit(chunks, runner.step(chunks))
    return [generation.tokens[generation.n_prompt :] for generation in generations], scheduler.n_preempted


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chooser = random.Random(1)
    start = [chooser.randrange(32, 127) for _ in range(20)]
    return [
        start[: chooser.randrange(21)] + [chooser.randrange(32, 127) for _ in range(chooser.randrange(1, 60))]
        for _ in range(10)
    ]


@pytest.fixture(scope="module")
def alone(runner: TorchRunner, prompts: list[list[int]]) -> list[list[int]]:
    plain = {"batch": 1, "budget": 256, "blocks": N_BLOCKS, "reuse": False}
    return [generate(runner, [prompt], 24, **plain)[0][0] for prompt in prompts]


@pytest.mark.parametrize("batch", [2, 3, 5, 8, 10])
@pytest.mark.parametrize("budget", [5, 33, 256])
@pytest.mark.parametrize("reuse", [False, True], ids=["no reuse", "prefix reuse"])
def test_greedy_output_is_the_same_alone_and_in_any_batch(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]], batch: int, budget: int, reuse: bool
) -> None:
    together, _ = generate(runner, prompts, 24, batch=batch, budget=budget, blocks=N_BLOCKS, reuse=reuse)
    assert together == alone


def test_the_last_hidden_states_are_bitwise_the_same_alone_and_in_a_batch(
    runner: TorchRunner, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    choose = runner._decoder.next_tokens

    def record(hidden: torch.Tensor, allow_eos: torch.Tensor) -> torch.Tensor:
        seen.extend(hidden.clone())
        return choose(hidden, allow_eos)

    monkeypatch.setattr(runner._decoder, "next_tokens", record)
    one = {"budget": 1024, "blocks": 200, "reuse": False}
    big = TorchRunner(SHAPE, block_size=8, n_blocks=200, max_tokens=1, seed=5)
    monkeypatch.setattr(big._decoder, "next_tokens", record)
    generate(big, prompts, 4, batch=10, **one)
    together, seen[:] = list(seen), []
    for prompt in prompts:
        generate(runner, [prompt], 4, batch=1, budget=7, blocks=N_BLOCKS, reuse=False)
    # Together: step after step over all prompts. Alone: prompt after prompt over all steps.
    assert len(seen) == len(together) == 4 * len(prompts)
    for number in range(len(prompts)):
        for step in range(4):
            assert torch.equal(seen[4 * number + step], together[len(prompts) * step + number])


def test_being_sent_back_and_recomputed_changes_nothing(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    together, n_preempted = generate(runner, prompts, 24, batch=10, budget=64, blocks=14, reuse=False)
    assert n_preempted > 0
    assert together == alone


def test_answers_differ_and_are_printable(alone: list[list[int]]) -> None:
    assert len({tuple(tokens) for tokens in alone}) == len(alone)
    assert len({token for tokens in alone for token in tokens}) > 10
    assert all(32 <= token < 127 for tokens in alone for token in tokens)


@pytest.mark.parametrize("n_in", [48, 344, 1024, 4096])
def test_a_row_of_a_product_is_bitwise_the_same_in_every_batch(n_in: int) -> None:
    generator = torch.Generator().manual_seed(2)
    linear = seeded_linear(generator, n_in, 65, "cpu")
    x = torch.randn(37, n_in, generator=generator) * 3
    whole, whole_normed = linear(x), linear.normed(x)
    for size in (1, 2, 3, 7, 8, 16, 36):
        rows = slice(37 - size, 37)
        assert torch.equal(linear(x[rows].clone()), whole[rows])
        assert torch.equal(linear.normed(x[rows].clone()), whole_normed[rows])


@pytest.mark.parametrize("n_in", [48, 1024, 4096, 14336])
def test_no_partial_sum_leaves_the_range_that_float32_holds_exactly(n_in: int) -> None:
    linear = seeded_linear(torch.Generator().manual_seed(2), n_in, 1, "cpu")
    grid, step = to_grid(torch.randn(3, n_in), linear.level)
    assert torch.equal(grid, grid.round())
    assert float(grid.abs().max()) == linear.level
    assert linear.level**2 * n_in < 2**24
    assert step.shape == (3, 1)


def test_attention_weights_add_up_exactly_at_the_longest_context() -> None:
    for shape in DECODERS.values():
        assert shape.probability_levels >= 16
        assert shape.probability_levels * 31 * shape.max_context < 2**24


def test_presets_have_the_sizes_they_promise() -> None:
    assert 0.9e6 < DECODERS["tiny"].parameters() < 1.2e6
    assert 9e6 < DECODERS["small"].parameters() < 12e6


def test_the_seed_makes_the_weights() -> None:
    first, same, other = (Decoder(SHAPE, seed=seed, device="cpu").embed([65, 66, 67]) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert float(first.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("most_bytes", [0, 200_000, 256 << 20], ids=["nothing kept", "kept at times", "all kept"])
def test_what_is_kept_between_steps_changes_nothing(
    prompts: list[list[int]], alone: list[list[int]], most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_runner, "_MOST_BYTES", most_bytes)
    runner = TorchRunner(SHAPE, block_size=8, n_blocks=N_BLOCKS, max_tokens=1, seed=5)
    gathered = 0
    group = runner._group

    def counted(members: list[Chunk], rows: slice, kept: bool) -> object:
        nonlocal gathered
        gathered += len(members[0].tokens) == 1 and not kept
        return group(members, rows, kept)

    monkeypatch.setattr(runner, "_group", counted)
    together, _ = generate(runner, prompts, 24, batch=7, budget=33, blocks=N_BLOCKS, reuse=True)
    assert together == alone
    # A second life of the same sequences, by the same numbers: rows of the first must not be taken for theirs.
    again, _ = generate(runner, prompts[::-1], 24, batch=7, budget=33, blocks=N_BLOCKS, reuse=False)
    assert again == alone[::-1]
    assert (gathered > 0) == (most_bytes < 256 << 20)


def test_a_row_is_filled_when_its_sequence_joins_and_not_at_every_step() -> None:
    rows = torch_runner.KeptRows(SHAPE, block_size=8, n_pool=9, device="cpu")

    def chunk(sequence: int, start: int, *blocks: int) -> Chunk:
        return Chunk(sequence, [65], start, blocks, True, False)

    assert rows.arrange([chunk(1, 5, 0), chunk(2, 9, 1, 2), chunk(7, 0, 8)]) == [0, 1, 2]
    assert rows._fresh == [0, 1, 2]
    assert rows.arrange([chunk(3, 0, 4), chunk(2, 10, 1, 2), chunk(1, 6, 0)]) == [2, 1, 0]
    assert rows._fresh == [2]
    assert rows.arrange([chunk(3, 1, 4), chunk(2, 11, 1, 2)]) == [0, 1]  # 1 left: the last row took its place
    assert rows._fresh == []
    assert rows.arrange([chunk(3, 2, 5), chunk(2, 13, 1, 2)]) == [0, 1]  # another block, and a token too far
    assert rows._fresh == [0, 1]
    rows.forget({2})
    assert rows.arrange([chunk(2, 14, 1, 2), chunk(3, 3, 5)]) == [1, 0]
    assert rows._fresh == [1]
    assert rows.arrange([chunk(3, 4, 5), chunk(3, 4, 5)]) is None
