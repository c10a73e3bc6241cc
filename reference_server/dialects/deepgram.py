"""Deepgram's listen and speak: live on a WebSocket, whole in one POST.

Audio time is what was submitted, so a client that stops sending stops the endpointer as well; final results tile the
audio from its beginning. Text is kept until ``Flush`` or ``Close``, so that what is spoken, and when, is known exactly;
audio is never paced.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from aiohttp import web

from plimsoll.reference_server.dialects import deepgram_wire as wire
from plimsoll.reference_server.dialects.deepgram_wire import ListenOptions, ListenWriter, SpeakOptions, SpeakWriter
from plimsoll.reference_server.seams.models import Audio, Heard, Script
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.speech.audio import AudioError, SampleReader, decode, in_pieces, read_wav, wav_header
from plimsoll.reference_server.speech.listening import Listener
from plimsoll.reference_server.speech.speaking import Synthesiser, beginning, encoded
from plimsoll.reference_server.transports.http_calls import Call, deepgram_error, inference
from plimsoll.reference_server.transports.websocket import (
    INTERNAL,
    POLICY,
    Conversation,
    Dialect,
    Ending,
    Peer,
    Sessions,
)
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, invalid

LISTEN_COMMANDS = ("KeepAlive", "Finalize", "CloseStream", "Configure")
LISTEN_IDLE_S = 10.0
"""A stream that sends nothing for so long is closed; sooner where the server's read timeout is shorter."""
LONGEST_S = 600.0
"""Without endpointing an utterance of this length is ended by a final, wherever that is."""
SPEAK_COMMANDS = ("Speak", "Flush", "Clear", "Close")
SPEAK_IDLE_S = 60.0
MAX_CHARACTERS = 2_000
"""Of one Speak message."""
_MAX_KEPT = 20_000
"""Characters that may wait for a Flush."""
_MAX_FLUSHES = 20
"""Flushes that may wait for each other."""
_MIME = {"linear16": "l16", "mulaw": "basic", "alaw": "PCMA"}


def _refuse(error: RequestError, request_id: str) -> web.Response:
    reason = "".join(c if c.isascii() and c.isprintable() else "?" for c in error.message[:500])
    headers = {"dg-error": reason, "dg-request-id": request_id}
    body = deepgram_error(error, request_id)
    return web.Response(body=body, status=error.status, headers=headers, content_type="application/json")


DIALECT = Dialect(_refuse, wire.failed, wire.PROTOCOLS)


def add_routes(app: web.Application, sessions: Sessions) -> None:
    service = sessions.service

    def admit_listening(request: web.Request, row: TruthRow) -> Conversation:
        model = service.listening(request.query.get("model", ""))
        row.model = model.name
        options = wire.listen_options(request.query)
        listener = model.listen(
            options.sample_rate,
            interim=options.interim,
            endpointing_ms=options.endpointing_ms or wire.DEFAULT_ENDPOINTING_MS,
            single_utterance=options.endpointing_ms is None,
        )
        idle_s = min(LISTEN_IDLE_S, service.read_timeout_s)
        return Listening(options, listener, ListenWriter(row.request_id, row.model), sessions.count_stages(row), idle_s)

    def admit_speaking(request: web.Request, row: TruthRow) -> Conversation:
        model = service.speaking(request.query.get("model", ""))
        row.model = model.name
        options, writer = wire.speak_options(request.query), SpeakWriter(row.request_id, row.model)
        return Speaking(options, model, writer, sessions.count_stages(row))

    app.router.add_get("/v1/listen", sessions.route(DIALECT, admit_listening))
    app.router.add_post("/v1/listen", inference(service, _recorded))
    app.router.add_get("/v1/speak", sessions.route(DIALECT, admit_speaking))
    app.router.add_post("/v1/speak", inference(service, _whole))


