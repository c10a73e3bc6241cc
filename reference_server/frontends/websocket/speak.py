"""Deepgram-like speech: text in pieces on a WebSocket, whole in one POST; audio comes back as soon as there is some.

On the WebSocket text is kept until ``Flush`` or ``Close``: what is spoken, and when, is then known exactly. Audio is never paced: it
comes as fast as it is made and read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field

from aiohttp import web

from plimsoll.reference_server.frontends.http.calls import Call, inference
from plimsoll.reference_server.frontends.shared import deepgram_wire as wire
from plimsoll.reference_server.frontends.shared.deepgram_wire import SpeakOptions, SpeakWriter
from plimsoll.reference_server.frontends.shared.fields import invalid
from plimsoll.reference_server.frontends.shared.stream import struck
from plimsoll.reference_server.frontends.websocket.peer import INTERNAL, POLICY, Conversation, Ending, Peer
from plimsoll.reference_server.frontends.websocket.sessions import Dialect, Sessions
from plimsoll.reference_server.frontends.websocket.speech_models import let_go, synthesiser
from plimsoll.reference_server.seams.answers import Script
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.speech.audio import encode
from plimsoll.reference_server.speech.seam import Audio, Synthesiser
from plimsoll.reference_server.speech.wav import wav_header
from plimsoll.reference_server.values.errors import RequestError, StreamCut
from plimsoll.reference_server.values.stages import Stages

COMMANDS = ("Speak", "Flush", "Clear", "Close")
IDLE_S = 60.0
MAX_CHARACTERS = 2_000
"""Of one Speak message."""
_MAX_KEPT = 20_000
"""Characters that may wait for a Flush."""
_MAX_FLUSHES = 20
"""Flushes that may wait for each other."""

_MIME = {"linear16": "l16", "mulaw": "basic", "alaw": "PCMA"}

DIALECT = Dialect(wire.refuse, wire.failed, wire.PROTOCOLS)


def add_routes(app: web.Application, sessions: Sessions) -> None:
    """Register the routes."""

    def admit(request: web.Request, row: TruthRow) -> Conversation:
        model = synthesiser(sessions.service, request.query.get("model", ""))
        row.model = model.name
        writer = SpeakWriter(row.request_id, row.model)
        return Speaking(wire.speak_options(request.query), model, writer, sessions.count_stages(row))

    app.router.add_get("/v1/speak", sessions.route(DIALECT, admit))
    app.router.add_post("/v1/speak", inference(sessions.service, _whole))


@dataclass(slots=True, eq=False)
class Speaking:
    """One live speech."""

    options: SpeakOptions
    model: Synthesiser
    writer: SpeakWriter
    count: Callable[[Stages], None]
    """Has the stages of each flush counted."""
    idle_s: float = IDLE_S
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
            command = wire.command(message, COMMANDS) if isinstance(message, str) else None
            text = command.get("text", "") if command is not None else None
            if command is None or not isinstance(text, str):
                peer.send(wire.failed(wire.unparsable(COMMANDS)))
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
            async with contextlib.aclosing(encoded(self.model, text, self.options, stages)) as pieces:
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


async def encoded(model: Synthesiser, text: str, options: SpeakOptions, stages: Stages) -> AsyncGenerator[bytes, None]:
    """The text's audio in pieces, as bytes. Raises what ``speak`` does."""
    pieces: AsyncIterator[Audio] = model.speak(
        text, sample_rate=options.sample_rate, speed=options.speed, stages=stages
    )
    try:
        async for audio in pieces:
            yield encode(options.encoding, audio)
    finally:
        await let_go(pieces)


async def _whole(call: Call) -> web.StreamResponse:
    request = call.request
    model = synthesiser(call.service, request.query.get("model", ""))
    call.row.model = model.name
    options = wire.speak_options(request.query, containers=("none", "wav"))
    text = call.fields().text("text")
    if len(text) > MAX_CHARACTERS:
        raise invalid("text", f"{len(text)} characters, the limit is {MAX_CHARACTERS}. Send it in parts")
    stages = Stages()
    async with contextlib.aclosing(encoded(model, text, options, stages)) as pieces:
        async with call.deadline():
            first = await anext(pieces)  # what is refused is refused here, before the header
        response = await _begin(call, options, stages, len(text))
        try:
            async with call.deadline():
                await _write(call, response, first)
                async for data in pieces:
                    await _write(call, response, data)
        except RequestError as error:
            raise StreamCut(f"audio has no other way to say it: {error}") from None
    call.count_stages(stages)
    await response.write_eof()
    return response


async def _write(call: Call, response: web.StreamResponse, data: bytes) -> None:
    error_at, cut_at = call.account.limits(Script())
    struck(len(call.row.before_ns), -1, cut_at if error_at < 0 else error_at)
    before_ns = time.monotonic_ns()
    await response.write(data)
    call.row.before_ns.append(before_ns)
    call.row.after_ns.append(time.monotonic_ns())


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
