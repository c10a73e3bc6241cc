"""The Llama architecture as published: RMSNorm, rotary positions (Llama 3's scaling too), grouped queries, SwiGLU.

Whoever provides ``attend`` keeps keys and values, so that one forward pass serves a paged cache, a graph and a plain
prompt. What a row gives depends on its company within the tolerance of the number format; biases, sliding windows and
experts are not computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plimsoll.reference_server.models.presets import LlamaShape, RopeScaling

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [N, heads, dim], keys [N, kv_heads, dim], values likewise) -> [N, heads * dim]."""


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """Weights of one layer, [out, in]; queries, keys and values are one matrix, gate and up another."""

    attention_norm: Tensor
    qkv: Tensor
    out: Tensor
    feed_forward_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights of a model, on one device and of one number format. ``unembed`` may be ``embedding``."""

    embedding: Tensor
    layers: tuple[LlamaLayer, ...]
    norm: Tensor
    unembed: Tensor


@dataclass(frozen=True, slots=True)
class Elementwise:
    """What happens between the matrix products: four functions, each one pass over memory once it is fused."""

    norm: Callable[[Tensor, Tensor, float], Tensor]
    add_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]
    gate: Callable[[Tensor], Tensor]


def elementwise(*, compiled: bool) -> Elementwise:
    """As plain torch, or fused by ``torch.compile`` for any number of rows, at the first call."""
    functions: list[Any] = [_norm, _add_norm, rotate, _gate]
    if compiled:
        functions = [torch.compile(function, dynamic=True) for function in functions]
    return Elementwise(*functions)


class Llama:
    """Weights and the forward pass."""

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, *, eos: frozenset[int], printable: bool) -> None:
        """``eos`` end an answer where a row allows it; with ``printable`` only those and printable ASCII are ever
        chosen, so that seeded weights answer text that the byte tokenizer can show."""
        self.shape = shape
        self.weights = weights
        self.elementwise = elementwise(compiled=False)
        device, dtype = weights.norm.device, weights.norm.dtype
        self.device, self.dtype = device, dtype
        cos, sin = rope_tables(shape)
        self._cos, self._sin = cos.to(device, dtype).unsqueeze(1), sin.to(device, dtype).unsqueeze(1)
        # Row 0: what may be chosen where the end is not allowed; row 1: where it is.
        bias = torch.zeros(2, shape.vocabulary, dtype=dtype)
        ends = sorted(eos)
        if printable:
            bias[:] = -torch.inf
            bias[:, 32:127] = 0.0
            bias[1, ends] = 0.0
        bias[0, ends] = -torch.inf
        self._bias = bias.to(device)

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Normalised last residual stream [N, hidden] of flattened ``tokens`` [N] at ``positions`` [N]."""
        shape, do, eps = self.shape, self.elementwise, self.shape.norm_eps
        n_qk = shape.heads + shape.kv_heads
        cos, sin = self._cos[positions], self._sin[positions]
        x = self.weights.embedding[tokens]
        layers = self.weights.layers
        normed = do.norm(x, layers[0].attention_norm, eps)
        for index, layer in enumerate(layers):
            qkv = functional.linear(normed, layer.qkv).view(len(tokens), -1, shape.head_dim)
            turned = do.rotate(qkv[:, :n_qk], cos, sin)
            mixed = attend(index, turned[:, : shape.heads], turned[:, shape.heads :], qkv[:, n_qk:])
            x, normed = do.add_norm(x, functional.linear(mixed, layer.out), layer.feed_forward_norm, eps)
            delta = functional.linear(do.gate(functional.linear(normed, layer.gate_up)), layer.down)
            after = layers[index + 1].attention_norm if index + 1 < len(layers) else self.weights.norm
            x, normed = do.add_norm(x, delta, after, eps)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [N, vocabulary] of what comes next."""
        return functional.linear(hidden, self.weights.unembed)

    def choose(self, hidden: Tensor, allow_eos: Tensor) -> Tensor:
        """Greedy choice [N]; the end of the sequence only where ``allow_eos`` [N], of 0 and 1, says so."""
        return (self.logits(hidden) + self._bias[allow_eos]).argmax(-1)

    def prompt_logits(self, tokens: Tensor) -> Tensor:
        """Scores [N, vocabulary] at every position of one sequence [N], with no cache: for comparisons."""
        return self.logits(self._alone(tokens))

    def embed(self, prompt: Sequence[int]) -> Tensor:
        """Mean of the last residual stream over the prompt, scaled to unit length: [hidden] in float32."""
        pooled = self._alone(torch.tensor(prompt, device=self.device)).float().mean(0)
        unit: Tensor = pooled / pooled.norm().clamp(min=1e-12)
        return unit

    def _alone(self, tokens: Tensor) -> Tensor:
        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return causal_attention(q, k, v)

        return self.hidden(tokens, torch.arange(len(tokens), device=self.device), attend)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A whole sequence that sees its own past: q [N, heads, dim], k and v [N, kv_heads, dim] -> [N, heads * dim]."""
    q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return mixed.squeeze(0).transpose(0, 1).flatten(1)


