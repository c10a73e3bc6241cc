"""Options of ``openai-realtime``, and the session object that they ask a server for. Nothing is sent here.

The names are those of OpenAI's GA API. A setting that is left open is not sent, so that the server's own default holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, field_validator, model_validator

from plimsoll.harness.options import STRICT
from plimsoll.harness.protocols._speech.audio_options import AudioOptions

Wire = Literal["pcm", "pcmu", "pcma"]
#: (our codec, samples a second) of each format of the API.
FORMATS: Mapping[str, tuple[str, int]] = {"pcm": ("pcm16", 24_000), "pcmu": ("mulaw", 8000), "pcma": ("alaw", 8000)}
_VAD_MS, _MORE_NS = 500, 1_500_000_000
#: Longest silences that semantic_vad waits for, by eagerness, in ns.
_PATIENCE_NS = {"low": 8_000_000_000, "medium": 4_000_000_000, "high": 2_000_000_000, "auto": 4_000_000_000}
_SERVER_VAD = ("threshold", "prefix_padding_ms", "silence_duration_ms")


class RealtimeOptions(BaseModel):
    """Options of ``openai-realtime``.

    ``mode``: ``transcription`` (audio in, text back) or ``conversation`` (audio or text in, an answer back, in audio unless
    ``output: text``). ``dialect: vllm`` is vLLM's transcription under the same path. ``turn_detection``: ``server_vad`` and
    ``semantic_vad`` end the turn by silence that follows the clip; ``none`` commits at the clip's true end.
    ``transcription_model``: who transcribes the input (transcription: ``target.model`` unless given; conversation: nobody
    unless given). ``session`` is merged into the session object last.
    """

    model_config = STRICT
    mode: Literal["transcription", "conversation"] = "transcription"
    dialect: Literal["openai", "vllm"] = "openai"
    audio: AudioOptions = AudioOptions()
    encoding: Wire = "pcm"
    turn_detection: Literal["server_vad", "semantic_vad", "none"] = "server_vad"
    silence_duration_ms: int | None = Field(default=None, ge=10, le=60_000)
    threshold: float | None = Field(default=None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(default=None, ge=0, le=60_000)
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    noise_reduction: Literal["near_field", "far_field"] | None = None
    transcription_model: str | None = None
    language: str | None = None
    prompt: str | None = None
    delay: str | None = None
    output: Literal["audio", "text"] = "audio"
    output_encoding: Wire = "pcm"
    voice: str | None = None
    speed: float | None = Field(default=None, ge=0.25, le=1.5)
    instructions: str | None = None
    session: dict[str, Any] = {}
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @field_validator("session")
    @classmethod
    def _sendable(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            orjson.dumps(value)
        except TypeError as error:
            raise ValueError(f"it can't be written as JSON ({error}). Use strings, numbers, lists, mappings") from None
        return value

    @model_validator(mode="after")
    def _together(self) -> RealtimeOptions:
        given = [name for name in _SERVER_VAD if getattr(self, name) is not None]
        if given and self.turn_detection != "server_vad":
            raise ValueError(
                f"{', '.join(given)}: only server_vad has that. Remove it, or set turn_detection: server_vad"
            )
        if self.eagerness is not None and self.turn_detection != "semantic_vad":
            raise ValueError("eagerness: only semantic_vad has that. Remove it, or set turn_detection: semantic_vad")
        if self.dialect == "vllm":
            if self.mode == "conversation":
                raise ValueError("dialect: vllm has no conversation. Set mode: transcription, or dialect: openai")
            others = sorted(self.model_fields_set - _OF_VLLM)
            if others:
                raise ValueError(f"{', '.join(others)}: vLLM's dialect has no such setting. Remove it")
        return self

    @property
    def silence_ns(self) -> int:
        """Silence after the clip by which turn detection has answered."""
        if self.dialect == "vllm" or self.turn_detection == "none":
            return 0
        if self.turn_detection == "semantic_vad":
            return _PATIENCE_NS[self.eagerness or "auto"] + _MORE_NS
        return (self.silence_duration_ms or _VAD_MS) * 1_000_000 + _MORE_NS


_OF_VLLM = frozenset({"mode", "dialect", "audio", "query", "path"})


def session_object(options: RealtimeOptions, model: str, max_output_tokens: int, heard: bool) -> dict[str, Any]:
    """The ``session`` of session.update. ``heard``: the input is audio."""
    audio: dict[str, Any] = {"input": _input(options, model)} if heard else {}
    session: dict[str, Any] = {"type": "transcription", "audio": audio}
    if options.mode == "conversation":
        session = {"type": "realtime", "output_modalities": [options.output], "audio": audio}
        session |= {"instructions": options.instructions} if options.instructions is not None else {}
        session |= {"max_output_tokens": max_output_tokens} if max_output_tokens > 0 else {}
        if options.output == "audio":
            spoken = {"voice": options.voice, "speed": options.speed}
            audio["output"] = {"format": _format(options.output_encoding), **_given(spoken)}
    return _merged(session, options.session)


def _input(options: RealtimeOptions, model: str) -> dict[str, Any]:
    turns: dict[str, Any] | None = None
    if options.turn_detection != "none":
        names = (*_SERVER_VAD, "eagerness")
        turns = {"type": options.turn_detection, **_given({name: getattr(options, name) for name in names})}
    wanted: dict[str, Any] = {"format": _format(options.encoding), "turn_detection": turns}
    transcriber = options.transcription_model or (model if options.mode == "transcription" else "")
    if transcriber or options.mode == "transcription":
        settings = {"language": options.language, "prompt": options.prompt, "delay": options.delay}
        wanted["transcription"] = {**({"model": transcriber} if transcriber else {}), **_given(settings)}
    if options.noise_reduction is not None:
        wanted["noise_reduction"] = {"type": options.noise_reduction}
    return wanted


def _format(wire: str) -> dict[str, Any]:
    return {"type": "audio/pcm", "rate": FORMATS[wire][1]} if wire == "pcm" else {"type": f"audio/{wire}"}


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """``one`` with what ``other`` has, mappings merged all the way down."""
    merged = dict(one)
    for name, value in other.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
