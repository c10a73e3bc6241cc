"""The OpenAI audio API over HTTP: transcriptions of uploaded files, and speech.

A transcription is no live session: the whole recording is uploaded at once, so what counts is how long it takes
(``latency``, ``rtf``) and what was understood (``wer``). Its streams come in OpenAI's events or in vLLM's chat-like
chunks. Speech is decoded read by read, off the clock: a WAV header or a container's first bytes are no audio.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.body_template import form_part
from plimsoll.harness.protocols._http.json_stream import (
    ANSWER,
    NOTHING,
    FinishReason,
    Told,
    json_headers,
    mergeable,
    prompt_of,
    scan,
    settle_scan,
)
from plimsoll.harness.protocols._speech.codecs import BrokenAudio, Decoder, decoder, encode_file
from plimsoll.harness.protocols._speech.hearing import Sound, put_sounds
from plimsoll.harness.protocols._speech.sending import at_rate, clip_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.wire import framing, tokens
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.metrics.word_errors import NAMES, NormaliserError, normaliser, word_errors
from plimsoll.slo.records.records import PACE_FILE, TokensFrom

_MEDIA = {"wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "ogg-opus": "audio/ogg"}
_BOUNDARY = b"plimsoll-" + hashlib.sha256(b"plimsoll audio upload").hexdigest()[:32].encode()


class TranscriptionOptions(Options):
    """Options of ``openai-transcriptions``."""

    stream: bool = False
    format: Literal["wav", "flac", "mp3", "ogg-opus"] = "wav"
    rate: int | None = Field(default=None, ge=1000, le=192_000)
    language: str | None = Field(default=None, min_length=1)
    prompt: str | None = None
    response_format: Literal["json", "verbose_json", "text", "srt", "vtt", "diarized_json"] = "json"
    temperature: float | None = Field(default=None, ge=0, le=1)
    timestamp_granularities: list[Literal["word", "segment"]] = []
    fields: dict[str, str] = {}
    normaliser: str = "basic"
    finish_reason: FinishReason = "required"
    path: str | None = Field(default=None, pattern=r"^/")

    @field_validator("normaliser")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in NAMES:
            raise ValueError(f"{value!r} is unknown. Use one of {', '.join(NAMES)}")
        return value

    @field_validator("fields")
    @classmethod
    def _fields(cls, value: dict[str, str]) -> dict[str, str]:
        wrong = sorted(name for name in value if not name or any(char in name for char in '\r\n"'))
        if wrong:
            raise ValueError(f"{wrong[0]!r} can't be the name of a field. Leave out quotes and line ends")
        return value

    def mistakes(self) -> list[str]:
        try:
            normaliser(self.normaliser)
        except NormaliserError as error:
            return [f"target.options.normaliser: {error}"]
        return []


class SpeechOptions(Options):
    """Options of ``openai-speech``."""

    voice: str = Field(default="alloy", min_length=1)
    response_format: Literal["pcm", "wav", "mp3", "aac", "opus", "flac"] = "pcm"
    rate: int = Field(default=24_000, ge=1000, le=192_000)
    speed: float | None = Field(default=None, ge=0.25, le=4)
    instructions: str | None = None
    stream_format: Literal["audio", "sse"] = "audio"
    extra_body: Annotated[
        dict[str, Any], mergeable(frozenset({"input", "model", "voice", "response_format", "stream_format"}))
    ] = {}
    path: str | None = Field(default=None, pattern=r"^/")


class TranscriptionDialect:
    """``POST /v1/audio/transcriptions``: multipart out, JSON, text or events back."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(TranscriptionOptions, target.options)
        self.accept = b"text/event-stream" if options.stream else b"application/json"
        defaults = {
            **json_headers(options.stream),
            "content-type": f"multipart/form-data; boundary={_BOUNDARY.decode()}",
        }
        if options.response_format not in ("json", "verbose_json"):
            defaults["accept"] = "*/*"
        path = join_path(target.url, "/v1/audio/transcriptions", options.path)
        self._head = build_head("POST", path, defaults, target.headers)
        given = {
            "model": target.model, "language": options.language, "prompt": options.prompt,
            "response_format": options.response_format,
            "temperature": None if options.temperature is None else f"{options.temperature:g}",
            "stream": "true" if options.stream else None, **options.fields,
        }  # fmt: skip
        parts = [form_part(_BOUNDARY, name, text.encode()) for name, text in given.items() if text]
        parts += [
            form_part(_BOUNDARY, "timestamp_granularities[]", text.encode()) for text in options.timestamp_granularities
        ]
        self._fields = b"".join(parts)

    def encode(self, payload: Payload) -> HttpRequest:
        options = self._options
        clip = clip_of(payload, "openai-transcriptions")
        sent = clip if options.rate is None else at_rate(clip, options.rate)
        data = encode_file(options.format, sent.pcm, sent.rate)
        ending = "ogg" if options.format == "ogg-opus" else options.format
        file = form_part(
            _BOUNDARY, "file", data, f'; filename="clip.{ending}"\r\ncontent-type: {_MEDIA[options.format]}'
        )
        body = self._fields + file + b"--%b--\r\n" % _BOUNDARY
        return HttpRequest(self._head, body, payload.n_in, clip.duration_ns, clip)

    def settle(self, exchange: Exchange) -> None:
        clip: Clip | None = getattr(exchange.request, "clip", None)
        stamps = exchange.session = SessionStamps()
        stamps.pace = PACE_FILE
        stamps.slice = clip.slice if clip is not None else ""
        if not outcome.judge_code(exchange):
            return
        said: list[str] = []
        if outcome.media_type(exchange) == "text/event-stream":
            if outcome.readable(exchange):
                stream = framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, "sse")
                told = Told()
                scanned = scan(stream, _transcript_reader(said), told)
                if self._options.finish_reason == "required" and scanned.done and not told.finished:
                    missing = tokens.unreasoned("transcript.text.done", len(scanned.output))
                    scanned = replace(scanned, bad=scanned.bad or missing)
                settle_scan(exchange, stream, scanned, "neither transcript.text.done nor [DONE]")
        elif exchange.status == outcome.OK:
            self._settle_whole(exchange, said)
        if exchange.status != outcome.OK:
            return
        stamps.heard = "".join(said)
        if clip is not None and clip.transcript is not None:
            stamps.word_errors, stamps.words = word_errors(clip.transcript, stamps.heard, self._options.normaliser)

    def _settle_whole(self, exchange: Exchange, said: list[str]) -> None:
        if self._options.response_format in ("text", "srt", "vtt"):
            if outcome.readable(exchange):
                said.append(_spoken_lines(exchange.body.decode("utf-8", "replace"), self._options.response_format))
            return
        answer = outcome.load_object(exchange)
        if answer is None:
            return
        fault = tokens.fault_of(answer)
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not isinstance(answer.get("text"), str):
            text = f"the body is not a transcription (no text): {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        else:
            said.append(answer["text"])
            n_in, n_out = tokens.usage_of(answer.get("usage"))
            outcome.count_usage(exchange, n_in, -1)
            if n_out >= 0:
                outcome.count_tokens(exchange, n_in, n_out, True)


