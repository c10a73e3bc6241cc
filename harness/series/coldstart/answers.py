"""What the two runs of one start say: the first answer, and the way to the steady state. Reads records, measures nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll.harness.run.rundir import Sealed
from plimsoll.reports.coldstart.coldstart_parts import RepeatPart
from plimsoll.slo.records.records import FloatArray, Records, Status
from plimsoll.slo.search.warmth import Settled, settle

#: Points of a curve that are kept in the document: the first ones all, of the rest about as many, further and further apart.
_ALL, _SPARSE = 200, 300
#: Lateness of ours in the first request that is worth a word, as a share of its latency.
_LATE = 0.05


def of_first(part: RepeatPart, sealed: Sealed, spawned_ns: int) -> RepeatPart:
    """``part`` with the first request in it."""
    rows = _in_order(sealed)
    if not len(rows):
        return part.model_copy(update={"notes": [*part.notes, "the first request was never sent"]})
    due, done, token = (int(rows[name][0]) for name in ("due_ns", "done_ns", "first_token_ns"))
    sent_at = int(sealed.manifest["t0_monotonic_ns"]) + due - spawned_ns
    status = Status(int(rows["status"][0]))
    said: dict[str, object] = {
        "first_status": status.name,
        "idle_ns": max(0, sent_at - (part.ready_ns or 0)),
        "requests": 1,
        "failed": int(status != Status.OK),
    }
    if status != Status.OK:
        error = int(rows["error"][0])
        why = f": {rows.errors[error]}" if error >= 0 else ""
        said["notes"] = [*part.notes, f"the first request failed, {status.name}{why}"]
        return part.model_copy(update=said)
    latency = done - due
    first = token - due if token >= 0 else None
    said |= {"first_latency_ns": latency, "first_ttft_ns": first}
    if part.ready_ns is not None:
        said["first_answer_ns"] = part.ready_ns + (latency if first is None else first)
    late = int(rows["ready_ns"][0]) - due
    if late > _LATE * latency:
        said["notes"] = [
            *part.notes,
            f"the first request was taken up {late / 1e6:.1f} ms late, by this machine's doing",
        ]
    return part.model_copy(update=said)


def of_curve(part: RepeatPart, sealed: Sealed, first: Sealed, invalid: Sequence[str]) -> RepeatPart:
    """``part`` with the curve in it: the first request, then those of the second run."""
    rows, alone = _in_order(sealed), _in_order(first)
    latency = np.concatenate((_latency(alone), _latency(rows)))
    took = int(alone["done_ns"][0] - alone["due_ns"][0]) if len(alone) else 0
    due = np.concatenate((np.zeros(len(alone), np.int64), took + rows["due_ns"] - rows["due_ns"].min(initial=0)))
    found = settle(latency, due)
    said: dict[str, object] = {
        "idle_ns": part.idle_ns + _idle(first, sealed),
        "requests": len(latency),
        "failed": int(np.isinf(latency).sum()),
        "invalid": list(invalid),
        "curve": thinned(latency),
    }
    if isinstance(found, Settled):
        said |= {"steady_after": found.requests, "steady_level_ns": round(found.level_ns)}
        said["excess_ns"] = round(found.excess_ns) if np.isfinite(found.excess_ns) else None
        if part.ready_ns is not None and found.requests < len(due):
            said["steady_ns"] = part.ready_ns + int(due[found.requests])
    else:
        said["unsettled"] = found.why
    return part.model_copy(update=said)


def thinned(latency_ns: FloatArray) -> list[tuple[int, int | None]]:
    """(request number, latency) for a drawing: all of the first 200, then some of the rest; a failed one has none."""
    n = len(latency_ns)
    kept = np.arange(min(n, _ALL))
    if n > _ALL:
        kept = np.unique(np.concatenate((kept, np.geomspace(_ALL, n - 1, _SPARSE).astype(np.int64))))
    return [(int(i) + 1, int(latency_ns[i]) if np.isfinite(latency_ns[i]) else None) for i in kept]


def _in_order(sealed: Sealed) -> Records:
    """Measured rows in the order of issue."""
    rows = sealed.records.measured()
    return rows.select(np.lexsort((rows["query_id"], rows["due_ns"])))


def _latency(rows: Records) -> FloatArray:
    return np.where(rows.ok, (rows["done_ns"] - rows["due_ns"]).astype(np.float64), np.inf)


def _idle(first: Sealed, then: Sealed) -> int:
    """Between the first answer and the next request nothing was in flight: we were starting the second run."""
    over, due = first.records.measured()["done_ns"], then.records.measured()["due_ns"]
    if not len(over) or not len(due):
        return 0
    ended = int(first.manifest["t0_monotonic_ns"]) + int(over.max())
    return max(0, int(then.manifest["t0_monotonic_ns"]) + int(due.min()) - ended)
