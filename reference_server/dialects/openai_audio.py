"""OpenAI's audio: transcriptions of WAV files, and speech as WAV or raw 16-bit samples."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any

from aiohttp import web

from plimsoll.reference_server.dialects.generation import refuse
from plimsoll.reference_server.seams.models import Audio, Heard, Script
from plimsoll.reference_server.service.service import Service, obey
from plimsoll.reference_server.speech.audio import AudioError, float_to_pcm16, in_pieces, read_wav, wav_header
from plimsoll.reference_server.speech.listening import Listener
from plimsoll.reference_server.speech.speaking import beginning
from plimsoll.reference_server.speech.transcript import CertainWords
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call, inference, openai_error
from plimsoll.reference_server.transports.stream import EventSink, sse, struck
from plimsoll.reference_server.values.durations import POSTPROCESS, PREPROCESS, Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure, invalid

MAX_PARTS = 64
_MAX_HEAD = 8192
_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1
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
class Part:
    """One field of a form; ``filename`` is None for a plain value."""

    name: str
    filename: str | None
    data: bytes

    def text(self) -> str:
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise RequestError(400, f"{self.name}: must be UTF-8", param=self.name, code="invalid_value") from None


def parse_form(content_type: str, body: bytes) -> list[Part]:
    """The parts in order; ``content_type`` is the header with its boundary. Raises RequestError 400 and 415."""
    header = Message()
    header["Content-Type"] = " ".join(content_type.splitlines())
    if header.get_content_type() != "multipart/form-data":
        message = f"Content-Type {content_type.split(';')[0][:80]} is not understood here. Send multipart/form-data"
        raise RequestError(415, message, code="unsupported_media_type")
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary.isascii() or not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise _wrong(f"Content-Type must name a boundary of 1 to {_MAX_BOUNDARY} characters")
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2:
        raise _wrong("the boundary of Content-Type is nowhere in the body")
    if len(pieces) - 2 > MAX_PARTS:
        raise _wrong(f"there are {len(pieces) - 2} parts, the limit is {MAX_PARTS}")
    if not pieces[-1].startswith(b"--"):
        raise _wrong("the body breaks off: the last boundary must end with --")
    return [_part(number, piece) for number, piece in enumerate(pieces[1:-1], start=1)]


def _part(number: int, piece: bytes) -> Part:
    padding, _, rest = piece.partition(b"\r\n")
    head, blank, data = rest.partition(b"\r\n\r\n")
    if padding.strip(b" \t") or not blank or len(head) > _MAX_HEAD:
        raise _wrong(f"part {number} must be a boundary, header lines, an empty line and its data")
    header = Message()
    for line in head.split(b"\r\n"):
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if not colon or not name.isascii():
            raise _wrong(f"part {number} has a header line without a colon")
        if name.strip().lower() == "content-disposition" and "Content-Disposition" not in header:
            header["Content-Disposition"] = " ".join(value.split())
    field = header.get_param("name", header="Content-Disposition")
    if not isinstance(field, str) or not field:
        raise _wrong(f"part {number} needs a Content-Disposition with a name")
    return Part(field, header.get_filename(), data)


def _wrong(message: str) -> RequestError:
    return RequestError(400, f"the body is no multipart/form-data: {message}", code="invalid_multipart")


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
    name = _values(parts).get("model")
    if not name:
        raise invalid("model", "must be given once")
    return name


def parse_transcription(parts: Sequence[Part]) -> TranscriptionRequest:
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
    refuse(fields, ("instructions",))
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
    return " ".join(heard.text for heard in finals)


def usage(asked: TranscriptionRequest) -> dict[str, Any]:
    return {"type": "duration", "seconds": asked.seconds}


def text_delta(text: str) -> bytes:
    return sse({"type": "transcript.text.delta", "delta": text})


def text_done(asked: TranscriptionRequest, finals: Sequence[Heard], server_timing: str) -> bytes:
    done = {"type": "transcript.text.done", "text": full_text(finals), "usage": usage(asked)}
    return sse(done | {"server_timing": server_timing})


def audio_done(asked: SpeechRequest, server_timing: str) -> bytes:
    """The end of a speech; a text's bytes are its tokens, and audio has none."""
    n_in = len(asked.text.encode("utf-8", "replace"))
    used = {"input_tokens": n_in, "output_tokens": 0, "total_tokens": n_in}
    return sse({"type": "speech.audio.done", "usage": used, "server_timing": server_timing})


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


def add_routes(app: web.Application, service: Service) -> None:
    app.router.add_post("/v1/audio/transcriptions", inference(service, _transcription))
    app.router.add_post("/v1/audio/speech", inference(service, _speech))


