"""Who owns which block of the paged KV cache. Pure bookkeeping: no tensors, no torch, no clock.

A block may be shared by sequences whose first tokens are the same (prefix reuse, off unless asked for), and stays
findable when nobody uses it until room is needed, oldest first. Who gets blocks when there are too few is the
scheduler's business.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


class OutOfBlocks(Exception):
    """There are too few free blocks; nothing was changed."""


@dataclass(slots=True)
class _Table:
    blocks: list[int]
    digest: bytes = b""
    published: int = 0


class KvBlocks:
    """``n_blocks`` blocks of ``block_size`` tokens, given out to owners and taken back."""

    def __init__(self, n_blocks: int, block_size: int, *, reuse_prefixes: bool = False) -> None:
        if n_blocks < 1 or block_size < 1:
            raise ValueError(f"need at least one block of one token, got {n_blocks} of {block_size}")
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.reuse_prefixes = reuse_prefixes
        self._free = list(range(n_blocks - 1, -1, -1))
        self._references = [0] * n_blocks
        self._tables: dict[Hashable, _Table] = {}
        self._by_digest: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be handed out now: never used, or used and remembered by nobody alive."""
        return len(self._free) + len(self._idle)

    @property
    def used(self) -> int:
        return self.n_blocks - self.available

    def blocks_for(self, n_tokens: int) -> int:
        """Blocks that ``n_tokens`` tokens fill, the last perhaps in part."""
        return -(-n_tokens // self.block_size)

    def table(self, owner: Hashable) -> Sequence[int]:
        """Blocks of ``owner`` in token order. Read-only for the caller; grows in place with the owner."""
        return self._tables[owner].blocks

    def open(self, owner: Hashable, tokens: Sequence[int], *, reserve: int = 0, room: int = 0) -> int:
        """Give ``owner`` room for ``tokens``, or for ``room`` of them where that is more; returns how many already have
        their keys and values.

        At least one token is always left to compute, since its output is what the owner is after.
        Raises OutOfBlocks, changing nothing, when fewer than ``reserve`` blocks would stay available.
        """
        if owner in self._tables:
            raise ValueError(f"{owner!r} already owns blocks")
        if reserve + 1 > self.available:  # at least one block is always fresh: no need to look for the others
            raise OutOfBlocks
        shared, digest = self._match(tokens)
        fresh = self.blocks_for(max(len(tokens), room)) - len(shared)
        woken = sum(1 for block in shared if self._references[block] == 0)
        if fresh + woken + reserve > self.available:
            raise OutOfBlocks
        for block in shared:
            self._idle.pop(block, None)
            self._references[block] += 1
        blocks = shared + [self._take() for _ in range(fresh)]
        self._tables[owner] = _Table(blocks, digest, len(shared))
        return len(shared) * self.block_size

    def grow(self, owner: Hashable, n_tokens: int) -> None:
        """Make the table of ``owner`` cover ``n_tokens`` tokens. Raises OutOfBlocks, changing nothing."""
        blocks = self._tables[owner].blocks
        missing = self.blocks_for(n_tokens) - len(blocks)
        if missing <= 0:
            return
        if missing > self.available:
            raise OutOfBlocks
        blocks.extend(self._take() for _ in range(missing))

    def publish(self, owner: Hashable, tokens: Sequence[int], n_computed: int) -> None:
        """Note that the first ``n_computed`` of ``tokens`` are in the cache, so that others may share whole
        blocks.
        """
        if not self.reuse_prefixes:
            return
        table = self._tables[owner]
        while (table.published + 1) * self.block_size <= n_computed:
            start = table.published * self.block_size
            table.digest = _chain(table.digest, tokens[start : start + self.block_size])
            block = table.blocks[table.published]
            if table.digest not in self._by_digest:
                self._by_digest[table.digest] = block
                self._digest_of[block] = table.digest
            table.published += 1

    def close(self, owner: Hashable) -> None:
        """Take back all that ``owner`` holds. Raises KeyError for an owner that holds nothing."""
        for block in reversed(self._tables.pop(owner).blocks):
            self._references[block] -= 1
            if self._references[block]:
                continue
            if block in self._digest_of:
                self._idle[block] = None
            else:
                self._free.append(block)

    def references(self, block: int) -> int:
        return self._references[block]

    def _match(self, tokens: Sequence[int]) -> tuple[list[int], bytes]:
        found: list[int] = []
        digest = b""
        if not self.reuse_prefixes:
            return found, digest
        for start in range(0, (len(tokens) - 1) // self.block_size * self.block_size, self.block_size):
            longer = _chain(digest, tokens[start : start + self.block_size])
            block = self._by_digest.get(longer)
            if block is None:
                break
            digest = longer
            found.append(block)
        return found, digest

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._by_digest[self._digest_of.pop(block)]
        self._references[block] += 1
        return block


def _chain(digest: bytes, tokens: Sequence[int]) -> bytes:
    """Name of a block's contents: what came before it and its own tokens."""
    return hashlib.blake2b(digest + array("i", tokens).tobytes(), digest_size=16).digest()