def _transcript_reader(said: list[str]) -> Callable[[Told, Any, bytes], int]:
    """Reads OpenAI's events and vLLM's chat-like chunks; what was said is appended to ``said``."""

    def read(told: Told, event: Any, name: bytes) -> int:
        if type(event) is not dict:
            told.bad = f"an event is not a JSON object: {outcome.shown(repr(event), 120)}"
            return NOTHING
        if "error" in event or name == b"error" or event.get("object") == "error" or event.get("type") == "error":
            told.fault = tokens.fault_of(event, name == b"error" or event.get("type") == "error")
            if told.fault is not None:
                return NOTHING
        n_in, n_out = tokens.usage_of(event.get("usage"))
        told.n_in, told.n_out = (n_in if n_in >= 0 else told.n_in), (n_out if n_out >= 0 else told.n_out)
        text = _delta(told, event, said)
        if text:
            said.append(text)
        return ANSWER if text else NOTHING

    return read


def _delta(told: Told, event: dict[str, Any], said: list[str]) -> str:
    """The text that an event adds."""
    kind = event.get("type")
    if kind == "transcript.text.delta" and isinstance(event.get("delta"), str):
        return str(event["delta"])
    if kind == "transcript.text.done":
        told.finished = True
        if isinstance(event.get("text"), str):
            whole = str(event["text"])
            late = whole if not said else ""  # a server that sends no deltas says everything here
            if said:
                said[:] = [whole]
            return late
        return ""
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        reason = choices[0].get("finish_reason")
        told.finished = told.finished or bool(reason)
        told.fault = tokens.given_up(reason)
        delta = choices[0].get("delta")
        text = delta.get("content") if isinstance(delta, dict) else None
        return text if isinstance(text, str) else ""
    return ""


def _spoken_lines(body: str, kind: str) -> str:
    """The words of a subtitle file: no numbers, no times, no header."""
    if kind == "text":
        return body
    lines = [line.strip() for line in body.splitlines()]
    return " ".join(line for line in lines if line and "-->" not in line and not line.isdigit() and line != "WEBVTT")


