"""Numbers between host and device while both go on working: pinned memory, asynchronous copies, and an event for each.

On the CPU the same objects are plain memory and nothing is waited for. It refuses to block but where a result is asked for,
or where the host is so far ahead that the device has not yet read what would be overwritten.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_DEPTH = 3
"""Buffers in turn: one that the device reads, one that waits its turn, one that the host fills."""


class Staging:
    """Host memory that a device reads from: integers in a few buffers used in turn."""

    def __init__(self, size: int, *, device: str) -> None:
        self._pinned = device != "cpu"
        self._device = device
        self._buffers = [torch.zeros(size, dtype=torch.int32, pin_memory=self._pinned) for _ in range(_DEPTH)]
        self._views: list[npt.NDArray[np.int32]] = [buffer.numpy() for buffer in self._buffers]
        self._read: list[torch.cuda.Event | None] = [None] * _DEPTH
        self._turn = 0

    def next(self) -> npt.NDArray[np.int32]:
        """The buffer to fill now; waits until the device has read what was sent from it, long ago as a rule."""
        self._turn = (self._turn + 1) % _DEPTH
        event = self._read[self._turn]
        if event is not None:
            event.synchronize()
        return self._views[self._turn]

    def send(self, target: Tensor) -> None:
        """Copy the beginning of the buffer into a device tensor, in stream order."""
        source = self._buffers[self._turn][: target.numel()].view(target.shape)
        target.copy_(source, non_blocking=self._pinned)
        if self._pinned:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._read[self._turn] = event


class Reading:
    """Device numbers on their way to the host."""

    def __init__(self, size: int, *, device: str) -> None:
        self._pinned = device != "cpu"
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=self._pinned)
        self._event: torch.cuda.Event | None = None

    def start(self, source: Tensor) -> None:
        """Begin to copy, after what the stream does already; what it is given next may overwrite the source."""
        self._host[: source.numel()].copy_(source, non_blocking=self._pinned)
        if self._pinned:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self) -> list[int]:
        """The numbers, once they are here. While one waits, other threads run."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[int] = self._host.tolist()
        return numbers
