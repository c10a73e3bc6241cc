"""Dynamo's request traces: an object an event, of which ``request_end`` is a request and the others are not. They come
in gzip as Dynamo writes them; a request came when it was received.
"""

from typing import Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import CANCELLED, FAILED, OK, Recording
from plimsoll.scenarios.samples.rows import MS, Reading, Row, block_tokens_of, blocks_of, count_of, keep, taken
from plimsoll.scenarios.samples.traces import Format

_SCHEMA = "dynamo.request.trace.v1"
_TAKES = {
    "request_received_ms": Take("at_ns", "time", MS),
    "input_tokens": Take("n_in", "count"),
    "output_tokens": Take("n_out", "count"),
    "ttft_ms": Take("ttft_ns", "span", MS, blank=True),
    "total_time_ms": Take("latency_ns", "span", MS, blank=True),
    "model": Take("label:model", "text"),
}
_LEAVES = (
    *("request_id", "x_request_id", "cached_tokens", "prefill_wait_time_ms", "prefill_time_ms", "avg_itl_ms"),
    *("kv_hit_rate", "kv_transfer_estimated_latency_ms", "queue_depth", "worker"),
)
_ENDS = {"cancelled": CANCELLED, "canceled": CANCELLED, "error": FAILED}


def _event(entry: Any) -> Any:
    """It may lie in an envelope."""
    return entry["event"] if isinstance(entry.get("event"), dict) else entry


def _object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    """What it has there, or nothing. Raises ValueError."""
    found = entry.get(key) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{key} is not an object. Give events that are whole.")
    return found


def _read(reading: Reading, made: Recording) -> None:
    sizes = set[int]()
    known = {*_TAKES, *_LEAVES, "replay", "finish_reason_metadata"}

    def row(entry: dict[str, Any]) -> Row | None:
        event = _event(entry)
        if event.get("schema") != _SCHEMA:
            raise ValueError(f"schema is {event.get('schema')!r:.60}, not {_SCHEMA}. Give one trace's events.")
        if event.get("event_type") != "request_end":
            return None
        request = event.get("request")
        if not isinstance(request, dict):
            raise ValueError("request is not an object. Give events that are whole.")
        reading.require(request, known)
        found = taken({key: value for key, value in request.items() if value is not None}, _TAKES)
        if "at_ns" not in found:
            ended = taken(event, {"event_time_unix_ms": Take("at_ns", "time", MS, needed=True)})["at_ns"]
            if "latency_ns" not in found:
                raise ValueError("neither request_received_ms nor total_time_ms: nobody knows when it came. Give one.")
            found["at_ns"] = ended - found["latency_ns"]
        context = _object(event, "agent_context")
        found["session"] = context.get("trajectory_id") or context.get("session_id")
        replay = request.get("replay")
        if isinstance(replay, dict):
            found["n_in"] = count_of(replay, "input_length")
            tokens = block_tokens_of(replay, "trace_block_size", sizes)
            found["ids"] = blocks_of(replay, "input_sequence_hashes", found["n_in"], tokens)
        ends = _object(request, "finish_reason_metadata")
        reason = str(ends.get("backend_finish_reason") or ends.get("finish_reason")).lower()
        found["status"] = _ENDS.get(reason, OK)
        if found["status"] == CANCELLED:
            found["gave_up_ns"] = found.get("latency_ns", -1)
        return found

    keep(reading, reading.lines(row), made)
    made.block_tokens = max(sizes, default=made.block_tokens)


FORMAT = Format(
    name="dynamo",
    summary="Dynamo's request traces: JSON Lines of events",
    unit="ms since 1970",
    sign=f"schema {_SCHEMA}",
    detect=lambda head: _event(head.entry).get("schema") == _SCHEMA,
    read=_read,
    takes=(*_TAKES, "replay", "finish_reason_metadata", "agent_context"),
    leaves=_LEAVES,
    columns=("session", "turn", "think_ns", "status", "gave_up_ns", "latency_ns", "ttft_ns"),
    labels=("model",),
    block_tokens=16,
    cumulative=True,
)
