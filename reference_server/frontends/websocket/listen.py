"""Deepgram-like recognition: live on a WebSocket, recorded in one POST.

A live stream is heard as it comes, and read no faster than it is heard: what the recogniser can't take yet stays in the sockets. Audio time
is what was submitted, so a client that stops sending stops the endpointer as well. Results that are final tile the audio from its
beginning; their transcripts together are the whole.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from aiohttp import web

from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.shared import deepgram_wire as wire
from plimsoll.reference_server.frontends.shared.deepgram_wire import ListenOptions, ListenWriter
from plimsoll.reference_server.frontends.websocket.peer import INTERNAL, POLICY, Conversation, Ending, Peer
from plimsoll.reference_server.frontends.websocket.sessions import Dialect, Sessions
from plimsoll.reference_server.frontends.websocket.speech_models import recogniser
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.speech.audio import AudioError, SampleReader, decode
from plimsoll.reference_server.speech.seam import Audio, Heard, Listener
from plimsoll.reference_server.speech.wav import read_wav
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.stages import Stages

COMMANDS = ("KeepAlive", "Finalize", "CloseStream", "Configure")
IDLE_S = 10.0
"""A stream that sends neither audio nor text for so long is closed; sooner where the server's read timeout is shorter."""
LONGEST_S = 600.0
"""Without endpointing an utterance of this length is ended by a final, wherever that is."""
_PIECE_S = 0.5
"""Long messages are heard in pieces, so that other streams get their turn."""

DIALECT = Dialect(wire.refuse, wire.failed, wire.PROTOCOLS)


def add_routes(app: web.Application, sessions: Sessions) -> None:
    """Register the routes."""

    def admit(request: web.Request, row: TruthRow) -> Conversation:
        model = recogniser(sessions.service, request.query.get("model", ""))
        row.model = model.name
        options = wire.listen_options(request.query)
        listener = model.listen(
            options.sample_rate,
            interim=options.interim,
            endpointing_ms=options.endpointing_ms or wire.DEFAULT_ENDPOINTING_MS,
            single_utterance=options.endpointing_ms is None,
        )
        writer = ListenWriter(row.request_id, row.model)
        idle_s = min(IDLE_S, sessions.service.read_timeout_s)
        return Listening(options, listener, writer, sessions.count_stages(row), idle_s)

    app.router.add_get("/v1/listen", sessions.route(DIALECT, admit))
    app.router.add_post("/v1/listen", inference(sessions.service, _recorded))


@dataclass(slots=True, eq=False)
class Listening:
    """One live stream."""

    options: ListenOptions
    listener: Listener
    writer: ListenWriter
    count: Callable[[Stages], None]
    """Has the stages counted once the stream is over."""
    idle_s: float = IDLE_S
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
            command = wire.command(message, COMMANDS)
            if command is None:
                peer.send(wire.failed(wire.unparsable(COMMANDS)))
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
        """Let the recogniser forget the stream."""
        self.listener.close()

    @property
    def _heard_s(self) -> float:
        return self._n_samples / self.options.sample_rate

    async def _audio(self, peer: Peer, audio: Audio) -> None:
        step = max(1, round(_PIECE_S * self.options.sample_rate))
        for at in range(0, len(audio), step):
            piece = audio[at : at + step]
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
                heard.words,
                self._frozen_s,
                heard.end_s,
                final=final,
                speech_final=ended,
                from_finalize=from_finalize,
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
    """One channel from bytes that hold several, sample by sample beside each other, and may be cut anywhere: their mean."""

    def __init__(self, encoding: str, channels: int) -> None:
        self._reader = SampleReader(encoding)
        self._channels = channels
        self._rest: Audio = np.zeros(0, np.float32)

    def feed(self, data: bytes) -> Audio:
        """The audio that is complete now."""
        samples = self._reader.feed(data)
        if self._channels == 1:
            return samples
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) - len(samples) % self._channels
        self._rest = samples[whole:]
        return np.asarray(samples[:whole].reshape(-1, self._channels).mean(axis=1), np.float32)


async def _recorded(call: Call) -> web.StreamResponse:
    service, request = call.service, call.request
    model = recogniser(service, request.query.get("model", ""))
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
    step, news = max(1, round(_PIECE_S * sample_rate)), list[Heard]()
    try:
        async with call.deadline():
            for at in range(0, len(audio), step):
                news += await listener.feed(audio[at : at + step])
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
    """The wall clock's time, as RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
