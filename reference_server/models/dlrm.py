"""A deep learning recommendation model with seeded weights: 13 numbers and 26 categories in, the chance of a click out.

The shapes are MLPerf's DLRM; rows in memory are at most 100,000 a table on a CPU and 4 million on a GPU, to which an
index is taken modulo. All products are on integer grids (see ``grids``), so a click's probability does not depend on
its batch, bit for bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plimsoll.reference_server.models.grids import GridLinear, seeded_linear, to_grid
from plimsoll.reference_server.values import tensors as named
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError

N_DENSE, N_TABLES, DIM = 13, 26, 128
# fmt: off
TABLES = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
    39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)
# fmt: on
"""Rows of each category's table."""
MAX_ROWS = {"cpu": 100_000, "cuda": 4_000_000}
_BOTTOM = (N_DENSE, 512, 256, DIM)
_N_PAIRS = (N_TABLES + 1) * N_TABLES // 2
_TOP = (DIM + _N_PAIRS, 1024, 1024, 512, 256, 1)
_ROW_STEP = math.sqrt(3.0) / 128 / math.sqrt(DIM)
"""What one step of a table's byte is worth, so that an embedding has a length of about one."""
_N_CLICKS = 512
_LOGIT_MEAN, _LOGIT_SPREAD = -1.2, 1.0
"""About one in four clicks, as in the logs."""


@dataclass(frozen=True, slots=True)
class _Layer:
    linear: GridLinear
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """x [N, n_in] to [N, n_out], without the rectifier."""
        return self.linear(x).add_(self.bias)


