"""The Llama runner gives each sequence what the model alone would give it, however steps are batched, padded or run
ahead.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.models import presets
from plimsoll.reference_server.models.presets import LlamaShape, RopeScaling
from plimsoll.reference_server.values.durations import PHASES, Startup
from plimsoll.reference_server.values.errors import ConfigError

torch = pytest.importorskip("torch", reason="the language model needs torch")

from plimsoll.reference_server.device import llama_runner  # noqa: E402
from plimsoll.reference_server.device.llama_runner import LlamaRunner, Options, Staging, room  # noqa: E402
from plimsoll.reference_server.device.paged_cache import PagedCache  # noqa: E402
from plimsoll.reference_server.models.llama import Llama, rope_tables, seeded  # noqa: E402
from plimsoll.reference_server.seams.models import Chunk  # noqa: E402

SHAPE = LlamaShape(
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    vocabulary=300,
    max_context=128,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64),
)
N_NEW = 20
AHEAD = Options(ahead=True, sizes=(1, 2, 4, 8))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Llama:
    weights = seeded(SHAPE, seed=1, device="cpu", dtype=torch.float32)
    return Llama(SHAPE, weights, eos=frozenset({257}), printable=True)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chooser = random.Random(1)
    start = [chooser.randrange(32, 127) for _ in range(30)]
    return [start[: chooser.randrange(31)] + [chooser.randrange(32, 127) for _ in range(n)] for n in (1, 4, 9, 30, 64)]


@pytest.fixture(scope="module")
def alone(model: Llama, prompts: list[list[int]]) -> list[list[int]]:
    """What the model says with no cache and no batch: the whole sequence anew for each token."""
    answers = []
    with torch.inference_mode():
        for prompt in prompts:
            tokens = list(prompt)
            for _ in range(N_NEW):
                last = model._alone(torch.tensor(tokens))[-1:]
                tokens.append(int(model.choose(last, torch.zeros(1, dtype=torch.int64))))
            answers.append(tokens[len(prompt) :])
    return answers


def runner_of(model: Llama, options: Options, *, block_size: int = 8, n_blocks: int = 80) -> LlamaRunner:
    return LlamaRunner(
        model, block_size=block_size, n_blocks=n_blocks, max_batch=8, threads=1, options=options, startup=Startup()
    )


def generate(
    runner: LlamaRunner, prompts: list[list[int]], *, batch: int = 8, budget: int = 64, reuse: bool = False
) -> tuple[list[list[int]], int]:
    kv = KvBlocks(runner.n_blocks, runner.block_size, reuse_prefixes=reuse)
    scheduler = Scheduler(kv, max_batch=batch, queue_limit=99, max_context=128, step_tokens=budget)
    generations = [Generation(i, list(prompt), N_NEW, ignore_eos=True) for i, prompt in enumerate(prompts)]
    for generation in generations:
        scheduler.submit(generation)
    while chunks := scheduler.plan():
        scheduler.commit(chunks, runner.step(chunks))
    return [generation.tokens[generation.n_prompt :] for generation in generations], scheduler.n_preempted


@pytest.mark.parametrize("options", [Options(), Options(sizes=(3, 8)), Options(ahead=True), AHEAD])
@pytest.mark.parametrize(("block_size", "batch", "budget"), [(8, 8, 7), (1, 3, 64), (64, 8, 256), (8, 1, 64)])
def test_answers_are_those_of_the_model_alone(
    model: Llama,
    prompts: list[list[int]],
    alone: list[list[int]],
    options: Options,
    block_size: int,
    batch: int,
    budget: int,
) -> None:
    runner = runner_of(model, options, block_size=block_size, n_blocks=640 // block_size)
    assert generate(runner, prompts, batch=batch, budget=budget)[0] == alone
    assert generate(runner, prompts, batch=batch, budget=budget, reuse=True)[0] == alone


@pytest.mark.parametrize("options", [Options(), AHEAD], ids=["plain", "ahead"])
def test_being_sent_back_and_recomputed_changes_nothing(
    model: Llama, prompts: list[list[int]], alone: list[list[int]], options: Options
) -> None:
    answers, n_preempted = generate(runner_of(model, options, n_blocks=16), prompts)
    assert n_preempted > 0
    assert answers == alone


def test_answers_differ_and_are_printable(alone: list[list[int]]) -> None:
    assert len({tuple(tokens) for tokens in alone}) == len(alone)
    assert len({token for tokens in alone for token in tokens}) > 10
    assert all(32 <= token < 127 for tokens in alone for token in tokens)


class Watched:
    """A runner whose launches and moves are counted."""

    def __init__(self, runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runner = runner
        self.launches = 0
        self.moves = 0
        launch = runner._launch

        def counted(rows: list[object], moves: list[tuple[int, int]]) -> None:
            self.launches += 1
            self.moves += len(moves)
            launch(rows, moves)  # type: ignore[arg-type]

        monkeypatch.setattr(runner, "_launch", counted)


def decode(sequence: int, token: int, start: int, blocks: list[int], *, allow_eos: bool = False) -> Chunk:
    return Chunk(sequence, [token], start, blocks, True, allow_eos)


def test_a_foreseen_step_costs_one_launch_and_gives_the_same_tokens(
    model: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [Chunk(0, [40, 41, 42, 43, 44, 45], 0, [5], True, False)]
    plain, watched = runner_of(model, Options()), Watched(runner_of(model, AHEAD), monkeypatch)
    first = plain.step(prompt)
    assert watched.runner.step(prompt) == first
    for position in range(6, 30):
        # A page is given out only when its first token is asked for, as the scheduler does.
        chunks = [decode(0, first[0], position, [5, 9, 2, 7][: position // 8 + 1])]
        before = watched.launches
        got, first = watched.runner.step(chunks), plain.step(chunks)
        assert got == first
        assert watched.launches == before + 1
    assert watched.moves == 3  # at positions 8, 16 and 24 a spare page's slot became a real one


@pytest.mark.parametrize("change", ["token", "position", "page", "end", "nothing"])
def test_what_was_not_foreseen_is_computed_afresh(model: Llama, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    plain, watched = runner_of(model, Options()), Watched(runner_of(model, AHEAD), monkeypatch)
    prompt = Chunk(0, [40, 41, 42, 43], 0, [5], True, False)
    other = Chunk(1, [50, 51, 52], 0, [6], True, False)
    (token, token_1), _ = (runner.step([prompt, other]) for runner in (plain, watched.runner))
    if change == "page":  # the same contents elsewhere, as after being sent back with prefix reuse
        for runner in (plain, watched.runner):
            runner._cache.move(torch.arange(40, 44), torch.arange(56, 60))
    asked = {
        "token": decode(0, token ^ 1, 4, [5]),
        "position": decode(0, token, 3, [5]),
        "page": decode(0, token, 4, [7]),
        "end": decode(0, token, 4, [5], allow_eos=True),
        "nothing": decode(0, token, 4, [5]),
    }[change]
    chunks = [asked, decode(1, token_1, 3, [6])]
    before = watched.launches
    assert watched.runner.step(chunks) == plain.step(chunks)
    assert watched.launches == before + (1 if change == "nothing" else 2)
    kept = [runner._cache._by_slot[:, :, chunks[0].blocks[0] * 8 + 4].clone() for runner in (plain, watched.runner)]
    assert torch.allclose(*kept, atol=1e-6) == (change != "position")


def test_the_end_comes_only_where_it_is_allowed(model: Llama) -> None:
    weights = model.weights
    ending = Llama(SHAPE, weights, eos=frozenset(range(300)) - {65, 257}, printable=False)
    runner = runner_of(ending, Options())
    prompt = [33, 34, 35]
    assert runner.step([Chunk(0, prompt, 0, [0], True, False)])[0] in (65, 257)
    allowed = runner.step([Chunk(0, prompt, 0, [0], True, True)])[0]
    with torch.inference_mode():
        assert allowed == int(model.prompt_logits(torch.tensor(prompt))[-1].argmax())


def test_a_piece_that_samples_nothing_yields_nothing(model: Llama) -> None:
    runner = runner_of(model, AHEAD)
    assert runner.step([Chunk(0, [33, 34], 0, [0], False, False), Chunk(1, [35], 0, [1], False, False)]) == []


def test_an_embedding_has_unit_length_and_depends_on_the_prompt(model: Llama) -> None:
    one, two = runner_of(model, Options()).embed([[40, 41, 42], [42, 41, 40]])
    assert sum(x * x for x in one) == pytest.approx(1.0)
    assert one != two


def test_a_warm_up_times_its_phases_once(model: Llama) -> None:
    startup = Startup()
    runner = LlamaRunner(model, block_size=8, n_blocks=9, max_batch=8, threads=1, options=AHEAD, startup=startup)
    with startup.phase("weights"):
        runner.warm_up()
    assert set(startup.seconds()) == {"weights", "warm_up"}
    assert startup.seconds()["weights"] < startup.seconds()["warm_up"]
    assert set(startup.seconds()) <= set(PHASES)


def test_the_cache_is_no_larger_than_useful_nor_than_there_is_room(model: Llama) -> None:
    assert room(model, 8, 100) == 13
    assert room(model, 8, 10**9) * 8 * SHAPE.kv_bytes(4) <= 2 << 30


@given(st.integers(1, 400))
def test_a_ladder_ends_where_it_should_and_pads_little(largest: int) -> None:
    sizes = llama_runner.ladder(largest)
    assert sizes[-1] == largest
    assert list(sizes) == sorted(set(sizes))
    for wanted in range(1, largest + 1):
        size = llama_runner.fit(sizes, wanted)
        assert wanted <= size <= max(2 * wanted - 1, wanted + 31)
    with pytest.raises(ValueError, match="exceed"):
        llama_runner.fit(sizes, largest + 1)


@given(st.integers(1, 64), st.integers(1, 1000))
def test_widths_double_up_to_the_largest(smallest: int, largest: int) -> None:
    widths = llama_runner.powers(smallest, largest)
    assert widths[-1] == largest
    assert all(b <= 2 * a for a, b in itertools.pairwise(widths))


def test_a_buffer_is_not_filled_again_before_two_others_were() -> None:
    staging = Staging(4, device="cpu")
    seen = []
    for value in range(6):
        buffer = staging.next()
        buffer[:] = value
        seen.append(buffer)
        target = torch.zeros(2, 2, dtype=torch.int32)
        staging.send(target)
        assert target.tolist() == [[value, value], [value, value]]
    assert seen[0][0] == 3
    assert len({buffer.ctypes.data for buffer in seen}) == 3


@pytest.mark.parametrize("page_size", [4, 8])
def test_the_mask_of_pages_shows_each_row_its_own_past_and_nothing_else(page_size: int) -> None:
    from plimsoll.reference_server.device.pages_in_place import page_mask

    cache = PagedCache(SHAPE, n_pages=12, n_spare=0, page_size=page_size, device="cpu", dtype=torch.float32)
    tables = torch.tensor([[3, 7, 1], [2, 12, 12], [9, 0, 12]], dtype=torch.int32)
    positions = torch.tensor([3 * page_size - 1, 0, page_size + 1])
    mask = page_mask(3, 3, cache)
    mask.update(tables, positions)
    n_slots = 13 * page_size
    rows, slots = torch.arange(3).unsqueeze(1), torch.arange(n_slots)
    listed = mask.blocks.kv_indices[:, 0, 0]
    visited = torch.zeros(3, 13, dtype=torch.bool)
    for row, n in enumerate(mask.blocks.kv_num_blocks.flatten().tolist()):
        visited[row, listed[row, :n].long()] = True
    visible = visited.repeat_interleave(page_size, dim=1) & mask.blocks.mask_mod(rows, 0, 0, slots)
    for row, position in enumerate(positions.tolist()):
        past = {int(tables[row, at // page_size]) * page_size + at % page_size for at in range(position + 1)}
        assert set(visible[row].nonzero().flatten().tolist()) == past


def test_slow_rotations_are_stretched_and_fast_ones_are_not() -> None:
    plain, _ = rope_tables(LlamaShape(64, 2, 4, 2, 16, 96, 300, 128, rope_theta=500_000.0))
    scaled, _ = rope_tables(SHAPE)
    # Fast: over four turns in the old context of 64, left alone. Slow: under one turn, eight times slower.
    assert torch.equal(plain[:, 0], scaled[:, 0])
    assert torch.allclose(scaled[8::8, -1], plain[1:16, -1], atol=1e-12)


def test_the_large_presets_have_the_published_sizes() -> None:
    assert presets.LLAMAS["8b"].parameters() == 8_030_261_248  # Llama 3.1 8B
    assert presets.LLAMAS["1b"].parameters() == 1_235_814_400  # Llama 3.2 1B
    sizes = list(presets.sizes().values())
    assert sizes == sorted(sizes)
    assert 0.9e6 < sizes[0] < 1.2e6


def test_the_count_of_a_shape_is_what_its_weights_add_up_to(model: Llama) -> None:
    def count(shape: LlamaShape) -> int:
        weights = seeded(shape, seed=0, device="cpu", dtype=torch.float32)
        parts = [weights.embedding, weights.norm, *(() if shape.tied else (weights.unembed,))]
        parts += [getattr(layer, name) for layer in weights.layers for name in layer.__slots__]
        return sum(part.numel() for part in parts)

    assert count(SHAPE) == SHAPE.parameters()
    tied = LlamaShape(64, 2, 4, 2, 16, 96, 300, 128, tied=True)
    assert count(tied) == tied.parameters()


def test_an_unknown_preset_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"--preset huge: unknown\. Choose from tiny, small, 125m, 1b, 8b"):
        presets.preset("huge")
    assert "8b (8.0 G)" in presets.listing()


def test_the_seed_makes_the_weights() -> None:
    first, same, other = (seeded(SHAPE, seed=seed, device="cpu", dtype=torch.float32) for seed in (1, 1, 2))
    assert torch.equal(first.layers[1].down, same.layers[1].down)
    assert not torch.equal(first.layers[1].down, other.layers[1].down)
