"""Attention over the paged cache, fused by torch: for pieces of prompts, and for decoding over copies of the pages.

Decoding is bound by the bytes that it moves, and a copy moves each key and value three times: read, written, read again. In
return it needs no compiler and runs on any device. pages_in_place.py is the other way; which to take is an option of the runner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plimsoll.reference_server.device.kv_cache import PagedCache
from plimsoll.reference_server.models.llama import causal_attention

DecodeAttention = Callable[[int, Tensor], Tensor]
"""(layer, queries [B, heads, dim]) -> [B, heads * dim]."""


def prompt_attention(
    cache: PagedCache, layer: int, q: Tensor, k: Tensor, v: Tensor, pages: Tensor, start: int
) -> Tensor:
    """A piece of a prompt: q [Q, heads, dim] at positions start.. sees ``start`` earlier tokens in ``pages`` and itself, causally.

    k and v [Q, kv_heads, dim] are the piece's own, so a whole prompt reads nothing back from the cache. -> [Q, heads * dim].
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
