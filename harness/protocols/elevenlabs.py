"""ElevenLabs over WebSocket: Scribe realtime (speech in) and stream-input (speech out).

Both talk JSON with audio in base64. Scribe's text is final when it is committed: by hand at the end of the audio, or by
the service when it hears silence. Speech is made from text that is fed all at once or word by word; the service holds
text back until it has enough of it, so the two are different measurements. Nothing is read from a message while the
session is on but its kind.
"""

from __future__ import annotations

import base64
from typing import Any, Literal
from urllib.parse import quote

import orjson
from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.codecs import decoder
from plimsoll.harness.protocols._speech.hearing import (
    LIVE_PACES,
    Account,
    Transcript,
    after_speech,
    fault_in,
    input_over,
    keyed,
    ns_of,
    objects_in,
    recognised,
    synthesised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions, fed, feed, parse_pace, text_of
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

_MOST_CHARACTERS = 4000
_MOST_OF_AN_ERROR = 2000
#: Messages of Scribe that say that it failed; the second set says that it is too much.
_OVERLOADS = frozenset({"commit_throttled", "queue_overflow", "quota_exceeded", "rate_limited", "resource_exhausted"})
_FAILURES = _OVERLOADS | {
    "auth_error", "chunk_size_exceeded", "error", "input_error", "insufficient_audio_activity",
    "session_time_limit_exceeded", "transcriber_error", "unaccepted_terms",
}  # fmt: skip
#: Words of stream-input's errors that say that it is too much.
_SHED = ("quota", "busy", "concurrent", "too_many")
_FAILED = tuple(f'"{name}"'.encode() for name in sorted(_FAILURES))


class ScribeOptions(LiveOptions):
    """Options of ``elevenlabs-scribe``."""

    audio_format: Literal["pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000", "ulaw_8000"] = (
        "pcm_16000"
    )
    commit_strategy: Literal["manual", "vad"] = "manual"
    vad_silence_threshold_secs: float | None = Field(default=None, gt=0, le=10)
    include_timestamps: bool = False
    language_code: str | None = None
    previous_text: str | None = None
    settings: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        name, _, rate = self.audio_format.partition("_")
        return {"pcm": "pcm16", "ulaw": "mulaw"}[name], int(rate)

    @property
    def silence_ns(self) -> int:
        if self.commit_strategy == "manual":
            return 0
        return round((self.vad_silence_threshold_secs or 1.5) * 1e9) + 1_500_000_000

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if self.commit_strategy == "vad" and parse_pace(self.audio.pace).code not in LIVE_PACES:
            found.append(
                "target.options.audio.pace: with commit_strategy vad silence is heard in real time. "
                "Use capture, or manual"
            )
        return found


class ScribeDialogue:
    """``/v1/speech-to-text/realtime``."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(ScribeOptions, target.options)
        self._headers = handshake_headers(keyed(target.headers, "xi-api-key"), "bearer")
        settings: dict[str, Value] = {
            "model_id": target.model or "scribe_v2_realtime",
            "audio_format": options.audio_format,
            "commit_strategy": options.commit_strategy,
            "vad_silence_threshold_secs": options.vad_silence_threshold_secs,
            "include_timestamps": True if options.include_timestamps else None,
            "language_code": options.language_code,
            **options.settings,
        }
        self._path = request_target(target.url, "/v1/speech-to-text/realtime", options.path, settings)

    def encode(self, payload: Payload) -> Script:
        live = self._options.live(payload, "elevenlabs-scribe")
        frames = [self._chunk(frame, False, first=i == 0) for i, frame in enumerate(live.frames)]
        return Script(
            self._path,
            self._headers,
            waits=True,
            closing=(self._chunk(b"", True),),
            ends_on_close=False,
            **live.script(frames),
        )

    def _chunk(self, audio: bytes, commit: bool, first: bool = False) -> Message:
        said: dict[str, Any] = {
            "message_type": "input_audio_chunk",
            "audio_base_64": base64.b64encode(audio).decode(),
            "commit": commit,
            "sample_rate": self._options.sent_as[1],
        }
        if first and self._options.previous_text is not None:
            said["previous_text"] = self._options.previous_text
        return Message(orjson.dumps(said), True)

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = value_of(message, b'"message_type"')
        if kind.startswith(b'"session_started"'):
            return READY
        if kind.startswith(b'"committed_transcript'):
            if self._options.include_timestamps and not kind.startswith(b'"committed_transcript_with_timestamps"'):
                return NOTHING
            if self._options.commit_strategy == "vad":
                return DONE if after_speech(exchange) else NOTHING
            # Long audio is committed now and then without being asked: only what follows our own commit ends the
            # session.
            return DONE if input_over(exchange) else NOTHING
        return DONE if kind.startswith(_FAILED) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, self._tell, self._options.audio.normaliser)

    def _tell(self, account: Account, t_ns: int, said: Any) -> None:
        kind = text_at(said, "message_type")
        if kind == "partial_transcript":
            account.heard(t_ns, text_at(said, "text"), False)
        elif kind in ("committed_transcript", "committed_transcript_with_timestamps"):
            self._tell_committed(account, t_ns, said)
        elif kind in _FAILURES:
            account.fault = fault_in(said, ("error", "message"), ("message_type",), _OVERLOADS)

    def _tell_committed(self, account: Account, t_ns: int, said: Any) -> None:
        text, words = text_at(said, "text"), objects_in(said, "words")
        cursor_ns = ns_of(words[-1].get("end")) if words else -1
        last = next((event for event in reversed(account.events) if isinstance(event, Transcript)), None)
        timed = text_at(said, "message_type") != "committed_transcript"
        if timed and last is not None and last.final and last.text == text:
            account.reached(cursor_ns)  # the same text once more, with times
            return
        account.heard(t_ns, text, True, cursor_ns)
        if self._options.commit_strategy == "vad":
            account.ended(t_ns)


class SpeechOptions(Options):
    """Options of ``elevenlabs-tts``."""

    voice: str = Field(default="21m00Tcm4TlvDq8ikWAM", min_length=1)
    output_format: str = Field(default="pcm_24000", pattern=r"^(pcm|ulaw|alaw|mp3)_\d+(_\d+)?$")
    words_per_second: float | None = Field(default=None, gt=0, le=1000)
    auto_mode: bool | None = None
    inactivity_timeout: int | None = Field(default=None, ge=1, le=180)
    sync_alignment: bool | None = None
    language_code: str | None = None
    voice_settings: dict[str, float | bool] | None = None
    chunk_length_schedule: list[int] | None = Field(default=None, min_length=1)
    try_trigger_generation: bool = False
    settings: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def codec(self) -> tuple[str, int]:
        """(codec, samples a second)."""
        name, rate = self.output_format.split("_")[:2]
        return {"pcm": "pcm16", "ulaw": "mulaw", "alaw": "alaw", "mp3": "mp3"}[name], int(rate)

    def mistakes(self) -> list[str]:
        try:
            decoder(*self.codec)
        except HarnessFault as fault:
            return [f"target.options.output_format: {text}" for text in fault.errors]
        return []


class SpeechDialogue:
    """``/v1/text-to-speech/VOICE/stream-input``."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeechOptions, target.options)
        self._headers = handshake_headers(keyed(target.headers, "xi-api-key"), "bearer")
        settings: dict[str, Value] = {
            "model_id": target.model or "eleven_flash_v2_5",
            "output_format": options.output_format,
            "auto_mode": options.auto_mode,
            "inactivity_timeout": options.inactivity_timeout,
            "sync_alignment": options.sync_alignment,
            "language_code": options.language_code,
            **options.settings,
        }
        route = f"/v1/text-to-speech/{quote(options.voice, safe='')}/stream-input"
        self._path = request_target(target.url, route, options.path, settings)
        opening: dict[str, Any] = {"text": " "}
        if options.voice_settings:
            opening["voice_settings"] = options.voice_settings
        if options.chunk_length_schedule:
            opening["generation_config"] = {"chunk_length_schedule": options.chunk_length_schedule}
        self._opening = Message(orjson.dumps(opening), True)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        pieces = feed(text_of(payload, "elevenlabs-tts"), options.words_per_second, _MOST_CHARACTERS)
        return Script(
            self._path,
            self._headers,
            opening=(self._opening,),
            closing=(Message(orjson.dumps({"text": ""}), True),),
            ends_on_close=False,
            n_in=payload.n_in,
            **fed(pieces, self._piece),
        )

    def _piece(self, text: str) -> Message:
        # A text that does not end in a space may be taken for half a word.
        said: dict[str, Any] = {"text": text if text.endswith(" ") else f"{text.rstrip()} "}
        if self._options.try_trigger_generation:
            said["try_trigger_generation"] = True
        return Message(orjson.dumps(said), True)

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if value_of(message, b'"isFinal"').startswith(b"true"):
            return DONE
        small = len(message) < _MOST_OF_AN_ERROR
        return DONE if small and value_of(message, b'"error"').startswith((b'"', b"{")) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        play = decoder(*self._options.codec)

        def tell(account: Account, t_ns: int, said: Any) -> None:
            if isinstance(said, bytes):
                return
            if said.get("error") or ("audio" not in said and said.get("code") is not None):
                account.fault = fault_in(said, ("message", "error"), ("error", "code"), _SHED)
            else:
                account.sounded_base64(t_ns, said.get("audio"), play)

        synthesised(exchange, tell, play=play)


PROTOCOLS = (
    ProtocolSpec(
        "elevenlabs-scribe",
        "ElevenLabs Scribe realtime: live speech to text",
        over_websocket(ScribeDialogue),
        ScribeOptions,
        source="audio",
    ),
    ProtocolSpec(
        "elevenlabs-tts",
        "ElevenLabs stream-input: text to speech, fed live",
        over_websocket(SpeechDialogue),
        SpeechOptions,
        sessions=True,
    ),
)
