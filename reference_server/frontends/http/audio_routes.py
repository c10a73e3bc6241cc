"""The OpenAI-compatible routes for audio: transcriptions of files, speech from text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from plimsoll.reference_server.frontends.http import multipart, openai_audio
from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.http.openai_audio import SpeechRequest, TranscriptionRequest
from plimsoll.reference_server.frontends.shared.stream import EventSink, struck
from plimsoll.reference_server.seams.answers import Script
from plimsoll.reference_server.service.accounting import obey
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.audio import float_to_pcm16
from plimsoll.reference_server.speech.certain_words import CertainWords
from plimsoll.reference_server.speech.seam import Audio, Heard, Listener
from plimsoll.reference_server.speech.wav import wav_header
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.stages import POSTPROCESS, PREPROCESS, Stages

_PIECE_S = 0.5
"""Audio of a file is heard in pieces, so that one file does not keep others waiting."""


def add_routes(app: web.Application, service: Service) -> None:
    """Register the routes."""
    app.router.add_post("/v1/audio/transcriptions", inference(service, _transcription))
    app.router.add_post("/v1/audio/speech", inference(service, _speech))


async def _transcription(call: Call) -> web.StreamResponse:
    parts = multipart.parse(call.request.headers.get("Content-Type", ""), call.body)
    name = openai_audio.model_of(parts)
    model = call.service.recogniser
    if model is None or model.name != name:
        raise call.service.unknown(name, "listens")
    call.row.model = name
    asked = openai_audio.parse_transcription(parts)
    listener = model.listen(asked.sample_rate, interim=asked.stream)
    listener.stages.add(PREPROCESS, time.monotonic_ns() - call.row.received_ns)
    try:
        if asked.stream:
            return await _transcribe_stream(call, asked, listener)
        return await _transcribe_whole(call, asked, listener)
    finally:
        listener.close()


async def _hear(asked: TranscriptionRequest, listener: Listener) -> AsyncIterator[Sequence[Heard]]:
    step = max(1, round(asked.sample_rate * _PIECE_S))
    for at in range(0, len(asked.audio), step):
        yield await listener.feed(asked.audio[at : at + step])
    yield await listener.finish()


async def _transcribe_whole(call: Call, asked: TranscriptionRequest, listener: Listener) -> web.StreamResponse:
    finals: list[Heard] = []
    error_at, cut_at = call.account.limits(Script())
    async with call.deadline():
        async for heard in _hear(asked, listener):
            finals += [said for said in heard if said.kind == "final"]
    struck(len(finals), error_at, cut_at)
    with listener.stages.time(POSTPROCESS):
        body = openai_audio.transcript(asked, finals)
    call.count_stages(listener.stages)
    await call.account.hold()
    response = web.Response(body=body, headers={"Content-Type": openai_audio.TRANSCRIPT_TYPES[asked.response_format]})
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
        sink.event(openai_audio.text_done(asked, finals, listener.stages.server_timing()))
    await response.write_eof()
    return response


async def _speech(call: Call) -> web.StreamResponse:
    fields = call.fields()
    name = fields.text("model")
    model = call.service.synthesiser
    if model is None or model.name != name:
        raise call.service.unknown(name, "speaks")
    call.row.model = name
    asked = openai_audio.parse_speech(fields)
    script = fields.script()
    obey(script)
    stages = Stages()
    stages.add(PREPROCESS, time.monotonic_ns() - call.row.received_ns)
    pieces = model.speak(asked.text, sample_rate=openai_audio.SPEECH_HZ, speed=asked.speed, stages=stages)
    try:
        async with call.deadline():
            first = await anext(pieces)
        limits = call.account.limits(script)
        send = _speech_events if asked.sse else _speech_bytes
        return await send(call, asked, _with(first, pieces), stages, limits)
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


async def _speech_bytes(
    call: Call, asked: SpeechRequest, pieces: AsyncIterator[Audio], stages: Stages, limits: tuple[int, int]
) -> web.StreamResponse:
    """The header says what is known by now; raw audio has no place for the rest."""
    response = await call.begin(openai_audio.SPEECH_TYPES[asked.response_format], stages)
    if asked.response_format == "wav":
        await response.write(wav_header(openai_audio.SPEECH_HZ))
    row, n_pieces = call.row, 0
    try:
        async with call.deadline():
            async for piece in pieces:
                struck(n_pieces, *limits)
                n_pieces += 1
                before_ns = time.monotonic_ns()
                await response.write(float_to_pcm16(piece))
                row.before_ns.append(before_ns)
                row.after_ns.append(time.monotonic_ns())
    except (StreamFailure, RequestError) as failure:
        raise StreamCut(f"audio has no other way to say it: {failure}") from None
    call.count_stages(stages)
    await response.write_eof()
    return response


async def _speech_events(
    call: Call, asked: SpeechRequest, pieces: AsyncIterator[Audio], stages: Stages, limits: tuple[int, int]
) -> web.StreamResponse:
    response, sink = await _event_stream(call, stages, limits)
    head = wav_header(openai_audio.SPEECH_HZ) if asked.response_format == "wav" else b""
    n_pieces = 0
    async with _failures(call, sink), call.deadline():
        async for piece in pieces:
            struck(n_pieces, *limits)
            n_pieces += 1
            sink.stamped(openai_audio.audio_delta(head + float_to_pcm16(piece)))
            head = b""
    if not call.failed:
        call.count_stages(stages)
        sink.event(openai_audio.audio_done(asked, stages.server_timing()))
    await response.write_eof()
    return response


@asynccontextmanager
async def _failures(call: Call, sink: EventSink) -> AsyncIterator[None]:
    """What fails in the block becomes the last event."""
    try:
        yield
    except StreamFailure as failure:
        call.failed = True
        error = RequestError(failure.status, str(failure), kind="server_error", code=failure.code)
        sink.event(openai_audio.error_event(error))
    except RequestError as error:
        call.failed = True
        sink.event(openai_audio.error_event(error))


async def _event_stream(call: Call, stages: Stages, limits: tuple[int, int]) -> tuple[web.StreamResponse, EventSink]:
    response = await call.begin("text/event-stream", stages)
    return response, call.sink(openai_audio.text_delta, limits)


async def _with(first: Audio, rest: AsyncIterator[Audio]) -> AsyncIterator[Audio]:
    yield first
    async for piece in rest:
        yield piece
