"""The wire of transcriptions and speech: forms and JSON to values, what was heard to text. Pure: no sockets, no clock.

A transcription is read from a WAV file, and speech is written as WAV or raw 16-bit samples; every other format is refused by name.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.reference_server.frontends.http.multipart import Part
from plimsoll.reference_server.frontends.shared import text_request
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.speech.audio import AudioError
from plimsoll.reference_server.speech.seam import Audio, Heard
from plimsoll.reference_server.speech.wav import read_wav
from plimsoll.reference_server.values.errors import RequestError

TRANSCRIPT_TYPES = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "text/plain; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Formats of a transcription and their content types."""
SPEECH_TYPES = {"wav": "audio/wav", "pcm": "audio/pcm"}
"""Formats of speech and their content types."""
SPEECH_HZ = 24_000
MAX_CHARACTERS = 4096
_REFUSED = ("include", "include[]", "known_speaker_names[]", "keywords[]")


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """A request for a transcription, checked."""

    model: str
    audio: Audio
    sample_rate: int
    response_format: str = "json"
    stream: bool = False
    words: bool = False
    segments: bool = True

    @property
    def seconds(self) -> float:
        """How long the audio is."""
        return len(self.audio) / self.sample_rate


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A request for speech, checked."""

    model: str
    text: str
    response_format: str = "wav"
    speed: float = 1.0
    sse: bool = False


def model_of(parts: Sequence[Part]) -> str:
    """The model that a form names. Raises RequestError 400."""
    name = _values(parts).get("model")
    if not name:
        raise invalid("model", "must be given once")
    return name


def parse_transcription(parts: Sequence[Part]) -> TranscriptionRequest:
    """A form for a transcription. Raises RequestError 400 naming the field."""
    values = _values(parts)
    for name in _REFUSED:
        if values.get(name):
            raise invalid(name, "is not supported by this server. Leave it out")
    form = values.get("response_format", "json")
    if form not in TRANSCRIPT_TYPES:
        raise invalid("response_format", f"{form[:80]} is not written here. Choose from {', '.join(TRANSCRIPT_TYPES)}")
    stream = _flag(values, "stream")
    if stream and form not in ("json", "text"):
        raise invalid("stream", "goes with response_format json or text only")
    marks = [part.text() for part in parts if part.name in ("timestamp_granularities[]", "timestamp_granularities")]
    if not set(marks) <= {"word", "segment"}:
        raise invalid("timestamp_granularities[]", "must be word or segment")
    if marks and form != "verbose_json":
        raise invalid("timestamp_granularities[]", "needs response_format verbose_json")
    _temperature(values)
    audio, sample_rate = _file(parts)
    return TranscriptionRequest(
        model=model_of(parts),
        audio=audio,
        sample_rate=sample_rate,
        response_format=form,
        stream=stream,
        words="word" in marks,
        segments="segment" in marks or not marks,
    )


def parse_speech(fields: Fields) -> SpeechRequest:
    """A request for speech. Raises RequestError 400 naming the field."""
    text_request.refuse(fields, ("instructions",))
    text = fields.text("input")
    if not 0 < len(text) <= MAX_CHARACTERS:
        raise invalid("input", f"must have 1 to {MAX_CHARACTERS} characters, it has {len(text)}")
    form = fields.text("response_format", "wav")
    if form not in SPEECH_TYPES:
        raise invalid("response_format", f"{form[:80]} is not written here. Choose from {', '.join(SPEECH_TYPES)}")
    stream_format = fields.text("stream_format", "audio")
    if stream_format not in ("audio", "sse"):
        raise invalid("stream_format", "must be audio or sse")
    if not isinstance(fields.values.get("voice"), dict):
        fields.text("voice", "")  # there is one voice, by whatever name
    speed = fields.number("speed", 1.0, low=0.25, high=4.0)
    return SpeechRequest(fields.text("model"), text, form, speed, stream_format == "sse")


def transcript(asked: TranscriptionRequest, finals: Sequence[Heard]) -> bytes:
    """The whole transcription in the format that was asked for."""
    text = full_text(finals)
    if asked.response_format == "text":
        return text.encode() + b"\n"
    if asked.response_format == "srt":
        cues = [f"{i}\n{_span(heard, ',')}\n{heard.text}\n" for i, heard in enumerate(finals, start=1)]
        return "\n".join(cues).encode()
    if asked.response_format == "vtt":
        return "\n".join(["WEBVTT\n", *(f"{_span(heard, '.')}\n{heard.text}\n" for heard in finals)]).encode()
    answer: dict[str, Any] = {"text": text, "usage": usage(asked)}
    if asked.response_format == "verbose_json":
        answer |= {"task": "transcribe", "language": "english", "duration": asked.seconds}
        if asked.segments:
            answer["segments"] = [_segment(i, heard) for i, heard in enumerate(finals)]
        if asked.words:
            words = [word for heard in finals for word in heard.words]
            answer["words"] = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]
    return json.dumps(answer).encode()


def full_text(finals: Sequence[Heard]) -> str:
    """All utterances with single spaces."""
    return " ".join(heard.text for heard in finals)


def usage(asked: TranscriptionRequest) -> dict[str, Any]:
    """What was transcribed."""
    return {"type": "duration", "seconds": asked.seconds}


def text_delta(text: str) -> bytes:
    """More of a transcription's text."""
    return _event({"type": "transcript.text.delta", "delta": text})


