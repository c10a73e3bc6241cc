"""OpenAI-Realtime-like sessions: audio in, heard turn by turn; answers in audio or text; a voice that stops when it is interrupted.

Turns end where the recogniser hears the utterance end (server_vad), or with a commit. Events are dealt with in order, and answers are
given meanwhile. It refuses what it can't do with an error event, and goes on.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.frontends.websocket import realtime_wire as wire
from plimsoll.reference_server.frontends.websocket.answering import Answering
from plimsoll.reference_server.frontends.websocket.conversation import Conversed
from plimsoll.reference_server.frontends.websocket.input_audio import InputAudio
from plimsoll.reference_server.frontends.websocket.peer import GOING_AWAY, Conversation, Ending, Peer
from plimsoll.reference_server.frontends.websocket.realtime_settings import Settings, answer_settings, only, updated
from plimsoll.reference_server.frontends.websocket.realtime_wire import Events, Item
from plimsoll.reference_server.frontends.websocket.replies import Reply, continued, echo
from plimsoll.reference_server.frontends.websocket.sessions import Dialect, Sessions
from plimsoll.reference_server.frontends.websocket.speech_models import recogniser
from plimsoll.reference_server.frontends.websocket.turns import Ended, Said, Started
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

LIFE_S = 3600
"""How long a session may last."""
_RESPONSE = ("conversation", "metadata", "input", "output_modalities", "instructions", "max_output_tokens", "audio")

DIALECT = Dialect(wire.refuse, wire.failed, ("realtime",))


def add_routes(app: web.Application, sessions: Sessions) -> None:
    """Register the route."""
    service = sessions.service

    def admit(request: web.Request, row: TruthRow) -> Conversation:
        hearing = recogniser(service)
        name = request.query.get("model", "") or hearing.name
        row.model = hearing.name if name == hearing.name else service.model(name).name
        settings = Settings(row.model, spoken=service.synthesiser is not None)
        return Talking(service, settings, Events(row.request_id), InputAudio(hearing, settings))

    app.router.add_get("/v1/realtime", sessions.route(DIALECT, admit))


@dataclass(slots=True, eq=False)
class Talking:
    """One session."""

    service: Service
    settings: Settings
    events: Events
    audio: InputAudio
    expires_s: int = field(default_factory=lambda: int(time.time()) + LIFE_S)
    """Wall time, in seconds, at which the session is over."""
    conversed: Conversed = field(default_factory=Conversed)
    _answering: Answering | None = None
    _task: asyncio.Task[None] | None = None
    _group: asyncio.TaskGroup | None = None
    _turn_id: str = ""
    """The item that the speech under way, or not yet committed, will become."""

    async def hold(self, peer: Peer) -> Ending | None:
        """Talk until the client closes, or an hour has passed."""
        self._send(peer, "session.created", session=self._shown())
        try:
            async with asyncio.TaskGroup() as self._group:
                ending = await self._obey(peer)
                if self._task is not None:
                    self._task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return ending

    def close(self) -> None:
        """Let the recogniser forget the stream."""
        self.audio.close()

    async def _obey(self, peer: Peer) -> Ending | None:
        over_ns = time.monotonic_ns() + LIFE_S * 1_000_000_000
        while True:
            try:
                message = await peer.receive(over_ns)
            except TimeoutError:
                expired = RequestError(
                    400, f"a session lasts {LIFE_S} s at most. Connect again", code="session_expired"
                )
                peer.send(self.events.error(expired))
                return Ending(GOING_AWAY, expired.message)
            if message is None:
                return None
            event_id: str | None = None
            try:
                event = wire.parse_event(message)
                event_id = event.text("event_id", "") or None
                await self._event(peer, event)
            except RequestError as error:
                if error.status >= 500:
                    raise
                peer.send(self.events.error(error, event_id))

    async def _event(self, peer: Peer, event: Fields) -> None:
        match event.text("type"):
            case "session.update":
                await self._update(peer, event)
            case "input_audio_buffer.append":
                await self._append(peer, event)
            case "input_audio_buffer.commit":
                await self._commit(peer)
            case "input_audio_buffer.clear":
                await self.audio.clear()
                self._turn_id = ""
                self._send(peer, "input_audio_buffer.cleared")
            case "conversation.item.create":
                item = wire.parse_item(event.mapping("item"), self.events.new_id("item"))
                before = self.conversed.add(item, event.text("previous_item_id", "") or None)
                self._added(peer, item, before)
            case "conversation.item.retrieve" | "conversation.item.delete" | "conversation.item.truncate" as name:
                self._change_item(peer, event, name)
            case "response.create":
                await self._create(peer, event.mapping("response"))
            case "response.cancel":
                if (
                    self._answering is None
                    or event.text("response_id", self._answering.response_id) != self._answering.response_id
                ):
                    raise RequestError(400, "no such response is under way", code="response_cancel_not_active")
                await self._stop_answer("client_cancelled")
            case name:
                raise RequestError(400, f"event {name[:80]!r} is not known here", param="type", code="invalid_event")

    async def _update(self, peer: Peer, event: Fields) -> None:
        settings = updated(self.settings, event.mapping("session"), can_speak=self.service.synthesiser is not None)
        self.audio.change(settings)
        self.settings = settings
        self._send(peer, "session.updated", session=self._shown())

    async def _append(self, peer: Peer, event: Fields) -> None:
        for piece in self.audio.pieces(event.text("audio")):
            for news in await self.audio.hear(piece):
                match news:
                    case Started(at_s):
                        await self._started(peer, at_s)
                    case Said(delta):
                        self._transcribed(peer, delta)
                    case Ended(at_s, transcript):
                        await self._ended(peer, at_s, transcript)

    async def _started(self, peer: Peer, at_s: float) -> None:
        turns = self.settings.turns
        if turns is None:
            return
        at_ms = max(0, round(at_s * 1000) - turns.prefix_padding_ms)
        self.audio.begin_turn(at_ms / 1000)
        self._send(peer, "input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=self._turn())
        if turns.interrupt_response:
            await self._stop_answer("turn_detected")

    async def _ended(self, peer: Peer, at_s: float, transcript: str) -> None:
        turns = self.settings.turns
        if turns is None:
            return
        self._send(peer, "input_audio_buffer.speech_stopped", audio_end_ms=round(at_s * 1000), item_id=self._turn())
        self._committed(peer, transcript)
        if turns.create_response and self.settings.answers and self._answering is None:
            self._answer(peer, self.settings, self.conversed.items)

    async def _commit(self, peer: Peer) -> None:
        if self.audio.uncommitted_s == 0:
            raise RequestError(400, "there is no audio to commit. Append some", code="input_audio_buffer_commit_empty")
        transcript = ""
        for news in await self.audio.end_turn():
            if isinstance(news, Said):
                self._transcribed(peer, news.delta)
            elif isinstance(news, Ended):
                transcript = news.transcript
        self._committed(peer, transcript)

    def _transcribed(self, peer: Peer, delta: str) -> None:
        if self.settings.transcription is not None:
            name = "conversation.item.input_audio_transcription.delta"
            self._send(peer, name, item_id=self._turn(), content_index=0, delta=delta)

    def _committed(self, peer: Peer, transcript: str) -> None:
        item = Item(self._turn(), "user", "input_audio", transcript)
        self._turn_id = ""
        before = self.conversed.add(item)
        seconds = self.audio.commit()
        self._send(peer, "input_audio_buffer.committed", previous_item_id=before, item_id=item.item_id)
        self._added(peer, item, before)
        if self.settings.transcription is not None:
            self._send(
                peer,
                "conversation.item.input_audio_transcription.completed",
                item_id=item.item_id,
                content_index=0,
                transcript=transcript,
                usage={"type": "duration", "seconds": round(seconds, 3)},
            )

    def _added(self, peer: Peer, item: Item, before: str | None) -> None:
        for name in ("conversation.item.added", "conversation.item.done"):
            self._send(peer, name, previous_item_id=before, item=item.shown())

    def _change_item(self, peer: Peer, event: Fields, name: str) -> None:
        item = self.conversed.get(event.text("item_id"))
        if name.endswith("retrieve"):
            self._send(peer, "conversation.item.retrieved", item=item.shown())
        elif name.endswith("delete"):
            self.conversed.delete(item.item_id)
            self._send(peer, "conversation.item.deleted", item_id=item.item_id)
        elif item.content_type != "output_audio":
            raise invalid("item_id", "must be that of an answer in audio")
        else:
            place = {"content_index": event.integer("content_index", 0, low=0, high=0)}
            place["audio_end_ms"] = event.integer("audio_end_ms", 0, low=0)
            self._send(peer, "conversation.item.truncated", item_id=item.item_id, **place)

    async def _create(self, peer: Peer, asked: Fields) -> None:
        if not self.settings.answers:
            raise RequestError(400, "this session only transcribes", code="no_answers_here")
        if self._answering is not None:
            message = f"response {self._answering.response_id} is under way. Wait for it, or cancel it"
            raise RequestError(400, message, code="conversation_already_has_active_response")
        only(asked, _RESPONSE, "response.")
        can_speak = self.service.synthesiser is not None
        settings = answer_settings(self.settings, asked, can_speak=can_speak, where="response.")
        kept = asked.text("conversation", "auto")
        if kept not in ("auto", "none"):
            raise invalid("response.conversation", "must be auto or none")
        items = self.conversed.items
        if asked.has("input"):
            given = [Fields(value) if isinstance(value, dict) else Fields({}) for value in asked.items("input")]
            items = [wire.parse_item(item, "input", f"response.input[{i}].") for i, item in enumerate(given)]
        self._answer(peer, settings, items, kept=kept == "auto", metadata=asked.mapping("metadata").values or None)

    def _answer(
        self,
        peer: Peer,
        settings: Settings,
        items: list[Item],
        *,
        kept: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        reply = self._reply(settings, items)
        item = Item(self.events.new_id("item"), "assistant", "output_audio" if settings.spoken else "output_text")
        before = self.conversed.add(item) if kept else None
        n_audio_in, heard = self.audio.since_last_answer()
        self._answering = Answering(
            peer=peer,
            events=self.events,
            settings=settings,
            reply=reply,
            synthesiser=self.service.synthesiser,
            item=item,
            count=lambda stages: self.service.metrics.stage(settings.model, stages),
            previous_item_id=before,
            n_audio_in=n_audio_in,
            heard=heard,
            metadata=metadata,
            kept=kept,
        )
        self._answering.begin()
        assert self._group is not None
        self._task = self._group.create_task(self._run(self._answering))

    def _reply(self, settings: Settings, items: list[Item]) -> Reply:
        recogniser_ = self.service.recogniser
        if recogniser_ is not None and settings.model == recogniser_.name:
            return echo(items)
        limit = settings.max_output_tokens
        model = self.service.model(settings.model)
        return continued(self.service, model, items, settings.instructions, limit, spoken=settings.spoken)

    async def _run(self, answering: Answering) -> None:
        try:
            await answering.run()
        finally:
            self._answering = None

    async def _stop_answer(self, why: str) -> None:
        """Have the answer under way, if any, end as cancelled."""
        answering, task = self._answering, self._task
        if answering is not None and task is not None:
            answering.stopped = why
            task.cancel()
            await asyncio.wait((task,))
            answering.end_stopped()  # it may not even have begun to run
            self._answering = None

    def _turn(self) -> str:
        self._turn_id = self._turn_id or self.events.new_id("item")
        return self._turn_id

    def _shown(self) -> dict[str, Any]:
        return self.settings.shown(f"sess_{self.events.request_id}", self.expires_s)

    def _send(self, peer: Peer, name: str, **fields: Any) -> None:
        peer.send(self.events.event(name, **fields))
