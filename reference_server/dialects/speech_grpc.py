"""``plimsoll.speech.v1.Speech``: audio in and what was heard out, text in and audio out, both as streams.

A stream of Recognise begins with its configuration, as those of the clouds do. It refuses audio before that,
configuration after it, and bytes that are no samples; it resamples nothing and knows no containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

import grpc

from plimsoll.reference_server.protos import speech_pb2 as pb
from plimsoll.reference_server.seams.models import Heard, Script
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.audio import AudioError, SampleReader, encode
from plimsoll.reference_server.speech.listening import Listener
from plimsoll.reference_server.transports import grpc_calls as calls
from plimsoll.reference_server.transports.grpc_calls import Broken, Call, Context
from plimsoll.reference_server.transports.stream import struck
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, invalid

SERVICE = "plimsoll.speech.v1.Speech"
_ENCODINGS: dict[int, str] = {
    pb.ENCODING_UNSPECIFIED: "linear16",
    pb.LINEAR16: "linear16",
    pb.FLOAT32: "float32",
    pb.MULAW: "mulaw",
    pb.ALAW: "alaw",
}
_EVENTS = {"speech_started": pb.SPEECH_STARTED, "speech_ended": pb.SPEECH_ENDED}


class Speech:
    """The service on one server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Recognise": grpc.stream_stream_rpc_method_handler(self._recognise),
                "Synthesise": grpc.unary_stream_rpc_method_handler(self._synthesise),
            },
        )

    async def _recognise(self, _requests: object, context: Context) -> None:
        try:
            # Who isn't served is told at once, not when the configuration comes.
            first = await self._read(context) if self._service.closed() is None else None
        except RequestError as error:
            await calls.refuse(context, error)
        await self._see_through(context, lambda call: self._listen(call, context, first))

    async def _synthesise(self, data: bytes, context: Context) -> None:
        await self._see_through(context, lambda call: self._speak(call, context, data))

    async def _see_through(self, context: Context, play: Callable[[Call], Awaitable[Stages]]) -> None:
        received_ns = time.monotonic_ns()
        service = self._service
        try:
            async with calls.under_way(service, calls.request_id(service, context), received_ns) as call:
                try:
                    stages = await play(call)
                except AudioError as error:
                    raise invalid("audio", str(error)) from None
                service.metrics.stage(call.row.model, stages)
        except RequestError as error:
            await calls.refuse(context, error)
        except Broken as broken:
            await calls.cut(context, broken)
        context.set_trailing_metadata(
            (("server-timing", stages.server_timing()), ("x-request-id", call.row.request_id))
        )

    async def _read(self, context: Context) -> bytes | None:
        """The next message; None at the end. Raises RequestError 408 when none comes: a stream holds a place."""
        try:
            async with asyncio.timeout(self._service.read_timeout_s):
                data = await context.read()
        except TimeoutError:
            message = f"no audio came for {self._service.read_timeout_s:g} s. Send silence to keep a stream open"
            raise RequestError(408, message, code="audio_timeout") from None
        return data if isinstance(data, bytes) else None  # else: the library's mark of the end

    # -- recognition --

    async def _listen(self, call: Call, context: Context, first: bytes | None) -> Stages:
        config = _config(first)
        recogniser = self._service.listening(config.model)
        call.row.model = recogniser.name
        reader = SampleReader(_encoding(config.encoding))
        if config.sample_rate_hertz <= 0:
            raise invalid("sample_rate_hertz", "say how many samples make a second")
        if config.endpointing_ms < 0:
            raise invalid("endpointing_ms", "must be at least 0")
        listener = recogniser.listen(
            config.sample_rate_hertz,
            interim=config.interim_results,
            endpointing_ms=config.endpointing_ms or 300,
            single_utterance=config.single_utterance,
        )
        try:
            await call.account.hold()
            await _Transcript(call, context, config).follow(self._read, reader, listener)
        finally:
            listener.close()
        return listener.stages

    # -- synthesis --

    async def _speak(self, call: Call, context: Context, data: bytes) -> Stages:
        asked = calls.read(pb.SynthesiseRequest, data)
        synthesiser = self._service.speaking(asked.model)
        call.row.model = synthesiser.name
        encoding, stages = _encoding(asked.encoding), Stages()
        if asked.sample_rate_hertz < 0:
            raise invalid("sample_rate_hertz", "must be at least 0 (0: 24000)")
        rate = asked.sample_rate_hertz or 24_000
        speech = synthesiser.speak(asked.text, sample_rate=rate, speed=asked.speed or 1.0, stages=stages)
        limits = call.account.limits(Script())
        n_samples = n_pieces = 0
        async with contextlib.aclosing(speech) as pieces:
            async for piece in pieces:
                if n_pieces == 0:
                    await call.account.hold()
                struck(n_pieces, *limits)
                n_pieces += 1
                n_samples += len(piece)
                audio, audio_s = encode(encoding, piece), n_samples / rate
                message = pb.SynthesiseResponse(audio=audio, audio_s=audio_s, request_id=call.row.request_id)
                await _write(call, context, message.SerializeToString())
        last = pb.SynthesiseResponse(audio_s=n_samples / rate, server_timing=stages.server_timing())
        await calls.write(context, last.SerializeToString())
        return stages


