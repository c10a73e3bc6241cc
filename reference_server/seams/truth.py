"""What the server itself knows about its requests: ground truth to hold a load generator's figures against. Pure.

All stamps are ``time.monotonic_ns()``; a token event has two, taken just before its bytes were handed to the kernel and
just after, so a true arrival at the peer can't be earlier than the first. Memory is bounded by requests and by stamps;
the oldest requests go first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plimsoll.reference_server.values.durations import (
    DECODE,
    INFERENCE,
    POSTPROCESS,
    PREFILL,
    PREPROCESS,
    QUEUE,
    Stages,
)

_PARTS = {
    "queue": (QUEUE,),
    "compute_input": (PREPROCESS,),
    "compute_infer": (INFERENCE, PREFILL, DECODE),
    "compute_output": (POSTPROCESS,),
}
"""Triton's names for the stages."""


def _stamps() -> array[int]:
    return array("q")


@dataclass(slots=True, eq=False)
class TruthRow:
    """One request. -1 means that it did not happen."""

    request_id: str
    model: str
    received_ns: int
    """The request's body was complete."""
    first_write_ns: int = -1
    """Just before the first answer byte, header included."""
    done_ns: int = -1
    """Just after the last answer byte, or when the request ended without one."""
    status: int = -1
    """HTTP status sent; -1 while none was."""
    outcome: str = "open"
    """open, ok, error, cut or cancelled."""
    due_ns: array[int] = field(default_factory=_stamps)
    """When each token event should have been written; only the scripted model knows."""
    before_ns: array[int] = field(default_factory=_stamps)
    after_ns: array[int] = field(default_factory=_stamps)
    talk_ns: list[list[int]] = field(default_factory=list)
    """Of a spoken conversation, each time that the caller was heard to begin: when, and when the answer under way had
    been stopped (-1: there was none, or it went on)."""

    heard_ns: list[list[int]] = field(default_factory=list)
    """Of live audio, each message of it: when it was read, and its bytes."""

    @property
    def first_token_ns(self) -> int:
        """Just before the first token event was written."""
        return self.before_ns[0] if self.before_ns else -1

    def as_json(self) -> dict[str, Any]:
        """The row as the truth endpoint shows it; ``tokens`` holds [before, after] per token event."""
        return {
            "request_id": self.request_id,
            "model": self.model,
            "received_ns": self.received_ns,
            "first_write_ns": self.first_write_ns,
            "done_ns": self.done_ns,
            "status": self.status,
            "outcome": self.outcome,
            "due_ns": self.due_ns.tolist(),
            "tokens": [[b, a] for b, a in zip(self.before_ns, self.after_ns, strict=True)],
            "talk": self.talk_ns,
            "heard": self.heard_ns,
        }


class Truth:
    """The rows of the last requests, by request id. A repeated id replaces the earlier row."""

    def __init__(self, *, max_requests: int = 200_000, max_stamps: int = 8_000_000) -> None:
        self._max_requests = max_requests
        self._max_stamps = max_stamps
        self._rows: OrderedDict[str, TruthRow] = OrderedDict()
        self._weights: dict[str, int] = {}
        self._n_stamps = 0

    def __len__(self) -> int:
        return len(self._rows)

    def open(self, request_id: str, model: str, received_ns: int) -> TruthRow:
        self._drop(request_id)
        row = TruthRow(request_id, model, received_ns)
        self._rows[request_id] = row
        self._weights[request_id] = 0
        if len(self._rows) > self._max_requests:
            self._drop(next(iter(self._rows)))
        return row

    def close(self, row: TruthRow, outcome: str, now_ns: int) -> None:
        """End the row; a second ending changes nothing."""
        if row.outcome != "open":
            return
        row.outcome = outcome
        row.done_ns = now_ns
        if self._rows.get(row.request_id) is not row:
            return
        weight = 2 * (len(row.before_ns) + len(row.heard_ns)) + len(row.due_ns)
        self._weights[row.request_id] = weight
        self._n_stamps += weight
        while self._n_stamps > self._max_stamps and len(self._rows) > 1:
            self._drop(next(iter(self._rows)))

    def get(self, request_id: str) -> TruthRow | None:
        """The row of a request, or None when it was never seen or is forgotten."""
        return self._rows.get(request_id)

    def since(self, received_ns: int) -> Iterator[TruthRow]:
        """Rows received at or after that instant, oldest first."""
        return (row for row in list(self._rows.values()) if row.received_ns >= received_ns)

    def clear(self) -> None:
        self._rows.clear()
        self._weights.clear()
        self._n_stamps = 0

    def _drop(self, request_id: str) -> None:
        if self._rows.pop(request_id, None) is not None:
            self._n_stamps -= self._weights.pop(request_id)


@dataclass(slots=True)
class Total:
    """So many times, so many nanoseconds together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
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
        self.fail.add(max(0, total_ns))
        self.last_ms = now_ms

    def totals(self) -> dict[str, Total]:
        return {"success": self.success, "fail": self.fail, **self.parts}

    def as_json(self, name: str, n_executed: int, version: str = "1") -> dict[str, Any]:
        return {
            "name": name,
            "version": version,
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
