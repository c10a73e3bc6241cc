"""JSON messages of a live session: the few bytes that are looked at while it is on, and the tolerant reading of all of them after it.

What a message means is its protocol's business. Nothing here raises, whatever a server sends: a member that is missing or of
another type reads as nothing, a message that is no JSON ends the reading and is named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._speech.events import FADE_NS, Endpoint, Event
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.live.dialogue import messages_of
from plimsoll.harness.wire.tokens import Fault
from plimsoll.slo.records.session_columns import PACE_FILE, PACE_OTHER

_TYPE = re.compile(rb'"type"\s*:\s*"([^"\\]*)"')
_CLOSED = re.compile(r"the server closed the session[^:]*: (\d{4})\b")
#: Close codes by which a server says that a session ended as it should, or that say nothing of their own.
_SILENT = frozenset({1000, 1001, 1005, 1006})
#: Close codes that say "not now" in any protocol.
OVERLOADED = frozenset({1013})
_SHED = re.compile(r"\b(?:429|503)\b|overload|too many|rate.?limit|quota")
_LONGEST_S = 1_000_000.0


def kind_of(message: bytes) -> bytes:
    """The ``type`` of a JSON object, b"" if it has none. Hot: looks for bytes, decodes nothing."""
    for found in _TYPE.finditer(message):
        start = found.start()
        if message.count(b"{", 0, start) - message.count(b"}", 0, start) == 1:  # the object's own, not one inside
            return found[1]
    return b""


def number_of(message: bytes, key: str) -> float:
    """The number under ``key`` of a JSON object, -1 if it has none. Hot: looks for bytes, decodes nothing else."""
    for found in re.finditer(rb'"%s"\s*:\s*(\d{1,9}(?:\.\d{1,12})?)' % key.encode(), message):
        start = found.start()
        if message.count(b"{", 0, start) - message.count(b"}", 0, start) == 1:
            return float(found[1])
    return -1.0


def after_speech(exchange: Exchange) -> bool:
    """The latest message came when the speaker had truly finished; where nobody knows that, when the clip was over. Hot.

    Always true of audio that no microphone would give so fast: when it is heard says nothing about a speaker.
    """
    stamps = exchange.session
    if stamps is None or stamps.pace in (PACE_FILE, PACE_OTHER):
        return True
    end_ns = stamps.speech_end_ns if stamps.speech_end_ns >= 0 else stamps.media_start_ns + max(0, exchange.media_ns)
    return exchange.mark_ns[-1] >= end_ns


def heard_out(exchange: Exchange, position_ms: float) -> bool:
    """``after_speech``, and the position in the audio that the server gave reaches the true end of the speech. Hot.

    What a slow server says of the first half of a clip comes late, but it is not the end.
    """
    stamps = exchange.session
    if stamps is not None and stamps.speech_end_ns >= 0:
        end_ns = stamps.speech_end_ns - stamps.media_start_ns
        return position_ms * 1e6 + FADE_NS >= end_ns and after_speech(exchange)
    return after_speech(exchange)


@dataclass(frozen=True, slots=True)
class Said:
    """The messages of a session: (arrival ns, JSON object or binary data) in order, up to one that could not be read (``broken``)."""

    messages: tuple[tuple[int, dict[str, Any] | bytes], ...]
    broken: str | None = None


def read(exchange: Exchange) -> Said:
    """Every message of a finished session. Text that is JSON but no object is passed over."""
    found: list[tuple[int, dict[str, Any] | bytes]] = []
    for i, (t_ns, data, text) in enumerate(messages_of(exchange)):
        if not text:
            found.append((t_ns, data))
            continue
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return Said(tuple(found), f"message {i + 1} is not JSON: {outcome.excerpt(data)}")
        if isinstance(value, dict):
            found.append((t_ns, value))
    return Said(tuple(found))


def member(value: Any, *path: str | int) -> Any:
    """What lies at ``path`` (names, and places in lists), None where the path leads nowhere."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at ``path``, "" where there is none."""
    found = member(value, *path)
    return found if isinstance(found, str) else ""


def ns_of(value: Any, unit_ns: int = 1_000_000_000) -> int:
    """A position in audio in ns, from a number of seconds (or of ``unit_ns``); -1 for anything that is no such number."""
    if type(value) not in (int, float) or not 0 <= value < _LONGEST_S * 1e9 / unit_ns:
        return -1
    position: int = round(value * unit_ns)
    return position


def fault_in(said: dict[str, Any], text: Iterable[str], code: Iterable[str], overloaded: Collection[str] = ()) -> Fault:
    """An error message in the server's words: the first of ``text`` that is there, and all of ``code``. ``overloaded``: parts of
    codes by which it sheds load.
    """
    words = next((found for name in text if (found := text_at(said, name))), "")
    labels = [str(said[name]) for name in code if isinstance(said.get(name), str | int) and said[name] != ""]
    if not words:  # not in a known place: what there is on the surface
        words = ", ".join(f"{name}: {value}" for name, value in said.items() if isinstance(value, str | int))
    told = " ".join([words, *labels]).lower()
    shed = _SHED.search(told) is not None or any(part in told for part in overloaded)
    return Fault(f"{words} ({', '.join(labels)})" if labels else words, shed)


def while_open(exchange: Exchange, events: Sequence[Event]) -> list[Event]:
    """The events without the endpoints that came after the input was over: those answer our own goodbye, not a speaker's silence."""
    over_ns = exchange.session.input_end_ns if exchange.session is not None else -1
    return [event for event in events if over_ns < 0 or not isinstance(event, Endpoint) or event.t_ns <= over_ns]


def conclude(
    exchange: Exchange,
    said: Said,
    fault: Fault | None,
    overloaded: Collection[int] = OVERLOADED,
) -> None:
    """Judge a session by what was said in it: a reported error, then a message that could not be read, then how it was closed.

    A close with a code of the service's own is its word, not a broken connection; ``overloaded``: the codes that shed load.
    """
    closed = _CLOSED.search(exchange.error or "") if exchange.status == outcome.PROTOCOL else None
    if fault is not None:
        outcome.fail_by(exchange, fault)
    elif said.broken is not None:
        outcome.fail(exchange, outcome.PROTOCOL, said.broken)
    elif closed is not None and int(closed[1]) not in _SILENT:
        status = outcome.REFUSED if int(closed[1]) in overloaded else outcome.HTTP
        outcome.fail(exchange, status, exchange.error or "")
    if exchange.error:
        exchange.error = redact(exchange.error)
