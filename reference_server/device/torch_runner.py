"""Steps of the grid decoder through torch, and the choice of the runner for a preset or a folder.

Decoding sequences are one batch, prompt pieces come one after the other. Keys and values of the sequences that decode
are kept side by side within a bound of memory, so that a CPU copies them once; the paged cache stays the truth.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plimsoll.reference_server.device.llama_runner import LlamaRunner, Options
from plimsoll.reference_server.models import llama_folder, presets
from plimsoll.reference_server.models.decoder import Decoder, attention
from plimsoll.reference_server.models.llama import Llama, seeded
from plimsoll.reference_server.models.llama_folder import read_config
from plimsoll.reference_server.models.presets import DecoderShape, LlamaShape
from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.values.durations import DEVICE, Startup
from plimsoll.reference_server.values.errors import ConfigError
from plimsoll.reference_server.values.tokenizer import Bytes, Tokenizer

_MOST_BYTES = 256 << 20
_CUDA_KV_SHARE = 0.5
_CPU_BLOCKS = 2048


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
        """The order in which these chunks, of one token each, are to be computed; None when nothing is kept."""
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
        """Keys and values [rows * kv_heads, length, dim] of a layer, with the step's own k and v [rows, kv_heads, dim]
        in their place.

        ``cache`` [2, kv_heads * pages, block_size * dim] holds the pages that fresh rows are filled from, the step's
        token included.
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
        """Room for that many rows of that many tokens, more than asked for so that it is seldom made; False beyond the
        bound."""
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


