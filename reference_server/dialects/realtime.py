"""Sessions like OpenAI's Realtime: audio in, heard turn by turn; answers in audio or text that can be interrupted.

Turns end where the recogniser hears the utterance end (server_vad), or with a commit. There is no buffer of samples:
audio is heard as it is appended. Events are dealt with in order, and answers are given meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from plimsoll.reference_server.dialects import realtime_wire as wire
from plimsoll.reference_server.dialects.realtime_answers import Answering, Reply, audio_tokens, continued, echo
from plimsoll.reference_server.dialects.realtime_wire import (
    Conversed,
    Events,
    Item,
    Settings,
    answer_settings,
    only,
    updated,
)
from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.audio import SampleReader, in_pieces
from plimsoll.reference_server.speech.listening import Listener, Recogniser
from plimsoll.reference_server.speech.transcript import CertainWords
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import error_body
from plimsoll.reference_server.transports.websocket import GOING_AWAY, Conversation, Dialect, Ending, Peer, Sessions
from plimsoll.reference_server.values.errors import RequestError, invalid

MAX_UNCOMMITTED_S = 900.0
LIFE_S = 3600
"""How long a session may last."""
_RESPONSE = ("conversation", "metadata", "input", "output_modalities", "instructions", "max_output_tokens", "audio")


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody began to speak, at that second of audio."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the turn that won't change; ``delta`` is what they add to the transcript."""

    delta: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over; ``at_s`` is how far the audio had been heard when that was noticed."""

    at_s: float
    transcript: str


@dataclass(slots=True)
class Turns:
    """The turn under way, if any."""

    speaking: bool = False
    _certain: CertainWords = field(default_factory=CertainWords)
    _words: list[str] = field(default_factory=list)
    """Those of finals so far."""

    def feed(self, news: Sequence[Heard]) -> Iterator[Started | Said | Ended]:
        for index, heard in enumerate(news):
            texts = [*self._words, *(word.text for word in heard.words)]
            if heard.kind == "speech_started":
                self.speaking = True
                yield Started(heard.start_s)
            elif heard.kind == "partial":
                yield from self._said(self._certain.feed(texts))
            elif heard.kind == "final":
                self._words = texts
                yield from self._said(self._certain.end(texts))
                if index and news[index - 1].kind == "speech_ended":
                    yield self._ended(heard.end_s)
            elif index + 1 == len(news) or news[index + 1].kind != "final":
                yield self._ended(heard.end_s)

    def _said(self, fresh: Sequence[str]) -> Iterator[Said]:
        if fresh:
            yield Said(self._certain.delta(fresh))

    def _ended(self, at_s: float) -> Ended:
        transcript = " ".join(self._words)
        self.speaking, self._words, self._certain = False, [], CertainWords()
        return Ended(at_s, transcript)


class InputAudio:
    """What the client says. Raises RequestError 503 at once when the recogniser is full."""

    def __init__(self, model: Recogniser, settings: Settings) -> None:
        self._model = model
        self._settings = settings
        self._listener = self._listen()
        self._reader = SampleReader(settings.input.encoding)
        self._turns = Turns()
        self._origin_s = 0.0
        self._n_samples = 0
        self._committed_s = 0.0
        self._unanswered_s = 0.0
        self._answered: dict[str, int] = {}

    @property
    def heard_s(self) -> float:
        return self._origin_s + self._n_samples / self._settings.input.sample_rate

    @property
    def uncommitted_s(self) -> float:
        return self.heard_s - self._committed_s

    def change(self, settings: Settings) -> None:
        """Take on new settings; where they change how audio is heard, the speech under way is forgotten.

        Raises RequestError 503 when the recogniser is full.
        """
        before, self._settings = self._settings, settings
        if _hearing(before) == _hearing(settings):
            return
        self._origin_s += self._n_samples / before.input.sample_rate
        self._n_samples = 0
        self._listener.close()
        self._listener = self._listen()
        self._reader = SampleReader(settings.input.encoding)
        self._turns, self._answered = Turns(), {}

    def pieces(self, encoded: str) -> Iterator[Audio]:
        try:
            data = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise invalid("audio", f"must be base64: {error}") from None
        samples, rate = self._reader.feed(data), self._settings.input.sample_rate
        if self._settings.turns is None and self.uncommitted_s + len(samples) / rate > MAX_UNCOMMITTED_S:
            message = f"more than {MAX_UNCOMMITTED_S:g} s of audio wait for a commit. Commit or clear"
            raise RequestError(400, message, param="audio", code="input_audio_buffer_full")
        yield from in_pieces(samples, rate)

    def begin_turn(self, at_s: float) -> None:
        """The silence before that second belongs to no item."""
        self._committed_s = max(self._committed_s, at_s)

    async def hear(self, piece: Audio) -> list[Started | Said | Ended]:
        self._n_samples += len(piece)
        return self._news(await self._listener.feed(piece))

    async def end_turn(self) -> list[Started | Said | Ended]:
        """End the speech under way, if any."""
        return self._news(await self._listener.flush())

    async def clear(self) -> None:
        """Forget the speech under way, and what was said since the last commit."""
        await self._listener.flush()
        self._turns = Turns()
        self.commit()
        self._unanswered_s = 0.0

    def commit(self) -> float:
        """Everything so far belongs to an item; returns the seconds that are new in it."""
        seconds = self.uncommitted_s
        self._committed_s = self.heard_s
        self._unanswered_s += seconds
        return seconds

    def since_last_answer(self) -> tuple[int, dict[str, int]]:
        """Tokens of the audio committed since this was last asked, and nanoseconds of the recogniser's stages."""
        spans = dict(self._listener.stages.spans_ns)
        fresh = {name: ns - self._answered.get(name, 0) for name, ns in spans.items()}
        tokens, self._answered, self._unanswered_s = audio_tokens(self._unanswered_s), spans, 0.0
        return tokens, fresh

    def close(self) -> None:
        self._listener.close()

    def _listen(self) -> Listener:
        turns = self._settings.turns
        return self._model.listen(
            self._settings.input.sample_rate,
            interim=self._settings.transcription is not None,
            endpointing_ms=500 if turns is None else turns.silence_ms,
            single_utterance=turns is None,
        )

    def _news(self, news: Sequence[Heard]) -> list[Started | Said | Ended]:
        later = [replace(h, start_s=h.start_s + self._origin_s, end_s=h.end_s + self._origin_s) for h in news]
        return list(self._turns.feed(later))


