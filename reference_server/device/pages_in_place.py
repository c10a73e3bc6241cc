"""Decoding over the pages of the cache where they lie: flex attention with a block mask whose blocks are pages.

Every key and value is read once and nothing is written, a third of the traffic of copying first. It needs a compiler,
and importing torch's takes seconds, so that this file is imported only by who asks for it. It refuses to fall back: the
runner does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from plimsoll.reference_server.device.paged_cache import DecodeAttention, PagedCache


@dataclass(frozen=True, slots=True)
class PageMask:
    """Which slots each row of a batch may see, as flex attention has it. Its tensors keep their place, so that graphs
    may hold it.

    Every page counts as a partial block: with none called full the kernel shares a row's pages evenly among its splits,
    whatever the size of the cache, and the mask costs two comparisons.
    """

    blocks: BlockMask
    n_blocks: Tensor
    indices: Tensor
    last_page: Tensor
    filled: Tensor
    page_size: int

    def update(self, tables: Tensor, positions: Tensor) -> None:
        """Rows now end at ``positions`` [B], in the pages of ``tables`` [B, W]. Nothing is waited for."""
        last = positions // self.page_size
        self.n_blocks.copy_((last + 1).view(-1, 1, 1))
        self.indices.copy_(tables.view(len(positions), 1, 1, -1))
        self.last_page.copy_(tables.gather(1, last.unsqueeze(1)).squeeze(1))
        self.filled.copy_(positions % self.page_size + 1)


def page_mask(n_batch: int, width: int, cache: PagedCache) -> PageMask:
    """A mask for ``n_batch`` rows of up to ``width`` pages each."""
    keys, _ = cache.slots(0)
    page_size, n_slots, device = cache.page_size, keys.shape[2], keys.device

    def zeros(*size: int) -> Tensor:
        return torch.zeros(*size, dtype=torch.int32, device=device)

    n_blocks, indices = zeros(n_batch, 1, 1), zeros(n_batch, 1, 1, width)
    last_page, filled = zeros(n_batch), zeros(n_batch)

    def visible(b: Tensor, _h: Tensor, _q: Tensor, slot: Tensor) -> Tensor:
        """Of the pages that a row owns (no others are visited) all but the last are full."""
        return (slot // page_size != last_page[b]) | (slot % page_size < filled[b])

    blocks = BlockMask.from_kv_blocks(
        n_blocks,
        indices,
        BLOCK_SIZE=(128, page_size),
        mask_mod=visible,
        seq_lengths=(1, n_slots),
        compute_q_blocks=False,
    )
    return PageMask(blocks, n_blocks, indices, last_page, filled, page_size)


class PagesInPlace:
    """Decoding attention in place over one cache, with a mask of its own for each size of batch."""

    def __init__(self, cache: PagedCache) -> None:
        self._cache = cache
        self._masks: dict[tuple[int, int], PageMask] = {}
        # One compilation for each size: the kernel's splits are chosen by it.
        self._flex: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=False)

    def attention(self, tables: Tensor, positions: Tensor) -> DecodeAttention:
        """Decoding for rows that end at ``positions`` [B], in the pages of ``tables`` [B, W]."""
        size = (tables.shape[0], tables.shape[1])
        mask = self._masks.get(size)
        if mask is None:
            mask = self._masks[size] = page_mask(*size, self._cache)
        mask.update(tables, positions)

        def attend(layer: int, q: Tensor) -> Tensor:
            keys, values = self._cache.slots(layer)
            mixed = self._flex(q.unsqueeze(2), keys, values, block_mask=mask.blocks, enable_gqa=True)
            return mixed.squeeze(2).flatten(1)

        return attend
