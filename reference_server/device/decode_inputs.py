"""The inputs of a decoding step in tensors that keep their place: one packed buffer, one copy from the host a step.

A row may take its token from the host, or from the board on which earlier steps left theirs: then it can be launched before
the host knows the token. Rows beyond those given are padding, which reads and writes the scratch page only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll.reference_server.device.copies import Staging

_COLUMNS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence in a decoding step: its token is ``token``, or what the board says at ``source`` unless that is -1."""

    token: int
    source: int
    position: int
    allow_eos: bool
    pages: Sequence[int]


@dataclass(frozen=True, slots=True)
class Columns:
    """A step's inputs on the device, [B] each, ``tables`` [B, W]; views of the static buffer, int32."""

    token: Tensor
    source: Tensor
    position: Tensor
    slot: Tensor
    allow_eos: Tensor
    move_from: Tensor
    move_to: Tensor
    tables: Tensor


class DecodeInputs:
    """Static inputs for steps of up to ``max_rows`` rows of up to ``max_width`` pages."""

    def __init__(self, *, max_rows: int, max_width: int, page_size: int, scratch: int, device: str) -> None:
        self._page_size = page_size
        self._scratch = scratch
        size = max_rows * (_COLUMNS + max_width)
        self._staging = Staging(size, device=device)
        self._packed = torch.zeros(size, dtype=torch.int32, device=device)

    def load(self, rows: Sequence[Row], moves: Sequence[tuple[int, int]], n_rows: int, width: int) -> None:
        """Send ``rows`` and the slots to be moved first (from, to), padded to ``n_rows`` x ``width``."""
        slot = self._scratch * self._page_size
        stride = _COLUMNS + width
        table = self._staging.next()[: n_rows * stride].reshape(n_rows, stride)
        table[:, :_COLUMNS] = (0, -1, 0, slot, 0, slot, slot)
        table[:, _COLUMNS:] = self._scratch
        for line, row in zip(table, rows, strict=False):
            n = row.position // self._page_size + 1
            at = row.pages[n - 1] * self._page_size + row.position % self._page_size
            line[:5] = (row.token, row.source, row.position, at, row.allow_eos)
            line[_COLUMNS : _COLUMNS + n] = row.pages[:n]
        for line, move in zip(table, moves, strict=False):
            line[5:7] = move
        self._staging.send(self._packed[: n_rows * stride])

    def columns(self, n_rows: int, width: int) -> Columns:
        """Where a step of that size finds its inputs."""
        stride = _COLUMNS + width
        table = self._packed[: n_rows * stride].view(n_rows, stride)
        token, source, position, slot, allow_eos, move_from, move_to = table[:, :_COLUMNS].unbind(1)
        return Columns(token, source, position, slot, allow_eos, move_from, move_to, table[:, _COLUMNS:])