@dataclass(slots=True, eq=False)
class Listening:
    """One live stream."""

    options: ListenOptions
    listener: Listener
    writer: ListenWriter
    count: Callable[[Stages], None]
    """Has the stages counted once the stream is over."""
    idle_s: float = LISTEN_IDLE_S
    created: str = field(default_factory=lambda: now())
    _n_samples: int = 0
    _frozen_s: float = 0.0
    """The end of the last final result, where the next one starts."""
    _last_word_s: float | None = None
    """The end of the last word, until UtteranceEnd has been told."""

    async def hold(self, peer: Peer) -> Ending | None:
        """Hear until CloseStream; answer each message before the next one is read."""
        ear, digest = Ear(self.options.encoding, self.options.channels), hashlib.sha256()
        while True:
            try:
                message = await peer.receive(time.monotonic_ns() + round(self.idle_s * 1e9))
            except TimeoutError:
                return Ending(INTERNAL, f"NET-0001: neither audio nor a text message came within {self.idle_s:g} s")
            if message is None:
                return None
            if isinstance(message, bytes):
                digest.update(message)
                await self._audio(peer, ear.feed(message))
                continue
            command = wire.command(message, LISTEN_COMMANDS)
            if command is None:
                peer.send(wire.failed(wire.unparsable(LISTEN_COMMANDS)))
                return Ending(POLICY, "DATA-0000: a text message could not be read")
            if command["type"] == "Finalize":
                self._finalised(peer, await self.listener.flush())
            elif command["type"] == "Configure":
                peer.send(self.writer.configure_failure())
            elif command["type"] == "CloseStream":
                self._tell(peer, await self.listener.finish())
                self.count(self.listener.stages)
                peer.send(self._metadata(digest.hexdigest()))
                return Ending()

    def close(self) -> None:
        self.listener.close()

    @property
    def _heard_s(self) -> float:
        return self._n_samples / self.options.sample_rate

    async def _audio(self, peer: Peer, audio: Audio) -> None:
        for piece in in_pieces(audio, self.options.sample_rate):
            self._n_samples += len(piece)
            self._tell(peer, await self.listener.feed(piece))
            self._utterance_end(peer, self._heard_s)
            if self.options.endpointing_ms is None and self._heard_s - self._frozen_s > LONGEST_S:
                self._tell(peer, await self.listener.flush(), speech_final=False)

    def _tell(
        self, peer: Peer, news: Sequence[Heard], *, speech_final: bool = True, from_finalize: bool = False
    ) -> None:
        for index, heard in enumerate(news):
            if heard.kind == "speech_started":
                self._utterance_end(peer, heard.start_s)
                if self.options.vad_events:
                    peer.send(self.writer.speech_started(heard.start_s))
            elif heard.kind == "final":
                ended = speech_final and index > 0 and news[index - 1].kind == "speech_ended"
                self._result(peer, heard, final=True, ended=ended, from_finalize=from_finalize)
                self._frozen_s = heard.end_s
            elif heard.kind == "partial" and heard.words and self.options.interim:
                self._result(peer, heard, final=False, ended=False, from_finalize=False)

    def _result(self, peer: Peer, heard: Heard, *, final: bool, ended: bool, from_finalize: bool) -> None:
        if heard.words:
            self._last_word_s = heard.words[-1].end_s
        peer.send(
            self.writer.results(
                heard.words, self._frozen_s, heard.end_s, final=final, speech_final=ended, from_finalize=from_finalize
            )
        )

    def _finalised(self, peer: Peer, news: Sequence[Heard]) -> None:
        """A Finalize is always answered, with an empty transcript where nobody spoke."""
        self._tell(peer, news, speech_final=False, from_finalize=True)
        if not any(heard.kind == "final" for heard in news):
            self._tell(peer, [Heard("final", self._frozen_s, self._heard_s)], from_finalize=True)

    def _utterance_end(self, peer: Peer, silent_until_s: float) -> None:
        gap_ms = self.options.utterance_end_ms
        if gap_ms is None or self._last_word_s is None or silent_until_s - self._last_word_s < gap_ms / 1000:
            return
        peer.send(self.writer.utterance_end(self._last_word_s))
        self._last_word_s = None

    def _metadata(self, sha256: str) -> dict[str, object]:
        return self.writer.metadata(
            sha256=sha256,
            created=self.created,
            duration_s=self._heard_s,
            channels=self.options.channels,
            stages=self.listener.stages,
        )


