"""TraceLab: an object a round of a coding agent, with the times at which its parts came. A round begins with the last
thing that it was given and ends with the last that it said; there are neither hashes nor texts.
"""

from typing import Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Reading, Row, S, keep, taken, time_of
from plimsoll.scenarios.samples.traces import Format

_TAKES = {
    "session_id": Take("session", "key", needed=True),
    "input_tokens_total": Take("n_in", "count", needed=True),
    "output_tokens": Take("n_out", "count", needed=True),
    "model": Take("label:model", "text"),
    "provider": Take("label:provider", "text"),
}
_LEAVES = (
    *("project", "session_file", "round_id", "turn_id", "trace_key", "home", "user", "store", "cwd", "tools"),
    *("prefix_tokens", "newly_append_tokens", "claude_uncached_input_tokens", "claude_cache_creation_input_tokens"),
    *("claude_cache_read_input_tokens", "reasoning_output_tokens", "current_input_event_count"),
    *("current_user_message_count", "current_tool_result_count", "current_user_message_chars"),
    *("current_tool_result_chars", "current_input_chars", "first_input_event_type"),
)
_GIVEN = {"user_message", "tool_result"}


def _read(reading: Reading, made: Recording) -> None:
    known = {*_TAKES, *_LEAVES, "round_index", "timing_events"}

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, known)
        found = taken(entry, _TAKES)
        if type(entry.get("round_index")) is not int or not 0 <= entry["round_index"] < 1 << 31:
            raise ValueError(f"round_index is {entry.get('round_index')!r:.40}. Give a whole number from 0 up.")
        events = entry.get("timing_events")
        if not isinstance(events, list) or not events or not all(isinstance(one, dict) for one in events):
            raise ValueError("timing_events has no times: nobody knows when this round came. Give them.")
        given = [time_of(one, "timestamp", S) for one in events if str(one.get("event_type")) in _GIVEN]
        said = [time_of(one, "timestamp", S) for one in events if str(one.get("event_type")) not in _GIVEN]
        at = max(given) if given else min(said)
        if said and max(said) >= at and given:
            found["latency_ns"] = max(said) - at
        return found | {"at_ns": at, "turn": entry["round_index"] + 1}

    keep(reading, reading.lines(row), made)


FORMAT = Format(
    name="tracelab",
    summary="TraceLab's rounds of coding agents: JSON Lines",
    unit="UTC",
    sign="session_id, round_index, newly_append_tokens",
    detect=lambda head: {"session_id", "round_index", "newly_append_tokens"} <= head.entry.keys(),
    read=_read,
    takes=(*_TAKES, "round_index", "timing_events"),
    leaves=_LEAVES,
    columns=("session", "turn", "think_ns", "latency_ns"),
    labels=("model", "provider"),
    cumulative=True,
)