class Network:
    """The tables, the two MLPs and the forward pass."""

    def __init__(self, *, seed: int, device: str, max_rows: int) -> None:
        rows = np.minimum(TABLES, max_rows)
        self.rows = rows.astype(np.int64)
        self.first_row = np.concatenate(([0], np.cumsum(self.rows)[:-1]))
        self._table = _bytes(seed, int(self.rows.sum()), device)
        generator = torch.Generator().manual_seed(seed)
        self._bottom = _mlp(generator, _BOTTOM, device)
        self._top = _mlp(generator, _TOP, device)
        pairs = torch.tril_indices(N_TABLES + 1, N_TABLES + 1, offset=-1, device=device)
        self._pairs = pairs[0] * (N_TABLES + 1) + pairs[1]
        self._shift, self._stretch = 0.0, 1.0
        self._centre(seed, device)

    def look_up(self, rows: Tensor) -> Tensor:
        """The bytes of rows [N, 26] of the joint table: [N, 26, 128]."""
        return self._table.index_select(0, rows.flatten()).view(-1, N_TABLES, DIM)

    def __call__(self, dense: Tensor, looked_up: Tensor) -> Tensor:
        """Dense features [N, 13], transformed, and what was looked up to logits [N]."""
        vector = _through(self._bottom, dense).relu_()
        whole, step = to_grid(vector, 127.0)
        vectors = torch.cat((whole.unsqueeze(1), looked_up.float()), 1)
        worth = torch.cat((step, step.new_full((len(step), N_TABLES), _ROW_STEP)), 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        products.mul_(worth.unsqueeze(1)).mul_(worth.unsqueeze(2))
        features = torch.cat((vector, products.flatten(1).index_select(1, self._pairs)), 1)
        return _through(self._top, features).squeeze(1).sub_(self._shift).mul_(self._stretch)

    def _centre(self, seed: int, device: str) -> None:
        """Have the logits of seeded clicks vary around that of one click in four."""
        rng = np.random.default_rng(abs(seed))
        dense = rng.standard_exponential((_N_CLICKS, N_DENSE), dtype=np.float32)
        rows = (rng.random((_N_CLICKS, N_TABLES)) * self.rows).astype(np.int64) + self.first_row
        logits = self(torch.from_numpy(dense).to(device), self.look_up(torch.from_numpy(rows).to(device)))
        spread, mean = torch.std_mean(logits)
        self._stretch = _LOGIT_SPREAD / float(spread)
        self._shift = float(mean) - _LOGIT_MEAN / self._stretch


class Dlrm:
    """The network as a batch model: a sample is a click (dense float32 [13], rows int64 [26]), a result its logit."""

    name = "dlrm"
    inputs = (
        named.TensorSpec("dense", "FP32", (-1, N_DENSE)),
        named.TensorSpec("categorical", "INT64", (-1, N_TABLES)),
    )
    outputs = (named.TensorSpec("probability", "FP32", (-1, 1)),)

    def __init__(self, network: Network, *, device: str, threads: int) -> None:
        self._network = network
        self._device = device
        self._threads = threads

    def warm_up(self, max_batch: int) -> None:
        torch.set_num_threads(self._threads)  # the setting is per thread, and this is the thread that computes
        click = (np.zeros(N_DENSE, dtype=np.float32), self._network.first_row)
        for size in {1, max_batch}:
            self.forward([click] * size, Stages())

    def preprocess(self, tensors: Mapping[str, named.Tensor], stages: Stages) -> Sequence[Any]:
        """log(1 + x) of the dense features, those below 0 taken as 0; the table row of each index."""
        dense, categorical = tensors["dense"].data, tensors["categorical"].data
        with stages.time("preprocess.check"):
            _check(dense, categorical)
        with stages.time("preprocess.transform"):
            transformed = np.log1p(np.maximum(dense, 0).astype(np.float64)).astype(np.float32)
            rows = categorical % self._network.rows + self._network.first_row
        return list(zip(transformed, rows, strict=True))

    @torch.inference_mode()
    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[float]:
        with stages.time("inference.forward.copy"):
            dense, rows = (torch.from_numpy(np.stack(column)) for column in zip(*samples, strict=True))
            if self._device != "cpu":
                dense, rows = (t.pin_memory().to(self._device, non_blocking=True) for t in (dense, rows))
                torch.cuda.synchronize()
        with stages.time("inference.forward.embedding"):
            looked_up = self._network.look_up(rows)
            if self._device != "cpu":
                torch.cuda.synchronize()
        logits: list[float] = self._network(dense, looked_up).tolist()
        return logits

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[named.Tensor]:
        with stages.time("postprocess.sigmoid"):
            chances = [1.0 / (1.0 + math.exp(-logit)) for logit in results]
        return [named.Tensor("probability", "FP32", np.array(chances, dtype=np.float32).reshape(-1, 1))]


def build(*, device: str, seed: int, threads: int) -> Dlrm:
    torch.set_num_threads(threads)
    with torch.inference_mode():
        network = Network(seed=seed, device=device, max_rows=MAX_ROWS[device])
    return Dlrm(network, device=device, threads=threads)


def _check(dense: npt.NDArray[Any], categorical: npt.NDArray[Any]) -> None:
    if not np.isfinite(dense).all():
        row, column = (int(at) for at in np.argwhere(~np.isfinite(dense))[0])
        raise _wrong("dense", row, column, f"is {dense[row, column]}. Give finite numbers")
    outside = (categorical < 0) | (categorical >= np.array(TABLES))
    if outside.any():
        row, column = (int(at) for at in np.argwhere(outside)[0])
        limit = TABLES[column]
        message = f"index {categorical[row, column]} is outside its table of {limit:,} rows. Give 0 to {limit - 1}"
        raise _wrong("categorical", row, column, message)


def _wrong(name: str, row: int, column: int, message: str) -> RequestError:
    return RequestError(400, f"{name}[{row}][{column}]: {message}", param=name, code="invalid_value")


def _bytes(seed: int, n_rows: int, device: str) -> Tensor:
    """A table [n_rows, 128] of uniform signed bytes."""
    if device != "cpu":
        generator = torch.Generator(device).manual_seed(seed)
        return torch.empty((n_rows, DIM), dtype=torch.int8, device=device).random_(-128, 128, generator=generator)
    raw = np.random.default_rng(abs(seed)).integers(-128, 128, (n_rows, DIM), dtype=np.int8)
    return torch.from_numpy(raw)


def _mlp(generator: torch.Generator, sizes: Sequence[int], device: str) -> list[_Layer]:
    layers = []
    for n_in, n_out in itertools.pairwise(sizes):
        bias = torch.randn(n_out, generator=generator) * 0.1
        layers.append(_Layer(seeded_linear(generator, n_in, n_out, device, gain=math.sqrt(2)), bias.to(device)))
    return layers


def _through(layers: Sequence[_Layer], x: Tensor) -> Tensor:
    """All layers, rectified between them."""
    for layer in layers[:-1]:
        x = layer(x).relu_()
    return layers[-1](x)
