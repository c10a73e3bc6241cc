"""Conversations of agents as kv-cache-tester keeps them: an object a conversation, alone in its file or one a line.

Times count from the conversation's start, and nothing says when it came: of several the scenario has to say it. Ids of
blocks are of one conversation, unless ``hash_id_scope`` says global. A subagent's requests are a session of their own.
"""

from collections.abc import Iterator
from typing import Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Head, Reading, Row, S, block_tokens_of, blocks_of, documents, keep, taken
from plimsoll.scenarios.samples.traces import Format

_TAKES = {
    "t": Take("at_ns", "time", S, needed=True),
    "in": Take("n_in", "count", needed=True),
    "out": Take("n_out", "count", needed=True),
    "model": Take("label:model", "text"),
    "api_time": Take("latency_ns", "span", S, blank=True),
    "ttft": Take("ttft_ns", "span", S, blank=True),
    "think_time": Take("think_ns", "span", S, blank=True),
}
_LEAVES = ("type", "input_types", "output_types", "stop")
_TOP = {"id", "models", "block_size", "hash_id_scope", "tool_tokens", "system_tokens", "requests"}
_SUBAGENT = {"t", "type", "agent_id", "subagent_type", "duration_ms", "total_tokens", "tool_use_count", "status", *_TOP}


def _detect(head: Head) -> bool:
    return head.text.lstrip().startswith("{") and '"block_size"' in head.text and '"requests"' in head.text


def _read(reading: Reading, made: Recording) -> None:
    sizes = set[int]()
    conversations = 0

    def rows() -> Iterator[tuple[int, Row]]:
        nonlocal conversations
        for line, one in documents(reading):
            try:
                reading.require(one, _TOP)
                tokens = block_tokens_of(one, "block_size", sizes)
                found = [*_requests(reading, one, f"{conversations}", conversations, tokens)]
            except ValueError as error:
                reading.say(line, error)
                continue
            conversations += 1
            made.timed = conversations < 2
            yield from ((line, row) for row in found)

    keep(reading, rows(), made)
    made.block_tokens = max(sizes, default=made.block_tokens)


def _requests(reading: Reading, part: dict[str, Any], session: str, number: int, tokens: int) -> Iterator[Row]:
    """Of a conversation, or of a subagent in it. Raises ValueError with the request's place."""
    requests = part.get("requests")
    if not isinstance(requests, list):
        raise ValueError("requests is not a list. Give a conversation that is whole.")
    local = part.get("hash_id_scope", "local") != "global"
    for turn, one in enumerate(requests):
        try:
            if not isinstance(one, dict):
                raise ValueError("not an object.")
            if one.get("type") == "subagent":
                reading.require(one, _SUBAGENT)
                child = {"hash_id_scope": part.get("hash_id_scope", "local")} | one
                yield from _requests(reading, child, f"{session}/{turn}", number, tokens)
                continue
            reading.require(one, (*_TAKES, *_LEAVES, "hash_ids"))
            row = taken(one, _TAKES) | {"session": session}
            ids = blocks_of(one, "hash_ids", row["n_in"], 0)
            row["ids"] = [number << 32 | i for i in ids] if local and ids else ids
            yield row
        except ValueError as error:
            raise ValueError(f"requests[{turn}]: {error}") from None


FORMAT = Format(
    name="weka",
    summary="Agents' conversations of kv-cache-tester (WEKA): JSON, one a file or a line",
    unit="s from the conversation's start",
    sign="block_size and requests",
    detect=_detect,
    read=_read,
    takes=("block_size", "hash_id_scope", "requests", *_TAKES, "hash_ids"),
    leaves=_LEAVES,
    columns=("session", "turn", "think_ns", "latency_ns", "ttft_ns"),
    labels=("model",),
    block_tokens=64,
    cumulative=True,
)