def _hearing(settings: Settings) -> tuple[object, ...]:
    return settings.input, settings.turns, settings.transcription is None


def _refuse(error: RequestError, _request_id: str) -> web.Response:
    return web.Response(body=error_body("", error), status=error.status, content_type="application/json")


DIALECT = Dialect(_refuse, wire.failed, ("realtime",))


def add_routes(app: web.Application, sessions: Sessions) -> None:
    service = sessions.service

    def admit(request: web.Request, row: TruthRow) -> Conversation:
        hearing = service.listening()
        name = request.query.get("model", "") or hearing.name
        row.model = hearing.name if name == hearing.name else service.model(name).name
        settings = Settings(row.model, spoken=service.synthesiser is not None)
        return Talking(service, settings, Events(row.request_id), InputAudio(hearing, settings), row)

    app.router.add_get("/v1/realtime", sessions.route(DIALECT, admit))


@dataclass(slots=True, eq=False)
class Talking:
    """One session."""

    service: Service
    settings: Settings
    events: Events
    audio: InputAudio
    row: TruthRow
    expires_s: int = field(default_factory=lambda: int(time.time()) + LIFE_S)
    """Wall time, in seconds, at which the session is over."""
    conversed: Conversed = field(default_factory=Conversed)
    _answering: Answering | None = None
    _task: asyncio.Task[None] | None = None
    _group: asyncio.TaskGroup | None = None
    _turn_id: str = ""
    """The item that the speech under way, or not yet committed, will become."""
    _owed: bool = False
    """A turn ended while the answer before it was still being given: its own comes next."""

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
        noted = [time.monotonic_ns(), -1]
        self.row.talk_ns.append(noted)
        answering = self._answering
        if not turns.interrupt_response or answering is None:
            return
        self._owed = False
        slow = self.service.faults.acting("slow_stop", noted[0])
        if slow and self._group is not None:
            slow[0].hit()
            self._group.create_task(self._stop_late(answering, noted, slow[0].fault.duration_ns("by")))
        else:
            await self._stop_answer("turn_detected")
            noted[1] = time.monotonic_ns()

    async def _stop_late(self, answering: Answering, noted: list[int], late_ns: int) -> None:
        """Go on for a while; an answer that is over by then needs no stopping."""
        await asyncio.sleep(late_ns / 1e9)
        if self._answering is answering:
            await self._stop_answer("turn_detected")
            noted[1] = time.monotonic_ns()
            self._answer_owed(answering.peer)

    def _answer_owed(self, peer: Peer) -> None:
        if self._owed:
            self._owed = False
            self._answer(peer, self.settings, self.conversed.items)

    async def _ended(self, peer: Peer, at_s: float, transcript: str) -> None:
        turns = self.settings.turns
        if turns is None:
            return
        self._send(peer, "input_audio_buffer.speech_stopped", audio_end_ms=round(at_s * 1000), item_id=self._turn())
        self._committed(peer, transcript)
        if turns.create_response and self.settings.answers:
            self._owed = True
            if self._answering is None:
                self._answer_owed(peer)

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
            paced=bool(self.service.faults.acting("slow_stop", time.monotonic_ns())),
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
        if not answering.stopped:
            self._answer_owed(answering.peer)

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
