"""Deepgram's live protocols as text: the options of a handshake, and the messages of listen and speak. Pure.

Field names are those of the vendor's SDK, 7.17. All times are seconds of audio. What this server can't do is refused by
name before the upgrade; what can't change an answer of this recogniser is accepted and ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.reference_server.seams.models import Word
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError

ENCODINGS = ("linear16", "mulaw", "alaw")
PROTOCOLS = ("token", "bearer")
DEFAULT_ENDPOINTING_MS = 300
VERSION = "1"
MODEL_UUID = "00000000-0000-4000-8000-000000000001"
_QUOTED = 1000
"""An error quotes what was wrong; it must not send all of it back."""
_LISTEN_IGNORED = (
    "punctuate", "smart_format", "numerals", "no_delay", "language", "version", "tag", "extra", "mip_opt_out",
    "filler_words", "profanity_filter", "dictation",
)  # fmt: skip
_LISTEN_REFUSED = (
    "callback", "callback_method", "detect_entities", "detect_language", "diarize", "diarize_model", "keyterm",
    "keywords", "language_hint", "multichannel", "redact", "replace", "search", "sentiment", "summarize", "topics",
    "intents", "translate", "utterances", "paragraphs", "utt_split",
)  # fmt: skip
_SPEAK_IGNORED = ("mip_opt_out", "tag")
_SPEAK_REFUSED = ("bit_rate", "callback", "callback_method")


def invalid(name: str, message: str) -> RequestError:
    return RequestError(400, f"{name}: {message}", param=name, code="invalid_query_parameter")


class Query:
    """The parameters of one handshake, each read at most once; ``check`` refuses what nobody asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._known: set[str] = set()

    def text(self, name: str, default: str = "") -> str:
        self._known.add(name)
        return self._values.get(name, default)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of a few words; required unless there is a default."""
        value = self.text(name) or default
        if value not in choices:
            given = f"{value[:80]!r} is not supported" if value else "must be given"
            raise invalid(name, f"{given}. Choose from {', '.join(choices)}")
        return value

    def integer(self, name: str, default: int | None, *, low: int, high: int) -> int:
        """An integer within bounds; required unless there is a default."""
        value = self.text(name)
        if not value and default is not None:
            return default
        if not (value.isascii() and value.isdecimal() and low <= int(value[:12]) <= high):
            raise invalid(name, f"must be {'' if value else 'given: '}an integer from {low} to {high}")
        return int(value)

    def flag(self, name: str) -> bool:
        """``true`` or ``false``, false by default."""
        return self.choice(name, ("true", "false"), "false") == "true"

    def accept(self, names: tuple[str, ...]) -> None:
        """Parameters that may have any value and change nothing."""
        self._known |= set(names)

    def refuse(self, names: tuple[str, ...]) -> None:
        """Parameters for what this server can't do; ``false`` asks for nothing and is let pass."""
        for name in names:
            if self.text(name, "false") != "false":
                raise invalid(name, "is not supported by this server. Leave it out")

    def check(self) -> None:
        """Refuse parameters that were not mentioned so far."""
        for name in self._values:
            if name not in self._known:
                raise invalid(name[:80], f"unknown. Known: {', '.join(sorted(self._known))}")


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """What a live recognition was asked for."""

    encoding: str
    sample_rate: int
    channels: int
    interim: bool
    endpointing_ms: int | None
    """Silence that ends an utterance; None: only Finalize and CloseStream end one."""
    utterance_end_ms: int | None
    vad_events: bool


@dataclass(frozen=True, slots=True)
class SpeakOptions:
    """What audio is wanted."""

    encoding: str
    sample_rate: int
    container: str
    speed: float


def listen_options(given: Mapping[str, str]) -> ListenOptions:
    query = Query(given)
    query.accept(("model", *_LISTEN_IGNORED))
    query.refuse(_LISTEN_REFUSED)
    encoding = query.choice("encoding", ENCODINGS)
    interim = query.flag("interim_results")
    utterance_end = query.text("utterance_end_ms")
    if utterance_end and not interim:
        raise invalid("utterance_end_ms", "needs interim_results=true")
    options = ListenOptions(
        encoding=encoding,
        sample_rate=query.integer("sample_rate", 8000 if encoding != "linear16" else None, low=8000, high=48_000),
        channels=query.integer("channels", 1, low=1, high=8),
        interim=interim,
        endpointing_ms=_endpointing(query),
        utterance_end_ms=query.integer("utterance_end_ms", None, low=1000, high=5000) if utterance_end else None,
        vad_events=query.flag("vad_events"),
    )
    query.check()
    return options


def _endpointing(query: Query) -> int | None:
    given = query.text("endpointing")
    if given in ("", "true", "false"):
        return None if given == "false" else DEFAULT_ENDPOINTING_MS
    return query.integer("endpointing", None, low=10, high=60_000)


def recorded_options(given: Mapping[str, str]) -> tuple[str | None, int]:
    """Encoding and sample rate of a recording; None where it is a WAV file, which says so itself."""
    query = Query(given)
    query.accept(("model", *_LISTEN_IGNORED))
    query.refuse(_LISTEN_REFUSED)
    encoding = query.choice("encoding", ENCODINGS) if query.text("encoding") else None
    sample_rate = query.integer("sample_rate", None if encoding == "linear16" else 8000, low=8000, high=48_000)
    query.check()
    return encoding, sample_rate