class SpeechDialect:
    """``POST /v1/audio/speech``: JSON out, audio back, as bytes or in events."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeechOptions, target.options)
        self.accept = b"text/event-stream" if options.stream_format == "sse" else b"application/octet-stream"
        defaults = {**json_headers(True), "accept": self.accept.decode()}
        self._head = build_head(
            "POST", join_path(target.url, "/v1/audio/speech", options.path), defaults, target.headers
        )
        given = {
            "model": target.model,
            **options.model_dump(include={"voice", "response_format", "speed", "instructions"}),
        }
        if options.stream_format == "sse":
            given["stream_format"] = "sse"
        self._fields = {name: value for name, value in given.items() if value}

    def encode(self, payload: Payload) -> HttpRequest:
        fields = {**self._fields, "input": prompt_of(payload, "openai-speech"), **self._options.extra_body}
        try:
            return HttpRequest(self._head, orjson.dumps(fields), payload.n_in, -1)
        except TypeError as error:
            raise HarnessFault(f"openai-speech: the payload can't be written as JSON: {error}. Correct it") from None

    def settle(self, exchange: Exchange) -> None:
        exchange.session = SessionStamps()
        if not outcome.judge_code(exchange) or not outcome.readable(exchange):
            return
        codec = {"pcm": "pcm16", "opus": "ogg-opus"}.get(self._options.response_format, self._options.response_format)
        media = outcome.media_type(exchange)
        if media == "application/json" and exchange.status == outcome.OK:
            self._no_audio(exchange)
            return
        sounds: list[Sound] = []
        try:
            play = decoder(codec, self._options.rate)
            if media == "text/event-stream":
                self._from_events(exchange, play, sounds)
            else:
                _from_reads(exchange, play, sounds)
        except (BrokenAudio, HarnessFault) as error:
            outcome.fail(exchange, outcome.PROTOCOL, f"the audio can't be decoded: {error}")
        put_sounds(exchange, sounds)
        # Events of audio are no tokens, whatever the events' reader took them for.
        exchange.first_token_ns = exchange.first_answer_ns = exchange.last_token_ns = exchange.n_out = -1
        exchange.tokens_from = int(TokensFrom.NONE)
        if not exchange.n_chunks:
            outcome.fail(exchange, outcome.PROTOCOL, "the answer holds no audio")

    def _no_audio(self, exchange: Exchange) -> None:
        answer = outcome.load_object(exchange)
        fault = tokens.fault_of(answer) if answer is not None else None
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif answer is not None:
            text = f"the answer is JSON, not audio: {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)

    def _from_events(self, exchange: Exchange, play: Decoder, sounds: list[Sound]) -> None:
        stream = framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, "sse")
        times = stream.times.tolist()
        place = iter(range(len(times)))

        def read(told: Told, event: Any, name: bytes) -> int:
            i = next(place)
            if type(event) is not dict:
                told.bad = f"an event is not a JSON object: {outcome.shown(repr(event), 120)}"
                return NOTHING
            if event.get("error") or name == b"error" or event.get("type") == "error":
                told.fault = tokens.fault_of(event, named_error=True)
                return NOTHING
            told.finished = told.finished or event.get("type") == "speech.audio.done"
            audio = event.get("audio")
            if not isinstance(audio, str) or not audio:
                return NOTHING
            try:
                _hear(play, base64.b64decode(audio, validate=True), times[i], sounds)
            except binascii.Error as error:
                told.bad = f"event {i + 1}: the audio is not base64: {error}"
                return NOTHING
            return ANSWER

        scanned = scan(stream, read, Told())
        settle_scan(exchange, stream, scanned, "speech.audio.done never came")


def _hear(play: Decoder, data: bytes, t_ns: int, sounds: list[Sound]) -> None:
    samples = play.feed(data)
    if len(samples):
        sounds.append(Sound(t_ns, samples, play.rate))


def _from_reads(exchange: Exchange, play: Decoder, sounds: list[Sound]) -> None:
    """One sound a read of the body that completed a sample. Raises BrokenAudio."""
    begin = 0
    for t_ns, end in zip(exchange.mark_ns, exchange.mark_end, strict=True):
        if end > begin:
            _hear(play, bytes(exchange.body[begin:end]), t_ns, sounds)
        begin = end
    rest = play.finish()
    if len(rest):
        sounds.append(Sound(exchange.mark_ns[-1], rest, play.rate))


PROTOCOLS = (
    ProtocolSpec(
        "openai-transcriptions",
        "OpenAI audio transcriptions: uploads, streamed or whole answers",
        over_http(TranscriptionDialect),
        TranscriptionOptions,
        bundled=True,
        lists_models=True,
        bundled_model="recogniser",
        source="audio",
        servers=("whisper",),
    ),
    ProtocolSpec(
        "openai-speech",
        "OpenAI speech: text in, audio out as bytes or events",
        over_http(SpeechDialect),
        SpeechOptions,
        bundled=True,
        lists_models=True,
        bundled_model="synthesiser",
        sessions=True,
    ),
)
