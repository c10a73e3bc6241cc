"""The words of OpenAI's Realtime protocol (GA names): session settings, events, and the items of a conversation. Pure.

What changes nothing here (voice, threshold, noise reduction, language) is checked and kept; what this server can't do
(tools, semantic_vad, log probabilities) is refused by name. ``audio_*_ms`` are positions on the time line of the
appended audio. An error never ends the session.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.errors import RequestError, invalid

_FORMATS = {"audio/pcm": ("linear16", 24_000), "audio/pcmu": ("mulaw", 8000), "audio/pcma": ("alaw", 8000)}
_REFUSED = ("tools", "tracing", "prompt", "reasoning")
_IGNORED = ("tool_choice", "parallel_tool_calls", "truncation")
MAX_TOKENS = 4096
_QUOTED = 1000
"""An error quotes what was wrong; it must not send all of it back."""
_CONTENT = {"user": ("input_text",), "system": ("input_text",), "assistant": ("output_text",)}
MAX_ITEMS = 1000
MAX_CHARACTERS = 1 << 20
"""Of all items together; the newest is kept whatever its length."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How samples travel: base64 of these bytes."""

    kind: str = "audio/pcm"

    @property
    def encoding(self) -> str:
        return _FORMATS[self.kind][0]

    @property
    def sample_rate(self) -> int:
        return _FORMATS[self.kind][1]

    def shown(self) -> dict[str, Any]:
        return {"type": self.kind, "rate": self.sample_rate} if self.kind == "audio/pcm" else {"type": self.kind}


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Turns end with silence. ``threshold`` is kept and shown: the recogniser has its own."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_ms: int = 500
    create_response: bool = True
    interrupt_response: bool = True

    def shown(self) -> dict[str, Any]:
        return {
            "type": "server_vad",
            "threshold": self.threshold,
            "prefix_padding_ms": self.prefix_padding_ms,
            "silence_duration_ms": self.silence_ms,
            "create_response": self.create_response,
            "interrupt_response": self.interrupt_response,
            "idle_timeout_ms": None,
        }


@dataclass(frozen=True, slots=True)
class Settings:
    """One session's settings."""

    model: str
    kind: str = "realtime"
    spoken: bool = True
    """Answers are audio with a transcript; otherwise text."""
    instructions: str = ""
    input: AudioFormat = AudioFormat()
    output: AudioFormat = AudioFormat()
    turns: TurnDetection | None = TurnDetection()
    """None: turns end with ``input_audio_buffer.commit``."""
    transcription: str | None = None
    """The model that transcribes the input; None: no transcripts are sent."""
    voice: str = "alloy"
    speed: float = 1.0
    max_output_tokens: int | None = None

    @property
    def answers(self) -> bool:
        """Is it a conversation, and no transcription?"""
        return self.kind == "realtime"

    def shown(self, session_id: str, expires_at: int) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": session_id,
            "object": f"realtime.{'session' if self.answers else 'transcription_session'}",
            "type": self.kind,
            "expires_at": expires_at,
            "audio": {"input": self._shown_input()},
        }
        if self.answers:
            shown["audio"]["output"] = {"format": self.output.shown(), "voice": self.voice, "speed": self.speed}
            shown |= {
                "model": self.model,
                "output_modalities": ["audio" if self.spoken else "text"],
                "instructions": self.instructions,
                "max_output_tokens": self.max_output_tokens or "inf",
                "tools": [],
                "tool_choice": "auto",
            }
        return shown

    def _shown_input(self) -> dict[str, Any]:
        return {
            "format": self.input.shown(),
            "transcription": {"model": self.transcription} if self.transcription else None,
            "noise_reduction": None,
            "turn_detection": self.turns.shown() if self.turns else None,
        }


def updated(settings: Settings, session: Fields, *, can_speak: bool) -> Settings:
    """The settings with what a ``session`` object changes. Raises RequestError 400 naming the field."""
    kind = session.text("type")
    if kind not in ("realtime", "transcription"):
        raise invalid("session.type", "must be realtime or transcription")
    known: tuple[str, ...] = ("type", "object", "id", "expires_at", "audio", "include")
    if kind == "realtime":
        known += ("model", "output_modalities", "instructions", "max_output_tokens", *_REFUSED, *_IGNORED)
    only(session, known, "session.")
    for name in ("include", *_REFUSED):
        if session.values.get(name) not in (None, []):
            raise invalid(f"session.{name}", "is not supported by this server. Leave it out")
    if session.text("model", settings.model) != settings.model:
        raise invalid("session.model", f"can't be changed: this session talks to {settings.model!r}")
    audio = session.mapping("audio")
    only(audio, ("input", "output"), "session.audio.")
    settings = _input(replace(settings, kind=kind), audio.mapping("input"))
    if kind == "transcription":
        return replace(settings, transcription=settings.transcription or "recogniser")
    return answer_settings(settings, session, can_speak=can_speak, where="session.")