def speak_options(given: Mapping[str, str], *, containers: tuple[str, ...] = ("none",)) -> SpeakOptions:
    query = Query(given)
    query.accept(("model", *_SPEAK_IGNORED))
    query.refuse(_SPEAK_REFUSED)
    encoding = query.choice("encoding", ENCODINGS, "linear16")
    options = SpeakOptions(
        encoding=encoding,
        sample_rate=query.integer("sample_rate", 24_000 if encoding == "linear16" else 8000, low=8000, high=48_000),
        container=query.choice("container", containers, containers[0]),
        speed=_speed(query.text("speed", "1")),
    )
    query.check()
    return options


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0.7 <= speed <= 1.5:
        raise invalid("speed", "must be a number from 0.7 to 1.5")
    return speed


def command(text: str, known: tuple[str, ...]) -> dict[str, Any] | None:
    """The JSON object of a client's text message when its ``type`` is one of the known; else None."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("type") in known else None


@dataclass(frozen=True, slots=True)
class ListenWriter:
    """The messages of one live recognition."""

    request_id: str
    model: str

    def results(
        self,
        words: Sequence[Word],
        start_s: float,
        end_s: float,
        *,
        final: bool,
        speech_final: bool,
        from_finalize: bool,
    ) -> dict[str, Any]:
        """A transcript of the audio from ``start_s`` to ``end_s``."""
        return {
            "type": "Results",
            "channel_index": [0, 1],
            "duration": _seconds(end_s - start_s),
            "start": _seconds(start_s),
            "is_final": final,
            "speech_final": speech_final,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [alternative(words)]},
            "metadata": {
                "request_id": self.request_id,
                "model_info": {"name": self.model, "version": VERSION, "arch": "plimsoll"},
                "model_uuid": MODEL_UUID,
            },
        }

    def speech_started(self, at_s: float) -> dict[str, Any]:
        return {"type": "SpeechStarted", "channel": [0, 1], "timestamp": _seconds(at_s)}

    def configure_failure(self) -> dict[str, Any]:
        """What is answered to a Configure: there is nothing here that it could change."""
        description = "this recogniser has no key terms and no features to switch"
        code = "CONFIGURE_KEYTERMS_NOT_SUPPORTED"
        return {"type": "ConfigureFailure", "request_id": self.request_id, "code": code, "description": description}

    def utterance_end(self, last_word_s: float) -> dict[str, Any]:
        return {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": _seconds(last_word_s)}

    def metadata(
        self, *, sha256: str, created: str, duration_s: float, channels: int, stages: Stages
    ) -> dict[str, Any]:
        return {
            "type": "Metadata",
            **self.about(sha256, created, duration_s, channels),
            "server_timing": stages.server_timing(),
        }

    def about(self, sha256: str, created: str, duration_s: float, channels: int) -> dict[str, Any]:
        return {
            "transaction_key": "deprecated",
            "request_id": self.request_id,
            "sha256": sha256,
            "created": created,
            "duration": _seconds(duration_s),
            "channels": channels,
            "models": [MODEL_UUID],
            "model_info": {MODEL_UUID: {"name": self.model, "version": VERSION, "arch": "plimsoll"}},
        }

    def recording(self, about: Mapping[str, Any], words: Sequence[Word], stages: Stages) -> dict[str, Any]:
        return {
            "metadata": {**about},
            "results": {"channels": [{"alternatives": [alternative(words)]}]},
            "server_timing": stages.server_timing(),
        }


@dataclass(frozen=True, slots=True)
class SpeakWriter:
    """The text messages of one live speech."""

    request_id: str
    model: str

    def metadata(self) -> dict[str, Any]:
        return {
            "type": "Metadata",
            "request_id": self.request_id,
            "model_name": self.model,
            "model_version": VERSION,
            "model_uuid": MODEL_UUID,
        }

    def flushed(self, sequence_id: int, stages: Stages) -> dict[str, Any]:
        return {"type": "Flushed", "sequence_id": sequence_id, "server_timing": stages.server_timing()}

    def cleared(self, sequence_id: int) -> dict[str, Any]:
        """What was not yet sent never will be."""
        return {"type": "Cleared", "sequence_id": sequence_id}

    def warning(self, code: str, description: str) -> dict[str, Any]:
        """Something was not done; the session goes on."""
        return {"type": "Warning", "code": code.upper(), "description": description}


def alternative(words: Sequence[Word]) -> dict[str, Any]:
    """A transcript with its words; its confidence is their mean."""
    rows = [
        {
            "word": word.text,
            "start": _seconds(word.start_s),
            "end": _seconds(word.end_s),
            "confidence": round(word.confidence, 4),
            "punctuated_word": word.text,
        }
        for word in words
    ]
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return {"transcript": " ".join(word.text for word in words), "confidence": round(confidence, 4), "words": rows}


def failed(error: RequestError) -> dict[str, Any]:
    """The message that says why a session ends before its time."""
    return {
        "type": "Error",
        "variant": "server_error" if error.status >= 500 else "client_error",
        "description": error.message[:_QUOTED],
        "message": error.message[:_QUOTED],
        "code": (error.code or error.kind).upper(),
    }


def unparsable(known: tuple[str, ...]) -> RequestError:
    """What a text message gets that is none."""
    message = f"a text message must be a JSON object whose type is one of {', '.join(known)}"
    return RequestError(400, message, code="unparsable_client_message")


def _seconds(value: float) -> float:
    return round(value, 6)
