"""What is let in at the port of Locust's master: whoever reaches it can send anything, and one message of another shape
than Locust expects would end its listening, and so the run. Here each is looked at before Locust sees it; what is none
is dropped and counted.

Locust is not imported: how frames are unpacked, and what its master knows, are handed in.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from plimsoll.harness.distributed import fleet_messages as messages
from plimsoll.slo.records.foreign import one_line, printable

#: Locust's name for every message of ours.
MESSAGE = "plimsoll"
#: A longer message ends its sender's connection (a report of a Locust worker with many names is the longest, in bytes),
#: and so many of one sender wait at most: then it is no longer read.
LONGEST, WAITING = 16 << 20, 32
#: The longest of ours: a line of ``messages.LIMIT`` bytes, in the transport's form.
OURS = 2 * messages.LIMIT
#: How deep a message may be nested, and how many values it may hold.
DEEPEST, MOST_VALUES = 12, 500_000
#: Agents, names of requests, texts of errors: Locust keeps all of them for as long as it lives.
MOST_AGENTS, MOST_NAMES, MOST_ERRORS = 10_000, 10_000, 1_000
LONGEST_TEXT = 20_000
_SENDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=~-]{0,254}")
_TYPE = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_PLAIN = (str, int, float, NoneType)
_STATES = frozenset(("ready", "spawning", "running", "cleanup", "stopping", "stopped", "missing"))
_log = logging.getLogger("plimsoll")


class Strangers:
    """Counts what was dropped, and says so: the first, then the tenth, the hundredth and so on, however many come."""

    def __init__(self) -> None:
        self.dropped = 0
        self._next = 1

    def drop(self, sender: bytes, why: str) -> None:
        """One message less."""
        self.dropped += 1
        if self.dropped < self._next:
            return
        self._next = self.dropped * 10
        who = one_line(sender[:200].decode("ascii", "replace"), 40)
        many = f"; {self.dropped} messages were dropped so far" if self.dropped > 1 else ""
        _log.warning(
            "somebody at the master's port speaks no Locust (%r: %s): ignored%s", who, one_line(why, 200), many
        )


class Guard:
    """What a master's port lets in. ``unpack`` makes a frame Locust's message; ``runner`` is Locust's master."""

    def __init__(self, unpack: Callable[[bytes], Any]) -> None:
        self._unpack = unpack
        self._greeted: dict[str, None] = {}
        self.strangers = Strangers()
        self.runner: Any = None

    def take(self, frames: list[bytes]) -> tuple[str, Any] | None:
        """(sender, message) of one transmission; None: it was dropped."""
        try:
            sender = frames[0].decode("ascii")
            message = self._unpack(frames[1])
            whole = len(frames) == 2 and (message.type != MESSAGE or len(frames[1]) <= OURS)
            why = self._why_not(sender, message) if whole else "too long, or not of two frames"
        except Exception as error:  # noqa: BLE001 - decoders raise what they like
            why = type(error).__name__
        if why is None:
            return sender, message
        self.strangers.drop(frames[0] if frames else b"", why)
        return None

    def _why_not(self, sender: str, message: Any) -> str | None:
        kind, data = message.type, message.data
        if not _SENDER.fullmatch(sender):
            return "its name is none"
        if message.node_id != sender:
            return "it speaks for somebody else"
        if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
            return "a message of no type"
        if not bounded(data, plain=kind == MESSAGE):
            return f"{kind}: nested too deep, or too long"
        if kind == MESSAGE:
            why = messages.problem(data)
            return why and f"{kind}: {why}"
        check = _CHECKS.get(kind)
        if check is None:
            custom = None if self.runner is None else self.runner.custom_messages
            if custom is not None and kind not in custom:
                return "a message of a type that nobody here knows"
            if kind != messages.ROWS:
                return None
            why = (
                messages.rows_problem(data)
                if sender in self._greeted
                else "from somebody who has not said client_ready"
            )
            return why and f"{kind}: {why}"
        if not check(data):
            return f"{kind}: not as Locust has it"
        why = self._too_many(sender, kind, data)
        message.data = _fit(data)
        return why

    def _too_many(self, sender: str, kind: str, data: Any) -> str | None:
        """Whether Locust would fail, keep too much, or write a line into its log for each."""
        runner = self.runner
        if kind == "client_ready":
            if runner is not None and sender not in runner.clients and len(runner.clients) >= MOST_AGENTS:
                return "there are too many agents"
            self._greeted.pop(sender, None)
            self._greeted[sender] = None
            if len(self._greeted) > MOST_AGENTS:
                del self._greeted[next(iter(self._greeted))]
            return None
        if kind == "locustfile":
            found = runner is not None and getattr(runner.environment, "parsed_locustfiles", None)
            return None if found else "no locustfile is given out here"
        if sender not in self._greeted:
            return f"{kind}: from somebody who has not said client_ready"
        if kind == "logs" and data["worker_id"] != sender:
            return "logs: of somebody else"
        if runner is None:
            return None
        if kind == "exception" and len(runner.exceptions) >= MOST_ERRORS:
            return "exception: there are too many already"
        stats = runner.environment.stats if kind == "stats" else None
        if stats is not None and len(stats.entries) + len(data["stats"]) > MOST_NAMES:
            new = {(one["name"], one["method"]) for one in data["stats"]} - stats.entries.keys()
            if len(stats.entries) + len(new) > MOST_NAMES:
                return "stats: too many names"
        if stats is not None and len(stats.errors) + len({*data["errors"]} - stats.errors.keys()) > MOST_NAMES:
            return "stats: too many errors"
        return None


