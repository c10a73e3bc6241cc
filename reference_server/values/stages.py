"""The anatomy of one request: how long each stage of its answer took, in the order in which they came. Pure.

The names are shared by every model, so that answers compare: ``queue`` (waiting for a turn), ``preprocess``, then
``prefill`` and ``decode`` of a language model or ``inference`` of any other, and ``postprocess``. A dotted name is a part of the
stage before the dot (``preprocess.resize``); parts need not add up to the whole, and never exceed it by more than the clock's
own cost. On the wire it is the text of a Server-Timing header (W3C Server Timing), in milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

QUEUE = "queue"
PREPROCESS = "preprocess"
PREFILL = "prefill"
DECODE = "decode"
INFERENCE = "inference"
POSTPROCESS = "postprocess"


@dataclass(slots=True)
class Stages:
    """Nanoseconds by stage, in order of first mention. Written by one thread at a time."""

    spans_ns: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, ns: int) -> None:
        """Lengthen a stage; a negative length counts as none."""
        self.spans_ns[name] = self.spans_ns.get(name, 0) + max(0, ns)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Lengthen a stage by how long the block takes, whether it fails or not."""
        begun_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(name, time.monotonic_ns() - begun_ns)

    def server_timing(self) -> str:
        """The value of a Server-Timing header: ``queue;dur=0.012, prefill;dur=3.400`` in milliseconds; "" without stages."""
        return ", ".join(f"{name};dur={ns / 1e6:.3f}" for name, ns in self.spans_ns.items())
