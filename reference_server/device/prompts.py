"""Pieces of prompts on the device: one flat batch through the model, each piece attending to its own sequence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll.reference_server.device.attention import prompt_attention
from plimsoll.reference_server.device.copies import Staging
from plimsoll.reference_server.device.kv_cache import PagedCache
from plimsoll.reference_server.models.llama import Llama
from plimsoll.reference_server.seams.runner import Chunk

_ROOM = 1 << 14


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of the flat batch that are one sequence's, where they start in it, and the pages up to their end."""

    rows: slice
    start: int
    pages: Tensor


class Prompts:
    """Computes pieces of prompts into a cache."""

    def __init__(self, model: Llama, cache: PagedCache) -> None:
        self._model = model
        self._cache = cache
        self._staging = Staging(_ROOM, device=model.device.type)
        self._room = _ROOM

    def compute(self, chunks: Sequence[Chunk]) -> Tensor:
        """Put the chunks' keys and values into the cache; the tokens [S] that follow those that have ``sample``, on the device."""
        size = self._cache.page_size
        spans = [range(chunk.start, chunk.start + len(chunk.tokens)) for chunk in chunks]
        tokens = [token for chunk in chunks for token in chunk.tokens]
        positions = [at for span in spans for at in span]
        slots = [
            chunk.blocks[at // size] * size + at % size
            for chunk, span in zip(chunks, spans, strict=True)
            for at in span
        ]
        ends = list(itertools.accumulate(len(chunk.tokens) for chunk in chunks))
        last = [end - 1 for end, chunk in zip(ends, chunks, strict=True) if chunk.sample]
        allow = [int(chunk.allow_eos) for chunk in chunks if chunk.sample]
        tables = [list(chunk.blocks[: -(-span.stop // size)]) for chunk, span in zip(chunks, spans, strict=True)]
        at_device = self._send([tokens, positions, slots, last, allow, *tables])
        token, position, slot, last_row, allow_eos = (part.long() for part in at_device[:5])
        pieces = [
            _Piece(slice(end - len(span), end), span.start, table)
            for end, span, table in zip(ends, spans, at_device[5:], strict=True)
        ]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache.write(layer, k, v, slot)
            mixed = [
                prompt_attention(
                    self._cache, layer, q[piece.rows], k[piece.rows], v[piece.rows], piece.pages, piece.start
                )
                for piece in pieces
            ]
            return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

        hidden = self._model.hidden(token, position, attend)
        return self._model.choose(hidden[last_row], allow_eos) if last else token[:0]

    def _send(self, parts: Sequence[Sequence[int]]) -> list[Tensor]:
        """Lists of numbers as int32 tensors on the device, in one copy."""
        n = sum(len(part) for part in parts)
        if n > self._room:
            self._room = 1 << n.bit_length()
            self._staging = Staging(self._room, device=self._model.device.type)
        self._staging.next()[:n] = list(itertools.chain.from_iterable(parts))
        whole = torch.empty(n, dtype=torch.int32, device=self._model.device)
        self._staging.send(whole)
        ends = list(itertools.accumulate((len(part) for part in parts), initial=0))
        return [whole[begin:end] for begin, end in itertools.pairwise(ends)]