def answer_settings(settings: Settings, fields: Fields, *, can_speak: bool, where: str) -> Settings:
    """The settings with what a session or a response changes about answers. Raises RequestError 400."""
    spoken = settings.spoken
    if fields.has("output_modalities"):
        modalities = fields.values["output_modalities"]
        if modalities not in (["audio"], ["text"]):
            raise invalid(f"{where}output_modalities", 'must be ["audio"] or ["text"]')
        spoken = modalities == ["audio"]
    if spoken and not can_speak:
        raise invalid(
            f"{where}output_modalities",
            'this server has no synthesiser. Ask for ["text"], or serve --model synthesiser',
        )
    output = fields.mapping("audio").mapping("output")
    only(output, ("format", "voice", "speed"), f"{where}audio.output.")
    limit: int | None = settings.max_output_tokens
    if fields.values.get("max_output_tokens") == "inf":
        limit = None
    elif fields.has("max_output_tokens"):
        limit = fields.integer("max_output_tokens", MAX_TOKENS, low=1, high=MAX_TOKENS)
    voice = output.values.get("voice", settings.voice)
    return replace(
        settings,
        spoken=spoken,
        instructions=fields.text("instructions", settings.instructions),
        output=_format(output, settings.output, f"{where}audio.output."),
        voice=voice if isinstance(voice, str) else settings.voice,
        speed=output.number("speed", settings.speed, low=0.25, high=1.5),
        max_output_tokens=limit,
    )


def only(fields: Fields, known: Collection[str], where: str) -> None:
    """Raise RequestError 400 for a field that is not known."""
    for name in fields.values:
        if name not in known:
            raise invalid(f"{where}{name[:80]}", f"unknown. Known: {', '.join(known)}", "unknown_parameter")


def _input(settings: Settings, given: Fields) -> Settings:
    where = "session.audio.input."
    only(given, ("format", "transcription", "noise_reduction", "turn_detection"), where)
    given.mapping("noise_reduction")
    transcription, turns = settings.transcription, settings.turns
    if "transcription" in given.values:
        wanted = given.mapping("transcription")
        only(wanted, ("model", "language", "prompt", "delay"), f"{where}transcription.")
        transcription = wanted.text("model", "recogniser") if given.has("transcription") else None
        if transcription not in (None, "recogniser"):
            raise invalid(f"{where}transcription.model", "must be recogniser")
    if "turn_detection" in given.values:
        turns = _turns(given.mapping("turn_detection"), turns) if given.has("turn_detection") else None
    return replace(settings, input=_format(given, settings.input, where), transcription=transcription, turns=turns)


def _turns(given: Fields, before: TurnDetection | None) -> TurnDetection:
    where = "session.audio.input.turn_detection."
    if given.text("type", "server_vad") != "server_vad":
        raise invalid(f"{where}type", "must be server_vad, or turn_detection null")
    known = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms", "create_response", "interrupt_response")
    only(given, (*known, "idle_timeout_ms"), where)
    if given.has("idle_timeout_ms"):
        raise invalid(f"{where}idle_timeout_ms", "is not supported by this server. Leave it out")
    before = before or TurnDetection()
    return TurnDetection(
        threshold=given.number("threshold", before.threshold, low=0, high=1),
        prefix_padding_ms=given.integer("prefix_padding_ms", before.prefix_padding_ms, low=0, high=10_000),
        silence_ms=given.integer("silence_duration_ms", before.silence_ms, low=10, high=60_000),
        create_response=given.flag("create_response") if given.has("create_response") else before.create_response,
        interrupt_response=(
            given.flag("interrupt_response") if given.has("interrupt_response") else before.interrupt_response
        ),
    )