async def _transcription(call: Call) -> web.StreamResponse:
    parts = parse_form(call.request.headers.get("Content-Type", ""), call.body)
    name = model_of(parts)
    model = call.service.recogniser
    if model is None or model.name != name:
        raise call.service.unknown(name, "listens")
    call.row.model = name
    asked = parse_transcription(parts)
    listener = model.listen(asked.sample_rate, interim=asked.stream)
    listener.stages.add(PREPROCESS, time.monotonic_ns() - call.row.received_ns)
    try:
        if asked.stream:
            return await _transcribe_stream(call, asked, listener)
        return await _transcribe_whole(call, asked, listener)
    finally:
        listener.close()


async def _hear(asked: TranscriptionRequest, listener: Listener) -> AsyncIterator[Sequence[Heard]]:
    for piece in in_pieces(asked.audio, asked.sample_rate):
        yield await listener.feed(piece)
    yield await listener.finish()


async def _transcribe_whole(call: Call, asked: TranscriptionRequest, listener: Listener) -> web.StreamResponse:
    finals: list[Heard] = []
    error_at, cut_at = call.account.limits(Script())
    async with call.deadline():
        async for heard in _hear(asked, listener):
            finals += [said for said in heard if said.kind == "final"]
    struck(len(finals), error_at, cut_at)
    with listener.stages.time(POSTPROCESS):
        body = transcript(asked, finals)
    call.count_stages(listener.stages)
    await call.account.hold()
    response = web.Response(body=body, headers={"Content-Type": TRANSCRIPT_TYPES[asked.response_format]})
    response.headers["Server-Timing"] = listener.stages.server_timing()
    await call.send(response)
    return response


async def _transcribe_stream(call: Call, asked: TranscriptionRequest, listener: Listener) -> web.StreamResponse:
    response, sink = await _event_stream(call, listener.stages, call.account.limits(Script()))
    finals: list[Heard] = []
    certain = CertainWords()
    n_sent = 0
    async with _failures(call, sink), call.deadline():
        async for heard in _hear(asked, listener):
            for said in heard:
                words, texts = [], [word.text for word in said.words]
                if said.kind == "partial":
                    words = certain.feed(texts)
                elif said.kind == "final":
                    finals.append(said)
                    words, certain = certain.end(texts), CertainWords()
                if words:
                    sink.token((" " if n_sent else "") + " ".join(words), len(words), -1)
                    n_sent += len(words)
    if not call.failed:
        call.count_stages(listener.stages)
        sink.event(text_done(asked, finals, listener.stages.server_timing()))
    await response.write_eof()
    return response


async def _speech(call: Call) -> web.StreamResponse:
    fields = call.fields()
    name = fields.text("model")
    model = call.service.synthesiser
    if model is None or model.name != name:
        raise call.service.unknown(name, "speaks")
    call.row.model = name
    asked = parse_speech(fields)
    script = fields.script()
    obey(script)
    stages = Stages()
    stages.add(PREPROCESS, time.monotonic_ns() - call.row.received_ns)
    speech = model.speak(asked.text, sample_rate=SPEECH_HZ, speed=asked.speed, stages=stages)
    async with aclosing(speech) as pieces:
        async with call.deadline():
            first = await anext(pieces)
        send = _speech_events if asked.sse else _speech_bytes
        return await send(call, asked, beginning(first, pieces), stages, call.account.limits(script))


async def _speech_bytes(
    call: Call, asked: SpeechRequest, pieces: AsyncIterator[Audio], stages: Stages, limits: tuple[int, int]
) -> web.StreamResponse:
    """The header says what is known by now; raw audio has no place for the rest."""
    response = await call.begin(SPEECH_TYPES[asked.response_format], stages)
    if asked.response_format == "wav":
        await response.write(wav_header(SPEECH_HZ))
    return await call.play(response, (float_to_pcm16(piece) async for piece in pieces), stages, limits)


async def _speech_events(
    call: Call, asked: SpeechRequest, pieces: AsyncIterator[Audio], stages: Stages, limits: tuple[int, int]
) -> web.StreamResponse:
    response, sink = await _event_stream(call, stages, limits)
    head = wav_header(SPEECH_HZ) if asked.response_format == "wav" else b""
    n_pieces = 0
    async with _failures(call, sink), call.deadline():
        async for piece in pieces:
            struck(n_pieces, *limits)
            n_pieces += 1
            data = base64.b64encode(head + float_to_pcm16(piece)).decode()
            sink.stamped(sse({"type": "speech.audio.delta", "audio": data}))
            head = b""
    if not call.failed:
        call.count_stages(stages)
        sink.event(audio_done(asked, stages.server_timing()))
    await response.write_eof()
    return response


@asynccontextmanager
async def _failures(call: Call, sink: EventSink) -> AsyncIterator[None]:
    """What fails in the block becomes the last event."""
    try:
        yield
    except (StreamFailure, RequestError) as failure:
        call.failed = True
        error = failure.refusal() if isinstance(failure, StreamFailure) else failure
        sink.event(sse(openai_error(error)))


async def _event_stream(call: Call, stages: Stages, limits: tuple[int, int]) -> tuple[web.StreamResponse, EventSink]:
    response = await call.begin("text/event-stream", stages)
    return response, call.sink(text_delta, limits)
