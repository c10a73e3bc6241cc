"""The recogniser's filter bank on a CUDA device: not nearly the same numbers as on the CPU, but the same."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(scope="module")
def cuda() -> None:
    torch = pytest.importorskip("torch", reason="the recogniser needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; torch finds none here")


def test_a_device_hears_the_same_bits_as_the_cpu() -> None:
    from plimsoll.reference_server.models.tone_bank import ToneBank

    samples = np.rint(np.random.default_rng(1).normal(0, 3000, (5, 192 + 48 * 30)))
    on_cpu, on_device = (ToneBank(device).shares(samples) for device in ("cpu", "cuda"))
    for expected, found in zip(on_cpu, on_device, strict=True):
        assert np.array_equal(found, expected)