def bounded(value: Any, plain: bool = False) -> bool:
    """Whether a message is no deeper than ``DEEPEST`` and holds at most ``MOST_VALUES`` values; ``plain``: and only
    those of JSON.
    """
    level, count = [value], 0
    for _ in range(DEEPEST):
        below: list[Any] = []
        count += len(level)
        for one in level:
            if isinstance(one, dict):
                below += one.keys()
                below += one.values()
            elif isinstance(one, list | tuple):
                below += one
            elif plain and not isinstance(one, _PLAIN):
                return False
        if count + len(below) > MOST_VALUES:
            return False
        if not below:
            return True
        level = below
    return False


def _fit(value: Any) -> Any:
    """Locust's own message with every text in it printable and cut: its log, its tables and its page show them."""
    if isinstance(value, str):
        return printable(value[:LONGEST_TEXT])
    if isinstance(value, dict):
        return {_fit(key): _fit(one) for key, one in value.items()}
    return [_fit(one) for one in value] if isinstance(value, list | tuple) else value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18 and math.isfinite(value)


def _optional(value: Any) -> bool:
    return value is None or _number(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(key) and _number(n) for key, n in value.items())


def _users(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(key) and _number(n) and n >= 0 for key, n in value.items())


def _has(data: Any, wanted: Mapping[str, Callable[[Any], bool]], may: Mapping[str, Callable[[Any], bool]]) -> bool:
    """Whether ``data`` has what is wanted, and what it may have, as it should be; more is nobody's."""
    if not isinstance(data, dict) or not all(name in data and check(data[name]) for name, check in wanted.items()):
        return False
    return all(name not in data or check(data[name]) for name, check in may.items())


_NUMBERS = (
    "num_requests",
    "num_none_requests",
    "num_failures",
    "total_response_time",
    "max_response_time",
    "total_content_length",
    "start_time",
)
_ENTRY: Mapping[str, Callable[[Any], bool]] = {
    "name": _text,
    "method": _text,
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(("last_request_timestamp", "min_response_time"), _optional),
    **dict.fromkeys(("response_times", "num_reqs_per_sec", "num_fail_per_sec"), _counts),
}
_ERROR: Mapping[str, Callable[[Any], bool]] = {"method": _text, "name": _text, "error": _text, "occurrences": _number}


def _entry(value: Any) -> bool:
    return _has(value, _ENTRY, {})


def _error(value: Any) -> bool:
    return _has(value, _ERROR, {"first_seen": _optional, "last_seen": _optional})


def _errors(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(key) and _error(one) for key, one in value.items())


def _version(value: Any) -> bool:
    return value == -1 or (isinstance(value, str) and bool(re.fullmatch(r"[0-9A-Za-z.+-]{1,64}", value)))


_POPULATION: Mapping[str, Callable[[Any], bool]] = {"user_classes_count": _users, "user_count": _number}
_LOAD: Mapping[str, Callable[[Any], bool]] = {"current_cpu_usage": _number}
#: What Locust's master reads of each of its own messages.
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "client_ready": _version,
    "client_stopped": lambda data: True,
    "quit": lambda data: True,
    "spawning": lambda data: True,
    "locustfile": lambda data: _has(data, {"version": _version}, {}),
    "heartbeat": lambda data: _has(
        data,
        {"state": lambda one: one in _STATES if isinstance(one, str) else False, **_LOAD},
        {"current_memory_usage": _optional},
    ),
    "stats": lambda data: _has(
        data,
        {
            "stats": lambda some: isinstance(some, list) and all(map(_entry, some)),
            "stats_total": _entry,
            "errors": _errors,
            **_POPULATION,
        },
        {},
    ),
    "spawning_complete": lambda data: _has(data, _POPULATION, {}),
    "logs": lambda data: _has(
        data,
        {
            "worker_id": _text,
            "logs": lambda some: isinstance(some, list) and len(some) <= 10_000 and all(map(_text, some)),
        },
        {},
    ),
    "exception": lambda data: _has(data, {"msg": _text, "traceback": _text}, {}),
}
