"""Keys and values of the sequences that decode, kept side by side from step to step, so that a CPU copies them once and not every step.

The paged cache stays the truth: a row is filled from its pages when its sequence begins to decode, then each step adds one token
to both. A sequence that is not exactly one token further than at the step before, in the same blocks, loses its row. It refuses to
grow beyond a bound of memory: then it keeps nothing, and pages are gathered at every step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll.reference_server.models.presets import DecoderShape
from plimsoll.reference_server.seams.runner import Chunk

_MOST_BYTES = 256 << 20


@dataclass(slots=True)
class _Row:
    sequence_id: int
    position: int
    """Of the newest token in the row."""
    blocks: list[int]

    def continued_by(self, chunk: Chunk) -> bool:
        n = len(self.blocks)
        return chunk.start == self.position + 1 and list(chunk.blocks[:n]) == self.blocks


class KeptRows:
    """Rows of a growing tensor [layers, 2, rows, kv_heads, capacity, head_dim]."""

    def __init__(self, shape: DecoderShape, *, block_size: int, n_pool: int, device: str) -> None:
        """``n_pool`` is how many pages the cache has for each head."""
        self._shape = shape
        self._n_pool = n_pool
        self._block_size = block_size
        self._device = device
        self._rows: list[_Row] = []
        self._kept = torch.empty(0)
        self._n_rows = 0
        self._capacity = 0
        self._fresh: list[int] = []
        self._target = torch.empty(0)

    def arrange(self, chunks: Sequence[Chunk]) -> list[int] | None:
        """The order in which these chunks, of one token each, are to be computed: row by row; None when nothing is kept."""
        wanted = {chunk.sequence_id: index for index, chunk in enumerate(chunks)}
        longest = max((chunk.start + 1 for chunk in chunks), default=0)
        if len(wanted) < len(chunks) or not self._make_room(len(chunks), longest):
            self._rows.clear()
            return None
        for number in reversed(range(len(self._rows))):
            row = self._rows[number]
            index = wanted.get(row.sequence_id)
            if index is None or not row.continued_by(chunks[index]):
                self._drop(number)
        n_continued = len(self._rows)
        for row in self._rows:
            chunk = chunks[wanted.pop(row.sequence_id)]
            row.position = chunk.start
            row.blocks = list(chunk.blocks[: self._blocks(chunk)])
        fresh = list(wanted.values())
        order = [index for index in range(len(chunks)) if index not in set(fresh)]
        place = {row.sequence_id: number for number, row in enumerate(self._rows)}
        order.sort(key=lambda index: place[chunks[index].sequence_id])
        for index in fresh:
            chunk = chunks[index]
            self._rows.append(_Row(chunk.sequence_id, chunk.start, list(chunk.blocks[: self._blocks(chunk)])))
        self._fresh = list(range(n_continued, len(self._rows)))
        heads = torch.arange(self._shape.kv_heads)
        first = torch.tensor([number * self._shape.kv_heads for number in range(len(self._rows))]).unsqueeze(1) + heads
        at = torch.tensor([row.position for row in self._rows]).unsqueeze(1)
        self._target = (first * self._capacity + at).flatten().to(self._device)
        return order + fresh

    def forget(self, sequences: Collection[int]) -> None:
        """Give up the rows of sequences that are being computed in another way."""
        for number in reversed(range(len(self._rows))):
            if self._rows[number].sequence_id in sequences:
                self._drop(number)

    def attend_to(self, layer: int, k: Tensor, v: Tensor, cache: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [rows * kv_heads, length, dim] of a layer, with the step's own k and v [rows, kv_heads, dim] in their place.

        ``cache`` [2, kv_heads * pages, block_size * dim] holds the pages that fresh rows are filled from, the step's token included.
        """
        n, heads, dim = k.shape
        for number in self._fresh:
            blocks = torch.tensor(self._rows[number].blocks, device=self._device)
            pages = (torch.arange(heads, device=self._device).unsqueeze(1) * self._n_pool + blocks).flatten()
            for side in (0, 1):
                filled = cache[side].index_select(0, pages).view(heads, -1, dim)
                self._kept[layer, side, number, :, : filled.shape[1]] = filled
        sides = []
        for side, new in enumerate((k, v)):
            whole = self._kept[layer, side]
            whole.view(-1, dim).index_copy_(0, self._target, new.reshape(-1, dim))
            sides.append(whole[:n, :, :length].flatten(0, 1))
        return sides[0], sides[1]

    def _blocks(self, chunk: Chunk) -> int:
        return chunk.start // self._block_size + 1

    def _drop(self, number: int) -> None:
        """Free a row: the last one takes its place."""
        last = len(self._rows) - 1
        if number != last:
            self._kept[:, :, number] = self._kept[:, :, last]
            self._rows[number] = self._rows[last]
        self._rows.pop()

    def _make_room(self, n_rows: int, longest: int) -> bool:
        """Room for that many rows of that many tokens, more than asked for so that it is seldom made; False beyond the bound."""
        longest = -(-longest // self._block_size) * self._block_size
        if n_rows <= self._n_rows and longest <= self._capacity:
            return True
        shape = self._shape
        rows = max(self._n_rows, 1 << (n_rows - 1).bit_length())
        capacity = max(self._capacity, -(-(longest + longest // 2) // self._block_size) * self._block_size)
        if shape.layers * 2 * rows * shape.kv_heads * capacity * shape.head_dim * 4 > _MOST_BYTES:
            return False
        # Zeros: what lies beyond a row's end takes part as 0 x value.
        self._kept = torch.zeros(shape.layers, 2, rows, shape.kv_heads, capacity, shape.head_dim, device=self._device)
        self._n_rows, self._capacity = rows, capacity
        self._rows.clear()
        return True