class Ear:
    """One channel from bytes that hold several side by side, and may be cut anywhere: their mean."""

    def __init__(self, encoding: str, channels: int) -> None:
        self._reader = SampleReader(encoding)
        self._channels = channels
        self._rest: Audio = np.zeros(0, np.float32)

    def feed(self, data: bytes) -> Audio:
        samples = self._reader.feed(data)
        if self._channels == 1:
            return samples
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) - len(samples) % self._channels
        self._rest = samples[whole:]
        return np.asarray(samples[:whole].reshape(-1, self._channels).mean(axis=1), np.float32)


async def _recorded(call: Call) -> web.StreamResponse:
    service, request = call.service, call.request
    model = service.listening(request.query.get("model", ""))
    call.row.model = model.name
    encoding, sample_rate = wire.recorded_options(request.query)
    if request.content_type == "application/json":
        raise RequestError(400, "a URL is not fetched by this server. Send the audio itself as the body", code="no_url")
    try:
        if encoding is None:
            audio, sample_rate = read_wav(call.body)
        else:
            audio = decode(encoding, call.body)
        if len(audio) == 0:
            raise AudioError("it holds not one sample")
    except AudioError as error:
        raise RequestError(400, f"the body is no audio: {error}", code="bad_audio") from None
    listener = model.listen(sample_rate, interim=False)
    news: list[Heard] = []
    try:
        async with call.deadline():
            for piece in in_pieces(audio, sample_rate):
                news += await listener.feed(piece)
            news += await listener.finish()
    finally:
        listener.close()
    call.count_stages(listener.stages)
    writer = ListenWriter(call.row.request_id, model.name)
    about = writer.about(hashlib.sha256(call.body).hexdigest(), now(), len(audio) / sample_rate, 1)
    words = [word for heard in news if heard.kind == "final" for word in heard.words]
    body = json.dumps(writer.recording(about, words, listener.stages)).encode()
    return await call.reply(body, server_timing=listener.stages.server_timing())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True, eq=False)
