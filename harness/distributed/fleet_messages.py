"""What the master of a distributed run and its agents say to each other: JSON, a line of at most ``LIMIT`` bytes each.

``docs/reference/distributed-messages.md`` has every message and the duties of who carries them. Nothing here sends, and
nothing here holds a secret: keys and headers are resolved on each agent from its own environment and files.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.slo.records.records import MOST_WORKERS

T = TypeVar("T")

#: The longest line of either direction, in bytes. Segments and histograms are cut to fit (``PIECE``).
LIMIT = 256 * 1024
#: Raw bytes of a segment in one ``piece``: base64 makes four of three, and the rest of the line has 16 KiB.
PIECE = 180 * 1024
#: Pieces of one agent that may be on their way unanswered: what bounds memory on the whole path.
WINDOW = 4
#: The site says ``alive`` this often; the fleet takes an agent for lost that says nothing for ``SILENCE_S``.
ALIVE_S = 1.0
SILENCE_S = 15.0
#: The exit code of a site whose run came to its end without a query of its own.
IDLE = int(ExitCode.INVALID)
#: Locust's name for messages with rows of streaming users (``streaming_session.py``).
ROWS = "plimsoll-rows"


class Bridge(Protocol):
    """The transport's end at the master: envelopes."""

    async def hear(self) -> Mapping[str, Any] | None:
        """The next envelope; None when the transport is gone."""

    def say(self, line: Mapping[str, Any]) -> None:
        """Send one envelope, in order. Never raises."""


def line(message: Mapping[str, Any]) -> bytes:
    """One message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def batches(sized: Iterable[tuple[T, int]], room: int) -> Iterator[list[T]]:
    """Things in order, each with its size, in lists of at most ``room`` bytes; a larger one is in a list by itself."""
    batch: list[T] = []
    used = 0
    for one, size in sized:
        if batch and used + size > room:
            yield batch
            batch, used = [], 0
        batch.append(one)
        used += size
    if batch:
        yield batch


def pong(ping: Mapping[str, Any], monotonic_ns: int, wall_ns: int) -> dict[str, Any]:
    """The answer to a ``ping``: the clocks must have been read as it came."""
    return {
        "type": "pong",
        "number": ping["number"],
        "sent_ns": ping["sent_ns"],
        "got_ns": monotonic_ns,
        "wall_ns": wall_ns,
    }


# -- what the master takes from agents ------------------------------------------------------------------------------


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_whole(one) for one in value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _whole(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _table(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and of(one) for key, one in value.items())


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _spread(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(key) is str and _BIN.fullmatch(key) and type(n) is int and 0 <= n < 1 << 63 for key, n in value.items()
    )


def _status(value: Any) -> bool:
    """A worker's status line: watchers add it to those of all others, so one that does not fit would spoil them."""
    return (
        isinstance(value, dict)
        and all(_count(value.get(name)) for name in COUNTS)
        and all(_spread(value.get(name)) for name in FRESH)
        and _table(value.get("others", {}), _spread)
    )


def _status_lines(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 2 for one in value)
    return pairs and all(_whole(shard) and _status(line) for shard, line in value)


def _increments(value: Any) -> bool:
    rows = isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 4 for one in value)
    return rows and all(
        _whole(second) and 0 <= second < LONGEST_S and _text(metric) and _numbers(at) and _numbers(counts)
        for second, metric, at, counts in value
    )


#: What a worker's status line counts (``harness/generator/worker.py``), besides a histogram for each of ``FRESH``,
#: whose bins are 32 an octave: none is above that of 2**63 ns.
COUNTS = ("sent", "done", "failed", "measured", "bad", "in_flight")
_BIN = re.compile(r"1?[0-9]{1,3}|20[01][0-9]", re.ASCII)
#: What an agent that keeps its rows counted in them.
COUNTED = ("planned", "planned_queries", "sent", "recorded", "lost", "elapsed_ns")
#: A month, in seconds: no run's intervals are later.
LONGEST_S = 31 * 86_400
#: type -> its fields. Of ``hello`` the roster judges: one that can't be read may come from another version, and is told
#: so.
_FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "hello": {},
    "pong": dict.fromkeys(("number", "sent_ns", "got_ns", "wall_ns"), _whole),
    "ready": {"fingerprints": lambda one: _table(one, _text), "payloads": _text, "folder": _text},
    "fault": {"errors": _texts, "code": _whole},
    "workers": {"lines": _status_lines},
    "piece": {
        **dict.fromkeys(("file", "sha256", "data"), _text),
        **dict.fromkeys(("piece", "pieces", "bytes"), _whole),
    },
    "intervals": {"rows": _increments},
    "finished": {
        "done": lambda one: _table(one, lambda done: done is None or isinstance(done, dict)),
        "deaths": lambda one: _table(one, _text),
        "died_ns": lambda one: _table(one, _whole),
        "cpu_s": lambda one: isinstance(one, float) or _whole(one),  # whatever it is: without it the run would not end
    },
    "sealed": {
        "folder": _text,
        "counts": lambda one: isinstance(one, dict) and all(_whole(one.get(name)) for name in COUNTED),
    },
    "ended": {"code": _whole},
    "alive": {},
    "leaving": {"reason": _text},
}


