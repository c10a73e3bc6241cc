"""A decoder-only transformer with seeded weights whose greedy output can't depend on the company it is computed in.

All products are on integer grids (see ``grids``), and functions that libraries approximate differently are avoided: the
sigmoid is the softsign one, and exp(-d) is (1 - d/16)**16. No trained weights, no sampling temperature, no text worth
reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from plimsoll.reference_server.models.grids import GridLayer, seeded_linear, to_grid
from plimsoll.reference_server.models.llama import rotate
from plimsoll.reference_server.models.presets import GRID_MAX, DecoderShape
from plimsoll.reference_server.values.tokenizer import EOS, VOCABULARY

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [N, heads, dim], keys [N, kv_heads, dim], values likewise) -> [N, heads * dim]; all on the
grid.
"""

_GRID = 8.0
"""Steps per unit of queries, keys and values, whose spread is about one."""
_DRIFT = 0.05
_FIRST_PRINTABLE, _LAST_PRINTABLE = 32, 126


class Decoder:
    """Weights of one model and the forward pass; keys and values are kept by whoever provides ``attend``."""

    def __init__(self, shape: DecoderShape, *, seed: int, device: str) -> None:
        self.shape = shape
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        q_kv = shape.head_dim * (shape.heads + 2 * shape.kv_heads)
        self._layers = [
            GridLayer(
                qkv=seeded_linear(generator, shape.hidden, q_kv, device),
                out=seeded_linear(generator, shape.heads * shape.head_dim, shape.hidden, device),
                gate_up=seeded_linear(generator, shape.hidden, 2 * shape.feed_forward, device),
                down=seeded_linear(generator, shape.feed_forward, shape.hidden, device),
            )
            for _ in range(shape.layers)
        ]
        self._unembed = seeded_linear(generator, shape.hidden, VOCABULARY, device)
        # Tied weights. A small share in the residual stream, or the best next token would be the last one for
        # ever.
        self._embedding = (self._unembed.weight.t() * (0.25 / self._unembed.weight.abs().max())).contiguous()
        # Greedy decoding with random weights falls into a fixed point within a few tokens; a little of the
        # absolute position keeps it moving, so that answers differ and comparing two of them means something.
        drift = torch.randn(shape.max_context, shape.hidden, generator=generator).mul_(_DRIFT)
        self._drift = drift.to(device)
        self._cos, self._sin = _rope_tables(shape, device)
        # Equal scores are settled for the lower id: scores are integers, so id fits below them in an int64.
        ids = torch.arange(VOCABULARY, device=device)
        self._tie_break = VOCABULARY - 1 - ids
        self._forbidden = (ids < _FIRST_PRINTABLE) | (ids > _LAST_PRINTABLE) & (ids != EOS)

    def coarsen(self, levels: int, share: float) -> None:
        """Leave ``levels`` values to the weights and ``share`` of the layers: what a careless quantisation does to a
        model.

        Weights stay integers within their grid, so that sums stay exact.
        """
        self._layers = self._layers[: max(1, round(share * len(self._layers)))]
        for layer in self._layers:
            for linear in (layer.qkv, layer.out, layer.gate_up, layer.down):
                step = math.ceil(linear.level / max(1, (levels - 1) // 2))
                linear.weight.div_(step).round_().mul_(step).clamp_(-linear.level, linear.level)

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Last residual stream [N, hidden] of flattened ``tokens`` [N] at ``positions`` [N]."""
        shape = self.shape
        n_q = shape.heads * shape.head_dim
        n_qk = n_q + shape.kv_heads * shape.head_dim
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        x = self._embedding[tokens] + self._drift[positions]
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv.normed(x)
            turned = rotate(qkv[:, :n_qk].view(len(x), -1, shape.head_dim), cos, sin)
            turned = turned.mul_(_GRID).round_().clamp_(-GRID_MAX, GRID_MAX)
            values = qkv[:, n_qk:].mul(_GRID).round_().clamp_(-GRID_MAX, GRID_MAX)
            mixed = attend(
                index,
                turned[:, : shape.heads],
                turned[:, shape.heads :],
                values.view(len(x), shape.kv_heads, shape.head_dim),
            )
            x = x + layer.out(mixed)
            x = x + layer.fed_forward(x)
        return x

    def next_tokens(self, hidden: Tensor, allow_eos: Tensor) -> Tensor:
        """Greedy choice [N] among printable bytes, and the end of the sequence where ``allow_eos`` [N] is
        true.
        """
        grid, _ = to_grid(hidden, self._unembed.level)
        scores = torch.mm(grid, self._unembed.weight).to(torch.int64) * VOCABULARY + self._tie_break
        scores.masked_fill_(self._forbidden, -(2**62))
        scores[:, EOS].masked_fill_(~allow_eos, -(2**62))
        return scores.argmax(-1)

    def embed(self, prompt: Sequence[int]) -> Tensor:
        """Mean of the last residual stream over the prompt, scaled to unit length: [hidden]."""
        positions = torch.arange(len(prompt), device=self.device)
        visible = positions.unsqueeze(0) <= positions.unsqueeze(1)

        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = (t.transpose(0, 1).contiguous() for t in (k, v))
            return attention(self.shape, q.unsqueeze(0), keys, values, visible.unsqueeze(0)).view(len(prompt), -1)

        pooled = self.hidden(torch.tensor(prompt, device=self.device), positions, attend).mean(0)
        unit: Tensor = pooled / pooled.norm().clamp(min=1e-12)
        return unit


def attention(shape: DecoderShape, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Grouped-query attention on grid values.

    q [B, Q, heads, dim]; k and v [B * kv_heads, T, dim]; visible [B, Q, T] -> [B, Q, heads * dim].
    """
    n_batch, n_query, heads, dim = q.shape
    group = heads // shape.kv_heads
    stacked = q.view(n_batch, n_query, shape.kv_heads, group, dim).permute(0, 2, 1, 3, 4)
    stacked = stacked.reshape(n_batch * shape.kv_heads, n_query * group, dim)
    scores = torch.bmm(stacked, k.transpose(1, 2)).mul_(1.0 / (_GRID * _GRID * math.sqrt(dim)))
    by_query = scores.view(n_batch, shape.kv_heads, n_query, group, -1)
    by_query.masked_fill_(~visible[:, None, :, None], -1e9)
    weights = (scores - scores.amax(-1, keepdim=True)).mul_(1.0 / 16.0).add_(1.0).clamp_(min=0.0)
    weights = weights.square_().square_().square_().square_().mul_(shape.probability_levels).round_()
    mixed = torch.bmm(weights, v).div_(weights.sum(-1, keepdim=True).mul_(_GRID))
    mixed = mixed.view(n_batch, shape.kv_heads, n_query, group, dim).permute(0, 2, 1, 3, 4)
    return mixed.reshape(n_batch, n_query, heads * dim)


def _rope_tables(shape: DecoderShape, device: str) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles = torch.arange(shape.max_context, dtype=torch.float64).unsqueeze(1) / shape.rope_base**exponents
    return angles.cos().float().to(device), angles.sin().float().to(device)