def seeded(shape: LlamaShape, *, seed: int, device: str, dtype: torch.dtype) -> LlamaWeights:
    """Weights drawn on the device itself, eight thousand million in seconds: normal, of the spread that keeps a
    stream's size.

    The seed makes them for one kind of device: the CPU and a GPU draw different numbers from it.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(n_out: int, n_in: int, spread: float) -> Tensor:
        return torch.empty(n_out, n_in, device=device, dtype=dtype).normal_(0.0, spread, generator=generator)

    def ones() -> Tensor:
        return torch.ones(shape.hidden, device=device, dtype=dtype)

    width = 1.0 / math.sqrt(shape.hidden)
    attention, feed_forward = shape.heads * shape.head_dim, shape.feed_forward
    # Each layer adds twice to the stream; the usual share keeps the sum of all of them near one.
    share = 1.0 / math.sqrt(2 * shape.layers)
    layers = tuple(
        LlamaLayer(
            attention_norm=ones(),
            qkv=matrix(shape.qkv, shape.hidden, width),
            out=matrix(shape.hidden, attention, share / math.sqrt(attention)),
            feed_forward_norm=ones(),
            gate_up=matrix(2 * feed_forward, shape.hidden, width),
            down=matrix(shape.hidden, feed_forward, share / math.sqrt(feed_forward)),
        )
        for _ in range(shape.layers)
    )
    # Small beside what the layers add, or with tied weights the likeliest token after any would be that token again.
    embedding = matrix(shape.vocabulary, shape.hidden, 0.1)
    unembed = embedding if shape.tied else matrix(shape.vocabulary, shape.hidden, width)
    return LlamaWeights(embedding, layers, ones(), unembed)


def rope_tables(shape: LlamaShape) -> tuple[Tensor, Tensor]:
    """Cosine and sine [max_context, head_dim / 2] of each position's angles, computed in float64.

    Source of the scaling: the reference code published with Llama 3.1.
    """
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    frequencies = shape.rope_theta**-exponents
    if shape.rope_scaling is not None:
        frequencies = _scaled(frequencies, shape.rope_scaling)
    angles = torch.arange(shape.max_context, dtype=torch.float64).unsqueeze(1) * frequencies
    return angles.cos(), angles.sin()


def _scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow rotations slowed by the factor, fast ones left alone, those between blended by how often they turn."""
    turns = scaling.original_context * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return frequencies * (blend + (1.0 - blend) / scaling.factor)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm, its statistics in float32."""
    wide = x.float()
    scaled: Tensor = weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return scaled


def _add_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The stream with what a layer adds, and the norm of that."""
    total = x + delta
    return total, _norm(total, weight, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x [N, heads, dim]: the two halves of each head are the two coordinates."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _gate(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of [N, 2 * feed_forward]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
