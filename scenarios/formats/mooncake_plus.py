"""Mooncake's format with sessions, as AIPerf and Dynamo extend it. A row with ``delay`` waits so long after the end of
the turn before it and has no time of its own; whether a turn's length contains the turns before it is told by
``message_mode``, or by ``hash_ids``, which name the whole prompt.
"""

from typing import Any

from plimsoll.scenarios.formats.mooncake import PLUS
from plimsoll.scenarios.formats.mooncake import TAKES as MOONCAKE
from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import BLOCK_TOKENS, Recording
from plimsoll.scenarios.samples.rows import MS, Head, Reading, Row, Tree, blocks_of, keep, taken
from plimsoll.scenarios.samples.traces import Format

_TAKES = {
    "session_id": Take("session", "key"),
    "delay": Take("think_ns", "span", MS, blank=True),
    "priority": Take("label:priority", "text"),
    "input_length": Take("n_in", "count"),
    "output_length": Take("n_out", "count"),
}
_MODES = {"history": True, "delta": False}


def _detect(head: Head) -> bool:
    keys = head.entry.keys()
    sized = keys & {"input_length", "text_input", "messages"} and keys & {"output_length", "timestamp", "delay"}
    return bool(sized and keys & PLUS) and not keys & {"chat_id", "round_index", "schema"}


def _read(reading: Reading, made: Recording) -> None:
    wanted, told = reading.wanted(_TAKES), set[bool]()
    known = {*_TAKES, "timestamp", "hash_ids", "message_mode"}

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, known)
        found = taken(entry, wanted)
        if entry.get("timestamp") is None:
            if "session_id" not in entry:
                raise ValueError("has no timestamp and no session_id: nobody knows when it came. Give one of them.")
            made.timed, found["at_ns"] = False, -1
        else:
            found["at_ns"] = taken(entry, {"timestamp": MOONCAKE["timestamp"]})["at_ns"]
        found["ids"] = blocks_of(entry, "hash_ids", found.get("n_in", -1), BLOCK_TOKENS)
        if "session" in found:
            mode = entry.get("message_mode")
            if mode is not None and str(mode) not in _MODES:
                raise ValueError(f"message_mode is {mode!r:.40}. Write history or delta.")
            if mode is not None or found["ids"] is not None:
                told.add(found["ids"] is not None if mode is None else _MODES[mode])
        return found

    keep(reading, reading.lines(row), made, Tree())
    if reading.names.cumulative is None and made.knows("session") and not reading.errors:
        if len(told) != 1:
            what = "say both history and delta" if told else "do not say whether a length contains the turns before it"
            raise ValueError(f"its sessions {what}. Give columns: {{cumulative: true}}, or false.")
        made.cumulative = told.pop()


FORMAT = Format(
    name="mooncake-plus",
    summary="Mooncake's format with sessions (AIPerf, Dynamo): JSON Lines",
    unit="ms",
    sign=f"input_length or a text, and one of {', '.join(sorted(PLUS))}",
    detect=_detect,
    read=_read,
    takes=("timestamp", *_TAKES, "hash_ids", "message_mode"),
    columns=("session", "turn", "think_ns"),
    labels=("priority",),
    block_tokens=BLOCK_TOKENS,
)
