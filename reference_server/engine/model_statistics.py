"""What became of the tensor requests of each model: counts and nanoseconds, summed since the server began. Pure.

Triton's statistics extension is the shape; a client takes them before and after a run, and the difference says where the time
went. Requests of other protocols (OpenAI, speech) are not in here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plimsoll.reference_server.values.stages import DECODE, INFERENCE, POSTPROCESS, PREFILL, PREPROCESS, QUEUE, Stages

_PARTS = {
    "queue": (QUEUE,),
    "compute_input": (PREPROCESS,),
    "compute_infer": (INFERENCE, PREFILL, DECODE),
    "compute_output": (POSTPROCESS,),
}
"""Triton's names for the stages."""


@dataclass(slots=True)
class Total:
    """So many times, so many nanoseconds together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Once more."""
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class ModelStatistics:
    """The totals of one model."""

    success: Total = field(default_factory=Total)
    fail: Total = field(default_factory=Total)
    parts: dict[str, Total] = field(default_factory=lambda: {part: Total() for part in _PARTS})
    """Of the requests that succeeded."""
    n_samples: int = 0
    """Samples in the requests that succeeded."""
    last_ms: int = 0
    """When the last request came, in milliseconds since 1970; 0: none came."""

    def note(self, stages: Stages, total_ns: int, *, n_samples: int, now_ms: int) -> None:
        """One more request that succeeded: how long it took from its last byte, and its stages."""
        self.success.add(max(0, total_ns))
        self.n_samples += n_samples
        self.last_ms = now_ms
        for part, names in _PARTS.items():
            self.parts[part].add(sum(stages.spans_ns.get(name, 0) for name in names))

    def note_failure(self, total_ns: int, *, now_ms: int) -> None:
        """One more request that failed or was refused."""
        self.fail.add(max(0, total_ns))
        self.last_ms = now_ms

    def totals(self) -> dict[str, Total]:
        """Every total by Triton's name for it."""
        return {"success": self.success, "fail": self.fail, **self.parts}

    def as_json(self, name: str, n_executed: int) -> dict[str, Any]:
        """The row of Triton's statistics over HTTP."""
        return {
            "name": name,
            "version": "1",
            "last_inference": self.last_ms,
            "inference_count": self.n_samples,
            "execution_count": n_executed,
            "inference_stats": {part: {"count": sum_.count, "ns": sum_.ns} for part, sum_ in self.totals().items()},
        }


@dataclass(slots=True)
class Statistics:
    """The totals of every model asked so far."""

    models: dict[str, ModelStatistics] = field(default_factory=dict)

    def of(self, name: str) -> ModelStatistics:
        """One model's; ask only for models that are served."""
        return self.models.setdefault(name, ModelStatistics())
