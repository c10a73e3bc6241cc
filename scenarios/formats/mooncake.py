"""Mooncake's traces (FAST 2025): an object a request. ``hash_ids`` name blocks of 512 prompt tokens, and an id stands
for everything before its block too: a file whose ids don't fit the lengths, or follow two different blocks, is corrupt.
"""

from typing import Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import BLOCK_TOKENS, Recording
from plimsoll.scenarios.samples.rows import MS, Reading, Row, Tree, blocks_of, keep, taken
from plimsoll.scenarios.samples.traces import Format

TAKES = {
    "timestamp": Take("at_ns", "time", MS, needed=True),
    "input_length": Take("n_in", "count", needed=True),
    "output_length": Take("n_out", "count", needed=True),
}
#: What only its extension has.
PLUS = {"session_id", "delay", "text_input", "messages", "message_mode", "tools", "priority"}


def _read(reading: Reading, made: Recording) -> None:
    known = {*TAKES, "hash_ids"}

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, known)
        found = taken(entry, TAKES)
        return found | {"ids": blocks_of(entry, "hash_ids", found["n_in"], BLOCK_TOKENS)}

    keep(reading, reading.lines(row), made, Tree())


FORMAT = Format(
    name="mooncake",
    summary="Mooncake's traces (FAST 2025): JSON Lines",
    unit="ms",
    sign="timestamp, input_length, output_length, and nothing of bailian or mooncake-plus",
    detect=lambda head: TAKES.keys() <= head.entry.keys() and not head.entry.keys() & {"chat_id", *PLUS},
    read=_read,
    takes=(*TAKES, "hash_ids"),
    block_tokens=BLOCK_TOKENS,
)
