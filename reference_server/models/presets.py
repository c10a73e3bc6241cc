"""The sizes in which the language model comes: shapes, and how many weights and bytes they mean. Imports no torch.

``tiny`` and ``small`` are shapes of the integer-grid decoder (models/decoder.py), the others of the Llama architecture
(models/llama.py). No shape is named after a published model unless every number but the context is that model's (1b:
Llama 3.2 1B, 8b: Llama 3.1 8B).
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.reference_server.values.errors import ConfigError
from plimsoll.reference_server.values.tokenizer import VOCABULARY

SIDES = (32, 512)
"""Least and most pixels a side of a picture that is computed."""
EXACT = 2**24 - 1
"""Largest integer up to which float32 holds every one."""
GRID_MAX = 31.0
"""Largest level of queries, keys and values of the grid decoder."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a grid decoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    max_context: int = 4096
    rope_base: float = 10_000.0

    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return VOCABULARY * self.hidden + self.layers * (attention + 3 * self.hidden * self.feed_forward)

    @property
    def probability_levels(self) -> float:
        """Steps between 0 and 1 of an attention weight, so that a context of equal weights still adds up
        exactly.
        """
        return float(min(1024, EXACT // (int(GRID_MAX) * self.max_context)))


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's stretching: wavelengths longer than original_context / low_freq_factor grow by ``factor``."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The sizes of a model of the Llama architecture."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    max_context: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tied: bool = False

    @property
    def qkv(self) -> int:
        """Numbers that the fused projection gives per token."""
        return self.head_dim * (self.heads + 2 * self.kv_heads)

    def matrix_parameters(self) -> int:
        """Weights that take part in a matrix product for every token: all layers and the output head."""
        attention = self.hidden * (self.qkv + self.heads * self.head_dim)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward) + self.vocabulary * self.hidden

    def parameters(self) -> int:
        """Number of weights, as the model's card counts them."""
        norms = (2 * self.layers + 1) * self.hidden
        return self.matrix_parameters() + norms + (0 if self.tied else self.vocabulary * self.hidden)

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of the keys and values of one token, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize

    def step_bytes(self, batch: int, context: int, itemsize: int) -> int:
        """Bytes that a decoding step can't avoid reading: every matrix once, the keys and values of every sequence."""
        return self.matrix_parameters() * itemsize + batch * context * self.kv_bytes(itemsize)

    def prompt_flops(self, n_tokens: int) -> int:
        """Multiplications and additions of a prompt's forward pass, one position through the output head.

        Two for each weight of each token's products, and 4 x heads x head_dim for each of the n (n + 1) / 2 pairs of a
        query and a key that it may see.
        """
        head = self.vocabulary * self.hidden
        products = 2 * (self.matrix_parameters() - head) * n_tokens + 2 * head
        pairs = n_tokens * (n_tokens + 1) // 2
        return products + self.layers * 4 * self.heads * self.head_dim * pairs


DECODERS = {
    "tiny": DecoderShape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, feed_forward=512),
    "small": DecoderShape(hidden=384, layers=6, heads=6, kv_heads=2, head_dim=64, feed_forward=1024),
}
LLAMAS = {
    "125m": LlamaShape(
        hidden=768, layers=12, heads=12, kv_heads=3, head_dim=64, feed_forward=2112, vocabulary=32_000, max_context=4096
    ),
    "1b": LlamaShape(
        hidden=2048,
        layers=16,
        heads=32,
        kv_heads=8,
        head_dim=64,
        feed_forward=8192,
        vocabulary=128_256,
        max_context=8192,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192),
        tied=True,
    ),
    "8b": LlamaShape(
        hidden=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        feed_forward=14336,
        vocabulary=128_256,
        max_context=8192,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192),
    ),
}


def preset(name: str) -> DecoderShape | LlamaShape:
    found = DECODERS.get(name) or LLAMAS.get(name)
    if found is None:
        raise ConfigError(f"--preset {name}: unknown. Choose from {', '.join(sizes())}")
    return found


def sizes() -> dict[str, int]:
    """Number of weights by preset, smallest first."""
    return {name: shape.parameters() for name, shape in (DECODERS | LLAMAS).items()}


def listing() -> str:
    """``tiny (1.1 M), small (9.8 M), ...``: for help texts."""
    return ", ".join(f"{name} ({in_words(n)})" for name, n in sizes().items())


def in_words(n: int) -> str:
    """A count of weights: ``1.1 M``, ``125 M``, ``8.0 G``."""
    for unit, worth in (("G", 10**9), ("M", 10**6)):
        if n >= worth:
            return f"{n / worth:.0f} {unit}" if n >= 100 * worth else f"{n / worth:.1f} {unit}"
    return str(n)