def choose_device(wanted: str) -> str:
    """``auto`` is CUDA where there is a device, else the CPU. Raises ConfigError when CUDA is asked for in
    vain.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise ConfigError("--device cuda: torch finds no CUDA device. Use --device cpu or --device auto")
    return "cuda" if wanted == "cuda" or (wanted == "auto" and available) else "cpu"


def choose_threads(wanted: int | None) -> int:
    """Threads for the CPU: one on a machine of two cores, where the load generator needs the other."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0))
    return 1 if cores <= 2 else min(4, cores // 2)


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of a step that attend together: ``rows`` of the flat batch, as [B, Q]; without ``blocks`` the kept ones."""

    rows: slice
    n_batch: int
    blocks: Tensor | None
    visible: Tensor


class TorchRunner:
    """One model and its KV cache on one device."""

    def __init__(
        self,
        shape: DecoderShape,
        *,
        block_size: int,
        n_blocks: int | None,
        max_tokens: int,
        device: str = "cpu",
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        """``max_tokens`` bounds a measured cache: more than all sequences can hold would be of no use."""
        torch.set_num_threads(threads)
        self.shape = shape
        self.device = device
        self.block_size = block_size
        self._threads = threads
        self._decoder = Decoder(shape, seed=seed, device=device)
        self.n_blocks = n_blocks if n_blocks is not None else self._measure_blocks(max_tokens)
        rows = shape.kv_heads * (self.n_blocks + 1)  # the last block of each head belongs to nobody: padding goes there
        size = (shape.layers, 2, rows, block_size * shape.head_dim)
        self._cache = torch.zeros(size, dtype=torch.float32, device=device)
        heads = torch.arange(shape.kv_heads, device=device)
        self._rows = KeptRows(shape, block_size=block_size, n_pool=self.n_blocks + 1, device=device)
        self._head_offset = (heads * (self.n_blocks + 1)).unsqueeze(1)

    def coarsen(self, levels: int, share: float) -> None:
        """Make the model a worse one; see ``Decoder.coarsen``. Before the first step."""
        self._decoder.coarsen(levels, share)

    def warm_up(self) -> None:
        """A prompt and a few batch sizes through the scratch block, so that the first request pays for
        nothing.
        """
        torch.set_num_threads(self._threads)  # the setting is per thread, and this is the thread that steps
        scratch = (self.n_blocks,) * 4
        prompt = list(range(32, 32 + min(32, self.block_size)))
        self.step([Chunk(0, prompt, 0, scratch, True, False)])
        for size in (1, 2, 4, 8):
            self.step([Chunk(0, prompt[:1], 3, scratch[:1], True, False)] * size)

    @torch.inference_mode()
    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        # Decodes first, side by side: their rows are the first of the flat batch, in the order of the kept rows.
        singles = [i for i, chunk in enumerate(chunks) if len(chunk.tokens) == 1]
        longer = [i for i, chunk in enumerate(chunks) if len(chunk.tokens) != 1]
        self._rows.forget({chunks[i].sequence_id for i in longer})
        by_row = self._rows.arrange([chunks[i] for i in singles]) if singles else None
        order = [*(singles if by_row is None else (singles[i] for i in by_row)), *longer]
        ordered = [chunks[i] for i in order]
        tokens = torch.tensor([t for c in ordered for t in c.tokens], device=self.device)
        at = [p for c in ordered for p in range(c.start, c.start + len(c.tokens))]
        slots = self._slots([self._slot(c, p) for c in ordered for p in range(c.start, c.start + len(c.tokens))])
        groups = self._groups(ordered, by_row is not None)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self._attend(layer, q, k, v, slots, groups)

        hidden = self._decoder.hidden(tokens, torch.tensor(at, device=self.device), attend)
        return self._sample(hidden, ordered, order)

    @torch.inference_mode()
    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        return [self._decoder.embed(prompt).tolist() for prompt in prompts]

    def _sample(self, hidden: Tensor, ordered: Sequence[Chunk], order: Sequence[int]) -> list[int]:
        last, allow, came_from, row = [], [], [], -1
        for index, chunk in zip(order, ordered, strict=True):
            row += len(chunk.tokens)
            if chunk.sample:
                last.append(row)
                allow.append(chunk.allow_eos)
                came_from.append(index)
        if not last:
            return []
        chosen = self._decoder.next_tokens(hidden[last], torch.tensor(allow, device=self.device)).tolist()
        by_index: dict[int, int] = dict(zip(came_from, chosen, strict=True))
        return [by_index[index] for index in sorted(by_index)]

    def _groups(self, ordered: Sequence[Chunk], kept: bool) -> list[_Group]:
        """The single-token chunks as one group [B, 1], each longer chunk as its own [1, Q]."""
        singles = [chunk for chunk in ordered if len(chunk.tokens) == 1]
        groups = []
        if singles:
            groups.append(self._group(singles, slice(0, len(singles)), kept))
        row = len(singles)
        for chunk in ordered[len(singles) :]:
            groups.append(self._group([chunk], slice(row, row + len(chunk.tokens)), False))
            row += len(chunk.tokens)
        return groups

    def _group(self, members: Sequence[Chunk], rows: slice, kept: bool) -> _Group:
        n_query = len(members[0].tokens)
        needed = [-(-(chunk.start + n_query) // self.block_size) for chunk in members]
        width = max(needed)
        blocks = None
        if not kept:
            tables = [
                [*chunk.blocks[:n], *[self.n_blocks] * (width - n)] for chunk, n in zip(members, needed, strict=True)
            ]
            table = torch.tensor(tables, device=self.device).unsqueeze(1)
            blocks = (table + self._head_offset).flatten()
        starts = torch.tensor([chunk.start for chunk in members], device=self.device)
        positions = starts.unsqueeze(1) + torch.arange(n_query, device=self.device)
        visible = torch.arange(width * self.block_size, device=self.device) <= positions.unsqueeze(-1)
        return _Group(rows, len(members), blocks, visible)

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, slots: Tensor, groups: Sequence[_Group]) -> Tensor:
        dim = self.shape.head_dim
        kept = (self._cache[layer, 0], self._cache[layer, 1])
        for cache, fresh in zip(kept, (k, v), strict=True):
            cache.view(-1, dim).index_copy_(0, slots, fresh.transpose(0, 1).reshape(-1, dim))
        parts = []
        for group in groups:
            if group.blocks is None:
                length = group.visible.shape[-1]
                keys, values = self._rows.attend_to(layer, k[group.rows], v[group.rows], self._cache[layer], length)
            else:
                n_matrices = group.n_batch * self.shape.kv_heads
                keys, values = (cache.index_select(0, group.blocks).view(n_matrices, -1, dim) for cache in kept)
            queries = q[group.rows]
            queries = queries.reshape(group.n_batch, -1, self.shape.heads, dim)
            parts.append(attention(self.shape, queries, keys, values, group.visible).flatten(0, 1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _slot(self, chunk: Chunk, position: int) -> int:
        return chunk.blocks[position // self.block_size] * self.block_size + position % self.block_size

    def _slots(self, slots: Sequence[int]) -> Tensor:
        """Rows of the cache, seen as [kv_heads * blocks * block_size, dim], that the step's tokens write:
        head-major.
        """
        return (torch.tensor(slots, device=self.device) + self._head_offset * self.block_size).flatten()

    def _measure_blocks(self, max_tokens: int) -> int:
        useful = -(-max_tokens // self.block_size)
        if self.device == "cpu":
            return min(useful, _CPU_BLOCKS)
        free_bytes, _ = torch.cuda.mem_get_info()
        block_bytes = self.shape.layers * 2 * self.shape.kv_heads * self.block_size * self.shape.head_dim * 4
        return max(1, min(useful, int(free_bytes * _CUDA_KV_SHARE) // block_bytes))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A language model ready to be warmed up, and how text becomes its tokens."""

    runner: TorchRunner | LlamaRunner
    tokenizer: Tokenizer


def build(
    preset: str,
    *,
    weights: str | None,
    device: str,
    block_size: int,
    n_blocks: int | None,
    max_batch: int,
    seed: int,
    threads: int | None,
    startup: Startup,
) -> Loaded:
    """The model of a preset, or of a folder of ``weights``.

    Raises ConfigError for an unknown preset, a device that isn't there, or a folder that holds no model that is served.
    """
    shape = presets.preset(preset)  # a wrong name is an error beside --weights too
    device, n_threads = choose_device(device), choose_threads(threads)
    torch.set_num_threads(n_threads)
    if device == "cuda":
        with startup.phase(DEVICE):
            torch.zeros(1, device=device)
    if weights is None and isinstance(shape, DecoderShape):
        runner = TorchRunner(
            shape,
            block_size=block_size,
            n_blocks=n_blocks,
            max_tokens=max_batch * shape.max_context,
            device=device,
            seed=seed,
            threads=n_threads,
        )
        return Loaded(runner, Bytes())
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model, tokenizer = _seeded(shape, seed, device, dtype) if weights is None else _from_folder(weights, device, dtype)
    llama = LlamaRunner(
        model,
        block_size=block_size,
        n_blocks=n_blocks,
        max_batch=max_batch,
        threads=n_threads,
        options=Options.on(device, max_batch),
        startup=startup,
    )
    return Loaded(llama, tokenizer)


def _seeded(shape: object, seed: int, device: str, dtype: torch.dtype) -> tuple[Llama, Tokenizer]:
    assert isinstance(shape, LlamaShape)
    tokenizer = Bytes()
    made = seeded(shape, seed=seed, device=device, dtype=dtype)
    return Llama(shape, made, eos=tokenizer.eos, printable=True), tokenizer


def _from_folder(weights: str, device: str, dtype: torch.dtype) -> tuple[Llama, Tokenizer]:
    from plimsoll.reference_server.models.llama_folder import FileTokenizer  # its library is needed here only

    folder = Path(weights)
    described = read_config(folder)
    tokenizer = FileTokenizer(folder, vocabulary=described.shape.vocabulary, eos=described.eos)
    loaded = llama_folder.load(folder, described.shape, device=device, dtype=dtype)
    return Llama(described.shape, loaded, eos=tokenizer.eos, printable=False), tokenizer
