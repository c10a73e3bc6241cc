"""OpenAI's realtime WebSocket (``/v1/realtime``): live transcription, and conversations in speech or text.

A turn is settings, the input, and whatever the server makes of it; a conversation is turns on one connection. Audio
goes out as a microphone would give it, and nothing between turns; turns end by the server's turn detection, in the
silence that follows the clip, or by a commit at its true end. The answer's audio comes faster than it plays, so what is
stamped is arrival; when it could be heard is worked out from that. It plays no tools, and leaves it to the server to
note how much of an answer was heard.
"""

from __future__ import annotations

import base64
import binascii
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
from pydantic import Field, field_validator, model_validator

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import first_model, over_websocket
from plimsoll.harness.protocols._speech.codecs import BrokenAudio, decoder
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    Endpoint,
    Event,
    Said,
    Sound,
    Spoken,
    Transcript,
    after_speech,
    conclude,
    fault_in,
    heard_out,
    kind_of,
    member,
    ns_of,
    put_sounds,
    put_talk,
    put_transcripts,
    read,
    recognised,
    text_at,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions, text_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Dialogue, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault, cached_of, timing_of, usage_of
from plimsoll.scenarios.samples.payload import Payload

Wire = Literal["pcm", "pcmu", "pcma"]
#: (our codec, samples a second) of each format of the API.
FORMATS: Mapping[str, tuple[str, int]] = {"pcm": ("pcm16", 24_000), "pcmu": ("mulaw", 8000), "pcma": ("alaw", 8000)}
_VAD_MS, _MORE_NS = 500, 1_500_000_000
#: Longest silences that semantic_vad waits for, by eagerness, in ns.
_PATIENCE_NS = {"low": 8_000_000_000, "medium": 4_000_000_000, "high": 2_000_000_000, "auto": 4_000_000_000}
_SERVER_VAD = ("threshold", "prefix_padding_ms", "silence_duration_ms")


