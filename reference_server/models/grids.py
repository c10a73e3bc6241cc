"""Matrix products on integer grids, for models whose result for a sample must not depend on who else is in the batch.

Both factors are integers so small that a float32 holds every partial sum exactly, whatever the order: level x level x
length stays below 2**24. What remains is element-wise, which IEEE 754 rounds the same way everywhere; lower precision,
TF32 or bf16, is refused because it would undo that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll.reference_server.models.presets import EXACT


def level_of(n_in: int) -> float:
    """The largest grid, at most 8 bits, on which a product of length ``n_in`` is exact."""
    return float(min(127, math.isqrt(EXACT // n_in)))


def to_grid(x: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Rows of x [N, n] as integers in [-level, level], and the worth [N, 1] of one step of each row."""
    largest = x.abs().amax(-1, keepdim=True).clamp_(min=1e-30)
    return (x * (level / largest)).round_(), largest.mul_(1.0 / level)


@dataclass(frozen=True, slots=True)
class GridLinear:
    """Integer weights [n_in, n_out], what one step of them is worth, and the grid that rows of inputs are put on."""

    weight: Tensor
    scale: float
    level: float

    def __call__(self, x: Tensor) -> Tensor:
        grid, step = to_grid(x, self.level)
        return torch.mm(grid, self.weight).mul_(step * self.scale)

    def normed(self, x: Tensor) -> Tensor:
        """The same for each row of x divided by its root mean square: the row's step cancels."""
        grid, _ = to_grid(x, self.level)
        mean_square = (grid * grid).sum(-1, keepdim=True).mul_(1.0 / x.shape[-1])
        return torch.mm(grid, self.weight).mul_(self.scale / mean_square.sqrt_().clamp_(min=1e-6))


def seeded_linear(generator: torch.Generator, n_in: int, n_out: int, device: str, *, gain: float = 1.0) -> GridLinear:
    """Normal weights with a spread of gain / sqrt(n_in), cut at four spreads."""
    level = level_of(n_in)
    weight = torch.randn(n_in, n_out, generator=generator).mul_(level / 4).round_().clamp_(-level, level)
    return GridLinear(weight.to(device), gain * 4.0 / level / math.sqrt(n_in), level)


@dataclass(frozen=True, slots=True)
class GridLayer:
    """One transformer layer: attention's two products, and those of the gated feed-forward part."""

    qkv: GridLinear
    out: GridLinear
    gate_up: GridLinear
    down: GridLinear

    def fed_forward(self, x: Tensor) -> Tensor:
        """What the feed-forward part adds to x. Its sigmoid is the softsign one: libraries approximate exp in several
        ways."""
        gate, up = self.gate_up.normed(x).chunk(2, dim=-1)
        sigmoid = (gate / gate.abs().add_(1.0)).add_(1.0).mul_(0.5)
        return self.down(sigmoid.mul_(gate).mul_(up))