#: What Locust's master takes from processes with streaming users (``streaming_session.Kept``): in each message, in each
#: piece, in the last.
_OF_ROWS: Mapping[str, Callable[[Any], bool]] = {
    "index": lambda one: _whole(one) and 0 <= one < MOST_WORKERS,
    "t0_wall_ns": _whole,
}
_OF_PIECE: Mapping[str, Callable[[Any], bool]] = {
    "number": lambda one: _whole(one) and one >= 0,
    "piece": lambda one: isinstance(one, bytes),
}
_PARTS: Mapping[str, set[str]] = {
    "stalls": {"p99_ns", "max_ns", "total_ns", "count"},
    "gc": {"max_ns", "total_ns", "count"},
}
_OF_LAST: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("sent", "rows"), lambda one: _whole(one) and one >= 0),
    "vitals": lambda one: (
        isinstance(one, dict)
        and all(_table(one.get(part), _whole) and one[part].keys() >= names for part, names in _PARTS.items())
        and all(_number(one.get(name)) for name in ("cpu", "core_wanted", "watched_ns"))
    ),
}


def rows_problem(message: Any) -> str | None:
    """The same of a message with rows of streaming users."""
    if not isinstance(message, dict):
        return "not of ours"
    fields = {**_OF_ROWS, **(_OF_PIECE if "piece" in message else {}), **(_OF_LAST if "vitals" in message else {})}
    wrong = [name for name, fits in fields.items() if name not in message or not fits(message[name])]
    return f"a wrong {wrong[0]}" if wrong else None


def problem(message: Any) -> str | None:
    """Why this is no message of an agent's; None: it is one. Fields that nobody reads may be anything."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return "not of ours"
    fields = _FIELDS.get(message["type"])
    if fields is None:
        return "of a type that no agent sends"
    wrong = [name for name, fits in fields.items() if name not in message or not fits(message[name])]
    return f"{message['type']} with a wrong {wrong[0]}" if wrong else None


# -- a sealed file in pieces ---------------------------------------------------------------------------------------

#: The files that a worker leaves: segments, and the answers of an accuracy run. The number is the shard.
_NAME = re.compile(r"(?:w(\d{3,6})-\d{6,9}\.seg|outputs-w(\d{3,6})\.jsonl)")
#: The longest file that is taken: some hundred times a segment of 20,000 long answers.
MAX_BYTES = 1 << 31


class Damaged(ValueError):
    """The pieces do not make the file that was cut."""


def shard_of(name: str) -> int | None:
    """The shard whose worker wrote a file of this name; None: no file of ours has it."""
    found = _NAME.fullmatch(name)
    return int(found[1] or found[2]) if found else None


def cut(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The ``piece`` messages of one file: at least one, each of at most ``PIECE`` raw bytes."""
    digest = hashlib.sha256(data).hexdigest()
    pieces = max(1, -(-len(data) // PIECE))
    for number in range(pieces):
        yield {
            "type": "piece",
            "file": name,
            "piece": number,
            "pieces": pieces,
            "bytes": len(data),
            "sha256": digest,
            "data": base64.b64encode(data[number * PIECE : (number + 1) * PIECE]).decode(),
        }


class Assembly:
    """One file under way. ``take`` each of its pieces in turn; the last one returns the whole file."""

    __slots__ = ("_parts", "_wanted")

    def __init__(self, first: Mapping[str, Any]) -> None:
        self._wanted = (first["pieces"], first["bytes"], first["sha256"])
        self._parts: list[bytes] = []

    def take(self, piece: Mapping[str, Any]) -> bytes | None:
        """The whole file once its last piece is there, None before. Raises ``Damaged``."""
        if (piece["pieces"], piece["bytes"], piece["sha256"]) != self._wanted or piece["piece"] != len(self._parts):
            raise Damaged("its pieces do not belong together")
        pieces, size, digest = self._wanted
        if size > MAX_BYTES or pieces != max(1, -(-size // PIECE)):
            raise Damaged(f"{size} bytes in {pieces} pieces are not how we cut")
        try:
            self._parts.append(base64.b64decode(piece["data"], validate=True))
        except (binascii.Error, TypeError, ValueError):
            raise Damaged("a piece is not base64") from None
        if len(self._parts[-1]) > PIECE:
            raise Damaged("a piece is too long")
        if len(self._parts) < pieces:
            return None
        data = b"".join(self._parts)
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            raise Damaged("its digest is another")
        return data
