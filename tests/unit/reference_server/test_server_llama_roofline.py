"""The arithmetic of the rooflines, by hand, and the measuring of steps on a model small enough for a CPU."""

from __future__ import annotations

import pytest

from plimsoll.reference_server.models.presets import LLAMAS, LlamaShape

torch = pytest.importorskip("torch", reason="the language model needs torch")

from plimsoll.reference_server.device.llama_runner import Options  # noqa: E402
from plimsoll.reference_server.models.llama import Llama, seeded  # noqa: E402
from tests.bench import gpu_measures as gpu  # noqa: E402
from tests.bench.gpu_roofline import NO_DEVICE, main, table  # noqa: E402

EIGHT = LLAMAS["8b"]


def test_the_bytes_of_a_decoding_step_are_its_matrices_and_its_keys_and_values() -> None:
    # Per layer 4096 x (6144 + 4096) for attention and 3 x 4096 x 14336; then 128256 x 4096 for the head; two bytes
    # each.
    matrices = 2 * (32 * (4096 * 10240 + 3 * 4096 * 14336) + 128256 * 4096)
    assert EIGHT.step_bytes(0, 0, 2) == matrices == 15_009_316_864
    # Keys and values: 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB a token.
    assert EIGHT.kv_bytes(2) == 128 * 1024
    assert EIGHT.step_bytes(64, 2048, 2) == matrices + 64 * 2048 * 128 * 1024


def test_the_operations_of_a_prompt_are_two_for_each_weight_and_token_and_those_of_attention() -> None:
    layers = EIGHT.matrix_parameters() - 128256 * 4096
    pairs = 2048 * 2049 // 2
    assert EIGHT.prompt_flops(2048) == 2 * layers * 2048 + 2 * 128256 * 4096 + 32 * 4 * 4096 * pairs
    assert EIGHT.prompt_flops(2048) / 1e12 == pytest.approx(29.7, abs=0.05)


def test_a_share_is_of_the_roofline_that_binds() -> None:
    peaks = gpu.Peaks(100.0, 1000.0)
    assert gpu.Measured("x", 50, 100, 1.0).share(peaks) == 0.5
    assert gpu.Measured("x", 50, 900, 1.0).share(peaks) == 0.9


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA H200", 4.8e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H100 PCIe", 2.0e12),
        ("NVIDIA A100-SXM4-80GB", 2.039e12),
    ],
)
def test_a_device_is_found_in_the_data_sheets_by_its_name(name: str, bandwidth: float) -> None:
    found = gpu.data_sheet(name)
    assert found is not None
    assert found.bandwidth == bandwidth
    assert gpu.data_sheet("something else") is None


@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "ahead"])
def test_steps_are_measured_through_the_seam(ahead: bool) -> None:
    shape = LlamaShape(32, 1, 2, 1, 16, 48, 130, 128)
    model = Llama(shape, seeded(shape, seed=0, device="cpu", dtype=torch.float32), eos=frozenset({129}), printable=True)
    options = Options(ahead=ahead, sizes=(1, 4))
    runner = gpu.warm_runner(model, options, n_tokens=4 * 100, max_batch=4, block_size=16)
    decoded = gpu.decoding(runner, batch=4, context=40, steps=20)
    assert (decoded.name, decoded.n_bytes) == ("decode, batch 4", shape.step_bytes(4, 40, 4))
    assert 0 < decoded.seconds < 1
    prompt = gpu.prefill(runner, n_tokens=60, rounds=4)
    assert (prompt.name, prompt.flops) == ("prefill, 60 tokens", shape.prompt_flops(60))
    assert 0 < prompt.seconds < 1
    with pytest.raises(ValueError, match="don't fit into 128"):
        gpu.decoding(runner, batch=1, context=100, steps=60)
    with pytest.raises(ValueError, match="5 sequences of 7 blocks don't fit into 29"):
        gpu.decoding(runner, batch=5, context=90, steps=20)


def test_the_table_says_what_was_reached_and_what_was_not() -> None:
    rows = [gpu.Measured("decode, batch 1", 60, 1, 1.0), gpu.Measured("decode, batch 64", 40, 1, 1.0)]
    lines = table(rows, gpu.Peaks(120.0, 1e3), gpu.Peaks(100.0, 1e3)).splitlines()
    assert lines[-2].endswith("| 50% | 60% | 60% | yes |")
    assert lines[-1].endswith("| 33% | 40% | 50% | **no** |")


def test_without_a_device_the_program_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert main([]) == NO_DEVICE
    assert "no CUDA device" in capsys.readouterr().err
