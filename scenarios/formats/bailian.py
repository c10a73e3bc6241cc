"""Alibaba's Bailian traces (Qwen). They look like Mooncake's and are not: times are seconds, blocks have 16 tokens, and
a turn's length contains the turns before it. ``parent_chat_id`` is the turn before, -1 that there is none.
"""

from typing import Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Reading, Row, S, blocks_of, keep, taken
from plimsoll.scenarios.samples.traces import Format

_TOKENS = 16
_TAKES = {
    "timestamp": Take("at_ns", "time", S, needed=True),
    "input_length": Take("n_in", "count", needed=True),
    "output_length": Take("n_out", "count", needed=True),
    "chat_id": Take("session", "key", needed=True),
    "parent_chat_id": Take("parent", "key"),
    "turn": Take("turn", "count"),
    "type": Take("label:type", "text"),
}


def _read(reading: Reading, made: Recording) -> None:
    known = {*_TAKES, "hash_ids"}

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, known)
        found = taken(entry, _TAKES)
        if found["session"] in (None, -1):
            raise ValueError(f"chat_id is {found['session']!r}. Give the number of this turn.")
        if found.get("parent") == -1:
            del found["parent"]
        return found | {"ids": blocks_of(entry, "hash_ids", found["n_in"], _TOKENS)}

    keep(reading, reading.lines(row), made)


FORMAT = Format(
    name="bailian",
    summary="Alibaba's Bailian traces (Qwen): JSON Lines",
    unit="s",
    sign="chat_id beside timestamp and input_length",
    detect=lambda head: {"chat_id", "timestamp", "input_length"} <= head.entry.keys(),
    read=_read,
    takes=(*_TAKES, "hash_ids"),
    columns=("session", "parent", "turn"),
    labels=("type",),
    block_tokens=_TOKENS,
    cumulative=True,
)
