"""Durations: as people write them (``50ms``), by stage of an answer, and by phase of a cold start.

Stages have the same names for every model, so that answers compare; a dotted name is a part of the stage before the dot
(``preprocess.resize``). On the wire they are the text of a Server-Timing header, in milliseconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal

_UNIT_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*")
PARSE = "parse"
QUEUE = "queue"
PREPROCESS = "preprocess"
PREFILL = "prefill"
DECODE = "decode"
INFERENCE = "inference"
POSTPROCESS = "postprocess"
IMPORT, WEIGHTS, DEVICE, COMPILE, WARM_UP = PHASES = ("import", "weights", "device", "compile", "warm_up")


def parse_duration_ns(text: str) -> int:
    """Nanoseconds in ``text``: a number and a unit (ns, us, ms, s, m).

    Raises ValueError when the text isn't such a pair.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or match.group(2) not in _UNIT_NS:
        raise ValueError(f"{text!r} is no duration. Write a number and a unit, e.g. 50ms; units: {', '.join(_UNIT_NS)}")
    return int(Decimal(match.group(1)) * _UNIT_NS[match.group(2)])


def batch_times(text: str) -> tuple[int, int] | None:
    """Of ``5ms+0.6ms*B``: nanoseconds of a batch, and of each sample in it; None for text that is no such sum."""
    fixed_ns = each_ns = 0
    try:
        for term in text.split("+"):
            duration, _, each = term.partition("*")
            fixed_ns += 0 if each else parse_duration_ns(duration)
            each_ns += parse_duration_ns(duration) if each else 0
            if each.strip() not in ("", "B"):
                return None
    except ValueError:
        return None
    return fixed_ns, each_ns


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
        """The value of a Server-Timing header: ``queue;dur=0.012, prefill;dur=3.400`` in milliseconds; "" without
        stages."""
        return ", ".join(f"{name};dur={ns / 1e6:.3f}" for name, ns in self.spans_ns.items())


@dataclass(slots=True)
class Startup:
    """Nanoseconds by phase, all models together, since the process began; ``ready`` once requests are answered."""

    phases: Stages = field(default_factory=Stages)
    ready: bool = False
    draining: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as part of a phase; what other phases take within it is theirs alone."""
        if name not in PHASES:
            raise ValueError(f"{name!r} is no phase of a start: {', '.join(PHASES)}")
        begun_ns, others_ns = time.monotonic_ns(), self._besides(name)
        try:
            yield
        finally:
            self.phases.add(name, time.monotonic_ns() - begun_ns - (self._besides(name) - others_ns))

    def _besides(self, name: str) -> int:
        return sum(ns for other, ns in self.phases.spans_ns.items() if other != name)

    def seconds(self) -> dict[str, float]:
        spans = self.phases.spans_ns
        return {name: spans[name] / 1e9 for name in PHASES if name in spans}
