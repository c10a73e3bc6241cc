"""CUDA graphs of a decoding step at a ladder of batch sizes: the launches of a thousand small kernels become one.

A graph replays fixed kernels on fixed addresses, so the body that it captures must take all its inputs from, and leave all its
results in, tensors that keep their place, at the one size that it was captured for. Without graphs the same body is called
directly: that is how it runs on a CPU, and how graphs are compared with no graphs. It refuses to know what the body computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Body = Callable[[int, int], None]
"""Compute a step of (rows, pages of a row) from static inputs into static results."""

_REHEARSALS = 2
"""Runs before a capture: the first compiles and loads kernels, the second shows that nothing is left to load."""


def ladder(largest: int) -> tuple[int, ...]:
    """Batch sizes to capture up to ``largest``: powers of two up to 16, then eights up to 64, then thirty-twos.

    Padding costs little where a step is bound by the weights that it reads: the steps are fine where a row's share is large.
    """
    sizes = [size for size in (1, 2, 4, 8, 16, *range(24, 65, 8), *range(96, largest, 32)) if size < largest]
    return (*sizes, largest)


def powers(smallest: int, largest: int) -> tuple[int, ...]:
    """Widths to capture: powers of two from ``smallest``, and ``largest``."""
    widths = []
    while smallest < largest:
        widths.append(smallest)
        smallest *= 2
    return (*widths, largest)


def fit(sizes: tuple[int, ...], wanted: int) -> int:
    """The smallest of ascending ``sizes`` that holds ``wanted``. Raises ValueError when none does."""
    for size in sizes:
        if size >= wanted:
            return size
    raise ValueError(f"{wanted} rows exceed the largest size {sizes[-1]}")


class Graphs:
    """A body, and its captures by size."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._captured: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def capture(self, n_rows: int, width: int) -> None:
        """Capture the body at one size. Its static inputs must be harmless: it runs, and what it writes stays written."""
        apart = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        apart.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(apart):
            for _ in range(_REHEARSALS):
                self._body(n_rows, width)
        torch.cuda.current_stream().wait_stream(apart)
        graph = torch.cuda.CUDAGraph()
        # One pool for all: they replay one after the other, so what one uses for itself the next may use again.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._body(n_rows, width)
        self._pool = self._pool or graph.pool()
        self._captured[n_rows, width] = graph

    def run(self, n_rows: int, width: int) -> None:
        """Replay the graph of that size; where none was captured, call the body."""
        graph = self._captured.get((n_rows, width))
        if graph is None:
            self._body(n_rows, width)
        else:
            graph.replay()