def text_done(asked: TranscriptionRequest, finals: Sequence[Heard], server_timing: str) -> bytes:
    """The end of a transcription."""
    done = {"type": "transcript.text.done", "text": full_text(finals), "usage": usage(asked)}
    return _event(done | {"server_timing": server_timing})


def audio_delta(data: bytes) -> bytes:
    """More of a speech's bytes."""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})


def audio_done(asked: SpeechRequest, server_timing: str) -> bytes:
    """The end of a speech; a text's bytes are its tokens, and audio has none."""
    n_in = len(asked.text.encode("utf-8", "replace"))
    used = {"input_tokens": n_in, "output_tokens": 0, "total_tokens": n_in}
    return _event({"type": "speech.audio.done", "usage": used, "server_timing": server_timing})


def _file(parts: Sequence[Part]) -> tuple[Audio, int]:
    files = [part for part in parts if part.name == "file"]
    if len(files) != 1:
        raise invalid("file", "must be given once")
    try:
        audio, sample_rate = read_wav(files[0].data)
    except AudioError as error:
        raise invalid("file", str(error)) from None
    if len(audio) == 0:
        raise invalid("file", "holds no audio")
    return audio, sample_rate


def _values(parts: Sequence[Part]) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in parts:
        if part.name == "file" or part.name.startswith("timestamp_granularities"):
            continue
        if part.name in values:
            raise invalid(part.name[:80], "must be given once")
        values[part.name] = part.text()
    return values


def _flag(values: dict[str, str], name: str) -> bool:
    value = values.get(name, "false").lower()
    if value not in ("true", "false", "1", "0"):
        raise invalid(name, "must be true or false")
    return value in ("true", "1")


def _temperature(values: dict[str, str]) -> None:
    try:
        given = float(values.get("temperature", "0"))
    except ValueError:
        given = -1.0
    if not 0.0 <= given <= 1.0:
        raise invalid("temperature", "must be a number from 0 to 1")


def _segment(index: int, heard: Heard) -> dict[str, Any]:
    """A whole utterance; its mean log probability is that of its words' confidences."""
    logs = [math.log(max(word.confidence, 1e-6)) for word in heard.words]
    mean = sum(logs) / len(logs) if logs else 0.0
    start_s, end_s = _bounds(heard)
    return {"id": index, "start": start_s, "end": end_s, "text": heard.text, "avg_logprob": mean}


def _bounds(heard: Heard) -> tuple[float, float]:
    if not heard.words:
        return heard.start_s, heard.end_s
    return heard.words[0].start_s, heard.words[-1].end_s


def _span(heard: Heard, point: str) -> str:
    start_s, end_s = _bounds(heard)
    return f"{_instant(start_s, point)} --> {_instant(end_s, point)}"


def _instant(seconds: float, point: str) -> str:
    whole, ms = divmod(round(seconds * 1000), 1000)
    minutes, s = divmod(whole, 60)
    hours, m = divmod(minutes, 60)
    return f"{hours:02}:{m:02}:{s:02}{point}{ms:03}"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def error_event(error: RequestError) -> bytes:
    """An error in the middle of a stream, under status 200."""
    told = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return _event({"error": told})
