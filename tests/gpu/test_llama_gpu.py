"""The Llama model on a CUDA device: the tokens that a CPU gives, with and without graphs, and as fast as was promised.

Tolerances: in float32 on both sides logits differ by under 2e-3 of the largest (other kernels, other orders of
summation); in bf16, whose numbers have 8 bits, by under 6 %. Tokens are compared in float32, where no two scores are
that near.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.models.presets import LlamaShape, RopeScaling

if TYPE_CHECKING:
    import torch

    from plimsoll.reference_server.device.llama_runner import LlamaRunner, Options
    from plimsoll.reference_server.models.llama import Llama

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

SHAPE = LlamaShape(
    hidden=256,
    layers=4,
    heads=8,
    kv_heads=2,
    head_dim=64,
    feed_forward=512,
    vocabulary=320,
    max_context=1024,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(8.0, 1.0, 4.0, 256),
)
NEEDED_BYTES = 40 << 30


@pytest.fixture(scope="module")
def cuda() -> None:
    torch = pytest.importorskip("torch", reason="the language model needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; torch finds none here")


def model_on(device: str, dtype: torch.dtype) -> Llama:
    """The same weights everywhere: drawn on the CPU, then moved."""
    import torch

    from plimsoll.reference_server.models.llama import Llama, LlamaLayer, LlamaWeights, seeded

    drawn = seeded(SHAPE, seed=1, device="cpu", dtype=torch.float32)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, dtype)

    layers = tuple(LlamaLayer(*(moved(getattr(layer, name)) for name in layer.__slots__)) for layer in drawn.layers)
    weights = LlamaWeights(moved(drawn.embedding), layers, moved(drawn.norm), moved(drawn.unembed))
    return Llama(SHAPE, weights, eos=frozenset({257}), printable=True)


def runner_of(model: Llama, options: Options) -> LlamaRunner:
    from plimsoll.reference_server.device.llama_runner import LlamaRunner
    from plimsoll.reference_server.values.durations import Startup

    runner = LlamaRunner(model, block_size=64, n_blocks=80, max_batch=8, threads=1, options=options, startup=Startup())
    runner.warm_up()
    assert runner.options == options, "it fell back to what needs no compiler"
    return runner


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chooser = random.Random(4)
    return [[chooser.randrange(32, 127) for _ in range(n)] for n in (1, 17, 60, 64, 130, 300, 33)]


def generate(runner: LlamaRunner, prompts: list[list[int]], batch: int = 8) -> list[list[int]]:
    kv = KvBlocks(runner.n_blocks, runner.block_size)
    scheduler = Scheduler(kv, max_batch=batch, queue_limit=99, max_context=1024, step_tokens=128)
    generations = [Generation(i, list(prompt), 80, ignore_eos=True) for i, prompt in enumerate(prompts)]
    for generation in generations:
        scheduler.submit(generation)
    while chunks := scheduler.plan():
        scheduler.commit(chunks, runner.step(chunks))
    return [generation.tokens[generation.n_prompt :] for generation in generations]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-3), ("bfloat16", 6e-2)])
def test_logits_are_those_of_the_cpu(dtype: str, tolerance: float) -> None:
    import torch

    tokens = torch.randint(32, 127, (200,), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        want = model_on("cpu", torch.float32).prompt_logits(tokens)
        got = model_on("cuda", getattr(torch, dtype)).prompt_logits(tokens.cuda()).float().cpu()
    assert float((got - want).abs().max()) < tolerance * float(want.abs().max())


@pytest.fixture(scope="module")
def on_cpu(prompts: list[list[int]]) -> list[list[int]]:
    import torch

    from plimsoll.reference_server.device.llama_runner import Options

    return generate(runner_of(model_on("cpu", torch.float32), Options()), prompts)


@pytest.mark.parametrize("paged", [False, True], ids=["copies", "in place"])
@pytest.mark.parametrize("graphs", [False, True], ids=["no graphs", "graphs"])
@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "ahead"])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_every_way_of_executing_a_step_gives_the_tokens_of_the_cpu(
    prompts: list[list[int]], on_cpu: list[list[int]], paged: bool, graphs: bool, ahead: bool, compiled: bool
) -> None:
    import torch

    from plimsoll.reference_server.device.llama_runner import Options

    options = Options(paged=paged, graphs=graphs, compiled=compiled, ahead=ahead, sizes=(1, 4, 8))
    assert generate(runner_of(model_on("cuda", torch.float32), options), prompts) == on_cpu


def test_in_bf16_graphs_change_no_token(prompts: list[list[int]]) -> None:
    """The same kernels on the same numbers: a graph changes who launches them, so nothing may differ at all."""
    import torch

    from plimsoll.reference_server.device.llama_runner import Options

    model = model_on("cuda", torch.bfloat16)
    with_graphs, without = (
        generate(runner_of(model, Options(paged=True, graphs=graphs, ahead=True, sizes=(1, 4, 8))), prompts)
        for graphs in (True, False)
    )
    assert with_graphs == without


def test_embeddings_are_those_of_the_cpu() -> None:
    import torch

    prompt = list(range(40, 90))
    with torch.inference_mode():
        want = model_on("cpu", torch.float32).embed(prompt)
        got = model_on("cuda", torch.bfloat16).embed(prompt).cpu()
    assert float(want @ got) > 0.999


@pytest.fixture(scope="module")
def large() -> Llama:
    import torch

    free, _ = torch.cuda.mem_get_info()
    if free < NEEDED_BYTES:
        pytest.skip(f"the 8 B shape needs {NEEDED_BYTES >> 30} GiB of GPU memory; {free >> 30} GiB are free")
    from tests.bench.gpu_measures import seeded_model

    return seeded_model("8b", "cuda")


def share_of_sheet(measured: object) -> float:
    import torch

    from tests.bench import gpu_measures as gpu

    assert isinstance(measured, gpu.Measured)
    name = torch.cuda.get_device_name()
    sheet = gpu.data_sheet(name)
    if sheet is None:
        pytest.skip(f"no data sheet is known here for {name}; run python -m tests.bench.gpu_roofline")
    return measured.share(sheet)


@pytest.mark.alone
@pytest.mark.parametrize("batch", [1, 64])
def test_decoding_keeps_its_share_of_the_bandwidth_roofline(large: Llama, batch: int) -> None:
    from plimsoll.reference_server.device.llama_runner import Options
    from tests.bench import gpu_measures as gpu

    options = Options(paged=True, graphs=True, compiled=True, ahead=True, sizes=(batch,))
    runner = gpu.warm_runner(large, options, n_tokens=batch * 2300, max_batch=batch)
    measured = gpu.decoding(runner, batch=batch, context=2048)
    assert share_of_sheet(measured) >= gpu.TARGETS[measured.name]


@pytest.mark.alone
def test_prefill_keeps_its_share_of_the_peak(large: Llama) -> None:
    from plimsoll.reference_server.device.llama_runner import Options
    from tests.bench import gpu_measures as gpu

    runner = gpu.warm_runner(large, Options(graphs=True, compiled=True, sizes=(1,)), n_tokens=4096, max_batch=1)
    measured = gpu.prefill(runner, n_tokens=2048)
    assert share_of_sheet(measured) >= gpu.TARGETS[measured.name]
