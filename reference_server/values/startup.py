"""How long a cold start took, phase by phase, and whether it is over: what readiness and the start-up metrics say. Pure.

The phases in order: ``import`` (Python and torch), ``weights``, ``device`` (its context), ``compile``, ``warm_up``. A phase that a model
does not have is not there. It refuses to call a server ready that has not warmed up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from plimsoll.reference_server.values.stages import Stages

IMPORT, WEIGHTS, DEVICE, COMPILE, WARM_UP = PHASES = ("import", "weights", "device", "compile", "warm_up")


@dataclass(slots=True)
class Startup:
    """Nanoseconds by phase, all models together, since the process began; ``ready`` once requests are answered."""

    phases: Stages = field(default_factory=Stages)
    ready: bool = False
    draining: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as part of a phase; what other phases take within it is theirs alone. Raises ValueError for an unknown phase."""
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
        """Phases in order, in seconds."""
        spans = self.phases.spans_ns
        return {name: spans[name] / 1e9 for name in PHASES if name in spans}