def _format(given: Fields, before: AudioFormat, where: str) -> AudioFormat:
    if not given.has("format"):
        return before
    fields = given.mapping("format")
    kind = fields.text("type")
    if kind not in _FORMATS:
        raise invalid(f"{where}format.type", f"must be one of {', '.join(_FORMATS)}")
    rate = _FORMATS[kind][1]
    if fields.integer("rate", rate, low=1) != rate:
        raise invalid(f"{where}format.rate", f"must be {rate} for {kind}")
    return AudioFormat(kind)


@dataclass(slots=True, eq=False)
class Item:
    """One message of a conversation. ``said`` is its text, or the transcript of its audio."""

    item_id: str
    role: str
    content_type: str
    said: str = ""
    status: str = "completed"

    def shown(self) -> dict[str, Any]:
        """The item as clients see it; audio itself is not kept."""
        key = "transcript" if self.content_type.endswith("audio") else "text"
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": self.role,
            "status": self.status,
            "content": [{"type": self.content_type, key: self.said}],
        }


@dataclass(slots=True)
class Events:
    """Events of one session, each with an id of its own."""

    request_id: str
    _n_made: dict[str, int] = field(default_factory=dict)

    def new_id(self, kind: str) -> str:
        """An id that no other thing of that kind in this session has."""
        self._n_made[kind] = self._n_made.get(kind, 0) + 1
        return f"{kind}_{self._n_made[kind]}"

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"type": name, "event_id": self.new_id("event"), **fields}

    def error(self, error: RequestError, event_id: str | None = None) -> dict[str, Any]:
        """Something that was asked for could not be done; ``event_id`` is that of the client's event."""
        body = {"type": error.kind, "code": error.code, "message": error.message[:_QUOTED], "param": error.param}
        return self.event("error", error={**body, "event_id": event_id[:_QUOTED] if event_id else None})


def parse_event(message: str | bytes) -> Fields:
    if isinstance(message, bytes):
        raise RequestError(400, "events are JSON in text messages, and this one is binary", code="invalid_message")
    try:
        event = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the message is not JSON: {error}", code="invalid_json") from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise RequestError(400, "an event must be a JSON object with a type", param="type", code="invalid_event")
    return Fields(event)


def parse_item(given: Fields, item_id: str, where: str = "item.") -> Item:
    """An item that a client puts into the conversation: a message of text. Raises RequestError 400 naming the field."""
    if given.text("type", "message") != "message":
        raise invalid(f"{where}type", "must be message: this server calls no functions")
    role = given.text("role")
    if role not in _CONTENT:
        raise invalid(f"{where}role", f"must be one of {', '.join(_CONTENT)}")
    parts = []
    for index, part in enumerate(given.items("content")):
        if (
            not isinstance(part, dict)
            or part.get("type") not in _CONTENT[role]
            or not isinstance(part.get("text"), str)
        ):
            raise invalid(
                f"{where}content[{index}]",
                f'must be {{"type": "{_CONTENT[role][0]}", "text": "..."}}. Audio is appended',
            )
        parts.append(part["text"])
    return Item(given.text("id", "") or item_id, role, _CONTENT[role][0], " ".join(parts))


def failed(error: RequestError) -> dict[str, Any]:
    """The last event of a session that ends before its time."""
    return Events("").error(error)


@dataclass(slots=True)
class Conversed:
    """A conversation."""

    items: list[Item] = field(default_factory=list)

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Put an item at the end, or after another ("root": first); returns the id of the one before it.

        Raises RequestError 400 for an id that is taken or unknown.
        """
        if any(known.item_id == item.item_id for known in self.items):
            raise invalid("item.id", f"{item.item_id!r} is taken", "invalid_item")
        at = len(self.items) if after is None else 0 if after == "root" else self._index(after, "previous_item_id") + 1
        self.items.insert(at, item)
        before = self.items[at - 1].item_id if at else None
        del self.items[: max(0, len(self.items) - MAX_ITEMS)]
        n_characters = sum(len(known.said) for known in self.items)
        while n_characters > MAX_CHARACTERS and len(self.items) > 1:
            n_characters -= len(self.items.pop(0).said)
        return before

    def get(self, item_id: str) -> Item:
        return self.items[self._index(item_id, "item_id")]

    def delete(self, item_id: str) -> None:
        del self.items[self._index(item_id, "item_id")]

    def _index(self, item_id: str, param: str) -> int:
        for index, item in enumerate(self.items):
            if item.item_id == item_id:
                return index
        raise invalid(param, f"there is no item {item_id!r}", "invalid_item")
