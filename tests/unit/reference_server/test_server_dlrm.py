"""The recommendation model: published shapes, the same answer in any company, and indices that are checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import Tensor

torch = pytest.importorskip("torch", reason="the recommendation model needs torch")

from plimsoll.reference_server.models.dlrm import _ROW_STEP, MAX_ROWS, TABLES, Dlrm, Network, build  # noqa: E402

N = 200


def inputs(dense: npt.NDArray[Any], categorical: npt.NDArray[Any]) -> dict[str, Tensor]:
    return {"dense": Tensor("dense", "FP32", dense), "categorical": Tensor("categorical", "INT64", categorical)}


def clicks(n: int, seed: int = 1) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    dense = rng.lognormal(0, 2, (n, 13)).astype(np.float32)
    return inputs(dense, (rng.random((n, 26)) * np.array(TABLES)).astype(np.int64))


@pytest.fixture(scope="module")
def model() -> Dlrm:
    made = build(device="cpu", seed=0, threads=1)
    made.warm_up(4)
    return made


@pytest.fixture(scope="module")
def samples(model: Dlrm) -> list[Any]:
    return list(model.preprocess(clicks(N), Stages()))


def test_the_shapes_are_those_of_mlperf(model: Dlrm) -> None:
    network: Network = model._network
    assert [tuple(layer.linear.weight.shape) for layer in network._bottom] == [(13, 512), (512, 256), (256, 128)]
    top = [tuple(layer.linear.weight.shape) for layer in network._top]
    assert top == [(479, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1)]
    assert len(TABLES) == 26
    assert network._table.shape == (sum(min(rows, MAX_ROWS["cpu"]) for rows in TABLES), 128)


def test_a_click_has_the_same_probability_in_any_company(model: Dlrm, samples: list[Any]) -> None:
    alone = [model.forward([sample], Stages())[0] for sample in samples]
    for size in (2, 3, 7, 32, N):
        together = [logit for at in range(0, N, size) for logit in model.forward(samples[at : at + size], Stages())]
        assert together == alone
    shuffled = np.random.default_rng(3).permutation(N)
    assert model.forward([samples[i] for i in shuffled], Stages()) == [alone[i] for i in shuffled]


def test_the_forward_pass_is_the_published_formula(model: Dlrm, samples: list[Any]) -> None:
    """In float64 without grids; these cost about 4 % of the spread of the logits."""
    network = model._network

    def through(layers: Any, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for index, layer in enumerate(layers):
            x = x @ (layer.linear.weight.double().numpy() * layer.linear.scale) + layer.bias.double().numpy()
            x = np.maximum(x, 0) if index < len(layers) - 1 else x
        return x

    vectors = np.maximum(through(network._bottom, np.stack([dense for dense, _ in samples]).astype(np.float64)), 0)
    rows = torch.from_numpy(np.stack([rows for _, rows in samples]))
    vectors = np.concatenate((vectors[:, None], network._table[rows].double().numpy() * _ROW_STEP), 1)
    products = [np.sum(vectors[:, i] * vectors[:, j], 1) for i in range(27) for j in range(i)]
    logits = through(network._top, np.concatenate((vectors[:, 0], np.stack(products, 1)), 1))[:, 0]
    expected = (logits - network._shift) * network._stretch
    off = (np.array(model.forward(samples, Stages())) - expected) / np.std(expected)
    assert np.sqrt(np.mean(off**2)) < 0.06
    assert np.abs(off).max() < 0.2


def test_probabilities_vary_around_one_click_in_four(model: Dlrm, samples: list[Any]) -> None:
    stages = Stages()
    (tensor,) = model.postprocess(model.forward(samples, Stages()), stages)
    assert (tensor.name, tensor.datatype, tensor.data.shape, tensor.data.dtype) == (
        "probability",
        "FP32",
        (N, 1),
        np.float32,
    )
    assert 0.15 < tensor.data.mean() < 0.4
    assert tensor.data.std() > 0.1
    assert tensor.data.min() > 0
    assert tensor.data.max() < 1
    assert list(stages.spans_ns) == ["postprocess.sigmoid"]


def test_every_feature_counts(model: Dlrm, samples: list[Any]) -> None:
    dense, rows = samples[0]
    (before,) = model.forward([samples[0]], Stages())
    for column in range(13):
        other = dense.copy()
        other[column] += 3.0
        assert model.forward([(other, rows)], Stages())[0] != before
    for column in range(26):
        other_rows = rows.copy()
        other_rows[column] = (
            model._network.first_row[column] + (rows[column] - model._network.first_row[column] + 1) % 3
        )
        assert model.forward([(dense, other_rows)], Stages())[0] != before


def test_the_seed_makes_the_model() -> None:
    rows = np.zeros((1, 26), dtype=np.int64)
    with torch.inference_mode():
        small = [Network(seed=seed, device="cpu", max_rows=10) for seed in (4, 4, 5)]
        looked_up = [net.look_up(torch.from_numpy(rows + net.first_row)) for net in small]
        one, same, other = (float(net(torch.ones(1, 13), found)) for net, found in zip(small, looked_up, strict=True))
    assert one == same != other


def test_dense_features_are_taken_by_their_logarithm_and_never_below_nothing(model: Dlrm) -> None:
    given = clicks(3)
    given["dense"].data[:, 0] = (-5.0, 0.0, math.e - 1)
    stages = Stages()
    first = [float(dense[0]) for dense, _ in model.preprocess(given, stages)]
    assert first == pytest.approx([0.0, 0.0, 1.0], abs=1e-6)
    assert list(stages.spans_ns) == ["preprocess.check", "preprocess.transform"]


def test_indices_of_a_large_table_wrap_around_the_rows_in_memory(model: Dlrm) -> None:
    given = clicks(2)
    given["categorical"].data[1] = given["categorical"].data[0]
    given["categorical"].data[0, 0], given["categorical"].data[1, 0] = 17, 17 + MAX_ROWS["cpu"]
    (_, one), (_, other) = model.preprocess(given, Stages())
    assert one.tolist() == other.tolist()
    assert one.max() < len(model._network._table)


@pytest.mark.parametrize(
    ("row", "column", "index", "message"),
    [
        (1, 5, 3, "categorical[1][5]: index 3 is outside its table of 3 rows. Give 0 to 2"),
        (2, 0, -1, "categorical[2][0]: index -1 is outside its table of 39,884,406 rows. Give 0 to 39884405"),
        (0, 25, 2**63 - 1, f"categorical[0][25]: index {2**63 - 1} is outside its table of 36 rows. Give 0 to 35"),
    ],
)
def test_an_index_outside_its_table_is_refused_by_row_and_column(
    model: Dlrm, row: int, column: int, index: int, message: str
) -> None:
    given = clicks(3)
    given["categorical"].data[row, column] = index
    with pytest.raises(RequestError) as caught:
        model.preprocess(given, Stages())
    assert (caught.value.status, caught.value.message) == (400, message)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_dense_feature_that_is_no_number_is_refused_by_row_and_column(model: Dlrm, value: float) -> None:
    given = clicks(3)
    given["dense"].data[2, 7] = value
    with pytest.raises(RequestError, match=r"dense\[2\]\[7\]: is (nan|inf|-inf)\. Give finite numbers"):
        model.preprocess(given, Stages())