class Speaking:
    """One live speech."""

    options: SpeakOptions
    model: Synthesiser
    writer: SpeakWriter
    count: Callable[[Stages], None]
    """Has the stages of each flush counted."""
    idle_s: float = SPEAK_IDLE_S
    _kept: list[str] = field(default_factory=list)
    _flushes: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    _sequence: int = 0
    """Number of the next Flushed or Cleared."""
    _n_cleared: int = 0
    _n_unspoken: int = 0
    """Flushes that wait or are under way."""

    async def hold(self, peer: Peer) -> Ending | None:
        """Speak until Close. Raises RequestError when the synthesiser is full or stops."""
        peer.send(self.writer.metadata())
        try:
            async with asyncio.TaskGroup() as group:
                speaker = group.create_task(self._speak_flushes(peer))
                ending = await self._obey(peer)
                speaker.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return ending

    def close(self) -> None:
        """There is nothing to give up: a speech under way ends with its task."""

    async def _obey(self, peer: Peer) -> Ending | None:
        while True:
            try:
                message = await peer.receive(time.monotonic_ns() + round(self.idle_s * 1e9))
            except TimeoutError:
                if self._n_unspoken:
                    continue
                return Ending(INTERNAL, f"NET-0001: no text message came within {self.idle_s:g} s")
            if message is None:
                return None
            command = wire.command(message, SPEAK_COMMANDS) if isinstance(message, str) else None
            text = command.get("text", "") if command is not None else None
            if command is None or not isinstance(text, str):
                peer.send(wire.failed(wire.unparsable(SPEAK_COMMANDS)))
                return Ending(POLICY, "DATA-0000: a message could not be read")
            if command["type"] == "Speak":
                self._keep(peer, text)
            elif command["type"] == "Flush":
                self._flush(peer)
            elif command["type"] == "Clear":
                self._clear(peer)
            else:
                if self._kept:
                    self._flush(peer)
                await self._flushes.join()
                return Ending()

    def _keep(self, peer: Peer, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            peer.send(
                self.writer.warning("text_too_long", f"text: {len(text)} characters, the limit is {MAX_CHARACTERS}")
            )
        elif sum(map(len, self._kept)) + len(text) > _MAX_KEPT:
            peer.send(self.writer.warning("too_much_text", f"more than {_MAX_KEPT} characters wait. Send Flush"))
        else:
            self._kept.append(text)

    def _flush(self, peer: Peer) -> None:
        if self._flushes.qsize() >= _MAX_FLUSHES:
            peer.send(self.writer.warning("too_many_flushes", f"{_MAX_FLUSHES} flushes wait. Read the audio first"))
            return
        self._flushes.put_nowait("".join(self._kept))
        self._n_unspoken += 1
        self._kept.clear()

    def _clear(self, peer: Peer) -> None:
        self._kept.clear()
        while not self._flushes.empty():
            self._flushes.get_nowait()
            self._done()
        self._n_cleared += 1
        peer.send(self.writer.cleared(self._next()))

    def _done(self) -> None:
        self._n_unspoken -= 1
        self._flushes.task_done()

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    async def _speak_flushes(self, peer: Peer) -> None:
        while True:
            text = await self._flushes.get()
            if text.strip():
                await self._speak(peer, text)
            else:
                peer.send(self.writer.flushed(self._next(), Stages()))
            self._done()

    async def _speak(self, peer: Peer, text: str) -> None:
        """One flush, until it is over or cleared. Text that can't be said costs a warning, not the session."""
        stages, n_cleared = Stages(), self._n_cleared
        try:
            wanted = self.options.encoding, self.options.sample_rate, self.options.speed
            async with contextlib.aclosing(encoded(self.model, text, *wanted, stages)) as pieces:
                async for data in pieces:
                    if self._n_cleared != n_cleared:
                        return
                    peer.send_audio(data)
                    await peer.room()
        except RequestError as error:
            if error.status != 400:
                raise
            peer.send(self.writer.warning(error.code or "bad_text", error.message))
        if self._n_cleared == n_cleared:
            self.count(stages)
            peer.send(self.writer.flushed(self._next(), stages))


async def _whole(call: Call) -> web.StreamResponse:
    request = call.request
    model = call.service.speaking(request.query.get("model", ""))
    call.row.model = model.name
    options = wire.speak_options(request.query, containers=("none", "wav"))
    text = call.fields().text("text")
    if len(text) > MAX_CHARACTERS:
        raise invalid("text", f"{len(text)} characters, the limit is {MAX_CHARACTERS}. Send it in parts")
    stages = Stages()
    wanted = options.encoding, options.sample_rate, options.speed
    async with contextlib.aclosing(encoded(model, text, *wanted, stages)) as pieces:
        async with call.deadline():
            first = await anext(pieces)  # what is refused is refused here, before the header
        response = await _begin(call, options, stages, len(text))
        return await call.play(response, beginning(first, pieces), stages, call.account.limits(Script()))


async def _begin(call: Call, options: SpeakOptions, stages: Stages, n_characters: int) -> web.StreamResponse:
    kind = "audio/wav" if options.container == "wav" else f"audio/{_MIME[options.encoding]};rate={options.sample_rate}"
    headers = {
        "dg-request-id": call.row.request_id,
        "dg-model-name": call.row.model,
        "dg-char-count": str(n_characters),
    }
    response = await call.begin(kind, stages, headers)
    if options.container == "wav":
        await response.write(wav_header(options.sample_rate, encoding=options.encoding))
    return response