class _Transcript:
    """What is heard of one stream, on its way to the client."""

    def __init__(self, call: Call, context: Context, config: pb.RecogniseConfig) -> None:
        self._call = call
        self._context = context
        self._events = config.voice_activity_events
        self._limits = call.account.limits(Script())
        self._n_sent = 0

    async def follow(
        self, read: Callable[[Context], Awaitable[bytes | None]], reader: SampleReader, listener: Listener
    ) -> None:
        """Audio until the client has no more, then what is left to be said, then where the time went."""
        while (data := await read(self._context)) is not None:
            message = calls.read(pb.RecogniseRequest, data)
            if message.WhichOneof("streaming_request") != "audio":
                raise invalid("streaming_request", "after the configuration every message must hold audio")
            self._call.row.heard_ns.append([time.monotonic_ns(), len(message.audio)])
            await self._tell(await listener.feed(reader.feed(message.audio)))
        reader.end()
        await self._tell(await listener.finish())
        last = pb.RecogniseResponse(request_id=self._call.row.request_id, server_timing=listener.stages.server_timing())
        await calls.write(self._context, last.SerializeToString())

    async def _tell(self, news: Sequence[Heard]) -> None:
        for heard in news:
            event = _EVENTS.get(heard.kind)
            if event is not None and not self._events:
                continue
            struck(self._n_sent, *self._limits)
            self._n_sent += 1
            message = _result(heard) if event is None else _event(heard, event)
            message.request_id = self._call.row.request_id
            await _write(self._call, self._context, message.SerializeToString())


def _config(first: bytes | None) -> pb.RecogniseConfig:
    message = calls.read(pb.RecogniseRequest, first or b"")
    if message.WhichOneof("streaming_request") != "config":
        raise invalid("streaming_request", "the first message of a stream must hold its config")
    return message.config


def _encoding(number: int) -> str:
    if number not in _ENCODINGS:
        raise invalid("encoding", f"{number} is unknown. Choose from {', '.join(pb.Encoding.keys())}")
    return _ENCODINGS[number]


def _result(heard: Heard) -> pb.RecogniseResponse:
    words = [
        pb.Word(text=word.text, start_s=word.start_s, end_s=word.end_s, confidence=word.confidence)
        for word in heard.words
    ]
    mean = sum(word.confidence for word in heard.words) / len(words) if words else 0.0
    result = pb.RecogniseResult(
        transcript=heard.text,
        is_final=heard.kind == "final",
        start_s=heard.start_s,
        end_s=heard.end_s,
        confidence=mean,
        words=words,
    )
    return pb.RecogniseResponse(result=result)


def _event(heard: Heard, event: pb.SpeechEvent) -> pb.RecogniseResponse:
    at_s = heard.start_s if event == pb.SPEECH_STARTED else heard.end_s
    return pb.RecogniseResponse(event=event, event_s=at_s)


async def _write(call: Call, context: Context, data: bytes) -> None:
    call.begin_write()
    try:
        await calls.write(context, data)
    finally:  # a client that leaves at once may have had it
        call.end_write()
