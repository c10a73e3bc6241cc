"""The paged KV cache on a device: one tensor, written by slot, read by page.

A page holds ``page_size`` consecutive tokens of one sequence; a slot is a page's place for one token, counted through all pages.
Beside the pages that the scheduler gives out there is a scratch page, where padding writes, and a spare page for each row of a
batch, where a token computed ahead of its time goes whose page has not been given out yet. It refuses to know who owns what.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
        """The spare page of a row."""
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
