"""The paged KV cache on a device, written by slot (a page's place for one token) and read by page, and attention over
it.

Beside the scheduler's pages there are a scratch page, where padding writes, and a spare page for each row of a batch.
Decoding here copies the pages, which needs no compiler; ``pages_in_place`` does not copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plimsoll.reference_server.models.llama import causal_attention
from plimsoll.reference_server.models.presets import LlamaShape


class PagedCache:
    """Keys and values of all layers: [layers, 2, pages, page_size, kv_heads, head_dim]."""

    def __init__(
        self, shape: LlamaShape, *, n_pages: int, n_spare: int, page_size: int, device: str, dtype: torch.dtype
    ) -> None:
        self.page_size = page_size
        self.n_pages = n_pages
        self.scratch = n_pages
        pages = n_pages + 1 + n_spare
        size = (shape.layers, 2, pages, page_size, shape.kv_heads, shape.head_dim)
        # Zeros, not whatever is there: a masked value still takes part as 0 x value, which must not be 0 x NaN.
        self._store = torch.zeros(size, device=device, dtype=dtype)
        self._by_slot = self._store.view(shape.layers, 2, pages * page_size, shape.kv_heads, shape.head_dim)

    def spare(self, row: int) -> int:
        return self.n_pages + 1 + row

    def write(self, layer: int, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Put keys and values [N, kv_heads, dim] into ``slots`` [N]."""
        self._by_slot[layer, 0].index_copy_(0, slots, keys)
        self._by_slot[layer, 1].index_copy_(0, slots, values)

    def move(self, from_slots: Tensor, to_slots: Tensor) -> None:
        """Copy what lies in some slots [N] to others, all layers at once."""
        self._by_slot.index_copy_(2, to_slots, self._by_slot.index_select(2, from_slots))

    def slots(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer where they lie: [1, kv_heads, slots, dim], views."""
        keys, values = self._by_slot[layer]
        return keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)

    def gather(self, layer: int, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the pages in ``tables`` [B, W], in order: keys and values [B, kv_heads, W * page_size, dim]."""
        n_batch, width = tables.shape
        flat = tables.reshape(-1)
        gathered = (
            side.index_select(0, flat).view(n_batch, width * self.page_size, *side.shape[2:])
            for side in self._store[layer]
        )
        keys, values = (side.transpose(1, 2) for side in gathered)
        return keys, values


DecodeAttention = Callable[[int, Tensor], Tensor]
"""(layer, queries [B, heads, dim]) -> [B, heads * dim]."""


def prompt_attention(
    cache: PagedCache, layer: int, q: Tensor, k: Tensor, v: Tensor, pages: Tensor, start: int
) -> Tensor:
    """A piece of a prompt: q [Q, heads, dim] at positions start.. sees ``start`` earlier tokens in ``pages`` and
    itself, causally.

    k and v [Q, kv_heads, dim] are the piece's own, so a whole prompt reads nothing back from the cache. -> [Q, heads *
    dim].
    """
    if start == 0:
        return causal_attention(q, k, v)
    n_query = len(q)
    keys, values = (side[:, :, : start + n_query] for side in cache.gather(layer, pages.unsqueeze(0)))
    mask: Any
    if q.is_cuda:  # the flash kernel takes grouped heads and aligns the triangle at the lower right
        from torch.nn.attention.bias import causal_lower_right  # imports a compiler: seconds

        mask = causal_lower_right(n_query, start + n_query)
    else:
        mask = torch.ones(n_query, start + n_query, dtype=torch.bool, device=q.device).tril(start)
    mixed = functional.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask, enable_gqa=True
    )
    return mixed.squeeze(0).transpose(0, 1).flatten(1)


def gathered(cache: PagedCache, tables: Tensor, positions: Tensor) -> DecodeAttention:
    """Decoding by copies: rows at ``positions`` [B] over the pages of ``tables`` [B, W]."""
    places = torch.arange(tables.shape[1] * cache.page_size, device=tables.device)
    visible = (places <= positions.unsqueeze(1))[:, None, None, :]

    def attend(layer: int, q: Tensor) -> Tensor:
        keys, values = cache.gather(layer, tables)
        n_batch, heads, dim = q.shape
        # The heads that share keys are rows of one small matrix: grouped attention that expands nothing.
        grouped = q.reshape(n_batch, keys.shape[1], -1, dim)
        mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible)
        return mixed.reshape(n_batch, heads * dim)

    return attend