class RealtimeOptions(LiveOptions):
    """Options of ``openai-realtime``."""

    mode: Literal["transcription", "conversation"] = "transcription"
    dialect: Literal["openai", "vllm"] = "openai"
    encoding: Wire = "pcm"
    turn_detection: Literal["server_vad", "semantic_vad", "none"] = "server_vad"
    silence_duration_ms: int | None = Field(default=None, ge=10, le=60_000)
    threshold: float | None = Field(default=None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(default=None, ge=0, le=60_000)
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    interrupt_response: bool = True
    noise_reduction: Literal["near_field", "far_field"] | None = None
    transcription_model: str | None = None
    language: str | None = None
    prompt: str | None = None
    delay: str | None = None
    output: Literal["audio", "text"] = "audio"
    output_encoding: Wire = "pcm"
    voice: str | None = None
    speed: float | None = Field(default=None, ge=0.25, le=1.5)
    instructions: str | None = None
    session: dict[str, Any] = {}
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @field_validator("session")
    @classmethod
    def _sendable(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            orjson.dumps(value)
        except TypeError as error:
            raise ValueError(f"it can't be written as JSON ({error}). Use strings, numbers, lists, mappings") from None
        return value

    @model_validator(mode="after")
    def _together(self) -> RealtimeOptions:
        given = [name for name in _SERVER_VAD if getattr(self, name) is not None]
        if given and self.turn_detection != "server_vad":
            raise ValueError(
                f"{', '.join(given)}: only server_vad has that. Remove it, or set turn_detection: server_vad"
            )
        if self.eagerness is not None and self.turn_detection != "semantic_vad":
            raise ValueError("eagerness: only semantic_vad has that. Remove it, or set turn_detection: semantic_vad")
        if not self.interrupt_response and self.turn_detection == "none":
            raise ValueError("interrupt_response: false, and no turn detection that could interrupt. Remove it")
        if self.dialect == "vllm":
            if self.mode == "conversation":
                raise ValueError("dialect: vllm has no conversation. Set mode: transcription, or dialect: openai")
            others = sorted(self.model_fields_set - _OF_VLLM)
            if others:
                raise ValueError(f"{', '.join(others)}: vLLM's dialect has no such setting. Remove it")
        return self

    @property
    def sent_as(self) -> tuple[str, int]:
        return ("pcm16", 16_000) if self.dialect == "vllm" else FORMATS[self.encoding]

    @property
    def silence_ns(self) -> int:
        if self.dialect == "vllm" or self.turn_detection == "none":
            return 0
        if self.turn_detection == "semantic_vad":
            return _PATIENCE_NS[self.eagerness or "auto"] + _MORE_NS
        return (self.silence_duration_ms or _VAD_MS) * 1_000_000 + _MORE_NS


_OF_VLLM = frozenset({"mode", "dialect", "audio", "query", "path"})


def session_object(options: RealtimeOptions, model: str, max_output_tokens: int, heard: bool) -> dict[str, Any]:
    """The ``session`` of session.update. ``heard``: the input is audio."""
    audio: dict[str, Any] = {"input": _input_settings(options, model)} if heard else {}
    session: dict[str, Any] = {"type": "transcription", "audio": audio}
    if options.mode == "conversation":
        session = {"type": "realtime", "output_modalities": [options.output], "audio": audio}
        session |= {"instructions": options.instructions} if options.instructions is not None else {}
        session |= {"max_output_tokens": max_output_tokens} if max_output_tokens > 0 else {}
        if options.output == "audio":
            spoken = {"voice": options.voice, "speed": options.speed}
            audio["output"] = {"format": _format(options.output_encoding), **_given(spoken)}
    return _merged(session, options.session)


def _input_settings(options: RealtimeOptions, model: str) -> dict[str, Any]:
    turns: dict[str, Any] | None = None
    if options.turn_detection != "none":
        names = (*_SERVER_VAD, "eagerness")
        turns = {"type": options.turn_detection, **_given({name: getattr(options, name) for name in names})}
        turns |= {} if options.interrupt_response else {"interrupt_response": False}
    wanted: dict[str, Any] = {"format": _format(options.encoding), "turn_detection": turns}
    transcriber = options.transcription_model or (model if options.mode == "transcription" else "")
    if transcriber or options.mode == "transcription":
        settings = {"language": options.language, "prompt": options.prompt, "delay": options.delay}
        wanted["transcription"] = {**({"model": transcriber} if transcriber else {}), **_given(settings)}
    if options.noise_reduction is not None:
        wanted["noise_reduction"] = {"type": options.noise_reduction}
    return wanted


def _format(wire: str) -> dict[str, Any]:
    return {"type": "audio/pcm", "rate": FORMATS[wire][1]} if wire == "pcm" else {"type": f"audio/{wire}"}


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """``one`` with what ``other`` has, mappings merged all the way down."""
    merged = dict(one)
    for name, value in other.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


_CODES = {b"session.created": READY, b"transcription.done": DONE, b"error": DONE}


class VllmDialogue:
    """vLLM's dialect: transcription only, and no turns."""

    def __init__(self, target: Target, options: RealtimeOptions) -> None:
        self._options = options
        self._model = target.model
        self._headers = handshake_headers(target.headers, "bearer")
        self._path = request_target(target.url, "/v1/realtime", options.path, options.query)

    def encode(self, payload: Payload) -> Script:
        live = self._options.live(payload, "openai-realtime")
        return Script(
            path=self._path,
            headers=self._headers,
            opening=(_event("session.update", model=self._model), _event("input_audio_buffer.commit", final=False)),
            waits=True,
            closing=(_event("input_audio_buffer.commit", final=True),),
            ends_on_close=False,
            n_in=payload.n_in,
            **live.script([append_of(frame) for frame in live.frames]),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return _CODES.get(kind_of(message), NOTHING) if text else NOTHING

    def settle(self, exchange: Exchange) -> None:
        text, usage = "", (-1, -1)

        def tell(account: Account, t_ns: int, said: Any) -> None:
            nonlocal text, usage
            kind = text_at(said, "type")
            if kind == "transcription.delta":
                text += text_at(said, "delta")
                account.events.append(Transcript(t_ns, 0, text, False))
            elif kind == "transcription.done":
                text = text_at(said, "text") or text
                account.events.append(Transcript(t_ns, 0, text, True))
                usage = usage_of(said.get("usage"))
            elif kind == "error":
                account.fault = error_of(said)

        recognised(exchange, tell, self._options.audio.normaliser)
        outcome.count_usage(exchange, *usage)


def append_of(frame: bytes) -> Message:
    """One frame of audio as an event."""
    return Message(b'{"type":"input_audio_buffer.append","audio":"' + base64.b64encode(frame) + b'"}', True)


def error_of(message: dict[str, object]) -> Fault:
    """The error that an event reports: a mapping as OpenAI has it, or a text beside its code."""
    error = message.get("error")
    if isinstance(error, dict):
        return fault_in(error, ("message",), ("type", "code"))
    return fault_in(message, ("error", "message"), ("code",))


def _event(name: str, **fields: object) -> Message:
    return Message(orjson.dumps({"type": name, **fields}), True)


#: Beta names of events whose content is that of the GA name.
_BETA = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.text.delta": "response.output_text.delta",
}
_HEARD = "conversation.item.input_audio_transcription."


@dataclass(slots=True)
class Reading:
    """The session so far. ``text``, ``text_ns`` and ``sounds`` belong to the latest answer: one that was cut short by
    speech is void. ``answers``: how each of them sounds, first the rest of the one that this turn spoke over.

    ``segments``: item id -> (place among the items, transcript so far). ``status`` is that of the latest response.done.
    """

    events: list[Event] = field(default_factory=list)
    sounds: list[Sound] = field(default_factory=list)
    answers: list[Spoken] = field(default_factory=lambda: [Spoken([])])
    text_ns: list[int] = field(default_factory=list)
    text: str = ""
    segments: dict[str, tuple[int, str]] = field(default_factory=dict)
    status: str = ""
    n_in: int = -1
    n_out: int = -1
    n_cached: int = -1
    timing: str = ""
    fault: Fault | None = None
    broken: str = ""


def read_events(said: Said, output_encoding: str, stamps: SessionStamps | None = None) -> Reading:
    """All that the messages said, of a turn of a conversation after those before it."""
    reading = Reading()
    reading.answers[0].over = stamps is None or not stamps.under_way
    before_ns = stamps.taken_before_ns if stamps is not None else 0
    reading.sounds = reading.answers[0].sounds
    codec, rate = FORMATS[output_encoding]
    play = decoder(codec, rate)
    for t_ns, event in said.messages:
        if isinstance(event, bytes):
            continue
        kind = text_at(event, "type")
        kind = _BETA.get(kind, kind)
        if kind == "response.output_audio.delta":
            try:
                samples = play.feed(base64.b64decode(text_at(event, "delta"), validate=True))
                reading.sounds.append(Sound(t_ns, samples, rate))
            except (binascii.Error, BrokenAudio, ValueError) as error:
                reading.broken = reading.broken or f"the answer's audio can't be decoded: {error}"
        elif kind == "response.output_audio_transcript.delta":
            reading.text += text_at(event, "delta")
        elif kind == "response.output_text.delta":
            if text_at(event, "delta"):
                reading.text_ns.append(t_ns)
                reading.text += text_at(event, "delta")
        elif kind.startswith("response."):
            _answer(reading, t_ns, kind, event)
            if kind == "response.created":
                play = decoder(codec, rate)
        elif kind == "error":
            reading.fault = reading.fault or error_of(event)
        else:
            _input(reading, t_ns, kind, event, before_ns)
    if stamps is not None and stamps.follows and len(reading.answers) == 1:
        reading.sounds = []  # of the answer before
    return reading


def _answer(reading: Reading, t_ns: int, kind: str, event: dict[str, Any]) -> None:
    if kind == "response.created":
        reading.sounds, reading.text_ns, reading.text, reading.status = [], [], "", ""
        reading.answers.append(Spoken(reading.sounds))
    elif kind == "response.done":
        reading.status = text_at(event, "response", "status")
        reading.answers[-1].done(t_ns, reading.status == "cancelled")
        usage = member(event, "response", "usage")
        (reading.n_in, reading.n_out), reading.n_cached = usage_of(usage), cached_of(usage)
        reading.timing = timing_of(event.get("server_timing"))
        if reading.status == "failed":
            details = member(event, "response", "status_details")
            told = error_of(details) if isinstance(details, dict) else Fault("")
            reading.fault = reading.fault or Fault(told.message or "the response failed", told.overloaded)


def _input(reading: Reading, t_ns: int, kind: str, event: dict[str, Any], before_ns: int) -> None:
    item = text_at(event, "item_id")
    if kind == "input_audio_buffer.speech_started":
        reading.answers[-1].spoken_over(t_ns)
    if kind == "input_audio_buffer.speech_stopped":
        at_ns = ns_of(event.get("audio_end_ms"), 1_000_000)
        reading.events.append(Endpoint(t_ns, max(-1, at_ns - before_ns)))
    elif kind.startswith(_HEARD):
        place, text = reading.segments.get(item, (len(reading.segments), ""))
        final = kind == f"{_HEARD}completed"
        if final:
            text = text_at(event, "transcript")
        elif kind == f"{_HEARD}delta":
            text += text_at(event, "delta")
        else:
            if kind == f"{_HEARD}failed":
                reading.fault = reading.fault or error_of(event)
            return
        reading.segments[item] = place, text
        reading.events.append(Transcript(t_ns, place, text, final))
    if item and kind in ("input_audio_buffer.speech_started", "input_audio_buffer.committed"):
        reading.segments.setdefault(item, (len(reading.segments), ""))


_COMMIT, _ANSWER = (
    Message(orjson.dumps({"type": name}), True) for name in ("input_audio_buffer.commit", "response.create")
)
_ITEM = b"conversation.item.input_audio_transcription."
_STARTED, _COMMITTED = b'"input_audio_buffer.speech_started"', b'"input_audio_buffer.committed"'
_TURN_END = re.compile(rb'"audio_end_ms"\s*:\s*(\d{1,9})')
_CANCELLED = re.compile(rb'"status"\s*:\s*"cancelled"')
_CREATED, _DELTA = b'"response.created"', re.compile(rb'"delta"\s*:\s*"')
_AUDIO = (b"response.output_audio.delta", b"response.audio.delta")


class RealtimeDialogue:
    """OpenAI's dialect with the options' settings."""

    def __init__(self, target: Target, options: RealtimeOptions) -> None:
        self._options = options
        self._model = target.model
        self._headers = handshake_headers(target.headers, "bearer")
        self.converses = talks = options.mode == "conversation"
        codec, self._rate = FORMATS[options.output_encoding]
        self._bytes = 2 if codec == "pcm16" else 1  # of a sample
        self.deaf = ""
        if options.output == "text" or options.turn_detection == "none":
            self.deaf = "an answer in text can't be spoken over, nor a server that waits for a commit. "
            self.deaf += "Give output: audio and a turn_detection"
        query: dict[str, Value] = {"model": self._model or None} if talks else {"intent": "transcription"}
        self._path = request_target(target.url, "/v1/realtime", options.path, {**query, **options.query})

    def encode(self, payload: Payload) -> Script:
        options = self._options
        heard = options.mode == "transcription" or "clip" in payload.data
        session = session_object(options, self._model, payload.max_output_tokens, heard)
        common: dict[str, Any] = {
            "path": self._path,
            "headers": self._headers,
            "opening": (Message(orjson.dumps({"type": "session.update", "session": session}), True),),
            "waits": True,
            "ends_on_close": False,
            "n_in": payload.n_in,
        }
        if not heard:
            said = {"type": "input_text", "text": text_of(payload, "openai-realtime")}
            item = {"type": "message", "role": "user", "content": [said]}
            asked = Message(orjson.dumps({"type": "conversation.item.create", "item": item}), True)
            return Script(**common, frames=(asked, _ANSWER), due_ns=(0, 0))
        live = options.live(payload, "openai-realtime")
        closing: tuple[Message, ...] = ()
        if options.turn_detection == "none":
            closing = (_COMMIT, _ANSWER) if options.mode == "conversation" else (_COMMIT,)
        return Script(**common, closing=closing, **live.script([append_of(frame) for frame in live.frames]))

    # -- while it is on -----------------------------------------------------------------------------------------

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if not text:
            return NOTHING
        kind = kind_of(message)
        if kind == b"error":
            return DONE  # the socket would stay open, and the answer never come
        if kind in (b"session.updated", b"transcription_session.updated"):
            return READY
        if kind == b"input_audio_buffer.speech_stopped":
            return ENDPOINT if _heard_out(exchange) else NOTHING
        if kind == b"response.done":
            return self._answered(exchange, message)
        if self._options.mode == "transcription" and kind.startswith(_ITEM):
            if kind.endswith(b".failed"):
                return DONE
            return DONE if kind.endswith(b".completed") and self._transcribed(exchange) else NOTHING
        return NOTHING

    def _answered(self, exchange: Exchange, message: bytes) -> int:
        """The answer to the whole of the input is over: not one that our own speech interrupted, nor one to its first
        half.
        """
        if exchange.session is not None and exchange.session.follows and _CREATED not in exchange.body:
            return NOTHING  # it ends the answer that this turn spoke over
        by_vad = exchange.media_ns >= 0 and self._options.turn_detection != "none"
        if by_vad and (_CANCELLED.search(message) or self._speaking(exchange) or not _heard_out(exchange)):
            return NOTHING
        return DONE

    def _transcribed(self, exchange: Exchange) -> bool:
        """Every item has its transcript, and the input is over."""
        body = exchange.body
        done = sum(body.count(b'"' + _ITEM + end + b'"') for end in (b"completed", b"failed"))
        if done < body.count(_COMMITTED):
            return False
        return self._options.turn_detection == "none" or not (self._speaking(exchange) or not _heard_out(exchange))

    @staticmethod
    def _speaking(exchange: Exchange) -> bool:
        """Speech has begun that no item holds yet."""
        return exchange.body.count(_STARTED) > exchange.body.count(_COMMITTED)

    def sounds(self, message: bytes) -> int:
        kind = kind_of(message)
        if kind not in _AUDIO:
            return -1 if kind == b"response.created" else 0
        begin = _DELTA.search(message)
        if begin is None:
            return 0
        end = message.find(b'"', begin.end())
        size = (end - begin.end()) * 3 // 4 - message.count(b"=", max(begin.end(), end - 2), end)
        return max(0, size) // self._bytes * 1_000_000_000 // self._rate

    # -- after it -----------------------------------------------------------------------------------------------

    def settle(self, exchange: Exchange) -> None:
        options, said, script = self._options, read(exchange), exchange.request.script
        stamps = exchange.session
        reading = read_events(said, options.output_encoding, stamps)
        wanted = options.mode == "transcription" or options.transcription_model is not None
        if script.clip is not None and stamps is not None and (stamps.open_ns >= 0 or stamps.follows):
            put_transcripts(exchange, script.clip if wanted else None, reading.events, options.audio.normaliser)
            if not wanted:
                stamps.heard = None  # nobody was asked to write it down
        if options.mode == "conversation":
            _put_answer(exchange, reading)
        exchange.server_timing = reading.timing or None
        conclude(exchange, said, reading.fault)
        if options.mode == "conversation":
            if exchange.request.talk is not None:
                put_talk(exchange, reading.answers, options.interrupt_response)
            self._judge_answer(exchange, reading)

    def _judge_answer(self, exchange: Exchange, reading: Reading) -> None:
        if reading.broken:
            outcome.fail(exchange, outcome.PROTOCOL, reading.broken)
        elif exchange.session is not None and exchange.session.cut:
            pass  # the user did not want to hear its end
        elif reading.status == "cancelled":
            outcome.fail_by(exchange, Fault("the response was cancelled"))
        elif reading.status not in ("completed", "incomplete"):
            said = f"its status is {reading.status[:40]!r}" if reading.status else "its status is missing"
            outcome.fail(exchange, outcome.PROTOCOL, f"the answer ended without a finish reason: {said}")
        elif not (reading.sounds if self._options.output == "audio" else reading.text_ns):
            outcome.fail(exchange, outcome.PROTOCOL, f"the answer holds no {self._options.output}")


def _heard_out(exchange: Exchange) -> bool:
    """The latest turn reaches the true end of the speech, by the server's own position where it gives one."""
    found = _TURN_END.search(exchange.body, max(0, exchange.body.rfind(b'"input_audio_buffer.speech_stopped"')))
    before_ns = 0 if exchange.session is None else exchange.session.taken_before_ns
    return after_speech(exchange) if found is None else heard_out(exchange, int(found[1]) - before_ns / 1e6)


def _put_answer(exchange: Exchange, reading: Reading) -> None:
    """The answer's chunks are the row's chunks: in speech those of audio, in text those of text."""
    if reading.sounds:
        put_sounds(exchange, reading.sounds)
        if exchange.session is not None:
            exchange.session.chunk_cursor_ns = array("q")  # positions in the input are no positions of these chunks
    elif reading.text_ns:
        outcome.put_chunks(exchange, array("q", reading.text_ns), reading.text_ns[0])
    if exchange.session is not None and exchange.media_ns < 0:
        exchange.session.heard = reading.text
    outcome.count_tokens(exchange, reading.n_in, reading.n_out, exchange.status == outcome.OK)
    outcome.count_cached(exchange, reading.n_cached)


def _dialogue(target: Target) -> Dialogue:
    options = accept(RealtimeOptions, target.options)
    return VllmDialogue(target, options) if options.dialect == "vllm" else RealtimeDialogue(target, options)


async def _prepare(target: Target) -> Target:
    """vLLM insists on a model's name, and lists its own first; OpenAI's list says nothing about who transcribes."""
    if target.model or accept(RealtimeOptions, target.options).dialect != "vllm":
        return target
    return replace(target, model=await first_model(target) or "")


PROTOCOLS = (
    ProtocolSpec(
        "openai-realtime",
        "OpenAI realtime, /v1/realtime: live transcription (also vLLM's), voice to voice, text to voice",
        over_websocket(_dialogue),
        RealtimeOptions,
        bundled=True,
        bundled_model="recogniser",
        source="audio",
        prepare=_prepare,
        speaks=lambda options: options.get("mode") == "conversation" and options.get("output", "audio") == "audio",
    ),
)
