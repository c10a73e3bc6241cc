"""Models of fixed outputs on a CUDA device: exact where they are on integer grids, near where they are in bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.tensors import Tensor, bytes_tensor

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(scope="module")
def cuda() -> None:
    torch = pytest.importorskip("torch", reason="these models need torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; torch finds none here")


def test_a_click_has_the_same_probability_in_any_company() -> None:
    from plimsoll.reference_server.models.dlrm import TABLES, build

    model = build(device="cuda", seed=0, threads=1)
    model.warm_up(32)
    rng = np.random.default_rng(1)
    given = {
        "dense": Tensor("dense", "FP32", rng.lognormal(0, 2, (100, 13)).astype(np.float32)),
        "categorical": Tensor("categorical", "INT64", (rng.random((100, 26)) * np.array(TABLES)).astype(np.int64)),
    }
    samples = list(model.preprocess(given, Stages()))
    alone = [model.forward([sample], Stages())[0] for sample in samples]
    for size in (7, 32, 100):
        assert [y for at in range(0, 100, size) for y in model.forward(samples[at : at + size], Stages())] == alone


def test_a_text_has_the_vector_that_it_has_on_the_cpu() -> None:
    from plimsoll.reference_server.models.embedder import build

    texts = bytes_tensor("text", [b"a ship", b"many more words about ships and cakes", b"x" * 100])
    vectors = []
    for device in ("cpu", "cuda"):
        model = build(device=device, seed=0, threads=1)
        vectors.append(np.stack(model.forward(model.preprocess({"text": texts}, Stages()), Stages())))
    assert np.array_equal(*vectors)


def test_pictures_in_bfloat16_are_near_those_of_the_cpu_whatever_their_company() -> None:
    from plimsoll.reference_server.models.resnet import build

    rng = np.random.default_rng(1)
    samples = [
        rng.normal(0, 1, (224, 224, 3)).astype(np.float32) + rng.normal(0, 1, 3).astype(np.float32) for _ in range(5)
    ]
    exact, near = (build(device=device, seed=0, threads=1) for device in ("cpu", "cuda"))
    near.warm_up(5)
    expected, found = (np.stack(model.forward(samples, Stages())) for model in (exact, near))
    alone: Any = np.concatenate([near.forward([sample], Stages()) for sample in samples])
    for other in (found, alone):
        assert (other - expected).std() < 0.1 * expected.std()
