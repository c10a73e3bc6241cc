"""The settings of a Realtime session: read from ``session.update``, checked, merged, shown. Pure.

Field names are those of OpenAI's GA API. What changes nothing here (voice, threshold, noise reduction, language) is checked and kept; what this
server can't do (tools, semantic_vad, log probabilities) is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.values.errors import RequestError

_FORMATS = {"audio/pcm": ("linear16", 24_000), "audio/pcmu": ("mulaw", 8000), "audio/pcma": ("alaw", 8000)}
_REFUSED = ("tools", "tracing", "prompt", "reasoning")
_IGNORED = ("tool_choice", "parallel_tool_calls", "truncation")
MAX_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How samples travel: base64 of these bytes."""

    kind: str = "audio/pcm"

    @property
    def encoding(self) -> str:
        """The codec's name for it."""
        return _FORMATS[self.kind][0]

    @property
    def sample_rate(self) -> int:
        """Samples per second."""
        return _FORMATS[self.kind][1]

    def shown(self) -> dict[str, Any]:
        """As the session shows it."""
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
        """As the session shows it."""
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
        """The session as clients see it."""
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
    """The settings with what a session or a response changes about answers. Raises RequestError 400 naming the field."""
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
            raise RequestError(
                400,
                f"{where}{name[:80]}: unknown. Known: {', '.join(known)}",
                param=f"{where}{name[:80]}",
                code="unknown_parameter",
            )


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
