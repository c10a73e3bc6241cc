"""Mooncake's format with sessions, as AIPerf and Dynamo extend it. A row with ``delay`` waits so long after the end of
the turn before it and has no time of its own; whether a turn contains the turns before it is told by ``message_mode``,
or by ``hash_ids``, which name the whole prompt. ``messages`` or ``text_input`` are what was said, with ``tools`` and a
``priority`` for protocols that have them.
"""

import json
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
_SAID = ("messages", "text_input", "tools")
_MODES = {"history": True, "delta": False}


def _detect(head: Head) -> bool:
    keys = head.entry.keys()
    sized = keys & {"input_length", "text_input", "messages"} and keys & {"output_length", "timestamp", "delay"}
    return bool(sized and keys & PLUS) and not keys & {"chat_id", "round_index", "schema"}


def _read(reading: Reading, made: Recording) -> None:
    wanted, told = reading.wanted(_TAKES), set[bool]()
    known = {*_TAKES, "timestamp", "hash_ids", "message_mode", *_SAID}
    kept = {*_SAID, "priority"} - {*reading.names.ignore}

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, known)
        found = taken(entry, wanted)
        if entry.get("timestamp") is None:
            if "session_id" not in entry:
                raise ValueError("has no timestamp and no session_id: nobody knows when it came. Give one of them.")
            made.waits, found["at_ns"] = True, -1
        else:
            found["at_ns"] = taken(entry, {"timestamp": MOONCAKE["timestamp"]})["at_ns"]
        found["ids"] = blocks_of(entry, "hash_ids", found.get("n_in", -1), BLOCK_TOKENS)
        said = {key: entry[key] for key in kept if entry.get(key) is not None}
        found["said"] = _said(said) if said else None
        made.worded |= not {"messages", "text_input"}.isdisjoint(said)
        made.carries |= said.keys() - {"text_input"}
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
            raise ValueError(f"its sessions {what}. Give columns.cumulative (--column cumulative=true), true or false.")
        made.cumulative = told.pop()


def _said(entry: dict[str, Any]) -> bytes:
    """A row's own words, as ``Recording.said`` gives them back. Raises ValueError."""
    messages, text, tools = (entry.get(key) for key in _SAID)
    if messages is not None and text is not None:
        raise ValueError("has messages and text_input: nobody knows which was sent. Keep one: columns.ignore.")
    if messages is not None and not (isinstance(messages, list) and messages and all(map(_is_message, messages))):
        raise ValueError("messages is not a list of objects with a role. Give at least one.")
    if text is not None and not (isinstance(text, str) and text):
        raise ValueError(f"text_input is {text!r:.40}. Give a text that is not empty.")
    if tools is not None and not isinstance(tools, list):
        raise ValueError("tools is not a list. Give a list of objects.")
    fields = {key: entry[key] for key in ("tools", "priority") if key in entry}
    found = {"messages": messages, "prompt": text, "fields": fields}
    return json.dumps({key: value for key, value in found.items() if value}).encode()


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("role"), str)


FORMAT = Format(
    name="mooncake-plus",
    summary="Mooncake's format with sessions (AIPerf, Dynamo): JSON Lines",
    unit="ms",
    sign=f"input_length or a text, and one of {', '.join(sorted(PLUS))}",
    detect=_detect,
    read=_read,
    takes=("timestamp", *_TAKES, "hash_ids", "message_mode", *_SAID),
    columns=("session", "turn", "think_ns", "said"),
    labels=("priority",),
    block_tokens=BLOCK_TOKENS,
)
